"""Compare two frames field by field, as their codec explains them.

A batch with other records also has another length and checksum; fields that only follow from others come last.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.explain import SKIPPED, Focus, Node
from logwright.codec.frames.walk import Stretch, Walk, zero_filled
from logwright.codec.option import Options
from logwright.codec.window import Window
from logwright.readers.difference import row_of
from logwright.readers.explain import LONGEST, address, spell
from logwright.readers.source import Source
from logwright.readers.stream import named
from logwright.readers.task import Task, codec_options

_ITEMS = 2000
"""Number of list items of a frame that are compared one by one; of the rest, only the one with the first different byte."""
DERIVED = ("checksum", "length")
"""Roles of fields that are computed from others."""


@dataclass(frozen=True)
class Field:
    """A field of one file. `at` is its address (`readers.explain.address`); `first` the address of the first byte that differs."""

    at: str
    length: int
    value: Any
    meaning: str
    first: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "at": self.at,
            "length": self.length,
            "value": self.value,
            "meaning": self.meaning,
            "first": self.first,
        }


@dataclass(frozen=True)
class FieldDifference:
    """A field that differs; None on the side that does not have it."""

    path: str
    role: str
    a: Field | None
    b: Field | None

    @property
    def derived(self) -> bool:
        return self.role in DERIVED

    def to_dict(self) -> dict[str, Any]:
        return {
            "field": self.path,
            "role": self.role,
            "a": None if self.a is None else self.a.to_dict(),
            "b": None if self.b is None else self.b.to_dict(),
        }


@dataclass(frozen=True)
class _Space:
    """Bytes that hold nodes: `data` starts at byte `base`, and `around` are the addresses of the enclosing spaces."""

    data: bytes
    base: int = 0
    around: tuple[int, ...] = ()

    def of(self, node: Node) -> bytes:
        return self.data[node.start - self.base : node.end - self.base]

    def inside(self, node: Node) -> _Space:
        assert node.space is not None
        return _Space(node.space.data, 0, (*self.around, node.space.start))


@dataclass(frozen=True)
class Explained:
    """The bytes of a range and their explanation."""

    nodes: Sequence[Node]
    space: _Space


class Opened:
    """An open file. Its context has what a walk over the file finds out."""

    def __init__(
        self, source: Source, codec: Codec, name: str, options: Options, hints: Mapping[str, Any]
    ) -> None:
        self.source, self.codec, self._name, self._options, self._hints = source, codec, name, options, hints
        known = options.to_dict()
        self._limit = known.get("max.decompressed.bytes", 256 << 20)
        self.context: Any = None

    @classmethod
    def of(cls, task: Task) -> Opened:
        codec = registry.get(task.codec)
        name = task.path.rstrip("/").rpartition("/")[2]
        return cls(task.open(), codec, name, codec_options(codec, task.options), task.hints)

    def walk(self, start: int = 0) -> Walk:
        """Walk without verifying checksums, since damaged data is compared too."""
        self.context = self.codec.context(self._name, self._options, **self._hints)
        return Walk(self.source, self.codec, self.context, start=start, check=False)

    def frame(self, position: int) -> tuple[int, int] | None:
        """Return where the frame at a byte of the file starts and ends.

        None if there is no frame: the position of a row in a compressed file counts decompressed bytes.
        """
        with named(self.source):
            stretches = (
                step for step in self.walk(position) if isinstance(step, Stretch) and len(step.frames)
            )
            stretch = next(stretches, None)
        if stretch is None:
            return None
        start, stop = (
            stretch.window.offset + int(edge[0]) for edge in (stretch.frames.start, stretch.frames.end)
        )
        return start, stop

    def rows(self, position: int, table: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Iterate over the rows of that frame."""
        stretch = next(step for step in self.walk(position) if isinstance(step, Stretch) and len(step.frames))
        first = stretch.frames.pick(slice(0, 1))
        for decoded in self.codec.decode(stretch.window, first, table, columns, self.context):
            yield from (row_of(decoded.batch, at) for at in range(len(decoded.batch)))

    def explain(self, start: int, stop: int, focus: Focus, *, frame: bool) -> Explained:
        """Explain a range of bytes."""
        data = zero_filled(self.source, start, min(stop - start, LONGEST))[0]
        window = Window(data, start, self.source.size)
        nodes = self.codec.explain(window, self.context, focus, frame=frame)
        return Explained(nodes, _Space(data.tobytes(), start))

    def focus(self, at: tuple[int, ...] = (), row: int | None = None, items: int = _ITEMS) -> Focus:
        return Focus(at, row, items, self._limit)


@dataclass(frozen=True)
class Span:
    """A range of a file."""

    file: Opened
    start: int
    stop: int
    frame: bool = True


def fields(a: Span, b: Span) -> list[FieldDifference]:
    """Return the fields that differ, with computed fields last."""
    differing = _fields(a, b, a.file.focus(), b.file.focus())
    hidden = next((field for field in differing if field.role == SKIPPED and field.a and field.b), None)
    if (
        hidden is not None
        and hidden.a
        and hidden.b
        and all(field.derived or field.role == SKIPPED for field in differing)
    ):
        # The difference is among list items that were not compared one by one: compare those around the first different byte.
        differing = _fields(
            a, b, a.file.focus(address(hidden.a.first)), b.file.focus(address(hidden.b.first))
        )
    return sorted(differing, key=lambda field: field.derived)


def _fields(a: Span, b: Span, mine: Focus, other: Focus) -> list[FieldDifference]:
    left, right = (
        span.file.explain(span.start, span.stop, focus, frame=span.frame)
        for span, focus in ((a, mine), (b, other))
    )
    return list(_children(left.nodes, right.nodes, left.space, right.space, ""))


def row_fields(a: Span, row_a: int, b: Span, row_b: int) -> list[FieldDifference]:
    """As `fields`, for one row of each frame."""
    sides = [
        span.file.explain(span.start, span.stop, span.file.focus(row=row, items=8), frame=span.frame)
        for span, row in ((a, row_a), (b, row_b))
    ]
    places = [_row(side, row) for side, row in zip(sides, (row_a, row_b), strict=True)]
    if places[0] is None or places[1] is None:
        return fields(a, b)
    (path, node, space), (_, other, there) = places[0], places[1]
    return sorted(_compare(node, other, space, there, path), key=lambda span: span.derived)


def row_place(span: Span, row: int) -> str | None:
    """Return the address of a row of a frame."""
    side = span.file.explain(span.start, span.stop, span.file.focus(row=row, items=8), frame=span.frame)
    location = _row(side, row)
    return None if location is None else spell((*location[2].around, location[1].start))


# Trees


def _row(side: Explained, row: int) -> tuple[str, Node, _Space] | None:
    def search(node: Node, space: _Space, path: str) -> tuple[str, Node, _Space] | None:
        if node.row == row:
            return path, node, space
        for child in node.children:
            location = search(child, space, _path(path, child))
            if location is not None:
                return location
        for inner in node.space.nodes if node.space is not None else ():
            location = search(inner, space.inside(node), path)
            if location is not None:
                return location
        return None

    for top in side.nodes:
        location = search(top, side.space, "")
        if location is not None:
            return location
    return None


def _path(path: str, node: Node) -> str:
    if node.name == "data" or (node.kind == "struct" and node.name == node.type):
        return path  # the bytes after their length, or the content of a field
    if node.name.startswith("["):
        return f"{path}{node.name}"
    return f"{path}.{node.name}" if path else node.name


def _compare(a: Node, b: Node, mine: _Space, other: _Space, path: str) -> Iterator[FieldDifference]:
    if mine.of(a) == other.of(b):
        return
    if a.space is not None and b.space is not None:
        inside = list(
            _children(a.space.nodes, b.space.nodes, mine.inside(a), other.inside(b), path, packed=True)
        )
        # If nothing in it differs, it is only packed differently.
        yield from inside or [_leaf(path, a, b, mine, other)]
        return
    if a.children and b.children:
        yield from _children(a.children, b.children, mine, other, path, items=a.kind == b.kind == "list")
        return
    yield _leaf(path, a, b, mine, other)


def _children(
    a: Sequence[Node], b: Sequence[Node], mine: _Space, other: _Space, path: str, *, items: bool = False,
    packed: bool = False,
) -> Iterator[FieldDifference]:  # fmt: skip
    for left, right in _by_place(a, b, mine, other) if items else _by_name(a, b):
        node = left or right
        assert node is not None
        inner = path if packed and path.rpartition(".")[2] == node.name else _path(path, node)
        if left is not None and right is not None:
            yield from _compare(left, right, mine, other, inner)
        else:
            yield _leaf(inner, left, right, mine, other)


def _by_name(a: Sequence[Node], b: Sequence[Node]) -> Iterator[tuple[Node | None, Node | None]]:
    left = list(b)
    for node in a:
        same = next((other for other in left if other.name == node.name), None)
        if same is not None:
            left.remove(same)
        yield node, same
    yield from ((None, other) for other in left)


def _by_place(
    a: Sequence[Node], b: Sequence[Node], mine: _Space, other: _Space
) -> Iterator[tuple[Node | None, Node | None]]:
    """Match list items: equal items at the start and the end, then the longest common sequences."""
    few = min(len(a), len(b))
    head = 0
    while head < few and mine.of(a[head]) == other.of(b[head]):
        head += 1
    tail = 0
    while tail < few - head and mine.of(a[-1 - tail]) == other.of(b[-1 - tail]):
        tail += 1
    left, right = list(a[head : len(a) - tail]), list(b[head : len(b) - tail])
    words: list[list[bytes]] = [[mine.of(node) for node in left], [other.of(node) for node in right]]
    for opcode, i, i_end, j, j_end in difflib.SequenceMatcher(
        None, words[0], words[1], autojunk=False
    ).get_opcodes():
        for n in range(0 if opcode == "equal" else max(i_end - i, j_end - j)):
            yield left[i + n] if i + n < i_end else None, right[j + n] if j + n < j_end else None


def _leaf(path: str, a: Node | None, b: Node | None, mine: _Space, other: _Space) -> FieldDifference:
    node = a or b
    assert node is not None
    first = first_byte(mine.of(a), other.of(b)) if a is not None and b is not None else 0
    role = node.role or (SKIPPED if node.kind == SKIPPED else "")
    return FieldDifference(
        path or node.name,
        role,
        None if a is None else _field(a, mine, first),
        None if b is None else _field(b, other, first),
    )


def _field(node: Node, space: _Space, first: int) -> Field:
    value = node.value if node.kind not in ("struct", "list") else space.of(node)
    place = node.start + min(first, max(node.end - node.start - 1, 0))
    return Field(
        spell((*space.around, node.start)),
        node.end - node.start,
        value,
        node.meaning,
        spell((*space.around, place)),
    )


def first_byte(a: bytes, b: bytes) -> int:
    """Return the number of equal bytes at the start."""
    size = min(len(a), len(b))
    different = np.flatnonzero(np.frombuffer(a, np.uint8, size) != np.frombuffer(b, np.uint8, size))
    return int(different[0]) if len(different) else size
