"""Repair of a database: which parts of its tables and logs are kept, and the manifest that names them.

`state` reads the metadata past damage, `tables` and `logs` survey a file and write it again, `levels` finds a level for tables of which
no manifest gives it, `repair` has the phases (`codec.engine.repair`).
"""
