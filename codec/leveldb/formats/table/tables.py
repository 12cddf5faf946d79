"""The tables of `leveldb.table`, and its decoding context.

The rest of the codec imports this module, which must import none of it.
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
        Column("level", pa.int32(), "level of the file, if the manifest records it", detail=True),
        Column(
            "position",
            pa.int64(),
            "byte of the file where the entry's block starts: its row in frames",
            detail=True,
        ),
    ),
    "One row per entry, in the order of the file.",
    ("key", "-sequence"),
)

FRAMES = Table(
    "frames",
    (
        Column("position", pa.int64(), "byte of the file where the block starts", nullable=False),
        Column(
            "size",
            pa.int64(),
            "bytes of the stored block, without the 5 of its trailer, as in a BlockHandle",
        ),
        Column("kind", pa.string(), "data, filter, metaindex or index"),
        Column(
            "compression",
            pa.string(),
            "none, snappy, zstd, zlib or zlib_raw; unknown and the type number for another type",
        ),
        Column("crc", pa.int64(), "the stored checksum, which is masked"),
        Column(
            "entries",
            pa.int64(),
            "entries of the block; null for a filter, or if it cannot be read to its end",
        ),
        Column("uncompressed_size", pa.int64(), "bytes of the uncompressed block; null as entries"),
        Column(
            "restart_interval",
            pa.int64(),
            "entries from a restart point to the next; null as entries",
            detail=True,
        ),
        Column("index_key", pa.binary(), "the internal key of a data block in the index", detail=True),
        Column(
            "payload",
            pa.binary(),
            "the stored block, if it is compressed or differs from what would be written from the rows",
            detail=True,
        ),
        RAW,
    ),
    "One row per block.",
)

FILE = Table(
    "file",
    (
        *extent("blocks"),
        Column("metaindex_offset", pa.int64(), "from the footer, as the next three; null without a footer"),
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
    "Maximum size in bytes of a decompressed block, and of its expanded keys and values; a larger one counts as damaged",
    low=1,
    high=1 << 30,
)


@dataclass
class TableContext:
    """Decoding parameters of a table."""

    options: Options
    file: int | None = None
    level: int | None = None
    comparator: str | None = None
    """The name of the comparator, if it is known. Index keys are of use only then."""
    bounds: tuple[bytes, bytes] | None = None
    """The smallest and the largest user key, if the manifest records them."""
    blocks: Blocks | None = None
