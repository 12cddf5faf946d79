"""What can't be seen in a single file of a partition, for `verify`.

`partition` holds the segments against each other, and hands their batches to what holds derived files against them: `indexes`,
`producers` (transactions, snapshots), `epochs`. It is the truth of what a file says that counts, not its equality with what would be
made anew.
"""
