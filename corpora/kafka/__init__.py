"""Corpora of Kafka: recipes, and scripts that build files from the descriptions."""
