"""What checks the codecs of RocketMQ: strategies for rows and files, samples, the reference."""
