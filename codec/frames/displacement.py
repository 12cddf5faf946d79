"""The search for displaced frames: bytes were inserted before them or lost, so each claims a position other than its own.

All frames between two such places are displaced by the same number of bytes: the claimed position minus their own. Checksums do not prove
that, because the content of a damaged frame may be frames of another file. A displaced frame is accepted if another file lists a
frame of its size at its claim, and otherwise only if

- it and the next frame are undamaged, and displaced by the same number of bytes,
- its claim is not below the end of the frames before it, and within the range of the file,
- its claim is below that of the next frame that is displaced as those before the damage, if there is one within `REACH` bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from logwright.codec.arrays import Bytes
from logwright.codec.frames.damage import field_at
from logwright.codec.frames.prefixes import Prefixes
from logwright.codec.frames.resync import NONE, SOUND, Finder
from logwright.codec.frames.scanner import FULL, MAIN, NEED, NO_BASE, Scanner
from logwright.codec.frames.specification import FrameSpec, Position
from logwright.codec.window import Window

REACH = 8 << 20
"""The number of bytes that are searched for frames displaced as before. Larger displaced frames are not found."""
_FARTHEST = 1 << 40
"""The largest displacement in bytes."""
_RUN = 2
"""The number of frames with the same displacement that prove it."""
_AT_ONCE = 64
"""Frames with the same displacement that are scanned at a time. Of a long run the first ones often suffice, and it may be scanned again."""


@dataclass(frozen=True, slots=True)
class Displaced:
    """A displaced frame at `window.data[place]`. If `need` is not 0, that number of bytes from there on decides whether it is one."""

    place: int
    need: int = 0
    by: int = 0


def find_displaced(
    finder: Finder, scanner: Scanner, window: Window, at: int, stop: int, base: int, before: int, claims: tuple[int, int],
    listed: Mapping[int, int], prefixes: Prefixes,
) -> Displaced | None:  # fmt: skip
    """Return the first displaced frame from `window.data[at]` on.

    `stop` is the place of the next frame that is displaced by `before`, as the last frames are, or -1. A frame at `window.data[0]` that is
    not displaced claims `base`. `claims` is the range of possible claims. `listed`: see `FramedContext`.
    """
    data, (low, high) = window.data, claims
    if stop >= 0:
        high = min(high, base + stop + before)
    last = stop if stop >= 0 else len(data)
    while True:
        place, outcome, size = finder.next(window, at, prefixes, base=NO_BASE)
        if outcome == NONE or place >= last:
            return None
        left = window.size - window.offset - place
        more = stop < 0 and len(data) - place < min(left, REACH)
        claim = claim_of(finder.spec, data, place)
        by = 0 if claim is None else claim - base - place
        at = place + 1
        if outcome != SOUND:
            if more and (claim is None or (by != before and abs(by) <= _FARTHEST and claim < high)):
                return Displaced(place, min(left, REACH))
            continue
        if by == before or abs(by) > _FARTHEST:
            continue
        if claim is not None and listed.get(claim) == size:
            return Displaced(place, by=by)
        if by and not more and not scanner.first(data, place + size, left - size, base + by, prefixes):
            continue
        proved = not by
        first, frames = place, 0
        while True:
            run = scanner.frames(window, place, base + by, prefixes=prefixes, most=_AT_ONCE)
            frames += len(run.start)
            main = run.head["frame_kind"] == MAIN
            start, end = run.start[main], run.end[main]
            # Those that do not claim a place in the range, copies of earlier frames, prove the displacement too.
            proved = proved or len(start) >= _RUN
            start = start[(start + base + by >= low) & (end + base + by <= high)]
            if more and by and (run.why == NEED or (len(start) and proved)):
                return Displaced(first, min(window.size - window.offset - first, REACH))
            if len(start) and proved:
                return Displaced(int(start[0]), by=by)
            if run.why != FULL or run.stop >= last:
                break
            left -= run.stop - place
            place = run.stop
        at = run.stop if frames >= _RUN else at


def claim_of(spec: FrameSpec, data: Bytes, at: int) -> int | None:
    """Return the position that the frame at `data[at]` claims, or None if `data` ends before the field."""
    assert isinstance(spec.claims, Position)
    known = at + spec.struct_end(spec.claims.field) <= len(data)
    return field_at(spec, data, at, spec.claims.field) if known else None


def displacement_of(scanner: Scanner, window: Window, at: int, base: int) -> int:
    """Return the displacement of the frame at `window.data[at]`, or 0 if no undamaged frame that claims a position is there."""
    claim = claim_of(scanner.spec, window.data, at)
    by = 0 if claim is None else claim - base - at
    if not by:
        return 0
    kinds = scanner.frames(window, at, base + by, most=1).head["frame_kind"]
    return by if len(kinds) and kinds[0] == MAIN else 0


def displacement_text(field: str, by: int) -> str:
    """Return what a report says about the first of several frames that are displaced by `by` bytes."""
    if not by:
        return f"from here on {field} is right again"
    changed = "lost" if by > 0 else "inserted"
    return f"from here on {field} is {abs(by)} {'more' if by > 0 else 'less'} than the position: bytes before it were {changed}"
