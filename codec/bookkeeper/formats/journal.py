"""The codec `bookkeeper.journal`: the write-ahead log of a bookie (`<id in hex>.txn`), versions 1 to 6.

Records have no checksum, but most entries have a digest computed by the client. Its type is not stored: a record with a matching digest
reveals it for its ledger. Source: `Journal`, `JournalChannel`, `BookieImpl`, `DigestManager` of BookKeeper.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bytes, Int64s
from logwright.codec.bookkeeper.formats import digest, entry_fields
from logwright.codec.bookkeeper.formats.digest import (
    LAC_SIZE,
    MISMATCH,
    UNKNOWN,
    Digests,
    Entries,
    lac_matches,
    matched_sizes,
    matching_digest,
)
from logwright.codec.bookkeeper.formats.entries import DIGEST_COLUMNS, LARGEST, REACH
from logwright.codec.bookkeeper.formats.evidence import strays
from logwright.codec.bookkeeper.formats.suspects import SAMPLE, DigestedCodec, DigestedContext, sampled
from logwright.codec.columns import binary, constant, contents, fixed_at, gather, joined, numbers
from logwright.codec.deferred import compute as pc
from logwright.codec.describe import I32BE, I64BE, Enclosed, Field, Int, Struct
from logwright.codec.describe import Bytes as BytesType
from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.codec.frames import scanner
from logwright.codec.frames.codec import Part
from logwright.codec.frames.format import POSITION
from logwright.codec.frames.specification import CERTAIN, IMPOSSIBLE, PLAUSIBLE, FrameSpec, Length, Marker
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be, load_u8
from logwright.codec.kernels.kernel import kernel
from logwright.codec.option import Option, Options
from logwright.codec.single_frame import single_value
from logwright.codec.table import Column, Table
from logwright.codec.window import Chunk, Frames, Window, Zeros

NAME = "bookkeeper.journal"
MAGIC, PADDING_MASK, NEWEST = b"BKLG", -0x100, 6
MASTER_KEY, FENCE, EXPLICIT_LAC = -0x1000, -0x2000, -0x8000
_CODES = {"master_key": MASTER_KEY, "fence": FENCE, "explicit_lac": EXPLICIT_LAC}
_KINDS = {code: name.encode() for name, code in _CODES.items()}
_SERVED = "the bookie replays it; clients refuse it"
RECORD = Struct(
    "JournalRecord",
    Field("length", I32BE, "bytes of the record after this field", sizes=True),
    Field("ledger_id", I64BE, "the ledger"),
    Field("entry_id", I64BE, "the entry; -4096 master key, -8192 fence, -32768 explicit last-add-confirmed"),
    Field("body", BytesType("rest"), "of an entry: last-add-confirmed, length, digest, payload", default=b""),
    source="Journal.QueueEntry",
)
PADDING = Struct(
    "Padding",
    Field("length", I32BE, "-256", only=PADDING_MASK),
    Field("pad_length", I32BE, "bytes that follow, up to a multiple of the alignment"),
)
HEADER = Struct(
    "JournalHeader",
    Field("magic", BytesType(4), "BKLG", only=MAGIC, default=MAGIC),
    Field("version", Int(4), "2 to 6: from 5 on the header is padded to 512 bytes", default=NEWEST),
    source="JournalChannel",
)
IDS, ENTRY = 20, 36
"""The offsets of the content after the ids, and of the digest of an entry."""
_IDS = ("length", "ledger_id", "entry_id")
_NUMBERS = (
    Field("last_add_confirmed", I64BE, "the highest entry known to be acknowledged when this one was sent"),
    Field("ledger_length", I64BE, "bytes of all payloads of the ledger up to this one"),
)
_LAC = Struct(
    "ExplicitLac",
    Field("ledger_id", I64BE, "the ledger"),
    Field("last_add_confirmed", I64BE, "the highest entry that is acknowledged"),
    Field("digest", BytesType("rest"), "of these two numbers"),
)
_DETAILS: Mapping[int, Sequence[Field]] = {
    MASTER_KEY: (Field("master_key", BytesType(I32BE), "SHA-1 of the password of the ledger"),),
    EXPLICIT_LAC: (Field("explicit_lac", Enclosed(I32BE, _LAC), "as the client sent it"),),
    FENCE: (),
}
"""The fields after the ids of records that are not entries."""
_MISMATCH = "digest mismatch"
_STRANGER = (
    "digest mismatch, or an HMAC of a ledger without an index and without a master key in these journals: verify all directories of the "
    "bookie together, or pass the option passwd (--passwd env:NAME or --passwd file:PATH)"
)
WRONG_LAC = "the digest of the explicit last-add-confirmed is wrong"
_UNOPENED = "a client cannot open the ledger, unless a later record replaces this one"
_META = -3
"""Stands for the size of a digest if the record is not an entry."""
_START = struct.Struct(">iqqqq")


@kernel("const u1[], i8, i8, i8")
def record_rule(buf: Bytes, at: int, end: int, check: int) -> int:
    """Return whether the ids and lengths of a record are plausible. If a digest matches, the verdict is `CERTAIN` plus its size."""
    entry = load_i64be(buf, at + 12)
    if load_i64be(buf, at + 4) < 0:
        return IMPOSSIBLE
    if entry >= 0:
        if end - at < ENTRY or load_i64be(buf, at + 20) < -1 or load_i64be(buf, at + 28) < 0:
            return IMPOSSIBLE
        size = matching_digest(buf, at + 4, end) if check else 0
        return CERTAIN + size if size else PLAUSIBLE
    if entry == FENCE:
        fits = end - at == IDS
    else:
        fits = entry in (MASTER_KEY, EXPLICIT_LAC) and end - at >= IDS + 4
        fits = fits and load_i32be(buf, at + IDS) == end - at - IDS - 4
    return CERTAIN if fits else IMPOSSIBLE


@kernel("const u1[], const i8[], const i8[], i8")
def next_nonzero(buf: Bytes, starts: Int64s, ends: Int64s, first: int) -> int:
    """Return the first of the ranges from number `first` on that has a byte other than zero; -1 without one."""
    for i in range(first, len(starts)):
        bits = 0
        for at in range(starts[i], ends[i]):
            bits |= load_u8(buf, at)
        if bits:
            return i
    return -1


ROWS = Table(
    "rows",
    (
        Column("ledger_id", pa.int64(), "the ledger", nullable=False, prunes=True),
        Column("entry_id", pa.int64(), "the entry; null in records of another kind"),
        Column("last_add_confirmed", pa.int64(), "the highest entry that was acknowledged when the entry was sent"),
        Column("length", pa.int64(), "bytes of all payloads of the ledger up to this one"),
        Column("payload", pa.binary(), "the payload of an entry"),
        Column("kind", pa.string(), "entry, master_key, fence or explicit_lac"),
        *DIGEST_COLUMNS,
        Column("data", pa.binary(), "the master key, or the buffer of an explicit last-add-confirmed", detail=True),
        POSITION,
    ),
    "One row per record, in the order of the file.",
    key=("ledger_id", "entry_id"),
)  # fmt: skip
VERSION = Option(
    "journalFormatVersionToWrite", NEWEST, "Version that is written; 1 has no header", low=1, high=NEWEST
)
ALIGN = Option("journalAlignmentSize", 512, "From version 5 on, the end is padded", low=512, high=1 << 20)
ALLOCATED = Option(
    "journalPreAllocSizeMB", 0, "Zeros fill the file up to a multiple of this size", low=0, high=1 << 10
)
FIRST_VERSIONS = {MASTER_KEY: 3, FENCE: 4, EXPLICIT_LAC: 6}
"""The first version with records of each kind. Source: `BookieImpl.readJournal`."""
_TEXTS = {MASTER_KEY: "masterKey", FENCE: "fenceKey", EXPLICIT_LAC: "explicitLAC"}


@dataclass
class JournalContext(DigestedContext):
    """`version`: of the file. `known_ledgers`: those with a master key in the file; `of_bookie`: those with an
    index, or a master key in any journal of the bookie."""

    version: int = NEWEST
    known_ledgers: set[int] = field(default_factory=set)
    of_bookie: Container[int] = ()


class Journal(DigestedCodec):
    """The codec."""

    name = NAME
    title = "BookKeeper journal"
    rows = ROWS
    spec = FrameSpec(
        NAME, RECORD, Length("length", bias=4, low=IDS, high=LARGEST, reach=REACH),
        marker=Marker("padding", PADDING, "length", PADDING_MASK, Length("pad_length", bias=8, low=8)),
        rule=record_rule, followers=2, zero_ends=True, verdicts=True,
    )  # fmt: skip
    header = HEADER
    header_sizes: Mapping[int, int] = {1: 0, 2: 8, 3: 8, 4: 8, 5: 512, 6: 512}
    version_option = VERSION.name
    context_of = JournalContext
    pattern = re.compile(r"([0-9a-f]{1,16})\.txn")
    number_base = 16
    sequential = True
    fixed: Mapping[str, str] = {"ledger_id": "ledger_id"}
    required = ("ledger_id",)
    options = (VERSION, ALIGN, ALLOCATED, *digest.OPTIONS)
    details = (
        entry_fields.details(RECORD, _IDS, *_NUMBERS),
        *(entry_fields.detailed(RECORD, _IDS, fields) for fields in _DETAILS.values()),
    )
    systems: Mapping[int, str] = {
        scanner.ZERO: "the bookie ends the replay of this journal here, without an error",
        scanner.TORN: "the bookie ends the replay of this journal here, without an error",
        scanner.BAD_LENGTH: "the bookie does not start: IOException: Invalid record found with negative length",
        scanner.UNFOLLOWED: "the bookie replays garbage, or does not start",
    }

    def context(self, name: str, options: Options, **hints: Any) -> JournalContext:
        context = super().context(name, options, **hints)
        assert isinstance(context, JournalContext)
        context.of_bookie = hints.get("ledgers", ())
        return context

    def prepare(self, read: Callable[[int, int], Bytes], size: int, context: JournalContext) -> None:
        head = read(0, HEADER.head_size).tobytes()
        version = 1 if not self.known(head) and self._starts_with_entry(read(0, 64).tobytes(), size) else None
        version = version or self._version(head) or NEWEST
        context.version = version if version in self.header_sizes else NEWEST
        window = Window(read(0, min(size, SAMPLE)), 0, size)
        for frames in sampled(self, window, replace(context, digests=Digests(), last={})):
            self.digest_sizes(Part.main(window, frames), context)

    # Fields

    def detail(self, frame: bytes, at: int, context: JournalContext | None) -> Struct:
        struct = self.struct_at(frame, at)
        entry = int.from_bytes(frame[12:20], "big", signed=True)
        if struct is not self.spec.struct or len(frame) < IDS or (entry >= 0 and len(frame) < ENTRY):
            return struct
        fields: Sequence[Field] = _DETAILS.get(entry, (RECORD["body"],))
        if entry >= 0:
            known = None if context is None else context.digests
            fields = (*_NUMBERS, *entry_fields.content_fields(frame[4:], known))
        return entry_fields.detailed(RECORD, _IDS, fields)

    def is_entry(self, frame: bytes) -> bool:
        return super().is_entry(frame) and not frame[12] >> 7

    # Versions

    def header_size(self, head: bytes, size: int) -> int | Fault:
        # Version 1 has no header: the file starts with an entry, or with preallocated zeros.
        if not self.known(head) and self._starts_with_entry(head, size):
            return 0
        return super().header_size(head, size)

    @staticmethod
    def _starts_with_entry(head: bytes, size: int) -> bool:
        if not any(head):
            return size > len(MAGIC)
        length, ledger, entry, confirmed, total = _START.unpack(
            head.ljust(_START.size, b"\xff")[: _START.size]
        )
        return bool(
            ENTRY - 4 <= length <= size - 4 and min(ledger, entry, total) >= 0 and -1 <= confirmed <= entry
        )

    def file_facts(self, head: Window, size: int, tail: bytes, zeros: int, context: Any) -> Mapping[str, Any]:
        facts, start = super().file_facts(head, size, tail, zeros, context), head.data[:4096].tobytes()
        first = not self.known(start) and self._starts_with_entry(start, size)
        return {**facts, "version": 1} if first else facts

    def form_header(self, file: pa.Table | None, context: Any) -> bytes:
        version = single_value(file, "version")
        version = self.version(context) if version is None else version
        return b"" if version == 1 else super().form_header(file, context)

    def scan(self, window: Window, at: int, context: JournalContext, *, check: bool = True) -> Frames:
        frames = super().scan(window, at, context, check=check)
        if check and len(frames):
            frames.faults = [*frames.faults, *self._filled_padding(window, frames)]
        return frames

    def _filled_padding(self, window: Window, frames: Frames) -> Iterator[Fault]:
        """Report padding with bytes other than zero."""
        padding = frames.pick(frames.header["frame_kind"] == scanner.MARKER)
        starts = padding.start + PADDING.head_size
        i = int(next_nonzero(window.data, starts, padding.end, 0))
        while i >= 0:
            at, size = int(padding.start[i]), int(padding.end[i] - padding.start[i])
            text, system = "the padding is not all zeros", "the bookie skips it"
            yield Fault(NAME, window.offset + at, size, Kind.PADDING, text, Severity.WARNING, system, 0)
            i = int(next_nonzero(window.data, starts, padding.end, i + 1))

    def findings(self, part: Part, context: JournalContext) -> Sequence[Fault]:
        """Report records of a kind that the version of the file does not have, with which a bookie does not start, and those of an explicit
        last-add-confirmed with a wrong digest."""
        kinds = part.head["entry_id"]
        faults: list[Fault] = []
        for i in np.flatnonzero(kinds == EXPLICIT_LAC).tolist():
            ledger = int(part.head["ledger_id"][i])
            lac = part.data[int(part.start[i]) + IDS + 4 : int(part.end[i])].tobytes()
            if not lac_matches(ledger, lac, len(lac) - LAC_SIZE, context.digests.password(ledger)):
                text = WRONG_LAC
                fault = self.fault(part, i, Kind.PAYLOAD, text, Severity.WARNING, _UNOPENED)
                faults.append(replace(fault, rows_lost=0))
        for code, first in FIRST_VERSIONS.items():
            if context.version >= first or not (places := np.flatnonzero(kinds == code)).size:
                continue
            name, version = _TEXTS[code], context.version
            text = f"Invalid journal. Contains {name} but layout version ({version}) is too old to hold this"
            system = f"the bookie does not start: IOException: {text}"
            faults.append(self.fault(part, int(places[0]), Kind.PAYLOAD, text, Severity.WARNING, system))
        if digest.all_match(part.head["verdict"]):
            return faults
        data, entries = self._entries(part)
        verdicts = part.head["verdict"][data]
        faults += digest.unverified(NAME, context.digests, entries, verdicts, part.offset)
        sizes = self.digest_sizes(part, context)[data]
        return [
            *faults,
            *self.misnamed(part.pick(data), strays(entries, sizes, context.digests, part.offset)),
        ]

    def closing(self, at: int, context: JournalContext) -> Iterator[Chunk]:
        align = context.options[ALIGN.name]
        size = -at % align + (align if 0 < -at % align < 8 else 0)
        if size and self.version(context) > 4:
            at += size
            yield PADDING.pack({"length": PADDING_MASK, "pad_length": size - 8}).ljust(size, b"\0")
        if context.options[ALLOCATED.name]:
            yield Zeros(-at % (context.options[ALLOCATED.name] << 20))

    def _entries(self, part: Part) -> tuple[Int64s, Entries]:
        """Return the indices of the records that are entries, and the entries."""
        data = np.flatnonzero(part.head["entry_id"].astype(np.int64) >= 0)
        ledger, entry = (part.head[name][data].astype(np.int64) for name in ("ledger_id", "entry_id"))
        start = part.start[data] + 4
        length = fixed_at(part.data, start + 24, ">i8").astype(np.int64)
        return data, Entries(part.data, start, part.end[data], ledger, entry, length)

    def unmatched_sizes(self, part: Part, context: JournalContext) -> Int64s:
        ledger = part.head["ledger_id"].astype(np.int64)
        context.known_ledgers |= set(ledger[part.head["entry_id"] == MASTER_KEY].tolist())
        sizes = np.full(len(part), _META)
        data, entries = self._entries(part)
        matched = matched_sizes(part.head["verdict"][data], part.data, entries.start, entries.end)
        sizes[data] = context.digests.sizes(entries, matched)
        unproved = sizes[data] == UNKNOWN
        if context.digests.stored is not None:
            # An option that only assumes the type does not prove a ledger of the bookie.
            unproved |= (
                (matched == 0) & (sizes[data] >= 0) & ~np.isin(entries.ledger, list(context.digests.known))
            )
        unknown = data[unproved]
        context.known_ledgers |= digest.consistent_ledgers(entries.pick(np.flatnonzero(unproved)))
        # A record of a ledger that occurs nowhere else may be garbage.
        strangers = set(ledger[unknown].tolist()) - context.known_ledgers
        known = {number for number in strangers if number in context.of_bookie}
        context.known_ledgers |= known
        sizes[unknown[np.isin(ledger[unknown], list(strangers - known))]] = MISMATCH
        return sizes

    def refused(self, part: Part, context: JournalContext) -> Sequence[tuple[int, Fault]]:
        wrong = np.flatnonzero(self.digest_sizes(part, context) == MISMATCH).tolist()
        ledger = part.head["ledger_id"].astype(np.int64)
        texts = {i: _MISMATCH if int(ledger[i]) in context.digests.known else _STRANGER for i in wrong}
        return [(i, self.fault(part, i, Kind.CHECKSUM, texts[i], system=_SERVED)) for i in wrong]

    def columns(self, part: Part, names: Sequence[str], context: JournalContext) -> Mapping[str, pa.Array]:
        sizes = self.digest_sizes(part, context)
        meta = sizes == _META
        null = meta if meta.any() else None
        start = part.start + ENTRY
        out: dict[str, pa.Array] = {}
        if "payload" in names:
            first = start + np.maximum(sizes, 0)
            length = part.end - first
            length[meta] = -1
            out["payload"] = binary(part.data, first, length)
        if "digest" in names or "digest_type" in names:
            out |= digest.digest_columns(part.data, start, sizes)
        # Every record has 20 bytes or more.
        where = part.start + IDS if null is None else np.where(meta, part.start, part.start + IDS)
        for name, at in (("last_add_confirmed", 0), ("length", 8)):
            if name in names:
                out[name] = numbers(pa.int64(), fixed_at(part.data, where + at, ">i8"), null)
        entries = part.head["entry_id"].astype(np.int64)
        if "entry_id" in names:
            out["entry_id"] = numbers(
                pa.int64(), entries if null is None else np.where(meta, 0, entries), null
            )
        if "kind" in names and null is None:
            out["kind"] = constant(pa.string(), "entry", len(part))
        elif "kind" in names:
            kinds = np.select([entries == code for code in _KINDS], list(range(1, len(_KINDS) + 1)), 0)
            kind_names = contents(pa.string(), [b"entry", *_KINDS.values()])
            out["kind"] = kind_names.take(numbers(pa.int64(), kinds))
        if "data" in names:
            keyed = (entries == MASTER_KEY) | (entries == EXPLICIT_LAC)
            size = np.where(keyed, part.end - part.start - 24, -1)
            out["data"] = binary(part.data, part.start + 24, size)
        return out

    # Writing

    def encode(
        self, rows: pa.Table, frames: pa.Table | None, file: pa.Table | None, context: JournalContext
    ) -> Iterator[Chunk]:
        context.digests.learn(rows)
        return super().encode(rows, frames, file, context)

    def form(
        self, rows: pa.RecordBatch, at: int, positions: Int64s | None, context: JournalContext
    ) -> tuple[Bytes, Int64s]:
        assert context.writer is not None
        kinds = rows["kind"].fill_null("entry")
        entry = np.asarray(pc.equal(kinds, "entry"), np.bool_)
        bad = ~np.asarray(pc.is_in(kinds, value_set=pa.array(["entry", *_CODES])), np.bool_)
        bad |= np.asarray(rows["ledger_id"], np.int64) < 0
        bad |= entry & (np.asarray(rows["entry_id"].fill_null(-1), np.int64) < 0)
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            kind, ids = kinds[i].as_py(), (rows["ledger_id"][i].as_py(), rows["entry_id"][i].as_py())
            text = f"{NAME}: row {i}: a record of kind {kind!r} with ids {ids[0]} and {ids[1]}"
            raise UsageError(text, advice=f"Kinds are entry, {', '.join(_CODES)}; ids are not negative")
        if entry.all():
            return context.writer.write(rows)
        encoded, starts = context.writer.write(rows.filter(pa.array(entry)))
        others = rows.filter(pa.array(~entry)).select(["ledger_id", "kind", "data"]).to_pylist()
        more, more_starts = joined(
            [special_record(row["ledger_id"], row["kind"], row["data"] or b"") for row in others]
        )
        # Each record is copied from one of the two to its place.
        source = np.concatenate((encoded, more))
        order = np.argsort(np.concatenate((np.flatnonzero(entry), np.flatnonzero(~entry))), kind="stable")
        sizes = np.concatenate((np.diff(starts), np.diff(more_starts)))[order]
        start = np.concatenate((starts[:-1], more_starts[:-1] + len(encoded)))[order]
        out, ends = np.empty(len(source), np.uint8), np.empty(len(order) + 1, np.int32)
        gather(source, start, sizes, ends, out)
        return out, ends.astype(np.int64)


def special_record(ledger: int, kind: str, data: bytes) -> bytes:
    """Return a record that is not an entry."""
    body = b"" if kind == "fence" else len(data).to_bytes(4, "big") + data
    return RECORD.pack({"ledger_id": ledger, "entry_id": _CODES[kind], "body": body})


CODEC = Journal()
NEW_HEADER = HEADER.pack({}).ljust(Journal.header_sizes[NEWEST], b"\0")


def padding(size: int) -> bytes:
    """Return the padding at the end of a journal of `size` bytes."""
    return b"".join(map(bytes, CODEC.closing(size, CODEC.context("", Options(CODEC.options)))))
