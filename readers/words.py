"""The report in words: what the person who has a dead disk at three in the morning has to know, in few lines, the worst first.

A headline, what is lost, what the real system would do if it were started now, and the next command to type.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from logwright.codec.fault import Fault, Kind, Severity

if TYPE_CHECKING:
    from logwright.readers.report import Report

WIDTH = 118
"""Longer lines are broken, but for paths and commands."""
_SHOWN = 8
"""So many faults are written out."""
_NOTES = 3
"""So many faults that are none are written out, where there are no others."""
_TARGETS = 40
"""So many things are written out, a line each, where several were looked at."""

_WORDS = {Severity.ERROR: "DAMAGED", Severity.WARNING: "warning", Severity.INFO: "note"}
_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2, None: 3}
_PLAIN = (Kind.LINK, Kind.ORDER, Kind.PADDING)
"""Kinds of which the detail alone says what is wrong."""


def text(report: Report) -> str:
    """The whole text."""
    lines = list(_several(report) if report.parts else _one(report))
    return "\n".join(out for line in lines for out in _fold(line))


def _fold(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()))
    if len(line) <= WIDTH or line.lstrip().startswith("logwright "):
        return [line]
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=f"{indent}    ", break_long_words=False, break_on_hyphens=False
    )


# One thing


@dataclass
class _Shown:
    """A fault, with those of its file that are just like it."""

    path: str
    fault: Fault
    alike: int = 0
    end: int = 0


def _one(report: Report) -> Iterator[str]:
    yield from _findings(report)
    if report.cut is None:
        yield from _consequences(report)
    yield from (f"  {note}" for note in report.notes)
    yield from _advice(report)


def _findings(report: Report) -> Iterator[str]:
    found = _alike(sorted(report.faults, key=lambda one: _RANK[one[1].severity]))
    grave = [one for one in found if one.fault.severity is not Severity.INFO]
    shown = grave[:_SHOWN] if grave else found[:_NOTES]
    left = report.faults_total - sum(one.alike + 1 for one in shown)
    alone = len(grave) == 1 and not grave[0].alike
    if not alone:
        yield headline(report)
    for one in shown:
        word = _WORDS[one.fault.severity]
        head = f"{report.path}  {word}  " if alone else f"  {word}  "
        where = f"{one.path}  " if one.path and one.path != report.path else ""
        yield f"{head}{where}{_fault(one)}"
        if gone := lost(one.fault, report):
            yield f"  lost: {gone}" if alone else f"    lost: {gone}"
        if one.fault.system and report.system is None:
            yield f"  {one.fault.system}" if alone else f"    {one.fault.system}"
    if left > 0:
        rest = f"{len(grave) - len(shown)} more" if len(grave) > len(shown) else count(left, "note")
        yield f"  and {rest} (--json has all)" if grave or left else ""


def _alike(faults: Iterable[tuple[str, Fault]]) -> list[_Shown]:
    """Faults of one file that say the same, but for the numbers, put together."""
    out: list[_Shown] = []
    known: dict[tuple[Any, ...], _Shown] = {}
    for path, fault in faults:
        said = "".join(one for one in fault.detail if not one.isdigit())
        key = (path, fault.kind, fault.severity, said)
        first = known.get(key)
        # What was lost is said of each.
        if first is None or fault.lost or fault.rows_lost:
            known[key] = _Shown(path, fault, end=fault.offset + fault.length)
            out.append(known[key])
        else:
            first.alike += 1
            first.end = max(first.end, fault.offset + fault.length)
    return out


def _fault(one: _Shown) -> str:
    fault = one.fault
    said = fault.detail
    if fault.kind is Kind.CHECKSUM or not said:
        said = str(fault.kind)
    elif fault.kind not in _PLAIN:
        said = f"{fault.kind}: {said}"
    where = f"at {fault.offset}, {count(fault.length, 'byte')}: " if fault.offset or fault.length else ""
    more = f", and {one.alike} more like it, up to {one.end}" if one.alike else ""
    return f"{where}{said}{more}"


def headline(report: Report) -> str:
    """How it is, and how much of it there is."""
    size = _size(report.bytes)
    said = [size if report.ok else f"{_size(report.bytes_damaged)} of {size}"]
    files = sum(file.path != "" for file in report.files)  # "" is the directory itself
    said += [count(files, "file")] if files != 1 else []
    said += [count(report.frames, "frame"), count(report.rows, report.nouns[0])]
    if report.faults_total:
        said.append(count(report.faults_total, "fault"))
    return f"{report.path}  {_state(report)}  {', '.join(said)}"


def _state(report: Report) -> str:
    return "ok" if report.ok else "DAMAGED"


def _consequences(report: Report) -> Iterator[str]:
    """What is lost in all, and what the system would do."""
    losses = [fault for _, fault in report.faults if fault.lost or fault.rows_lost]
    if len(losses) > 1:
        known = [fault.rows_lost for fault in losses if fault.rows_lost is not None]
        least = "" if len(known) == len(losses) else "at least "
        if sum(known):
            yield f"  lost in all: {least}{count(sum(known), report.nouns[0])}"
    if report.system is not None:
        yield f"  {system(report.system, report)}"


def system(said: Mapping[str, Any], report: Report) -> str:
    """What the real system would do if it were started now."""
    row, file = report.nouns
    stop = "a clean" if said["clean"] else "an unclean"
    head = f"{said['name']} {said['version']}, after {stop} stop: "
    if not said["opens"]:
        what = _SCOPES.get(str(said["scope"]), "does not open it")
        why = said["error"] or said["error_class"] or ""
        return f"{head}{what}{': ' if why else ''}{why}"
    does = ["opens"]
    named = _only_file(report)
    for name, size in list(said["truncates"].items())[:2]:
        does.append(f"cuts {'that file' if name == named else name} to {size}")
    if len(said["truncates"]) > 2:
        does[1:] = [f"cuts {len(said['truncates'])} files"]
    primary = {one.path for one in report.files if one.primary}
    gone = [name for name in said["removes"] if name in primary]
    if gone:
        does.append(f"deletes {gone[0] if len(gone) == 1 else f'{len(gone)} {file}s'}")
    elif said["removes"]:
        does.append(f"deletes {_names(said['removes'])}")
    stops = said["serves"].get("stops_at")
    if stops is not None:
        does.append(f"its clients stop with an error at {stops}")
    if said["rows_lost"]:
        loss = f"loses {count(said['rows_lost'], row)}"
    elif said["rows_lost"] is None and said["lost"]:
        loss = f"loses {row}s"
    elif said["lost"]:
        loss = "loses what is damaged"
    else:
        loss = "loses nothing"
    return f"{head}{', '.join(does)}: {loss}"


_SCOPES = {
    "process": "does not start",
    "log_dir": "starts without the whole disk",
    "partition": "starts without it",
}


def _only_file(report: Report) -> str | None:
    """The file that the headline names."""
    named = {path for path, fault in report.faults if fault.severity is not Severity.INFO}
    return named.pop() if len(named) == 1 else None


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} files"


# What to do


def _advice(report: Report) -> Iterator[str]:
    bad = not report.ok
    if report.live and bad:
        yield "  the system is running on it: what it is about to write is not here yet"
    yield f"  {report.next or next_command(report)}"
    if bad and not report.live and report.cut is None:
        yield from (f"  {one}" for one in report.advice)


def next_command(report: Report) -> str:
    """The command to type next."""
    path = shlex.quote(report.path)
    if report.ok:
        return (
            f"logwright verify {path} --json   says all of it"
            if report.worst is Severity.WARNING
            else f"logwright dump {path} --limit 10"
        )
    primary = any(file.errors for file in report.files if file.primary)
    if not report.repairs:
        return f"logwright dump {path} --mode DROPMALFORMED   gets every {report.nouns[0]} that is sound"
    if not primary:
        return f"logwright repair {path} --out DIR   loses nothing"
    losses = [
        fault.rows_lost
        for file in report.files
        if file.primary
        for fault in file.faults
        if fault.severity is not Severity.INFO and (fault.lost or fault.rows_lost or file.errors)
    ]
    known = sum(one for one in losses if one is not None)
    if None not in losses:
        return f"logwright repair {path} --out DIR   loses {known or 'nothing'}"
    return f"logwright repair {path} --out DIR   loses only what is damaged"


# Several things


def _several(report: Report) -> Iterator[str]:
    parts = sorted(report.parts, key=lambda one: (_RANK[one.worst], -one.bytes_damaged, one.path))
    bad = [one for one in parts if not one.ok]
    warned = [one for one in parts if one.worst is Severity.WARNING]
    what = f"{len(bad)} of {len(parts)} damaged" if bad else f"{len(parts)} looked at"
    size = _size(report.bytes)
    said = [what, size if report.ok else f"{_size(report.bytes_damaged)} of {size}"]
    said.append(count(report.rows, _noun(report)))
    if report.faults_total:
        said.append(count(report.faults_total, "fault"))
    yield f"{_shown_path(report)}  {_state(report)}  {', '.join(said)}"
    # All of few; of many those with something wrong.
    shown = parts[:_TARGETS] if len(parts) <= _TARGETS else [*bad, *warned][:_TARGETS]
    wide = min(max((len(_short(one, report)) for one in shown), default=0), 60)
    for one in shown:
        yield f"  {_short(one, report).ljust(wide)}  {_line(one)}"
    left = len(parts) - len(shown)
    if left:
        hidden = len(bad) + len(warned) - len(shown)
        yield (
            f"  and {hidden} more with faults (--json has all)"
            if hidden > 0
            else f"  and {left} more, all ok"
        )
    yield from (f"  {note}" for note in report.notes)
    yield f"  {report.next or (_about(parts[0]) if parts else next_command(report))}"


def _noun(report: Report) -> str:
    nouns = {part.nouns[0] for part in report.parts if part.rows}
    return nouns.pop() if len(nouns) == 1 else "row"


def _shown_path(report: Report) -> str:
    return report.path if len(report.path) <= 60 else f"{report.path[:57]}..."


def _short(one: Report, report: Report) -> str:
    """Without what all have in common."""
    above = f"{report.path.rstrip('/')}/"
    return one.path.removeprefix(above)


def _line(one: Report) -> str:
    if one.worst in (None, Severity.INFO):
        return f"ok       {_size(one.bytes)}, {count(one.rows, one.nouns[0])}"
    (path, fault), *_ = sorted(one.faults, key=lambda one: _RANK[one[1].severity])
    where = f"{path}  " if path and path != one.path else ""
    said = f"{_WORDS[one.worst or Severity.INFO]}  {where}{_fault(_Shown(path, fault))}"
    if one.faults_total > 1:
        said += f" (1 of {one.faults_total} faults)"
    if one.system is not None:
        said += f"; {system(one.system, one)}"
    return said


def _about(one: Report) -> str:
    if one.ok:
        return next_command(one)
    return f"logwright verify {shlex.quote(one.path)}   says more of the worst of them"


# Words


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _size(number: int) -> str:
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if number >= 1000**power:
            return f"{number / 1000**power:.1f} {unit}"
    return count(number, "byte")


def lost(fault: Fault, report: Report) -> str:
    """`Fault.lost` in words: pairs of `first_x` and `last_x` as ranges, times as dates; without what is true of all."""
    said: list[str] = []
    gone = {name: value for name, value in fault.lost.items() if name not in report.known}
    extra = [] if fault.rows_lost is None else [count(fault.rows_lost, report.nouns[0])]
    for name, value in gone.items():
        if name.startswith("first_") and f"last_{name[6:]}" in gone:
            noun, top = name[6:], gone[f"last_{name[6:]}"]
            span = _span(noun, value, top)
            (extra if "timestamp" in noun else said).append(span)
        elif value is None:
            continue
        elif name.startswith("first_"):
            said.append(f"{name[6:]}s from {value} on")
        elif not name.startswith("last_"):
            said.append(f"{name} {value}")
        elif f"first_{name[5:]}" not in gone:
            said.append(f"{name[5:]}s up to {value}")
    words = ", ".join(said)
    return f"{words} ({', '.join(extra)})" if words and extra else words or ", ".join(extra)


def _span(noun: str, low: Any, high: Any) -> str:
    if low is None and high is None:
        return f"{noun} unknown"
    if "timestamp" in noun:
        low, high = _when(low), _when(high)
        if low == high:
            return f"{low} UTC"
        return f"{low}..{high[11:] if low[:11] == high[:11] else high} UTC"  # the same day is not said twice
    if low == high:
        return f"{noun} {low}"
    return f"{noun}s {'?' if low is None else low}..{'?' if high is None else high}"


def _when(value: Any) -> str:
    try:
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, TypeError, ValueError):
        return "?" if value is None else str(value)
