"""What can't be seen in a single file of a database, for `verify`, and what only the contents of a table's blocks tell.

`table` holds a table against its own index and filter, `database` the tables and logs against the manifest and each other.
"""
