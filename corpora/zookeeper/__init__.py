"""Corpora of ZooKeeper: recipes, and scripts that build files from the descriptions."""
