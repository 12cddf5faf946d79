"""Python imports this module when it starts, if this folder is in PYTHONPATH: see the session in `conftest.py`."""

import contextlib
import sys
import zipimport

if any("pyspark" in word and "daemon" in word for word in sys.orig_argv):
    with contextlib.suppress(ImportError):
        import pyspark.sql.worker.plan_data_source_read
        import pyspark.worker  # noqa: F401

        import logwright.readers.spark
        import logwright.readers.spark_stream
        import logwright.spark.source
        import logwright.writers.bad_records
        import logwright.writers.spark
        import logwright.writers.staged
        import logwright.writers.streamed  # noqa: F401
    # In Python 3.13 `pkgutil`, with which Spark looks for sources, fails for archives whose cache is empty, and Spark empties it for each
    # task. Without this module the next import fills it again; here nothing is left to import.
    zipimport.zipimporter.invalidate_caches = lambda self: None  # type: ignore[method-assign]
