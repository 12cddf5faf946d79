"""Repair of data directories: records and snapshots that can be corrected for certain, the longest correct history of the rest, and
snapshots made again from older ones and logs.
"""
