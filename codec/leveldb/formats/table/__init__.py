"""Sorted tables: `leveldb.table`."""
