"""Corpora of Kafka: its recipes, and what puts its files together from the descriptions."""
