"""Checks of the BookKeeper codecs: strategies for rows and files, samples, and the reference decoder."""
