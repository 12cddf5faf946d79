"""Fold the good frames of files, in order, into a result. One pass over the files drives any number of folds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from logwright.codec.store.listing import PlannedFile
from logwright.codec.window import Frames, Window

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Files = Iterable[tuple[PlannedFile, Iterable[tuple[Window, Frames]]]]
"""Files in the order of the plan, each with its good frames (`codec.frames.walk.frames_of`)."""


class Fold(Protocol[T_co]):
    """Consumes the good frames of files in order, and yields a result."""

    def begin(self, file: PlannedFile) -> None:
        """Begin a file. Files come in the order of the plan, including those without a good frame."""
        ...

    def add(self, window: Window, frames: Frames) -> None:
        """Take one or more good frames of the file, in order. The bytes between them are damaged or unreadable."""
        ...

    def finish(self) -> T_co:
        """Return the result, after the last file."""
        ...


def run(files: Files, *folds: Fold[Any]) -> None:
    """Read files once for all folds."""
    for file, windows in files:
        for fold in folds:
            fold.begin(file)
        for window, frames in windows:
            for fold in folds:
                fold.add(window, frames)


def result(files: Files, fold: Fold[T]) -> T:
    """Return the result of one fold over files."""
    run(files, fold)
    return fold.finish()
