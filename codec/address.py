"""Changing one field of a frame by its name, from the description alone: also to a wrong value, and with what follows from it.

A path is the names that `explain` shows, taken apart: `("records", 3, "headers", 0, "key")`, `("entries", 2, "producer_epoch")`.
Besides fields there are the length before some bytes (`key`, `length`), the count before repeated things (`headers`, `count`), a
whole item (`records`, 3) and named bits (`attributes`, `compression`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from logwright.codec.describe import (
    Bit,
    Bytes,
    DescriptionError,
    Either,
    Enclosed,
    Field,
    Flags,
    Repeated,
    Scope,
    Struct,
    Switch,
    Type,
    structures,
)
from logwright.codec.fault import UsageError

Path = Sequence[str | int]
Change = Callable[[bytes, Type], bytes]
"""From the bytes of a field, and what it holds, to other bytes, of any length."""


@dataclass(frozen=True)
class _Bits(Type):
    """Some bits of an integer, which keeps the others."""

    flags: Flags
    bit: Bit
    whole: int

    def pack(self, value: Any, scope: Scope) -> bytes:
        if not 0 <= value < 1 << self.bit.count:
            raise DescriptionError(f"{value!r} does not fit {self.bit.count} bit(s)")
        size = 8 * self.flags.base.width
        whole = (self.whole & ~self.bit.mask | value << self.bit.low) % (1 << size)
        if self.flags.base.signed and whole >> size - 1:
            whole -= 1 << size
        return self.flags.pack(whole, scope)

    def unpack(self, buf: Any, at: int, end: int, scope: Scope) -> tuple[int, int]:
        value, stop = self.flags.unpack(buf, at, end, scope)
        return self.bit.of(value), stop

    def label(self) -> str:
        return f"{self.bit.count} bit(s) of {self.flags.label()}"


@dataclass(frozen=True)
class Within:
    """A structure that encloses what was found: where each of its fields up to there lies, and where it ends."""

    struct: Struct
    spans: dict[str, tuple[int, int]]
    end: int
    child: str


@dataclass
class Found:
    """Bytes `[start, stop)` of a frame that a path names, and what they hold."""

    start: int
    stop: int
    type: Type
    within: list[Within] = field(default_factory=list)
    """Outermost first."""
    lengths: list[tuple[Enclosed, int, int, int]] = field(default_factory=list)
    """Of what encloses it with a length before it: where this starts and stops, and where what it counts ends."""


def find(struct: Struct, frame: bytes, path: Path) -> Found:
    """Where a path leads. Raises `UsageError` for a name that there is not, or bytes that can't be understood so far."""
    found = Found(0, len(frame), struct)
    try:
        _find(struct, frame, 0, len(frame), {}, list(path), found)
    except DescriptionError as error:
        raise UsageError(f"{spell(path)} can't be found in this frame: {error}") from None
    return found


def edit(struct: Struct, frame: bytes, path: Path, change: Change, *, reseal: bool) -> bytes:
    """The frame with one field changed; with `reseal` all lengths and checksums around it are right again, itself left alone.

    The empty path is the frame itself. Raises `UsageError` as `find` does, and for a checksum that is to be resealed itself.
    """
    if not path:
        whole = change(frame, struct)
        return _sealed(struct, whole) if reseal else whole
    found = find(struct, frame, path)
    new = change(frame[found.start : found.stop], found.type)
    image = _Image(frame)
    image.splice(found.start, found.stop, new)
    if reseal:
        _reseal(found, image, path)
    return bytes(image.data)


def _sealed(struct: Struct, frame: bytes) -> bytes:
    """The same with the lengths and checksums of the outermost structure made right."""
    plain = next(one for one in struct.fields if not (one.sizes or one.checksum or one.measures))
    return edit(struct, frame, (plain.name,), lambda old, kind: old, reseal=True)


def edit_frame(
    name: str, of: Sequence[Struct], frame: bytes, path: Path, change: Change, *, reseal: bool
) -> bytes:
    """`edit` for a codec whose frames are its first structure. Raises `UsageError` where there is none."""
    if not of:
        raise UsageError(
            f"{name} is no structure of fields: {spell(path)} can't be told",
            advice="Name bytes instead, with at= and length=",
        )
    return edit(of[0], frame, path, change, reseal=reseal)


def names(of: Sequence[Struct]) -> list[str]:
    """The names of all fields, for whoever has to choose one."""
    return list(dict.fromkeys(one.name for struct in structures(of) for one in struct.fields))


def spell(path: Path) -> str:
    """As `explain` writes it: records[3].key."""
    out = ""
    for step in path:
        out += f"[{step}]" if isinstance(step, int) else f"{'.' if out else ''}{step}"
    return out or "the frame"


def nearest(name: str, known: Sequence[str]) -> str:
    """What may have been meant."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}"


def _find(
    kind: Type, buf: bytes, at: int, end: int, scope: Scope, path: list[str | int], found: Found
) -> None:
    """Sets `found`. `end` is the end of the structure around, or of what is looked at itself where that is a structure."""
    if isinstance(kind, Switch | Either):
        _find(kind.of(buf, at, end, scope), buf, at, end, scope, path, found)
    elif not path:
        found.start, found.stop, found.type = at, kind.unpack(buf, at, end, scope)[1], kind
    elif isinstance(kind, Struct):
        _find_field(kind, buf, at, end, path, found)
    elif isinstance(kind, Repeated):
        _find_item(kind, buf, at, end, scope, path, found)
    elif isinstance(kind, Flags):
        bit = next((one for one in kind.bits if one.name == path[0]), None)
        if bit is None or len(path) > 1:
            known = [one.name for one in kind.bits]
            raise UsageError(f"there is no {path[0]!r} among these bits", advice=nearest(str(path[0]), known))
        whole, stop = kind.unpack(buf, at, end, scope)
        found.start, found.stop, found.type = at, stop, _Bits(kind, bit, whole)
    elif isinstance(kind, Enclosed) and path != ["length"]:
        start, stop = kind.room(buf, at, end, scope)
        found.lengths.append((kind, at, start, stop))
        _find(kind.item, buf, start, stop, scope, path, found)
    elif isinstance(kind, Bytes | Enclosed) and isinstance(kind.length, Type) and path == ["length"]:
        _find(kind.length, buf, at, end, scope, [], found)
    else:
        raise UsageError(f"there is nothing called {path[0]!r} in {kind.label()}")


def _find_field(struct: Struct, buf: bytes, at: int, end: int, path: list[str | int], found: Found) -> None:
    name = str(path[0])
    known = [one.name for one in struct.fields]
    if name not in known:
        around_it = _around(struct, name)
        if len(around_it) != 1:
            raise UsageError(f"{struct.name} has no field {name!r}", advice=nearest(name, known))
        _find_field(struct, buf, at, end, [*around_it, *path], found)
        return
    around = Within(struct, {}, end, name)
    found.within.append(around)
    sums = {each for one in struct.fields if one.checksum for each in (one.name, one.checksum[1])}
    sums |= {one.name for one in struct.fields if one.sizes or one.measures}
    sums |= {one.until for one in struct.fields if one.until}
    last = max(i for i, one in enumerate(struct.fields) if one.name == name or one.name in sums)
    scope: Scope = {}
    for i, one in enumerate(struct.fields[: last + 1]):
        room = struct.room(one, buf, at, end, scope)
        if one.name == name:
            _find(one.type, buf, at, room, scope, path[1:], found)
            if i == last and name not in sums:
                break
        try:
            scope[one.name], stop = one.type.unpack(buf, at, room, scope)
        except DescriptionError:
            if name in around.spans:
                return  # what follows can't be read, and is not asked for
            raise
        around.spans[one.name] = at, stop
        at = stop


def _around(struct: Struct, name: str) -> list[str]:
    """The fields that hold a structure with a field of this name: where there is one only, it need not be said."""
    out = []
    for one in struct.fields:
        inner = one.type.item if isinstance(one.type, Enclosed) else one.type
        if isinstance(inner, Struct) and any(field.name == name for field in inner.fields):
            out.append(one.name)
    return out


def _find_item(
    kind: Repeated, buf: bytes, at: int, end: int, scope: Scope, path: list[str | int], found: Found
) -> None:
    if path == ["count"] and isinstance(kind.count, Type):
        _find(kind.count, buf, at, end, scope, [], found)
        return
    index = path[0]
    if not isinstance(index, int):
        raise UsageError(f"say which of them: {index!r} is no number")
    starts = list(_items(kind, buf, at, end, scope, None if index < 0 else index))
    if not -len(starts) <= index < len(starts):
        raise UsageError(f"there is no number {index}, there are {len(starts)}")
    start, stop = starts[index]
    if len(path) == 1:
        found.start, found.stop, found.type = start, stop, kind.item
    else:
        _find(kind.item, buf, start, stop, scope, path[1:], found)


def _items(
    kind: Repeated, buf: bytes, at: int, end: int, scope: Scope, last: int | None
) -> Iterator[tuple[int, int]]:
    """Where the items lie, up to number `last`."""
    count: int | None = None
    if isinstance(kind.count, Type):
        count, at = kind.count.unpack(buf, at, end, scope)
    elif kind.count != "rest":
        count = scope[kind.count]
    done = 0
    while at < end and (count is None or done < count) and (last is None or done <= last):
        _, stop = kind.item.unpack(buf, at, end, scope)
        yield at, stop
        at, done = stop, done + 1


class _Image:
    """The frame as it becomes, and where what was somewhere is now."""

    def __init__(self, frame: bytes) -> None:
        self.data = bytearray(frame)
        self._moves: list[tuple[int, int, int]] = []

    def place(self, at: int, *, end: bool = False) -> int:
        """Where byte `at` of the frame as it was is now; of an `end`, what ended there ends now."""
        return at + sum(by for start, stop, by in self._moves if stop <= at and (end or start < at))

    def splice(self, start: int, stop: int, new: bytes) -> None:
        """Put other bytes in the place of `[start, stop)` of the frame as it was."""
        first, last = self.place(start), self.place(stop, end=True)
        self.data[first:last] = new
        self._moves.append((start, stop, len(new) - (last - first)))


def _reseal(found: Found, image: _Image, path: Path) -> None:
    for kind, start, stop, end in found.lengths:
        size = image.place(end, end=True) - image.place(stop, end=True)
        _put(image, start, stop, Field("length", kind.length), size, path)
    for around in reversed(found.within):
        for one in around.struct.fields:
            if one.sizes and one.name != around.child and one.name in around.spans:
                start, stop = around.spans[one.name]
                size = image.place(around.end, end=True) - image.place(stop, end=True)
                _put(image, start, stop, one, size, path)
            if one.measures and one.name != around.child and one.name in around.spans:
                start, stop = around.spans[one.name]
                size = image.place(around.end, end=True) - image.place(
                    around.spans[around.struct.fields[0].name][0]
                )
                _put(image, start, stop, one, size, path)
        for one in around.struct.fields:
            if one.checksum is None:
                continue
            algorithm, first = one.checksum
            if one.name == around.child:
                raise UsageError(
                    f"{one.name} is the checksum: to reseal makes it right again", advice="Leave reseal away"
                )
            if one.name in around.spans and first in around.spans:
                start, stop = around.spans[one.name]
                low, high = around.spans[first][0], around.end
                if one.until and one.until not in around.spans:
                    continue  # where the checksum ends can't be told
                if one.until:
                    high = around.spans[one.until][1]
                high = high if low > start else start
                covered = image.data[image.place(low) : image.place(high, end=True)]
                _put(image, start, stop, one, algorithm(bytes(covered)), path)


def _put(image: _Image, start: int, stop: int, one: Field, value: int, path: Path) -> None:
    try:
        image.splice(start, stop, one.type.pack(value, {}))
    except DescriptionError as error:
        raise UsageError(f"{spell(path)} can't be resealed: {one.name}: {error.message}") from None
