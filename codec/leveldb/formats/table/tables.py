"""The tables of `leveldb.table`, and what decoding a table file needs to know besides its bytes.

The rest of the codec imports this module: it must import none of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from logwright.codec.leveldb.formats.table.index import Blocks
from logwright.codec.option import Option, Options
from logwright.codec.table import RAW, Column, Table, ending, extent

ROWS = Table(
    "rows",
    (
        Column("key", pa.binary(), "the user key", nullable=False, prunes=True),
        Column("value", pa.binary(), "null for a deletion"),
        Column("sequence", pa.int64(), "sequence number of the write", nullable=False),
        Column("type", pa.string(), "value or deletion", nullable=False),
        Column("file", pa.int64(), "number of the file, from its name", detail=True),
        Column("level", pa.int32(), "level of the file, where the manifest says it", detail=True),
        Column(
            "position",
            pa.int64(),
            "byte of the file where the entry's block starts: its row in frames",
            detail=True,
        ),
    ),
    "One row an entry, in the order of the file.",
    ("key", "-sequence"),
)

FRAMES = Table(
    "frames",
    (
        Column("position", pa.int64(), "byte of the file where the block starts", nullable=False),
        Column(
            "size",
            pa.int64(),
            "bytes of the block as it is stored, without the 5 of its trailer, as in a BlockHandle",
        ),
        Column("kind", pa.string(), "data, filter, metaindex or index"),
        Column(
            "compression",
            pa.string(),
            "none, snappy, zstd, zlib or zlib_raw; unknown and the number of the type for another",
        ),
        Column("crc", pa.int64(), "the checksum as it is stored: masked"),
        Column(
            "entries",
            pa.int64(),
            "entries of the block; null for a filter, and where it can't be read to its end",
        ),
        Column("uncompressed_size", pa.int64(), "bytes of the block uncompressed; null as entries"),
        Column(
            "restart_interval",
            pa.int64(),
            "entries from a restart point to the next; null as entries",
            detail=True,
        ),
        Column("index_key", pa.binary(), "the internal key that the index has for a data block", detail=True),
        Column(
            "payload",
            pa.binary(),
            "the block as it is stored, where it is compressed or not what would be written from the rows",
            detail=True,
        ),
        RAW,
    ),
    "One row a block.",
)

FILE = Table(
    "file",
    (
        *extent("blocks"),
        Column(
            "metaindex_offset", pa.int64(), "from the footer, as the next three; null where there is none"
        ),
        Column("metaindex_size", pa.int64(), "without the trailer"),
        Column("index_offset", pa.int64(), "byte of the file"),
        Column("index_size", pa.int64(), "without the trailer"),
        *ending("block"),
    ),
    "One row.",
)

MAX_DECOMPRESSED = Option(
    "max.decompressed.bytes",
    256 << 20,
    "Bytes that a block may take decompressed, and its keys and values written out; one with more counts as damaged",
    low=1,
    high=1 << 30,
)


@dataclass
class TableContext:
    """What decoding a table needs to know besides its bytes."""

    options: Options
    file: int | None = None
    level: int | None = None
    comparator: str | None = None
    """The name of the order of the keys, where it is known: what the index says of keys is of use only then."""
    bounds: tuple[bytes, bytes] | None = None
    """The smallest and the largest user key, where the manifest says it."""
    blocks: Blocks | None = None
