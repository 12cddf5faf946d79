"""The rows of frames, from their described values: slow, obviously right, what the kernels are held to."""

from __future__ import annotations

import contextlib
import functools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from logwright.codec.compress import decompress
from logwright.codec.describe import U8, U32LE, DescriptionError, Field, Repeated, Scope, Struct, Type
from logwright.codec.intrinsics import crc32c
from logwright.codec.java import java_string
from logwright.codec.kafka.batch import (
    ATTRIBUTES,
    COMPRESSION_NAMES,
    CONTROL_RECORD_KEY,
    CONTROL_TYPES,
    RECORD,
)
from logwright.codec.leveldb.block import BLOCK_HANDLE, ENTRY, TRAILER_SIZE, masked
from logwright.codec.leveldb.framing import BLOCK, FIRST, FULL, HEADER, LAST
from logwright.codec.leveldb.framing import RECORD as PHYSICAL
from logwright.codec.leveldb.index import FOOTER_SIZE
from logwright.codec.leveldb.keys import DELETION, VALUE
from logwright.codec.leveldb.version_edit import LEVELS, TAGS, VERSION_EDIT
from logwright.codec.leveldb.write_batch import WRITE_BATCH
from logwright.codec.zookeeper.acl import ACLS
from logwright.codec.zookeeper.expand import MAGICS
from logwright.codec.zookeeper.node import NODE
from logwright.codec.zookeeper.sections import (
    DIGEST,
    END,
    END_MARK,
    LAST_PROCESSED,
    SEAL_SIZE,
    SESSIONS,
    struct_of,
)
from logwright.codec.zookeeper.sections import HEADER as SNAPSHOT_HEADER
from logwright.codec.zookeeper.sections import MAGIC as SNAPSHOT_MAGIC
from logwright.codec.zookeeper.txns import BODIES, FILE_HEADER, HEADER_SIZE, MAGIC, TYPE_NAMES
from logwright.codec.zookeeper.txns import RECORD as TXN_RECORD

_LIMIT = 256 << 20


def kafka_log(batches: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The records of batches of magic 2, as a consumer that has the file gets them: it passes over those at or below the
    highest offset it has seen (`CompletedFetch` of Kafka's clients)."""
    seen = -(1 << 63)
    for batch in batches:
        for row in _records(batch):
            if row["offset"] > seen:
                seen = row["offset"]
                yield row


def _records(batch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    flags = {bit.name: bit.of(batch["attributes"]) for bit in ATTRIBUTES.bits}
    records = batch["records"]
    if flags["compression"]:
        if flags["compression"] >= len(COMPRESSION_NAMES):
            raise DescriptionError(f"compression {flags['compression']} is unknown")
        plain = decompress(COMPRESSION_NAMES[flags["compression"]], records, _LIMIT).tobytes()
        records, stop = Repeated(RECORD, "records_count").unpack(plain, 0, len(plain), dict(batch))
        if stop != len(plain):
            raise DescriptionError(f"{len(plain) - stop} bytes left after {len(records)} records", stop)
    for record in records:
        created = _wrapped(batch["base_timestamp"] + record["timestamp_delta"], 64)
        yield {
            "key": record["key"],
            "value": record["value"],
            "offset": batch["base_offset"] + record["offset_delta"],
            "timestamp_ms": batch["max_timestamp"] if flags["timestamp_type"] else created,
            "create_timestamp_ms": created,
            "timestampType": flags["timestamp_type"],
            "headers": [{"key": java_string(one["key"]), "value": one["value"]} for one in record["headers"]],
            "attributes": record["attributes"],
            "leader_epoch": batch["partition_leader_epoch"],
            "producer_id": batch["producer_id"],
            "producer_epoch": batch["producer_epoch"],
            "sequence": _sequence(batch["base_sequence"], record["offset_delta"]),
            "is_transactional": bool(flags["is_transactional"]),
            "is_control": bool(flags["is_control"]),
            "control_type": _control_type(record["key"]) if flags["is_control"] else None,
        }


def _sequence(base: int, delta: int) -> int:
    """After 2147483647 comes 0 (KIP-98)."""
    return -1 if base < 0 else (base + delta) % (1 << 31)


def _wrapped(number: int, bits: int) -> int:
    """As a signed integer of Java holds it."""
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _control_type(key: bytes | None) -> str:
    if key is None or len(key) < CONTROL_RECORD_KEY.min_size:
        return "MALFORMED"
    values, _ = CONTROL_RECORD_KEY.unpack(key)
    return CONTROL_TYPES.get(values["type"], "UNKNOWN")


def _entries(*names: str) -> Described:
    """A frame is a row: these fields of it."""

    def rows(frames: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        return ({name: frame[name] for name in names} for frame in frames)

    return rows


def _within(name: str) -> Described:
    """The rows are the items of a field."""

    def rows(frames: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        return (dict(item) for frame in frames for item in frame[name])

    return rows


class _Records(Type):
    """The physical records of a logical one, and what fills the block behind it; of a file whose first byte is byte 0 of the buffer.
    An empty FIRST before another start is of an old writer, and nothing."""

    def unpack(self, buf: Any, at: int, end: int, scope: Scope) -> tuple[bytes, int]:
        payload, done = b"", False
        while at < end:
            left = BLOCK - at % BLOCK
            if left < HEADER:
                at = min(at + left, end)
                continue
            if done:
                raise DescriptionError("something follows the last of its records", at)
            record, stop = PHYSICAL.unpack(buf, at, end)
            wrong = PHYSICAL.check(buf, at, stop)
            if wrong or stop - at > left:
                raise DescriptionError("a wrong checksum, or it reaches over the end of its block", at)
            payload = record["payload"] if record["type"] in (FULL, FIRST) else payload + record["payload"]
            done, at = record["type"] in (FULL, LAST), stop
        if not done:
            raise DescriptionError("the last of its records is missing", at)
        return payload, at

    def label(self) -> str:
        return "physical records"


LOGICAL_RECORD = Struct("LogicalRecord", Field("payload", _Records(), "of its physical records"))


def leveldb_log(records: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The operations of records that hold a write batch each."""
    for record in records:
        batch, _ = WRITE_BATCH.unpack(record["payload"])
        if batch["count"] != len(batch["operations"]):
            raise ValueError("WriteBatch has wrong count")
        for i, one in enumerate(batch["operations"]):
            if one["type"] not in (DELETION, VALUE):
                raise ValueError("unknown WriteBatch tag")
            yield {
                "key": one["key"],
                "value": one["value"] if one["type"] == VALUE else None,
                "sequence": batch["sequence"] + i,
                "type": ("deletion", "value")[one["type"]],
            }


def leveldb_manifest(records: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The fields of records that hold a version edit each."""
    names = "level", "number", "size", "smallest", "largest"
    for record in records:
        edit, _ = VERSION_EDIT.unpack(record["payload"])
        for one in edit["fields"]:
            body = one["body"]
            name = body.get("text")
            if body.get("level", 0) >= LEVELS or b"" in (body.get("smallest"), body.get("largest")):
                raise ValueError("no level, or no internal key")
            yield {
                "field": TAGS[one["tag"]],
                **{name: body.get(name) for name in names},
                "comparator": None if name is None else name.decode("utf-8", "replace"),
            }


class Untold(ValueError):
    """The file is damaged where it says what its frames are: no description tells their rows."""


class _Entries(Type):
    """The entries of a block up to its trailer, and nothing where it is no data block: whole keys, from the bytes of the whole file,
    whose footer leads to the index that names the data blocks."""

    def unpack(self, buf: Any, at: int, end: int, scope: Scope) -> tuple[list[tuple[bytes, bytes]], int]:
        stop = end - TRAILER_SIZE
        stored = masked(crc32c(np.frombuffer(bytes(buf[at : end - 4]), np.uint8), 0, end - 4 - at))
        if stored != int.from_bytes(buf[end - 4 : end], "little"):
            raise DescriptionError("the checksum of the block is wrong", at)
        try:
            data = _data_blocks(bytes(buf))
        except (ValueError, IndexError) as error:
            raise Untold(f"what is a data block the index does not say: {error}") from None
        return (_block_entries(bytes(buf[at : stop + 1])) if at in data else []), stop

    def label(self) -> str:
        return "entries"


TABLE_BLOCK = Struct(
    "Block", Field("entries", _Entries(), "keys and values"), Field("type", U8), Field("crc", U32LE)
)


@functools.lru_cache(maxsize=4)
def _data_blocks(file: bytes) -> frozenset[int]:
    """Where they lie, says the index."""
    footer = file[-FOOTER_SIZE:]
    _, at = BLOCK_HANDLE.unpack(footer)
    index, _ = BLOCK_HANDLE.unpack(footer, at)
    block = file[index["offset"] : index["offset"] + index["size"] + 1]
    return frozenset(BLOCK_HANDLE.unpack(value)[0]["offset"] for _, value in _block_entries(block))


def _block_entries(stored: bytes) -> list[tuple[bytes, bytes]]:
    """Keys and values of a block as it is stored, with its type behind it."""
    plain = stored[:-1]
    if stored[-1]:
        name = {1: "snappy-raw", 2: "zstd"}.get(stored[-1], "")
        if not name:
            raise DescriptionError(f"compression {stored[-1]} is unknown", len(stored) - 1)
        plain = decompress(name, np.frombuffer(plain, np.uint8), _LIMIT).tobytes()
    points = int.from_bytes(plain[-4:], "little")
    stop = len(plain) - 4 * (points + 1)
    at, key, found = 0, b"", []
    while at < stop:
        head, at = ENTRY.unpack(plain, at, stop)
        rest, size = at + head["non_shared"], head["value_length"]
        if head["shared"] > len(key) or rest + size > stop:
            raise DescriptionError("bad entry in block", at)
        key = key[: head["shared"]] + plain[at:rest]
        at = rest + size
        found.append((key, plain[rest:at]))
    return found


def leveldb_table(blocks: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The entries of data blocks."""
    for block in blocks:
        for key, value in block["entries"]:
            tag = int.from_bytes(key[-8:], "little")
            if len(key) < 8 or tag & 0xFF not in (DELETION, VALUE):
                raise ValueError("corrupted internal key")
            yield {
                "key": key[:-8],
                "value": value if tag & 0xFF == VALUE else None,
                "sequence": tag >> 8,
                "type": ("deletion", "value")[tag & 0xFF],
            }


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


TXN_LOG_FRAME = _TxnLogFrame("TxnLogFrame", *TXN_RECORD.fields)


def zookeeper_txnlog(records: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The transactions of records, those of multis in them."""
    for record in records:
        entry = record["payload"]
        if entry is None:
            continue
        if entry["type"] not in BODIES:
            raise ValueError(f"Unsupported Txn with type={entry['type']}")
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
            else [_text(one) for one in body["paths_to_delete"]],
            "txns": None
            if body.get("txns") is None
            else [
                _of_body(one["type"], one["data"] if isinstance(one["data"], dict) else {})
                for one in body["txns"]
            ],
        }


def _of_body(kind: int, body: Mapping[str, Any]) -> dict[str, Any]:
    acl = body.get("acl")
    plain = ("data", "parent_cversion", "version", "ttl", "err")
    return {
        "type": TYPE_NAMES.get(kind, f"unknown {kind}"),
        "path": _text(body.get("path")),
        "acl": None
        if acl is None
        else [
            {"perms": one["perms"], "scheme": _text(one["id"]["scheme"]), "id": _text(one["id"]["id"])}
            for one in acl
        ],
        "ephemeral": None if body.get("ephemeral") is None else body["ephemeral"] != 0,
        **{name: body.get(name) for name in plain},
    }


def _text(stored: bytes | None) -> str | None:
    return None if stored is None else java_string(stored)


class _Section(Type):
    """A section or a node of a snapshot, told by what comes before it in the file, or where that is damaged by itself; of a compressed one
    all of them."""

    def unpack(self, buf: Any, at: int, end: int, scope: Scope) -> tuple[list[dict[str, Any]], int]:
        file = bytes(buf)
        packed = next((name for name, magic in MAGICS.items() if not at and file.startswith(magic)), None)
        if packed is not None:
            plain = decompress(packed, np.frombuffer(file, np.uint8), _LIMIT).tobytes()
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
    """What they say and where they end, by where they start, from the start of the file on: it is read once, not for each of them."""
    found: dict[int, tuple[dict[str, Any], int]] = {}
    if not file.startswith(SNAPSHOT_MAGIC):
        return found
    # Of a file that is damaged or cut off, those before.
    with contextlib.suppress(DescriptionError):
        at = 0
        for struct in (SNAPSHOT_HEADER, SESSIONS, ACLS):
            found[at] = _section(struct, file, at)
            at = found[at][1]
        while file[at : at + len(END_MARK)] != END_MARK:
            found[at] = _section(NODE, file, at)
            at = found[at][1]
        left = len(file) - at - END.min_size - 2
        behind = {0: (), 33: (DIGEST,), 21: (LAST_PROCESSED,)}.get(left, (DIGEST, LAST_PROCESSED))
        for struct in (END, *behind):
            values, stop = _section(struct, file, at)
            if values["checksum"] != zlib.adler32(file[: stop - SEAL_SIZE]):
                break
            found[at] = values, stop
            at = stop
    return found


def zookeeper_snapshot(sections: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The nodes, with the lists of the ACL table."""
    lists = {-1: [{"perms": 31, "scheme": "world", "id": "anyone"}]}
    for section in (one for frame in sections for one in frame["section"]):
        if section["name"] == "acls":
            for one in section["entries"]:
                lists[one["id"]] = [
                    {"perms": acl["perms"], **{name: java_string(text) for name, text in acl["id"].items()}}
                    for acl in one["acl"]
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


Described = Callable[[Iterable[Mapping[str, Any]]], Iterator[dict[str, Any]]]

ROWS: Mapping[str, Described] = {
    "kafka.log": kafka_log,
    "kafka.index": _entries("position"),
    "kafka.timeindex": _entries("timestamp"),
    "kafka.txnindex": _entries("version", "producer_id", "first_offset", "last_offset", "last_stable_offset"),
    "kafka.producer_snapshot": _within("entries"),
    "leveldb.log": leveldb_log,
    "leveldb.manifest": leveldb_manifest,
    "leveldb.table": leveldb_table,
    "zookeeper.txnlog": zookeeper_txnlog,
    "zookeeper.snapshot": zookeeper_snapshot,
}
"""By codec: from the described values of all frames to the rows. The columns given are compared, others are not."""

FRAMES: Mapping[str, Struct] = {
    "leveldb.log": LOGICAL_RECORD,
    "leveldb.manifest": LOGICAL_RECORD,
    "leveldb.table": TABLE_BLOCK,
    "zookeeper.txnlog": TXN_LOG_FRAME,
    "zookeeper.snapshot": SECTION,
}
"""By codec: what describes a frame, where that is not the first of the codec's structures."""

UNCHECKED: Mapping[str, Callable[[bytes], bool]] = {
    "zookeeper.txnlog": lambda frame: len(frame) == HEADER_SIZE,
}
"""By codec: which frames have no checksum, where the first of its structures has one. The header of a log is shorter than a record."""
