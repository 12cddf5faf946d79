"""Repair snapshots: a server takes one completely or not at all, so it is sound, is corrected with certainty, or goes.

If the first seal is right, so are the nodes, whatever is wrong after them. If a seal alone is wrong, the next one shows it. A single flipped
bit is corrected if more than the seals proves it (`formats.snapshot.suspects`). The readable part of other snapshots is a last resort
(`left_of`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pyarrow as pa

from logwright.codec.deferred import compute as pc
from logwright.codec.describe import I64BE
from logwright.codec.engine.correct import Correction
from logwright.codec.engine.repair import OutputFile, Removed
from logwright.codec.fault import Fault, Severity
from logwright.codec.frames.walk import Hole, ListedFile, Stretch, Walk
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Chunk, Frames, Window
from logwright.codec.zookeeper import names
from logwright.codec.zookeeper.formats.snapshot import codec as snapshot
from logwright.codec.zookeeper.formats.snapshot import reencode
from logwright.codec.zookeeper.formats.snapshot.frames import SnapshotContext, describe
from logwright.codec.zookeeper.formats.snapshot.rows import stats_of
from logwright.codec.zookeeper.formats.snapshot.sections import END_MARK, Ending, Seal, Shape
from logwright.codec.zookeeper.formats.snapshot.suspects import flip_of
from logwright.codec.zookeeper.formats.snapshot.tables import GZIP_FRAME, NODE_FRAME, ROWS
from logwright.codec.zookeeper.names import epoch_of, zxid_text
from logwright.codec.zookeeper.store.files import base

LIMITS = (snapshot.MAX_DECOMPRESSED,)
_ZXIDS = ("czxid", "mzxid", "pzxid")
_NOBODY = [{"perms": 0, "scheme": "world", "id": "anyone"}]
NO_DIGESTS = {"digest.enabled": False, "serializeLastProcessedZxid.enabled": False}
"""The options of a snapshot of a tree without a known digest."""
Patches = list[tuple[int, bytes]]
Way = tuple[Patches, int, str]
"""Bytes to write over a file, its new end, and the reason."""


@dataclass
class Snapshot:
    """A snapshot of the survey."""

    file: str
    size: int
    zxid: int
    """The zxid in its name. All transactions up to it are in the tree."""
    pieces: list[Extent] | None
    """The content of the sound or corrected snapshot; None if it is neither."""
    cut: list[Removed] = field(default_factory=list)
    until: int = 0
    """Transactions up to this one may be in it too, because they were made while it was written."""
    rows: int = 0
    name: str = ""
    """Its name in the result."""
    why: str = ""
    """The damage, as text."""
    held: int | None = None
    """The zxid that the tree itself stores as its last one."""

    @property
    def sound(self) -> bool:
        return self.pieces is not None

    @property
    def content(self) -> int:
        """The last transaction in the tree: the one in its name, or an earlier one that the tree stores."""
        return self.zxid if self.held is None else min(self.held, self.zxid)

    @property
    def early(self) -> str:
        """Say what is wrong if the tree is older than its name; "" otherwise. A server goes by the name and skips the transactions
        between."""
        if self.held is None or self.held >= self.zxid:
            return ""
        return f"it holds the tree of {zxid_text(self.held)}, an earlier zxid than that in its name: it is a copy of another snapshot"


@dataclass
class ReadSnapshot:
    """The result of a walk over a snapshot."""

    context: SnapshotContext
    faults: list[Fault]
    rows: int
    until: int
    held: int | None = None

    @classmethod
    def of(cls, read: ListedFile, options: Options) -> ReadSnapshot:
        context = _context(read.name, options)
        result = cls(context, [], 0, 0)
        for step in Walk(read, snapshot.CODEC, context):
            if isinstance(step, Hole):
                if step.fault.severity is not Severity.INFO:
                    result.faults.append(step.fault)
                continue
            result.faults += [fault for fault in step.frames.faults if fault.severity is Severity.ERROR]
            result._nodes(step)
        return result.with_ending()

    def with_ending(self) -> Self:
        """Add what the sections after the nodes say."""
        shape = self.context.plain
        if shape is not None and shape.ending is not None:
            self.until = max([self.until, *shape.ending.zxids(shape.read)])
            self.held = shape.ending.facts(shape.read).get("last_processed_zxid")
        return self

    def _nodes(self, stretch: Stretch) -> None:
        if not len(stretch.frames):
            return
        for decoded in snapshot.CODEC.decode(stretch.window, stretch.frames, "rows", _ZXIDS, self.context):
            self.rows += decoded.batch.num_rows
            self.faults += [fault for _, fault in decoded.faults]
            if decoded.batch.num_rows:
                self.until = max(
                    self.until, *(int(pc.max(column).as_py() or 0) for column in decoded.batch.columns)
                )


def _context(name: str, options: Options) -> SnapshotContext:
    return snapshot.CODEC.context(base(name), Options(snapshot.CODEC.options, options.passed(LIMITS)))


class NodeSurvey:
    """Fold the frames of a snapshot, whose seals were verified, into what a survey needs of its nodes."""

    def __init__(self) -> None:
        self.end = self.rows = self.until = 0
        self.sound = True
        """Whether the frames so far are an uncompressed snapshot without gap or error."""

    def add(self, window: Window, frames: Frames) -> None:
        place = window.offset + frames.start
        kind = frames.header["kind"]
        self.sound &= bool(
            place[0] == self.end
            and (frames.start[1:] == frames.end[:-1]).all()
            and kind.max() < GZIP_FRAME
            and all(fault.severity is not Severity.ERROR for fault in frames.faults)
        )
        self.end = window.offset + int(frames.end[-1])
        nodes = frames.pick(kind == NODE_FRAME)
        if self.sound and len(nodes):
            stored = stats_of(window, nodes)
            self.rows += len(nodes)
            self.until = max(self.until, *(int(stored[name].max()) for name in _ZXIDS))


def read_only(
    listing: Listing, file: str, size: int, options: Options, nodes: NodeSurvey | None = None
) -> tuple[Snapshot, ReadSnapshot]:
    """Read a snapshot from end to end, and correct nothing. If `nodes` is the result for a sound one, only what is around its nodes is
    read."""
    read = ListedFile(listing, file, size)
    named = names.parse(base(file))
    if nodes is not None and nodes.sound and nodes.end == size:
        context = _context(file, options)
        snapshot.CODEC.prepare(read, size, context)
        result = ReadSnapshot(context, [], nodes.rows, nodes.until).with_ending()
    else:
        result = ReadSnapshot.of(read, options)
    zxid = 0 if named is None else named.zxid
    out = Snapshot(file, size, zxid, None, [], max(result.until, zxid), result.rows, base(file))
    if not result.faults:
        out.pieces, out.held = [Copy(file, 0, size)], result.held
    else:
        out.why = "; ".join(f"{fault.kind}: {fault.detail}" for fault in result.faults[:2])
    return out, result


def survey(listing: Listing, file: str, size: int, options: Options, *, correct: bool = True) -> Snapshot:
    """Read a snapshot from end to end, and correct it if it is damaged. `correct`: whether a single flipped bit is corrected."""
    out, result = read_only(listing, file, size, options)
    if out.sound:
        return out
    read, context = ListedFile(listing, file, size), result.context
    if context.compression != "none":
        return _unpacked(listing, out, result)
    assert context.shape is not None
    for patches, stop, why in _ways(read, context, correct=correct):
        if not correct and sum(_bits(read, at, new) for at, new in patches) == 1:
            continue
        pieces = list(_patched(file, patches, stop))
        corrected = _read_pieces(listing, file, pieces, options)
        if not corrected.faults:
            out.rows, out.until, out.pieces = corrected.rows, max(corrected.until, out.zxid), pieces
            out.cut = [*(Removed(file, at, len(new), why, 0, 0) for at, new in patches if at < size)]
            if stop < size:
                out.cut.append(Removed(file, stop, size - stop, why, 0, 0))
            return out
    out.cut = [Removed(file, 0, size, out.why, 0, None)]
    return out


def _read_pieces(listing: Listing, name: str, pieces: Sequence[Extent], options: Options) -> ReadSnapshot:
    """Read a file that consists of these extents of files of the listing."""
    overlay = Overlay(listing, [OutputFile(name, pieces)])
    return ReadSnapshot.of(ListedFile(overlay, name, overlay.size(name)), options)


def _unpacked(listing: Listing, out: Snapshot, result: ReadSnapshot) -> Snapshot:
    """Write a damaged compressed snapshot uncompressed, if all of its content was decompressed."""
    inner = result.context.inner
    expanded = result.context.expanded
    if inner is not None and expanded is not None and inner.shape is not None and not expanded.lost:
        shape = inner.shape
        if shape.ending is not None and not list(shape.wrong()) and result.rows:
            plain = expanded.data[: shape.ending.stop].tobytes()
            name = names.snapshot_name(out.zxid)
            if not _read_pieces(listing, name, [plain], Options(LIMITS)).faults:
                out.pieces, out.name = [plain], name
                out.cut = [Removed(out.file, 0, out.size, f"{out.why}: written without compression", 0, 0)]
                return out
    out.cut = [Removed(out.file, 0, out.size, out.why, 0, None)]
    return out


def _ways(read: ListedFile, context: SnapshotContext, *, correct: bool) -> Iterator[Way]:
    """Yield possible corrections of a snapshot, the most certain first."""
    shape = context.shape
    assert shape is not None
    flip = flip_of(snapshot.CODEC, read, shape.size, context) if correct else None
    if flip is not None:
        (at, bit), proofs = flip
        correction = Correction(at, bit, int(read(at, 1)[0]), 0, shape.size, proofs)
        yield [(at, correction.data)], shape.size, correction.note("")
    if shape.found_ending is not None:
        yield from _by_seals(shape, shape.found_ending)


def _bits(read: ListedFile, at: int, new: bytes) -> int:
    """Return the number of bits in which bytes differ from those of the file."""
    stored = read(at, len(new)).tobytes().ljust(len(new), b"\0")
    return (int.from_bytes(stored, "big") ^ int.from_bytes(new, "big")).bit_count()


def _by_seals(shape: Shape, ending: Ending) -> Iterator[Way]:
    """Correct seals that alone are wrong, or end after the last right one."""
    if shape.ending is not None:
        wrong = [mismatch for mismatch in shape.wrong() if mismatch.itself]
        patches = [(mismatch.seal.at, I64BE.pack(mismatch.computed, {})) for mismatch in wrong]
        patches += _mark(ending.seals[-1])
        if patches:
            yield patches, shape.size, "only the seal is damaged"
    sums = shape.sums_of(ending)
    right = [seal for seal, computed in zip(ending.seals, sums, strict=True) if seal.stored == computed]
    if right:
        # The bytes after the last right seal are not needed: files of older versions end there.
        last = right[-1]
        yield _mark(last), last.stop, f"the seal at byte {last.at} is right, the bytes after it are damaged"


def _mark(seal: Seal) -> Patches:
    """Correct the mark after a seal."""
    return [] if seal.mark == END_MARK[4:] else [(seal.stop - len(END_MARK), END_MARK)]


def _patched(file: str, patches: Patches, stop: int) -> Iterator[Extent]:
    at = 0
    for place, new in sorted(patches):
        if place > at:
            yield Copy(file, at, place)
        yield new
        at = place + len(new)
    if at < stop:
        yield Copy(file, at, stop)


# Last resort


@dataclass
class Left:
    """The readable part of a damaged snapshot. Nothing confirms it."""

    rows: pa.Table
    file: pa.RecordBatch
    shut: int = 0
    """The number of nodes whose ACL is lost. Nobody may access them."""


def left_of(
    listing: Listing, snapshot_read: Snapshot, options: Options, last: int | None = None
) -> Left | None:
    """Return the readable nodes, each once, or None. Nodes with a zxid above `last`, or of an epoch far above that of the
    snapshot, are damaged."""
    read = ListedFile(listing, snapshot_read.file, snapshot_read.size)
    context = _context(snapshot_read.file, options)
    columns = ROWS.names(detail=True)
    batches = []
    for step in Walk(read, snapshot.CODEC, context):
        if isinstance(step, Stretch) and len(step.frames):
            batches += [
                part.batch
                for part in snapshot.CODEC.decode(step.window, step.frames, "rows", columns, context)
            ]
    rows = pa.Table.from_batches(batches, ROWS.schema(columns))
    highest = (epoch_of(snapshot_read.zxid) + 2 << 32) - 1 if last is None else max(last, snapshot_read.zxid)
    zxids = (np.asarray(rows[name]).astype(np.int64) for name in _ZXIDS)
    rows = rows.filter(pa.array(np.logical_and.reduce([(zxid >= 0) & (zxid <= highest) for zxid in zxids])))
    if not rows.num_rows:
        return None
    keys = pc.coalesce(rows["path_raw"], rows["path"].cast(pa.binary()))
    each = (
        pa.table({"key": keys, "row": np.arange(rows.num_rows)}).group_by("key").aggregate([("row", "max")])
    )
    rows = rows.take(pa.array(np.sort(np.asarray(each["row_max"]))))
    lost = np.asarray(pc.and_(pc.is_null(rows["acl"]), pc.not_equal(rows["acl_id"], -1)).combine_chunks())
    if lost.any():
        lists = rows["acl"].combine_chunks()
        nobody = pa.array([_NOBODY], lists.type)
        places = np.where(lost, len(lists), np.arange(len(lists)))
        rows = rows.set_column(
            rows.schema.get_field_index("acl"),
            "acl",
            pa.concat_arrays([lists, nobody]).take(pa.array(places)),
        )
    return Left(rows, describe(snapshot_read.size, 0, b"", 0, context), int(lost.sum()))


def written(left: Left, zxid: int) -> Sequence[Chunk]:
    """Yield a snapshot of these nodes. It ends with its first seal, because no digest of the tree is known."""
    options = Options(snapshot.CODEC.options, {**NO_DIGESTS, "snapshot.compression.method": "none"})
    file = pa.Table.from_batches([left.file])
    return list(reencode.encode(left.rows, None, file, options, zxid, "none"))
