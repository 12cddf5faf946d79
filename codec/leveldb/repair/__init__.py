"""Mending a database: what of its tables and logs is kept, and a manifest that names it.

`state` reads what is left of the metadata, `tables` and `logs` tell what is sound in a file and put it together anew, `levels` finds
a place for tables of which no manifest says the level, `repair` has the strategies.
"""
