"""The codec `zookeeper.snapshot`: the tree as a server wrote it to disk (`snapshot.<zxid>`), plain or compressed.

A frame is a section of the file or a node; a compressed file is one frame. The sections before and after the nodes are read first
(`sections`, `acl`). `layout` describes nodes, `scan` finds frames, `rows` and `frames` make columns. A snapshot is written by `write`,
`pack` and `reencode`. The seals cover the whole file, so they are verified before the first row; if one is wrong, all rows are suspect.

Source: `FileSnap`, `SnapStream`, `SerializeUtils`, `DataTree` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import address, plural
from logwright.codec.base import Codec, Match, ProvedPart
from logwright.codec.explain import Focus, Node
from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.codec.option import DECODES, ENCODES, Option, Options, Verb, used_by
from logwright.codec.table import Table
from logwright.codec.window import Bytes, Chunk, Decoded, Frames, RowFrames, Window
from logwright.codec.zookeeper.formats.explain import name_flip, packed_of, snapshot_of
from logwright.codec.zookeeper.formats.snapshot import reencode
from logwright.codec.zookeeper.formats.snapshot import write as encode
from logwright.codec.zookeeper.formats.snapshot.acl import ACLS
from logwright.codec.zookeeper.formats.snapshot.expand import MAGICS, Expanded, after_content, expand
from logwright.codec.zookeeper.formats.snapshot.frames import SnapshotContext, decode_frames, describe
from logwright.codec.zookeeper.formats.snapshot.layout import NODE, NODE_MIN, seek
from logwright.codec.zookeeper.formats.snapshot.packed_suspects import flip_of_packed, part_of_gzip
from logwright.codec.zookeeper.formats.snapshot.rows import (
    PORTION,
    Nodes,
    acl_arrays,
    node_rows,
    record_arrays,
    session_arrays,
)
from logwright.codec.zookeeper.formats.snapshot.scan import (
    NEXT,
    Scan,
    frames_of,
    outside,
    seal_faults,
    sections_of,
)
from logwright.codec.zookeeper.formats.snapshot.sections import (
    DIGEST,
    HEADER,
    LAST_PROCESSED,
    MAGIC,
    SESSIONS,
    Read,
    Shape,
    struct_of,
)
from logwright.codec.zookeeper.formats.snapshot.sections import END as ENDING
from logwright.codec.zookeeper.formats.snapshot.sections import SNAPSHOT as PLAIN
from logwright.codec.zookeeper.formats.snapshot.suspects import flip_of
from logwright.codec.zookeeper.formats.snapshot.tables import (
    ACL_ROWS,
    ACLS_FRAME,
    COMPRESSION,
    FILE,
    FRAMES,
    GZIP_FRAME,
    NAME,
    NODE_FRAME,
    RECORDS,
    ROWS,
    SESSION_ROWS,
    SESSIONS_FRAME,
    SNAPPY_FRAME,
)
from logwright.codec.zookeeper.formats.version1 import VERSION_1, is_old_snapshot, refused
from logwright.codec.zookeeper.names import PRINTED, SNAPSHOT, parse
from logwright.codec.zookeeper.store.selection import (
    ROW_OPTIONS,
    check_latest,
    check_time,
    prefix_of,
    select_nodes,
)

MAX_DECOMPRESSED = Option(
    "max.decompressed.bytes",
    4 << 30,
    "Bytes that a compressed snapshot may take decompressed; one with more is treated as damaged",
    low=1,
    high=1 << 40,
)
OPTIONS = (
    *used_by({*DECODES, Verb.WRITE} - {Verb.DIFF}, MAX_DECOMPRESSED),
    *used_by(ENCODES, *(option for option in encode.OPTIONS if option is not encode.SESSION_TIMEOUT)),
    *used_by({Verb.WRITE}, encode.SESSION_TIMEOUT),
    *ROW_OPTIONS,
)


class ZooKeeperSnapshot(Codec):
    """The codec of snapshots."""

    name = NAME
    title = "ZooKeeper snapshot: the tree, its sessions and ACLs"
    printed = PRINTED
    structures = (NODE, HEADER, SESSIONS, ACLS, ENDING, DIGEST, LAST_PROCESSED)
    described = (PLAIN, *structures)
    tables: Mapping[str, Table] = {
        "rows": ROWS,
        "frames": FRAMES,
        "file": FILE,
        "sessions": SESSION_ROWS,
        "acls": ACL_ROWS,
        "records": RECORDS,
    }
    options = OPTIONS
    scans_empty = True
    checksum = "Adler-32"

    def recognise(self, name: str, head: bytes) -> Match:
        parsed = parse(name)
        if parsed is None or parsed.kind != SNAPSHOT:
            return Match.of(False, head.startswith(MAGIC))
        return Match.of(True, head.startswith(MAGICS.get(COMPRESSION[parsed.compression], MAGIC)))

    def context(self, name: str, options: Options, **hints: Any) -> SnapshotContext:
        parsed = parse(name)
        may_be_old = hints.pop("directory", "version-2") == VERSION_1
        hints.pop("live", None)
        if hints:
            raise UsageError(f"{self.name}: no hint {sorted(hints)[0]!r}")
        if parsed is None or parsed.kind != SNAPSHOT:
            # A server derives the compression from the file name. Without a name it is detected.
            return SnapshotContext(options, None, COMPRESSION[encode.method(options) or ""])
        return SnapshotContext(options, parsed.zxid, COMPRESSION[parsed.compression], may_be_old=may_be_old)

    def prepare(self, read: Read, size: int, context: SnapshotContext) -> None:
        context.read, context.size = read, size
        if context.compression == "none":
            head = read(0, min(size, 4096)).tobytes()
            if context.may_be_old and not head.startswith(MAGIC) and is_old_snapshot(head):
                raise refused("this snapshot")
            context.shape = Shape.of(read, size)

    # Scanning

    def scan(self, window: Window, at: int, context: SnapshotContext, *, check: bool = True) -> Frames:
        if context.read is None:
            _prepare_from(self, window, context)
        if context.compression != "none":
            return self._scan_packed(window, at, context, check)
        return Scan(window, at, _shape(context), check, context.zxid, seals=context.seals).run()

    def _scan_packed(self, window: Window, at: int, context: SnapshotContext, check: bool) -> Frames:
        """Scan a compressed file. It is one frame even if it is damaged: its nodes are found as far as it can be decompressed."""
        place = window.offset + at
        nothing = frames_of([], at)
        if place:
            return nothing
        if not window.final:
            nothing.need = window.size
            return nothing
        kind = GZIP_FRAME if context.compression == "gzip" else SNAPPY_FRAME
        frames = frames_of([(kind, 0, window.size)], len(window.data))
        if not check:
            return frames
        expanded = self._expand(window, context)
        if not len(expanded.data):
            text = expanded.error or "the file is empty"
            nothing.damage = Fault(NAME, 0, window.size, expanded.kind, text, system=NEXT)
            return nothing
        assert context.inner is not None
        inside = seal_faults(_shape(context.inner))
        if expanded.error:
            effect = "the checksum of the tree is right, and so are the rows"
            text = f"{expanded.error}: {'all rows are suspect' if inside else effect}"
            frames.faults.append(Fault(NAME, 0, window.size, expanded.kind, text, system=NEXT))
        elif left := after_content(context.compression, window.data, expanded.data):
            text = f"{plural.count(left, 'byte')} after the compressed tree"
            system = "the server ignores them"
            at = window.size - left
            frames.faults.append(Fault(NAME, at, left, Kind.PADDING, text, Severity.WARNING, system))
        frames.faults += [outside(fault, window.size) for fault in inside]
        return frames

    def _expand(self, window: Window, context: SnapshotContext) -> Expanded:
        if context.expanded is None:
            limit = int(context.options["max.decompressed.bytes"])
            context.expanded = expand(context.compression, window.data, limit)
            data, context.inner = context.expanded.data, SnapshotContext(context.options, context.zxid)
            self.prepare(lambda offset, length: data[offset : offset + length], len(data), context.inner)
        return context.expanded

    def is_independent(self, context: SnapshotContext) -> bool:
        # Where the nodes end is known before the first scan, unless the file is damaged.
        return context.shape is not None and context.shape.ending is not None

    def resync(self, window: Window, at: int, context: SnapshotContext) -> tuple[int, int]:
        if context.compression != "none":
            return -1, 0
        shape = _shape(context)
        place = window.offset + at
        known = [start for start, (_, stop) in sections_of(shape).items() if start >= place]
        end, ids = shape.end - window.offset, shape.acls.known_ids
        candidate = int(seek(window.data, at, end, ids, int(shape.nodes is not None)))
        nearest = min(known, default=window.size) - window.offset
        if nearest < len(window.data) and (candidate < 0 or nearest <= candidate):
            return nearest, 0
        if candidate >= 0:
            return candidate, 0
        # A record may begin in the last bytes of the window, and not fit into it.
        size = len(window.data)
        return -1, min(max(size - at - 1, 0), max(size // 2, NODE_MIN))

    def flip_of_file(
        self, read: Read, size: int, context: SnapshotContext
    ) -> tuple[Fault, int, int, ProvedPart] | None:
        find = flip_of if context.compression == "none" else flip_of_packed
        flip = find(self, read, size, context)
        if flip is None:
            return None
        (place, bit), proofs = flip
        part = ProvedPart(0, size, "", proofs)
        if context.compression == "gzip":
            part = part_of_gzip(place, size, proofs)
        return Fault(NAME, 0, size, Kind.CHECKSUM, "a bit is flipped", system=NEXT), place, bit, part

    # Decoding

    def checked_columns(self, context: SnapshotContext) -> Sequence[str]:
        """Return no columns: the scan has read every field."""
        return ()

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: SnapshotContext
    ) -> Iterator[Decoded]:
        if table == "frames":
            yield from decode_frames(window, frames, columns, context)
            return
        if context.compression != "none":
            yield from self._decode_packed(window, frames, table, columns, context)
            return
        shape = _shape(context)
        at = context.options["at_zxid"]
        if table == "rows" and at is not None:
            check_time(at, context.zxid, shape)
        kinds = frames.header["kind"]
        if table == "sessions":
            if (kinds == SESSIONS_FRAME).any():
                yield _batch(SESSION_ROWS, columns, session_arrays(shape))
        elif table == "acls":
            if (kinds == ACLS_FRAME).any():
                yield _batch(ACL_ROWS, columns, acl_arrays(shape))
        else:
            for part in _nodes_of(frames).portions(PORTION):
                if table == "records":
                    yield _batch(RECORDS, columns, record_arrays(window, part))
                else:
                    yield _selected(Nodes(window, part, shape), columns, context)

    def _decode_packed(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: SnapshotContext
    ) -> Iterator[Decoded]:
        for inner in self._inside(window, frames, context):
            yield from self.decode(inner.window, inner.frames, table, columns, inner.context)
            if table in ("rows", "records"):
                empty = pa.RecordBatch.from_pylist([], schema=self.tables[table].schema(columns))
                yield from (Decoded(empty, [(0, fault)]) for fault in inner.faults)

    def row_frames(self, window: Window, frames: Frames, context: SnapshotContext) -> Iterator[RowFrames]:
        plain = [RowFrames(window, frames, context)]
        for part in plain if context.compression == "none" else self._inside(window, frames, context):
            part.frames = _nodes_of(part.frames)
            yield part

    def _inside(self, window: Window, frames: Frames, context: SnapshotContext) -> Iterator[RowFrames]:
        """Yield the frames within a compressed file; at the end, the regions without frames."""
        if not len(frames):
            return
        self._expand(window, context)
        assert context.inner is not None
        assert context.expanded is not None
        data = context.expanded.data
        within = Window(data, 0, len(data))
        holes: list[Fault] = []
        at = 0
        while True:
            inner = self.scan(within, at, context.inner, check=False)
            gone = context.expanded.touched(inner.start, inner.end)
            if gone.any():
                start = int(inner.start[gone][0])
                text = "the bytes here are lost with their chunk"
                holes.append(
                    Fault(NAME, start, int(inner.end[gone][-1]) - start, Kind.PAYLOAD, text, system=NEXT)
                )
                inner = inner.pick(~gone)
            yield RowFrames(within, inner, context.inner)
            if inner.damage is None:
                break
            holes.append(inner.damage)
            place, _ = self.resync(within, inner.stop + 1, context.inner)
            if place < 0:
                break
            at = place
        if holes:
            more = f", and {len(holes) - 1} more such places" if len(holes) > 1 else ""
            first = outside(holes[0], window.size)
            text = f"{first.detail}{more}"
            outer = Fault(NAME, 0, window.size, first.kind, text, first.severity, first.system)
            yield RowFrames(within, inner.pick(slice(0)), context.inner, [outer])

    def describe_file(
        self, head: Window, size: int, frames: int, tail: bytes, zeros: int, context: SnapshotContext
    ) -> pa.RecordBatch:
        return describe(size, frames, tail, zeros, context)

    def explain(
        self, window: Window, context: SnapshotContext, focus: Focus, *, frame: bool
    ) -> Sequence[Node]:
        if context.read is None:
            _prepare_from(self, window, context)
        if context.compression == "none" or window.offset or not window.final:
            nodes = snapshot_of(window, context.shape, focus, frame=frame)
            if context.read is not None and not context.flips:
                context.flips = [flip_of(self, context.read, context.size, context)]
            for flip in context.flips:
                if flip is not None:
                    name_flip(nodes, window, *flip[0])
            return nodes
        expanded = self._expand(window, context)
        inner = None if context.inner is None else context.inner.shape
        return packed_of(
            window,
            expanded.data.tobytes(),
            inner,
            focus,
            compression=context.compression,
            problem=expanded.error,
        )

    # Editing and writing

    def edit(
        self, frame: bytes, path: address.Path, change: address.Change, *, reseal: bool, context: Any = None
    ) -> bytes:
        """Refuse to recompute a checksum of one frame: a seal covers the whole file."""
        return address.edit(struct_of(frame), frame, path, change, reseal=reseal)

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: SnapshotContext
    ) -> Iterator[Chunk]:
        stored = reencode.packed_payload(frames)
        if stored is not None and self._says(stored, rows, context):
            yield stored
            return
        yield from reencode.encode(rows, frames, file, context.options, context.zxid, context.compression)

    def _says(self, stored: bytes, rows: pa.Table, context: SnapshotContext) -> bool:
        """Return whether a stored compressed file holds exactly these rows."""
        fresh = SnapshotContext(context.options, context.zxid, context.compression)
        window = Window(np.frombuffer(stored, np.uint8), 0, len(stored))
        names = [name for name in rows.column_names if name in ROWS.names(detail=True)]
        frames = self.scan(window, 0, fresh)
        batches = [decoded.batch for decoded in self.decode(window, frames, "rows", names, fresh)]
        table = pa.Table.from_batches(batches, ROWS.schema(names))
        return bool(table.equals(rows.select(names).cast(table.schema)))


def _batch(table: Table, columns: Sequence[str], arrays: Mapping[str, pa.Array]) -> Decoded:
    return Decoded(table.batch(columns, arrays.__getitem__, len(next(iter(arrays.values())))))


def _selected(nodes: Nodes, columns: Sequence[str], context: SnapshotContext) -> Decoded:
    """Return the rows of nodes that the options of the context select."""
    options = context.options
    at = options["at_zxid"]
    if at is not None and len(nodes):
        check_latest(at, max(int(nodes.stats[name].max()) for name in ("czxid", "mzxid", "pzxid")))
    if not prefix_of(options["path_prefix"]):
        return node_rows(nodes, columns)
    return select_nodes(node_rows(nodes, tuple(dict.fromkeys((*columns, "path")))), columns, options)


def _nodes_of(frames: Frames) -> Frames:
    """Return the frames of nodes, without the sections around them."""
    nodes = frames.header["kind"] == NODE_FRAME
    return frames if nodes.all() else frames.pick(nodes)


def _shape(context: SnapshotContext) -> Shape:
    assert context.shape is not None
    return context.shape


def _prepare_from(codec: ZooKeeperSnapshot, window: Window, context: SnapshotContext) -> None:
    """Prepare the context of a window that was not reached by a walk and holds all there is of the file."""

    def read(offset: int, length: int) -> Bytes:
        low = max(offset - window.offset, 0)
        return window.data[low : max(offset - window.offset + length, 0)]

    codec.prepare(read, window.size, context)


CODEC = ZooKeeperSnapshot()
