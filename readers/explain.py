"""Finding the bytes that somebody asks about, by place, by row or by fault, and having their codec say what they are.

A file is frames, damaged stretches, and what neither covers (a footer, zeros allocated ahead): pieces, side by side, that are all of
it. Those asked for are read again and explained.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.explain import UNEXPLAINED, Explainer, Focus, Node
from logwright.codec.fault import Fault, NotFoundError, UnreadableError, UnsupportedError, UsageError
from logwright.codec.frames.walk import Hole, Stretch, Walk, zero_filled
from logwright.codec.option import parse_int
from logwright.codec.store.listing import Role
from logwright.codec.store.view import Part
from logwright.codec.window import Frames, Window
from logwright.readers.filter import Filter, understand
from logwright.readers.report import Report
from logwright.readers.resolve import DirectoryTarget, FileTarget, Target
from logwright.readers.source import Source
from logwright.readers.stream import named
from logwright.readers.task import codec_options
from logwright.readers.verify import VerifyOptions, verify

LONGEST = 64 << 20
"""Of a longer piece only so many bytes are explained."""
MOST_NODES = 250_000
"""Pieces are added, where no place is asked for, until there are so many nodes."""
MOST_BYTES = 8 << 20
"""Or so many bytes."""
_MOST_ROWS = 16
"""So many rows that match are shown, where nothing else is said."""
_NUMBER = r"(?:0x[0-9a-f]+|[0-9][0-9_]*[kmgib]*)"
_ADDRESS = re.compile(rf"(?:@{_NUMBER})*\+?{_NUMBER}", re.IGNORECASE)


@dataclass(frozen=True)
class ExplainOptions:
    """What is asked for: a byte (`address`), rows (`where`, as a filter), a fault by its number from 1 on in the report of `verify`;
    or nothing in particular. `limit`: so many pieces at most, or rows. `items`: so many of a list are shown."""

    at: int | str | None = None
    where: Any = None
    fault: int | None = None
    limit: int | None = None
    items: int = 1000


@dataclass
class Piece:
    """Bytes `[start, stop)` of a file: a frame, a damaged stretch (`fault`), or what is neither."""

    start: int
    stop: int
    frame: bool = False
    fault: Fault | None = None
    row: int | None = None
    """The row asked for, counted within the piece."""
    data: bytes = b""
    """Its bytes, as far as they are explained."""
    nodes: Sequence[Node] = ()
    findings: tuple[Fault, ...] = ()
    """What is wrong with it besides."""
    unread: str = ""
    """Why its codec can't read it, where it is of a version that is not read."""

    def count(self) -> int:
        """How many nodes there are, in the spaces within too."""
        return sum(_count(node) for node in self.nodes)


def _count(node: Node) -> int:
    inner = node.space.nodes if node.space is not None else ()
    return 1 + sum(map(_count, node.children)) + sum(map(_count, inner))


@dataclass
class Explained:
    """Some pieces of a file, explained."""

    path: str
    codec: Codec
    size: int
    pieces: list[Piece]
    focus: tuple[int, ...] = ()
    """The byte asked for: as `Focus.at`."""
    notes: list[str] = field(default_factory=list)


# Addresses


def address(text: int | str) -> tuple[int, ...]:
    """A place: a byte of the file, or `@73400381+31`, byte 31 of what the bytes from 73400381 on hold unpacked; `@73400381@120+4` in
    what that holds in turn. Raises `UsageError`."""
    if isinstance(text, int):
        return _positive((text,), text)
    word = str(text).strip()
    if not _ADDRESS.fullmatch(word) or ("@" in word) != ("+" in word):
        raise UsageError(
            f"{text!r} is no place in a file",
            advice="Say a byte (73400320, 0x4600000), or @73400381+31 for one of what is packed there",
        )
    return _positive(tuple(parse_int(one.replace("_", "")) for one in re.split(r"[@+]", word) if one), text)


def _positive(places: tuple[int, ...], text: object) -> tuple[int, ...]:
    if places[0] < 0:
        raise UsageError(f"{text!r} is no place in a file: it is negative")
    return places


def _there(nodes: Sequence[Node], place: tuple[int, ...], path: str | None) -> None:
    """Raises `UsageError` where nothing is packed at a place, or fewer bytes."""
    around, within = place[0], place[1]
    here = [one for node in nodes for one in node.walk() if one.start == around and one.end > around]
    spaces = [one.space for one in here if one.space is not None]
    damaged = any(one.problem or one.broken or one.kind == UNEXPLAINED for one in here)
    if not spaces and not (damaged and len(place) == 2):
        raise UsageError(f"nothing is packed at byte {around}", path=path)
    if len(place) > 2:
        _there(spaces[0].nodes, place[1:], path)
    elif spaces and within >= len(spaces[0].data):
        raise UsageError(
            f"there is no byte {within} in what is packed at {around}: that has {len(spaces[0].data)}",
            path=path,
        )


def spell(places: Sequence[int]) -> str:
    """The mirror of `address`."""
    return "".join(f"@{one}" for one in places[:-1]) + ("+" if len(places) > 1 else "") + str(places[-1])


# What is asked for


def explain(target: Target, options: ExplainOptions, report: Report) -> Explained:
    """What a person asked for, of a file or of a directory. Raises `UsageError`, `NotFoundError` where there is no such row or fault."""
    asked = [name for name in ("at", "where", "fault") if getattr(options, name) is not None]
    if len(asked) > 1:
        raise UsageError(f"{asked[0]} and {asked[1]} both say what is asked for", advice="Say one of them")
    if options.fault is not None:
        return _of_fault(target, options, report)
    if isinstance(target, DirectoryTarget):
        return _of_directory(target, options)
    with _Opened.of(target) as file:
        if options.where is not None:
            found = file.rows(options)
            if found is None:
                raise NotFoundError(f"no row with {_words(options.where)}", path=target.path)
            return found
        return file.at(address(options.at), options) if options.at is not None else file.first(options)


def _of_directory(target: DirectoryTarget, options: ExplainOptions) -> Explained:
    if options.at is not None:
        some = [file.name for file in target.plan.files if file.role is Role.PRIMARY][:3]
        raise UsageError(
            "a byte is asked for of a directory",
            path=target.path,
            advice=f"Name one of its files ({', '.join(some)}), or say where or fault (--where, --fault)",
        )
    files = _files(target, options)
    if options.where is not None:
        files = [one for one in files if _understands(registry.get(one[1]), options.where)]
    for i, (name, codec) in enumerate(files):
        with _Opened.inside(target, name, codec) as file:
            found = file.first(options) if options.where is None else file.rows(options)
        if found is not None:
            if options.where is None and len(files) > 1:
                found.notes.append(f"one of {len(files)} files of {target.path}: name another to see that")
            elif i + 1 < len(files) and options.where is not None:
                found.notes.append(f"in {name}: the files that come after it were not looked at")
            return found
    what = "no primary file" if options.where is None else f"no row with {_words(options.where)}"
    raise NotFoundError(what, path=target.path)


def _files(target: DirectoryTarget, options: ExplainOptions) -> list[tuple[str, str]]:
    """The files to look at: those of the default view (or of the first that knows the columns asked for) in its order, where they can hold
    such a row, then the other primary ones."""
    layout, plan = target.layout, target.plan
    view = layout.views[layout.default_view]
    if options.where is not None and not _understands(registry.get(view.codec), options.where):
        # What is asked for is no column of it, but maybe of another: a zxid is none of a node.
        others = (
            one for one in layout.views.values() if _understands(registry.get(one.codec), options.where)
        )
        view = next(others, view)
    filter = _filter(options.where, registry.get(view.codec)) if options.where is not None else None
    parts: list[Part] = []
    for one in layout.parts(target.directory, plan, view.name, target.layout_options):
        # Of what is combined the first that has a row is the one that counts.
        parts += [one] if isinstance(one, Part) else [part for run in one.runs for part in run.parts]
    chosen = [(part.file, part.codec) for part in parts if filter is None or not filter.skips(part.bounds)]
    skipped = {part.file for part in parts}
    chosen += [
        (file.name, file.codec)
        for file in plan.files
        if file.role is Role.PRIMARY and file.codec is not None and file.name not in skipped
    ]
    sizes = {entry.name: entry.size for entry in target.directory.entries()}
    chosen = list(dict.fromkeys(chosen))
    return [one for one in chosen if sizes.get(one[0])] or chosen


def _of_fault(target: Target, options: ExplainOptions, report: Report) -> Explained:
    verify([target], report, VerifyOptions())
    faults = list(report.faults)
    number = int(options.fault or 0)
    if not 1 <= number <= len(faults):
        there = f"there are {len(faults)}, counted from 1" if faults else "there are none"
        raise NotFoundError(f"no fault {number}: {there}", path=target.path)
    path, fault = faults[number - 1]
    if isinstance(target, DirectoryTarget):
        # Of the directory itself nothing can be shown.
        files = {file.name: file for file in target.plan.files}
        name = path if path in files else path.rpartition("/")[2]
        codec = files[name].codec if name in files else None
        if codec is None:
            raise NotFoundError(
                f"fault {number} is of no file that can be explained: {fault.detail}", path=target.path
            )
        opened = _Opened.inside(target, name, codec)
    else:
        opened = _Opened.of(target)
    with opened as file:
        found = file.around(fault, options)
    found.notes.append(f"fault {number} of {len(faults)}: {fault.kind}, {fault.detail}")
    return found


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
    given = [(name, "==", value) for name, value in where.items()] if isinstance(where, Mapping) else where
    found = understand(given, codec.tables["rows"])
    if found is None:
        raise UsageError("where is empty", advice="Say offset=4183220, or key=user-7")
    return found


# One file


class _Opened:
    """A file that is looked into."""

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

    # What is there

    def _pieces(self, after: int = 0) -> Iterator[tuple[Stretch | None, list[Piece]]]:
        """All of the file, a scan at a time; of what ends at byte `after` or before, no pieces are made."""
        at = 0
        findings: list[Fault] = []
        with named(self.source):
            walk = self._walk()
            scans = iter(walk)
            while True:
                made: list[Piece] = []
                try:
                    found = next(scans, None)
                except UnsupportedError as error:
                    yield None, [Piece(at, self.source.size, unread=error.message)]
                    return
                if found is None:
                    break
                if isinstance(found, Hole):
                    made = [
                        Piece(found.fault.offset, found.fault.offset + found.fault.length, fault=found.fault)
                    ]
                elif len(found.frames) and found.window.offset + int(found.frames.end[-1]) <= after:
                    at = found.window.offset + int(found.frames.end[-1])
                else:
                    base = found.window.offset
                    starts, stops = (found.frames.start + base).tolist(), (found.frames.end + base).tolist()
                    made = [Piece(a, b, frame=True) for a, b in zip(starts, stops, strict=True)]
                    findings += found.faults
                if made and made[0].start > at:
                    made.insert(0, Piece(at, made[0].start))
                at = made[-1].stop if made else at
                findings = _note(made, findings)
                yield found if isinstance(found, Stretch) else None, made
            if at < walk.size:
                made = [Piece(at, walk.size)]
                _note(made, findings)
                yield None, made

    def _finished(
        self, pieces: list[Piece], options: ExplainOptions, focus: tuple[int, ...] = ()
    ) -> Explained:
        """With what they hold. Without a place asked for there may be too many of them."""
        found = Explained(self.source.path, self.codec, self.source.size, pieces, focus)
        nodes = size = 0
        for i, piece in enumerate(pieces):
            for bad in self._explain(piece, options, focus):
                found.notes.append(f"{bad.detail}: shown as zeros")
            nodes += piece.count()
            size += len(piece.data)
            if len(piece.data) < piece.stop - piece.start:
                found.notes.append(
                    f"of {piece.stop - piece.start} bytes at {piece.start} only {len(piece.data)} are shown"
                )
            if (nodes > MOST_NODES or size > MOST_BYTES) and i + 1 < len(pieces):
                del pieces[i + 1 :]
                break
        return found

    def _explain(self, piece: Piece, options: ExplainOptions, at: tuple[int, ...]) -> list[UnreadableError]:
        """Puts what is in it into a piece; returns what the disk can't read of it."""
        data, unreadable = zero_filled(self.source, piece.start, min(piece.stop - piece.start, LONGEST))
        piece.data = data.tobytes()
        window = Window(data, piece.start, self.source.size)
        focus = Focus(at, piece.row, options.items, self._limit)
        if piece.unread:
            piece.nodes = Explainer(piece.data, piece.start, focus).rest(0, len(data), piece.unread)
        else:
            piece.nodes = self.codec.explain(window, self._context, focus, frame=piece.frame)
        if piece.frame and not unreadable:
            piece.findings += tuple(self._decoded(window))
        return unreadable

    def _decoded(self, window: Window) -> Iterator[Fault]:
        """What decoding the frame finds wrong with it."""
        context = copy.copy(self._context)
        frames = self.codec.scan(Window(window.data, window.offset, window.size), 0, context, check=False)
        if not len(frames):
            return
        for decoded in self.codec.decode(window, frames, "rows", (), copy.copy(context)):
            for _, fault in decoded.faults:
                yield fault

    # What is asked for

    def first(self, options: ExplainOptions) -> Explained:
        """The first pieces."""
        pieces: list[Piece] = []
        full = False
        for _, made in self._pieces():
            pieces += made
            full = options.limit is not None and len(pieces) > options.limit
            if full or len(pieces) > MOST_NODES or (pieces and pieces[-1].stop > 2 * MOST_BYTES):
                break
        found = self._finished(pieces[: options.limit], options)
        stop = found.pieces[-1].stop if found.pieces else self.source.size
        if stop < self.source.size:
            found.notes.append(
                f"{self.source.size - stop} more bytes from {stop} on: say at={stop}, or limit="
            )
        return found

    def at(self, place: tuple[int, ...], options: ExplainOptions) -> Explained:
        """The piece that holds a byte, and with `limit` so many from there on."""
        if place[0] >= self.source.size:
            raise UsageError(
                f"there is no byte {place[0]}: the file has {self.source.size}", path=self.source.path
            )
        chosen: list[Piece] = []
        for _, made in self._pieces(place[0]):
            chosen += [piece for piece in made if piece.stop > place[0]]
            if len(chosen) >= (options.limit or 1):
                break
        found = self._finished(chosen[: options.limit or 1], options, place)
        if len(place) > 1 and found.pieces:
            _there(found.pieces[0].nodes, place, self.source.path)
        return found

    def around(self, fault: Fault, options: ExplainOptions) -> Explained:
        """The pieces that a fault touches."""
        stop = fault.offset + max(fault.length, 1)
        chosen: list[Piece] = []
        last: list[Piece] = []
        for _, made in self._pieces(fault.offset - 1):
            last = made[-1:] or last
            chosen += [piece for piece in made if piece.start < stop and piece.stop > fault.offset]
            if made and made[-1].stop >= stop:
                break
        # One at the very end of the file is of what comes before it.
        chosen = chosen or last
        return self._finished(chosen[: options.limit], options, (fault.offset,))

    def rows(self, options: ExplainOptions) -> Explained | None:
        """The pieces that hold rows that match; None where there are none."""
        filter = _filter(options.where, self.codec)
        most = options.limit or _MOST_ROWS
        chosen: list[Piece] = []
        for found, _ in self._pieces(self.source.size):
            if found is None or not len(found.frames):
                continue
            base, frames = found.window.offset, found.frames
            for i, row in self._matches(found, filter):
                if len(chosen) == most:
                    return self._shown(chosen, options, more=True)
                start, stop = base + int(frames.start[i]), base + int(frames.end[i])
                chosen.append(Piece(start, stop, frame=True, row=row))
        return self._shown(chosen, options, more=False) if chosen else None

    def _shown(self, chosen: list[Piece], options: ExplainOptions, *, more: bool) -> Explained:
        found = self._finished(chosen, options)
        if more:
            found.notes.append("there are more such rows: say limit= to see them")
        first = next(
            (_place(node, chosen[0].row) for node in chosen[0].nodes if _place(node, chosen[0].row)), None
        )
        found.focus = first or (chosen[0].start,)
        return found

    def _matches(self, found: Stretch, filter: Filter) -> Iterator[tuple[int, int]]:
        """Frames that hold a row that matches: the number of each among those found, and of the row in it."""
        possible = filter.frames(self.codec, found.frames)
        numbers = np.arange(len(found.frames)) if possible is None else np.flatnonzero(possible)
        yield from self._search(found, numbers, filter)

    def _search(
        self, found: Stretch, numbers: np.ndarray[Any, Any], filter: Filter
    ) -> Iterator[tuple[int, int]]:
        if not len(numbers):
            return
        rows = self._hits(found.window, _pick(found.frames, numbers), filter)
        if not rows:
            return
        if len(numbers) == 1:
            yield from ((int(numbers[0]), row) for row in rows)
            return
        half = len(numbers) // 2
        yield from self._search(found, numbers[:half], filter)
        yield from self._search(found, numbers[half:], filter)

    def _hits(self, window: Window, frames: Frames, filter: Filter) -> list[int]:
        """The numbers of the rows of these frames that match."""
        out: list[int] = []
        before = 0
        # What a context learns from frames that it sees is not to be learned twice.
        for decoded in self.codec.decode(window, frames, "rows", filter.columns, copy.copy(self._context)):
            out += [before + i for i in filter.places(decoded.batch)]
            before += decoded.batch.num_rows
        return out


def _pick(frames: Frames, numbers: np.ndarray[Any, Any]) -> Frames:
    mask = np.zeros(len(frames), np.bool_)
    mask[numbers] = True
    return frames.pick(mask)


def _note(pieces: list[Piece], faults: Sequence[Fault]) -> list[Fault]:
    """Findings that stopped no scan, to the pieces that they are of. Returns those of pieces that are still to come."""
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
    """Where a row starts, as `Focus.at`."""
    if node.row is not None and node.row == row:
        return (*around, node.start)
    for child in node.children:
        found = _place(child, row, around)
        if found is not None:
            return found
    for inner in node.space.nodes if node.space is not None else ():
        found = _place(inner, row, (*around, node.space.start if node.space else 0))
        if found is not None:
            return found
    return None
