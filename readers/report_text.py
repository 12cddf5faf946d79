"""The report in words: what the person who has a dead disk at three in the morning has to know, in few lines, the worst first.

A headline, what is lost, what the real system would do if it were started now, and the next command to type.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from logwright.codec import registry
from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.readers.report_data import ReportData

WIDTH = 118
"""Longer lines are broken, but for paths and commands."""
_NARROWEST = 60
_SHOWN = 8
"""So many faults are written out."""
_NOTES = 3
"""So many faults that are none are written out, where there are no others."""
_WARNINGS = 3
"""So many warnings of the real system are written out."""
_TARGETS = 40
"""So many things are written out, a line each, where several were looked at."""

_WORDS = {Severity.ERROR: "DAMAGED", Severity.WARNING: "warning", Severity.INFO: "note"}
_HEALED = (": repair puts it right", ": it is put right")
"""Said of what is damaged and not lost, before a repair and after it."""
_UNSUPPORTED = "UNSUPPORTED"
_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2, None: 3}
_PLAIN = (Kind.LINK, Kind.ORDER, Kind.PADDING)
"""Kinds of which the detail alone says what is wrong."""


def text(report: ReportData, width: int = WIDTH) -> str:
    """The whole text, for a terminal that is so many characters wide."""
    width = max(_NARROWEST, min(width, WIDTH))
    if report.parts and report.cut is not None:
        lines = list(_repaired(report, width))
    else:
        lines = list(_several(report, width) if report.parts else _one(report))
    return "\n".join(out for line in lines for out in _fold(line, width))


def _fold(line: str, width: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()))
    if len(line) <= width or line.lstrip().startswith("logwright "):
        return [line]
    return textwrap.wrap(
        line, width, subsequent_indent=f"{indent}    ", break_long_words=False, break_on_hyphens=False
    )


# One thing


@dataclass
class _Shown:
    """A fault, with those of its file that are just like it, and those of the same place."""

    path: str
    fault: Fault
    alike: int = 0
    end: int = 0
    beside: int = 0


def _one(report: ReportData) -> Iterator[str]:
    yield from _findings(report)
    if report.cut is None:
        yield from _consequences(report)
    yield from (f"  {note}" for note in report.notes)
    yield from _advice(report)


def _findings(report: ReportData) -> Iterator[str]:
    found = _alike(sorted(report.faults, key=lambda one: _RANK[one[1].severity]))
    grave = [one for one in found if one.fault.severity is not Severity.INFO]
    shown = grave[:_SHOWN] if grave else found[:_NOTES]
    alone = len(grave) == 1 and not grave[0].alike
    if not alone:
        yield headline(report)
    said = ""
    for one in shown:
        word = _UNSUPPORTED if one.fault.kind is Kind.UNSUPPORTED else _WORDS[one.fault.severity]
        head = f"{report.path}  {word}  " if alone else f"  {word}  "
        indent = "  " if alone else "    "
        where = f"{one.path}  " if one.path and one.path != report.path else ""
        yield f"{head}{where}{_fault(one)}"
        if gone := lost(one.fault, report):
            healed = (one.path, one.fault.offset) in report.healed and bool(one.fault.rows_lost)
            word = "damaged" if healed else "lost" if _certain(one.fault) else "may be lost"
            yield f"{indent}{word}: {gone}{_HEALED[report.cut is not None] if healed else ''}"
        if one.fault.system and one.fault.system != said and report.system is None:
            said = one.fault.system
            yield f"{indent}{said}"
    if len(grave) > len(shown):
        yield f"  and {len(grave) - len(shown)} more (--json has all)"
    left = report.faults_total - sum(one.alike + one.beside + 1 for one in shown)
    if not grave and left > 0:
        yield f"  and {count(left, 'more note')} (--json has all)"


def _certain(fault: Fault) -> bool:
    """Whether what it says is lost was there for sure: not so of what a crash may leave, as an unfinished append."""
    if fault.severity is Severity.ERROR:
        return True
    return fault.rows_lost is not None and fault.kind is not Kind.TRUNCATED


def _alike(faults: Iterable[tuple[str, Fault]]) -> list[_Shown]:
    """Faults of one file that say the same, but for the numbers, put together; and those of one place."""
    out: list[_Shown] = []
    known: dict[tuple[Any, ...], _Shown] = {}
    places: dict[tuple[str, int, int], _Shown] = {}
    for path, fault in faults:
        place = (path, fault.offset, fault.length)
        here = places.get(place) if fault.length else None
        if here is not None:
            here.beside += 1
            if not here.fault.lost:
                here.fault = replace(here.fault, lost=fault.lost, rows_lost=fault.rows_lost)
            continue
        said = "".join(one for one in fault.detail if not one.isdigit())
        key = (path, fault.kind, fault.severity, said)
        first = known.get(key)
        # What was lost is said of each.
        if first is None or fault.lost or fault.rows_lost:
            one = known[key] = places[place] = _Shown(path, fault, end=fault.offset + fault.length)
            out.append(one)
        else:
            first.alike += 1
            first.end = max(first.end, fault.offset + fault.length)
    return out


def _fault(one: _Shown) -> str:
    fault = one.fault
    said = fault.detail
    # The numbers that differ say nothing to a person; what has no bytes is a digest, and says of what.
    if (fault.kind is Kind.CHECKSUM and fault.length) or not said:
        said = str(fault.kind)
    elif fault.kind not in (*_PLAIN, Kind.UNSUPPORTED) and not said.startswith("not checked"):
        said = f"{fault.kind}: {said}"
    where = f"at {fault.offset}: " if fault.offset else ""
    if fault.length:
        where = f"at {fault.offset}, {count(fault.length, 'byte')}: "
    more = f", and {one.alike} more like it, up to {one.end}" if one.alike else ""
    return f"{where}{said}{more}"


def headline(report: ReportData) -> str:
    """How it is, and how much of it there is."""
    size = _size(report.bytes)
    said = [size if report.ok else f"{_size(report.bytes_damaged)} of {size}"]
    files = sum(file.path != "" for file in report.files)  # "" is the directory itself
    said += [count(files, "file")] if files != 1 else []
    said.append(count(report.frames, "frame"))
    if report.rows or not report.frames:  # else nobody has counted them
        said.append(count(report.rows, report.nouns[0]))
    if report.faults_total:
        said.append(count(report.faults_total, _fault_noun(report)))
    return f"{report.path}  {_state(report)}  {', '.join(said)}"


def _fault_noun(report: ReportData) -> str:
    return "note" if report.worst is Severity.INFO else "fault"


def _state(report: ReportData) -> str:
    if not report.ok:
        return "DAMAGED"
    if not report.checked and report.missing:
        return "INCOMPLETE"
    if report.unsupported:
        return _UNSUPPORTED
    return "not checked" if report.unchecked else "ok"


def _consequences(report: ReportData) -> Iterator[str]:
    """What is lost in all, and what the system would do."""
    losses = [
        fault
        for path, fault in report.faults
        if (fault.lost or fault.rows_lost) and (path, fault.offset) not in report.healed
    ]
    rows, least = _rows_lost(losses)
    if len(losses) > 1 and rows:
        yield f"  lost in all: {least}{count(rows, report.nouns[0])}"
    if report.system is not None:
        yield f"  {system(report.system, report)}"
        if not report.system["truncates"]:
            # Else they tell of what is cut, and so does the line above.
            yield from (f"    {warning}" for warning in report.system["warnings"][:_WARNINGS])


def title(said: Mapping[str, Any]) -> str:
    """The name of the system that is spoken of."""
    return str(said.get("title") or f"{said['name']} {said['version']}")


def after_stop(said: Mapping[str, Any]) -> str:
    """The system that is spoken of, and how it was stopped, where that makes a difference to it."""
    name = title(said)
    if not said["clean_from"]:
        return name
    return f"{name}, after {'a clean' if said['clean'] else 'an unclean'} stop"


def skips(said: Mapping[str, Any]) -> str:
    """What clients do that go on behind an error."""
    return f"skip what can't be read, and end with the error {said['error']!r}"


def system(said: Mapping[str, Any], report: ReportData) -> str:
    """What the real system would do if it were started now."""
    row, file = report.nouns
    head = f"{after_stop(said)}: "
    faults = [fault for _, fault in report.faults if fault.severity is not Severity.INFO]
    if not said["opens"]:
        what = _SCOPES.get(str(said["scope"]), "does not open it")
        why = said["error"] or said["error_class"] or ""
        # It may say just what is said above.
        known = any(fault.detail and fault.detail in why for fault in faults)
        return f"{head}{what}" if known or not why else f"{head}{what}: {why}"
    does = ["opens"]
    cut = dict(said["truncates"])
    if len(cut) > 2:
        does.append(f"cuts {len(cut)} files")
    else:
        named = _only_file(report)
        does += [f"cuts {'that file' if name == named else name} to {size}" for name, size in cut.items()]
    primary = {one.path for one in report.files if one.primary}
    gone = [name for name in said["removes"] if name in primary]
    if gone:
        later = "later " if cut and all(name > max(cut) for name in gone) else ""
        does.append(f"deletes {count(len(gone), later + file)}")
    stops = said["serves"].get("stops_at")
    if stops is not None:
        does.append(f"its clients stop with an error at {stops}")
    elif said["error"]:
        does.append(f"its clients {skips(said)}")
    if said["rows_lost"]:
        loss = f"loses {count(said['rows_lost'], row)}"
    elif said["rows_lost"] is None and said["lost"]:
        loss = f"loses {plural(row)}"
    else:
        loss = "loses nothing more" if any(fault.lost for fault in faults) else "loses nothing"
    # "Opens, loses nothing", but "opens, cuts that file to 12: loses 3 records".
    return f"{head}{', '.join(does)}{': ' if len(does) > 1 else ', '}{loss}"


_SCOPES = {
    "process": "does not start",
    "log_dir": "starts without the whole disk",
    "partition": "starts without it",
}


def _only_file(report: ReportData) -> str | None:
    """The file that the headline names."""
    named = {path for path, fault in report.faults if fault.severity is not Severity.INFO}
    return named.pop() if len(named) == 1 else None


# What to do


def _advice(report: ReportData) -> Iterator[str]:
    bad = not report.ok
    if report.live and bad:
        yield "  the system is running on it: what it is about to write is not here yet"
    yield f"  {report.next or next_command(report)}"
    if bad and not report.live and report.cut is None and report.checked:
        yield from (f"  {one}" for one in report.advice)


def next_command(report: ReportData) -> str:
    """The command to type next."""
    path = f"{shlex.quote(report.path)}{report.flags}"
    if not report.checked and report.ok and report.missing:
        return f"logwright verify {path} --as-system   says more of it"
    if not report.checked and report.worst in (Severity.ERROR, Severity.WARNING):
        return f"logwright verify {path}   says more of it"
    if report.unsupported and report.ok:
        return f"logwright dump {path} --mode DROPMALFORMED   gets every {report.nouns[0]} that can be read"
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
        more = " more" if any(fault.lost for _, fault in report.faults) else ""
        return f"logwright repair {path} --out DIR   loses nothing{more}"
    if report.strategy is not None:
        return f"logwright repair {path} --strategy {report.strategy} --out DIR   keeps what can be read"
    if report.mending is not None:
        leaves = ", and leaves some of it as it is" if report.leaves else ""
        return f"logwright repair {path} --out DIR   loses {_more(report)}{leaves}"
    losses = [
        fault.rows_lost
        for file in report.files
        if file.primary
        for fault in file.faults
        if fault.severity is not Severity.INFO and (fault.lost or fault.rows_lost or file.errors)
    ]
    known = sum(one for one in losses if one is not None)
    if not any(
        fault.length
        for file in report.files
        if file.primary
        for fault in file.faults
        if fault.severity is not Severity.INFO
    ):
        more = " more" if any(fault.lost for _, fault in report.faults) else ""
        return f"logwright repair {path} --out DIR   loses nothing{more}"
    if None not in losses:
        return f"logwright repair {path} --out DIR   loses {known or 'nothing'}"
    return f"logwright repair {path} --out DIR   loses only what is damaged"


def _more(report: ReportData) -> str:
    """How much a repair would lose, where that is known for certain: beside what is nowhere any more."""
    gone = sum(fault.rows_lost or 0 for _, fault in report.faults if fault.lost and not fault.length)
    rest = (report.mending or 0) - gone
    more = " more" if gone else ""
    return f"{rest:,}{more}" if rest > 0 else f"nothing{more}"


def printed(report: ReportData, noun: str, value: Any) -> str:
    """A number of the system's own, as that prints it (`Codec.printed`)."""
    try:
        known = {} if report.codec is None else registry.find(report.codec).printed
    except UsageError:
        known = {}
    return str(value) if value is None else known.get(noun, str)(value)


# Several things


def _several(report: ReportData, width: int) -> Iterator[str]:
    parts = sorted(report.parts, key=_how_bad)
    bad = [one for one in parts if not one.ok]
    warned = [one for one in parts if one.worst is Severity.WARNING]
    what = f"{len(bad)} of {len(parts)} damaged" if bad else f"{len(parts)} looked at"
    size = _size(report.bytes)
    said = [what, size if report.ok else f"{_size(report.bytes_damaged)} of {size}"]
    said.append(count(report.rows, _noun(report)))
    if report.faults_total:
        said.append(count(report.faults_total, _fault_noun(report)))
    yield f"{_shown_path(report)}  {_state(report)}  {', '.join(said)}"
    yield from _in_all(report)
    # All of few; of many those with something wrong.
    shown = parts[:_TARGETS] if len(parts) <= _TARGETS else [*bad, *warned][:_TARGETS]
    wide = min(max((len(_short(one, report)) for one in shown), default=0), width // 2)
    for one in shown:
        yield f"  {_short(one, report).ljust(wide)}  {_line(one, width - wide - 4)}"
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


def _repaired(report: ReportData, width: int) -> Iterator[str]:
    """What a repair or rebuild made of several stores: those that failed, then those that lost most."""
    failed = [one for one in report.parts if one.error is not None]
    done = [one for one in report.parts if one.error is None]
    changed = [one for one in done if one.changed or not one.ok or one.incomplete]
    said = [
        count(len(report.parts), "store"),
        f"{len(done) - len(changed)} sound",
        f"{len(changed)} damaged",
        *([f"{len(failed)} FAILED"] if failed else []),
        f"{count(report.rows, _noun(report))} kept",
    ]
    yield f"{_shown_path(report)}  {', '.join(said)}"
    changed.sort(key=_removed, reverse=True)
    shown = [*failed, *changed][:_TARGETS]
    wide = min(max((len(_short(one, report)) for one in shown), default=0), width // 2)
    for one in shown:
        name = _short(one, report).ljust(wide)
        if one.error is not None:
            yield f"  {name}  FAILED   {one.error}"
            continue
        lost = [cut["rows_lost"] for cut in one.cut or ()]
        rows = count(sum(rows or 0 for rows in lost), one.nouns[0])
        least = (
            "at least " if None in lost or (one.incomplete and not sum(rows or 0 for rows in lost)) else ""
        )
        yield f"  {name}  damaged  {least}{rows} lost, {count(one.rows, one.nouns[0])} kept"
    if len(failed) + len(changed) > len(shown):
        yield f"  and {len(failed) + len(changed) - len(shown)} more (--json has all)"
    yield from (f"  {note}" for note in report.notes)
    if report.next:
        yield f"  {report.next}"


def _removed(one: ReportData) -> int:
    return sum(cut["rows_lost"] or 0 for cut in one.cut or ())


def _how_bad(one: ReportData) -> tuple[int, bool, int, int, str]:
    """The worst first: what keeps the system from starting, then by what is lost."""
    said = one.system
    opens = said is None or bool(said["opens"])
    gone = 0 if said is None else int(said["rows_lost"] or 0)
    return _RANK[one.worst], opens, -gone, -one.bytes_damaged, one.path


def _noun(report: ReportData) -> str:
    nouns = {part.nouns[0] for part in report.parts if part.rows}
    return nouns.pop() if len(nouns) == 1 else "row"


def _shown_path(report: ReportData) -> str:
    return report.path if len(report.path) <= 60 else f"{report.path[:57]}..."


def _short(one: ReportData, report: ReportData) -> str:
    """Without what all have in common."""
    above = f"{report.path.rstrip('/')}/"
    return one.path.removeprefix(above)


def _in_all(report: ReportData) -> Iterator[str]:
    """What is lost of all, and what the system would do with all."""
    rows, least = _rows_lost(fault for _, fault in report.faults)
    if rows:
        yield f"  lost in all: {least}{count(rows, _noun(report))}"
    if report.system is not None and not report.system["opens"]:
        yield f"  {system(report.system, report)}"
        yield from (f"    {warning}" for warning in report.system["warnings"][:_WARNINGS])
        return
    asked = [part for part in report.parts if part.system is not None]
    if not asked:
        return
    said = asked[0].system
    assert said is not None
    head = f"  {title(said)}: "
    if report.system is not None:
        yield from (f"  {title(said)}: {warning}" for warning in report.system["warnings"][:_WARNINGS])
    for scope in ("process", "log_dir"):
        closed = [part for part in asked if part.system and part.system["scope"] == scope]
        if closed:
            more = f" and {len(closed) - 1} more" if len(closed) > 1 else ""
            yield f"{head}{_SCOPES[scope]}, because of {_short(closed[0], report)}{more}"
            return
    lost = [int(part.system["rows_lost"] or 0) for part in asked if part.system]
    if sum(lost):
        yield f"{head}loses {count(sum(lost), _noun(report))} in {sum(map(bool, lost))} of them"
    elif report.safe:
        yield f"{head}opens {'both' if len(asked) == 2 else 'all'} and loses nothing"


def _rows_lost(faults: Iterable[Fault]) -> tuple[int, str]:
    """So many rows that are known, and whether there may be more, in words."""
    losses = [fault for fault in faults if fault.lost or fault.rows_lost]
    known = [fault.rows_lost for fault in losses if fault.rows_lost is not None]
    return sum(known), "" if len(known) == len(losses) else "at least "


def _line(one: ReportData, room: int) -> str:
    """One of several, in a line of at most so many characters."""
    if one.worst in (None, Severity.INFO):
        return f"ok       {_size(one.bytes)}, {count(one.rows, one.nouns[0])}"
    faults = [fault for _, fault in one.faults if fault.severity is not Severity.INFO]
    worst = min(faults, key=lambda fault: _RANK[fault.severity])
    after = []
    rows, least = _rows_lost(faults)
    if rows:
        after.append(f"lost: {least}{count(rows, one.nouns[0])}")
    if one.system is not None and (short := _shortly(one.system, one)):
        after.append(short)
    end = "".join(f"; {part}" for part in after)
    end = f", {len(faults)} faults{end}" if len(faults) > 1 else end
    plain = worst.kind in _PLAIN or worst.detail.startswith("not checked")
    said = worst.detail if plain and worst.detail else str(worst.kind)
    word = _WORDS[worst.severity]
    left = max(20, room - len(f"{word}  {end}"))
    if len(said) > left:
        said = f"{said[: left - 3]}..."
    return f"{word}  {said}{end}"


def _shortly(said: Mapping[str, Any], report: ReportData) -> str:
    """What the real system would do, in a few words; nothing where all is well with it."""
    name = title(said)
    if not said["opens"]:
        return f"{name} {_SCOPES.get(str(said['scope']), 'does not open it')}"
    if said["rows_lost"]:
        return f"{name} loses {count(said['rows_lost'], report.nouns[0])}"
    stops = said["serves"].get("stops_at")
    if stops is not None:
        return f"{name}'s clients stop at {stops}"
    return f"{name}'s clients end with an error" if said["error"] else ""


def _about(one: ReportData) -> str:
    if one.ok:
        return next_command(one)
    return f"logwright verify {shlex.quote(one.path)}   says more of the worst of them"


# Words


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def _size(number: int) -> str:
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if number >= 1000**power:
            return f"{number / 1000**power:.1f} {unit}"
    return count(number, "byte")


def lost(fault: Fault, report: ReportData) -> str:
    """`Fault.lost` in words: pairs of `first_x` and `last_x` as ranges, times as dates; without what is true of all."""
    said: list[str] = []
    gone = {name: value for name, value in fault.lost.items() if name not in report.known}
    if fault.rows_lost == 0 and not gone:
        return "nothing"
    extra = [] if fault.rows_lost is None else [count(fault.rows_lost, report.nouns[0])]
    for name, value in gone.items():
        if name.startswith("first_") and f"last_{name[6:]}" in gone:
            noun, top = name[6:], gone[f"last_{name[6:]}"]
            low, high = (
                (value, top) if "timestamp" in noun else (_shown(report, noun, one) for one in (value, top))
            )
            span = _span(noun, low, high)
            (extra if "timestamp" in noun else said).append(span)
        elif value is None:
            continue
        elif name == "smallest":
            top = gone.get("largest")
            said.append(f"keys from {value} on" if top is None else f"keys from {value} to {top}")
        elif name == "largest":
            said += [f"keys up to {value}"] if gone.get("smallest") is None else []
        elif name.startswith("first_"):
            said.append(f"{name[6:]}s from {printed(report, name[6:], value)} on, if any")
        elif not name.startswith("last_"):
            said.append(f"{name} {printed(report, name, value)}")
        elif f"first_{name[5:]}" not in gone:
            said.append(f"{name[5:]}s up to {printed(report, name[5:], value)}")
    words = ", ".join(said)
    return f"{words} ({', '.join(extra)})" if words and extra else words or ", ".join(extra)


def _shown(report: ReportData, noun: str, value: Any) -> str | None:
    return None if value is None else printed(report, noun, value)


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
