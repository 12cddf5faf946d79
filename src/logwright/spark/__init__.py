"""The Spark data source `logwright`, for reading and writing.

Where the package is installed Spark finds it by itself. Shipped as a zip with `--py-files`, it is registered by one call:

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
        'the Spark part needs PySpark: pip install "logwright[spark]", and Java 17 or newer'
    ) from None

if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < (4, 1):
    raise ImportError(f"the Spark part needs PySpark 4.1 or newer, this is {pyspark.__version__}")

from logwright.spark.source import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DefaultSource", "register"]


def register(spark: SparkSession | None = None) -> None:
    """Make `logwright` known to a session (the active one if none is given)."""
    from pyspark.sql import SparkSession

    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise UsageError(
            "there is no active Spark session", advice="Pass one: logwright.spark.register(spark)"
        )
    session.dataSource.register(DefaultSource)
