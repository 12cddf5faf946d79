"""What a ZooKeeper server would do with a data directory if it were started now, and what its clients would see.

The modules, classes and functions have the names of ZooKeeper's own, and do things in its order and with its words: `file_snap` picks and
reads snapshots, `file_txn_log` reads logs, `file_txn_snap_log` makes a tree of both, `archive` reads jute as strictly as it does.
"""
