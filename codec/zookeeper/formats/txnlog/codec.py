"""The codec `zookeeper.txnlog`: transaction logs (`log.<zxid>`).

A frame is the file header or the record of a transaction, and a row is a transaction. `scan` finds records, `layout` and `bodies` read
them, `pack` and `write` write them. Source: `FileTxnLog` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import address, plural
from logwright.codec.arrays import Int64s
from logwright.codec.base import Codec, Match
from logwright.codec.columns import contents, numbers, slices
from logwright.codec.explain import Focus, Node
from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.codec.frames import scanner
from logwright.codec.frames.prefixes import prefixes_of
from logwright.codec.frames.resync import NONE, UNSURE
from logwright.codec.frames.scanner import Scanned, concatenate_heads
from logwright.codec.kernels.bitflip import Flip
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be
from logwright.codec.option import Options
from logwright.codec.table import Table
from logwright.codec.window import Around, Bytes, Decoded, Frames, RowFrames, Window
from logwright.codec.zookeeper import names
from logwright.codec.zookeeper.formats.explain import log_of
from logwright.codec.zookeeper.formats.txnlog import layout, reencode
from logwright.codec.zookeeper.formats.txnlog import scan as records
from logwright.codec.zookeeper.formats.txnlog.bodies import PLAIN, SOUND, STATUS, Bodies, type_names
from logwright.codec.zookeeper.formats.txnlog.rows import NAME, ROWS, START_FAILS, STOPS, Rows, digest_column
from logwright.codec.zookeeper.formats.txnlog.scan import (
    BODY,
    FILE_HEADER_FRAME,
    FINDER,
    HEAD,
    HEAD_FIELDS,
    LEAST,
    SCANNER,
    TXN_FRAME,
)
from logwright.codec.zookeeper.formats.txnlog.suspects import proved, suspects
from logwright.codec.zookeeper.formats.txnlog.tables import FILE, FRAMES, OPTIONS, RECORDS, TxnLogContext
from logwright.codec.zookeeper.formats.txnlog.txn_fast_path import rows_at_once
from logwright.codec.zookeeper.formats.version1 import is_old_log, refused
from logwright.codec.zookeeper.names import PRINTED
from logwright.codec.zookeeper.store.selection import NAMES_NODES, prefix_of, select_txns

PORTION = 8 << 20
"""Bytes of records that are decoded at a time, or one record if it is larger."""
_MOST_FAULTS = 64
_EMPTY = "from 3.9.3 on the server deletes it where it is the newest log; else, and before, it does not start: EOFException"
_KINDS = contents(pa.string(), [b"header", b"transaction"])


class TxnLog(Codec):
    """The codec of transaction logs."""

    name = NAME
    title = "ZooKeeper transaction log"
    printed = PRINTED
    structures = (layout.RECORD, layout.FILE_HEADER)
    described = (layout.TXN_LOG, layout.FILE_HEADER, layout.RECORD)
    tables: Mapping[str, Table] = {"rows": ROWS, "frames": FRAMES, "file": FILE, "records": RECORDS}
    options = OPTIONS
    ordered = "zxid"
    checksum = "Adler-32"
    scans_empty = True

    def recognise(self, name: str, head: bytes) -> Match:
        parsed = names.parse(name)
        return Match.of(parsed is not None and parsed.kind == names.LOG, head.startswith(layout.MAGIC))

    def context(self, name: str, options: Options, **hints: Any) -> TxnLogContext:
        may_be_old = hints.pop("directory", "") != names.VERSION_DIR
        parsed = names.parse(name)
        if parsed is not None and parsed.kind == names.LOG:
            hints.setdefault("file", parsed.zxid)
        unknown = set(hints) - {"file", "live", "split"}
        if unknown:
            raise UsageError(f"{self.name}: no hint {sorted(unknown)[0]!r}")
        return TxnLogContext(options, **hints, may_be_old=may_be_old)

    def edit(
        self, frame: bytes, path: address.Path, change: address.Change, *, reseal: bool, context: Any = None
    ) -> bytes:
        struct = (
            layout.FILE_HEADER
            if frame[: len(layout.MAGIC)] == layout.MAGIC and len(frame) == layout.HEADER_SIZE
            else layout.RECORD
        )
        return address.edit(struct, frame, path, change, reseal=reseal)

    def explain(self, window: Window, context: TxnLogContext, focus: Focus, *, frame: bool) -> Sequence[Node]:
        return log_of(window, focus, frame=frame, exploded=context.exploded)

    # Finding records

    def scan(self, window: Window, at: int, context: TxnLogContext, *, check: bool = True) -> Frames:
        data, place = window.data, window.offset + at
        header = place == 0
        faults: list[Fault] = []
        if not window.size:
            text = "the file is empty: the header is missing"
            return replace(
                _nothing(at), damage=Fault(NAME, 0, 0, Kind.TRUNCATED, text, Severity.WARNING, _EMPTY)
            )
        if header:
            missing = min(layout.HEADER_SIZE, window.size) - len(data) + at
            if missing > 0:
                return _nothing(at, need=min(layout.HEADER_SIZE, window.size))
            damage = _header_fault(data[at:], window.size)
            if damage is not None and context.may_be_old and is_old_log(data[:4096].tobytes(), context.file):
                raise refused("this log")
            if damage is not None:
                context.damaged = 0
                return replace(_nothing(at), damage=damage)
            faults += _odd_header(data[at:])
            at += layout.HEADER_SIZE
        scanned = SCANNER.frames(window, at, check=check, prefixes=prefixes_of(data, context.prefixes))
        frames = _frames(scanned, header)
        frames.faults = faults
        if check:
            frames.faults += self._order(window, scanned, context)
        if len(scanned.start):
            context.last_zxid = int(scanned.head["zxid"][-1])
            context.last_end = window.offset + int(scanned.end[-1])
        context.damaged = -1
        if scanned.why == scanner.NEED:
            frames.need = scanned.need
        elif scanned.why != scanner.END:
            frames.damage = _damage(window, scanned, context)
            context.damaged = frames.damage.offset
        return frames

    def _order(self, window: Window, scanned: Scanned, context: TxnLogContext) -> list[Fault]:
        """Return the faults in the lengths and zxids of good records."""
        faults: list[Fault] = []
        heads = scanned.head.view(np.int64).reshape(-1, HEAD_FIELDS)
        if not len(heads):
            return faults
        first = int(scanned.start[0]) + window.offset
        known = context.last_zxid if context.last_end == first and context.last_zxid is not None else None
        named = first != layout.HEADER_SIZE or context.file is None or heads[0, records.ZXID] == context.file
        follows = known in (None, int(heads[0, records.ZXID]) - 1)
        if named and follows and records.in_order(scanned, context.limit):
            return faults
        start, size = scanned.start + window.offset, scanned.end - scanned.start
        for i in np.flatnonzero(heads[:, records.SIZE] > context.limit)[:_MOST_FAULTS].tolist():
            text = f"Unreasonable length = {heads[i, records.SIZE]}: a server accepts {context.limit} at most"
            system = f"{START_FAILS} (IOException), unless jute.maxbuffer is larger"
            faults.append(
                Fault(NAME, int(start[i]), int(size[i]), Kind.LENGTH, text, Severity.WARNING, system, 0)
            )
        zxids = heads[:, records.ZXID]
        if start[0] == layout.HEADER_SIZE and context.file is not None and zxids[0] != context.file:
            text = (
                f"the file is named after zxid {names.zxid_text(context.file)}, but its first transaction is "
                f"{names.zxid_text(int(zxids[0]))}"
            )
            system = "the server trusts the name when it selects files"
            faults.append(
                Fault(NAME, int(start[0]), int(size[0]), Kind.LINK, text, Severity.WARNING, system, 0)
            )
        before = np.concatenate(([zxids[0] if known is None else known], zxids[:-1]))
        # The difference of distant zxids may not fit 64 bits, so epochs are compared first.
        same = zxids >> 32 == before >> 32
        odd = (same & (zxids != before + 1)) | (zxids >> 32 < before >> 32)
        if known is None:
            odd[0] = False
        places = np.flatnonzero(odd)
        for i in places[:_MOST_FAULTS].tolist():
            faults.append(_order_fault(int(before[i]), int(zxids[i]), int(start[i]), int(size[i])))
        if len(places) > _MOST_FAULTS:
            first, last = int(places[_MOST_FAULTS]), int(places[-1])
            text = f"zxids are out of order in {len(places) - _MOST_FAULTS} more places"
            length = int(start[last] + size[last] - start[first])
            faults.append(Fault(NAME, int(start[first]), length, Kind.ORDER, text, Severity.WARNING))
        return faults

    def suspects(
        self, window: Window, at: int, limit: int, around: Around, context: TxnLogContext
    ) -> Iterator[Flip]:
        return suspects(window, at, limit)

    def outliers(self, window: Window, frames: Frames, context: TxnLogContext) -> Sequence[tuple[int, str]]:
        first = window.offset + int(frames.start[0]) == 0 and frames.header["kind"][0] == FILE_HEADER_FRAME
        odd = _odd_header(window.data[int(frames.start[0]) :]) if first else ()
        return [(0, fault.detail) for fault in odd][:1]

    def proved(
        self,
        window: Window,
        frame: Frames,
        around: Around,
        flip: tuple[int, int] | None,
        context: TxnLogContext,
    ) -> bool:
        return proved(window, frame, around, flip)

    def resync(self, window: Window, at: int, context: TxnLogContext) -> tuple[int, int]:
        context.prefixes = FINDER.prefixes(window.data, context.prefixes)
        damaged = context.damaged - window.offset if context.damaged >= 0 else -1
        if 0 <= damaged < at and window.offset + damaged >= layout.HEADER_SIZE:
            at = max(at, _end_of_damaged(window, damaged, context))
        while True:
            place, outcome, need = FINDER.next(window, at, context.prefixes)
            if outcome == NONE:
                return -1, min(len(window.data) - at, LEAST - 1)
            if outcome == UNSURE:
                return place, max(need, LEAST)
            if self._plausible(window, place, context):
                return place, 0
            end, is_own, need = records.chain(window, place, context.prefixes)
            if is_own or need:
                return place, need
            at = end

    def _plausible(self, window: Window, place: int, context: TxnLogContext) -> bool:
        zxid = load_i64be(window.data, place + BODY + layout.ZXID_AT)
        here = window.offset + place
        if context.last_zxid is not None:
            return records.fits_in(zxid, context.last_zxid, here - context.last_end)
        if context.file is None:
            return False
        return records.fits_in(zxid, context.file - 1, here - layout.HEADER_SIZE)

    def loss_between(self, around: Around, context: TxnLogContext) -> tuple[int | None, Mapping[str, Any]]:
        """Return the zxids between two good transactions. Within an epoch each zxid is one transaction."""
        lost: dict[str, Any] = {}
        before, after = around
        first = next_first = None
        if before is not None and before.header["kind"][-1] == TXN_FRAME:
            first = int(before.header["zxid"][-1]) + 1
        elif context.file is not None:
            first = context.file
        if after is not None and after.header["kind"][0] == TXN_FRAME:
            next_first = int(after.header["zxid"][0])
        if first is not None:
            lost["first_zxid"] = first
        if next_first is None:
            return None, lost
        if first is None or names.epoch_of(first) != names.epoch_of(next_first):
            # Nothing says where an old epoch ended.
            if names.counter_of(next_first) > 1 or first is None:
                lost["last_zxid"] = next_first - 1
            return None, lost
        if next_first <= first:
            return (0, {}) if next_first == first else (None, {})
        lost["last_zxid"] = next_first - 1
        return next_first - first, lost

    def frame_bounds(self, frames: Frames, column: str) -> tuple[Any, Any]:
        if column not in ("zxid", "time"):
            return None, None
        values = np.ascontiguousarray(frames.header[column])
        return values, values

    def follow(self, values: Int64s) -> bool:
        # Each zxid of an epoch is one transaction, from 1 on. The file header has the smallest value.
        before, after = values[:-1], values[1:]
        starts = (before == np.iinfo(np.int64).min) | (
            (after >> 32 > before >> 32) & (after & 0xFFFFFFFF <= 1)
        )
        return bool((starts | (after == before + 1)).all())

    # Tables

    def decode(
        self, window: Window, frames: Frames, table: str, columns: Sequence[str], context: TxnLogContext
    ) -> Iterator[Decoded]:
        if table != "frames":
            frames = _without_header(frames)
        for part in frames.portions(PORTION):
            if table == "rows":
                yield _rows(window, part, columns, context)
            elif table == "records":
                zxids = numbers(pa.int64(), np.ascontiguousarray(part.header["zxid"]))
                arrays = {"zxid": zxids, "record": slices(window.data, part.start, part.end)}
                yield Decoded(RECORDS.batch(columns, arrays.__getitem__, len(part)))
            else:
                yield Decoded(_frames_batch(window, part, columns))

    def row_frames(self, window: Window, frames: Frames, context: TxnLogContext) -> Iterator[RowFrames]:
        yield RowFrames(window, _without_header(frames), context)

    def file_facts(
        self, head: Window, size: int, tail: bytes, zeros: int, context: TxnLogContext
    ) -> Mapping[str, Any]:
        version = dbid = None
        if len(head.data) >= layout.HEADER_SIZE and head.data[: len(layout.MAGIC)].tobytes() == layout.MAGIC:
            version = load_i32be(head.data, layout.FILE_HEADER.offset("version"))
            dbid = load_i64be(head.data, layout.FILE_HEADER.offset("dbid"))
        return {"file": context.file, "version": version, "dbid": dbid}

    encode = staticmethod(reencode.encode)


def _rows(window: Window, frames: Frames, columns: Sequence[str], context: TxnLogContext) -> Decoded:
    """Return the rows of the transactions that the options of the context select."""
    options = context.options
    upto, prefix = options["at_zxid"], prefix_of(options["path_prefix"])
    if upto is not None:
        frames = frames.pick(frames.header["zxid"] <= upto)
    needed = tuple(dict.fromkeys((*columns, *NAMES_NODES))) if prefix else columns
    batch = rows_at_once(window, frames, needed, context)
    decoded = Rows(window, frames, context).decoded(needed) if batch is None else Decoded(batch)
    return select_txns(decoded, columns, options) if prefix else decoded


def _frames(scanned: Scanned, header: bool) -> Frames:
    """Convert a scan's result to frames. With `header`, the file header is the first frame."""
    start, end, head = scanned.start, scanned.end, scanned.head
    if header:
        first = np.zeros(1, HEAD)
        first["kind"] = FILE_HEADER_FRAME
        first["zxid"] = first["time"] = np.iinfo(np.int64).min
        start = np.concatenate((np.zeros(1, np.int64), start))
        end = np.concatenate((np.full(1, layout.HEADER_SIZE, np.int64), end))
        head = concatenate_heads((first, head))
    return Frames(start, end, head, scanned.stop)


def _nothing(at: int, need: int = 0) -> Frames:
    empty = np.empty(0, np.int64)
    return Frames(empty, empty, np.empty(0, HEAD), at, need)


# Faults


def _header_fault(data: Bytes, size: int) -> Fault | None:
    if size < layout.HEADER_SIZE:
        text = f"the file has {plural.count(size, 'byte')}, but its header takes {layout.HEADER_SIZE}"
        return Fault(NAME, 0, size, Kind.TRUNCATED, text, system=f"{START_FAILS}: EOFException")
    magic = data[: len(layout.MAGIC)].tobytes()
    if magic != layout.MAGIC:
        stored, expected = int.from_bytes(magic, "big", signed=True), int.from_bytes(layout.MAGIC, "big")
        text = f"invalid magic number {stored} != {expected}"
        return Fault(
            NAME, 0, layout.HEADER_SIZE, Kind.MAGIC, text, system=f"{START_FAILS}: IOException: {text}"
        )
    return None


def _odd_header(data: Bytes) -> Iterator[Fault]:
    for name, usual in (("version", 2), ("dbid", 0)):
        at = layout.FILE_HEADER.offset(name)
        value = load_i32be(data, at) if name == "version" else load_i64be(data, at)
        if value != usual:
            text = f"{name} is {value} in the header of the file, expected {usual}"
            yield Fault(
                NAME, 0, layout.HEADER_SIZE, Kind.MAGIC, text, Severity.WARNING, "the server ignores it", 0
            )


def _order_fault(before: int, zxid: int, start: int, size: int) -> Fault:
    there = f"{names.zxid_text(zxid)} follows {names.zxid_text(before)}"
    if zxid > before:
        text = f"zxids are missing: {there}"
        system = (
            "from 3.9.4 on the server does not start (Committed proposal cached out of order), if it replays the one before; "
            "older versions do not report it"
        )
        lost = {"first_zxid": before + 1, "last_zxid": zxid - 1}
        return Fault(NAME, start, size, Kind.ORDER, text, Severity.WARNING, system, zxid - before - 1, lost)
    text = f"a zxid {'is repeated' if zxid == before else 'is lower than the one before'}: {there}"
    return Fault(
        NAME, start, size, Kind.ORDER, text, Severity.WARNING, "the server applies the transaction again", 0
    )


def _damage(window: Window, scanned: Scanned, context: TxnLogContext) -> Fault:
    """Return the fault at the position where a scan stopped."""
    data, stop, why = window.data, scanned.stop, records.why_stopped(window.data, scanned, context.limit)
    offset = window.offset + stop
    left = window.size - offset
    length = load_i32be(data, stop + layout.LENGTH) if len(data) - stop >= BODY else 0
    if why == scanner.ZERO:
        return _zeros(window, stop, left)
    if why == scanner.BAD_LENGTH:
        text = f"Unreasonable length = {length}"
        system = f"{START_FAILS}: IOException: {text}"
        if length == -1:
            system = f"{START_FAILS}: NullPointerException"
        return Fault(NAME, offset, BODY, Kind.LENGTH, text, system=system)
    if why == scanner.TORN:
        if left < BODY:
            # This holds for zeros too, because a checksum begins with zeros.
            text = f"{plural.count(left, 'byte')} at the end, too few for a record"
        else:
            text = f"the record takes {layout.OVERHEAD + length} bytes, but the file ends after {left}"
            wrong_length = _wrong_length(window, stop, length)
            if wrong_length is not None:
                return wrong_length
        return _torn(offset, left, text, context)
    size = layout.OVERHEAD + length
    context.prefixes = FINDER.prefixes(data, context.prefixes)
    stored, computed = load_i64be(data, stop), context.prefixes.sum(stop + BODY, stop + size - 1)
    mark = int(data[stop + size - 1])
    if why == scanner.BAD_MARK:
        if stored == computed:
            text = f"the end mark of the record is {mark:#04x}, expected {layout.EOR:#04x} ('B'); its checksum is right"
            return Fault(NAME, offset, size, Kind.MAGIC, text, system=STOPS)
        if mark == 0 and not data[stop + size - 1 : stop + size - 1 + BODY].any():
            return _torn(offset, size, "the record ends in zeros", context)
        text = f"the end mark of the record is {mark:#04x}, expected {layout.EOR:#04x} ('B'), and its checksum is wrong"
        return _wrong_length(window, stop, length) or Fault(
            NAME, offset, size, Kind.LENGTH, text, system=STOPS
        )
    text = f"Adler-32: stored {stored:#010x}, computed {computed:#010x}"
    system = f"{START_FAILS}: IOException: CRC check failed"
    fault = Fault(NAME, offset, size, Kind.CHECKSUM, text, system=system)
    return _wrong_length(window, stop, length, system, stop + size) or fault


def _wrong_length(
    window: Window, stop: int, length: int, system: str = STOPS, limit: int = 1 << 62
) -> Fault | None:
    """Return the fault of a record whose checksum shows another end, up to `limit`, than its length."""
    reach = min(len(window.data), stop + records.REACH, limit)
    end = int(records.true_end(window.data, stop, reach))
    if end < 0:
        return None
    right = plural.count(end - stop - layout.OVERHEAD, "byte")
    text = f"the record's length is {length}, but its checksum matches {right}"
    return Fault(NAME, window.offset + stop, end - stop, Kind.LENGTH, text, system=system)


def _torn(offset: int, length: int, text: str, context: TxnLogContext) -> Fault:
    severity = Severity.INFO if context.live else Severity.WARNING
    return Fault(
        NAME, offset, length, Kind.TRUNCATED, f"the last transaction was partial: {text}", severity, STOPS
    )


def _zeros(window: Window, stop: int, left: int) -> Fault:
    """Return the fault of a length of 0, where a server stops reading whatever follows."""
    offset = window.offset + stop
    zeros = window.zeros_from(stop)
    if zeros < min(left, BODY):
        text = "length = 0, which ends the file for a server, but a checksum precedes it"
        return Fault(NAME, offset, min(left, BODY), Kind.LENGTH, text, system=STOPS)
    if zeros < left:
        text = f"{zeros} zero bytes, followed by other bytes"
        return Fault(NAME, offset, left, Kind.PADDING, text, Severity.WARNING, STOPS)
    return Fault(NAME, offset, left, Kind.PADDING, "preallocated zeros", Severity.INFO, STOPS)


def _end_of_damaged(window: Window, at: int, context: TxnLogContext) -> int:
    """Return where the search for the next record begins: after the damaged record, if its length or its checksum shows where it ends;
    otherwise right after its start."""
    data = window.data
    if len(data) - at < LEAST:
        return at + 1
    end = at + layout.OVERHEAD + load_i32be(data, at + layout.LENGTH)
    if at + LEAST <= end <= len(data):
        prefixes = context.prefixes = FINDER.prefixes(data, context.prefixes)
        if prefixes.sum(at + BODY, end - 1) == load_i64be(data, at):
            return int(end)
        zxid = load_i64be(data, at + BODY + layout.ZXID_AT)
        follows = SCANNER.first(data, end, window.size - window.offset - end, prefixes=prefixes)
        next_one = context.last_zxid is not None and zxid == context.last_zxid + 1
        if data[end - 1] == layout.EOR and (follows or next_one or not data[end : end + BODY].any()):
            # A wrong length may end where a later record does.
            shorter = int(records.true_end(data, at, end))
            return shorter if shorter >= 0 else int(end)
    end_by_checksum = int(records.true_end(data, at, min(len(data), at + records.REACH)))
    return end_by_checksum if end_by_checksum >= 0 else at + 1


# Records and frames


def _without_header(frames: Frames) -> Frames:
    """Return the frames of transactions."""
    headed = len(frames) and frames.header["kind"][0] == FILE_HEADER_FRAME
    return frames.pick(slice(1, None)) if headed else frames


def _frames_batch(window: Window, frames: Frames, columns: Sequence[str]) -> pa.RecordBatch:
    head = frames.header
    header = head["kind"] == FILE_HEADER_FRAME
    bodies: Bodies | None = None
    if {"payload", "digest_version", "tree_digest"}.intersection(columns):
        # The file header is not a transaction; it is measured as an empty one.
        start = np.where(header, frames.start, frames.start + BODY)
        bodies, _ = Bodies.of(window.data, start, np.where(header, start, frames.end - 1))

    def column(name: str) -> pa.Array:
        kind = FRAMES[name].type
        if name == "position":
            return numbers(kind, frames.start + window.offset)
        if name == "size":
            return numbers(kind, frames.end - frames.start)
        if name == "kind":
            return _KINDS.take(numbers(pa.int64(), head["kind"]))
        if name == "type":
            names = type_names(np.ascontiguousarray(head["type"]))
            return names.take(numbers(pa.int64(), np.arange(len(names)), header)) if header.any() else names
        if name == "raw":
            return pa.nulls(len(frames), kind)
        if name in (head.dtype.names or ()):
            return numbers(kind, np.where(header, 0, head[name]), header)
        assert bodies is not None
        if name == "payload":
            return _payloads(window, frames, header, bodies)
        return digest_column(kind, *bodies.digest(name))

    return FRAMES.batch(columns, column, len(frames))


def _payloads(window: Window, frames: Frames, header: Any, bodies: Bodies) -> pa.Array:
    """Return the payloads that cannot be rebuilt from rows; for the file header all of it, if it is not the usual one."""
    usual = layout.FILE_HEADER.pack({})
    kept: list[bytes | None] = [None] * len(frames)
    reproducible = (bodies.measures[STATUS] == SOUND) & (bodies.measures[PLAIN] == 1)
    for i in np.flatnonzero(~reproducible | header).tolist():
        start, stop = int(frames.start[i]), int(frames.end[i])
        if not header[i]:
            kept[i] = window.data[start + BODY : stop - 1].tobytes()
        elif window.data[start:stop].tobytes() != usual:
            kept[i] = window.data[start:stop].tobytes()
    return contents(pa.binary(), kept)


CODEC = TxnLog()
