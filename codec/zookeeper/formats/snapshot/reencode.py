"""Write a snapshot again: unchanged rows keep their stored form.

With the frames table, and as many nodes as before, nodes are written at their old positions with the damaged regions between them. Seals
and digest keep their stored values as long as the bytes before them are unchanged; otherwise they are recomputed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.deferred import compute as pc
from logwright.codec.option import Options
from logwright.codec.single_frame import single_value
from logwright.codec.window import Chunk
from logwright.codec.zookeeper.formats.snapshot.acl import AclTable
from logwright.codec.zookeeper.formats.snapshot.acl_lists import AclLists
from logwright.codec.zookeeper.formats.snapshot.pack import Nodes
from logwright.codec.zookeeper.formats.snapshot.sections import SEAL_SIZE
from logwright.codec.zookeeper.formats.snapshot.tables import COMPRESSION
from logwright.codec.zookeeper.formats.snapshot.write import Snapshot, ending, method, table_of
from logwright.codec.zookeeper.state import tree_defaults
from logwright.codec.zookeeper.state.columns import EPHEMERAL, kinds_of
from logwright.codec.zookeeper.state.input_columns import InputColumns

NODE = "node"


def packed_payload(frames: pa.Table | None) -> bytes | None:
    """The stored file, if it was compressed."""
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
    """Yield the bytes of a snapshot. See `Codec.encode`.

    `zxid` and `compression` come from its name. A server goes by the name, so the old form of the file is used only if the name says
    nothing: a converted file may have another.
    """
    asked = method(options)
    if asked is not None:
        compression = COMPRESSION[asked]
    elif zxid is None and file is not None:
        compression = single_value(file, "compression") or compression
    snapshot = Reencoded.of(rows, frames, file, options, zxid)
    yield from snapshot.packed(compression if snapshot.any else "none")


@dataclass
class Reencoded(Snapshot):
    """A snapshot with the frames of the previous file."""

    nodes: Nodes
    frames: list[tuple[dict[str, Any], int]] | None = None
    """The frames that are not nodes, with the number of nodes before each; None if there is no usable frames table."""
    trailing: bytes = b""
    any: bool = True
    """Whether there is a snapshot at all, and not only unreadable bytes."""
    intact: bool = field(default=True, init=False)
    """Whether the bytes before the last seal are the same as when it was read."""

    @classmethod
    def of(
        cls,
        rows: pa.Table,
        frames: pa.Table | None,
        file: pa.Table | None,
        options: Options,
        zxid: int | None,
    ) -> Reencoded:
        acls = AclLists(_table(file))
        input_columns = InputColumns(rows)
        facts = _facts(file)
        trailing = (facts.get("trailing") or b"") + bytes(facts.get("trailing_zeros") or 0)
        if options.given("zxid"):
            zxid = options["zxid"]
        known = None if frames is None else _specials(frames, rows.num_rows)
        if known == [] and not rows.num_rows:
            return cls(
                tree_defaults.stored(input_columns, acls), acls, [], facts, {}, trailing=trailing, any=False
            )
        placed = known is not None and not _packed(known)
        if placed:
            nodes = tree_defaults.stored(input_columns, acls)
        else:
            nodes = tree_defaults.complete(input_columns, acls, zxid, had=file is not None)
        if zxid is None:
            zxid = max([0, *(int(nodes.number(name).max(initial=0)) for name in ("czxid", "mzxid", "pzxid"))])
        sessions = list(facts.get("sessions") or [])
        if file is None:
            owners = nodes.number("owner")
            ephemeral_owners = owners[owners != 0]
            ephemeral = np.unique(ephemeral_owners[kinds_of(ephemeral_owners) == EPHEMERAL])
            sessions = [
                {"session_id": int(session), "timeout": options["session.timeout"]}
                for session in ephemeral.tolist()
            ]
        behind = ending(facts, options, zxid, file is not None)
        left = trailing if placed else b""
        return cls(nodes, acls, sessions, facts, behind, known if placed else None, left)

    def write(self) -> Iterator[Chunk]:
        if not self.any:
            yield self.trailing
            return
        if self.frames is None:
            yield from super().write()
            return
        at = 0
        for frame, before in self.frames:
            yield from self._nodes(at, before)
            at = before
            yield self._put(self._frame(frame))
        yield from self._nodes(at, len(self.nodes))
        yield self.trailing

    def _frame(self, frame: dict[str, Any]) -> bytes:
        """Return the stored form of a section, if it still has the required content."""
        raw, payload, kind = frame.get("raw"), frame.get("payload"), frame.get("kind")
        if raw is not None:
            return bytes(raw)
        if kind in ("end", "digest", "last_processed"):
            if kind == "end":
                self.intact = frame.get("computed") is not None and frame["computed"] == self.end_sum
                if not self.intact:
                    self.digest = self.nodes.digest()
            # As long as the bytes before it are unchanged, a seal keeps its value, right or wrong.
            data = self.section(str(kind), keep=self.intact)
            if payload is not None and self.intact and payload[:-SEAL_SIZE] == data[:-SEAL_SIZE]:
                return bytes(payload)
            return data
        if payload is not None and not (kind == "acls" and self.acls.added):
            return bytes(payload)
        return self.section(str(kind))


def _facts(file: pa.Table | None) -> dict[str, Any]:
    """Return the row of the file table, without the ACL table."""
    if file is None or not file.num_rows:
        return {}
    names = [name for name in file.column_names if name != "acls"]
    facts: dict[str, Any] = file.slice(0, 1).select(names).to_pylist()[0]
    return facts


def _packed(specials: list[tuple[dict[str, Any], int]]) -> bool:
    return any(frame.get("kind") in ("gzip", "snappy") for frame, _ in specials)


def _specials(frames: pa.Table, rows: int) -> list[tuple[dict[str, Any], int]] | None:
    """Return the frames that are not nodes, with the number of nodes before each; None if the numbers of nodes and rows differ."""
    if "kind" not in frames.column_names:
        return None
    column = frames["kind"].combine_chunks()
    node = np.asarray(pc.equal(column, NODE).fill_null(False))
    before = np.cumsum(node)
    names = [name for name in ("kind", "payload", "raw", "computed") if name in frames.column_names]
    chosen = frames.select(names)
    each = [(chosen.slice(i, 1).to_pylist()[0], int(before[i])) for i in np.flatnonzero(~node).tolist()]
    if int(node.sum()) != rows:
        return each if _packed(each) else None
    # Trailing bytes that no frame covers are in the file table.
    return [
        (special, at)
        for special, at in each
        if special.get("kind") is not None or special.get("raw") is not None
    ]


def _table(file: pa.Table | None) -> AclTable | None:
    if file is None or "acls" not in file.column_names or not file.num_rows:
        return None
    column = file["acls"].combine_chunks()
    value = column.slice(0, 1)
    if value.null_count:
        return None
    return AclTable(*table_of(value))
