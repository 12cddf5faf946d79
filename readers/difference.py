"""What tells two files, or two directories, apart: counts, and the first differences in full; as a text, and as a dict for JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from logwright.codec.describe import time_of
from logwright.readers.report_text import plural

_SHOWN = 3
"""So many differences behind the first one are told in a line each."""
_LONG = 64


@dataclass
class Difference:
    """How `a` and `b` differ, matched by rows, frames, fields or files.

    `differences` are the first ones, each a dict: "kind" ("added" is only in b, "removed" only in a, "changed"), "id" (what tells
    the row or frame from others), and for both sides where it is and what is there. `counts`: {"a", "b", "same", "added", "removed",
    "changed"}, of what is compared.
    """

    a: str
    b: str
    by: str
    what: str = ""
    """The codec or layout of both, or of the native side."""
    view: str | None = None
    key: tuple[str, ...] = ()
    """The columns by which rows were matched; empty: by their places."""
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("a", "b", "same", "added", "removed", "changed"), 0)
    )
    columns: dict[str, int] = field(default_factory=dict)
    """In how many rows a column differs."""
    differences: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not any(self.counts[name] for name in ("added", "removed", "changed"))

    @property
    def first(self) -> dict[str, Any] | None:
        """The first difference, None where there is none."""
        return self.differences[0] if self.differences else None

    def to_dict(self) -> dict[str, Any]:
        """All of it; bytes as text where they are, else `{"$hex": ...}`."""
        return {
            "a": self.a, "b": self.b, "equal": self.equal, "by": self.by, "codec": self.what, "view": self.view,
            "key": list(self.key), "counts": dict(self.counts), "columns": dict(self.columns),
            "first": plain(self.first), "differences": plain(self.differences), "notes": list(self.notes),
        }  # fmt: skip

    def text(self) -> str:
        """For people."""
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
            said = [f"{self.counts['a']:,} and {count(self.counts['b'], noun)}: {same:,} the same"]
            said += [
                f"{self.counts[name]:,} {name}"
                for name in ("changed", "removed", "added")
                if self.counts[name]
            ]
            yield f"  {', '.join(said)}"
            if self.columns:
                often = sorted(self.columns.items(), key=lambda one: -one[1])
                yield f"  columns that differ: {', '.join(f'{name} ({number:,})' for name, number in often)}"
        for i, one in enumerate(self.differences[: 1 + _SHOWN]):
            yield from self._first(one, noun) if i == 0 else self._more(one)
        left = sum(self.counts[name] for name in ("added", "removed", "changed")) - 1 - _SHOWN
        if left > 0 and self.by != "fields":
            yield f"  and {count(left, noun) if left == 1 else f'{left:,} more {plural(noun)}'}"
        yield from (f"  {note}" for note in self.notes)

    def _first(self, one: Mapping[str, Any], noun: str) -> Iterator[str]:
        yield f"  first: {_name(one, noun)}"
        for name, (mine, other) in one.get("columns", {}).items():
            yield f"    {name}"
            yield f"      a: {show(mine)}"
            yield f"      b: {show(other)}"
        if one["kind"] != "changed" and "row" in one:
            yield f"    {'  '.join(f'{name}={show(value)}' for name, value in one['row'].items() if value is not None)}"
        for side in ("a", "b"):
            yield from self._place(one, side)
        fields = one.get("fields", ())
        if fields:
            yield from _field(fields[0])
            rest = [other["field"] for other in fields[1:]]
            if rest:
                more = f" and {len(rest) - 6} more" if len(rest) > 6 else ""
                yield f"    besides: {', '.join(rest[:6])}{more}"
            side = "a" if fields[0]["a"] else "b"
            yield f"  logwright explain {shlex.quote(one[side]['path'])} --at {fields[0][side]['first']}"

    def _place(self, one: Mapping[str, Any], side: str) -> Iterator[str]:
        there = one.get(side)
        if not there or "offset" not in there:
            return
        frame = f"frame at {there['offset']}" + (
            f", {count(there['length'], 'byte')}" if there.get("length") else ""
        )
        at = f", row at {there['at']}" if there.get("at") else ""
        yield f"    {side}: {there['file']}, {frame}{at}"

    def _more(self, one: Mapping[str, Any]) -> Iterator[str]:
        noun = {"rows": "row", "files": "file"}.get(self.by, "frame")
        yield f"  {_name(one, noun)}"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def _name(one: Mapping[str, Any], noun: str) -> str:
    """What is different."""
    where = " ".join(f"{name}={show(value)}" for name, value in one["id"].items())
    if one["kind"] == "changed":
        inside = ", ".join(one.get("columns", ())) or next(
            (each["field"] for each in one.get("fields", ())), ""
        )
        return f"{noun} {where} differs{f' in {inside}' if inside else ''}"
    return f"{noun} {where} is only in {'a' if one['kind'] == 'removed' else 'b'}"


def _field(one: Mapping[str, Any]) -> Iterator[str]:
    yield f"    field {one['field']}"
    for side in ("a", "b"):
        there = one[side]
        if there is None:
            yield f"      {side}: not there"
            continue
        meaning = (
            f" ({there['meaning']})" if there["meaning"] and not isinstance(there["value"], bytes) else ""
        )
        at = f"byte {there['at']}, {count(there['length'], 'byte')}"
        differs = f", from byte {there['first']} on" if there["first"] != there["at"] else ""
        value = (
            f"{there['value']:#010x}"
            if one["role"] == "checksum" and isinstance(there["value"], int)
            else show(there["value"])
        )
        yield f"      {side}: {value}{meaning}, at {at}{differs}"


class Time(int):
    """Milliseconds since 1970, or before; perhaps beyond what a calendar has."""


def row_of(batch: pa.RecordBatch, at: int) -> dict[str, Any]:
    """A row as Python has it, its times as `Time`."""
    found: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        value = column.slice(at, 1)
        if pa.types.is_timestamp(value.type):
            whole = value.cast(pa.timestamp("ms", value.type.tz), safe=False).cast(pa.int64())[0].as_py()
            found[name] = None if whole is None else Time(whole)
        else:
            found[name] = value[0].as_py()
    return found


def show(value: Any) -> str:
    """One value on one line, nothing in it that a terminal would obey."""
    if isinstance(value, Time):
        return time_of(value) or f"{int(value)} ms"
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            text = f"0x{value.hex()}"
            return text if len(text) <= _LONG else f"{text[:_LONG]}… ({count(len(value), 'byte')})"
    if isinstance(value, str):
        text = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in value)
        return f'"{text}"' if len(text) <= _LONG else f'"{text[:_LONG]}…" ({count(len(value), "character")})'
    if isinstance(value, list):
        return f"[{', '.join(show(one) for one in value[:8])}{', …' if len(value) > 8 else ''}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {show(one)}" for name, one in value.items()) + "}"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def plain(value: Any) -> Any:
    """As JSON takes it."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"$hex": value.hex()}
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)  # a date, say, of a table file
