"""Writing nodes: from the columns of rows to what is stored, and the sections around them.

What rows leave out is what a server would have made: see `tree` for parents and counters. Source: as `snapshot`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from logwright.codec.describe import I32BE
from logwright.codec.option import Option, parse_bool, parse_choice, parse_hexadecimal
from logwright.codec.zookeeper.acl import packed, table_bytes
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE, Int64s
from logwright.codec.zookeeper.names import GZIP, SNAPPY
from logwright.codec.zookeeper.sections import SESSION_DTYPE

DIGEST_ENABLED = Option(
    "digest.enabled", True, "Whether the digest of the tree is written (3.6 on)", parse_bool
)
LAST_PROCESSED_ENABLED = Option(
    "serializeLastProcessedZxid.enabled",
    True,
    "Whether the last processed zxid is written (3.9 on)",
    parse_bool,
)
METHOD = Option(
    "snapshot.compression.method",
    None,
    "gz or snappy; none where nothing is said, by the file's name or here",
    parse_choice,
    choices=("", "none", GZIP, SNAPPY),
)
ZXID = Option(
    "zxid",
    None,
    "The last transaction in the tree; the one in the file's name, or the highest in the rows, where it is not given",
    parse_hexadecimal,
    low=0,
    high=(1 << 63) - 1,
)
SESSION_TIMEOUT = Option(
    "session.timeout",
    30000,
    "Milliseconds of the sessions that are made for owners of ephemeral nodes",
    low=1,
    high=(1 << 31) - 1,
)
OPTIONS = (DIGEST_ENABLED, LAST_PROCESSED_ENABLED, METHOD, ZXID, SESSION_TIMEOUT)


def sessions_bytes(sessions: Sequence[Mapping[str, int]]) -> bytes:
    """The session table."""
    made = np.zeros(len(sessions), SESSION_DTYPE)
    for i, one in enumerate(sessions):
        made[i] = one["session_id"], one["timeout"]
    return I32BE.pack(len(sessions), {}) + made.tobytes()


def acls_bytes(acls: pa.Array) -> bytes:
    """The ACL table, from the column of the file table."""
    ids, lists = table_of(acls)
    return table_bytes(ids.tolist(), packed(lists).to_pylist())


def table_of(acls: pa.Array) -> tuple[Int64s, pa.Array]:
    """Numbers and lists of that column, which has one row."""
    entries = acls.flatten()
    number, lists = entries.flatten()
    return np.asarray(number.fill_null(0)).astype(np.int64), lists.cast(ACL_RAW_TYPE)
