"""The tree of a server in memory."""
