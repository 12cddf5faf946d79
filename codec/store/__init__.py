"""A store of files: listing, roots, overlay, views, and building."""
