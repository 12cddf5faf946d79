"""Compaction of a partition by the rules of Kafka's log cleaner."""
