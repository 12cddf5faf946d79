"""Reference decoders of ZooKeeper's rows. See `logwright.roundtrip.reference`."""

from __future__ import annotations

import contextlib
import functools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from logwright.codec.describe import DescriptionError, Field, Scope, Struct, Type
from logwright.codec.java import java_string
from logwright.codec.kernels.compress import decompress
from logwright.codec.zookeeper.formats.snapshot.acl import ACLS
from logwright.codec.zookeeper.formats.snapshot.expand import MAGICS
from logwright.codec.zookeeper.formats.snapshot.layout import NODE
from logwright.codec.zookeeper.formats.snapshot.sections import (
    DIGEST,
    END,
    END_MARK,
    LAST_PROCESSED,
    SEAL_SIZE,
    SESSIONS,
    struct_of,
)
from logwright.codec.zookeeper.formats.snapshot.sections import HEADER as SNAPSHOT_HEADER
from logwright.codec.zookeeper.formats.snapshot.sections import MAGIC as SNAPSHOT_MAGIC
from logwright.codec.zookeeper.formats.txnlog.layout import (
    BODIES,
    CLOSE_SESSION,
    DIGEST_VERSION,
    FILE_HEADER,
    HEADER_SIZE,
    MAGIC,
    TXN_DIGEST,
    TYPE_NAMES,
)
from logwright.codec.zookeeper.formats.txnlog.layout import RECORD as TXN_RECORD
from logwright.roundtrip.reference import LIMIT, Described


class _TxnLogFrame(Struct):
    """The file's header, or a record."""

    def unpack(
        self, buf: Any, at: int = 0, end: int | None = None, scope: Scope | None = None
    ) -> tuple[dict[str, Any], int]:
        if not at and bytes(buf[: len(MAGIC)]) == MAGIC:
            header, stop = FILE_HEADER.unpack(buf, at, end)
            return {**dict.fromkeys(field.name for field in self.fields), **header}, stop
        return super().unpack(buf, at, end, scope)

    def check(self, buf: Any, at: int, end: int) -> list[tuple[str, int, int]]:
        return super().check(buf, at, end) if at else []


_LONGEST = 2 * 0xFFFFF
"""The longest string that a server reads by default."""
TXN_LOG_FRAME = _TxnLogFrame("TxnLogFrame", *TXN_RECORD.fields)


def txnlog(records: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the transactions of records, including those in multis."""
    for record in records:
        entry = record["payload"]
        if entry is None:
            continue
        if entry["type"] not in BODIES:
            raise ValueError(f"Unsupported Txn with type={entry['type']}")
        if entry["type"] == CLOSE_SESSION and not entry["body"] and _has_bad_length(entry):
            continue
        digest = entry["digest"] or {}
        body = entry["body"] or {}
        yield {
            "zxid": entry["zxid"],
            "session_id": entry["client_id"],
            "cxid": entry["cxid"],
            "time_ms": entry["time"],
            "digest_version": digest.get("version"),
            "tree_digest": digest.get("tree_digest"),
            **_of_body(entry["type"], body),
            "time_out": body.get("time_out"),
            "paths_to_delete": None
            if body.get("paths_to_delete") is None
            else [_text(path) for path in body["paths_to_delete"]],
            "txns": None
            if body.get("txns") is None
            else [
                _of_body(txn["type"], txn["data"] if isinstance(txn["data"], dict) else {})
                for txn in body["txns"]
            ],
        }


def _has_bad_length(entry: Mapping[str, Any]) -> bool:
    """Return whether a server that reads the bytes after a header as paths comes to a length that it refuses."""
    digest = b"" if entry["digest"] is None else TXN_DIGEST.pack(entry["digest"])
    data = digest + entry["rest"]
    numbers = [int.from_bytes(data[:4], "big", signed=True)]
    if digest and numbers[0] == DIGEST_VERSION:
        return False
    at = 4
    while len(numbers) <= numbers[0] and at + 4 <= len(data):
        numbers.append(int.from_bytes(data[at : at + 4], "big", signed=True))
        if not -1 <= numbers[-1] <= _LONGEST:
            return True
        at += 4 + max(numbers[-1], 0)
    return False


def _of_body(kind: int, body: Mapping[str, Any]) -> dict[str, Any]:
    acl = body.get("acl")
    plain = ("data", "parent_cversion", "version", "ttl", "err")
    return {
        "type": TYPE_NAMES.get(kind, f"unknown {kind}"),
        "path": _text(body.get("path")),
        "acl": None
        if acl is None
        else [
            {"perms": entry["perms"], "scheme": _text(entry["id"]["scheme"]), "id": _text(entry["id"]["id"])}
            for entry in acl
        ],
        "ephemeral": None if body.get("ephemeral") is None else body["ephemeral"] != 0,
        **{name: body.get(name) for name in plain},
    }


def _text(stored: bytes | None) -> str | None:
    return None if stored is None else java_string(stored)


class _Section(Type):
    """A section or a node of a snapshot, which depends on the bytes before it, unless these are damaged. A compressed snapshot is one
    frame with all of them."""

    def unpack(self, buf: Any, at: int, end: int, scope: Scope) -> tuple[list[dict[str, Any]], int]:
        file = bytes(buf)
        packed = next((name for name, magic in MAGICS.items() if not at and file.startswith(magic)), None)
        if packed is not None:
            plain = decompress(packed, np.frombuffer(file, np.uint8), LIMIT).tobytes()
            return [values for values, _ in _sections(plain).values()], end
        values, stop = _sections(file).get(at) or _section(struct_of(file[at:end]), file, at, end)
        return [values], stop

    def label(self) -> str:
        return "section"


SECTION = Struct("section", Field("section", _Section(), "a section or a node"))


def _section(struct: Struct, file: bytes, at: int, end: int | None = None) -> tuple[Any, int]:
    values, stop = struct.unpack(file, at, end)
    return {"name": struct.name, **values}, stop


@functools.lru_cache(maxsize=1)
def _sections(file: bytes) -> dict[int, tuple[dict[str, Any], int]]:
    """Parse a file once from its start. Returns the content and end of each section by its start."""
    sections: dict[int, tuple[dict[str, Any], int]] = {}
    if not file.startswith(SNAPSHOT_MAGIC):
        return sections
    # A damaged or truncated file has the sections before the damage.
    with contextlib.suppress(DescriptionError):
        at = 0
        for struct in (SNAPSHOT_HEADER, SESSIONS, ACLS):
            sections[at] = _section(struct, file, at)
            at = sections[at][1]
        while file[at : at + len(END_MARK)] != END_MARK:
            sections[at] = _section(NODE, file, at)
            at = sections[at][1]
        left = len(file) - at - END.min_size - 2
        behind = {0: (), 33: (DIGEST,), 21: (LAST_PROCESSED,)}.get(left, (DIGEST, LAST_PROCESSED))
        for struct in (END, *behind):
            values, stop = _section(struct, file, at)
            if values["checksum"] != zlib.adler32(file[: stop - SEAL_SIZE]):
                break
            sections[at] = values, stop
            at = stop
    return sections


def snapshot(sections: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the nodes, with the lists of the ACL table."""
    lists = {-1: [{"perms": 31, "scheme": "world", "id": "anyone"}]}
    for section in (item for frame in sections for item in frame["section"]):
        if section["name"] == "acls":
            for entry in section["entries"]:
                lists[entry["id"]] = [
                    {"perms": acl["perms"], **{name: java_string(text) for name, text in acl["id"].items()}}
                    for acl in entry["acl"]
                ]
        if section["name"] != "node":
            continue
        stat = section["stat"]
        yield {
            "path": java_string(section["path"]) or "/",
            "data": section["data"],
            "acl": lists.get(section["acl"]),
            "acl_id": section["acl"],
            "ctime_ms": stat["ctime"],
            "mtime_ms": stat["mtime"],
            "stored_cversion": stat["cversion"],
            **{name: stat[name] for name in ("czxid", "mzxid", "version", "aversion", "pzxid")},
            "data_length": len(section["data"] or b""),
            **_owner(stat["ephemeral_owner"]),
        }


def _owner(owner: int) -> dict[str, Any]:
    bits = owner % (1 << 64)
    if bits == 1 << 63:
        return {"kind": "container", "ephemeral_owner": 0, "ttl": None}
    if bits >> 40 == 0xFF0000:
        return {"kind": "ttl", "ephemeral_owner": 0, "ttl": bits % (1 << 40)}
    return {"kind": "ephemeral" if owner else "persistent", "ephemeral_owner": owner, "ttl": None}


ROWS: Mapping[str, Described] = {"zookeeper.txnlog": txnlog, "zookeeper.snapshot": snapshot}
FRAMES: Mapping[str, Struct] = {"zookeeper.txnlog": TXN_LOG_FRAME, "zookeeper.snapshot": SECTION}
UNCHECKED: Mapping[str, Callable[[bytes], bool]] = {
    # The header of a log is shorter than a record.
    "zookeeper.txnlog": lambda frame: len(frame) == HEADER_SIZE
}
