"""Lets Spark find the source without registration: it looks for a `DefaultSource` in modules named `pyspark_*`."""

from logwright.spark import DefaultSource

__all__ = ["DefaultSource"]
