"""Checks of the ZooKeeper codecs: strategies for rows and files, samples, and the reference decoder."""
