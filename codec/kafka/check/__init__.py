"""Check the files of a partition against each other, for `verify`.

`partition` compares the segments, and passes their batches on to the checks of derived files: `indexes`, `producers` (transactions,
snapshots) and `epochs`. Each entry of a derived file must be true; it need not equal what a rebuild would write.
"""
