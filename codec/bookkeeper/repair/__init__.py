"""Repair a bookie, and rebuild its derived files."""
