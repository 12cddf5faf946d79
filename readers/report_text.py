"""The report as text for an operator: a few lines, the worst first.

A headline, what is lost, what the real system would do if it were started now, and the next command to type.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from logwright.codec import registry
from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.codec.option import Verb
from logwright.codec.plural import count, plural, printable
from logwright.readers.corrected import healed_by_corrections, unproved
from logwright.readers.fault_groups import RANK, Group, grouped
from logwright.readers.report_data import ReportData
from logwright.readers.verdict_text import SCOPES, system, system_in_brief, title

WIDTH = 118
"""Longer lines are wrapped, except for paths and commands."""
_NARROWEST = 60
_SHOWN = 8
"""Number of faults to print."""
_NOTES = 3
"""Number of notes to print, if there are no faults."""
_WARNINGS = 3
"""Number of warnings of the real system to print."""
_TARGETS = 40
"""Number of stores or files to list, one per line."""

_WORDS = {Severity.ERROR: "DAMAGED", Severity.WARNING: "warning", Severity.INFO: "note"}
_HEALED = (": repair restores it", ": restored")
"""Added to damage that loses nothing, before and after a repair."""
_NOTHING = "nothing"
_UNSUPPORTED = "UNSUPPORTED"
_DENIED = "NOT CHECKED"
_PLAIN = (Kind.LINK, Kind.ORDER, Kind.PADDING)
"""Kinds of faults whose detail is enough to describe them."""


def text(report: ReportData, width: int = WIDTH) -> str:
    """Return the text for a terminal of `width` characters per line."""
    width = max(_NARROWEST, min(width, WIDTH))
    if report.parts and report.cut is not None:
        lines = list(_repaired(report, width))
    else:
        lines = list(_several(report, width) if report.parts else _one(report))
    return "\n".join(out for line in lines for out in _fold(line, width))


def _fold(line: str, width: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()))
    if line.lstrip().startswith("logwright "):
        return [line]
    line = printable(line.replace("\t", " "))  # messages of the real systems contain tabs
    if len(line) <= width:
        return [line]
    return textwrap.wrap(
        line, width, subsequent_indent=f"{indent}    ", break_long_words=False, break_on_hyphens=False
    )


# One store or file


def _one(report: ReportData) -> Iterator[str]:
    yield from _findings(report)
    if report.cut is None:
        yield from _consequences(report)
    yield from (f"  {note}" for note in report.notes)
    yield from _advice(report)


def _findings(report: ReportData) -> Iterator[str]:
    groups = grouped(report.faults)
    grave = [group for group in groups if group.fault.severity is not Severity.INFO]
    shown = grave[:_SHOWN] if grave else groups[:_NOTES]
    alone = len(grave) == 1 and not grave[0].alike
    if not alone:
        yield headline(report)
    last_system = ""
    denied = {file.path for file in report.files if 0 < file.denied == file.errors}
    for group in shown:
        word = _UNSUPPORTED if group.fault.kind is Kind.UNSUPPORTED else _WORDS[group.fault.severity]
        word = _DENIED if group.path in denied and group.fault.severity is Severity.ERROR else word
        head = f"{report.path}  {word}  " if alone else f"  {word}  "
        indent = "  " if alone else "    "
        where = f"{group.path}  " if group.path and group.path != report.path else ""
        yield f"{head}{where}{_fault(group)}"
        loss = lost(group.fault, report)
        # Next to other faults, "nothing" would be taken for the sum of them.
        if loss and (loss != _NOTHING or (alone and group.fault.length)):
            healed = loss != _NOTHING and _restored(group, report)
            word = "damaged" if healed else "lost" if loss == _NOTHING else _loss_word(group.fault)
            yield f"{indent}{word}: {loss}{_HEALED[report.cut is not None] if healed else ''}"
        yield from (f"{indent}{text}" for text in unproved(report, group.path, group.fault))
        if group.fault.system and group.fault.system != last_system and report.system is None:
            last_system = group.fault.system
            yield f"{indent}{last_system}"
    unlisted = report.faults_total - len(report.faults)
    listed = f"--json lists the first {len(report.faults):,}" if unlisted else "--json lists all"
    if len(grave) > len(shown) or (grave and unlisted):
        yield f"  and {len(grave) - len(shown) + unlisted:,} more ({listed})"
    left = report.faults_total - sum(len(group.members) for group in shown)
    if not grave and left > 0:
        yield f"  and {count(left, 'more note')} ({listed})"


def _restored(group: Group, report: ReportData) -> bool:
    """Return whether the lost rows come back in a repair."""
    place = (group.path, group.fault.offset)
    return (place in report.healed and bool(group.fault.rows_lost)) or place in healed_by_corrections(report)


def _loss_word(fault: Fault) -> str:
    """Return what is said of the rows of a fault."""
    if fault.rows_lost == 0 and fault.lost:
        return "affected"  # other files may have these rows
    # A crash may leave an unfinished append that was never acknowledged.
    certain = fault.rows_lost is not None and fault.kind is not Kind.TRUNCATED
    return "lost" if fault.severity is Severity.ERROR or certain else "may be lost"


def _fault(group: Group) -> str:
    fault = group.fault
    text = fault.detail
    # The two checksums do not help an operator. A digest (which has no bytes) names what it covers.
    if (fault.kind is Kind.CHECKSUM and fault.length) or not text:
        text = str(fault.kind) + "".join(fault.detail.partition("; bit ")[1:])
    elif fault.kind not in (*_PLAIN, Kind.UNSUPPORTED) and not text.startswith("not checked"):
        text = f"{fault.kind}: {text}"
    where = f"at {fault.offset}: " if fault.offset else ""
    if fault.length:
        where = f"at {fault.offset}, {count(fault.length, 'byte')}: "
    more = f", and {len(group.alike)} similar up to {group.end}" if group.alike else ""
    paths = {path for path, _ in group.alike}
    if paths - {group.path}:
        more = f", and {len(group.alike)} similar in {count(len(paths), 'file')}"
    return f"{where}{text}{more}"


def headline(report: ReportData) -> str:
    """Return the state and the amount of data."""
    parts = [_damaged_size(report)]
    files = sum(file.path != "" for file in report.files)  # "" is the directory itself
    parts += [count(files, "file")] if files != 1 else []
    parts.append(count(report.frames, "frame"))
    if report.rows_read or not report.frames:  # otherwise the rows were not counted
        parts.append(count(report.rows_read, report.rows_noun or report.nouns[0]))
    return f"{report.path}  {_state(report)}  {', '.join([*parts, *report.fault_counts()])}"


def _state(report: ReportData) -> str:
    if report.denied:
        return _DENIED
    if not report.ok:
        return "DAMAGED"
    if not report.checked and report.missing:
        return "INCOMPLETE"
    if report.unsupported:
        return _UNSUPPORTED
    return "not checked" if report.unchecked else "ok"


def _consequences(report: ReportData) -> Iterator[str]:
    """Iterate over the lines on the total loss and on what the system would do."""
    rows, least = _rows_lost([report])
    if len(_losses(report)) > 1 and rows:
        yield f"  lost in total: {least}{count(rows, report.nouns[0])}"
    if report.system is not None:
        yield f"  {system(report.system, report)}"
        if not report.system["truncates"]:
            # Otherwise the warnings repeat the line above.
            yield from (f"    {warning}" for warning in report.system["warnings"][:_WARNINGS])


# Advice


def _advice(report: ReportData) -> Iterator[str]:
    bad = not report.ok
    if report.live and bad:
        yield "  the system is running here: data that it has not written yet is missing"
    yield f"  {report.next or next_command(report)}"
    if bad and not report.denied and not report.live and report.cut is None and report.checked:
        yield from (f"  {line}" for line in report.advice)


def next_command(report: ReportData) -> str:
    """Return the command to type next."""

    def command(verb: Verb) -> str:
        name = "dump" if verb is Verb.READ else verb
        return f"logwright {name} {shlex.join(report.paths)}{report.flags.get(verb, '')}"

    if report.denied:
        return f"{command(Verb.VERIFY)}   as a user who may read the files"
    if not report.checked and report.ok and report.missing:
        return f"{command(Verb.VERIFY)} --as-system   for details"
    if not report.checked and report.worst in (Severity.ERROR, Severity.WARNING):
        return f"{command(Verb.VERIFY)}   for details"
    if report.unsupported and report.ok:
        return f"{command(Verb.READ)} --mode DROPMALFORMED   prints every readable {report.nouns[0]}"
    gone = any(fault.lost for _, fault in report.faults)
    if report.ok and report.repairs and gone and report.system is not None and report.system["lost"]:
        return f"{command(Verb.REPAIR)} --out DIR   keeps what {report.system['name']} loses"
    if report.ok:
        warned = {path for path, fault in report.faults if fault.severity is Severity.WARNING}
        if warned and report.repairs and warned <= report.derived:
            files = "this file" if len(warned) == 1 else "these files"
            return f"{command(Verb.REPAIR)} --out DIR   rebuilds {files}"
        return (
            f"{command(Verb.VERIFY)} --json   for the full list"
            if warned
            else f"{command(Verb.READ)} --limit 10"
        )
    if not report.repairs:
        return f"{command(Verb.READ)} --mode DROPMALFORMED   prints every undamaged {report.nouns[0]}"
    if report.strategy is not None and any(file.errors for file in report.files if file.primary):
        return f"{command(Verb.REPAIR)} --strategy {report.strategy} --out DIR   keeps what is readable"
    return f"{command(Verb.REPAIR)} --out DIR   {_effect(report)}"


def _effect(report: ReportData) -> str:
    """Return what a repair keeps or loses, in a few words."""
    primary = [file for file in report.files if file.primary]
    faults = [
        (file, fault) for file in primary for fault in file.faults if fault.severity is not Severity.INFO
    ]
    gone = any(fault.lost and fault.rows_lost != 0 for _, fault in report.faults)
    if not any(file.errors for file in primary):
        return "loses nothing more" if gone else "loses nothing"
    if report.repair_loss is not None:
        return f"loses {_more(report)}{', and leaves some damage in place' if report.leaves else ''}"
    losses = [
        0 if fault.offset in file.healed else fault.rows_lost
        for file, fault in faults
        if fault.lost or fault.rows_lost or file.errors
    ]
    if not any(fault.length for _, fault in faults):
        return "loses nothing more" if None in losses or gone else "loses nothing"
    if None in losses:
        return "loses only damaged data"
    known = sum(loss for loss in losses if loss is not None)
    least = "at least " if report.faults_total > len(report.faults) else ""
    return f"loses {least + count(known, report.nouns[0]) if known else 'nothing'}"


def _more(report: ReportData) -> str:
    """Return the number of rows that a repair would lose, in addition to rows that are lost already."""
    gone = sum(fault.rows_lost or 0 for _, fault in report.faults if fault.lost and not fault.length)
    rest = (report.repair_loss or 0) - gone
    more = "more " if gone else ""
    return count(rest, more + report.nouns[0]) if rest > 0 else f"nothing {more}".rstrip()


def printed(report: ReportData, noun: str, value: Any) -> str:
    """Format a number as the system prints it (`Codec.printed`)."""
    try:
        known = {} if report.codec is None else registry.find(report.codec).printed
    except UsageError:
        known = {}
    return str(value) if value is None else known.get(noun, str)(value)


# Several stores or files


def _several(report: ReportData, width: int) -> Iterator[str]:
    parts = sorted(report.parts, key=_severity_key)
    denied = [part for part in parts if part.denied]
    bad = [part for part in parts if not part.ok]
    warned = [part for part in parts if part.worst is Severity.WARNING]
    damaged, read = len(bad) - len(denied), len(parts) - len(denied)
    checked = f"{damaged} of {len(parts)} damaged" if damaged else f"{read} checked"
    checked += f", {len(denied)} not checked" if denied else ""
    summary = [checked, _damaged_size(report)]
    nouns = {part.rows_noun or part.nouns[0] for part in report.parts if part.rows}
    summary.append(count(report.rows, nouns.pop() if len(nouns) == 1 else "row"))
    yield f"{_shown_path(report)}  {_state(report)}  {', '.join([*summary, *report.fault_counts()])}"
    yield from _in_all(report)
    # List all if there are few, otherwise those with faults.
    shown = parts[:_TARGETS] if len(parts) <= _TARGETS else [*bad, *warned][:_TARGETS]
    wide = min(max((len(_short(part, report)) for part in shown), default=0), width // 2)
    for part in shown:
        yield f"  {_short(part, report).ljust(wide)}  {_line(part, width - wide - 4)}"
    left = len(parts) - len(shown)
    if left:
        hidden = len(bad) + len(warned) - len(shown)
        yield (
            f"  and {hidden} more with faults (--json lists all)"
            if hidden > 0
            else f"  and {left} more, all ok"
        )
    yield from (f"  {note}" for note in report.notes)
    opened = [part for part in parts if part.error is None] or parts
    yield f"  {report.next or (_about(opened[0]) if parts else next_command(report))}"


def _repaired(report: ReportData, width: int) -> Iterator[str]:
    """Iterate over the result of repairing or rebuilding several stores: failures first, then by rows lost."""
    failed = [part for part in report.parts if part.error is not None]
    done = [part for part in report.parts if part.error is None]
    changed = [part for part in done if part.changed or not part.ok or part.incomplete]
    summary = [
        count(len(report.parts), "store"),
        f"{len(done) - len(changed)} undamaged",
        f"{len(changed)} damaged",
        *([f"{len(failed)} FAILED"] if failed else []),
        f"{count(report.rows, _noun(report))} kept",
    ]
    yield f"{_shown_path(report)}  {', '.join(summary)}"
    changed.sort(key=lambda part: part.rows_lost, reverse=True)
    shown = [*failed, *changed][:_TARGETS]
    wide = min(max((len(_short(part, report)) for part in shown), default=0), width // 2)
    for part in shown:
        name = _short(part, report).ljust(wide)
        if part.error is not None:
            yield f"  {name}  FAILED   {part.error}"
            continue
        rows = f"{count(part.rows_lost, part.nouns[0])} lost"
        if not part.loss_known or (part.incomplete and not part.rows_lost):
            rows = (
                f"at least {rows}" if part.rows_lost else f"an unknown number of {plural(part.nouns[0])} lost"
            )
        yield f"  {name}  damaged  {rows}, {count(part.rows, part.nouns[0])} kept"
    if len(failed) + len(changed) > len(shown):
        yield f"  and {len(failed) + len(changed) - len(shown)} more (--json lists all)"
    yield from (f"  {note}" for note in report.notes)
    if report.next:
        yield f"  {report.next}"


def _severity_key(part: ReportData) -> tuple[int, bool, int, int, str]:
    """Return a sort key that puts the worst store first: stores that the system cannot open, then those with the most rows lost."""
    verdict = part.system
    opens = verdict is None or bool(verdict["opens"])
    gone = 0 if verdict is None else int(verdict["rows_lost"] or 0)
    return RANK[part.worst], opens, -gone, -part.bytes_damaged, part.path


def _noun(report: ReportData) -> str:
    nouns = {part.nouns[0] for part in report.parts if part.rows}
    return nouns.pop() if len(nouns) == 1 else "row"


def _shown_path(report: ReportData) -> str:
    return report.path if len(report.path) <= 60 else f"{report.path[:57]}..."


def _short(part: ReportData, report: ReportData) -> str:
    """Return the path relative to the common directory."""
    above = f"{report.path.rstrip('/')}/"
    return part.path.removeprefix(above)


def _in_all(report: ReportData) -> Iterator[str]:
    """Iterate over the lines on the total loss and on the system's verdict for all stores."""
    rows, least = _rows_lost(report.parts)
    if rows:
        yield f"  lost in total: {least}{count(rows, _noun(report))}"
    if report.system is not None and not report.system["opens"]:
        yield f"  {system(report.system, report)}"
        yield from (f"    {warning}" for warning in report.system["warnings"][:_WARNINGS])
        return
    asked: dict[str, list[ReportData]] = {}
    for part in report.parts:
        if part.system is not None:
            asked.setdefault(title(part.system), []).append(part)
    if report.system is not None:
        yield from (
            f"  {title(report.system)}: {warning}" for warning in report.system["warnings"][:_WARNINGS]
        )
        if not asked:
            yield f"  {title(report.system)}: starts, and has nothing to load"
    for name, parts in asked.items():
        yield from (f"  {name}: {line}" for line in _by_system(parts, report))


def _by_system(parts: Sequence[ReportData], report: ReportData) -> Iterator[str]:
    """Iterate over what one system does with its stores."""
    verdicts = [part.system for part in parts if part.system is not None]
    for scope in ("process", "log_dir"):
        closed = [part for part, verdict in zip(parts, verdicts, strict=True) if verdict["scope"] == scope]
        if closed:
            more = f" and {len(closed) - 1} more" if len(closed) > 1 else ""
            yield f"{SCOPES[scope]}, because of {_short(closed[0], report)}{more}"
            return
    lost = [int(verdict["rows_lost"] or 0) for verdict in verdicts]
    if sum(lost):
        nouns = {part.nouns[0] for part in parts}
        noun = nouns.pop() if len(nouns) == 1 else "row"
        yield f"loses {count(sum(lost), noun)} in {sum(map(bool, lost))} of them"
    closed_stores = sum(not verdict["opens"] for verdict in verdicts)
    if closed_stores:
        yield f"does not open {closed_stores} of them"
    elif not sum(lost) and all(part.ok and not part.unchecked for part in report.parts if not part.system):
        more = "" if report.safe else " more"
        yield f"opens {'both' if len(parts) == 2 else 'all'} and loses nothing{more}"


def _lasting(report: ReportData) -> list[Fault]:
    """Return the faults whose rows do not come back in a repair."""
    return [fault for path, fault in report.faults if (path, fault.offset) not in report.healed]


def _rows_lost(reports: Iterable[ReportData]) -> tuple[int, str]:
    """Return the known number of lost rows, and "at least " if there may be more."""
    rows, least = 0, ""
    for report in reports:
        for fault in _losses(report):
            rows += fault.rows_lost or 0
            least = "at least " if fault.rows_lost is None else least
        if report.faults_total > len(report.faults):
            least = "at least "
    return rows, least


def _losses(report: ReportData) -> list[Fault]:
    return [fault for fault in _lasting(report) if fault.lost or fault.rows_lost]


def _line(part: ReportData, room: int) -> str:
    """Describe one of several stores in a line of at most `room` characters."""
    if part.error is not None:
        return f"{_DENIED}  {part.error}"
    if part.worst in (None, Severity.INFO):
        return f"ok       {_size(part.bytes)}, {count(part.rows, part.rows_noun or part.nouns[0])}"
    faults = [fault for _, fault in part.faults if fault.severity is not Severity.INFO]
    worst = min(faults, key=lambda fault: RANK[fault.severity])
    after = []
    rows, least = _rows_lost([part])
    if rows:
        after.append(f"lost: {least}{count(rows, part.nouns[0])}")
    elif any(fault.rows_lost for fault in faults):
        after.append("repair restores it")
    if part.system is not None and (short := system_in_brief(part.system, part)):
        after.append(short)
    end = "".join(f"; {part}" for part in after)
    end = f", {len(faults)} faults{end}" if len(faults) > 1 else end
    # If a fault covers a file, its kind would say less than the name of the file.
    plain = worst.kind in _PLAIN or worst.length == part.bytes or worst.detail.startswith("not checked")
    text = worst.detail if plain and worst.detail else str(worst.kind)
    word = _DENIED if part.denied else _WORDS[worst.severity]
    left = max(20, room - len(f"{word}  {end}"))
    if len(text) > left:
        text = f"{text[: left - 3]}..."
    return f"{word}  {text}{end}"


def _about(part: ReportData) -> str:
    if part.ok or part.denied:
        return part.next or next_command(part)
    return f"logwright verify {shlex.quote(part.path)}   for details of the worst"


# Formatting


def _size(number: int) -> str:
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if number >= 1000**power:
            return f"{number / 1000**power:.1f} {unit}"
    return count(number, "byte")


def _damaged_size(report: ReportData) -> str:
    """Return the number of damaged bytes, if there are any, and of all bytes."""
    size = _size(report.bytes)
    if report.ok or report.denied or not report.bytes_damaged:
        return size
    return f"{_size(report.bytes_damaged)} of {size}"


def lost(fault: Fault, report: ReportData) -> str:
    """Describe `Fault.lost`: pairs of `first_x` and `last_x` as ranges, times as dates. Facts that hold for the whole report are omitted."""
    parts: list[str] = []
    gone = {name: value for name, value in fault.lost.items() if name not in report.known}
    if fault.rows_lost == 0 and not gone:
        return _NOTHING
    extra = [count(fault.rows_lost, report.nouns[0])] if fault.rows_lost else []
    for name, value in gone.items():
        if name.startswith("first_") and f"last_{name[6:]}" in gone:
            noun, top = name[6:], gone[f"last_{name[6:]}"]
            low, high = (
                (value, top)
                if "timestamp" in noun
                else (_shown(report, noun, bound) for bound in (value, top))
            )
            span = _span(noun, low, high)
            (extra if "timestamp" in noun else parts).append(span)
        elif value is None:
            continue
        elif name == "smallest":
            top = gone.get("largest")
            parts.append(f"keys from {value}" if top is None else f"keys {value}..{top}")
        elif name == "largest":
            parts += [f"keys up to {value}"] if gone.get("smallest") is None else []
        elif name.startswith("first_"):
            parts.append(f"{name[6:]}s from {printed(report, name[6:], value)}, if any")
        elif not name.startswith("last_"):
            parts.append(f"{name} {printed(report, name, value)}")
        elif f"first_{name[5:]}" not in gone:
            parts.append(f"{name[5:]}s up to {printed(report, name[5:], value)}")
    words = ", ".join(parts)
    return f"{words} ({', '.join(extra)})" if words and extra else words or ", ".join(extra)


def _shown(report: ReportData, noun: str, value: Any) -> str | None:
    return None if value is None else printed(report, noun, value)


def _span(noun: str, low: Any, high: Any) -> str:
    if low is None and high is None:
        return f"{'time' if 'timestamp' in noun else noun} unknown"
    if "timestamp" in noun:
        low, high = _when(low), _when(high)
        if low == high:
            return f"{low} UTC"
        return f"{low}..{high[11:] if low[:11] == high[:11] else high} UTC"  # the same day is printed once
    if low == high:
        return f"{noun} {low}"
    return f"{noun}s {'?' if low is None else low}..{'?' if high is None else high}"


def _when(value: Any) -> str:
    try:
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, TypeError, ValueError):
        return "?" if value is None else str(value)
