"""The directory of a partition, and log directories."""
