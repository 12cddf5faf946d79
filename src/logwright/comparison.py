"""`diff` of native files, directories and table files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from logwright.codec import plural
from logwright.codec.fault import UsageError
from logwright.codec.option import Verb, number
from logwright.codec.table import Table
from logwright.conversion.table_files import is_table, open_table
from logwright.formats.sink import format_of
from logwright.readers import plan, resolve
from logwright.readers.diff import by_of
from logwright.readers.diff import diff as _diff
from logwright.readers.diff_rows import DiffOptions, Loose
from logwright.readers.difference import Difference
from logwright.readers.filter import Conditions
from logwright.readers.paths import Path
from logwright.readers.stream import Mode
from logwright.readers.target import Skipped, Target
from logwright.readers.usage import suggest_parameters


@suggest_parameters
def diff(
    a: Path, b: Path, codec: str | None = None, *, by: str = "rows", view: str | None = None,
    columns: Sequence[str] | str | None = None, filter: Conditions = None, key: Sequence[str] | str | None = None,
    mode: str = "FAILFAST", limit: int | str = 10, **options: Any,
) -> Difference:  # fmt: skip
    """Compare two files or two directories. `.equal` of the result tells whether they are the same.

    `by`: "rows" compares the rows of a view, matched by the key of the view (the offset of a record, the key of a LevelDB entry), or one by
    one if it has none. `key` names other columns; the rows must be sorted by them; () matches one by one. "frames" compares stored frames
    and names the fields that differ; "fields" reports each such field separately; "files" compares names, sizes and bytes. `columns`,
    `filter`, `view` and `mode` are those of `scan` and apply to rows only. Either side may be a table file (Parquet, Arrow, JSON lines).
    `limit`: maximum number of differences to describe; the counts include all.

    The first difference is located exactly: the row, its columns and both values, and in each file the frame, field and byte.

    Raises `UsageError` for sides that cannot be compared, and what reading raises.
    """
    settings = DiffOptions(by_of(by), view, columns, filter, key, Mode.of(mode), number("limit", limit))
    if settings.mode is Mode.AS_SYSTEM:
        raise UsageError("diff does not support mode AS_SYSTEM", advice="Use FAILFAST or DROPMALFORMED")
    paths = [os.fspath(path) for path in (a, b)]
    _refuse_several(paths, codec, options)
    verb = {"rows": None, "files": Verb.DIFF_FILES}.get(settings.by, Verb.DIFF)
    native = [None if is_table(path) else _target(path, codec, options, verb) for path in paths]
    # JSON lines are read with the columns of the native side.
    known = [target for target in native if target is not None]
    table = _rows(known[0], view) if len(known) == 1 else None
    sides = [target or _loose(path, table) for path, target in zip(paths, native, strict=True)]
    return _diff(sides[0], sides[1], settings)


def _refuse_several(paths: Sequence[str], codec: str | None, options: dict[str, Any]) -> None:
    """Raise `UsageError` for a directory of several stores."""
    names: list[list[str]] = []
    for path in paths:
        folders = (
            []
            if is_table(path)
            else resolve.directories_of_stores(path, codec, options, Skipped(), recursive=None)
        )
        names.append([target.path for stores in folders for target in stores.targets])
    several = next((i for i, inner in enumerate(names) if len(inner) > 1), None)
    if several is None:
        return
    first, second = ({os.path.basename(path): path for path in inner} for inner in names)
    shared = next((name for name in first if name in second), None)
    raise UsageError(
        f"diff compares one store with one other; this is a directory of {plural.count(len(names[several]), 'store')}",
        path=paths[several],
        advice=f"Pass one of them, such as {names[several][0]}"
        if shared is None
        else f"Compare {first[shared]} with {second[shared]}, and so on",
    )


def _rows(target: Target, view: str | None) -> Table:
    return plan.reading([target], view).table


def _loose(path: str, table: Table | None) -> Loose:
    if table is None and format_of(path) == "jsonl":
        raise UsageError(
            "the columns of a JSON lines file are unknown without a native file to compare with", path=path
        )
    known = table or Table("rows", ())
    return Loose(path, open_table(path, known).schema, lambda: iter(open_table(path, known)))


def _target(path: str, codec: str | None, options: dict[str, Any], verb: Verb | None) -> Target:
    targets = resolve.resolve(path, codec, options, verb=verb)
    if len(targets) != 1:
        raise UsageError(
            f"{len(targets)} stores or files match; diff compares one path with one other", path=path
        )
    return targets[0]
