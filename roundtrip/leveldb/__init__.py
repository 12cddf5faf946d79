"""Checks of LevelDB's codecs: strategies for rows and files, samples, the reference."""
