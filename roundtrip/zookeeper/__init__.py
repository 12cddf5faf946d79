"""What checks the codecs of ZooKeeper: strategies for rows and files, samples, the reference."""
