"""Corpora of LevelDB: recipes, and a script that builds files from the descriptions."""
