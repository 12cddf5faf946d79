"""Generators of corpora: named recipes that make files, together with the rows that must be read from them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from logwright.codec.option import Option, Options
from logwright.corpora.rng import Rng

Reads = Callable[[int, int], bytes]
"""Reads at most `length` bytes of a file from an offset: (offset, length)."""


@dataclass(frozen=True)
class Order:
    """A request to generate a target: its name and folder, recipe, number of rows, seed and options."""

    name: str
    folder: str
    recipe: str
    rows: int
    seed: int
    options: Options

    def rng(self, *names: str) -> Rng:
        return Rng(self.seed, *names)

    def given(self, own: Iterable[Option]) -> dict[str, Any]:
        """Return the writer's options that the caller set, without the recipe's `own`."""
        names = {option.name for option in own}
        values = self.options.to_dict()
        return {name: values[name] for name in values if name not in names and self.options.given(name)}


@dataclass
class Made:
    """The output of a recipe: either `files` by name ("" for a target that is a single file), or `batches` of rows for logwright's own
    writer with `options`.

    `expected` are functions that return the rows that must be read, as batches with the core columns, by view, the default view first.
    `content(name, reader, size)` hashes the content that does not depend on the compressor's version; None if that is the complete file.
    """

    expected: Mapping[str, Callable[[], Iterable[pa.RecordBatch]]]
    files: Mapping[str, bytes] | None = None
    batches: Callable[[], Iterator[pa.RecordBatch]] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    read_options: Mapping[str, Any] = field(default_factory=dict)
    content: Callable[[str, Reads, int], str | None] = lambda name, read, size: None


@dataclass(frozen=True)
class Recipe:
    """`doc` is one sentence. `options` are the options that `make` uses."""

    name: str
    doc: str
    make: Callable[[Order], Made]
    options: tuple[Option, ...] = ()


PIECE = 1 << 16
"""Rows of a batch."""


def batches_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches."""
    for at in range(0, len(rows), PIECE):
        yield pa.RecordBatch.from_pylist([dict(row) for row in rows[at : at + PIECE]], schema=schema)


def settings(
    written: Iterable[Option], left_out: Container[str], own: Iterable[Option]
) -> tuple[Option, ...]:
    """Return the options of a recipe whose rows logwright's own writer writes: the writer's options, without some, and its own."""
    return (*(option for option in written if option.name not in left_out), *own)


@dataclass(frozen=True)
class Generator:
    """The recipes of one codec or layout; the first is the default."""

    name: str
    recipes: tuple[Recipe, ...]
