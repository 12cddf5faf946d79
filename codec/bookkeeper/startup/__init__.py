"""Simulate the start of a bookie, and what its clients read."""
