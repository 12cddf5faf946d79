"""Errors without the way through our code: a program that prints every line of a traceback then prints one paragraph."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from logwright.codec.fault import LogwrightError

F = TypeVar("F", bound=Callable[..., Any])


def plainly(function: F) -> F:
    """The same function, or generator function, whose `LogwrightError`s tell of one line of code only. Others are mistakes in
    ours, and keep all of it."""

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except LogwrightError as error:
            said = error
        raise said.with_traceback(None) from None

    @functools.wraps(function)
    def generate(*args: Any, **named: Any) -> Iterator[Any]:
        try:
            yield from function(*args, **named)
            return
        except LogwrightError as error:
            said = error
        raise said.with_traceback(None) from None

    return cast(F, generate if inspect.isgeneratorfunction(function) else call)
