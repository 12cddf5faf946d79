"""The result of a comparison: counts, and the first differences in full, as text and as a dict for JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from logwright.codec.describe import time_of
from logwright.codec.plural import count, plural, printable

_SHOWN = 3
"""Number of differences to list in one line each, after the first."""
_LONG = 64


@dataclass
class Difference:
    """The differences between `a` and `b`, matched by rows, frames, fields or files.

    `differences` holds the first ones as dicts: "kind" ("added": only in b, "removed": only in a, "changed"), "id" (identifies the row or
    frame), and for both sides the location and content. `counts`: {"a", "b", "same", "added", "removed", "changed"}.
    """

    a: str
    b: str
    by: str
    codec: str = ""
    """The codec or layout of both, or of the native side."""
    view: str | None = None
    key: tuple[str, ...] = ()
    """Columns that matched rows; empty if they were matched one by one."""
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("a", "b", "same", "added", "removed", "changed"), 0)
    )
    columns: dict[str, int] = field(default_factory=dict)
    """Number of rows in which each column differs."""
    differences: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not any(self.counts[name] for name in ("added", "removed", "changed"))

    @property
    def first(self) -> dict[str, Any] | None:
        """The first difference; None if they are equal."""
        return self.differences[0] if self.differences else None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; bytes as text if they are UTF-8, otherwise as `{"$hex": ...}`."""
        return {
            "a": self.a, "b": self.b, "equal": self.equal, "by": self.by, "codec": self.codec, "view": self.view,
            "key": list(self.key), "counts": dict(self.counts), "columns": dict(self.columns),
            "first": plain(self.first), "differences": plain(self.differences), "notes": list(self.notes),
        }  # fmt: skip

    def text(self) -> str:
        """Return a text for a terminal."""
        return "\n".join(self._lines())

    def __str__(self) -> str:
        return self.text()

    def _lines(self) -> Iterator[str]:
        noun = {"rows": "row", "frames": "frame", "fields": "frame", "files": "file"}[self.by]
        same = self.counts["same"]
        if self.equal:
            yield f"{self.a} and {self.b} are equal: {count(same, noun)}"
        else:
            yield f"{self.a} and {self.b} DIFFER"
            summary = [f"{self.counts['a']:,} and {count(self.counts['b'], noun)}: {same:,} the same"]
            summary += [
                f"{self.counts[name]:,} {name}"
                for name in ("changed", "removed", "added")
                if self.counts[name]
            ]
            yield f"  {', '.join(summary)}"
            if self.columns:
                often = sorted(self.columns.items(), key=lambda difference: -difference[1])
                yield f"  columns that differ: {', '.join(f'{name} ({number:,})' for name, number in often)}"
        for i, difference in enumerate(self.differences[: 1 + _SHOWN]):
            yield from self._first(difference, noun) if i == 0 else self._more(difference)
        left = sum(self.counts[name] for name in ("added", "removed", "changed")) - 1 - _SHOWN
        if left > 0 and self.by != "fields":
            yield f"  and {count(left, noun) if left == 1 else f'{left:,} more {plural(noun)}'}"
        yield from (f"  {note}" for note in self.notes)

    def _first(self, difference: Mapping[str, Any], noun: str) -> Iterator[str]:
        yield f"  first: {_name(difference, noun)}"
        for name, (mine, other) in difference.get("columns", {}).items():
            yield f"    {name}"
            yield f"      a: {show(mine)}"
            yield f"      b: {show(other)}"
        if difference["kind"] != "changed" and "row" in difference:
            yield f"    {'  '.join(f'{name}={show(value)}' for name, value in difference['row'].items() if value is not None)}"
        for side in ("a", "b"):
            yield from self._place(difference, side)
        fields = difference.get("fields", ())
        if fields:
            yield from _field(fields[0])
            rest = [other["field"] for other in fields[1:]]
            if rest:
                more = f" and {len(rest) - 6} more" if len(rest) > 6 else ""
                yield f"    also: {', '.join(rest[:6])}{more}"
            side = "a" if fields[0]["a"] else "b"
            yield f"  logwright explain {shlex.quote(difference[side]['path'])} --at {fields[0][side]['first']}"

    def _place(self, difference: Mapping[str, Any], side: str) -> Iterator[str]:
        there = difference.get(side)
        if not there:
            return
        if "size" in there:
            yield f"    {side}: {printable(there['path'])}, {count(there['size'], 'byte')}"
        if "offset" not in there:
            return
        frame = f"frame at {there['offset']}" + (
            f", {count(there['length'], 'byte')}" if there.get("length") else ""
        )
        at = f", row at {there['at']}" if there.get("at") else ""
        yield f"    {side}: {there['file']}, {frame}{at}"

    def _more(self, difference: Mapping[str, Any]) -> Iterator[str]:
        noun = {"rows": "row", "files": "file"}.get(self.by, "frame")
        yield f"  {_name(difference, noun)}"


def _name(difference: Mapping[str, Any], noun: str) -> str:
    """Describe a difference."""
    ids = difference["id"]
    where = (
        printable(ids["file"])
        if noun == "file"
        else " ".join(f"{name}={show(value)}" for name, value in ids.items())
    )
    if difference["kind"] == "changed":
        inside = ", ".join(difference.get("columns", ())) or next(
            (field["field"] for field in difference.get("fields", ())), ""
        )
        at = f" at byte {difference['first_byte']}" if "first_byte" in difference else ""
        return f"{noun} {where} differs{f' in {inside}' if inside else at}"
    return f"{noun} {where} is only in {'a' if difference['kind'] == 'removed' else 'b'}"


def _field(field: Mapping[str, Any]) -> Iterator[str]:
    yield f"    field {field['field']}"
    for side in ("a", "b"):
        there = field[side]
        if there is None:
            yield f"      {side}: missing"
            continue
        meaning = (
            f" ({there['meaning']})" if there["meaning"] and not isinstance(there["value"], bytes) else ""
        )
        at = f"byte {there['at']}, {count(there['length'], 'byte')}"
        differs = f", from byte {there['first']}" if there["first"] != there["at"] else ""
        value = (
            f"{there['value']:#010x}"
            if field["role"] == "checksum" and isinstance(there["value"], int)
            else show(there["value"])
        )
        yield f"      {side}: {value}{meaning}, at {at}{differs}"


class Time(int):
    """Milliseconds since 1970; may be outside the range of a calendar."""


def row_of(batch: pa.RecordBatch, at: int) -> dict[str, Any]:
    """Return a row as Python values, with times as `Time`."""
    row: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        value = column.slice(at, 1)
        if pa.types.is_timestamp(value.type):
            millis = value.cast(pa.timestamp("ms", value.type.tz), safe=False).cast(pa.int64())[0].as_py()
            row[name] = None if millis is None else Time(millis)
        else:
            row[name] = value[0].as_py()
    return row


def show(value: Any) -> str:
    """Format a value on one line, without control characters."""
    if isinstance(value, Time):
        return time_of(value) or f"{int(value)} ms"
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            text = f"0x{value.hex()}"
            return text if len(text) <= _LONG else f"{text[:_LONG]}… ({count(len(value), 'byte')})"
    if isinstance(value, str):
        text = printable(value)
        return f'"{text}"' if len(text) <= _LONG else f'"{text[:_LONG]}…" ({count(len(value), "character")})'
    if isinstance(value, list):
        return f"[{', '.join(show(item) for item in value[:8])}{', …' if len(value) > 8 else ''}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {show(item)}" for name, item in value.items()) + "}"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def plain(value: Any) -> Any:
    """Convert to values that JSON accepts."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"$hex": value.hex()}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)  # for example a date of a table file
