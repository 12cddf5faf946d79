"""Find the bytes that a user asks about, by position, row or fault, and let their codec explain them.

A file is divided into pieces: frames, damaged regions, and everything else (a footer, preallocated zeros). The selected pieces are read
again and explained.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logwright.codec import plural, registry
from logwright.codec.arrays import Bytes
from logwright.codec.base import Codec
from logwright.codec.explain import UNEXPLAINED, Explainer, Focus, Node
from logwright.codec.fault import (
    Fault,
    NotFoundError,
    Severity,
    UnsupportedError,
    UsageError,
)
from logwright.codec.fixed import end_without_zeros
from logwright.codec.frames.walk import Hole, Stretch, Walk, zero_filled
from logwright.codec.option import Verb, parse_int
from logwright.codec.store.listing import Role
from logwright.codec.store.view import Part
from logwright.codec.window import Frames, Window
from logwright.readers.fault_groups import numbered
from logwright.readers.filter import Filter, understand
from logwright.readers.report import Report
from logwright.readers.source import Source
from logwright.readers.stream import named
from logwright.readers.target import DirectoryTarget, FileTarget, Target
from logwright.readers.task import codec_options
from logwright.readers.verify import VerifyOptions, verify

LONGEST = 64 << 20
"""Limit of bytes explained of one piece."""
_ZEROS = 1 << 20
"""Limit of the zeros explained at the end of bytes that are no frame, such as those of a preallocated file."""
MOST_NODES = 250_000
"""Without a given position, pieces are added up to this number of nodes,"""
MOST_BYTES = 8 << 20
"""or up to this number of bytes."""
_MOST_ROWS = 16
"""Default number of matching rows to show."""
_NUMBER = r"(?:0x[0-9a-f]+|[0-9][0-9_]*[kmgib]*)"
_ADDRESS = re.compile(rf"(?:@{_NUMBER})*\+?{_NUMBER}", re.IGNORECASE)


@dataclass(frozen=True)
class ExplainOptions:
    """A request: a byte (`address`), rows (`where`, a filter), a fault by its number from 1 in the report of `verify`, or nothing for the
    start of the file. `limit`: maximum number of pieces or rows. `items`: maximum number of list items."""

    at: int | str | None = None
    where: Any = None
    fault: int | None = None
    limit: int | None = None
    items: int = 1000


@dataclass
class Piece:
    """Bytes `[start, stop)` of a file: a frame, other bytes, or a region with a `fault`, such as damage or preallocated zeros."""

    start: int
    stop: int
    frame: bool = False
    fault: Fault | None = None
    row: int | None = None
    """The requested row, counted within the piece."""
    data: bytes = b""
    """Its bytes, as far as they are explained."""
    nodes: Sequence[Node] = ()
    findings: tuple[Fault, ...] = ()
    """Further faults of the piece."""
    unread: str = ""
    """Why its codec cannot read it, if its version is not supported."""

    @property
    def damaged(self) -> bool:
        return self.fault is not None and self.fault.severity is not Severity.INFO

    def count(self) -> int:
        """Return the number of nodes, including those of inner spaces."""
        return sum(_count(node) for node in self.nodes)


def _count(node: Node) -> int:
    inner = node.space.nodes if node.space is not None else ()
    return 1 + sum(map(_count, node.children)) + sum(map(_count, inner))


@dataclass
class Explained:
    """The explained pieces of a file."""

    path: str
    codec: Codec
    size: int
    pieces: list[Piece]
    focus: tuple[int, ...] = ()
    """The requested byte, as `Focus.at`."""
    notes: list[str] = field(default_factory=list)


# Addresses


def address(text: int | str) -> tuple[int, ...]:
    """Parse a position: a byte of the file, or `@73400381+31` for byte 31 of the data unpacked at 73400381; `@73400381@120+4` is one level
    deeper. Raises `UsageError`."""
    if isinstance(text, int):
        return _positive((text,), text)
    word = str(text).strip()
    if not _ADDRESS.fullmatch(word) or ("@" in word) != ("+" in word):
        raise UsageError(
            f"invalid position {text!r}",
            advice="Pass a byte (73400320, 0x4600000), or @73400381+31 for a byte of the data unpacked there",
        )
    return _positive(
        tuple(parse_int(number.replace("_", "")) for number in re.split(r"[@+]", word) if number), text
    )


def _positive(places: tuple[int, ...], text: object) -> tuple[int, ...]:
    if places[0] < 0:
        raise UsageError(f"invalid position {text!r}: it is negative")
    return places


def _there(nodes: Sequence[Node], place: tuple[int, ...], path: str | None) -> None:
    """Raise `UsageError` if no data is packed at a position, or too few bytes."""
    around, within = place[0], place[1]
    here = [
        candidate
        for node in nodes
        for candidate in node.walk()
        if candidate.start == around and candidate.end > around
    ]
    spaces = [candidate.space for candidate in here if candidate.space is not None]
    damaged = any(
        candidate.problem or candidate.broken or candidate.kind == UNEXPLAINED for candidate in here
    )
    if not spaces and not (damaged and len(place) == 2):
        raise UsageError(f"no packed data at byte {around}", path=path)
    if len(place) > 2:
        _there(spaces[0].nodes, place[1:], path)
    elif spaces and within >= len(spaces[0].data):
        raise UsageError(
            f"no byte {within} in the data unpacked at {around}: it has {plural.count(len(spaces[0].data), 'byte')}",
            path=path,
        )


def spell(places: Sequence[int]) -> str:
    """Format a position; the inverse of `address`."""
    return "".join(f"@{place}" for place in places[:-1]) + ("+" if len(places) > 1 else "") + str(places[-1])


# Requests


def explain(target: Target, options: ExplainOptions, report: Report) -> Explained:
    """Explain what is requested of a file or directory. Raises `UsageError`, and `NotFoundError` for a missing row or fault."""
    asked = [name for name in ("at", "where", "fault") if getattr(options, name) is not None]
    if len(asked) > 1:
        raise UsageError(f"{asked[0]} and {asked[1]} cannot be combined", advice="Pass one of them")
    if options.fault is not None:
        return _of_fault(target, options, report)
    if isinstance(target, DirectoryTarget):
        return _of_directory(target, options)
    with _Opened.of(target) as file:
        if options.where is not None:
            result = file.rows(options)
            if result is None:
                raise NotFoundError(f"no row with {_words(options.where)}", path=target.path)
            return result
        return file.at(address(options.at), options) if options.at is not None else file.first(options)


def _of_directory(target: DirectoryTarget, options: ExplainOptions) -> Explained:
    if options.at is not None:
        names = [file.name for file in target.plan.files if file.role is Role.PRIMARY][:3]
        raise UsageError(
            "a byte position needs a file, but this is a directory",
            path=target.path,
            advice=f"Pass one of its files ({', '.join(names)}), or use where or fault (--where, --fault)",
        )
    files = _files(target, options)
    if options.where is not None:
        files = [entry for entry in files if _understands(registry.get(entry[1]), options.where)]
    for i, (name, codec) in enumerate(files):
        with _Opened.inside(target, name, codec) as file:
            result = file.first(options) if options.where is None else file.rows(options)
        if result is not None:
            if options.where is None and len(files) > 1:
                result.notes.append(
                    f"one of {len(files)} files of {target.path}; pass another one to explain it"
                )
            elif i + 1 < len(files) and options.where is not None:
                result.notes.append(f"found in {name}; later files were not searched")
            return result
    missing = "no primary file" if options.where is None else f"no row with {_words(options.where)}"
    raise NotFoundError(missing, path=target.path)


def _files(target: DirectoryTarget, options: ExplainOptions) -> list[tuple[str, str]]:
    """Return the files to search: those of the default view (or of the first view with the requested columns) that may hold the row, in the
    order of the view, then the other primary files."""
    layout, plan = target.layout, target.plan
    view = layout.views[layout.default_view]
    if options.where is not None and not _understands(registry.get(view.codec), options.where):
        # The column may belong to another view: a zxid is not a column of nodes.
        others = (
            item for item in layout.views.values() if _understands(registry.get(item.codec), options.where)
        )
        view = next(others, view)
    filter = _filter(options.where, registry.get(view.codec)) if options.where is not None else None
    parts: list[Part] = []
    for item in layout.parts(target.directory, plan, view.name, target.layout_options):
        # Of combined files the first one with the row is the one that counts.
        parts += [item] if isinstance(item, Part) else [part for run in item.runs for part in run.parts]
    chosen = [(part.file, part.codec) for part in parts if filter is None or not filter.skips(part.bounds)]
    skipped = {part.file for part in parts}
    chosen += [
        (file.name, file.codec)
        for file in plan.files
        if file.role is Role.PRIMARY and file.codec is not None and file.name not in skipped
    ]
    sizes = {entry.name: entry.size for entry in target.directory.entries()}
    chosen = list(dict.fromkeys(chosen))
    return [item for item in chosen if sizes.get(item[0])] or chosen


def _of_fault(target: Target, options: ExplainOptions, report: Report) -> Explained:
    verify([target], report, VerifyOptions(advise=False))
    faults = numbered(report.faults)
    number = int(options.fault or 0)
    listed = f"`logwright verify {shlex.quote(target.path)}{report.flags.get(Verb.VERIFY, '')}` lists them"
    if not 1 <= number <= len(faults):
        hint = f"there are {len(faults)}, numbered from 1" if faults else "there are no faults"
        other = "Use at or where to explain undamaged bytes (--at, --where)"
        raise NotFoundError(
            f"no fault {number}: {hint}", path=target.path, advice=listed if faults else other
        )
    path, fault = faults[number - 1]
    if isinstance(target, DirectoryTarget):
        # A fault of the directory itself has no bytes.
        files = {file.name: file for file in target.plan.files}
        name = path if path in files else path.rpartition("/")[2]
        codec = files[name].codec if name in files else None
        if codec is None:
            raise NotFoundError(
                f"fault {number} is not in a file that can be explained: {fault.detail}",
                path=target.path,
                advice=listed,
            )
        opened = _Opened.inside(target, name, codec)
    else:
        opened = _Opened.of(target)
    with opened as file:
        result = file.around(fault, options)
    result.notes.append(f"fault {number} of {len(faults)}: {fault.sentence}")
    return result


def _understands(codec: Codec, where: Any) -> bool:
    try:
        _filter(where, codec)
    except UsageError:
        return False
    return True


def _words(where: Any) -> str:
    if isinstance(where, Mapping):
        return ", ".join(f"{name}={value}" for name, value in where.items())
    return str(where)


def _filter(where: Any, codec: Codec) -> Filter:
    terms = [(name, "==", value) for name, value in where.items()] if isinstance(where, Mapping) else where
    parsed = understand(terms, codec.tables["rows"])
    if parsed is None:
        raise UsageError("where is empty", advice="Pass for example offset=4183220 or key=user-7")
    return parsed


# One file


class _Opened:
    """An open file with its codec."""

    def __init__(
        self, source: Source, codec: Codec, name: str, options: Mapping[str, Any], hints: Mapping[str, Any], *, own: bool
    ) -> None:  # fmt: skip
        self.source, self.codec, self.name, self._own = source, codec, name, own
        self._options, self._hints = codec_options(codec, options), hints
        limit = "max.decompressed.bytes"
        self._limit = self._options[limit] if limit in self._options.to_dict() else 256 << 20
        self._context: Any = None

    @classmethod
    def of(cls, target: FileTarget) -> _Opened:
        own = target.source is None
        return cls(target.open(), target.codec, target.name, target.options, target.hints, own=own)

    @classmethod
    def inside(cls, target: DirectoryTarget, name: str, codec: str) -> _Opened:
        hints = target.hints(target.plan[name].hints)
        return cls(target.directory.open(name), registry.get(codec), name, target.options, hints, own=True)

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        if self._own:
            self.source.close()

    def _walk(self) -> Walk:
        self._context = self.codec.context(self.name, self._options, **self._hints)
        return Walk(self.source, self.codec, self._context)

    # Pieces

    def _pieces(self, after: int = 0) -> Iterator[tuple[Stretch | None, list[Piece]]]:
        """Iterate over the pieces of the file, one scan at a time. Pieces that end at byte `after` or before are left out."""
        at = 0
        findings: list[Fault] = []
        with named(self.source):
            walk = self._walk()
            scans = iter(walk)
            while True:
                pieces: list[Piece] = []
                try:
                    step = next(scans, None)
                except UnsupportedError as error:
                    yield None, [Piece(at, self.source.size, unread=error.message)]
                    return
                if step is None:
                    break
                if isinstance(step, Hole):
                    pieces = [
                        Piece(step.fault.offset, step.fault.offset + step.fault.length, fault=step.fault)
                    ]
                elif len(step.frames) and step.window.offset + int(step.frames.end[-1]) <= after:
                    at = step.window.offset + int(step.frames.end[-1])
                else:
                    base = step.window.offset
                    starts, stops = (step.frames.start + base).tolist(), (step.frames.end + base).tolist()
                    pieces = [Piece(a, b, frame=True) for a, b in zip(starts, stops, strict=True)]
                    findings += step.faults
                if pieces and pieces[0].start > at:
                    pieces.insert(0, Piece(at, pieces[0].start))
                at = pieces[-1].stop if pieces else at
                findings = _note(pieces, findings)
                yield step if isinstance(step, Stretch) else None, pieces
            if at < walk.size:
                pieces = [Piece(at, walk.size)]
                _note(pieces, findings)
                yield None, pieces

    def _finished(
        self, pieces: list[Piece], options: ExplainOptions, focus: tuple[int, ...] = ()
    ) -> Explained:
        """Explain pieces. If no position is given, stop after `MOST_NODES` or `MOST_BYTES`."""
        result = Explained(self.source.path, self.codec, self.source.size, pieces, focus)
        nodes = size = 0
        for i, piece in enumerate(pieces):
            result.notes += self._explain(piece, options, focus)
            nodes += piece.count()
            size += len(piece.data)
            if (nodes > MOST_NODES or size > MOST_BYTES) and i + 1 < len(pieces):
                del pieces[i + 1 :]
                break
        return result

    def _explain(self, piece: Piece, options: ExplainOptions, at: tuple[int, ...]) -> list[str]:
        """Fill in the bytes and nodes of a piece. Return notes about them."""
        stop, rest = piece.stop, ""
        if not piece.frame:
            content = end_without_zeros(self._read, piece.start, stop)
            if content + _ZEROS < stop:
                stop, rest = content + _ZEROS, "; the rest are zeros"
        data, unreadable = zero_filled(self.source, piece.start, min(stop - piece.start, LONGEST))
        piece.data = data.tobytes()
        window = Window(data, piece.start, self.source.size)
        focus = Focus(at, piece.row, options.items, self._limit)
        if piece.unread:
            piece.nodes = Explainer(piece.data, piece.start, focus).rest(0, len(data), piece.unread)
        else:
            piece.nodes = self.codec.explain(window, self._context, focus, frame=piece.frame)
        if piece.frame and not unreadable:
            piece.findings += tuple(self._decoded(window))
        notes = [f"{region.detail}: shown as zeros" for region in unreadable]
        length = piece.stop - piece.start
        if len(data) < length:
            rest = rest if len(data) == stop - piece.start else ""
            notes.append(f"showing only {len(data)} of {plural.count(length, 'byte')} at {piece.start}{rest}")
        return notes

    def _read(self, at: int, size: int) -> Bytes:
        return zero_filled(self.source, at, size)[0]

    def _decoded(self, window: Window) -> Iterator[Fault]:
        """Iterate over the faults found by decoding the frame."""
        context = copy.copy(self._context)
        frames = self.codec.scan(Window(window.data, window.offset, window.size), 0, context, check=False)
        if not len(frames):
            return
        for decoded in self.codec.decode(window, frames, "rows", (), copy.copy(context)):
            for _, fault in decoded.faults:
                yield fault

    # Requests

    def first(self, options: ExplainOptions) -> Explained:
        """Explain the first pieces."""
        pieces: list[Piece] = []
        full = False
        for _, batch in self._pieces():
            pieces += batch
            full = options.limit is not None and len(pieces) > options.limit
            if full or len(pieces) > MOST_NODES or (pieces and pieces[-1].stop > 2 * MOST_BYTES):
                break
        result = self._finished(pieces[: options.limit], options)
        stop = result.pieces[-1].stop if result.pieces else self.source.size
        if stop < self.source.size:
            result.notes.append(
                f"{plural.count(self.source.size - stop, 'more byte')} from {stop} on; to show them, "
                f"pass at={stop} (--at {stop}) or a larger limit (--limit)"
            )
        return result

    def at(self, place: tuple[int, ...], options: ExplainOptions) -> Explained:
        """Explain the piece that holds a byte, or with `limit` that many from there."""
        if place[0] >= self.source.size:
            raise UsageError(
                f"no byte {place[0]}: the file has {plural.count(self.source.size, 'byte')}",
                path=self.source.path,
            )
        chosen: list[Piece] = []
        for _, batch in self._pieces(place[0]):
            chosen += [piece for piece in batch if piece.stop > place[0]]
            if len(chosen) >= (options.limit or 1):
                break
        result = self._finished(chosen[: options.limit or 1], options, place)
        if len(place) > 1 and result.pieces:
            _there(result.pieces[0].nodes, place, self.source.path)
        return result

    def around(self, fault: Fault, options: ExplainOptions) -> Explained:
        """Explain the pieces that a fault touches."""
        stop = fault.offset + max(fault.length, 1)
        chosen: list[Piece] = []
        last: list[Piece] = []
        for _, batch in self._pieces(fault.offset - 1):
            last = batch[-1:] or last
            chosen += [piece for piece in batch if piece.start < stop and piece.stop > fault.offset]
            if batch and batch[-1].stop >= stop:
                break
        # A fault at the end of the file belongs to the piece before it.
        chosen = chosen or last
        return self._finished(chosen[: options.limit], options, (fault.offset,))

    def rows(self, options: ExplainOptions) -> Explained | None:
        """Explain the pieces with matching rows; None if no row matches."""
        filter = _filter(options.where, self.codec)
        most = options.limit or _MOST_ROWS
        chosen: list[Piece] = []
        for stretch, _ in self._pieces(self.source.size):
            if stretch is None or not len(stretch.frames):
                continue
            base, frames = stretch.window.offset, stretch.frames
            for i, row in self._matches(stretch, filter):
                if len(chosen) == most:
                    return self._shown(chosen, options, more=True)
                start, stop = base + int(frames.start[i]), base + int(frames.end[i])
                chosen.append(Piece(start, stop, frame=True, row=row))
        return self._shown(chosen, options, more=False) if chosen else None

    def _shown(self, chosen: list[Piece], options: ExplainOptions, *, more: bool) -> Explained:
        result = self._finished(chosen, options)
        if more:
            result.notes.append("more rows match; to show them, pass a larger limit (--limit)")
        first = next(
            (_place(node, chosen[0].row) for node in chosen[0].nodes if _place(node, chosen[0].row)), None
        )
        result.focus = first or (chosen[0].start,)
        return result

    def _matches(self, stretch: Stretch, filter: Filter) -> Iterator[tuple[int, int]]:
        """Iterate over frames with a matching row: the index of the frame, and of the row in it."""
        possible = filter.frames(self.codec, stretch.frames)
        numbers = np.arange(len(stretch.frames)) if possible is None else np.flatnonzero(possible)
        yield from self._search(stretch, numbers, filter)

    def _search(
        self, stretch: Stretch, numbers: np.ndarray[Any, Any], filter: Filter
    ) -> Iterator[tuple[int, int]]:
        if not len(numbers):
            return
        rows = self._hits(stretch.window, _pick(stretch.frames, numbers), filter)
        if not rows:
            return
        if len(numbers) == 1:
            yield from ((int(numbers[0]), row) for row in rows)
            return
        half = len(numbers) // 2
        yield from self._search(stretch, numbers[:half], filter)
        yield from self._search(stretch, numbers[half:], filter)

    def _hits(self, window: Window, frames: Frames, filter: Filter) -> list[int]:
        """Return the indexes of the matching rows of these frames."""
        out: list[int] = []
        before = 0
        # A copy, since a context must not learn from the same frames twice.
        for decoded in self.codec.decode(window, frames, "rows", filter.columns, copy.copy(self._context)):
            out += [before + i for i in filter.places(decoded.batch)]
            before += decoded.batch.num_rows
        return out


def _pick(frames: Frames, numbers: np.ndarray[Any, Any]) -> Frames:
    mask = np.zeros(len(frames), np.bool_)
    mask[numbers] = True
    return frames.pick(mask)


def _note(pieces: list[Piece], faults: Sequence[Fault]) -> list[Fault]:
    """Add faults that stopped no scan to their pieces. Return those of later pieces."""
    starts = [piece.start for piece in pieces]
    left = []
    for fault in faults:
        i = int(np.searchsorted(starts, fault.offset, "right")) - 1
        if i >= 0 and fault.offset < pieces[i].stop:
            pieces[i].findings += (fault,)
        else:
            left.append(fault)
    return left


def _place(node: Node, row: int | None, around: tuple[int, ...] = ()) -> tuple[int, ...] | None:
    """Return where a row starts, as `Focus.at`."""
    if node.row is not None and node.row == row:
        return (*around, node.start)
    for child in node.children:
        place = _place(child, row, around)
        if place is not None:
            return place
    for inner in node.space.nodes if node.space is not None else ():
        place = _place(inner, row, (*around, node.space.start if node.space else 0))
        if place is not None:
            return place
    return None
