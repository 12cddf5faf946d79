"""The tables and options of `zookeeper.txnlog`, and the context of decoding.

The rest of the codec imports this module, so it must import none of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from logwright.codec.frames.prefixes import Prefixes
from logwright.codec.option import DECODES, Option, Options, Verb, parse_choice, used_by
from logwright.codec.table import Column, Table
from logwright.codec.zookeeper.jute import MAX_BUFFER
from logwright.codec.zookeeper.store.selection import ROW_OPTIONS

NESTED, EXPLODED = "nested", "exploded"
"""Values of the option `multi`."""

FRAMES = Table(
    "frames",
    (
        Column("position", pa.int64(), "byte of the file where the record starts", nullable=False),
        Column("size", pa.int32(), "bytes of the record, with checksum, length and mark"),
        Column("kind", pa.string(), "header (of the file) or transaction"),
        Column("checksum", pa.int64(), "Adler-32 of the payload, as it is stored"),
        Column("zxid", pa.int64(), "of the transaction", prunes=True, hexadecimal=True),
        Column("time", pa.int64(), "milliseconds"),
        Column("session_id", pa.int64(), "of the client", hexadecimal=True),
        Column("cxid", pa.int32(), "number of the request"),
        Column("type", pa.string(), "create, delete, ..."),
        Column("digest_version", pa.int32(), "of the tree's digest; null without one", detail=True),
        Column("tree_digest", pa.int64(), "digest of the whole tree after the transaction", detail=True),
        Column(
            "payload",
            pa.binary(),
            "the transaction as it is stored, if it differs from what would be written from its rows; or the file's header",
            detail=True,
        ),
        Column("raw", pa.binary(), "the bytes of a damaged range; the other columns are null", detail=True),
    ),
    "One row per record, the first one for the file's header.",
)  # fmt: skip
RECORDS = Table(
    "records",
    (
        Column("zxid", pa.int64(), "of the transaction", nullable=False, prunes=True, hexadecimal=True),
        Column("record", pa.binary(), "the bytes: checksum, length, payload, mark", nullable=False),
    ),
    "One row per transaction, as it is stored.",
)
FILE = Table(
    "file",
    (
        Column("file", pa.int64(), "zxid in the file's name"),
        Column("version", pa.int32(), "in the file's header: 2; null without one"),
        Column("dbid", pa.int64(), "in the file's header: 0; null without one"),
        Column("size", pa.int64(), "bytes of the file", nullable=False),
        Column("frames", pa.int64(), "good records, and the header", nullable=False),
        Column(
            "trailing",
            pa.binary(),
            "the bytes at the end that no record covers, without the zeros after them",
            nullable=False,
        ),
        Column("trailing_zeros", pa.int64(), "number of preallocated zero bytes at the end", nullable=False),
    ),
    "One row.",
)

LIMITS = (
    Option(
        "jute.maxbuffer",
        MAX_BUFFER,
        "The server's own limit: one that was run with more has written larger transactions",
        low=1,
        high=(1 << 31) - 1,
    ),
    Option(
        "jute.maxbuffer.extrasize",
        None,
        "Bytes that a transaction may have above jute.maxbuffer; by default the same number again, as in the server",
        low=1024,
        high=(1 << 31) - 1,
    ),
)
"""Limits of what a server reads."""
PREALLOC = Option(
    "preAllocSize",
    0,
    "KiB that are allocated ahead and left as zeros, as a running server does (its default is 65536); nothing is gained by it in a "
    "log that is finished",
    low=0,
    high=1 << 22,
)
MULTI_AS = Option(
    "multi",
    NESTED,
    "Whether a multi is one row, with its transactions in the column txns, or each of these is a row",
    parse_choice,
    (NESTED, EXPLODED),
)
OPTIONS = (
    *used_by({Verb.READ, Verb.EXPLAIN, Verb.ROUNDTRIP}, MULTI_AS, views=("rows",)),
    *used_by({*DECODES, Verb.INSPECT}, *LIMITS),
    *used_by({Verb.WRITE}, PREALLOC),
    *ROW_OPTIONS,
)


@dataclass
class TxnLogContext:
    """The context of decoding, which is carried from window to window."""

    options: Options
    file: int | None = None
    """The zxid in the file name."""
    may_be_old: bool = False
    """The file may be from a server of 3.0 or older, because it is not in version-2."""
    live: bool = False
    """The server that writes the file may be running."""
    split: bool = False
    """The transactions of a multi are separate rows, whatever the option says."""
    last_zxid: int | None = None
    """The zxid of the transaction that ends at byte `last_end` of the file."""
    last_end: int = -1
    damaged: int = -1
    """Where the last scan stopped at damage."""
    prefixes: Prefixes | None = None

    @property
    def exploded(self) -> bool:
        """Whether the transactions of a multi are separate rows."""
        return self.split or self.options["multi"] == EXPLODED

    @property
    def limit(self) -> int:
        """The largest length that a reader accepts (`BinaryInputArchive.checkLength`)."""
        extra = self.options["jute.maxbuffer.extrasize"]
        most: int = self.options["jute.maxbuffer"]
        return min(most + (max(most, 1024) if extra is None else int(extra)), (1 << 31) - 1)
