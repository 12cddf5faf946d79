"""What checks the codecs of BookKeeper: strategies for rows and files, samples, the reference."""
