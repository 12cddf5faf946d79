"""Repair data directories: correct records and snapshots that can be corrected with certainty, keep the longest correct history of the
rest, and make new snapshots from older ones and logs."""
