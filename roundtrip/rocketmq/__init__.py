"""Checks of the RocketMQ codecs: strategies for rows and files, samples, and the reference decoder."""
