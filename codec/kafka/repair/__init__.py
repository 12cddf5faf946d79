"""Repair of a partition: which parts of its logs are kept. Everything that a broker derives from them is made again."""
