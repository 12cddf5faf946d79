"""The state that a broker keeps of a partition's producers."""
