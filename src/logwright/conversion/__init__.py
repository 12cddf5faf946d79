"""Convert between native files and table files (Parquet, Arrow, JSON lines), and between native files.

A native file becomes three table files, `x.parquet` (rows), `x.frames.parquet` and `x.file.parquet`, since the rows alone are not enough to
restore the same bytes. A directory becomes one table, the rows of a view. The way back uses all three tables if they exist.

Conversion between native files keeps everything possible: frames that need not be divided differently are copied, at most recompressed.
Otherwise rows are encoded again, and data that rows do not carry is reported, or refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from logwright.codec.fault import UsageError
from logwright.codec.option import flag, number
from logwright.conversion.native import Native
from logwright.conversion.result import done
from logwright.conversion.table_files import codec_of, from_tables, is_table, to_tables
from logwright.readers.filter import Conditions
from logwright.readers.paths import Path, text_of
from logwright.readers.usage import suggest_parameters


@suggest_parameters
def convert(
    source: Path, target: Path, codec: str | None = None, *, view: str | None = None, columns: Sequence[str] | str | None = None,
    filter: Conditions = None, limit: int | None = None, mode: str = "FAILFAST", as_system: str | None = None,
    clean: bool | None = None, if_exists: str = "error", rows_only: bool = False, jobs: int | str = 1, compact: bool = False,
    **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Convert native files to a table file (.parquet, .arrow, .jsonl), back, or to native files with another format, compression or segment
    size.

    `codec`: format of the native side; None detects it. `if_exists`: "error", "append" or "overwrite", as `mode` of `write`. `rows_only`:
    write only the table of rows; the original bytes cannot be restored from the result. `compact`: keep only the newest record of each key,
    exactly as the system's own compaction does. The other arguments are those of `scan`; further
    options are those of the native side.

    Returns `{"files": [...], "rows": n, "report": Report of the input or None, "written": Written or None, "notes": sentences on data missing
    in the result}`. Raises `LogwrightError` as `scan` and `write` do; `UsageError` if both are table files, `ExistsError` if the target exists.
    """
    from logwright.writers.file import refuse_own_input

    source, target, jobs = text_of(source), text_of(target), number("jobs", jobs, 1)
    refuse_own_input(target, source, if_exists)
    if flag("compact", compact):
        reading = {"view": view, "columns": columns, "filter": filter, "limit": limit, "as_system": as_system}
        _refuse_with_compact({**reading, "rows_only": rows_only or None}, mode, if_exists, jobs)
        return _compacted(source, target, codec, options, clean)
    from_table, to_table = is_table(source), is_table(target)
    if from_table and to_table:
        raise UsageError("both are table files", advice="One of them must be a native file or directory")
    if to_table:
        return to_tables(source, target, codec, if_exists, rows_only, options,
                          view=view, columns=columns, filter=filter, limit=limit, mode=mode,
                          as_system=as_system, clean=clean, jobs=jobs)  # fmt: skip
    if from_table:
        if view is not None or mode.upper() != "FAILFAST" or as_system is not None or clean is not None:
            raise UsageError(
                "a table file is read as it is",
                path=source,
                advice="The options view, mode, as_system and clean are for native files",
            )
        return from_tables(
            source, target, codec or codec_of(target), if_exists, rows_only, options, columns, filter, limit
        )
    reading = {
        "view": view,
        "columns": columns,
        "filter": filter,
        "limit": limit,
        "mode": mode,
        "as_system": as_system,
        "clean": clean,
    }
    return Native(source, target, codec, if_exists, rows_only, options, reading, jobs).run()


def _refuse_with_compact(arguments: Mapping[str, Any], mode: str, if_exists: str, jobs: int) -> None:
    """Raise `UsageError` for an argument that a compaction would ignore."""
    passed = [name for name, value in arguments.items() if value is not None]
    passed += (
        ["mode"] * (mode.upper() != "FAILFAST")
        + ["if_exists"] * (if_exists != "error")
        + ["jobs"] * (jobs != 1)
    )
    if passed:
        raise UsageError(
            f"{passed[0]} cannot be combined with compact",
            advice="A compaction takes a complete directory to a new one. Omit it, and convert the result if needed",
        )


def _compacted(
    source: str, target: str, codec: str | None, options: Mapping[str, Any], clean: bool | None
) -> dict[str, Any]:
    """Write the compacted directory."""
    from logwright.readers.report import Report
    from logwright.readers.target import kind
    from logwright.writers.compact import compact
    from logwright.writers.request import Request

    if is_table(target):
        raise UsageError("the result of a compaction is a directory", path=target, advice="Name a directory")
    report = compact(
        source,
        codec,
        Request(target),
        lambda targets: Report(targets[0].path, kind(targets[0])),
        options,
        clean,
    )
    files = ("before starting", "kept: ", "new files: ", "changed files: ", "removed files: ")
    return done(target, report) | {
        "notes": tuple(note for note in report.notes if not note.startswith(files))
    }
