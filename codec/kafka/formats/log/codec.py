"""The codec `kafka.log`: segments of a partition, and the KRaft files of the same format (`*.checkpoint`).

A frame is a record batch, or a message of Kafka before 0.11. `tables` declares the tables; `rows` and `frames` fill them, `scan` and
`resync` find batches, and `write` and `reencode` write them. Source of the format: `DefaultRecordBatch`, `LegacyRecord` and `FileRecords` of
Kafka.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from logwright.codec.base import Codec, LossyColumn, Match, ProvedPart
from logwright.codec.deferred import deferred
from logwright.codec.fault import Fault, Kind, UsageError
from logwright.codec.kafka.formats import payload
from logwright.codec.kafka.formats.internal.view import BY_VIEW
from logwright.codec.kafka.formats.log import settings
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION,
    CONTROL_RECORD_KEY,
    DELETE_HORIZON,
    END_TXN_MARKER,
    ENTRY,
    HEAD,
    HEAD_SIZE,
    INNER_MESSAGE,
    LENGTH_END,
    LOG_SEGMENT,
    MAGIC,
    MESSAGE,
    MIN_LENGTH,
    RECORD,
    RECORD_BATCH,
    TIMESTAMP_TYPE,
    least_size,
    struct_at,
)
from logwright.codec.kafka.formats.log.tables import (
    DECODED,
    FILE,
    FRAMES,
    MAX_DECOMPRESSED,
    NAME,
    ROWS,
    Aborted,
    LogContext,
)
from logwright.codec.kafka.store import evidence
from logwright.codec.option import DECODES, ENCODES, Options, Verb, used_by
from logwright.codec.table import Table
from logwright.codec.window import Around, Chunk, Decoded, Frames, Window

if TYPE_CHECKING:
    from logwright.codec import explain
    from logwright.codec.describe import Struct, Type
    from logwright.codec.explain import Focus, Node
    from logwright.codec.frames.walk import ListedFile
    from logwright.codec.kafka.formats.log import (
        fields,
        frames,
        heads,
        markers,
        payloads,
        reencode,
        resync,
        rows,
        scan,
        suspects,
    )
    from logwright.codec.kafka.formats.log import write as encode
    from logwright.codec.kernels.bitflip import Flip
else:
    explain = deferred("logwright.codec", "explain")
    fields, frames, heads, markers, payloads, reencode, resync, rows, scan, suspects, encode = deferred(
        "logwright.codec.kafka.formats.log",
        "fields", "frames", "heads", "markers", "payloads", "reencode", "resync", "rows", "scan", "suspects", "write",
    )  # fmt: skip

_MAGIC = RECORD_BATCH.offset("magic")
_FILE = re.compile(r"(\d{20})\.log(?:\.(?:deleted|swap|cleaned))?")
_CHECKPOINT = re.compile(r"\d{20}-\d{10}\.checkpoint(?:\.deleted)?|bootstrap\.checkpoint")
_ENDS = "a node that loads the snapshot takes it to end here"
_FAILS = "a node that loads the snapshot fails here, and does not start"
_DIRECTORY = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]{1,10})")
_MOVED = re.compile(r"(?P<name>\S+)\.[0-9a-f]{32}-(?:delete|future|stray)")

OPTIONS = (
    *used_by({Verb.READ, Verb.AS_SYSTEM, Verb.WRITE}, *payload.OPTIONS, views=("rows",)),
    *used_by(
        {*DECODES, Verb.AS_SYSTEM, Verb.WRITE} - {Verb.DIFF},
        MAX_DECOMPRESSED,
        views=("rows", "frames", *DECODED),
    ),
    *(
        used_by(ENCODES if option.name.endswith(".level") else {Verb.WRITE}, option)[0]
        for option in settings.OPTIONS
    ),
)


class KafkaLog(Codec):
    """The codec. Files are read as a consumer reads them."""

    name = NAME
    title = "Kafka log segment: record batches, or messages of magic 0 and 1"
    structures = (RECORD_BATCH, RECORD, MESSAGE, INNER_MESSAGE, CONTROL_RECORD_KEY, END_TXN_MARKER)
    described = (LOG_SEGMENT, *structures)
    frame = ENTRY
    tables: Mapping[str, Table] = {"rows": ROWS, "frames": FRAMES, "file": FILE, **DECODED}
    options = OPTIONS
    ordered = "offset"
    uncovered = RECORD_BATCH.offset("batch_length")
    checksum = "CRC-32C"

    def lossy(self, options: Options) -> Sequence[LossyColumn]:
        """See `Codec.lossy`."""
        return encode.lossy(options)

    def recompress(self, frames: pa.Table, options: Options) -> pa.Table | None:
        """See `Codec.recompress`."""
        return encode.recompress(frames, options)

    def recognise(self, name: str, head: bytes) -> Match:
        named = bool(_FILE.fullmatch(name) or _CHECKPOINT.fullmatch(name))
        content = _content(head) if len(head) > _MAGIC else Match.NO
        if named:
            return Match.SURE if content else Match.NAME
        if name.endswith((".log", ".log.deleted", ".log.swap", ".log.cleaned")):
            return content
        return min(content, Match.MAYBE)

    def context(self, name: str, options: Options, **hints: Any) -> LogContext:
        directory = hints.pop("directory", "")
        moved = _MOVED.fullmatch(directory)
        parsed = _DIRECTORY.fullmatch(moved["name"] if moved else directory)
        if parsed is not None and int(parsed["partition"]) < 1 << 31:
            hints.setdefault("topic", _readable(parsed["topic"]))
            hints.setdefault("partition", int(parsed["partition"]))
        named = _FILE.fullmatch(name)
        if named is not None:
            hints.setdefault("base_offset", int(named[1]))
        hints.setdefault("snapshot", bool(_CHECKPOINT.fullmatch(name)))
        hints["aborted"] = Aborted(hints.get("aborted") or ())
        unknown = set(hints) - set(LogContext.__dataclass_fields__)
        if unknown:
            raise UsageError(f"{self.name}: no hint {sorted(unknown)[0]!r}")
        return LogContext(options, **hints)

    def table_of(self, name: str, context: LogContext) -> Table:
        """See `Codec.table_of`."""
        return payloads.typed_rows(context.options) if name == "rows" else self.tables[name]

    def field_names(self) -> Sequence[str]:
        return fields.names()

    def struct_at(self, frame: bytes, at: int) -> Struct:
        """Return the structure of the frame with these bytes."""
        return struct_at(frame, 0)

    def explain(self, window: Window, context: Any, focus: Focus, *, frame: bool) -> Sequence[Node]:
        struct = struct_at(window.data[:HEAD_SIZE].tobytes(), 0)
        nodes = explain.explain_values(struct, window, focus, single=frame)
        if frame and struct is MESSAGE and not window.data[MESSAGE.offset("attributes")] & COMPRESSION:
            nodes[0].row = 0
        return nodes

    def edit(
        self, frame: bytes, path: Sequence[str | int], change: Callable[[bytes, Type], bytes], *, reseal: bool,
        context: Any = None,
    ) -> bytes:  # fmt: skip
        return fields.edit(frame, path, change, reseal=reseal)

    def scan(self, window: Window, at: int, context: LogContext, *, check: bool = True) -> Frames:
        good = scan.scan(window, at, context, check=check)
        if good.damage is not None and context.snapshot:
            torn = (
                window.size - good.damage.offset < scan.HEAD_UP_TO_MAGIC or good.damage.kind is Kind.TRUNCATED
            )
            good.damage = replace(good.damage, system=_ENDS if torn else _FAILS)
        if check and context.snapshots and not context.holes:
            context.holes = scan.has_holes(good.header)
        if check and len(good):
            good.faults += markers.bad_markers(window, good)
        return good

    def decode(
        self, window: Window, frames_: Frames, table: str, columns: Sequence[str], context: LogContext
    ) -> Iterator[Decoded]:
        if table == "rows":
            if formats := payload.formats_of(context.options):
                return payloads.decode_formats(window, frames_, formats, columns, context)
            return rows.decode(window, frames_, ROWS, columns, context)
        if table in DECODED:
            return payloads.decode_topic(window, frames_, BY_VIEW[table], DECODED[table], columns, context)
        return frames.decode(window, frames_, FRAMES, columns, context)

    def checked_columns(self, context: LogContext) -> Sequence[str]:
        """Return the columns with a format, whose values may not fit it. Records are checked whichever columns are read."""
        return tuple(payload.formats_of(context.options))

    def file_facts(
        self, head: Window, size: int, tail: bytes, zeros: int, context: LogContext
    ) -> Mapping[str, Any]:
        return {"base_offset": context.base_offset}

    def frame_bounds(self, frames: Frames, column: str) -> tuple[Any, Any]:
        head = frames.header
        if column in ("offset", "base_offset", "last_offset"):
            base, last = head["base_offset"].astype(np.int64), head["last_offset"].astype(np.int64)
            old = head["magic"] < MAGIC
            if old.any():
                # Old versions of librdkafka left wrappers at offset 0.
                last = np.maximum(last, np.where(old, base + head["records_count"] - 1, last))
            return base, last
        if column == "timestamp":
            # A broker ensures that no record is above max_timestamp. If the first one is (base_timestamp, unless that is the
            # delete horizon), the writer was not a broker, and there is no upper bound. There is never a lower bound.
            flags = head["attributes"].astype(np.int64)
            append = flags & TIMESTAMP_TYPE != 0
            top = head["max_timestamp"].astype(np.int64)
            known = append | (flags & DELETE_HORIZON != 0) | (top >= head["base_timestamp"])
            # That of an older wrapper was not always checked, and one of magic 0 has none.
            known &= ~((head["magic"] < MAGIC) & ~append & (flags & COMPRESSION != 0))
            info = np.iinfo(np.int64)
            return np.where(append, top, info.min), np.where(known, top, info.max)
        return None, None

    def resync(self, window: Window, at: int, context: LogContext) -> tuple[int, int]:
        damaged = context.damaged
        place, need = resync.find_batch(window, at, context, damaged)
        if damaged is not None and damaged.start >= window.offset and not (place >= 0 and need):
            stop = place if place >= 0 else len(window.data)
            scan.believe(window, damaged.start - window.offset, stop, context)
        return place, need

    def suspects(
        self, window: Window, at: int, limit: int, around: Around, context: LogContext
    ) -> Iterator[Flip]:
        return suspects.suspects(window, at, limit, around)

    def origin(self, frame: bytes, context: LogContext) -> tuple[ListedFile, LogContext] | None:
        """Return the log of the partition that has the offset of a batch by its name."""
        origin = None if context.others is None else context.others.with_offset(self.claim(frame))
        if origin is None:
            return None
        file, base, after = origin
        return file, self.context(file.name, context.options, base_offset=base, next_base=after)

    def outliers(self, window: Window, frames: Frames, context: LogContext) -> Sequence[tuple[int, str]]:
        """Return batches whose leader epoch or offset the batches around them contradict, by one bit."""
        return [*suspects.odd_epochs(frames.header), *suspects.odd_offsets(frames.header)]

    def proved(
        self, window: Window, frame: Frames, around: Around, flip: tuple[int, int] | None, context: LogContext
    ) -> bool:
        return suspects.proved(window, frame, around, flip, context)

    def part_proved(
        self, window: Window, frame: Frames, around: Around, flip: tuple[int, int] | None, context: LogContext
    ) -> ProvedPart | None:
        return suspects.part_proved(window, frame, around, flip, context)

    def loss_between(self, around: Around, context: LogContext) -> tuple[int | None, Mapping[str, Any]]:
        """Return the offsets between two good batches. The number of records is known only if the headers of the damaged batches
        confirm it: offsets may have been unused."""
        lost = context.place()
        before, after = around
        base, following = context.base_offset, context.next_base
        first = None if before is None else int(before.header["last_offset"][-1]) + 1
        next_first = None if after is None else int(after.header["base_offset"][0])
        # A file's name that the batches contradict does not count.
        if first is None and base is not None and (next_first is None or base <= next_first):
            first = base
        if next_first is None and following is not None and (first is None or first <= following):
            next_first = following
        elif next_first is None and first is not None:
            # The end of the log, by the header of a torn batch or by another file.
            torn = [
                end for (start, end), claim in context.header_claims.items() if claim.torn and start == first
            ]
            next_first = max([*torn, context.known_end or 0])
            next_first = next_first if next_first > first else None
        if first is not None:
            lost["first_offset"] = first
        if next_first is not None:
            lost["last_offset"] = next_first - 1
        if first is not None and next_first is not None and next_first <= first:
            return 0, {}
        if after is None and next_first is None and context.clean is True and context.known_end == first:
            return 0, {}  # the log ended here when it was closed
        claim = (
            None if first is None or next_first is None else context.header_claims.get((first, next_first))
        )
        if claim is None:
            return None, lost
        times = claim.first_timestamp, claim.last_timestamp
        # Only the batches around prove the times of a damaged header.
        proved = before is not None and after is not None and _in_order(before.header, times, after.header)
        lost["first_timestamp"], lost["last_timestamp"] = times if proved else (None, None)
        return claim.rows, lost

    def ends_early(self, last: Frames | None, size: int, torn: bool, context: LogContext) -> Fault | None:
        """See `Codec.ends_early`."""
        base, after = context.base_offset, context.next_base
        if base is None or context.live:
            return None
        end = base
        if last is not None and len(last):
            end = int(last.header["last_offset"][-1]) + 1
            if end < base:
                return None  # the name is wrong, and what the indexes prove counts from it
        known = None
        if context.known_by and context.known_end is not None and context.known_end > end:
            known = evidence.Witness(context.known_end, context.known_by, context.confirmed_end)
        elif after is not None and not torn:
            # As in a check of the directory: a segment began at the snapshot, and is missing.
            taken = next((offset for offset in context.snapshots if offset >= end), None)
            if taken is not None and not context.holes:
                lost = {**context.place(), "first_offset": end, "last_offset": after - 1}
                return evidence.skips_segment(end, taken, after, size, lost)
            reached = None if context.indexes is None else context.indexes.reached()
            known = None if reached is None else evidence.Witness(*reached)
        if known is None or known.end <= end:
            return None
        lost = {} if torn else {**context.place(), "first_offset": end, "last_offset": known.end - 1}
        return evidence.ends_early(end, known, after is None, size, lost)

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: LogContext
    ) -> Iterator[Chunk]:
        return reencode.encode(rows, frames, file, context)


def _readable(name: str) -> str:
    """Return a name with the bytes that are not UTF-8 written as `\\xff`."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _in_order(before: Any, times: tuple[int, int], after: Any) -> bool:
    """Return whether the first and last timestamp of batches are between those of the batches around them."""
    first, last = times
    return 0 <= int(before["base_timestamp"][-1]) <= first <= last <= int(after["max_timestamp"][0])


def _plausible(head: bytes) -> bool:
    """Return whether the first bytes of a file can be the header of a batch. A 2 at the place of the magic is not enough."""
    if len(head) < HEAD_SIZE:
        return False
    first = np.frombuffer(head, HEAD, 1)[0]
    return bool(
        first["batch_length"] >= MIN_LENGTH
        and first["base_offset"] >= 0
        and first["last_offset_delta"] >= 0
        and first["records_count"] >= 0
        and 0 <= first["attributes"] < 0x80
        and first["partition_leader_epoch"] >= -1
    )


def _content(head: bytes) -> Match:
    """Return how sure it is that a file with these first bytes starts with a batch or a message.

    A message of magic 0 or 1 is proved by its checksum. If it is longer than these bytes, only its lengths can be checked, and logs of
    LevelDB have bytes that pass for them.
    """
    if head[_MAGIC] == MAGIC:
        return Match.SURE if _plausible(head) else Match.NO
    size = LENGTH_END + int.from_bytes(head[LENGTH_END - 4 : LENGTH_END], "big", signed=True)
    if head[_MAGIC] > MAGIC or size < least_size(head[_MAGIC]) or head[0] & 0x80:
        return Match.NO
    if size <= len(head):
        proved = zlib.crc32(head[_MAGIC:size]) == int.from_bytes(head[LENGTH_END:_MAGIC], "big")
        return Match.SURE if proved else Match.NO
    attributes = head[MESSAGE.offset("attributes")] if len(head) >= MESSAGE.head_size else 0
    plausible = (
        size <= LENGTH_END + heads.LIMIT
        and attributes < 16
        and heads.may_be_entry(np.frombuffer(head, np.uint8), 0)
    )
    return Match.MAYBE if plausible else Match.NO


CODEC = KafkaLog()
