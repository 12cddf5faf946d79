"""Simulate LevelDB opening a directory and iterating over it.

Modules, classes and functions are named after LevelDB's own. They act in its order and report in its words: `db_impl` opens, `version_set`
reads and writes manifests, `memtable` applies the operations of logs, `table` and `iterator` read.
"""
