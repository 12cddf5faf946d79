"""The laws that every codec obeys, and their checks. The package is callable: `logwright.roundtrip(path)` is the verb."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    """A module that is also callable, because the verb and the package have the same name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from logwright.roundtrip.check import roundtrip

        return roundtrip(*args, **kwargs)


sys.modules[__name__].__class__ = _Verb
