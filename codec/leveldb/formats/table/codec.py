"""The codec `leveldb.table`: sorted tables (`.ldb`, before LevelDB 1.14 `.sst`).

A frame is a block; the footer follows the last one. The positions of blocks are read first (`index`). Their contents are in `layout`,
`rows` and `filter`; `write` and `reencode` write them. Source of the format: `doc/table_format.md` of LevelDB.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import address
from logwright.codec.arrays import Bools, Int64s
from logwright.codec.base import Codec, Match, ProvedPart
from logwright.codec.describe import Type
from logwright.codec.explain import Focus, Node
from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.codec.kernels.bitflip import CRC32C, Flip, flips_by_crc, flips_of_stored
from logwright.codec.kernels.crc32c import crc32c_of_three, crc32c_update
from logwright.codec.kernels.intrinsics import load_u32le
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.formats import fields
from logwright.codec.leveldb.formats.explain import DATA_BLOCK, STORED, TABLE, table_of
from logwright.codec.leveldb.formats.table import index, reencode, rows
from logwright.codec.leveldb.formats.table import write as encode
from logwright.codec.leveldb.formats.table.filter import BASE, FILTER_END, bits_per_key_of
from logwright.codec.leveldb.formats.table.index import Blocks, handles, survey
from logwright.codec.leveldb.formats.table.layout import (
    BLOCK_HANDLE,
    ENTRY,
    TRAILER,
    TRAILER_SIZE,
    block_crc,
    masked,
    unmasked,
)
from logwright.codec.leveldb.formats.table.resync import MAGIC
from logwright.codec.leveldb.formats.table.tables import FILE, FRAMES, MAX_DECOMPRESSED, ROWS, TableContext
from logwright.codec.leveldb.keys import BYTEWISE, key_range
from logwright.codec.leveldb.keys import TRAILER_SIZE as KEY_TRAILER
from logwright.codec.option import DECODES, ENCODES, Options, Verb, used_by
from logwright.codec.table import Table
from logwright.codec.window import Around, Bytes, Chunk, Decoded, Frames, Window

_FILE = re.compile(r"(\d+)\.(?:ldb|sst)")

_DECODING = {"comparator": DECODES | ENCODES, "bloom_bits_per_key": ENCODES | {Verb.REPAIR, Verb.EDIT}}
OPTIONS = (
    *used_by({*DECODES, Verb.WRITE}, MAX_DECOMPRESSED),
    *(used_by(_DECODING.get(option.name, ENCODES), option)[0] for option in encode.OPTIONS),
)

HEAD = np.dtype([("kind", "u1"), ("type", "u1"), ("size", "<i8"), ("entry", "<i8"), ("blocks", "O")])
"""Header of a block: its index in `KIND_NAMES`, the type byte, bytes without the trailer, the number of its index entry or -1, and the
`Blocks` whose index bounds its keys, or None."""


def _of_each(test: Callable[[bytes, bytes], bool]) -> Callable[[Keys, bytes], Bools]:
    return lambda keys, other: np.array([test(key, other) for key in keys.keys], np.bool_)


class Keys:
    """Keys of frames, for comparison with a key. A NumPy array would drop trailing zero bytes."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self.keys = list(keys)

    __lt__, __le__, __gt__, __ge__ = map(_of_each, (operator.lt, operator.le, operator.gt, operator.ge))
    __ne__ = _of_each(operator.ne)  # type: ignore[assignment]


_CRC_SIZE = 4


@kernel("const u1[], i8, i8, i8")
def _agrees(buf: Bytes, crc: int, at: int, end: int) -> bool:
    """Return whether the block that ends at `end` with its trailer has a right checksum. `crc` is the checksum of its bytes before `at`."""
    stored = end - _CRC_SIZE
    return masked(crc32c_update(crc, buf, at, stored)) == load_u32le(buf, stored)


@kernel("const u1[], const i8[], const i8[]")
def first_bad(buf: Bytes, starts: Int64s, ends: Int64s) -> int:
    """Return the first block with a wrong checksum, or the number of blocks. Block `i` is `starts[i]` to `ends[i]` with its trailer."""
    i = 0
    while i + 2 < len(starts):
        # Adjacent blocks are usually of similar size.
        a, b, c = starts[i], starts[i + 1], starts[i + 2]
        size = min(ends[i] - a, ends[i + 1] - b, ends[i + 2] - c) - _CRC_SIZE
        crc1, crc2, crc3 = crc32c_of_three(buf, a, b, c, size)
        if not _agrees(buf, crc1, a + size, ends[i]):
            return i
        if not _agrees(buf, crc2, b + size, ends[i + 1]):
            return i + 1
        if not _agrees(buf, crc3, c + size, ends[i + 2]):
            return i + 2
        i += 3
    while i < len(starts):
        if not _agrees(buf, 0, starts[i], ends[i]):
            return i
        i += 1
    return i


_FEW = 256
"""Maximum number of blocks that can start in the first 2 KiB, with a trailer and a restart point each."""


class LevelDBTable(Codec):
    name = index.NAME
    title = "LevelDB table: sorted blocks of keys and values"
    structures = (TRAILER, DATA_BLOCK, ENTRY, BLOCK_HANDLE, index.FOOTER, FILTER_END)
    described = (TABLE, *STORED.values())
    tables: Mapping[str, Table] = {"rows": ROWS, "frames": FRAMES, "file": FILE}
    options = OPTIONS
    indexed = True
    scans_empty = True
    checksum = "CRC-32C"

    end_magic = MAGIC

    def recognise(self, name: str, head: bytes) -> Match:
        return Match.NAME if _FILE.fullmatch(name) else Match.NO

    def context(self, name: str, options: Options, **hints: Any) -> TableContext:
        hints.pop("directory", "")
        hints.pop("live", None)
        named = _FILE.fullmatch(name)
        if named is not None and int(named[1]) < 1 << 63:
            hints.setdefault("file", int(named[1]))
        if options.given("comparator"):
            hints.setdefault("comparator", options["comparator"])
        unknown = set(hints) - set(TableContext.__dataclass_fields__)
        if unknown:
            raise UsageError(f"{self.name}: no hint {sorted(unknown)[0]!r}")
        return TableContext(options, **hints)

    def prepare(self, read: Callable[[int, int], Bytes], size: int, context: TableContext) -> None:
        context.blocks = survey(read, size, context.options["max.decompressed.bytes"])

    def scan(self, window: Window, at: int, context: TableContext, *, check: bool = True) -> Frames:
        blocks = self._blocks(window, context)
        place, behind = window.offset + at, window.offset + len(window.data)
        first = blocks.at(place)
        starts_here = first < len(blocks.offset) and int(blocks.offset[first]) == place
        if not starts_here:
            nothing = _frames(window, blocks, first, first, at, context)
            if place < blocks.stop or not window.size:
                nothing.damage = _gap(window, blocks, place, first)
            else:
                _at_footer(window, blocks, nothing)
            return nothing
        n = int(np.searchsorted(blocks.breaks, first, "right"))
        run = int(blocks.breaks[n]) if n < len(blocks.breaks) else len(blocks.offset)
        last = min(run, int(np.searchsorted(blocks.ends, behind, "right")))
        frames = _frames(window, blocks, first, last, at, context)
        if check:
            bad = first_bad(window.data, frames.start, frames.end)
            if bad < len(frames):
                return _cut(window, blocks, frames, bad, first)
        if last < run:
            size = int(blocks.size[last]) + TRAILER_SIZE
            if window.offset + frames.stop + size > window.size:
                frames.damage = _gap(window, blocks, window.offset + frames.stop, last)
            else:
                frames.need = size
        elif window.offset + frames.stop < blocks.stop:
            frames.damage = _gap(window, blocks, window.offset + frames.stop, last)
        else:
            _at_footer(window, blocks, frames)
        return frames

    def explain(self, window: Window, context: TableContext, focus: Focus, *, frame: bool) -> Sequence[Node]:
        return table_of(window, context.blocks, focus)

    def _blocks(self, window: Window, context: TableContext) -> Blocks:
        if context.blocks is None:
            # Without a walk, the window has the whole file.
            def read(offset: int, length: int) -> Bytes:
                return window.data[max(offset - window.offset, 0) : max(offset - window.offset + length, 0)]

            self.prepare(read, window.size, context)
        assert context.blocks is not None
        return context.blocks

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: TableContext
    ) -> Iterator[Decoded]:
        if table == "rows":
            return rows.decode(window, frames, ROWS, columns, context)
        return rows.decode_frames(window, frames, FRAMES, columns, context)

    def file_facts(
        self, head: Window, size: int, tail: bytes, zeros: int, context: TableContext
    ) -> Mapping[str, Any]:
        footer = tail[-index.FOOTER_SIZE :]
        pair = handles(footer[: index.HANDLES_SIZE]) if len(footer) == index.FOOTER_SIZE and not zeros else ()
        if len(pair) != 2:
            return {}
        places = (value if value < 1 << 63 else None for handle in pair for value in handle)
        return dict(
            zip(("metaindex_offset", "metaindex_size", "index_offset", "index_size"), places, strict=True)
        )

    def writer_options(self, read: Callable[..., pa.Table]) -> Mapping[str, Any]:
        """See `Codec.writer_options`: return the bits per key of the filter, if there is one."""
        filter_frames = read(["payload"], [("kind", "==", "filter")], 1)
        if not len(filter_frames):
            return {}
        filters = np.frombuffer(filter_frames.column("payload")[0].as_py(), np.uint8)
        # The first filter covers the blocks that start in the first 2 KiB.
        blocks = read(["position", "kind", "entries"], None, _FEW)
        first = [
            block for block in blocks.to_pylist() if block["kind"] == "data" and block["position"] < BASE
        ]
        if any(block["entries"] is None for block in first):
            return {}
        bits = bits_per_key_of(filters, 0, sum(block["entries"] for block in first))
        return {"bloom_bits_per_key": bits} if bits else {}

    def field_names(self) -> Sequence[str]:
        return address.names((fields.STORED_BLOCK, DATA_BLOCK))

    def edit(
        self, frame: bytes, path: Sequence[str | int], change: Callable[[bytes, Type], bytes], *, reseal: bool,
        context: Any = None,
    ) -> bytes:  # fmt: skip
        return fields.edit_block(frame, path, change, reseal=reseal)

    def frame_bounds(self, frames: Frames, column: str) -> tuple[Any, Any]:
        """Return bounds of the keys of data blocks: above the index key of the previous block, up to their own."""
        blocks = frames.header["blocks"][0] if column == "key" and len(frames) else None
        if blocks is None:
            return None, None
        entry: list[int] = frames.header["entry"].tolist()
        low = [blocks.keys[n - 1][:-KEY_TRAILER] if n > 0 else b"" for n in entry]
        return Keys(low), Keys(blocks.keys[n][:-KEY_TRAILER] if n >= 0 else b"" for n in entry)

    def suspects(
        self, window: Window, at: int, limit: int, around: Around, context: TableContext
    ) -> Iterator[Flip]:
        blocks, data, place = self._blocks(window, context), window.data, window.offset + at
        i = blocks.at(place)
        size = blocks.next(place + 1) - place - TRAILER_SIZE
        if i < len(blocks.offset) and int(blocks.offset[i]) == place:
            size = int(blocks.size[i])
        elif place in blocks.wrong:
            size = blocks.wrong[place][0]
        end = at + size + TRAILER_SIZE
        if size < 0 or end > len(data):
            return
        stored, computed = load_u32le(data, end - _CRC_SIZE), block_crc(data, at, size)
        yield from flips_of_stored(end - _CRC_SIZE, _CRC_SIZE, "<", stored ^ computed)
        change = unmasked(stored) ^ unmasked(computed)
        yield from flips_by_crc(at, end - _CRC_SIZE, change, CRC32C)

    def flip_of_file(
        self, read: Callable[[int, int], Bytes], size: int, context: TableContext
    ) -> tuple[Fault, int, int, ProvedPart] | None:
        flip = index.flip_of_footer(read, size)
        if flip is None:
            return None
        start, text = size - index.FOOTER_SIZE, "a bit of the footer is flipped"
        fault = Fault(self.name, start, index.FOOTER_SIZE, Kind.LENGTH, text, Severity.WARNING, rows_lost=0)
        proofs = ("the CRC-32C of the index and the metaindex", "their places")
        return fault, *flip, ProvedPart(start, size, "", proofs)

    def resync(self, window: Window, at: int, context: TableContext) -> tuple[int, int]:
        blocks = self._blocks(window, context)
        return blocks.next(window.offset + at) - window.offset, 0

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: TableContext
    ) -> Iterator[Chunk]:
        if frames is None:
            return encode.encode(rows, context)
        return reencode.encode(rows, frames, file, context)


def _frames(window: Window, blocks: Blocks, first: int, last: int, at: int, context: TableContext) -> Frames:
    """Return the blocks `first` to `last`, which are in the window."""
    start, end = blocks.offset[first:last], blocks.ends[first:last]
    if window.offset:
        start, end = start - window.offset, end - window.offset
    head = np.zeros(last - first, HEAD)
    head["kind"], head["size"] = blocks.kind[first:last], blocks.size[first:last]
    head["entry"] = blocks.entry[first:last]
    head["type"] = window.data[end - TRAILER_SIZE]
    head["blocks"] = blocks if blocks.sound and context.comparator == BYTEWISE else None
    return Frames(start, end, head, int(end[-1]) if last > first else at)


_READS = "LevelDB reads the block as it is, or with verify_checksums skips it (Corruption: block checksum mismatch)"


def _cut(window: Window, blocks: Blocks, frames: Frames, bad: int, first: int) -> Frames:
    """Return the frames before a bad one, which becomes the damage."""
    start, end = int(frames.start[bad]), int(frames.end[bad])
    kind, size = index.KIND_NAMES[int(frames.header["kind"][bad])], int(frames.header["size"][bad])
    stored, computed = load_u32le(window.data, end - 4), block_crc(window.data, start, size)
    text = f"block checksum mismatch: the {kind} block stores {stored:#010x}, computed {computed:#010x}"
    rows_lost, lost = _lost(blocks, first + bad)
    offset = window.offset + start
    frames = frames.pick(slice(0, bad))
    frames.stop, frames.damage = (
        start,
        Fault(index.NAME, offset, end - start, Kind.CHECKSUM, text, Severity.ERROR, _READS, rows_lost, lost),
    )
    return frames


def _at_footer(window: Window, blocks: Blocks, frames: Frames) -> None:
    """Set the faults of the footer after the last block, once it is in the window."""
    if window.final:
        frames.faults = blocks.faults
    else:
        frames.need = window.size - window.offset - frames.stop


def _lost(blocks: Blocks, i: int) -> tuple[int | None, dict[str, str]]:
    """Return what is lost with a block: the number of rows, if it is known, and its key range by the index."""
    if blocks.kind[i] != index.DATA:
        return 0, {}
    n = int(blocks.entry[i])
    if n < 0:
        return None, {}
    return None, key_range(blocks.keys[n - 1][:-KEY_TRAILER] if n else None, blocks.keys[n][:-KEY_TRAILER])


def _gap(window: Window, blocks: Blocks, place: int, following: int) -> Fault:
    """Return the fault of bytes that belong to no block, before the block `following`."""
    known = following < len(blocks.offset)
    stop = int(blocks.offset[following]) if known else blocks.stop
    length = max(min(stop, window.size) - place, 0)
    if blocks.unsupported:
        system = "LevelDB reads nothing of the table"
        return Fault(
            index.NAME, place, length, Kind.UNSUPPORTED, blocks.unsupported, Severity.WARNING, system
        )
    if not known and blocks.stop >= window.size and blocks.faults:
        # There is no footer: the file is truncated.
        fault = blocks.faults[0]
        text = f"{fault.detail}; no complete block with a right checksum is here"
        return Fault(index.NAME, place, length, fault.kind, text, system=fault.system)
    size, named = blocks.wrong.get(place, (-1, index.DATA))
    if size + TRAILER_SIZE == length:
        text = f"block checksum mismatch: the {index.KIND_NAMES[named]} block of {size} bytes"
        rows_lost = None if named == index.DATA else 0
        return Fault(index.NAME, place, length, Kind.CHECKSUM, text, system=_READS, rows_lost=rows_lost)
    text = (
        "no block of the index starts here" if blocks.sound else "no block with a right checksum starts here"
    )
    kind = Kind.LENGTH if blocks.sound else Kind.CHECKSUM
    return Fault(index.NAME, place, length, kind, text, system=_READS)


CODEC = LevelDBTable()
