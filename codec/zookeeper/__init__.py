"""ZooKeeper: the files of a data directory."""
