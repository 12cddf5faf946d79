"""Writing a snapshot: as it was where rows are as they were, anew where not.

With the frames table, as many nodes as there were are written where they were, damaged stretches between them. Seals and the digest are
those that were stored as long as the bytes before them are the same; else they are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.base import Chunk
from logwright.codec.compress import compress
from logwright.codec.fault import UsageError
from logwright.codec.option import Options
from logwright.codec.whole import kept
from logwright.codec.zookeeper import tree
from logwright.codec.zookeeper.acl import AclTable
from logwright.codec.zookeeper.acl_lists import AclLists
from logwright.codec.zookeeper.adler import adler32_of
from logwright.codec.zookeeper.columns import EPHEMERAL, kinds_of
from logwright.codec.zookeeper.digest import VERSION, signed
from logwright.codec.zookeeper.encode import sessions_bytes, table_of
from logwright.codec.zookeeper.given import Given
from logwright.codec.zookeeper.nodes import Piece
from logwright.codec.zookeeper.sections import (
    DBID,
    DIGEST,
    END,
    END_MARK,
    HEADER,
    LAST_PROCESSED,
    SEAL_SIZE,
)
from logwright.codec.zookeeper.sections import VERSION as FORMAT
from logwright.codec.zookeeper.snapshot_tables import COMPRESSION

NODE = "node"


def method(options: Options) -> str | None:
    """How a snapshot is to be compressed, as names have it; None where nothing is said."""
    asked: str | None = options["snapshot.compression.method"]
    return "" if asked == "none" else asked


def packed_payload(frames: pa.Table | None) -> bytes | None:
    """The file as it was stored, if it was compressed."""
    if frames is None or "kind" not in frames.column_names or "payload" not in frames.column_names:
        return None
    if frames.num_rows != 1 or frames["kind"][0].as_py() not in ("gzip", "snappy"):
        return None
    stored: bytes | None = frames["payload"][0].as_py()
    return stored


def encode(
    rows: pa.Table,
    frames: pa.Table | None,
    file: pa.Table | None,
    options: Options,
    zxid: int | None,
    compression: str,
) -> Iterator[Chunk]:
    """The bytes of a snapshot. See `Codec.encode`.

    `zxid` and `compression` are what its name says. A server goes by the name, so the form that the file had is asked about only
    where the name says nothing: one that is converted may have another.
    """
    asked = method(options)
    if asked is not None:
        compression = COMPRESSION[asked]
    elif zxid is None and file is not None:
        compression = kept(file, "compression") or compression
    made = Snapshot.of(rows, frames, file, options, zxid)
    if compression == "none":
        yield from made.write()
    elif made.any:
        yield compress(compression, b"".join(bytes(one) for one in made.write()))
    else:
        yield made.trailing


class NodeSource(Protocol):
    """Nodes in the order in which they are written: `nodes.Nodes`, or others that are not held."""

    def __len__(self) -> int: ...

    def chunks(self, first: int, stop: int, *, digest: bool = False) -> Iterator[Piece]: ...

    def digest(self) -> int: ...

    def known_digest(self) -> int | None:
        """The digest as a server has it, where it is known without looking at the nodes."""
        ...


@dataclass
class Snapshot:
    """What a snapshot is written from."""

    nodes: NodeSource
    acls: AclLists
    sessions: list[dict[str, int]]
    frames: list[tuple[dict[str, Any], int]] | None
    """The frames that are no nodes, and how many nodes come before each; None: there are none to go by."""
    file: dict[str, Any]
    ending: dict[str, Any]
    trailing: bytes = b""
    any: bool = True
    """Whether there is a snapshot at all, and not just bytes that could not be read."""
    sum: int = field(default=1, init=False)
    digest: int = field(default=0, init=False)
    intact: bool = field(default=True, init=False)
    """Whether the last seal had the bytes before it that it had when it was read."""

    @classmethod
    def of(
        cls,
        rows: pa.Table,
        frames: pa.Table | None,
        file: pa.Table | None,
        options: Options,
        zxid: int | None,
    ) -> Snapshot:
        acls = AclLists(_table(file))
        given = Given(rows)
        facts = _facts(file)
        trailing = (facts.get("trailing") or b"") + bytes(facts.get("trailing_zeros") or 0)
        if options.given("zxid"):
            zxid = options["zxid"]
        known = None if frames is None else _specials(frames, rows.num_rows)
        if known == [] and not rows.num_rows:
            return cls(tree.stored(given, acls), acls, [], [], facts, {}, trailing, any=False)
        placed = known is not None and not _packed(known)
        if placed:
            nodes = tree.stored(given, acls)
        else:
            nodes = tree.whole(given, acls, zxid, had=file is not None)
        if zxid is None:
            zxid = max([0, *(int(nodes.number(name).max(initial=0)) for name in ("czxid", "mzxid", "pzxid"))])
        sessions = list(facts.get("sessions") or [])
        if file is None:
            owners = nodes.number("owner")
            ephemeral = np.unique(owners[kinds_of(owners) == EPHEMERAL])
            sessions = [
                {"session_id": int(one), "timeout": options["session.timeout"]} for one in ephemeral.tolist()
            ]
        behind = ending(facts, options, zxid, file is not None)
        return cls(
            nodes, acls, sessions, known if placed else None, facts, behind, trailing if placed else b""
        )

    def write(self) -> Iterator[Chunk]:
        if not self.any:
            yield self.trailing
            return
        if self.frames is None:
            yield from self._anew()
            return
        at = 0
        for frame, before in self.frames:
            yield from self._nodes(at, before)
            at = before
            yield self._put(self._frame(frame), frame)
        yield from self._nodes(at, len(self.nodes))
        yield self.trailing

    def _anew(self) -> Iterator[Chunk]:
        for kind in ("header", "sessions", "acls"):
            yield self._put(self._section(kind))
        known = self.nodes.known_digest()
        self.digest = known or 0
        yield from self._nodes(0, len(self.nodes), digest="digest" in self.ending and known is None)
        for kind in ("end", "digest", "last_processed"):
            if kind == "end" or kind in self.ending:
                yield self._put(self._section(kind))

    def _put(self, data: bytes, frame: dict[str, Any] | None = None) -> bytes:
        self.sum = adler32_of(data, self.sum)
        return data

    def _nodes(self, first: int, stop: int, *, digest: bool = False) -> Iterator[Chunk]:
        for one in self.nodes.chunks(first, stop, digest=digest):
            self.sum = adler32_of(one.data, self.sum)
            self.digest += one.digest
            yield one.data

    def _frame(self, frame: dict[str, Any]) -> bytes:
        """A section as it was stored, if it still says what is to be said."""
        raw, payload, kind = frame.get("raw"), frame.get("payload"), frame.get("kind")
        if raw is not None:
            return bytes(raw)
        if kind in ("end", "digest", "last_processed"):
            if kind == "end":
                self.intact = frame.get("computed") is not None and frame["computed"] == self._end_sum
                if not self.intact:
                    self.digest = self.nodes.digest()
            # Where the bytes before are as they were, so is the seal, right or wrong.
            data = self._section(str(kind), keep=self.intact)
            if payload is not None and self.intact and payload[:-SEAL_SIZE] == data[:-SEAL_SIZE]:
                return bytes(payload)
            return data
        if payload is not None and not (kind == "acls" and self.acls.added):
            return bytes(payload)
        return self._section(str(kind))

    @property
    def _end_sum(self) -> int:
        """The first seal, which is behind the end mark."""
        return adler32_of(END_MARK, self.sum)

    def _section(self, kind: str, *, keep: bool = False) -> bytes:
        if kind == "header":
            version, dbid = self.file.get("version"), self.file.get("dbid")
            return HEADER.pack(
                {"version": FORMAT if version is None else version, "dbid": DBID if dbid is None else dbid}
            )
        if kind == "sessions":
            return sessions_bytes(self.sessions)
        if kind == "acls":
            return self.acls.table()
        if kind == "end":
            return END.pack({"checksum": self._end_sum})
        if kind == "digest":
            values = dict(self.ending.get("digest") or {"zxid": 0, "digest_version": VERSION, "digest": None})
            if values["digest"] is None or (not keep and values["zxid"]):
                values["digest"] = signed(self.digest)
            head = {**values, "checksum": 0}
            body = DIGEST.pack(head)[:-SEAL_SIZE]
            return DIGEST.pack({**values, "checksum": adler32_of(body, self.sum)})
        if kind == "last_processed":
            values = {"last_processed_zxid": self.ending["last_processed"]}
            body = LAST_PROCESSED.pack({**values, "checksum": 0})[:-SEAL_SIZE]
            return LAST_PROCESSED.pack({**values, "checksum": adler32_of(body, self.sum)})
        raise UsageError(f"zookeeper.snapshot: there are no frames of kind {kind!r}")


def _facts(file: pa.Table | None) -> dict[str, Any]:
    """The file table's row, without the ACL table."""
    if file is None or not file.num_rows:
        return {}
    names = [name for name in file.column_names if name != "acls"]
    found: dict[str, Any] = file.slice(0, 1).select(names).to_pylist()[0]
    return found


def _packed(specials: list[tuple[dict[str, Any], int]]) -> bool:
    return any(frame.get("kind") in ("gzip", "snappy") for frame, _ in specials)


def _specials(frames: pa.Table, rows: int) -> list[tuple[dict[str, Any], int]] | None:
    """The frames that are no nodes, with the number of nodes before each; None where there are not as many nodes as rows."""
    if "kind" not in frames.column_names:
        return None
    column = frames["kind"].combine_chunks()
    node = np.asarray(pc.equal(column, NODE).fill_null(False))
    before = np.cumsum(node)
    if int(node.sum()) != rows:
        special = np.flatnonzero(~node)
        found = [(frames.slice(i, 1).to_pylist()[0], int(before[i])) for i in special.tolist()]
        return found if _packed(found) else None
    names = [name for name in ("kind", "payload", "raw", "computed") if name in frames.column_names]
    chosen = frames.select(names)
    each = [(chosen.slice(i, 1).to_pylist()[0], int(before[i])) for i in np.flatnonzero(~node).tolist()]
    # What no frame covers at the end of the file is in the file table.
    return [(one, at) for one, at in each if one.get("kind") is not None or one.get("raw") is not None]


def _table(file: pa.Table | None) -> AclTable | None:
    if file is None or "acls" not in file.column_names or not file.num_rows:
        return None
    column = file["acls"].combine_chunks()
    one = column.slice(0, 1)
    if one.null_count:
        return None
    return AclTable(*table_of(one))


def ending(facts: dict[str, Any], options: Options, zxid: int, had: bool) -> dict[str, Any]:
    """Digest and last processed zxid: as the file has them; those of today without a file, or where options say so."""
    out: dict[str, Any] = {}
    asked = options.given("digest.enabled") or not had
    if facts.get("digest_zxid") is not None and (not asked or options["digest.enabled"]):
        out["digest"] = {
            "zxid": facts["digest_zxid"],
            "digest_version": facts.get("digest_version") or VERSION,
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
