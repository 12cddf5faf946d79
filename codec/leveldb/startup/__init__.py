"""What LevelDB would do with a directory if it were opened now, and what its iterator would give.

The modules, classes and functions have the names of LevelDB's own, and do things in its order and with its words: `db_impl` opens,
`version_set` reads and writes manifests, `memtable` takes the operations of logs, `table` and `iterator` read.
"""
