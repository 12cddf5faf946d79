"""A directory of files: its listing, what stands for it in tests and predictions, how it is built."""
