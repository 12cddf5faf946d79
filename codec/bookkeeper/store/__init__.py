"""A bookie's directories: their files, views, checks and writer."""
