"""Test data of BookKeeper."""
