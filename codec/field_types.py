"""The types of fields: integers, flags, bytes, lists and switches. See `codec.describe`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from logwright.codec import plural
from logwright.codec.expression import UNBOUNDED, Ahead, expression

Scope = dict[str, Any]
Buffer = bytes | bytearray | memoryview


class DescriptionError(ValueError):
    """Bytes or values do not match the description. `path` leads through the structure, `offset` is the byte."""

    def __init__(self, message: str, offset: int = 0, path: str = "") -> None:
        super().__init__(message)
        self.message, self.offset, self.path = message, offset, path

    def within(self, name: str) -> DescriptionError:
        return DescriptionError(self.message, self.offset, f"{name}/{self.path}".rstrip("/"))

    def __str__(self) -> str:
        return f"{self.path or 'value'}: {self.message} (at byte {self.offset})"


class Type:
    """The type of a field. `dtype` is the NumPy type if the width is fixed."""

    dtype: str | None = None
    min_size: int = 0
    max_size: int = UNBOUNDED

    def pack(self, value: Any, scope: Scope) -> bytes:
        raise NotImplementedError

    def unpack(self, buf: Buffer, at: int, end: int, scope: Scope) -> tuple[Any, int]:
        raise NotImplementedError

    def meaning(self, value: Any) -> str:
        return ""

    def label(self) -> str:
        """Return the name of the type on the docs page."""
        raise NotImplementedError


def time_of(milliseconds: int) -> str:
    """Format a time; "" for -1 (no time) and for dates that a calendar does not have."""
    try:
        when = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return ""
    return "" if milliseconds == -1 else f"{when:%Y-%m-%d %H:%M:%S}.{when.microsecond // 1000:03} UTC"


def need(at: int, end: int, size: int) -> None:
    """Raise `DescriptionError` unless `size` bytes are left."""
    if size < 0 or size > end - at:
        raise DescriptionError(f"expected {plural.count(size, 'byte')}, {end - at} left", at)


@dataclass(frozen=True)
class Int(Type):
    """An integer of 1, 2, 4 or 8 bytes. `values` names special values. `unit` "ms" is a time in milliseconds since 1970."""

    width: int
    signed: bool = True
    order: str = ">"
    values: Mapping[int, str] | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", f"{self.order}{'i' if self.signed else 'u'}{self.width}")
        object.__setattr__(self, "min_size", self.width)
        object.__setattr__(self, "max_size", self.width)

    @property
    def _byteorder(self) -> Literal["big", "little"]:
        return "big" if self.order == ">" else "little"

    def pack(self, value: Any, scope: Scope) -> bytes:
        try:
            return int(value).to_bytes(self.width, self._byteorder, signed=self.signed)
        except (OverflowError, TypeError, ValueError):
            raise DescriptionError(f"{value!r} does not fit {self.label()}") from None

    def unpack(self, buf: Buffer, at: int, end: int, scope: Scope) -> tuple[int, int]:
        stop = at + self.width
        need(at, end, self.width)
        return int.from_bytes(bytes(buf[at:stop]), self._byteorder, signed=self.signed), stop

    def meaning(self, value: Any) -> str:
        name = (self.values or {}).get(value, "")
        return name or (time_of(value) if self.unit == "ms" else "")

    def label(self) -> str:
        order = "" if self.width == 1 else (" BE" if self.order == ">" else " LE")
        return f"{'' if self.signed else 'u'}int{8 * self.width}{order}"


@dataclass(frozen=True)
class Bit:
    """Adjacent bits of an integer, counted from the lowest."""

    name: str
    low: int
    count: int = 1
    values: Mapping[int, str] | None = None
    doc: str = ""

    @property
    def mask(self) -> int:
        return ((1 << self.count) - 1) << self.low

    def of(self, integer: Any) -> Any:
        """Extract the bits from an int or an integer array."""
        return (integer >> self.low) & ((1 << self.count) - 1)


@dataclass(frozen=True)
class Flags(Type):
    """An integer with named bits. The value is the complete integer, so that unknown bits are preserved."""

    base: Int
    bits: tuple[Bit, ...]

    def __post_init__(self) -> None:
        for name in ("dtype", "min_size", "max_size"):
            object.__setattr__(self, name, getattr(self.base, name))

    def __getitem__(self, name: str) -> Bit:
        return next(bit for bit in self.bits if bit.name == name)

    def pack(self, value: Any, scope: Scope) -> bytes:
        return self.base.pack(value, scope)

    def unpack(self, buf: Buffer, at: int, end: int, scope: Scope) -> tuple[int, int]:
        return self.base.unpack(buf, at, end, scope)

    def meaning(self, value: Any) -> str:
        texts = []
        for bit in self.bits:
            part = bit.of(value)
            if bit.values is not None:
                texts.append(f"{bit.name}={bit.values.get(part, part)}")
            elif part:
                texts.append(bit.name if bit.count == 1 else f"{bit.name}={part}")
        rest = value & ~sum(bit.mask for bit in self.bits)
        return ", ".join([*texts, f"unknown bits {rest:#x}"] if rest else texts)

    def label(self) -> str:
        return self.base.label()


@dataclass(frozen=True)
class Varint(Type):
    """LEB128, low group first, with or without zig-zag, of 32 or 64 bits. Overlong forms are read; the shortest is written."""

    bits: int = 32
    zigzag: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "min_size", 1)
        object.__setattr__(self, "max_size", -(-self.bits // 7))

    def pack(self, value: Any, scope: Scope) -> bytes:
        number, top = int(value), 1 << self.bits
        if not (-top // 2 <= number < top // 2 if self.zigzag else 0 <= number < top):
            raise DescriptionError(f"{value!r} does not fit {self.label()}")
        left = (number << 1 ^ number >> self.bits - 1) & top - 1 if self.zigzag else number
        out = bytearray()
        while left > 0x7F:
            out.append(left & 0x7F | 0x80)
            left >>= 7
        out.append(left)
        return bytes(out)

    def unpack(self, buf: Buffer, at: int, end: int, scope: Scope) -> tuple[int, int]:
        number = 0
        for i in range(self.max_size):
            need(at + i, end, 1)
            byte = buf[at + i]
            number |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                number &= (1 << self.bits) - 1
                return (number >> 1 ^ -(number & 1) if self.zigzag else number), at + i + 1
        raise DescriptionError(f"{self.label()} longer than {self.max_size} bytes", at)

    def label(self) -> str:
        return ("" if self.zigzag else "u") + ("varint" if self.bits == 32 else "varlong")


@dataclass(frozen=True)
class Bytes(Type):
    """Bytes. `length` is the type of a length prefix, a fixed length (an int), an expression of earlier fields, or "rest".

    With `null`, any negative length means None, and None is written as `null`. With `strict`, only `null` means None.
    """

    length: Type | int | str = "rest"
    null: int | None = None
    text: bool = False
    strict: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.length, int):
            object.__setattr__(self, "min_size", self.length)
            object.__setattr__(self, "max_size", self.length)
            object.__setattr__(self, "dtype", f"V{self.length}")
        elif isinstance(self.length, Type):
            object.__setattr__(self, "min_size", self.length.min_size)

    def pack(self, value: Any, scope: Scope) -> bytes:
        if isinstance(self.length, Type):
            if value is None:
                if self.null is None:
                    raise DescriptionError("null is not allowed")
                return self.length.pack(self.null, scope)
            return self.length.pack(len(value), scope) + bytes(value)
        size = self._size(scope, None)
        if value is None or (size is not None and len(value) != size):
            raise DescriptionError(f"expected {self.length if size is None else size} bytes, got {value!r}")
        return bytes(value)

    def _size(self, scope: Scope, left: int | None) -> int | None:
        """Return the length of bytes without a length prefix."""
        if isinstance(self.length, str) and self.length != "rest":
            return int(expression(self.length).value(scope, Ahead(0, UNBOUNDED)))
        return self.length if isinstance(self.length, int) else left

    def unpack(self, buf: Buffer, at: int, end: int, scope: Scope) -> tuple[bytes | None, int]:
        start, size = at, end - at
        if isinstance(self.length, Type):
            size, at = self.length.unpack(buf, at, end, scope)
            if size < 0:
                if self.null is None:
                    raise DescriptionError(f"length {size}, but null is not allowed", start)
                if self.strict and size != self.null:
                    raise DescriptionError(f"length {size}, null is {self.null}", start)
                return None, at
        else:
            size = self._size(scope, size) or 0
        need(at, end, size)
        return bytes(buf[at : at + size]), at + size

    def meaning(self, value: Any) -> str:
        return value.decode("utf-8", "replace") if self.text and value is not None else ""

    def label(self) -> str:
        kind = "string" if self.text else "bytes"
        if isinstance(self.length, Type):
            null = "" if self.null is None else f", {self.null if self.strict else 'negative'} = null"
            return f"{kind}, length {self.length.label()}{null}"
        return f"{kind}, {self.length}" if isinstance(self.length, str) else f"{kind}[{self.length}]"


@dataclass(frozen=True)
class Until:
    """Terminator of a list without a stored length: the integer `at` bytes after the start of the next item equals `value`."""

    value: int
    kind: Int
    at: int = 0
    doc: str = ""

    @property
    def least(self) -> int:
        """The number of bytes that the test needs."""
        return self.at + self.kind.width

    def met(self, buf: Buffer, at: int, end: int) -> bool:
        return end - at >= self.least and self.kind.unpack(buf, at + self.at, end, {})[0] == self.value


@dataclass(frozen=True)
class Repeated(Type):
    """A list. `count` is the type of a count before the items, the name of an earlier field, or "rest".

    `every`: the size of the block that each item occupies and need not fill; the last block may be shorter. `least`: the number of bytes
    that must be left for another item. `null`: the count that means None; any other negative count means an empty list. `until`:
    terminator of a list with count "rest". `blank`: the bytes of an item that is not a row, where items are rows.
    """

    item: Type
    count: Type | str = "rest"
    every: int = 0
    least: int = 1
    null: int | None = None
    until: Until | None = None
    blank: bytes = b""

    def __post_init__(self) -> None:
        object.__setattr__(self, "min_size", self.count.min_size if isinstance(self.count, Type) else 0)

    def pack(self, value: Any, scope: Scope) -> bytes:
        if value is None:
            if self.null is None or not isinstance(self.count, Type):
                raise DescriptionError("null is not allowed")
            return self.count.pack(self.null, scope)
        head = self.count.pack(len(value), scope) if isinstance(self.count, Type) else b""
        if isinstance(self.count, str) and self.count != "rest" and scope[self.count] != len(value):
            raise DescriptionError(f"{self.count} is {scope[self.count]}, but there are {len(value)} items")
        return head + b"".join(self.item.pack(item, scope) for item in value)

    def unpack(self, buf: Buffer, at: int, end: int, scope: Scope) -> tuple[Any, int]:
        if self.null is not None and isinstance(self.count, Type):
            count, stop = self.count.unpack(buf, at, end, scope)
            if count < 0:
                return None if count == self.null else [], stop
        out: list[Any] = []
        for item, stop in self._items(buf, at, end, scope):
            out.append(item)
            at = stop
        if not out and isinstance(self.count, Type):
            at = self.count.unpack(buf, at, end, scope)[1]
        return out, at

    def _items(self, buf: Buffer, at: int, end: int, scope: Scope) -> Iterator[tuple[Any, int]]:
        count, at = self._count(buf, at, end, scope)
        done = 0
        while self.more(buf, at, end) if count is None else (done < count):
            stop = min(at + self.every, end) if self.every else end
            try:
                item, at = self.item.unpack(buf, at, stop, scope)
            except DescriptionError as error:
                raise error.within(f"[{done}]") from None
            at = stop if self.every else at
            yield item, at
            done += 1

    def more(self, buf: Buffer, at: int, end: int) -> bool:
        """Return whether a list with count "rest" has another item."""
        return end - at >= self.least and (self.until is None or not self.until.met(buf, at, end))

    def _count(self, buf: Buffer, at: int, end: int, scope: Scope) -> tuple[int | None, int]:
        if self.count == "rest":
            return None, at
        start = at
        if isinstance(self.count, Type):
            count, at = self.count.unpack(buf, at, end, scope)
        else:
            count = scope[self.count]
        if count < 0 or count * max(self.item.min_size, 1) > end - at:
            raise DescriptionError(f"count {count}, but {plural.count(end - at, 'byte')} left", start)
        return count, at

    def label(self) -> str:
        by = self.count.label() if isinstance(self.count, Type) else self.count
        null = "" if self.null is None else f", {self.null} = null"
        return f"repeated {self.item.label()}, count {by}{null}"


@dataclass(frozen=True)
class Switch(Type):
    """The type of the case whose key matches the value of the expression `on`.

    A key is a value, a tuple of values, or None for any other value. When writing, `left` is 0 if the value is None, else unlimited.
    """

    on: str
    cases: Mapping[Any, Type]

    def __post_init__(self) -> None:
        object.__setattr__(self, "min_size", min(case.min_size for case in self.types))
        object.__setattr__(self, "max_size", max(case.max_size for case in self.types))

    @property
    def types(self) -> tuple[Type, ...]:
        """The distinct types of the cases."""
        return tuple({id(case): case for case in self.cases.values()}.values())

    def keys(self, kind: Type) -> tuple[int, ...] | None:
        """Return the values that select this type; None for the default case."""
        keys = [key for key, case in self.cases.items() if case is kind]
        if None in keys:
            return None
        return tuple(value for key in keys for value in (key if isinstance(key, tuple) else (key,)))

    def of(self, buf: Buffer, at: int, end: int, scope: Scope) -> Type:
        """Return the type of the value at `at`."""
        return self._case(scope, Ahead(at, end, buf))

    def _case(self, scope: Scope, ahead: Ahead) -> Type:
        value = int(expression(self.on).value(scope, ahead))
        for key, case in self.cases.items():
            if value == key or (isinstance(key, tuple) and value in key):
                return case
        if None not in self.cases:
            raise DescriptionError(f"unknown {self.on} {value}", ahead.at)
        return self.cases[None]

    def pack(self, value: Any, scope: Scope) -> bytes:
        return self._case(scope, Ahead(0, 0 if value is None else UNBOUNDED)).pack(value, scope)

    def unpack(self, buf: Buffer, at: int, end: int, scope: Scope) -> tuple[Any, int]:
        return self.of(buf, at, end, scope).unpack(buf, at, end, scope)

    def label(self) -> str:
        return " or ".join(case.label() for case in self.types)


@dataclass(frozen=True)
class Nothing(Type):
    """An absent field of no bytes. Its value is None."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_size", 0)

    def pack(self, value: Any, scope: Scope) -> bytes:
        if value is not None:
            raise DescriptionError(f"the field is absent here, got {value!r}")
        return b""

    def unpack(self, buf: Buffer, at: int, end: int, scope: Scope) -> tuple[None, int]:
        return None, at

    def label(self) -> str:
        return "nothing"


@dataclass(frozen=True)
class Either(Type):
    """The first of two types, or the second if the first cannot be read (such as a shorter form, or nothing)."""

    first: Type
    second: Type

    def __post_init__(self) -> None:
        object.__setattr__(self, "min_size", min(self.first.min_size, self.second.min_size))

    def of(self, buf: Buffer, at: int, end: int, scope: Scope) -> Type:
        """Return the type of the value at `at`."""
        try:
            self.first.unpack(buf, at, end, scope)
        except DescriptionError:
            return self.second
        return self.first

    def pack(self, value: Any, scope: Scope) -> bytes:
        try:
            return self.first.pack(value, scope)
        except DescriptionError:
            return self.second.pack(value, scope)

    def unpack(self, buf: Buffer, at: int, end: int, scope: Scope) -> tuple[Any, int]:
        return self.of(buf, at, end, scope).unpack(buf, at, end, scope)

    def label(self) -> str:
        return f"{self.first.label()} or {self.second.label()}"


@dataclass(frozen=True)
class Enclosed(Type):
    """A value with a length prefix, which fills exactly that many bytes."""

    length: Int
    item: Type

    def __post_init__(self) -> None:
        object.__setattr__(self, "min_size", self.length.min_size)

    def pack(self, value: Any, scope: Scope) -> bytes:
        inner = self.item.pack(value, scope)
        return self.length.pack(len(inner), scope) + inner

    def room(self, buf: Buffer, at: int, end: int, scope: Scope) -> tuple[int, int]:
        """Return the start and end of the enclosed value."""
        size, start = self.length.unpack(buf, at, end, scope)
        need(start, end, size)
        return start, start + size

    def unpack(self, buf: Buffer, at: int, end: int, scope: Scope) -> tuple[Any, int]:
        start, stop = self.room(buf, at, end, scope)
        value, after = self.item.unpack(buf, start, stop, scope)
        if after != stop:
            raise DescriptionError(f"{stop - after} unused bytes after {self.item.label()}", after)
        return value, stop

    def label(self) -> str:
        return f"{self.item.label()}, length {self.length.label()}"


I8 = Int(1)
I16BE, I32BE, I64BE = Int(2), Int(4), Int(8)
U8, U16BE, U32BE = Int(1, signed=False), Int(2, signed=False), Int(4, signed=False)
I32LE, I64LE = Int(4, order="<"), Int(8, order="<")
U32LE, U64LE = Int(4, signed=False, order="<"), Int(8, signed=False, order="<")
VARINT, VARLONG = Varint(32), Varint(64)
UVARINT, UVARLONG = Varint(32, zigzag=False), Varint(64, zigzag=False)
