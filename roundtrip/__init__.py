"""The laws that every codec keeps, and what holds them. The package can be called: `logwright.roundtrip(path)` is the verb."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    """A verb and a package have one name; whichever of them is meant, this is it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from logwright.roundtrip.check import roundtrip

        return roundtrip(*args, **kwargs)


sys.modules[__name__].__class__ = _Verb
