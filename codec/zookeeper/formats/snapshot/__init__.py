"""Snapshots: `zookeeper.snapshot`."""
