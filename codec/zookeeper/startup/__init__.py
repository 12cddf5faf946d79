"""Simulate the start of a ZooKeeper server on a data directory, and what its clients see.

Modules, classes and functions have the names of ZooKeeper's own, and follow its order and its messages: `file_snap` selects and reads
snapshots, `file_txn_log` reads logs, `file_txn_snap_log` makes a tree of both, `archive` reads jute as strictly as the server does.
"""
