"""Strip this package's own frames from the traceback of a user error, so that a program that prints tracebacks prints one paragraph."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from logwright.codec.fault import LogwrightError

F = TypeVar("F", bound=Callable[..., Any])


def short_traceback(function: F) -> F:
    """Decorate a function or generator function: a `LogwrightError` that it raises has one line of traceback. Other errors are bugs and keep
    theirs."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except LogwrightError as caught:
            error = caught
        raise error.with_traceback(None) from None

    @functools.wraps(function)
    def generate(*args: Any, **kwargs: Any) -> Iterator[Any]:
        try:
            yield from function(*args, **kwargs)
            return
        except LogwrightError as caught:
            error = caught
        raise error.with_traceback(None) from None

    return cast(F, generate if inspect.isgeneratorfunction(function) else call)
