"""The file formats of RocketMQ."""
