"""The codec `bookkeeper.entrylog`: files of entries of many ledgers (`<id in hex>.log`), and the temporary files of compaction.

A row is an entry. Ledgers maps and fillers are frames without rows. Written from rows alone, a log gets its ledgers map.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Bytes, Int64s
from logwright.codec.bookkeeper.formats import digest, entry_fields
from logwright.codec.bookkeeper.formats.digest import HMAC, MISMATCH, UNKNOWN, Digests, Entries, matched_sizes
from logwright.codec.bookkeeper.formats.entries import DIGEST_COLUMNS, LARGEST
from logwright.codec.bookkeeper.formats.entrylog.layout import (
    BLOCK,
    HEADER,
    HEADER_SIZE,
    INVALID_LEDGER,
    LEDGERS_MAP,
    MAP_ENTRY,
    MARKER,
    NAME,
    SPECIFICATION,
)
from logwright.codec.bookkeeper.formats.entrylog.ledgersmap import (
    LedgersMap,
    ledger_sizes,
    log_header,
    map_bytes,
    read_map,
)
from logwright.codec.bookkeeper.formats.evidence import (
    at_indexed_place,
    fits_total,
    misplaced,
    strays,
    unknown,
    unmapped,
)
from logwright.codec.bookkeeper.formats.suspects import (
    SAMPLE,
    DigestedCodec,
    DigestedContext,
    misdirected,
    sampled,
)
from logwright.codec.columns import binary
from logwright.codec.describe import Struct
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.frames import scanner
from logwright.codec.frames.codec import Part
from logwright.codec.frames.format import POSITION
from logwright.codec.frames.scanner import MAIN
from logwright.codec.frames.scanner import MARKER as MARKER_KIND
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be
from logwright.codec.option import Option, parse_bool
from logwright.codec.table import Column, Table
from logwright.codec.window import Chunk, Frames, Window

_SERVED = "the bookie serves it; clients refuse it"
_NUMBERS = ("entry_size", "ledger_id", "entry_id", "last_add_confirmed", "length")
_UNDAMAGED = 1 << 62
_FIELDS, _LEAST = 24, 36
"""The sizes of the fields of an entry after its ledger id, and of the frame of an empty entry without a digest."""
_PLANNED = 1 << 15
"""Rows of which the sizes are computed at a time."""
_STRIPE = 1 << 7
"""A torn entry is accepted if the last one of its ledger has an id that differs by at most this much."""

ROWS = Table(
    "rows",
    (
        Column("ledger_id", pa.int64(), "the ledger", nullable=False, prunes=True),
        Column("entry_id", pa.int64(), "the entry", nullable=False, prunes=True),
        Column("last_add_confirmed", pa.int64(), "the highest entry known to be acknowledged when this one was sent"),
        Column("length", pa.int64(), "bytes of all payloads of the ledger up to this one"),
        Column("payload", pa.binary(), "the payload"),
        *DIGEST_COLUMNS,
        POSITION,
    ),
    "One row per entry, in file order.",
    key=("ledger_id", "entry_id"),
)  # fmt: skip
VERSION = Option(
    "entryLogHeaderVersion", 1, "Header version that is written; 0 has no ledgers map", low=0, high=1
)
WRITE_MAP = Option(
    "ledgersMap", True, "Whether a ledgers map is written, as at the rotation of a log", parse_bool
)


@dataclass
class EntryLogContext(DigestedContext):
    """`map`: the ledgers map, None without a header. `direct`: whether the direct-I/O writer wrote the file."""

    map: LedgersMap | None = None
    direct: bool = False
    first_damage: int = _UNDAMAGED
    """Where the first scan stopped at damage."""


class EntryLog(DigestedCodec):
    """The codec."""

    name = NAME
    title = "BookKeeper entry log"
    rows = ROWS
    spec = SPECIFICATION
    header = HEADER
    header_sizes: Mapping[int, int] = {0: HEADER_SIZE, 1: HEADER_SIZE}
    version_option = VERSION.name
    context_of = EntryLogContext
    pattern = re.compile(r"([0-9a-f]{1,8})\.log(?:\.compacting|\.[0-9a-f]{1,8}\.compacted)?")
    number_base = 16
    fixed: Mapping[str, str] = {
        name: name for name in ("ledger_id", "entry_id", "last_add_confirmed", "length")
    }
    required = ("ledger_id", "entry_id")
    options = (VERSION, WRITE_MAP, *digest.OPTIONS)
    details = (LEDGERS_MAP, entry_fields.details(SPECIFICATION.struct, _NUMBERS))
    systems: Mapping[int, str] = {
        scanner.ZERO: "the bookie skips zeros byte by byte, and may misread the length of the entry after them",
        scanner.TORN: "a scan by the bookie ends here without an error",
        scanner.BAD_LENGTH: "for a size up to 0 the bookie advances byte by byte and reads garbage; for a large size it runs out of memory",
        scanner.BAD_RULE: "the bookie takes it for an entry of another ledger",
        scanner.UNFOLLOWED: "the bookie reads garbage from here on",
    }

    # Finding entries

    def header_size(self, head: bytes, size: int) -> int | Fault:
        # A bookie accepts every version.
        known = head[:4] == self.magic and len(head) >= HEADER.head_size
        return super().header_size(HEADER.pack({}) if known else head, size)

    def prepare(self, read: Callable[[int, int], Bytes], size: int, context: EntryLogContext) -> None:
        context.map = read_map(read, size)
        head = read(HEADER_SIZE, 12).tobytes()
        context.direct = head == MARKER.pack(
            {"entry_size": BLOCK - HEADER_SIZE - 4, "ledger_id": INVALID_LEDGER}
        )
        data = read(0, min(size, SAMPLE))
        sample = replace(context, digests=Digests(), last={})
        window = Window(data, 0, size)
        for frames in sampled(self, window, sample):
            context.digests.sizes(*self._entries(Part.main(window, frames)))

    def scan(self, window: Window, at: int, context: EntryLogContext, *, check: bool = True) -> Frames:
        frames = super().scan(window, at, context, check=check)
        if context.damaged >= 0:
            context.first_damage = min(context.first_damage, context.damaged)
        if check and not window.offset + at and len(frames):
            frames.faults = [*frames.faults, *self._header_faults(context)]
        if check and len(frames):
            frames.faults = [*frames.faults, *_hidden_entries(window, frames)]
        return frames

    def is_independent(self, context: EntryLogContext) -> bool:
        # After damage, entries without a confirmed digest are refused.
        return context.first_damage == _UNDAMAGED

    def _header_faults(self, context: EntryLogContext) -> Iterator[Fault]:
        """Yield the faults of the header and the map. A bookie scans a file whose map it cannot read."""
        if context.map is None:
            return
        if context.map.version not in self.header_sizes:
            text = f"version is {context.map.version}, expected 0 or 1"
            yield Fault(
                NAME, 4, 4, Kind.MAGIC, text, Severity.WARNING, "the bookie logs it and reads the file", 0
            )
        if context.map.error:
            system = "the bookie ignores the ledgers map and scans the file"
            yield Fault(NAME, 8, 12, Kind.LINK, context.map.error, Severity.WARNING, system, 0)

    def _damage(self, window: Window, stop: int, why: int, need: int, context: EntryLogContext) -> Fault:
        fault = super()._damage(window, stop, why, need, context)
        if fault.kind is Kind.PADDING and fault.severity is Severity.INFO and not context.direct:
            text = "zeros at the end of the file; only the direct-I/O entry logger preallocates"
            return replace(
                fault, detail=text, severity=Severity.WARNING, system="the bookie skips them byte by byte"
            )
        return fault

    def is_before_torn(self, window: Window, at: int, size: int, context: EntryLogContext) -> bool:
        """Return whether the entry is the last complete one, or a ledgers map.

        The bytes after it start a frame if their entry is close to the last one of its ledger, or the first of a new ledger.
        """
        data, end = window.data, at + size
        if load_i64be(data, at + 4) == INVALID_LEDGER:
            return load_i64be(data, at + 12) == MAP_ENTRY and size == 24 + 16 * load_i32be(data, at + 20)
        kind = context.digests.known.get(load_i64be(data, at + 4), context.digests.assumed)
        if kind is not None and fits_total(data, at, size, [kind], context.last) is False:
            return False
        left = window.size - window.offset - end
        here = data[end : end + self.spec.struct.head_size]
        torn = self._head(here, 0, len(here))
        if len(here) < min(left, self.spec.struct.head_size) or (
            left >= 4 and not left < int(torn["entry_size"][0]) + 4 <= LARGEST
        ):
            return False
        if left < 20:
            return not here[:1].any()
        ledger, entry = int(torn["ledger_id"][0]), int(torn["entry_id"][0])
        if ledger == INVALID_LEDGER:
            return entry == MAP_ENTRY
        if len(here) == self.spec.struct.head_size and not self.spec.head_fits(here, 0):
            return False
        last = context.last.get(ledger)
        return not (ledger | entry) >> 36 if last is None else abs(entry - last.entry) <= _STRIPE

    def ledgers_of(self, context: EntryLogContext) -> Iterable[int]:
        return () if context.map is None or context.map.error else context.map.sizes

    # Fields

    def detail(self, frame: bytes, at: int, context: EntryLogContext | None) -> Struct:
        kind = self.kind_at(frame, at)
        if kind == MARKER_KIND and frame[12:20] == MAP_ENTRY.to_bytes(8, "big", signed=True):
            return LEDGERS_MAP
        if kind != MAIN or len(frame) < self.spec.struct.head_size:
            return self.struct_at(frame, at)
        known = None if context is None else context.digests
        return entry_fields.detailed(
            self.spec.struct, _NUMBERS, entry_fields.content_fields(frame[4:], known)
        )

    # Reading

    def _located(self, part: Part) -> Entries:
        numbers = (part.head[name].astype(np.int64) for name in ("ledger_id", "entry_id", "length"))
        return Entries(part.data, part.start + 4, part.end, *numbers)

    def _entries(self, part: Part) -> tuple[Entries, Int64s]:
        """Return the entries of a part, and the sizes of the digests that match."""
        entries = self._located(part)
        return entries, matched_sizes(part.head["verdict"], part.data, entries.start, entries.end)

    def unmatched_sizes(self, part: Part, context: EntryLogContext) -> Int64s:
        entries, matched = self._entries(part)
        sizes = context.digests.sizes(entries, matched)
        sizes[misdirected(entries, sizes, context.digests.known)] = MISMATCH
        sizes[misplaced(entries, sizes, context.digests, part.offset)] = MISMATCH
        return sizes

    def refused(self, part: Part, context: EntryLogContext) -> Sequence[tuple[int, Fault]]:
        sizes = self.digest_sizes(part, context)
        # After damage, an entry whose digest nothing confirms may be garbage.
        late = (sizes == UNKNOWN) & (part.start + part.offset > context.first_damage)
        if late.any():
            late &= ~at_indexed_place(self._located(part), context.digests, part.offset)
        maps = _is_map(part) & ~np.isin(sizes, (digest.CRC32C, digest.CRC32))
        wrong = np.flatnonzero((sizes == MISMATCH) | late | maps)
        return [
            (i, self.fault(part, i, Kind.CHECKSUM, "digest mismatch", system=_SERVED)) for i in wrong.tolist()
        ]

    def findings(self, part: Part, context: EntryLogContext) -> Sequence[Fault]:
        if digest.all_match(part.head["verdict"]):
            return ()
        entries, verdicts = self._located(part), part.head["verdict"]
        faults = list(digest.unverified(NAME, context.digests, entries, verdicts, part.offset))
        sizes = self.digest_sizes(part, context)
        faults += self.misnamed(part, strays(entries, sizes, context.digests, part.offset))
        if context.map is not None and context.map.sizes and not context.map.error:
            faults += self.misnamed(part, unmapped(entries, sizes, context.digests, context.map.sizes))
        else:
            faults += self.misnamed(part, unknown(entries, sizes, context.digests))
        return faults

    def columns(self, part: Part, names: Sequence[str], context: EntryLogContext) -> Mapping[str, pa.Array]:
        sizes = self.digest_sizes(part, context)
        start, width = part.start + 4 + digest.HEADER, np.maximum(sizes, 0)
        columns = {}
        if "payload" in names:
            columns["payload"] = binary(part.data, start + width, part.end - start - width)
        return (
            columns
            if len(names) == len(columns)
            else columns | digest.digest_columns(part.data, start, sizes)
        )

    # Writing

    def form(
        self, rows: pa.RecordBatch, at: int, positions: Int64s | None, context: EntryLogContext
    ) -> tuple[Bytes, Int64s]:
        assert context.writer is not None
        return context.writer.write(rows)

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: EntryLogContext
    ) -> Iterator[Chunk]:
        assert context.writer is not None
        context.digests.learn(rows)
        if frames is not None and {"raw", "position"} <= set(frames.column_names):
            damaged = frames.filter(frames["raw"].is_valid())["position"].drop_null()
            context.first_damage = min(damaged.to_pylist(), default=context.first_damage)
        if frames is None and file is None:
            # The header has the position of the map, which follows the entries.
            context.map = self._planned_map(rows, context)
        return super().encode(rows, frames, file, context)

    def _planned_map(self, rows: pa.Table, context: EntryLogContext) -> LedgersMap:
        version = context.options[VERSION.name]
        if not version or not context.options[WRITE_MAP.name]:
            return LedgersMap(version)
        assert context.writer is not None
        sizes: dict[int, int] = {}
        for first in range(0, rows.num_rows, _PLANNED):
            batch = self.complete(rows.slice(first, _PLANNED))
            for ledger, size in ledger_sizes(*context.writer.sizes(batch)).items():
                sizes[ledger] = sizes.get(ledger, 0) + size
        return LedgersMap(version, HEADER_SIZE + sum(sizes.values()) if sizes else 0, len(sizes), sizes)

    def form_header(self, file: pa.Table | None, context: EntryLogContext) -> bytes:
        header = super().form_header(file, context)
        if context.map is None or file is not None:
            return header
        return log_header(context.map.offset, context.map.count, context.map.version)

    def closing(self, at: int, context: EntryLogContext) -> Iterator[Chunk]:
        if context.map is not None and context.map.sizes:
            yield map_bytes(context.map.sizes)


def _hidden_entries(window: Window, frames: Frames) -> Iterator[Fault]:
    """Yield a fault for each frame of ledger -1 that has the other fields of an entry: every reader skips it. Fillers are empty."""
    for i in np.flatnonzero(frames.header["frame_kind"] == MARKER_KIND).tolist():
        at, size = int(frames.start[i]), int(frames.end[i] - frames.start[i])
        fields = window.data[at + 12 : at + SPECIFICATION.struct.head_size].tobytes()
        entry, confirmed, length = (int.from_bytes(fields[k : k + 8], "big", signed=True) for k in (0, 8, 16))
        if (
            len(fields) == _FIELDS
            and any(fields)
            and -1 <= confirmed <= entry
            and 0 <= size - _LEAST <= length + HMAC
        ):
            text = f"a frame of ledger {INVALID_LEDGER} has the content of entry {entry}: its ledger id is damaged"
            system = "the bookie skips it, and refuses the entry"
            yield Fault(NAME, window.offset + at, size, Kind.PAYLOAD, text, Severity.ERROR, system, 1)


def _is_map(part: Part) -> Bools:
    """Return which entries are batches of the ledgers map whose ids are damaged: their sizes fit their numbers of ledgers, which would be
    the upper halves of `last_add_confirmed`."""
    ledgers = part.head["last_add_confirmed"].astype(np.int64) >> 32
    fits: Bools = (ledgers > 0) & (part.end - part.start == 24 + 16 * ledgers)
    return fits


CODEC = EntryLog()
