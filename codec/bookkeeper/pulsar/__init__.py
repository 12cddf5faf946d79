"""Messages of Apache Pulsar in the payloads of entries."""
