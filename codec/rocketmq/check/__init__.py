"""Compare the files of a store with each other."""
