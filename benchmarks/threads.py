"""Limit logwright to one thread, for comparisons with single-threaded peers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa


def alone(task: Callable[[], Any]) -> Callable[[], Any]:
    """The same by one thread."""

    def run() -> None:
        threads = pa.cpu_count()
        pa.set_cpu_count(1)
        try:
            task()
        finally:
            pa.set_cpu_count(threads)

    return run
