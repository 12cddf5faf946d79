"""The description language for binary structures.

A `Struct` declares fields in the order of their bytes. The declaration provides scalar `pack` and `unpack` (slow and simple: the
reference for the kernels), the NumPy dtype of the fixed-width part, the byte offsets that kernels use as constants, the smallest and
largest encoded size, the field tree of `explain` (`codec.explain`), and the format's page in the docs.

Values are plain Python: int, bytes, None, list, dict. Errors are `DescriptionError` with the path through the structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from logwright.codec import plural
from logwright.codec.expression import LEFT, UNBOUNDED, Ahead, expression
from logwright.codec.field_types import (
    I8,
    I16BE,
    I32BE,
    I32LE,
    I64BE,
    I64LE,
    U8,
    U16BE,
    U32BE,
    U32LE,
    U64LE,
    UVARINT,
    UVARLONG,
    VARINT,
    VARLONG,
    Bit,
    Buffer,
    Bytes,
    DescriptionError,
    Either,
    Enclosed,
    Flags,
    Int,
    Nothing,
    Repeated,
    Scope,
    Switch,
    Type,
    Until,
    Varint,
    need,
    time_of,
)

__all__ = [
    "I8", "I16BE", "I32BE", "I32LE", "I64BE", "I64LE", "U8", "U16BE", "U32BE", "U32LE", "U64LE",
    "UVARINT", "UVARLONG", "VARINT", "VARLONG", "Bit", "Buffer", "Bytes", "Content", "DescriptionError",
    "Either", "Enclosed", "Field", "Flags", "Int", "Nothing", "Points", "Repeated", "Scope", "Struct",
    "Switch", "Type", "Until", "Varint", "dtype_of", "structures", "time_of",
]  # fmt: skip


@dataclass(frozen=True)
class Content:
    """The inner structure of a bytes field: a value of type `kind`, stored plainly or packed (compressed).

    The conditions `when` it is stored plainly and when it is `packed` are expressions of the fields of the enclosing structure and of
    `outer`, the structure around that. `unpack(stored, scope, limit)` unpacks it to at most `limit` bytes, or raises `DescriptionError`.
    """

    kind: Type
    when: str | None = ""
    """"": always; None: never."""
    packed: str = ""
    unpack: Callable[[bytes, Scope, int], bytes] | None = None

    def plain(self, scope: Scope) -> bool:
        return self.when == "" or (self.when is not None and _holds(self.when, scope))

    def unpacked(self, stored: bytes, scope: Scope, limit: int) -> bytes | None:
        """Return the unpacked content; None if it is not packed."""
        if self.unpack is None or not _holds(self.packed, scope):
            return None
        return self.unpack(stored, scope, limit)


def _holds(condition: str, scope: Scope) -> bool:
    """Return whether a condition holds; False if the structure around is unknown."""
    try:
        return bool(expression(condition).value(scope, Ahead(0, UNBOUNDED)))
    except KeyError:
        return False


@dataclass(frozen=True)
class Points:
    """A pointer to a structure elsewhere in the file: its name `to`, position `at` and `size` are expressions of the fields around."""

    to: str
    at: str
    size: str


@dataclass(frozen=True)
class Field:
    """One field: name (upstream's, in Python spelling), type and one sentence.

    - `default` is written if there is no value.
    - `sizes`: the value is the number of bytes from here to the end of the structure.
    - `measures`: the value is the size of the structure, itself included.
    - `checksum`: (algorithm, first covered field). It covers the bytes up to the field `until`, or up to the end of the structure, or up to
      the checksum itself if that comes later.
    - `size`: the field's size, as an expression of `left` and of fields before and after it.

    `sizes`, `measures` and `checksum` are computed on writing if the value is None.

    For `explain`: `only` is the only valid value, `holds` the inner structure, `says(value, scope)` the meaning of the value (see `OUTER`),
    `points` the structure that it points to. `rows`: the items are the rows of the codec.
    """

    name: str
    type: Type
    doc: str = ""
    default: Any = None
    sizes: bool = False
    checksum: tuple[Callable[[bytes], int], str] | None = None
    until: str = ""
    measures: bool = False
    size: str = ""
    only: Any = None
    holds: Content | None = None
    says: Callable[[Any, Scope], str] | None = None
    points: Points | None = None
    rows: bool = False


class Struct(Type):
    """Fields in the order of their bytes."""

    def __init__(self, name: str, *fields: Field, doc: str = "", source: str = "") -> None:
        self.name, self.fields, self.doc, self.source = name, fields, doc, source
        self.min_size = sum(field.type.min_size for field in fields)
        self.max_size = min(UNBOUNDED, sum(field.type.max_size for field in fields))
        fixed: list[Field] = []
        for field in fields:
            if field.type.dtype is None:
                break
            fixed.append(field)
        self.head_dtype = np.dtype([(field.name, field.type.dtype) for field in fixed])
        """The fixed-width fields at the start, as a packed structured dtype."""
        self._offsets = {n: int(self.head_dtype.fields[n][1]) for n in self.head_dtype.names or ()}  # type: ignore[index]
        if len(fixed) == len(fields):
            self.dtype = self.head_dtype  # type: ignore[assignment]
        else:
            self._offsets[fields[len(fixed)].name] = self.head_dtype.itemsize

    def __getitem__(self, name: str) -> Field:
        return next(field for field in self.fields if field.name == name)

    def offset(self, name: str) -> int:
        """Return the offset of a field of the fixed part, or of the first field after it. Kernels use it as a constant."""
        return self._offsets[name]

    @property
    def head_size(self) -> int:
        """The size of the fixed-width fields at the start."""
        return int(self.head_dtype.itemsize)

    def label(self) -> str:
        return self.name

    # scalar: from values to bytes

    def pack(self, value: Mapping[str, Any], scope: Scope | None = None) -> bytes:
        unknown = set(value) - {field.name for field in self.fields}
        if unknown:
            raise DescriptionError(f"{self.name} has no field {sorted(unknown)[0]!r}")
        inner: Scope = dict(value)
        parts: dict[str, bytes] = {}
        pending: list[Field] = []
        for field in self.fields:
            content = value.get(field.name, field.default)
            inner[field.name] = content
            if content is None and (field.sizes or field.checksum or field.measures):
                pending.append(field)
                parts[field.name] = bytes(field.type.min_size)
                continue
            try:
                parts[field.name] = field.type.pack(content, inner)
            except DescriptionError as error:
                raise error.within(field.name) from None
        names = [field.name for field in self.fields]
        for field in reversed(pending):
            if field.sizes or field.measures:
                start = names.index(field.name) + 1 if field.sizes else 0
                parts[field.name] = field.type.pack(sum(len(parts[n]) for n in names[start:]), inner)
        for field in reversed(pending):
            if field.checksum:
                algorithm, first = field.checksum
                low, here = names.index(first), names.index(field.name)
                last = names.index(field.until) + 1 if field.until else None
                covered = b"".join(parts[n] for n in names[low : here if low < here else last])
                parts[field.name] = field.type.pack(algorithm(covered), inner)
        return b"".join(parts[n] for n in names)

    # scalar: from bytes to values

    def unpack(
        self, buf: Buffer, at: int = 0, end: int | None = None, scope: Scope | None = None
    ) -> tuple[dict[str, Any], int]:
        inner: Scope = {}
        stop = len(buf) if end is None else min(end, len(buf))
        for field in self.fields:
            try:
                inner[field.name], at = field.type.unpack(
                    buf, at, self.room(field, buf, at, stop, inner), inner
                )
                if field.sizes:
                    need(at, stop, inner[field.name])
                    stop = at + inner[field.name]
            except DescriptionError as error:
                raise error.within(field.name) from None
        if any(field.sizes for field in self.fields) and at != stop:
            raise DescriptionError(f"{plural.count(stop - at, 'unused byte')} at the end of {self.name}", at)
        return inner, at

    def behind(self, name: str) -> int:
        """Return the number of bytes from a field to the end of the structure. Raises `TypeError` if it varies."""
        later = self.fields[[field.name for field in self.fields].index(name) :]
        if any(field.type.min_size != field.type.max_size for field in later):
            raise TypeError(f"{self.name}: the distance of {name} from the end varies")
        return sum(field.type.min_size for field in later)

    def room(self, field: Field, buf: Buffer, at: int, end: int, scope: Scope) -> int:
        """Return the end of the bytes that a field at `at` may use. `scope` holds the fields before it."""
        if not field.size:
            return end
        known = dict(scope)
        for name in expression(field.size).names:
            if name != LEFT and name not in known:
                start = end - self.behind(name)
                if start < at:
                    raise DescriptionError(
                        f"{plural.count(at - start, 'byte')} too few for the following fields", at
                    )
                known[name] = self[name].type.unpack(buf, start, end, scope)[0]
        size = int(expression(field.size).value(known, Ahead(at, end, buf)))
        if size < 0:
            raise DescriptionError(f"{plural.count(-size, 'byte')} too few for the following fields", at)
        need(at, end, size)
        return at + size

    def places(self, buf: Buffer, at: int, end: int) -> dict[str, tuple[int, int, Any]]:
        """Return the start, end and value of each field."""
        places: dict[str, tuple[int, int, Any]] = {}
        scope: Scope = {}
        for field in self.fields:
            try:
                room = self.room(field, buf, at, end, scope)
                scope[field.name], stop = field.type.unpack(buf, at, room, scope)
                if field.sizes:
                    need(stop, end, scope[field.name])
                    end = stop + scope[field.name]
            except DescriptionError as error:
                raise error.within(field.name) from None
            places[field.name] = at, stop, scope[field.name]
            at = stop
        return places

    def check(self, buf: Buffer, at: int, end: int) -> list[tuple[str, int, int]]:
        """Return the wrong checksums of the structure in `buf[at:end]`: (field, stored, computed)."""
        places = self.places(buf, at, end)
        wrong = []
        for field in self.fields:
            if field.checksum:
                algorithm, first = field.checksum
                start, _, stored = places[field.name]
                low = places[first][0]
                high = places[field.until][1] if field.until else end
                computed = algorithm(bytes(buf[low : high if low > start else start]))
                if computed != stored:
                    wrong.append((field.name, stored, computed))
        return wrong


def dtype_of(struct: Struct) -> np.dtype[Any]:
    """Return the dtype of a structure of fixed-width fields."""
    if len(struct.head_dtype.names or ()) != len(struct.fields):
        raise TypeError(f"{struct.name} has fields of variable width")
    return struct.head_dtype


def structures(roots: Sequence[Struct]) -> Iterator[Struct]:
    """Yield these structures and all that they contain, each once, outermost first."""
    seen: set[int] = set()
    queue: list[Type] = list(roots)
    while queue:
        kind = queue.pop(0)
        if isinstance(kind, Struct):
            if id(kind) in seen:
                continue
            seen.add(id(kind))
            yield kind
            queue += [field.type for field in kind.fields]
            queue += [field.holds.kind for field in kind.fields if field.holds]
        elif isinstance(kind, Repeated | Enclosed):
            queue.append(kind.item)
        elif isinstance(kind, Either):
            queue += [kind.first, kind.second]
        elif isinstance(kind, Switch):
            queue += kind.types
