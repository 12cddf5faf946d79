"""Python imports this module when it starts, if this folder is in PYTHONPATH: see the session in `conftest.py`."""

import contextlib
import sys

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
