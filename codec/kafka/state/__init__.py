"""What a broker remembers of a partition's producers."""
