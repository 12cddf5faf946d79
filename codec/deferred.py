"""Packages that are imported when they are first used. Each takes longer to import than most of this library."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import crc32c as crc32c_package
    import pyarrow.compute as compute
else:

    class _Deferred:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            value = getattr(importlib.import_module(self._name), name)
            setattr(self, name, value)
            return value

    compute = _Deferred("pyarrow.compute")
    crc32c_package = _Deferred("crc32c")

__all__ = ["compute", "crc32c_package"]
