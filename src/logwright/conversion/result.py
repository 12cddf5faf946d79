"""The result of a conversion, as `convert` returns it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from logwright.scanning import read

if TYPE_CHECKING:
    from logwright.writers.write import Written


def done(target: str, report: Any) -> dict[str, Any]:
    """Return the result of a conversion whose report describes the written directory."""
    from logwright.writers.write import Written

    files = read(target, report.codec, view="files")
    written = Written(
        target,
        tuple(files.column("name").to_pylist()),
        report.rows_kept or 0,
        sum(files.column("size").to_pylist()),
        before_you_start=tuple(
            note.partition(": ")[2] for note in report.notes if note.startswith("before starting")
        ),
    )
    return result(written, report)


def result(written: Written, report: Any, notes: Iterable[str] = ()) -> dict[str, Any]:
    return {
        "files": written.files, "rows": written.rows, "report": report, "written": written, "notes": tuple(notes),
    }  # fmt: skip
