"""What checks the codecs of LevelDB: strategies for rows and files, samples, the reference."""
