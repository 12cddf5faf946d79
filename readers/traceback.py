"""Strip this package's own frames from the traceback of a user error, so that a program that prints tracebacks prints one paragraph."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from logwright.codec.fault import LogwrightError

F = TypeVar("F", bound=Callable[..., Any])


def short_traceback(function: F) -> F:
    """Decorate a function or generator function: a `LogwrightError` that it raises has one line of traceback, unless LOGWRIGHT_DEBUG is set.
    Other errors are bugs and keep theirs."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except LogwrightError as caught:
            error = caught
        raise _short(error) from None

    @functools.wraps(function)
    def generate(*args: Any, **kwargs: Any) -> Iterator[Any]:
        try:
            yield from function(*args, **kwargs)
            return
        except LogwrightError as caught:
            error = caught
        raise _short(error) from None

    return cast(F, generate if inspect.isgeneratorfunction(function) else call)


def _short(error: LogwrightError) -> LogwrightError:
    return error if os.environ.get("LOGWRIGHT_DEBUG") else error.with_traceback(None)
