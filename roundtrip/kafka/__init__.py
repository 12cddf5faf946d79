"""Checks of the Kafka codecs: strategies for rows and files, samples, and the reference decoder."""
