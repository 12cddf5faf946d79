"""Mending data directories of ZooKeeper: records and snapshots that can be put right for certain, the longest correct history of what
is left, snapshots made anew from older ones and logs.
"""
