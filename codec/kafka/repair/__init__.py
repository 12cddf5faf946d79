"""Mending a partition: what of its logs is kept, and everything that a broker derives from them made anew."""
