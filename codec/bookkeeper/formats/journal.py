"""The codec `bookkeeper.journal`: the write-ahead log of a bookie (`<id in hex>.txn`), versions 4 to 6.

Records have no checksum, but most entries have a digest made by the client. Its kind is not stored: a record with a matching digest
reveals it for its ledger. Source: `Journal`, `JournalChannel`, `BookieImpl`, `DigestManager` of BookKeeper.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.columns import binary, contents, fixed_at, numbers
from logwright.codec.describe import I32BE, I64BE, Field, Int, Struct
from logwright.codec.describe import Bytes as BytesType
from logwright.codec.fault import Fault, Kind, UsageError
from logwright.codec.frames import scanner
from logwright.codec.frames.codec import FramedCodec, Part, joined, was_given
from logwright.codec.frames.format import POSITION, FramedContext
from logwright.codec.frames.specification import CERTAIN, IMPOSSIBLE, PLAUSIBLE, FrameSpec, Length, Marker
from logwright.codec.kernels.crc32 import crc32_update
from logwright.codec.kernels.crc32c import crc32c, crc32c_update
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be, load_u32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.option import Option
from logwright.codec.table import Column, Table
from logwright.codec.window import Bytes, Chunk

Int64s = npt.NDArray[np.int64]

NAME = "bookkeeper.journal"
MAGIC, PADDING_MASK, NEWEST = b"BKLG", -0x100, 6
MASTER_KEY, FENCE, EXPLICIT_LAC = -0x1000, -0x2000, -0x8000
_CODES = {"master_key": MASTER_KEY, "fence": FENCE, "explicit_lac": EXPLICIT_LAC}
_KINDS = {code: name.encode() for name, code in _CODES.items()}
_SERVED = "the bookie replays it; clients refuse it"
_SANE = 1 << 28
"""The maximum size of a record: clients send at most `nettyMaxFrameSizeBytes`, 5 MiB by default."""

RECORD = Struct(
    "JournalRecord",
    Field("length", I32BE, "bytes of the record behind this field", sizes=True),
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
    Field("version", Int(4), "4, 5 or 6: from 5 on the header is padded to 512 bytes", default=NEWEST),
    source="JournalChannel",
)
IDS, ENTRY = 20, 36
"""The offsets of the content behind the ids, and of the digest of an entry."""


@kernel("const u1[], i8, i8")
def digest_size(buf: Bytes, at: int, end: int) -> int:
    """Return the size of the digest of an entry: 4 if its CRC-32C matches, 8 if its CRC-32 matches, else 0."""
    if end - at >= ENTRY + 4:
        stored = load_u32be(buf, at + ENTRY)
        head = crc32c_update(0, buf, at + 4, at + ENTRY)
        if crc32c_update(head, buf, at + ENTRY + 4, end) == stored:
            return 4
        if end - at >= ENTRY + 8 and stored == 0:
            head = crc32_update(0, buf, at + 4, at + ENTRY)
            if crc32_update(head, buf, at + ENTRY + 8, end) == load_u32be(buf, at + ENTRY + 4):
                return 8
    return 0


@kernel("const u1[], i8, i8, i8")
def record_rule(buf: Bytes, at: int, end: int, check: int) -> int:
    """Return whether the ids and lengths of a record are plausible. A matching digest of an entry makes it certain."""
    entry = load_i64be(buf, at + 12)
    if load_i64be(buf, at + 4) < 0:
        return IMPOSSIBLE
    if entry >= 0:
        fits = end - at >= ENTRY and load_i64be(buf, at + 20) >= -1 and load_i64be(buf, at + 28) >= 0
        if fits and not (check and digest_size(buf, at, end)):
            return PLAUSIBLE
    elif entry == FENCE:
        fits = end - at == IDS
    else:
        fits = entry in (MASTER_KEY, EXPLICIT_LAC) and end - at >= IDS + 4
        fits = fits and load_i32be(buf, at + IDS) == end - at - IDS - 4
    return CERTAIN if fits else IMPOSSIBLE


@kernel("const u1[], const i8[], const i8[], i8[]")
def digest_sizes(buf: Bytes, starts: Int64s, ends: Int64s, out: Int64s) -> None:
    for i in range(len(starts)):
        out[i] = digest_size(buf, starts[i], ends[i]) if load_i64be(buf, starts[i] + 12) >= 0 else 0


ROWS = Table(
    "rows",
    (
        Column("ledger_id", pa.int64(), "the ledger", nullable=False, prunes=True),
        Column("entry_id", pa.int64(), "the entry; null in records of another kind"),
        Column("last_add_confirmed", pa.int64(), "the highest entry that was acknowledged when the entry was sent"),
        Column("length", pa.int64(), "bytes of all payloads of the ledger up to this one"),
        Column("payload", pa.binary(), "the payload of an entry"),
        Column("kind", pa.string(), "entry, master_key, fence or explicit_lac"),
        Column("digest", pa.binary(), "the client's digest of the entry; null where its kind is not known", detail=True),
        Column("data", pa.binary(), "the master key, or the buffer of an explicit last-add-confirmed", detail=True),
        POSITION,
    ),
    "One row a record, in the order of the file.",
    key=("ledger_id", "entry_id"),
)  # fmt: skip
VERSION = Option("journalFormatVersionToWrite", NEWEST, "Version that is written", low=4, high=NEWEST)
ALIGN = Option("journalAlignmentSize", 512, "From version 5 on, the end is padded", low=512, high=1 << 20)


@dataclass
class JournalContext(FramedContext):
    """`digests`: known digest sizes by ledger. `keyed`: ledgers with a master key. `before`: last entry and length by ledger."""

    digests: dict[int, int] = field(default_factory=dict)
    keyed: set[int] = field(default_factory=set)
    before: dict[int, tuple[int, int]] = field(default_factory=dict)


class Journal(FramedCodec):
    """The codec."""

    name = NAME
    title = "BookKeeper journal"
    rows = ROWS
    spec = FrameSpec(
        NAME, RECORD, Length("length", bias=4, low=IDS, high=_SANE, reach=16 << 20),
        marker=Marker("padding", PADDING, "length", PADDING_MASK, Length("pad_length", bias=8, low=8)),
        rule=record_rule, followers=2, zero_ends=True,
    )  # fmt: skip
    header = HEADER
    header_sizes: Mapping[int, int] = {2: 8, 3: 8, 4: 8, 5: 512, 6: 512}
    version_option = VERSION.name
    context_of = JournalContext
    pattern = re.compile(r"([0-9a-f]{1,16})\.txn")
    number_base = 16
    sequential = True
    fixed: Mapping[str, str] = {"ledger_id": "ledger_id"}
    required = ("ledger_id",)
    options = (VERSION, ALIGN)
    systems: Mapping[int, str] = {
        scanner.ZERO: "the bookie ends the replay of this journal here, without an error",
        scanner.TORN: "the bookie ends the replay of this journal here, without an error",
        scanner.BAD_LENGTH: "the bookie does not start: IOException: Invalid record found with negative length",
        scanner.UNFOLLOWED: "the bookie replays garbage, or does not start",
    }

    def closing(self, at: int, context: JournalContext) -> Iterator[Chunk]:
        align = context.options["journalAlignmentSize"]
        size = -at % align + (align if 0 < -at % align < 8 else 0)
        if size and self.version(context) > 4:
            yield PADDING.pack({"length": PADDING_MASK, "pad_length": size - 8}).ljust(size, b"\0")

    def _sizes(self, part: Part, context: JournalContext) -> Int64s:
        """Return the digest size of each record: -1 if it is not an entry, -2 if its digest is wrong and its ledger's others match."""
        sizes = np.empty(len(part), np.int64)
        digest_sizes(part.data, part.start, part.end, sizes)
        ledgers, entries = part.head["ledger_id"].astype(np.int64), part.head["entry_id"].astype(np.int64)
        context.digests |= dict(zip(ledgers[sizes > 0].tolist(), sizes[sizes > 0].tolist(), strict=True))
        context.keyed |= set(ledgers[entries == MASTER_KEY].tolist())
        unsure = np.flatnonzero((entries >= 0) & (sizes == 0)).tolist()
        for i in unsure:
            # The running total of the ledger determines the size of the payload, and the digest is the rest of the entry.
            ledger, entry = int(ledgers[i]), int(entries[i])
            length = load_i64be(part.data, int(part.start[i]) + 28)
            last, total = context.before.get(ledger, (-1, 0))
            left = int(part.end[i] - part.start[i]) - ENTRY - (length - total)
            if last == entry - 1 and left in (0, 20):
                context.digests.setdefault(ledger, left)
            context.before[ledger] = max((last, total), (entry, length))
        for i in unsure:
            known = context.digests.get(int(ledgers[i]), 0 if int(ledgers[i]) in context.keyed else -2)
            sizes[i] = known if known in (0, 20) and part.end[i] - part.start[i] >= ENTRY + known else -2
        sizes[entries < 0] = -1
        return sizes

    def refused(self, part: Part, context: JournalContext) -> Sequence[tuple[int, Fault]]:
        wrong = np.flatnonzero(self._sizes(part, context) == -2).tolist()
        return [(i, self.fault(part, i, Kind.CHECKSUM, "digest mismatch", system=_SERVED)) for i in wrong]

    def columns(self, part: Part, names: Sequence[str], context: JournalContext) -> Mapping[str, pa.Array]:
        sizes = self._sizes(part, context)
        entries = part.head["entry_id"].astype(np.int64)
        meta = sizes == -1
        where = np.where(meta, part.start, part.start + 20)
        digest = np.maximum(sizes, 0)
        start, length = part.start + ENTRY, part.end - part.start - ENTRY
        keyed = (entries == MASTER_KEY) | (entries == EXPLICIT_LAC)
        return {
            "entry_id": numbers(pa.int64(), np.where(meta, 0, entries), meta),
            "last_add_confirmed": numbers(pa.int64(), fixed_at(part.data, where, ">i8"), meta),
            "length": numbers(pa.int64(), fixed_at(part.data, where + np.where(meta, 0, 8), ">i8"), meta),
            "payload": binary(part.data, start + digest, np.where(meta, -1, length - digest)),
            "kind": contents(pa.string(), [_KINDS.get(entry, b"entry") for entry in entries.tolist()]),
            "digest": binary(part.data, start, np.where(digest > 0, digest, -1)),
            "data": binary(part.data, part.start + 24, np.where(keyed, part.end - part.start - 24, -1)),
        }

    def form(
        self, rows: pa.RecordBatch, at: int, positions: Int64s | None, context: JournalContext
    ) -> tuple[Bytes, Int64s]:
        out = []
        for i, row in enumerate(rows.to_pylist()):
            kind, entry, data = row["kind"] or "entry", row["entry_id"], row["data"] or b""
            known = kind in _CODES or (kind == "entry" and entry is not None and entry >= 0)
            if row["ledger_id"] < 0 or not known:
                text = f"{NAME}: row {i}: a record of kind {kind!r} with ids {row['ledger_id']} and {entry}"
                raise UsageError(text, advice=f"Kinds are entry, {', '.join(_CODES)}; ids are not negative")
            if kind == "entry":
                data = self._entry(row, was_given(rows, "digest"), context)
            elif kind != "fence":
                data = len(data).to_bytes(4, "big") + data
            ids = {"ledger_id": row["ledger_id"], "entry_id": _CODES.get(kind, entry)}
            out.append(RECORD.pack({**ids, "body": data}))
        return joined(out)

    def _entry(self, row: Mapping[str, Any], sealed: bool, context: JournalContext) -> bytes:
        """Encode the content behind the ids of an entry. Defaults: a CRC-32C digest, and the running total of the ledger as length."""
        ledger, entry, payload = row["ledger_id"], row["entry_id"], row["payload"] or b""
        total = context.before.get(ledger, (-1, 0))[1] + len(payload)
        confirmed = entry - 1 if row["last_add_confirmed"] is None else row["last_add_confirmed"]
        context.before[ledger] = entry, total if row["length"] is None else row["length"]
        head = struct.pack(">4q", ledger, entry, confirmed, context.before[ledger][1])
        plain = np.frombuffer(head + payload, np.uint8)
        digest = (row["digest"] or b"") if sealed else crc32c(plain, 0, len(plain)).to_bytes(4, "big")
        return head[16:] + digest + payload


CODEC = Journal()
