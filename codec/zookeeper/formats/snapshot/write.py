"""Write a new snapshot: the nodes in pieces, with the sections and seals around them.

Columns that rows lack get the values that a server would have written; see `tree_defaults` for parents and counters. Source: as `codec`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.describe import I32BE, Struct
from logwright.codec.fault import UsageError
from logwright.codec.java import int64
from logwright.codec.kernels.adler32 import adler32_of
from logwright.codec.kernels.compress import compress_pieces
from logwright.codec.option import Option, Options, parse_bool, parse_choice, parse_hexadecimal
from logwright.codec.window import Chunk
from logwright.codec.zookeeper.formats.snapshot import sections
from logwright.codec.zookeeper.formats.snapshot.acl import packed, table_bytes
from logwright.codec.zookeeper.formats.snapshot.acl_lists import AclLists
from logwright.codec.zookeeper.formats.snapshot.pack import Piece
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE
from logwright.codec.zookeeper.names import GZIP, SNAPPY
from logwright.codec.zookeeper.state.digest import VERSION

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
    "gz or snappy; by default that of the file name, or none",
    parse_choice,
    choices=("", "none", GZIP, SNAPPY),
)
ZXID = Option(
    "zxid",
    None,
    "The last transaction in the tree; by default the one in the file name, or the highest in the rows",
    parse_hexadecimal,
    low=0,
    high=(1 << 63) - 1,
)
SESSION_TIMEOUT = Option(
    "session.timeout",
    30000,
    "Timeout in milliseconds of sessions that are added for owners of ephemeral nodes",
    low=1,
    high=(1 << 31) - 1,
)
OPTIONS = (DIGEST_ENABLED, LAST_PROCESSED_ENABLED, METHOD, ZXID, SESSION_TIMEOUT)


def method(options: Options) -> str | None:
    """Return the compression that the options ask for, as names have it; None if they say nothing."""
    asked: str | None = options["snapshot.compression.method"]
    return "" if asked == "none" else asked


def ending(facts: dict[str, Any], options: Options, zxid: int, had: bool) -> dict[str, Any]:
    """Return digest and last processed zxid: those of the file; without a file, or if options ask for them, those of the newest version."""
    out: dict[str, Any] = {}
    asked = options.given("digest.enabled") or not had
    if facts.get("digest_zxid") is not None and (not asked or options["digest.enabled"]):
        # A damaged file may have another version, even 0.
        version = facts.get("digest_version")
        out["digest"] = {
            "zxid": facts["digest_zxid"],
            "digest_version": VERSION if version is None else version,
            "digest": facts.get("digest"),
        }
    elif asked and options["digest.enabled"]:
        # Before the first transaction a server has no digest.
        out["digest"] = {"zxid": zxid, "digest_version": VERSION, "digest": None if zxid else 0}
    asked = options.given("serializeLastProcessedZxid.enabled") or not had
    if facts.get("last_processed_zxid") is not None and (
        not asked or options["serializeLastProcessedZxid.enabled"]
    ):
        out["last_processed"] = facts["last_processed_zxid"]
    elif asked and options["serializeLastProcessedZxid.enabled"]:
        out["last_processed"] = zxid
    return out


# Sections


def sessions_bytes(sessions: Sequence[Mapping[str, int]]) -> bytes:
    """Return the session table."""
    array = np.zeros(len(sessions), sections.SESSION_DTYPE)
    for i, session in enumerate(sessions):
        array[i] = session["session_id"], session["timeout"]
    return I32BE.pack(len(sessions), {}) + array.tobytes()


def acls_bytes(acls: pa.Array) -> bytes:
    """Return the ACL table from the column of the file table."""
    ids, lists = table_of(acls)
    return table_bytes(ids.tolist(), packed(lists).to_pylist())


def table_of(acls: pa.Array) -> tuple[Int64s, pa.Array]:
    """Return numbers and lists of that column, which has one row."""
    entries = acls.flatten()
    number, lists = entries.flatten()
    return np.asarray(number.fill_null(0)).astype(np.int64), lists.cast(ACL_RAW_TYPE)


# A file


class NodeSource(Protocol):
    """Nodes in the order in which they are written: `pack.Nodes`, or a stream of them."""

    def __len__(self) -> int: ...

    def chunks(self, first: int, stop: int, *, digest: bool = False) -> Iterator[Piece]: ...

    def known_digest(self) -> int | None:
        """The digest as a server computes it, if it is known without reading the nodes."""
        ...


@dataclass
class Snapshot:
    """The content of a new snapshot."""

    nodes: NodeSource
    acls: AclLists
    sessions: list[dict[str, int]]
    file: dict[str, Any]
    """The row of the file table, if there is one."""
    ending: dict[str, Any]
    """See the function of that name."""
    sum: int = field(default=1, init=False)
    digest: int = field(default=0, init=False)

    def write(self) -> Iterator[Chunk]:
        """Yield the bytes of the file."""
        for kind in ("header", "sessions", "acls"):
            yield self._put(self.section(kind))
        known = self.nodes.known_digest()
        self.digest = known or 0
        yield from self._nodes(0, len(self.nodes), digest="digest" in self.ending and known is None)
        for kind in ("end", "digest", "last_processed"):
            if kind == "end" or kind in self.ending:
                yield self._put(self.section(kind))

    def packed(self, compression: str) -> Iterator[Chunk]:
        """Yield the bytes, compressed if asked for."""
        return self.write() if compression == "none" else compress_pieces(compression, self.write())

    def _put(self, data: bytes) -> bytes:
        self.sum = adler32_of(data, self.sum)
        return data

    def _nodes(self, first: int, stop: int, *, digest: bool = False) -> Iterator[Chunk]:
        for chunk in self.nodes.chunks(first, stop, digest=digest):
            self.sum = adler32_of(chunk.data, self.sum)
            self.digest += chunk.digest
            yield chunk.data

    @property
    def end_sum(self) -> int:
        """Return the first seal, which follows the end mark."""
        return adler32_of(sections.END_MARK, self.sum)

    def section(self, kind: str, *, keep: bool = False) -> bytes:
        if kind == "header":
            known = {name: self.file.get(name) for name in ("version", "dbid")}
            return sections.HEADER.pack({name: value for name, value in known.items() if value is not None})
        if kind == "sessions":
            return sessions_bytes(self.sessions)
        if kind == "acls":
            return self.acls.table()
        if kind == "end":
            return sections.END.pack({"checksum": self.end_sum})
        if kind == "digest":
            values = dict(self.ending.get("digest") or {"zxid": 0, "digest_version": VERSION, "digest": None})
            if values["digest"] is None or (not keep and values["zxid"]):
                values |= {"digest_version": VERSION, "digest": int64(self.digest)}
            return self._sealed(sections.DIGEST, values)
        if kind == "last_processed":
            values = {"last_processed_zxid": self.ending["last_processed"]}
            return self._sealed(sections.LAST_PROCESSED, values)
        raise UsageError(f"zookeeper.snapshot: there are no frames of kind {kind!r}")

    def _sealed(self, struct: Struct, values: dict[str, Any]) -> bytes:
        """Return a section with the checksum of all bytes before it."""
        body = struct.pack({**values, "checksum": 0})[: -sections.SEAL_SIZE]
        return struct.pack({**values, "checksum": adler32_of(body, self.sum)})
