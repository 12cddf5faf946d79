"""Change one field of a frame, addressed by a path, to any value, valid or not. Optionally recompute lengths and checksums.

A path consists of the names that `explain` shows: `("records", 3, "headers", 0, "key")`. It may also end in a length prefix
(`("key", "length")`), the count of a list (`("headers", "count")`), an item (`("records", 3)`) or named bits
(`("attributes", "compression")`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from logwright.codec import plural
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
from logwright.codec.fault import UsageError, did_you_mean

Path = Sequence[str | int]
Change = Callable[[bytes, Type], bytes]
"""Takes the bytes of a field and its type, and returns new bytes of any length."""


@dataclass(frozen=True)
class _Bits(Type):
    """Named bits of an integer whose other bits are preserved."""

    flags: Flags
    bit: Bit
    integer: int

    def pack(self, value: Any, scope: Scope) -> bytes:
        if not 0 <= value < 1 << self.bit.count:
            raise DescriptionError(f"{value!r} does not fit {plural.count(self.bit.count, 'bit')}")
        size = 8 * self.flags.base.width
        integer = (self.integer & ~self.bit.mask | value << self.bit.low) % (1 << size)
        if self.flags.base.signed and integer >> size - 1:
            integer -= 1 << size
        return self.flags.pack(integer, scope)

    def unpack(self, buf: Any, at: int, end: int, scope: Scope) -> tuple[int, int]:
        value, stop = self.flags.unpack(buf, at, end, scope)
        return self.bit.of(value), stop

    def label(self) -> str:
        return f"{plural.count(self.bit.count, 'bit')} of {self.flags.label()}"


@dataclass(frozen=True)
class Within:
    """A structure around the target: the spans of its fields up to the target, and its end."""

    struct: Struct
    spans: dict[str, tuple[int, int]]
    end: int
    child: str


@dataclass
class Target:
    """The bytes `[start, stop)` of a frame that a path leads to, and their type."""

    start: int
    stop: int
    type: Type
    within: list[Within] = field(default_factory=list)
    """Outermost first."""
    lengths: list[tuple[Enclosed, int, int, int]] = field(default_factory=list)
    """For each enclosing value with a length prefix: start and end of the prefix, and end of the value."""


def find(struct: Struct, frame: bytes, path: Path) -> Target:
    """Resolve a path. Raises `UsageError` for an unknown name, and for bytes that cannot be parsed that far."""
    target = Target(0, len(frame), struct)
    try:
        _find(struct, frame, 0, len(frame), {}, list(path), target)
    except DescriptionError as error:
        raise UsageError(f"{spell(path)} cannot be found in this frame: {error}") from None
    return target


def edit(struct: Struct, frame: bytes, path: Path, change: Change, *, reseal: bool) -> bytes:
    """Change one field. `reseal` recomputes all lengths and checksums around it, but not the field itself.

    The empty path is the frame itself. Raises `UsageError` as `find` does, and for resealing a checksum itself.
    """
    if not path:
        changed = change(frame, struct)
        if not reseal:
            return changed
        plain = next(each for each in struct.fields if not (each.sizes or each.checksum or each.measures))
        return edit(struct, changed, (plain.name,), lambda old, kind: old, reseal=True)
    target = find(struct, frame, path)
    new = change(frame[target.start : target.stop], target.type)
    image = _Image(frame)
    image.splice(target.start, target.stop, new)
    if reseal:
        _reseal(target, image, path)
    return bytes(image.data)


def edit_frame(
    name: str, structures: Sequence[Struct], frame: bytes, path: Path, change: Change, *, reseal: bool
) -> bytes:
    """`edit` for a codec whose frames are its first structure."""
    if not structures:
        raise UsageError(
            f"{name} has no named fields, so {spell(path)} cannot be addressed",
            advice="Name bytes instead, with at= and length=",
        )
    return edit(structures[0], frame, path, change, reseal=reseal)


def names(roots: Sequence[Struct]) -> list[str]:
    """Return the names of all fields."""
    return list(dict.fromkeys(each.name for struct in structures(roots) for each in struct.fields))


def spell(path: Path) -> str:
    """Write a path as `explain` does: records[3].key."""
    out = ""
    for step in path:
        out += f"[{step}]" if isinstance(step, int) else f"{'.' if out else ''}{step}"
    return out or "the frame"


def _find(
    kind: Type, buf: bytes, at: int, end: int, scope: Scope, path: list[str | int], target: Target
) -> None:
    """Set `target`. `end` is the end of the enclosing structure, or of the value itself if it is a structure."""
    if isinstance(kind, Switch | Either):
        _find(kind.of(buf, at, end, scope), buf, at, end, scope, path, target)
    elif not path:
        target.start, target.stop, target.type = at, kind.unpack(buf, at, end, scope)[1], kind
    elif isinstance(kind, Struct):
        _find_field(kind, buf, at, end, path, target)
    elif isinstance(kind, Repeated):
        _find_item(kind, buf, at, end, scope, path, target)
    elif isinstance(kind, Flags):
        bit = next((each for each in kind.bits if each.name == path[0]), None)
        if bit is None or len(path) > 1:
            known = [each.name for each in kind.bits]
            raise UsageError(f"no bits named {path[0]!r}", advice=did_you_mean(str(path[0]), known))
        integer, stop = kind.unpack(buf, at, end, scope)
        target.start, target.stop, target.type = at, stop, _Bits(kind, bit, integer)
    elif isinstance(kind, Enclosed) and path != ["length"]:
        start, stop = kind.room(buf, at, end, scope)
        target.lengths.append((kind, at, start, stop))
        _find(kind.item, buf, start, stop, scope, path, target)
    elif isinstance(kind, Bytes | Enclosed) and isinstance(kind.length, Type) and path == ["length"]:
        _find(kind.length, buf, at, end, scope, [], target)
    else:
        raise UsageError(f"no part named {path[0]!r} in {kind.label()}")


def _find_field(struct: Struct, buf: bytes, at: int, end: int, path: list[str | int], target: Target) -> None:
    name = str(path[0])
    known = [each.name for each in struct.fields]
    if name not in known:
        holders = _holders(struct, name)
        if len(holders) != 1:
            raise UsageError(f"{struct.name} has no field {name!r}", advice=did_you_mean(name, known))
        _find_field(struct, buf, at, end, [*holders, *path], target)
        return
    around = Within(struct, {}, end, name)
    target.within.append(around)
    sealed = {part for each in struct.fields if each.checksum for part in (each.name, each.checksum[1])}
    sealed |= {each.name for each in struct.fields if each.sizes or each.measures}
    sealed |= {each.until for each in struct.fields if each.until}
    last = max(i for i, each in enumerate(struct.fields) if each.name == name or each.name in sealed)
    scope: Scope = {}
    for i, each in enumerate(struct.fields[: last + 1]):
        room = struct.room(each, buf, at, end, scope)
        if each.name == name:
            _find(each.type, buf, at, room, scope, path[1:], target)
            if i == last and name not in sealed:
                break
        try:
            scope[each.name], stop = each.type.unpack(buf, at, room, scope)
        except DescriptionError:
            if name in around.spans:
                return  # the fields after the target cannot be parsed, and are not needed
            raise
        around.spans[each.name] = at, stop
        at = stop


def _holders(struct: Struct, name: str) -> list[str]:
    """Return the fields that hold a structure with a field of this name. A path may omit the only one."""
    out = []
    for each in struct.fields:
        inner = each.type.item if isinstance(each.type, Enclosed) else each.type
        if isinstance(inner, Struct) and any(part.name == name for part in inner.fields):
            out.append(each.name)
    return out


def _find_item(
    kind: Repeated, buf: bytes, at: int, end: int, scope: Scope, path: list[str | int], target: Target
) -> None:
    if path == ["count"] and isinstance(kind.count, Type):
        _find(kind.count, buf, at, end, scope, [], target)
        return
    index = path[0]
    if not isinstance(index, int):
        raise UsageError(f"expected the number of an item, found {index!r}")
    items = list(_items(kind, buf, at, end, scope, None if index < 0 else index))
    if not -len(items) <= index < len(items):
        raise UsageError(f"no item {index}; the list has {plural.count(len(items), 'item')}")
    start, stop = items[index]
    if len(path) == 1:
        target.start, target.stop, target.type = start, stop, kind.item
    else:
        _find(kind.item, buf, start, stop, scope, path[1:], target)


def _items(
    kind: Repeated, buf: bytes, at: int, end: int, scope: Scope, last: int | None
) -> Iterator[tuple[int, int]]:
    """Yield start and end of the items up to number `last`."""
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
    """The edited frame, and the mapping from old to new positions."""

    def __init__(self, frame: bytes) -> None:
        self.data = bytearray(frame)
        self._moves: list[tuple[int, int, int]] = []

    def moved(self, at: int, *, end: bool = False) -> int:
        """Return the new position of byte `at` of the old frame, or of the `end` of a range that ended there."""
        return at + sum(by for start, stop, by in self._moves if stop <= at and (end or start < at))

    def splice(self, start: int, stop: int, new: bytes) -> None:
        """Replace `[start, stop)` of the old frame."""
        first, last = self.moved(start), self.moved(stop, end=True)
        self.data[first:last] = new
        self._moves.append((start, stop, len(new) - (last - first)))


def _reseal(target: Target, image: _Image, path: Path) -> None:
    for kind, start, stop, end in target.lengths:
        size = image.moved(end, end=True) - image.moved(stop, end=True)
        _put(image, start, stop, Field("length", kind.length), size, path)
    if isinstance(target.type, Bytes) and target.within:
        spans, length = target.within[-1].spans, target.type.length
        if isinstance(length, str) and length in spans:  # the name of another field
            size = image.moved(target.stop, end=True) - image.moved(target.start)
            _put(image, *spans[length], target.within[-1].struct[length], size, path)
    for around in reversed(target.within):
        spans, fields = around.spans, around.struct.fields
        for each in fields:
            if (each.sizes or each.measures) and each.name != around.child and each.name in spans:
                start, stop = spans[each.name]
                first = image.moved(stop, end=True) if each.sizes else image.moved(spans[fields[0].name][0])
                _put(image, start, stop, each, image.moved(around.end, end=True) - first, path)
        for each in fields:
            if each.checksum is None:
                continue
            algorithm, covers = each.checksum
            if each.name == around.child:
                raise UsageError(
                    f"{each.name} is a checksum, which reseal would restore", advice="Leave out reseal"
                )
            if {each.name, covers, each.until or covers} <= spans.keys():
                start, stop = spans[each.name]
                low = spans[covers][0]
                high = spans[each.until][1] if each.until else around.end
                covered = image.data[image.moved(low) : image.moved(high if low > start else start, end=True)]
                _put(image, start, stop, each, algorithm(bytes(covered)), path)


def _put(image: _Image, start: int, stop: int, field: Field, value: int, path: Path) -> None:
    try:
        image.splice(start, stop, field.type.pack(value, {}))
    except DescriptionError as error:
        raise UsageError(f"{spell(path)} cannot be resealed: {field.name}: {error.message}") from None
