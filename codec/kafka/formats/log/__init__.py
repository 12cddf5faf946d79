"""Segments of a partition: `kafka.log`."""
