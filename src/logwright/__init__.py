"""Decode and encode the native files of storage systems, byte for byte, as Arrow columns.

    import logwright as lw

    lw.read("/data/kafka-logs/orders-0")         a table of records
    lw.scan(...)                                 the same as a stream, for files larger than memory
    lw.verify(...), lw.inspect(...)              find damage; describe a file
    lw.write(table, "/stage/orders-0", "kafka.partition")
    lw.convert("/data/kafka-logs/orders-0", "orders.parquet")
    lw.repair(damaged, "/stage/orders-0")        every undamaged frame, in a directory that the system can open

Modules are imported when they are first used.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # `typing` takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from logwright.api import (
        detect,
        edit,
        explain,
        generate,
        inspect,
        rebuild,
        repair,
        verify,
        write,
    )
    from logwright.catalogue import codecs as codecs
    from logwright.codec.fault import (
        AccessError,
        BusyError,
        DamageError,
        DamageWarning,
        ExistsError,
        Fault,
        LogwrightError,
        NotFoundError,
        StorageError,
        UnsupportedError,
        UsageError,
    )
    from logwright.comparison import diff
    from logwright.conversion import convert
    from logwright.corpora.damage import Damaged, damage
    from logwright.corpora.generate import Generated
    from logwright.explanation import Explanation
    from logwright.readers.difference import Difference
    from logwright.readers.report import Report
    from logwright.roundtrip.check import Roundtrip, roundtrip
    from logwright.scanning import Scan as Scan
    from logwright.scanning import read as read
    from logwright.scanning import scan as scan
    from logwright.writers.write import Written

_NAMES = {
    "logwright.api": "detect edit explain generate inspect rebuild repair verify write",
    "logwright.catalogue": "codecs",
    "logwright.codec.fault": "AccessError BusyError DamageError DamageWarning ExistsError Fault LogwrightError NotFoundError StorageError "
    "UnsupportedError UsageError",
    "logwright.comparison": "diff",
    "logwright.conversion": "convert",
    "logwright.corpora.damage": "Damaged damage",
    "logwright.corpora.generate": "Generated",
    "logwright.explanation": "Explanation",
    "logwright.readers.difference": "Difference",
    "logwright.readers.report": "Report",
    "logwright.roundtrip.check": "Roundtrip",
    "logwright.scanning": "Scan read scan",
    "logwright.writers.write": "Written",
}
"""The public names of each module. A new verb is added here and above."""

_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [  # noqa: RUF022
    "Scan", "codecs", "convert", "damage", "detect", "diff", "edit", "explain", "generate", "inspect", "read", "rebuild", "repair",
    "roundtrip", "scan", "verify", "write",
    "Report", "Fault", "Difference", "Written", "Generated", "Damaged", "Roundtrip", "Explanation",
    "LogwrightError", "DamageError", "UsageError", "UnsupportedError", "NotFoundError", "AccessError", "ExistsError",
    "BusyError", "StorageError", "DamageWarning",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("logwright")
    if name in ("roundtrip", "spark"):
        # The first is a package that can be called; the second needs PySpark.
        return importlib.import_module(f"logwright.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'logwright' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"} - {"TYPE_CHECKING", "annotations", "importlib"})
