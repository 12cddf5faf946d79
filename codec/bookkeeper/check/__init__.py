"""Compare the files of a bookie with each other."""
