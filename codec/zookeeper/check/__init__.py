"""Checks for `verify` that need more than one file of a data directory: `datadir` compares snapshots and logs."""
