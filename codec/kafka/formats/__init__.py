"""The file formats of Kafka."""
