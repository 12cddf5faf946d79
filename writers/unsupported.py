"""What a repair does with frames that are not damaged and not known here: it refuses, or copies their files untouched.

A frame whose checksum is right and whose version, type or attribute is unknown was written by another program or a newer version. A
repair that does not understand it can only drop it or guess, so neither is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logwright.codec.fault import Kind, UnsupportedError, UsageError
from logwright.codec.mending import Cut, Kept, Mended, Mending
from logwright.codec.option import fold
from logwright.codec.store.build import Summary
from logwright.codec.store.listing import Listing
from logwright.readers.report import Report

OPTION = "unsupported"
"""An option of `repair` for all systems."""
REFUSE, COPY = "refuse", "copy"


def take(options: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Return whether files with unsupported frames are to be copied untouched, and the other options."""
    rest = {name: value for name, value in options.items() if fold(name) != OPTION}
    wanted = next((value for name, value in options.items() if fold(name) == OPTION), REFUSE)
    if wanted not in (REFUSE, COPY):
        raise UsageError(f"{OPTION} is {REFUSE} or {COPY}, not {wanted!r}")
    return wanted == COPY, rest


def files(report: Report, *, copy: bool) -> list[str]:
    """Return the files with unsupported frames. Raises `UnsupportedError` if there are any and they are not to be copied."""
    names = [file.path for file in report.files if file.unsupported]
    if names and not copy:
        path, fault = next((path, fault) for path, fault in report.faults if fault.kind is Kind.UNSUPPORTED)
        error = UnsupportedError(
            f"{fault.kind}: {fault.detail}. A repair would drop it",
            path=report.shown(path),
            offset=fault.offset,
            advice=f"Repair it with the program that wrote it. {OPTION}={COPY} (--{OPTION} {COPY}) copies such files untouched, and "
            "repairs the others",
        )
        error.fault = fault
        raise error
    return names


class Untouched:
    """A repair in which some files stay as they are. See `logwright.codec.mending.Mending`."""

    def __init__(self, of: Mending, listing: Listing, names: Sequence[str], *, everything: bool) -> None:
        """`everything`: all files stay, since a file that describes the others is among `names`."""
        self._of = of
        self._sizes = {entry.name: entry.size for entry in listing.entries()}
        stems = {_stem(name) for name in names}
        self._names = {
            name for name in self._sizes if everything or name in names or _stem(name) in stems - {""}
        }
        self._everything = everything

    @property
    def cut(self) -> Sequence[Cut]:
        return [one for one in self._of.cut if one.copy or one.file not in self._names]

    @property
    def removes(self) -> Sequence[str]:
        return [name for name in self._of.removes if name not in self._names]

    def files(self) -> Iterator[Mended]:
        left = dict.fromkeys(name for name in self._sizes if name in self._names)
        for one in self._of.files():
            if one.name in self._names:
                left.pop(one.name, None)
                yield self._whole(one.name)
            elif not self._everything:
                yield one
        for name in left:
            yield self._whole(name)

    def _whole(self, name: str) -> Mended:
        return Mended(name, [Kept(name, 0, self._sizes[name])], name)

    def summary(self) -> Summary:
        return self._of.summary()


def _stem(name: str) -> str:
    """The number that a file shares with those made from it, as a Kafka segment with its indexes; "" for any other name."""
    stem = name.partition(".")[0]
    return stem if stem.isdigit() else ""
