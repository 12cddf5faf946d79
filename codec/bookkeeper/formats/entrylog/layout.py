"""The layout of an entry log: file header, entries of interleaved ledgers, ledgers map, fillers.

Source: `DefaultEntryLogger`, `EntryLogManagerBase` and `storage.directentrylogger` of `org.apache.bookkeeper.bookie`.
"""

from __future__ import annotations

from logwright.codec.bookkeeper.formats.digest import CRC32, CRC32C, HMAC, matching_digest
from logwright.codec.bookkeeper.formats.entries import LARGEST, REACH, SMALLEST
from logwright.codec.describe import I32BE, I64BE, Bytes, Field, Int, Repeated, Struct
from logwright.codec.frames.specification import CERTAIN, IMPOSSIBLE, PLAUSIBLE, FrameSpec, Length, Marker
from logwright.codec.kernels.crc32 import crc32_update
from logwright.codec.kernels.crc32c import crc32c_update
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
def has_ids(buf: Buffer, at: int) -> bool:
    """Return whether the ids of an entry are consistent, whatever its size."""
    entry, confirmed = load_i64be(buf, at + 12), load_i64be(buf, at + 20)
    return load_i64be(buf, at + 4) >= 0 and entry >= 0 and -1 <= confirmed <= entry


@kernel("const u1[], i8")
def is_plausible(buf: Buffer, at: int) -> bool:
    """Return whether the header fields of an entry are consistent. The search after damage requires this of a candidate."""
    return has_ids(buf, at) and load_i64be(buf, at + 28) >= load_u32be(buf, at) - 32 - HMAC


@kernel("const u1[], i8, i8, i8")
def entry_end(buf: Buffer, at: int, first: int, end: int) -> int:
    """Return the end of the entry at `buf[at]` at which a CRC matches; -1 if none matches.

    Ends from `first` to `end` are tried.
    """
    if end - at < 32 + CRC32C:
        return -1
    stored = load_u32be(buf, at + 32)
    low = load_u32be(buf, at + 36) if end - at >= 40 else 0
    ours = crc32c_update(0, buf, at, at + 32)
    theirs = crc32_update(0, buf, at, at + 32)
    p = at + 32 + CRC32C
    for q in range(p, end + 1):
        if q > p:
            ours = crc32c_update(ours, buf, q - 1, q)
            if q > at + 32 + CRC32:
                theirs = crc32_update(theirs, buf, q - 1, q)
        if q >= first and (ours == stored or (stored == 0 and q >= at + 40 and theirs == low)):
            return q
    return -1


SPECIFICATION = FrameSpec(
    NAME, ENTRY, Length("entry_size", bias=4, low=SMALLEST, high=LARGEST, reach=REACH),
    marker=Marker("marker", MARKER, "ledger_id", INVALID_LEDGER, Length("entry_size", bias=4, low=12)),
    rule=entry_rule, followers=2, zero_ends=True, fill=FILL, head_rule=is_plausible, verdicts=True, kind="entry",
)  # fmt: skip
