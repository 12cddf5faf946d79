"""The codec `zookeeper.snapshot`: the tree as a server wrote it down (`snapshot.<zxid>`), plain or compressed.

A frame is a section of the file or a node; a compressed file is one frame. What lies before and behind the nodes is read first
(`sections`, `acl`); nodes are in `node`, what writes them in `encode` and `again`, the digest of the tree in `digest`.
The seals are over all of the file, so they are made before the first row; a wrong one makes all rows suspect.
Source: `FileSnap`, `SnapStream`, `SerializeUtils`, `DataTree` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec import address
from logwright.codec.base import Bytes, Chunk, Decoded, Frames, Match, Window
from logwright.codec.columns import constant, contents, numbers
from logwright.codec.describe import Struct
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.option import Option, Options
from logwright.codec.table import Column, Table
from logwright.codec.zookeeper import again, encode
from logwright.codec.zookeeper.acl import ACLS, texts
from logwright.codec.zookeeper.columns import (
    NODE_COLUMNS,
    ROOT,
    TTLS,
    kind_column,
    kinds_of,
    owner_column,
    ttl_column,
)
from logwright.codec.zookeeper.expand import MAGICS, Expanded, expand
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE, ACL_TYPE, Int64s, binary
from logwright.codec.zookeeper.names import GZIP, SNAPPY, SNAPSHOT, parse
from logwright.codec.zookeeper.node import (
    BAD_DATA,
    BAD_PATH,
    CUT,
    END,
    HEAD,
    LENGTH,
    MESSAGES,
    NEED,
    NODE,
    NODE_MIN,
    TOO_LONG,
    UNLIKELY,
    hop,
    seek,
    stats,
)
from logwright.codec.zookeeper.sections import (
    DIGEST,
    DIGEST_SIZE,
    END_SIZE,
    HEADER,
    HEADER_SIZE,
    LARGEST_ENDING,
    LAST_PROCESSED,
    LAST_SIZE,
    MAGIC,
    SESSIONS,
    Ending,
    Read,
    Shape,
    ending_behind,
)
from logwright.codec.zookeeper.sections import END as ENDING

NAME = "zookeeper.snapshot"

ROWS = Table(
    "rows",
    (
        *NODE_COLUMNS,
        Column(
            "position",
            pa.int64(),
            "byte of the file, decompressed, where the node starts: its row in frames",
            detail=True,
        ),
    ),
    "One row a node, in the order of the file.",
)
SESSION_ROWS = Table(
    "sessions",
    (
        Column("session_id", pa.int64(), "id of an open session", nullable=False),
        Column("timeout", pa.int32(), "milliseconds", nullable=False),
    ),
    "One row a session.",
)
ACL_ROWS = Table(
    "acls",
    (
        Column("acl_id", pa.int64(), "the number that nodes have", nullable=False),
        Column("acl", ACL_TYPE, "the list", nullable=False),
        Column("acl_raw", ACL_RAW_TYPE, "as it is stored, where that is not the text's form", detail=True),
    ),
    "One row a list of the ACL table.",
)
FRAMES = Table(
    "frames",
    (
        Column("position", pa.int64(), "byte of the file where the frame starts", nullable=False),
        Column("size", pa.int64(), "bytes"),
        Column(
            "kind",
            pa.string(),
            "header, sessions, acls, node, end, digest or last_processed; a compressed file is one frame, gzip or snappy",
        ),
        Column("checksum", pa.int64(), "the seal of end, digest and last_processed as it is stored"),
        Column("computed", pa.int64(), "the checksum that the bytes before that seal have", detail=True),
        Column(
            "payload",
            pa.binary(),
            "the frame as it is stored, where it is compressed or not what would be written from the rows and the file table",
            detail=True,
        ),
        Column(
            "raw", pa.binary(), "the bytes of a damaged stretch: the other columns are null then", detail=True
        ),
    ),
    "One row a section or node.",
)
_SESSIONS = pa.list_(pa.struct([pa.field("session_id", pa.int64()), pa.field("timeout", pa.int32())]))
_ACLS = pa.list_(pa.struct([pa.field("acl_id", pa.int64()), pa.field("acl", ACL_RAW_TYPE)]))
FILE = Table(
    "file",
    (
        Column("zxid", pa.int64(), "from the name: the last transaction when the snapshot was begun"),
        Column("size", pa.int64(), "bytes of the file", nullable=False),
        Column("frames", pa.int64(), "good frames", nullable=False),
        Column("compression", pa.string(), "none, gzip or snappy", nullable=False),
        Column("version", pa.int32(), "of the format; null where the header can't be read"),
        Column("dbid", pa.int64(), "-1; null as version"),
        Column("sessions", _SESSIONS, "the open sessions; null where they can't be read"),
        Column("acls", _ACLS, "the ACL table, as it is stored"),
        Column(
            "digest_zxid", pa.int64(), "zxid of the digest; null where the file has none, as the next two"
        ),
        Column("digest_version", pa.int32(), "2"),
        Column("digest", pa.int64(), "digest of the tree after that zxid"),
        Column("last_processed_zxid", pa.int64(), "null where the file has none"),
        Column("trailing", pa.binary(), "what no frame covers at the end", nullable=False),
        Column("trailing_zeros", pa.int64(), "zero bytes after that", nullable=False),
    ),
    "One row.",
)
MAX_DECOMPRESSED = Option(
    "max.decompressed.bytes",
    4 << 30,
    "Bytes that a compressed snapshot may take decompressed; one with more counts as damaged",
    low=1,
    high=1 << 40,
)
OPTIONS = (MAX_DECOMPRESSED, *encode.OPTIONS)

(
    HEADER_FRAME,
    SESSIONS_FRAME,
    ACLS_FRAME,
    NODE_FRAME,
    END_FRAME,
    DIGEST_FRAME,
    LAST_FRAME,
    GZIP_FRAME,
    SNAPPY_FRAME,
) = range(9)
KINDS = ("header", "sessions", "acls", "node", "end", "digest", "last_processed", "gzip", "snappy")
_KINDS = contents(pa.string(), [name.encode() for name in KINDS])
_SEALS = {"end": END_FRAME, "digest": DIGEST_FRAME, "last_processed": LAST_FRAME}
COMPRESSION = {"": "none", GZIP: "gzip", SNAPPY: "snappy"}

PORTION = 32 << 20
"""So many bytes of nodes are decoded at a time, or one node if that is larger."""
_MOST = 20
"""So many numbers of ACLs that are not there are told in a window."""

_NEXT = "the server takes the next older snapshot"
_DANGLING = "each read of the node ends with MarshallingError"


@dataclass
class SnapshotContext:
    """What decoding a snapshot needs to know besides its bytes."""

    options: Options
    zxid: int | None = None
    compression: str = "none"
    shape: Shape | None = None
    expanded: Expanded | None = None
    """What a compressed file holds."""
    inner: SnapshotContext | None = None
    """The context of what it holds."""
    read: Read | None = field(default=None, repr=False)
    size: int = 0

    @property
    def plain(self) -> Shape | None:
        return self.shape if self.inner is None else self.inner.shape


class ZooKeeperSnapshot:
    """The codec. See `logwright.codec.base.Codec`, `Prepares` and `Addresses`."""

    name = NAME
    title = "ZooKeeper snapshot: the tree, its sessions and ACLs"
    structures: tuple[Struct, ...] = (NODE, HEADER, SESSIONS, ACLS, ENDING, DIGEST, LAST_PROCESSED)
    tables: Mapping[str, Table] = {
        "rows": ROWS,
        "frames": FRAMES,
        "file": FILE,
        "sessions": SESSION_ROWS,
        "acls": ACL_ROWS,
    }
    options: tuple[Option, ...] = OPTIONS
    whole = False
    ordered: str | None = None

    def recognise(self, name: str, head: bytes) -> Match:
        found = parse(name)
        named = found is not None and found.kind == SNAPSHOT
        compression = COMPRESSION[found.compression] if found is not None and named else "none"
        fits = head.startswith(MAGICS.get(compression, MAGIC))
        if named:
            return Match.SURE if fits else Match.NAME
        return Match.MAYBE if head.startswith(MAGIC) else Match.NO

    def context(self, name: str, options: Options, **hints: Any) -> SnapshotContext:
        found = parse(name)
        if found is None or found.kind != SNAPSHOT:
            return SnapshotContext(options)
        return SnapshotContext(options, found.zxid, COMPRESSION[found.compression])

    def prepare(self, read: Read, size: int, context: SnapshotContext) -> None:
        context.read, context.size = read, size
        if context.compression == "none":
            context.shape = Shape.of(read, size)

    # Scanning

    def scan(self, window: Window, at: int, context: SnapshotContext, *, check: bool = True) -> Frames:
        if context.read is None:
            _prepare_from(self, window, context)
        if context.compression != "none":
            return self._scan_packed(window, at, context, check)
        return _Scan(window, at, _shape(context), check).run()

    def _scan_packed(self, window: Window, at: int, context: SnapshotContext, check: bool) -> Frames:
        """A compressed file is one frame, wherever it is damaged within: its nodes are found as far as it can be decompressed."""
        place = window.offset + at
        nothing = _frames(window, [], at)
        if place:
            return nothing
        if not window.final:
            nothing.need = window.size
            return nothing
        if not check:
            return _frames(window, [(self._packed_kind(context), 0, window.size)], len(window.data))
        made = self._expand(window, context)
        if not len(made.data):
            text = made.error or "there is nothing in it"
            nothing.damage = Fault(NAME, 0, window.size, made.kind, text, system=_NEXT)
            return nothing
        found = _frames(window, [(self._packed_kind(context), 0, window.size)], len(window.data))
        if made.error:
            found.faults.append(
                Fault(NAME, 0, window.size, made.kind, f"{made.error}: all rows are suspect", system=_NEXT)
            )
        assert context.inner is not None
        found.faults += [_outside(one, window.size) for one in _seal_faults(_shape(context.inner))]
        return found

    def _packed_kind(self, context: SnapshotContext) -> int:
        return GZIP_FRAME if context.compression == "gzip" else SNAPPY_FRAME

    def _expand(self, window: Window, context: SnapshotContext) -> Expanded:
        if context.expanded is None:
            made = context.expanded = expand(
                context.compression, window.data, int(context.options["max.decompressed.bytes"])
            )
            context.inner = SnapshotContext(context.options, context.zxid)
            data = made.data
            self.prepare(lambda offset, length: data[offset : offset + length], len(data), context.inner)
        return context.expanded

    def resync(self, window: Window, at: int, context: SnapshotContext) -> tuple[int, int]:
        if context.compression != "none":
            return -1, 0
        shape = _shape(context)
        place = window.offset + at
        known = [start for start, (_, stop) in shape_frames(shape).items() if start >= place]
        end = shape.end - window.offset
        found = -1
        if end > at:
            found = int(seek(window.data, at, end, shape.acls.known_ids, int(shape.ending is None)))
        nearest = min(known, default=window.size) - window.offset
        if nearest < len(window.data) and (found < 0 or nearest <= found):
            return nearest, 0
        if found >= 0:
            return found, 0
        # A record that is not whole in the window is looked for again.
        return -1, min(max(len(window.data) - at - 1, 0), _longest(len(window.data)))

    # Decoding

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: SnapshotContext
    ) -> Iterator[Decoded]:
        if table == "frames":
            yield from _decode_frames(window, frames, columns, context)
            return
        if context.compression != "none":
            yield from self._decode_packed(window, frames, table, columns, context)
            return
        shape = _shape(context)
        kinds = frames.header["kind"]
        if table == "sessions":
            if (kinds == SESSIONS_FRAME).any():
                yield _batch(SESSION_ROWS, columns, _session_arrays(shape))
        elif table == "acls":
            if (kinds == ACLS_FRAME).any():
                yield _batch(ACL_ROWS, columns, _acl_arrays(shape))
        else:
            nodes = frames.pick(kinds == NODE_FRAME)
            for part in portions(nodes):
                made = _Nodes(window, part, shape)
                yield _rows(made, columns)

    def _decode_packed(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: SnapshotContext
    ) -> Iterator[Decoded]:
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
            found = self.scan(within, at, context.inner, check=False)
            gone = context.expanded.touched(found.start, found.end)
            if gone.any():
                start = int(found.start[gone][0])
                text = "what was here is lost with its chunk"
                holes.append(
                    Fault(NAME, start, int(found.end[gone][-1]) - start, Kind.PAYLOAD, text, system=_NEXT)
                )
                found = found.pick(~gone)
            yield from self.decode(within, found, table, columns, context.inner)
            if found.damage is None:
                break
            holes.append(found.damage)
            place, _ = self.resync(within, found.stop + 1, context.inner)
            if place < 0:
                break
            at = place
        if holes and table == "rows":
            empty = pa.RecordBatch.from_pylist([], schema=ROWS.schema(columns))
            more = f", and {len(holes) - 1} more such places" if len(holes) > 1 else ""
            fault = _outside(holes[0], window.size)
            text = f"{fault.detail}{more}"
            yield Decoded(
                empty, [(0, Fault(NAME, 0, window.size, fault.kind, text, fault.severity, fault.system))]
            )

    def describe_file(
        self, head: Window, size: int, frames: int, tail: bytes, zeros: int, context: SnapshotContext
    ) -> pa.RecordBatch:
        return _describe(size, frames, tail, zeros, context)

    def frame_bounds(self, frames: Frames, column: str) -> tuple[Any, Any]:
        return None, None

    # Changing and writing

    def field_names(self) -> Sequence[str]:
        return address.names(self.structures)

    def edit(self, frame: bytes, path: address.Path, change: address.Change, *, reseal: bool) -> bytes:
        """See `codec.base.Addresses`. The fields are those of a node."""
        return address.of_codec(self.name, self.structures, frame, path, change, reseal=reseal)

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: SnapshotContext
    ) -> Iterator[Chunk]:
        stored = again.packed_payload(frames)
        if stored is not None and self._says(stored, rows, context):
            yield stored
            return
        yield from again.encode(rows, frames, file, context.options, context.zxid, context.compression)

    def _says(self, stored: bytes, rows: pa.Table, context: SnapshotContext) -> bool:
        """Whether a compressed file that was kept holds just these rows."""
        fresh = SnapshotContext(context.options, context.zxid, context.compression)
        window = Window(np.frombuffer(stored, np.uint8), 0, len(stored))
        names = [name for name in rows.column_names if name in ROWS.names(detail=True)]
        found = self.scan(window, 0, fresh)
        batches = [one.batch for one in self.decode(window, found, "rows", names, fresh)]
        made = pa.Table.from_batches(batches, ROWS.schema(names))
        return bool(made.equals(rows.select(names).cast(made.schema)))


def _shape(context: SnapshotContext) -> Shape:
    assert context.shape is not None
    return context.shape


def _prepare_from(codec: ZooKeeperSnapshot, window: Window, context: SnapshotContext) -> None:
    """Of what was not walked over: all there is of the file is in the window."""

    def read(offset: int, length: int) -> Bytes:
        low = max(offset - window.offset, 0)
        return window.data[low : max(offset - window.offset + length, 0)]

    codec.prepare(read, window.size, context)


def _longest(size: int) -> int:
    """Of a window in which no record was found: so many of its last bytes may belong to one."""
    return max(size // 2, NODE_MIN)


def shape_frames(shape: Shape) -> dict[int, tuple[int, int]]:
    """The sections that could be read: by place their kind and end."""
    out: dict[int, tuple[int, int]] = {}
    if shape.header is not None:
        out[0] = HEADER_FRAME, HEADER_SIZE
    if shape.sessions is not None and shape.acls_at is not None:
        out[HEADER_SIZE] = SESSIONS_FRAME, shape.acls_at
        if shape.nodes is not None:
            out[shape.acls_at] = ACLS_FRAME, shape.nodes
    ending = shape.ending or shape.behind
    for seal in ending.seals if ending is not None else ():
        out[seal.start] = _SEALS[seal.name], seal.stop
    return out


class _Scan:
    """One scan of a plain file."""

    def __init__(self, window: Window, at: int, shape: Shape, check: bool) -> None:
        self.window, self.at, self.shape, self.check = window, at, shape, check
        self.sections = shape_frames(shape)
        self.found: list[tuple[int, int, int]] = []
        self.nodes: list[tuple[Int64s, Int64s, npt.NDArray[Any]]] = []
        self.faults: list[Fault] = []

    def run(self) -> Frames:
        if self.check and not self.window.offset + self.at:
            self.faults += _seal_faults(self.shape)
        need, damage = self._run()
        made = _frames(self.window, [], self.at)
        if self.nodes:
            made.start = np.concatenate([one[0] for one in self.nodes])
            made.end = np.concatenate([one[1] for one in self.nodes])
            made.header = np.concatenate([one[2] for one in self.nodes])
        made.stop, made.need, made.damage, made.faults = self.at, need, damage, self.faults
        return made

    def _run(self) -> tuple[int, Fault | None]:
        window, shape = self.window, self.shape
        size = len(window.data)
        while True:
            place = window.offset + self.at
            if place >= window.size and window.size:
                return 0, self._unfinished(place)
            section = self.sections.get(place)
            if section is not None:
                kind, stop = section
                if stop - window.offset > size:
                    return stop - place, None
                self._add(np.array([self.at]), np.array([stop - window.offset]), _head(kind))
                self.at = stop - window.offset
                continue
            bad = self._head_damage(place)
            if bad is not None:
                return 0, bad
            ending = shape.ending or shape.behind
            if ending is not None and place >= ending.end:
                return 0, self._leftover(place)
            status, need = self._hop()
            place = window.offset + self.at
            if status == NEED:
                return need, None
            if status == END and shape.ending is None:
                need, damage = self._meet_end(place)
                if need or damage is not None:
                    return need, damage
            elif status != END and status:
                return 0, self._damage(place, status)

    def _add(self, start: Int64s, end: Int64s, head: npt.NDArray[Any]) -> None:
        self.nodes.append((start, end, head))

    def _hop(self) -> tuple[int, int]:
        window, shape = self.window, self.shape
        room = (len(window.data) - self.at) // NODE_MIN + 1
        starts, acls = np.empty(room, np.int64), np.empty(room, np.int64)
        paths, data = np.empty(room, np.int32), np.empty(room, np.int32)
        first = -1 if shape.nodes is None else shape.nodes - window.offset
        ids = shape.acls.known_ids
        count, stop, status, need = hop(
            window.data,
            self.at,
            shape.end - window.offset,
            first,
            int(self.check),
            ids,
            int(shape.ending is None),
            starts,
            paths,
            data,
            acls,
        )
        if count:
            head = np.zeros(count, HEAD)
            head["kind"], head["path"], head["data"], head["acl"] = (
                NODE_FRAME,
                paths[:count],
                data[:count],
                acls[:count],
            )
            starts = starts[:count].copy()
            self._add(starts, np.append(starts[1:], stop), head)
            if self.check:
                self._dangling(starts, np.append(starts[1:], stop), acls[:count])
        self.at = int(stop)
        return int(status), int(need)

    def _dangling(self, starts: Int64s, ends: Int64s, acls: Int64s) -> None:
        """One finding for each number that the table does not have."""
        if self.shape.nodes is None:
            return  # the table is damaged: it is no news that lists are missing
        places = self.shape.acls.places(acls)
        if (places >= 0).all():
            return
        missing = np.flatnonzero(places < 0)
        ids, first, count = np.unique(acls[missing], return_index=True, return_counts=True)
        for k in np.argsort(first)[:_MOST].tolist():
            i = int(missing[first[k]])
            at, length = self.window.offset + int(starts[i]), int(ends[i] - starts[i])
            text = f"ACL {int(ids[k])} of the node is not in the ACL table"
            if count[k] > 1:
                text += f", nor is it for {int(count[k]) - 1} nodes behind it"
            self.faults.append(Fault(NAME, at, length, Kind.LINK, text, Severity.WARNING, _DANGLING))

    def _meet_end(self, place: int) -> tuple[int, Fault | None]:
        """At an end mark in a file that does not end as a snapshot does."""
        window = self.window
        wanted = min(LARGEST_ENDING, window.size - place)
        if len(window.data) - self.at < wanted:
            return wanted, None
        found = ending_behind(window.data[self.at : self.at + wanted].tobytes(), place)
        if found is None:
            if wanted < END_SIZE:
                text = f"the tree ends here, and its seal does not follow: {wanted} bytes are left"
                return 0, Fault(NAME, place, wanted, Kind.TRUNCATED, text, system=_NEXT)
            text = "the tree ends here, and what follows is no seal"
            return 0, Fault(NAME, place, END_SIZE, Kind.PAYLOAD, text, system=_NEXT)
        self.shape.behind = found
        self.sections = shape_frames(self.shape)
        return 0, None

    def _head_damage(self, place: int) -> Fault | None:
        """What is wrong where a section before the nodes should be."""
        shape, left = self.shape, self.window.size - place
        if place == 0 and shape.header is None:
            if left < HEADER_SIZE:
                text = f"{left} bytes are no header, which takes {HEADER_SIZE}"
                return Fault(NAME, 0, left, Kind.TRUNCATED, text, system=_NEXT)
            text = "the file does not begin with ZKSN: mismatching magic headers"
            return Fault(NAME, 0, HEADER_SIZE, Kind.MAGIC, text, system=_NEXT)
        if place == HEADER_SIZE and shape.sessions is None:
            kind, text = Kind.LENGTH, "the number of sessions can't be: there are not so many bytes"
            return Fault(NAME, place, min(left, LENGTH), kind, text, system=_NEXT)
        if place == shape.acls_at and shape.nodes is None:
            text = f"the ACL table can't be read to its end, {len(shape.acls.ids)} of its lists could"
            return Fault(NAME, place, min(left, LENGTH), Kind.PAYLOAD, text, system=_NEXT)
        return None

    def _damage(self, place: int, status: int) -> Fault:
        left = self.window.size - place
        kind = {
            BAD_PATH: Kind.LENGTH,
            BAD_DATA: Kind.LENGTH,
            TOO_LONG: Kind.LENGTH,
            UNLIKELY: Kind.PAYLOAD,
            CUT: Kind.TRUNCATED,
        }[status]
        return Fault(NAME, place, min(left, NODE_MIN), kind, MESSAGES[status], system=_NEXT)

    def _unfinished(self, place: int) -> Fault | None:
        """At the end of the file: all is well where an ending was met."""
        ending = self.shape.ending or self.shape.behind
        if ending is not None:
            return None
        return Fault(NAME, place, 0, Kind.TRUNCATED, "the file ends before its tree does", system=_NEXT)

    def _leftover(self, place: int) -> Fault:
        left = self.window.size - place
        system = "the server asks that the file end with a seal: it takes the next older snapshot"
        if left < DIGEST_SIZE + LAST_SIZE:
            text, kind = f"the file ends within a section: {left} bytes of it are left", Kind.TRUNCATED
        else:
            text, kind = f"{left} bytes behind the last section", Kind.PADDING
        return Fault(NAME, place, left, kind, text, Severity.WARNING, system)


def _seal_faults(shape: Shape) -> list[Fault]:
    """What the seals say of the whole file."""
    size = shape.size
    if not size:
        return []
    if shape.ending is None:
        text = "the file does not end with a seal: nothing vouches for its nodes, all rows are suspect"
        return [
            Fault(
                NAME, 0, size, Kind.TRUNCATED, text, system=f"it is no candidate for the server: {_NEXT[4:]}"
            )
        ]
    faults = []
    for one in shape.wrong():
        seal = one.seal
        text = f"the seal at byte {seal.at} says {seal.stored:#010x}, the bytes before it have {one.computed:#010x}"
        if one.itself:
            text += ": the seal itself is damaged, since the next one is right"
        elif one.start:
            text += ": the seal before it is right, and so are the rows"
        else:
            text += ": all rows are suspect"
        length = seal.stop - one.start
        faults.append(Fault(NAME, one.start, length, Kind.CHECKSUM, text, system=f"CRC corruption: {_NEXT}"))
    last = shape.ending.seals[-1]
    if last.mark != b"/":
        text = f"the file ends with {last.mark!r}, not with '/'"
        system = f"it is no candidate for the server: {_NEXT}"
        faults.append(Fault(NAME, last.stop - 1, 1, Kind.PAYLOAD, text, system=system))
    return faults


def _outside(fault: Fault, size: int) -> Fault:
    """A fault within a compressed file as one of the file."""
    text = f"{fault.detail} (byte {fault.offset} of what is decompressed)"
    return Fault(NAME, 0, size, fault.kind, text, fault.severity, fault.system)


def _head(kind: int) -> npt.NDArray[Any]:
    made = np.zeros(1, HEAD)
    made["kind"] = kind
    return made


def _frames(window: Window, found: list[tuple[int, int, int]], stop: int) -> Frames:
    """Frames given as (kind, start, end)."""
    head = np.zeros(len(found), HEAD)
    head["kind"] = [one[0] for one in found]
    start = np.array([one[1] for one in found], np.int64)
    return Frames(start, np.array([one[2] for one in found], np.int64), head, stop)


# Rows


def portions(frames: Frames) -> Iterator[Frames]:
    """Parts of the frames of bounded size."""
    ends = np.cumsum(frames.end - frames.start)
    at = 0
    while at < len(frames):
        below = int(ends[at - 1]) if at else 0
        stop = max(at + 1, int(np.searchsorted(ends, below + PORTION, "right")))
        yield frames.pick(slice(at, stop))
        at = stop


class _Nodes:
    """Some nodes, their columns made when they are asked for."""

    def __init__(self, window: Window, frames: Frames, shape: Shape) -> None:
        self.window, self.frames, self.shape = window, frames, shape
        self.paths = np.ascontiguousarray(frames.header["path"])
        self.data = np.ascontiguousarray(frames.header["data"])
        self.acls = np.ascontiguousarray(frames.header["acl"])

    def __len__(self) -> int:
        return len(self.frames)

    @cached_property
    def stats(self) -> dict[str, Int64s]:
        names = ("czxid", "mzxid", "ctime", "mtime", "version", "cversion", "aversion", "owner", "pzxid")
        made = {name: np.empty(len(self), np.int64) for name in names}
        stats(self.window.data, self.frames.start, self.paths, self.data, *made.values())
        return made

    @cached_property
    def stored_path(self) -> pa.Array:
        return binary(self.window.data, self.frames.start + LENGTH, self.paths.astype(np.int64))

    @cached_property
    def text_path(self) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        return texts(self.stored_path)

    @cached_property
    def kinds(self) -> Int64s:
        return kinds_of(self.stats["owner"])

    @cached_property
    def lists(self) -> Int64s:
        return self.shape.acls.places(self.acls)

    def path(self) -> pa.Array:
        made = self.text_path[0]
        roots = np.flatnonzero(self.paths == 0)
        if not len(roots):
            return made
        parts, at = [], 0
        for i in roots.tolist():
            parts += [made.slice(at, i - at), contents(pa.string(), [ROOT.encode()])]
            at = i + 1
        return pa.concat_arrays([*parts, made.slice(at)])

    def acl(self, lists: pa.Array) -> pa.Array:
        if not len(self):
            return lists.slice(0, 0)
        place = int(self.lists[0])
        if place >= 0 and (self.lists == place).all():
            return _tiled(lists, place, len(self))
        return lists.take(numbers(pa.int64(), np.maximum(self.lists, 0), self.lists < 0))

    def column(self, name: str) -> pa.Array:
        kind = ROWS[name].type
        if name == "path":
            return self.path()
        if name == "data":
            at = self.frames.start + 2 * LENGTH + self.paths
            return binary(self.window.data, at, self.data.astype(np.int64))
        if name == "acl":
            return self.acl(self.shape.acls.text[0])
        if name == "acl_raw":
            wrong = self.shape.acls.text[1]
            places = np.where(self.lists >= 0, self.lists, 0)
            none = (self.lists < 0) | ~wrong[places]
            if none.all():
                return pa.nulls(len(self), kind)
            return self.shape.acls.raw.take(numbers(pa.int64(), places, none))
        if name == "path_raw":
            wrong = self.text_path[1]
            if not wrong.any():
                return pa.nulls(len(self), kind)
            return self.stored_path.take(numbers(pa.int64(), np.arange(len(self)), ~wrong))
        if name == "data_length":
            return numbers(kind, np.maximum(self.data, 0))
        if name == "acl_id":
            return numbers(kind, self.acls)
        if name == "position":
            return numbers(kind, self.frames.start + self.window.offset)
        if name == "kind":
            if not self.stats["owner"].any():
                return constant(kind, "persistent", len(self))
            return kind_column(self.kinds)
        if name == "ttl":
            if not (self.kinds == TTLS).any():
                return pa.nulls(len(self), kind)
            return ttl_column(self.stats["owner"], self.kinds)
        if name == "ephemeral_owner":
            return owner_column(self.stats["owner"], self.kinds)
        stored = {"stored_cversion": "cversion", "ctime_ms": "ctime", "mtime_ms": "mtime"}.get(name, name)
        values = self.stats[stored]
        return numbers(kind, values if kind.bit_width == 64 else values.astype(np.int32))


def _tiled(lists: pa.Array, place: int, rows: int) -> pa.Array:
    """The same list in each row."""
    one = lists.slice(place, 1).flatten()
    entries = one.take(numbers(pa.int64(), np.tile(np.arange(len(one)), rows))) if len(one) != 1 else None
    if entries is None:
        parts = [constant(part.type, part[0].as_py(), rows) for part in one.flatten()]
        entries = pa.StructArray.from_arrays(parts, fields=list(lists.type.value_type))
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(one))
    return pa.ListArray.from_arrays(numbers(pa.int32(), ends), entries)


def _rows(nodes: _Nodes, columns: Sequence[str]) -> Decoded:
    schema = ROWS.schema(columns)
    if not columns:
        return Decoded(pa.RecordBatch.from_struct_array(pa.nulls(len(nodes), pa.struct([]))))
    return Decoded(pa.RecordBatch.from_arrays([nodes.column(name) for name in columns], schema=schema))


def _batch(table: Table, columns: Sequence[str], arrays: Mapping[str, pa.Array]) -> Decoded:
    return Decoded(
        pa.RecordBatch.from_arrays([arrays[name] for name in columns], schema=table.schema(columns))
    )


def _session_arrays(shape: Shape) -> dict[str, pa.Array]:
    assert shape.sessions is not None
    return {
        "session_id": numbers(pa.int64(), shape.sessions["id"].astype(np.int64)),
        "timeout": numbers(pa.int32(), shape.sessions["timeout"].astype(np.int32)),
    }


def _acl_arrays(shape: Shape) -> dict[str, pa.Array]:
    """In the order of the file, with numbers that come twice."""
    table = shape.acls
    places = numbers(pa.int64(), table.places(table.ids))
    text, wrong = table.text
    return {
        "acl_id": numbers(pa.int64(), table.ids),
        "acl": text.take(places),
        "acl_raw": table.raw.take(numbers(pa.int64(), table.places(table.ids), ~wrong[np.asarray(places)])),
    }


# Frames and file


def _decode_frames(
    window: Window, frames: Frames, columns: Sequence[str], context: SnapshotContext
) -> Iterator[Decoded]:
    schema = FRAMES.schema(columns)
    if not columns:
        yield Decoded(pa.RecordBatch.from_struct_array(pa.nulls(len(frames), pa.struct([]))))
        return
    arrays = [_frame_column(name, FRAMES[name].type, window, frames, context) for name in columns]
    yield Decoded(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _frame_column(
    name: str, kind: pa.DataType, window: Window, frames: Frames, context: SnapshotContext
) -> pa.Array:
    kinds = frames.header["kind"].astype(np.int64)
    if name == "position":
        return numbers(kind, frames.start + window.offset)
    if name == "size":
        return numbers(kind, frames.end - frames.start)
    if name == "kind":
        return _KINDS.take(numbers(pa.int64(), kinds))
    if name == "raw":
        return pa.nulls(len(frames), kind)
    special = np.flatnonzero(kinds != NODE_FRAME).tolist()
    if not special:
        return pa.nulls(len(frames), kind)
    if name == "payload":
        out: list[bytes | None] = [None] * len(frames)
        for i in special:
            stored = window.data[int(frames.start[i]) : int(frames.end[i])].tobytes()
            out[i] = None if _comes_again(int(kinds[i]), stored, context) else stored
        return contents(kind, out)
    shape = context.shape
    ending = None if shape is None else shape.ending or shape.behind
    values, null = np.zeros(len(frames), np.int64), np.ones(len(frames), np.bool_)
    for i in special:
        seal = None
        if ending is not None:
            at = window.offset + int(frames.start[i])
            seal = next((one for one in ending.seals if one.start == at), None)
        if seal is not None and shape is not None:
            null[i] = False
            if name == "checksum":
                values[i] = seal.stored
            else:
                values[i] = shape.sums_of(ending)[ending.seals.index(seal)]  # type: ignore[arg-type, union-attr]
    return numbers(kind, values, null)


def _comes_again(kind: int, stored: bytes, context: SnapshotContext) -> bool:
    """Whether the file table alone gives a section."""
    shape = context.shape
    if shape is None or kind in (GZIP_FRAME, SNAPPY_FRAME):
        return False
    if kind == HEADER_FRAME:
        return True
    if kind == SESSIONS_FRAME:
        return encode.sessions_bytes(_described_sessions(shape) or []) == stored
    if kind == ACLS_FRAME:
        return encode.acls_bytes(_described_acls(shape)) == stored
    ending: Ending | None = shape.ending or shape.behind
    assert ending is not None
    seal = next(one for one in ending.seals if _SEALS[one.name] == kind)
    right = dict(zip((one.at for one in ending.seals), shape.sums_of(ending), strict=True))[seal.at]
    return seal.mark == b"/" and right == seal.stored


def _described_sessions(shape: Shape) -> list[dict[str, int]] | None:
    if shape.sessions is None:
        return None
    return [
        {"session_id": number, "timeout": timeout}
        for number, timeout in zip(
            shape.sessions["id"].tolist(), shape.sessions["timeout"].tolist(), strict=True
        )
    ]


def _described_acls(shape: Shape) -> pa.Array:
    """The ACL table as the file table has it: a list of one row."""
    entries = pa.StructArray.from_arrays(
        [numbers(pa.int64(), shape.acls.ids), shape.acls.lists], fields=list(_ACLS.value_type)
    )
    ends = np.array([0, len(entries)], np.int32)
    return pa.ListArray.from_arrays(numbers(pa.int32(), ends), entries)


def _describe(size: int, frames: int, tail: bytes, zeros: int, context: SnapshotContext) -> pa.RecordBatch:
    shape = context.plain
    row: dict[str, Any] = {
        "zxid": context.zxid,
        "size": size,
        "frames": frames,
        "compression": context.compression,
        "trailing": tail,
        "trailing_zeros": zeros,
    }
    acls = pa.nulls(1, _ACLS)
    if shape is not None:
        row |= shape.header or {}
        row["sessions"] = _described_sessions(shape)
        acls = _described_acls(shape)
        row |= _ending_facts(shape)
    arrays = [acls if one.name == "acls" else pa.array([row.get(one.name)], one.type) for one in FILE.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=FILE.schema(FILE.names(detail=True)))


def _ending_facts(shape: Shape) -> dict[str, int]:
    ending = shape.ending or shape.behind
    out: dict[str, int] = {}
    if ending is None:
        return out
    data = shape.read(ending.end, ending.stop - ending.end).tobytes()
    if ending.digest is not None:
        found, _ = DIGEST.unpack(data, ending.digest - ending.end)
        out["digest_zxid"] = found["zxid"]
        out |= {name: found[name] for name in ("digest_version", "digest")}
    if ending.last is not None:
        found, _ = LAST_PROCESSED.unpack(data, ending.last - ending.end)
        out["last_processed_zxid"] = found["last_processed_zxid"]
    return out


CODEC = ZooKeeperSnapshot()
