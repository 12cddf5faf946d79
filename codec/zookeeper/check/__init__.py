"""What can't be seen in a single file of a data directory, for `verify`: `datadir` holds snapshots and logs against each other."""
