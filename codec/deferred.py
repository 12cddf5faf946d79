"""Modules that are imported when they are first used: large packages, and parts of a format that most processes do not need.

Each process that Spark starts waits for its imports.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class Deferred:
    """A module that is imported when an attribute of it is first used."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def deferred(package: str, *names: str) -> Any:
    """Return modules of a package, each imported when an attribute of it is first used.

    The caller imports them under `TYPE_CHECKING` as well, so that types and the direction of imports are checked.
    """
    modules = tuple(Deferred(f"{package}.{name}") for name in names)
    return modules if len(modules) > 1 else modules[0]


if TYPE_CHECKING:
    import crc32c as crc32c_package
    import pyarrow.compute as compute
    from llvmlite import ir

    cgutils: Any
else:
    cgutils = Deferred("numba.core.cgutils")
    ir = Deferred("llvmlite.ir")
    compute = Deferred("pyarrow.compute")
    crc32c_package = Deferred("crc32c")

__all__ = ["Deferred", "cgutils", "compute", "crc32c_package", "deferred", "ir"]
