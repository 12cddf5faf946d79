"""The file formats of BookKeeper."""
