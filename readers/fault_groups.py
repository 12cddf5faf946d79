"""The order of the faults of a store or file: as its report lists them, and as `explain` numbers them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from logwright.codec.fault import Fault, Severity

RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2, None: 3}
_DIGITS = re.compile(r"\d+")


@dataclass
class Group:
    """A fault, and all `members`: itself, faults alike (of the same file, notes of any file), and other faults of the same place."""

    path: str
    fault: Fault
    """With what is lost according to other faults of the same place."""
    members: list[tuple[str, Fault]]
    end: int
    alike: list[tuple[str, Fault]] = field(default_factory=list)


def grouped(faults: Sequence[tuple[str, Fault]]) -> list[Group]:
    """Group faults of one file, and notes of all files, that differ only in numbers, and faults of one place. The worst come first."""
    out: list[Group] = []
    known: dict[tuple[Any, ...], Group] = {}
    places: dict[tuple[str, int, int], Group] = {}
    # Notes on the whole come before those on its files.
    for path, fault in sorted(
        faults, key=lambda each: (RANK[each[1].severity], each[1].severity is Severity.INFO and bool(each[0]))
    ):
        place = (path, fault.offset, fault.length)
        if fault.length and (here := places.get(place)) is not None:
            here.members.append((path, fault))
            if not here.fault.lost:
                here.fault = replace(here.fault, lost=fault.lost, rows_lost=fault.rows_lost)
            continue
        of_file = "" if fault.severity is Severity.INFO else path
        key = of_file, fault.kind, fault.severity, _DIGITS.sub("", fault.detail)
        first = known.get(key)
        # Faults that name lost rows are listed one by one.
        if first is None or fault.lost or fault.rows_lost:
            known[key] = places[place] = Group(path, fault, [(path, fault)], fault.offset + fault.length)
            out.append(known[key])
        else:
            first.alike.append((path, fault))
            first.members.append((path, fault))
            first.end = max(first.end, fault.offset + fault.length)
    return out


def numbered(faults: Sequence[tuple[str, Fault]]) -> list[tuple[str, Fault]]:
    """Return the faults without the notes: first those that a report lists, in their order, then those that it only counts."""
    groups = grouped([entry for entry in faults if entry[1].severity is not Severity.INFO])
    return [group.members[0] for group in groups] + [other for group in groups for other in group.members[1:]]
