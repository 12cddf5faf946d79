"""Checks for `verify` that need more than one file, or the contents of a table's blocks.

`table` compares a table with its own index and filter, `database` the tables and logs with the manifest and each other.
"""
