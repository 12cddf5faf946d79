"""A format and a layout of no real system, to test readers against the protocol alone.

A file `007.toy` holds frames: `TY`, the payload's length (4 bytes), an id (8), the CRC-32 of id and payload (4), the payload:
texts, each with its length in one byte; a text of length 255 can't be decoded. The row of text `i` in a frame has id `frame
id + i`.
`NOTE` is a small file: `note:` and text. A directory of these is a store.

"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from logwright.codec import registry
from logwright.codec.base import Codec, Match
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.layout import Layout
from logwright.codec.option import Option, Options, parse_bool
from logwright.codec.store.build import Builder, Placement
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role
from logwright.codec.store.view import Part, View
from logwright.codec.table import TIMESTAMP, Column, Table
from logwright.codec.window import Around, Decoded, Frames, Window
from logwright.readers import listing

HEAD = struct.Struct(">2sIqI")

ROWS = Table(
    "rows",
    (
        Column("id", pa.int64(), "the frame's id and the text's place in it", nullable=False, prunes=True),
        Column("time", TIMESTAMP, "a second for each id", prunes=True),
        Column("text", pa.binary(), "the text; null where it is empty"),
        Column("place", pa.int32(), "the text's place in the frame"),
        Column("even", pa.bool_(), "whether the id is"),
        Column("directory", pa.string(), "the name of the folder"),
        Column("words", pa.list_(pa.string()), "the words of the text"),
        Column("position", pa.int64(), "byte of the file where the frame starts", detail=True),
    ),
)
FRAMES = Table(
    "frames",
    (
        Column("position", pa.int64(), "byte of the file", nullable=False),
        Column("id", pa.int64(), "the first id", prunes=True),
        Column("size", pa.int32(), "bytes"),
        Column("compression", pa.string(), "none"),
        Column("base_time", pa.int64(), "milliseconds, of the first id"),
        Column("raw", pa.binary(), "the bytes of a damaged stretch", detail=True),
    ),
)
FILE = Table(
    "file",
    (
        Column("size", pa.int64(), "bytes"),
        Column("frames", pa.int64(), "frames"),
        Column("trailing", pa.binary(), "bytes at the end"),
        Column("trailing_zeros", pa.int64(), "zeros after them"),
    ),
)


def frame(id: int, *texts: bytes) -> bytes:
    payload = b"".join(bytes([len(text)]) + text for text in texts)
    crc = zlib.crc32(struct.pack(">q", id) + payload)
    return HEAD.pack(b"TY", len(payload), id, crc) + payload


def shuffled(count: int, seed: int = 1, low: int = 1, high: int = 5) -> list[bytes]:
    """Return frames with increasing ids and texts of many lengths."""
    rng = np.random.default_rng(seed)
    frames, id = [], 0
    for _ in range(count):
        texts = [rng.bytes(int(rng.integers(0, 60))) for _ in range(int(rng.integers(low, high)))]
        frames.append(frame(id, *texts))
        id += len(texts) + int(rng.integers(0, 3))
    return frames


@dataclass
class Context:
    directory: str
    live: bool | None
    last: bool
    start: int | None
    loud: bool
    before: int = -1


class ToyFrames(Codec):
    name = "toy.frames"
    title = "Frames of texts"
    structures = ()
    tables: Mapping[str, Table] = {"rows": ROWS, "frames": FRAMES, "file": FILE}
    options = (Option("loud", False, "Texts in upper case.", parse_bool),)

    def recognise(self, name: str, head: bytes) -> Match:
        if name.endswith(".toy"):
            return Match.SURE if head[:2] == b"TY" else Match.NAME
        return Match.MAYBE if head[:2] == b"TY" else Match.NO

    def context(
        self,
        name: str,
        options: Options,
        *,
        directory: str = "",
        live: bool | None = None,
        last: bool = True,
        start: int | None = None,
    ) -> Context:
        return Context(directory, live, last, start, options["loud"])

    def scan(self, window: Window, at: int, context: Context, *, check: bool = True) -> Frames:
        data = window.data
        starts, ends, ids, faults = [], [], [], []
        need, damage = 0, None
        while at < len(data):
            here, left = window.offset + at, window.size - window.offset - at
            if not data[at:].any():
                damage = Fault(self.name, here, left, Kind.PADDING, "zeros to the end", Severity.INFO)
                break
            if left < HEAD.size:
                severity = Severity.WARNING if context.last else Severity.ERROR
                damage = Fault(self.name, here, left, Kind.TRUNCATED, "half a head", severity)
                break
            if len(data) - at < HEAD.size:
                need = HEAD.size
                break
            magic, length, id, crc = HEAD.unpack(data[at : at + HEAD.size].tobytes())
            size = HEAD.size + length
            if magic != b"TY":
                damage = Fault(self.name, here, 2, Kind.MAGIC, f"{magic!r} instead of b'TY'")
                break
            if size > left:
                severity = Severity.WARNING if context.last else Severity.ERROR
                damage = Fault(self.name, here, left, Kind.TRUNCATED, f"{size} bytes wanted", severity)
                break
            if size > len(data) - at:
                need = size
                break
            if (
                check
                and zlib.crc32(data[at + 6 : at + 14].tobytes() + data[at + HEAD.size : at + size].tobytes())
                != crc
            ):
                damage = Fault(self.name, here, size, Kind.CHECKSUM, "wrong crc", rows_lost=None)
                break
            if id < context.before:
                faults.append(
                    Fault(
                        self.name, here, size, Kind.ORDER, f"id {id} after {context.before}", Severity.WARNING
                    )
                )
            context.before = id
            starts.append(at)
            ends.append(at + size)
            ids.append(id)
            at += size
        header = (
            np.array(ids, dtype=[("id", "i8")])
            if not ids
            else np.array([(id,) for id in ids], dtype=[("id", "i8")])
        )
        return Frames(np.array(starts, np.int64), np.array(ends, np.int64), header, at, need, damage, faults)

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: Context
    ) -> Iterator[Decoded]:
        rows: list[dict[str, Any]] = []
        faults: list[tuple[int, Fault]] = []
        for start, end, head in zip(frames.start.tolist(), frames.end.tolist(), frames.header, strict=True):
            here = window.offset + start
            if table == "frames":
                rows.append(
                    {
                        "position": here,
                        "id": int(head["id"]),
                        "size": end - start,
                        "compression": "none",
                        "base_time": 1000 * int(head["id"]),
                    }
                )
                continue
            texts = self.texts(window.data[start + HEAD.size : end].tobytes())
            if texts is None:
                faults.append(
                    (
                        len(rows),
                        Fault(self.name, here, end - start, Kind.PAYLOAD, "a text of 255 bytes", rows_lost=1),
                    )
                )
                continue
            for i, text in enumerate(texts):
                id = int(head["id"]) + i
                if context.start is None or id >= context.start:
                    text = text.upper() if context.loud else text
                    rows.append(
                        {
                            "id": id, "time": id * 1000, "text": text or None, "place": i, "even": id % 2 == 0,
                            "directory": context.directory, "words": ["a"], "position": here,
                        }
                    )  # fmt: skip
        schema = self.tables[table].schema(columns)
        half = len(rows) // 2 if not faults else len(rows)
        for piece, part_faults in ((rows[:half], faults), (rows[half:], [])):
            if piece or part_faults:
                yield Decoded(pa.RecordBatch.from_pylist(piece, schema=schema), part_faults)

    @staticmethod
    def texts(payload: bytes) -> list[bytes] | None:
        out, at = [], 0
        while at < len(payload):
            if payload[at] == 255:
                return None
            out.append(payload[at + 1 : at + 1 + payload[at]])
            at += 1 + payload[at]
        return out

    def frame_bounds(self, frames: Frames, column: str) -> tuple[Any, Any]:
        low, high = frames.header["id"], frames.header["id"] + (frames.end - frames.start)
        return (low, high) if column == "id" else (low * 1000, high * 1000)

    def resync(self, window: Window, at: int, context: Context) -> tuple[int, int]:
        data = window.data.tobytes()
        while True:
            at = data.find(b"TY", at)
            if at < 0:
                return -1, 0 if window.final else HEAD.size
            if len(data) - at < HEAD.size:
                return (-1, 0) if window.final else (at, HEAD.size)
            _, length, _, crc = HEAD.unpack_from(data, at)
            size = HEAD.size + length
            if size <= window.size - window.offset - at:
                if size > len(data) - at:
                    return at, size
                if zlib.crc32(data[at + 6 : at + 14] + data[at + HEAD.size : at + size]) == crc:
                    return at, 0
            at += 1

    def loss_between(self, around: Around, context: Context) -> tuple[int | None, Mapping[str, Any]]:
        first = None if around.before is None else int(around.before.header["id"][-1]) + 1
        last = None if around.after is None else int(around.after.header["id"][0]) - 1
        return None, {"first_id": first, "last_id": last}

    def encode(self, rows: Any, frames: Any, file: Any, context: Any) -> Iterator[bytes]:
        for row in rows.to_pylist():
            yield frame(row["id"], row["text"] or b"")


class ToyNote(Codec):
    name = "toy.note"
    title = "A note"
    structures = ()
    tables: Mapping[str, Table] = {
        "rows": Table("rows", (Column("text", pa.string(), "the note"),)),
        "frames": Table("frames", (Column("position", pa.int64(), "0"),)),
        "file": FILE,
    }
    single_frame = True

    def recognise(self, name: str, head: bytes) -> Match:
        return Match.SURE if name == "NOTE" else Match.NO

    def scan(self, window: Window, at: int, context: None, *, check: bool = True) -> Frames:
        none = np.empty(0, np.int64)
        if window.data[:5].tobytes() != b"note:":
            damage = Fault(self.name, 0, window.size, Kind.MAGIC, "no note")
            return Frames(none, none, none, 0, 0, damage)
        return Frames(np.array([0]), np.array([window.size]), np.zeros(1), window.size)

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: None
    ) -> Iterator[Decoded]:
        row = {"text": window.data[5:].tobytes().decode(), "position": 0}
        schema = self.tables[table].schema(columns)
        yield Decoded(pa.RecordBatch.from_pylist([{name: row[name] for name in columns}], schema=schema))

    def resync(self, window: Window, at: int, context: None) -> tuple[int, int]:
        return -1, 0

    def encode(self, rows: Any, frames: Any, file: Any, context: Any) -> Iterator[bytes]:
        yield b"note:" + rows.to_pylist()[0]["text"].encode()


class FakeStore(Layout):
    """Files `NNN.toy`, named by their first id, in the order of their names. The last one may end in a torn frame."""

    name = "toy.store"
    title = "A store of toy frames"
    views: Mapping[str, View] = {
        "texts": View("texts", "toy.frames", "rows", "All texts."),
        "heads": View("heads", "toy.frames", "frames", "All frames."),
    }
    default_view = "texts"
    read_options = (Option("from.id", None, "Texts from this id on."),)
    inner_staging = ".logwright-toy"

    def order(self, names: Iterable[str]) -> Sequence[str]:
        return sorted(names)

    def builder(self, *arguments: object, **named: object) -> Builder:
        raise NotImplementedError("no test writes a new store")

    def assemble(self, *arguments: object) -> Placement:
        raise NotImplementedError("no test writes a new store")

    def recognise(self, listing: Listing) -> Match:
        return Match.NAME if any(entry.name.endswith(".toy") for entry in listing.entries()) else Match.NO

    def plan(self, listing: Listing, options: Options) -> Plan:
        names = [entry.name for entry in listing.entries() if entry.name.endswith(".toy")]
        files, faults = [], []
        for entry in listing.entries():
            if entry.name in names:
                hints = {"last": entry.name == names[-1], "start": options["from.id"]}
                files.append(PlannedFile(entry.name, entry.size, Role.PRIMARY, "toy.frames", hints))
            elif entry.name == "NOTE":
                files.append(PlannedFile(entry.name, entry.size, Role.METADATA, "toy.note"))
            else:
                files.append(PlannedFile(entry.name, entry.size, Role.FOREIGN, note="not a toy"))
        if "000.toy" not in names:
            faults.append(("", Fault(self.name, 0, 0, Kind.LINK, "000.toy is not there")))
        if not any(file.name == "NOTE" for file in files):
            faults.append(("NOTE", Fault(self.name, 0, 0, Kind.LINK, "the note is not there")))
        return Plan(tuple(files), tuple(faults), {"toys": len(names), "first_id": int(names[0][:-4])})

    def parts(self, listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part]:
        toys = [file for file in plan.files if file.codec == "toy.frames"]
        ends = [int(file.name[:-4]) - 1 for file in toys[1:]]
        table = self.views[view].table
        return [
            Part(file.name, "toy.frames", table, file.hints, bounds={"id": (int(file.name[:-4]), end)})
            for file, end in itertools.zip_longest(toys, ends)
        ]

    def facts(self, listing: Listing, plan: Plan) -> Mapping[str, Any]:
        return {
            "heads": sum(
                listing.read(file.name).count(b"TY") for file in plan.files if file.role is Role.PRIMARY
            )
        }

    def locks(self) -> Sequence[str]:
        return ("../.lock",)


FRAMES_CODEC = ToyFrames()


def know(monkeypatch: pytest.MonkeyPatch, codecs: Mapping[str, Codec], layouts: Mapping[str, Layout]) -> None:
    """Make the registry know these codecs and layouts, and nothing else."""
    monkeypatch.setattr(registry, "_all", lambda: (codecs, layouts))
    monkeypatch.setattr(registry, "_layouts_by_system", lambda: iter(layouts.values()))


@pytest.fixture
def fake_store(monkeypatch: pytest.MonkeyPatch) -> ToyFrames:
    """Make the registry know the fake codecs and layout, and nothing else."""
    known = ({"toy.frames": FRAMES_CODEC, "toy.note": ToyNote()}, {"toy.store": FakeStore()})
    know(monkeypatch, *known)
    monkeypatch.setattr(listing, "_staging_names", lambda: frozenset({FakeStore.inner_staging}))
    return FRAMES_CODEC
