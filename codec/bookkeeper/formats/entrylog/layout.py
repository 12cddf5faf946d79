"""The layout of an entry log: file header, entries of interleaved ledgers, ledgers map, fillers.

Source: `DefaultEntryLogger`, `EntryLogManagerBase` and `storage.directentrylogger` of `org.apache.bookkeeper.bookie`.
"""

from __future__ import annotations

from logwright.codec.bookkeeper.formats.digest import HMAC, has_ids, matching_digest
from logwright.codec.bookkeeper.formats.entries import LARGEST, REACH, SMALLEST
from logwright.codec.describe import I32BE, I64BE, Bytes, Field, Int, Repeated, Struct
from logwright.codec.frames.specification import CERTAIN, IMPOSSIBLE, PLAUSIBLE, FrameSpec, Length, Marker
from logwright.codec.kernels.intrinsics import Bytes as Buffer
from logwright.codec.kernels.intrinsics import load_i64be, load_u32be
from logwright.codec.kernels.kernel import kernel

NAME = "bookkeeper.entrylog"
MAGIC, NEWEST = b"BKLO", 1
HEADER_SIZE, BLOCK = 1024, 4096
"""Size of the file header, and of the blocks that the direct-I/O writer aligns to."""
INVALID_LEDGER, MAP_ENTRY = -1, -2
"""The ids of a ledgers map. Readers skip every frame of ledger -1."""
MOST_LEDGERS = 10_000
"""Ledgers in one batch of the map (`LEDGERS_MAP_MAX_BATCH_SIZE`)."""
FILL = 0xF0
"""The byte that the direct-I/O writer fills blocks with."""

HEADER = Struct(
    "EntryLogHeader",
    Field("magic", Bytes(4), "BKLO", only=MAGIC, default=MAGIC),
    Field("version", Int(4), "0: without a ledgers map; 1: may have one", default=NEWEST),
    Field(
        "ledgers_map_offset", I64BE, "byte of the file at which the ledgers map starts; 0: no map", default=0
    ),
    Field("ledgers_count", I32BE, "number of ledgers in the map", default=0),
    source="DefaultEntryLogger.Header",
)
ENTRY = Struct(
    "Entry",
    Field("entry_size", I32BE, "bytes of the entry after this field", sizes=True),
    Field("ledger_id", I64BE, "the ledger"),
    Field("entry_id", I64BE, "the entry"),
    Field("last_add_confirmed", I64BE, "the highest entry known to be acknowledged when this one was sent"),
    Field("length", I64BE, "bytes of all payloads of the ledger up to this one"),
    Field("body", Bytes("rest"), "digest (0, 4, 8 or 20 bytes) and payload", default=b""),
    source="DigestManager.computeDigestAndPackageForSending",
)
MARKER = Struct(
    "LedgerMinusOne",
    Field("entry_size", I32BE, "bytes of the frame after this field"),
    Field("ledger_id", I64BE, "-1", only=INVALID_LEDGER),
    doc="A batch of the ledgers map (entry id -2), or a filler.",
)
LEDGERS_MAP = Struct(
    "LedgersMapBatch",
    Field("entry_size", I32BE, "bytes of the batch after this field", sizes=True),
    Field("ledger_id", I64BE, "-1", only=INVALID_LEDGER, default=INVALID_LEDGER),
    Field("entry_id", I64BE, "-2", only=MAP_ENTRY, default=MAP_ENTRY),
    Field(
        "ledgers",
        Repeated(
            Struct(
                "LedgerSize",
                Field("ledger_id", I64BE, "the ledger"),
                Field("size", I64BE, "bytes of the frames of the ledger in this file"),
            ),
            I32BE,
        ),
        "at most 10000 ledgers",
    ),
    source="EntryLogManagerBase.BufferedLogChannel.appendLedgersMap",
)


@kernel("const u1[], i8, i8, i8")
def entry_rule(buf: Buffer, at: int, end: int, check: int) -> int:
    """Return whether the ids of an entry are possible. If a digest matches, the verdict is `CERTAIN` plus its size."""
    if load_i64be(buf, at + 4) < 0 or load_i64be(buf, at + 12) < 0:
        return IMPOSSIBLE
    size = matching_digest(buf, at + 4, end) if check else 0
    return CERTAIN + size if size else PLAUSIBLE


@kernel("const u1[], i8")
def is_plausible(buf: Buffer, at: int) -> bool:
    """Return whether the header fields of an entry are consistent. The search after damage requires this of a candidate."""
    return has_ids(buf, at) and load_i64be(buf, at + 28) >= load_u32be(buf, at) - 32 - HMAC


SPECIFICATION = FrameSpec(
    NAME, ENTRY, Length("entry_size", bias=4, low=SMALLEST, high=LARGEST, reach=REACH),
    marker=Marker("marker", MARKER, "ledger_id", INVALID_LEDGER, Length("entry_size", bias=4, low=12)),
    rule=entry_rule, followers=2, zero_ends=True, fill=FILL, head_rule=is_plausible, verdicts=True, kind="entry",
)  # fmt: skip
