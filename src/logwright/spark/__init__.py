"""The Spark data source `logwright`, for reading and writing.

Where the package is installed Spark finds it without registration. Shipped as a zip with `--py-files`, it needs one call:

    import logwright.spark
    logwright.spark.register(spark)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logwright.codec.fault import UsageError

try:
    import pyspark
except ImportError:
    raise ImportError(
        'logwright.spark needs PySpark and Java 17 or newer: pip install "logwright[spark]"'
    ) from None

if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < (4, 1):
    raise ImportError(f"logwright.spark needs PySpark 4.1 or newer, found {pyspark.__version__}")

from logwright.spark.source import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DefaultSource", "register"]


def register(spark: SparkSession | None = None) -> None:
    """Register the source `logwright` with a session, by default the active one."""
    from pyspark.sql import SparkSession

    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise UsageError("no active Spark session", advice="Pass one: logwright.spark.register(spark)")
    session.dataSource.register(DefaultSource)
