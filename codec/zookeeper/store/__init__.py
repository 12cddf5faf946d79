"""The data directory of a server."""
