"""What a generator of corpora is: recipes by name, each of which makes the files of a target and says what must be read."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from logwright.codec.option import Option, Options
from logwright.corpora.rng import Rng

Reads = Callable[[int, int], bytes]
"""Bytes of a file: offset, and how many at most."""


@dataclass(frozen=True)
class Order:
    """What is to be made: the name of the target and of the folder it lies in, by which recipe, how many rows, from which seed,
    with which options."""

    name: str
    folder: str
    recipe: str
    rows: int
    seed: int
    options: Options

    def rng(self, *names: str) -> Rng:
        return Rng(self.seed, *names)

    def given(self, own: Iterable[Option]) -> dict[str, Any]:
        """What was said of the writer's settings: all options that were given but the recipe's `own`."""
        names = {option.name for option in own}
        options = self.options
        return {
            name: value
            for name, value in options.to_dict().items()
            if name not in names and options.given(name)
        }


@dataclass
class Made:
    """What a recipe made, in one of two forms: `files` by name (the name "" is a target that is one file), or `batches` of rows
    to be written by the product's own writer with `options`.

    `expected` are the rows that must be read, by view, the default one first: each call gives them anew, as batches with the
    core columns. `content` (name, reader, size) hashes what a compressor's version does not change, None where that is all of
    a file.
    """

    expected: Mapping[str, Callable[[], Iterable[pa.RecordBatch]]]
    files: Mapping[str, bytes] | None = None
    batches: Callable[[], Iterator[pa.RecordBatch]] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    read_options: Mapping[str, Any] = field(default_factory=dict)
    content: Callable[[str, Reads, int], str | None] = lambda name, read, size: None


@dataclass(frozen=True)
class Recipe:
    """`doc` is one sentence. `make` takes the order; `options` are those that it heeds."""

    name: str
    doc: str
    make: Callable[[Order], Made]
    options: tuple[Option, ...] = ()


def settings(
    written: Iterable[Option], left_out: Container[str], own: Iterable[Option]
) -> tuple[Option, ...]:
    """What a recipe heeds whose rows the product's own writer writes: the writer's options but for some, and its own."""
    return (*(option for option in written if option.name not in left_out), *own)


@dataclass(frozen=True)
class Generator:
    """The recipes of one codec or layout; the first is the default."""

    name: str
    recipes: tuple[Recipe, ...]
