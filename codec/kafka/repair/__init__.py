"""Repair a partition: choose the parts of its logs that are kept, and derive all other files from them again."""
