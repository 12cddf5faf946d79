"""The frames and file tables of a snapshot: with the rows, all that is needed to write it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.columns import contents, numbers
from logwright.codec.option import Options
from logwright.codec.window import Decoded, Frames, Window
from logwright.codec.zookeeper.formats.snapshot import tables
from logwright.codec.zookeeper.formats.snapshot import write as encode
from logwright.codec.zookeeper.formats.snapshot.expand import Expanded
from logwright.codec.zookeeper.formats.snapshot.sections import Read, Shape


@dataclass
class SnapshotContext:
    """The state of decoding a snapshot, apart from its bytes."""

    options: Options
    zxid: int | None = None
    compression: str = "none"
    seals: bool = True
    """Verify the seals before anything else. Otherwise the reader does so after it has read everything (`Shape.add`)."""
    shape: Shape | None = None
    expanded: Expanded | None = None
    """The content of a compressed file."""
    inner: SnapshotContext | None = None
    """The context of that content."""
    read: Read | None = field(default=None, repr=False)
    size: int = 0
    flips: list[Any] = field(default_factory=list)
    """The result of the search for a flipped bit (`suspects`), once it was asked for."""
    may_be_old: bool = False
    """The file may be from a server of 3.0 or older, because it is in version-1."""

    @property
    def plain(self) -> Shape | None:
        return self.shape if self.inner is None else self.inner.shape


def decode_frames(
    window: Window, frames: Frames, columns: Sequence[str], context: SnapshotContext
) -> Iterator[Decoded]:
    yield Decoded(
        tables.FRAMES.batch(columns, lambda name: _frame_column(name, window, frames, context), len(frames))
    )


def _frame_column(name: str, window: Window, frames: Frames, context: SnapshotContext) -> pa.Array:
    kind, kinds = tables.FRAMES[name].type, frames.header["kind"].astype(np.int64)
    if name == "position":
        return numbers(kind, frames.start + window.offset)
    if name == "size":
        return numbers(kind, frames.end - frames.start)
    if name == "kind":
        return tables.KIND_NAMES.take(numbers(pa.int64(), kinds))
    if name == "raw":
        return pa.nulls(len(frames), kind)
    special = np.flatnonzero(kinds != tables.NODE_FRAME).tolist()
    if not special:
        return pa.nulls(len(frames), kind)
    if name == "payload":
        out: list[bytes | None] = [None] * len(frames)
        for i in special:
            stored = window.data[int(frames.start[i]) : int(frames.end[i])].tobytes()
            out[i] = None if _comes_again(int(kinds[i]), stored, context) else stored
        return contents(kind, out)
    shape = context.shape
    values, null = np.zeros(len(frames), np.int64), np.ones(len(frames), np.bool_)
    for seal in () if shape is None else shape.seals:
        for i in np.flatnonzero(frames.start[special] == seal.start - window.offset).tolist():
            null[special[i]] = False
            values[special[i]] = seal.stored if name == "checksum" or shape is None else shape.computed(seal)
    return numbers(kind, values, null)


def _comes_again(kind: int, stored: bytes, context: SnapshotContext) -> bool:
    """Return whether the file table alone yields a section."""
    shape = context.shape
    if shape is None or kind in (tables.GZIP_FRAME, tables.SNAPPY_FRAME):
        return False
    if kind == tables.HEADER_FRAME:
        return True
    if kind == tables.SESSIONS_FRAME:
        return encode.sessions_bytes(_described_sessions(shape) or []) == stored
    if kind == tables.ACLS_FRAME:
        return encode.acls_bytes(_described_acls(shape)) == stored
    seal = next(seal for seal in shape.seals if tables.SEAL_FRAMES[seal.name] == kind)
    return seal.mark == b"/" and shape.computed(seal) == seal.stored


def _described_sessions(shape: Shape) -> list[dict[str, int]] | None:
    if shape.sessions is None:
        return None
    return [{"session_id": number, "timeout": timeout} for number, timeout in shape.sessions.tolist()]


def _described_acls(shape: Shape) -> pa.Array:
    """Return the ACL table as the file table has it: a list of one row."""
    entries = pa.StructArray.from_arrays(
        [numbers(pa.int64(), shape.acls.ids), shape.acls.lists], fields=list(tables.ACLS_TYPE.value_type)
    )
    ends = np.array([0, len(entries)], np.int32)
    return pa.ListArray.from_arrays(numbers(pa.int32(), ends), entries)


def describe(size: int, frames: int, tail: bytes, zeros: int, context: SnapshotContext) -> pa.RecordBatch:
    shape = context.plain
    row: dict[str, Any] = {
        "zxid": context.zxid,
        "size": size,
        "frames": frames,
        "compression": context.compression,
        "trailing": tail,
        "trailing_zeros": zeros,
    }
    acls = pa.nulls(1, tables.ACLS_TYPE)
    if shape is not None:
        row |= shape.header or {}
        row["sessions"] = _described_sessions(shape)
        acls = _described_acls(shape)
        if shape.found_ending is not None:
            row |= shape.found_ending.facts(shape.read)
    arrays = [
        acls if column.name == "acls" else pa.array([row.get(column.name)], column.type)
        for column in tables.FILE.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=tables.FILE.schema(tables.FILE.names(detail=True)))
