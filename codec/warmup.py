"""The kernels of all formats, made before their first use."""

from __future__ import annotations

import importlib
import pkgutil

import logwright.codec
from logwright.codec.frames.resync import collector, finder
from logwright.codec.frames.scanner import scanner
from logwright.codec.frames.specification import Position, specifications


def make_kernels() -> None:
    """Import all modules of formats, most of which are otherwise imported when they are first used, and make the kernels that search for
    frames."""
    for module in pkgutil.walk_packages(logwright.codec.__path__, f"{logwright.codec.__name__}."):
        importlib.import_module(module.name)
    for specification in specifications():
        scanner(specification)
        scanner(specification, prefixed=True)
        finder(specification)
        if isinstance(specification.claims, Position):
            collector(specification)
