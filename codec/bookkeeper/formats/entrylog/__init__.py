"""Entry logs: `bookkeeper.entrylog`."""
