"""`diff`: native files and directories, and table files, held against each other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from logwright.codec.fault import UsageError
from logwright.codec.option import parse_int
from logwright.conversion import is_table, open_table
from logwright.readers import resolve
from logwright.readers.diff import Loose, Wish, by_of
from logwright.readers.diff import diff as _diff
from logwright.readers.difference import Difference
from logwright.readers.stream import Mode


def diff(
    a: str | os.PathLike[str], b: str | os.PathLike[str], codec: str | None = None, *, by: str, view: str | None,
    columns: Any, filter: Any, key: Any, mode: str, limit: int | str, **options: Any,
) -> Difference:  # fmt: skip
    """See `logwright.diff`."""
    wish = Wish(by_of(by), view, columns, filter, key, Mode.of(mode), parse_int(limit))
    if wish.mode is Mode.AS_SYSTEM:
        raise UsageError("what two systems would serve is not compared", advice="Take another mode")
    sides = [_side(os.fspath(path), codec, options) for path in (a, b)]
    return _diff(sides[0], sides[1], wish)


def _side(path: str, codec: str | None, options: dict[str, Any]) -> resolve.Target | Loose:
    if is_table(path):
        return Loose(path, open_table(path).schema, lambda: _batches(path))
    targets = resolve.resolve(path, codec, options)
    if len(targets) != 1:
        raise UsageError(f"{len(targets)} things lie there, two are compared at a time", path=path)
    return targets[0]


def _batches(path: str) -> Iterator[pa.RecordBatch]:
    return iter(open_table(path))
