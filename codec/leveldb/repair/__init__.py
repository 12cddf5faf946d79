"""Repair of a database: which parts of its tables and logs to keep, and the manifest that names them.

`state` reads damaged metadata, `tables` and `logs` survey and rewrite single files, `levels` chooses levels for tables whose level is
unknown, `repair` has the phases (`codec.engine.repair`).
"""
