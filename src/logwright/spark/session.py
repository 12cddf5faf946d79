"""Shared parts of the jobs: the Spark session, and messages for Spark's errors."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Callable
from typing import Any

from logwright import spark_python
from logwright.codec.fault import LogwrightError, UsageError

_ERROR = re.compile(r"[\w.]*(Error|Exception|Interrupt|Exit)\b")
_OURS = re.compile(r"logwright\.codec\.fault\.\w+: (.+)")


def session(name: str) -> Any:
    """Return the Spark session of a job."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not under spark-submit
        if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
            raise LogwrightError(
                "Spark needs Java, which is not installed",
                advice="Install Java 17 or newer, or set JAVA_HOME",
            )
        # By default Spark uses the first python3 of the path, which may be another one.
        os.environ.setdefault("PYSPARK_PYTHON", spark_python.executable())
        builder = builder.config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        raise LogwrightError(f"Spark failed to start: {str(error).splitlines()[0]}") from None


def exit_status(job: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Run a job and return its exit status. An error is printed: 2 for wrong usage, 1 for any other."""
    try:
        return job(args)
    except LogwrightError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def reason(error: Exception) -> str:
    """Return the cause of a long Spark error: the message of this package, the last line of a Python traceback, or the first informative
    line."""
    ours = _OURS.findall(str(error))
    if ours:
        return str(ours[-1]).strip()
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    trace = [at for at, line in enumerate(lines) if line.startswith('File "')]
    if trace:
        after = [line for line in lines[trace[-1] + 1 :] if _ERROR.match(line)]
        if after:
            return after[0]
    informative = [line for line in lines if "Caused by" in line or "Lost task" in line or "ailure" in line]
    return (informative or lines or [type(error).__name__])[0]
