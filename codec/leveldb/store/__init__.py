"""The directory of a database."""
