"""Kafka: the files of a partition."""
