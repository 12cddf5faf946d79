"""The tables of a snapshot, and the kinds of its frames."""

from __future__ import annotations

import pyarrow as pa

from logwright.codec.columns import contents
from logwright.codec.table import Column, Table
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE, ACL_TYPE
from logwright.codec.zookeeper.names import GZIP, SNAPPY
from logwright.codec.zookeeper.state.columns import NODE_COLUMNS

NAME = "zookeeper.snapshot"

ROWS = Table(
    "rows",
    (
        *NODE_COLUMNS,
        Column(
            "position",
            pa.int64(),
            "byte of the file, decompressed, where the node starts: its row in frames",
            detail=True,
        ),
    ),
    "One row per node, in the order of the file.",
)
SESSION_ROWS = Table(
    "sessions",
    (
        Column("session_id", pa.int64(), "id of an open session", nullable=False, hexadecimal=True),
        Column("timeout", pa.int32(), "milliseconds", nullable=False),
    ),
    "One row per session.",
)
ACL_ROWS = Table(
    "acls",
    (
        Column("acl_id", pa.int64(), "the number by which nodes refer to the list", nullable=False),
        Column("acl", ACL_TYPE, "the list", nullable=False),
        Column("acl_raw", ACL_RAW_TYPE, "as it is stored, where that is not the text's form", detail=True),
    ),
    "One row per list of the ACL table.",
)
RECORDS = Table(
    "records",
    (
        Column("path_size", pa.int32(), "bytes of its path", nullable=False),
        Column("data_size", pa.int32(), "bytes of its data, -1 for null", nullable=False),
        Column("acl_id", pa.int64(), "number of the list in the ACL table, -1: open to all", nullable=False),
        Column("record", pa.binary(), "the bytes", nullable=False),
    ),
    "One row per node, as it is stored.",
)
FRAMES = Table(
    "frames",
    (
        Column("position", pa.int64(), "byte of the file where the frame starts", nullable=False),
        Column("size", pa.int64(), "bytes"),
        Column(
            "kind",
            pa.string(),
            "header, sessions, acls, node, end, digest or last_processed; a compressed file is one frame, gzip or snappy",
        ),
        Column("checksum", pa.int64(), "the seal of end, digest and last_processed as it is stored"),
        Column("computed", pa.int64(), "the computed checksum of the bytes before that seal", detail=True),
        Column(
            "payload",
            pa.binary(),
            "the frame as it is stored, where it is compressed or not what would be written from the rows and the file table",
            detail=True,
        ),
        Column("raw", pa.binary(), "the bytes of a damaged range; the other columns are null", detail=True),
    ),
    "One row per section or node.",
)
SESSIONS_TYPE = pa.list_(pa.struct([pa.field("session_id", pa.int64()), pa.field("timeout", pa.int32())]))
ACLS_TYPE = pa.list_(pa.struct([pa.field("acl_id", pa.int64()), pa.field("acl", ACL_RAW_TYPE)]))
FILE = Table(
    "file",
    (
        Column(
            "zxid",
            pa.int64(),
            "from the name: the last transaction when the snapshot was begun",
            hexadecimal=True,
        ),
        Column("size", pa.int64(), "bytes of the file", nullable=False),
        Column("frames", pa.int64(), "good frames", nullable=False),
        Column("compression", pa.string(), "none, gzip or snappy", nullable=False),
        Column("version", pa.int32(), "of the format; null if the header is unreadable"),
        Column("dbid", pa.int64(), "-1; null as version"),
        Column("sessions", SESSIONS_TYPE, "the open sessions; null if unreadable"),
        Column("acls", ACLS_TYPE, "the ACL table, as it is stored"),
        Column(
            "digest_zxid",
            pa.int64(),
            "zxid of the digest; null where the file has none, as the next two",
            hexadecimal=True,
        ),
        Column("digest_version", pa.int32(), "2"),
        Column("digest", pa.int64(), "digest of the tree after that zxid"),
        Column("last_processed_zxid", pa.int64(), "null where the file has none", hexadecimal=True),
        Column("trailing", pa.binary(), "the bytes at the end that no frame covers", nullable=False),
        Column("trailing_zeros", pa.int64(), "zero bytes after that", nullable=False),
    ),
    "One row.",
)

(
    HEADER_FRAME,
    SESSIONS_FRAME,
    ACLS_FRAME,
    NODE_FRAME,
    END_FRAME,
    DIGEST_FRAME,
    LAST_FRAME,
    GZIP_FRAME,
    SNAPPY_FRAME,
) = range(9)
KINDS = ("header", "sessions", "acls", "node", "end", "digest", "last_processed", "gzip", "snappy")
KIND_NAMES = contents(pa.string(), [name.encode() for name in KINDS])
SEAL_FRAMES = {"end": END_FRAME, "digest": DIGEST_FRAME, "last_processed": LAST_FRAME}
COMPRESSION = {"": "none", GZIP: "gzip", SNAPPY: "snappy"}
