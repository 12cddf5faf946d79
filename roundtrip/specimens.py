"""Small files of every kind, made by our own codecs: what the trust harness damages and the fuzzer starts from.

A new codec or layout needs a line here, and nothing else, to be damaged, cut, fuzzed, and written through failures and crashes
like all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.fault import UsageError
from logwright.roundtrip.specimen import Specimen

_T = 1_700_000_000_000
_FIRST = f"{0:020d}"


@dataclass(frozen=True)
class Sample:
    """A file: the codec that makes it, its name (which codecs go by), its rows, and how they are encoded."""

    codec: str
    name: str
    rows: Sequence[Mapping[str, Any]]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return " ".join([self.codec, *(str(value) for value in self.options.values())])

    def specimen(self) -> Specimen:
        """In memory; the same bytes each time, but for what a compressor's version makes of them."""
        empty = Specimen.of(b"", self.codec, self.name, **self.options)
        table = registry.get(self.codec).tables["rows"]
        names = [name for name in table.names(detail=True) if any(name in row for row in self.rows)]
        rows = pa.Table.from_pylist([dict(row) for row in self.rows], schema=table.schema(names))
        return empty.with_bytes(empty.encode(rows))


def _records(count: int) -> list[dict[str, Any]]:
    """Records as few and as various as they can be: null and empty keys and values, headers, times that go back."""
    return [
        {
            "key": (None, b"", b"k%d" % n)[n % 3],
            "value": (b"v" * (n * 5), None, b"")[n % 4 if n % 4 < 3 else 0],
            "offset": n + n // 4,
            "timestamp": _T + (n * 7) % 5,
            "headers": [{"key": "h", "value": (b"x", None)[n % 2]}] * (n % 3),
        }
        for n in range(count)
    ]


def _entries(count: int) -> list[dict[str, Any]]:
    """Entries of a table: versions of a key, deletions, empty values, some that compress."""
    return [
        {
            "key": b"key%d" % (n // 2),
            "value": (b"v" * 30 * n, None, b"")[n % 4 if n % 4 < 3 else 0],
            "sequence": 100 - n,
            "type": "deletion" if n % 4 == 1 else "value",
        }
        for n in range(count)
    ]


_TAG = b"\1" + bytes(7)


def _operations(count: int) -> list[dict[str, Any]]:
    return [
        {"key": b"k%d" % n * (n % 3), "value": (b"v" * (n * 5), None, b"")[n % 3], "sequence": 7 + n}
        for n in range(count)
    ]


_WORLD = [{"perms": 31, "scheme": "world", "id": "anyone"}]


def _txns(multi: str) -> list[dict[str, Any]]:
    """Transactions of all types, the multi as one row or as several."""
    bodies: list[dict[str, Any]] = [
        {"type": "createSession", "time_out": 30000},
        {
            "type": "create",
            "path": "/a",
            "data": b"1",
            "acl": _WORLD,
            "ephemeral": False,
            "parent_cversion": 1,
        },
        {
            "type": "create2",
            "path": "/a/e",
            "data": None,
            "acl": _WORLD * 2,
            "ephemeral": True,
            "parent_cversion": 1,
        },
        {"type": "createTTL", "path": "/t", "data": b"", "acl": None, "parent_cversion": 2, "ttl": 1000},
        {"type": "createContainer", "path": "/c", "data": None, "acl": [], "parent_cversion": 3},
        {"type": "setData", "path": "/a", "data": b"22", "version": 1},
        {"type": "setACL", "path": "/a", "acl": _WORLD, "version": 1},
        {
            "type": "multi",
            "txns": [
                {"type": "check", "path": "/a", "version": 2},
                {
                    "type": "create",
                    "path": "/m",
                    "data": b"3",
                    "acl": _WORLD,
                    "ephemeral": False,
                    "parent_cversion": 4,
                },
                {"type": "error", "err": -2},
            ],
        },
        {"type": "error", "err": -101},
        {"type": "reconfig", "path": "/zookeeper/config", "data": b"server.1=h", "version": -1},
        {"type": "deleteContainer", "path": "/c"},
        {"type": "delete", "path": "/t"},
        {"type": "closeSession", "paths_to_delete": ["/a/e"]},
    ]
    rows = []
    for n, body in enumerate(bodies):
        digest = None if body["type"] == "error" else 1000 + n
        head = {"zxid": n + 1, "time": _T + n, "session_id": 1 << 56, "cxid": n, "tree_digest": digest}
        parts = body["txns"] if multi == "exploded" and "txns" in body else [body]
        for place, part in enumerate(parts):
            rows.append({**head, **part, "sub": None if part is body else place})
    return rows


_NODES: list[dict[str, Any]] = [
    {"path": "/", "data": b""},
    {"path": "/a", "data": b"1" * 40, "acl": _WORLD, "czxid": 3, "mzxid": 5, "ctime": _T, "mtime": _T + 5, "version": 2},
    {"path": "/a/b", "data": None, "acl": [{"perms": 1, "scheme": "digest", "id": "u:x"}, *_WORLD], "czxid": 4, "aversion": 1},
    {"path": "/a/e", "data": b"", "czxid": 5, "ephemeral_owner": 1 << 56, "kind": "ephemeral"},
    {"path": "/c", "data": b"", "czxid": 6, "kind": "container"},
    {"path": "/c/t", "data": b"x", "czxid": 7, "kind": "ttl", "ttl": 60_000},
    *({"path": f"/zookeeper{name}", "data": b""} for name in ("", "/config", "/quota")),
]  # fmt: skip


SAMPLES: tuple[Sample, ...] = (
    Sample("kafka.log", f"{_FIRST}.log", _records(9), {"batch.size": 120}),
    *(
        Sample("kafka.log", f"{_FIRST}.log", _records(12), {"batch.size": 160, "compression.type": one})
        for one in ("gzip", "snappy", "lz4", "zstd")
    ),
    Sample("kafka.index", f"{_FIRST}.index", [{"offset": 4 + 9 * n, "position": 70 * n} for n in range(12)]),
    Sample("kafka.timeindex", f"{_FIRST}.timeindex", [{"timestamp": _T + n, "offset": 4 * n} for n in range(9)]),
    Sample(
        "kafka.txnindex",
        f"{_FIRST}.txnindex",
        [
            {"producer_id": n, "first_offset": 9 * n, "last_offset": 9 * n + 5, "last_stable_offset": 9 * n + 6}
            for n in range(3)
        ],
    ),
    Sample(
        "kafka.producer_snapshot",
        f"{_FIRST}.snapshot",
        [
            {
                "producer_id": 1000 + n, "producer_epoch": n, "last_sequence": 10 * n, "last_offset": 20 * n,
                "offset_delta": n, "timestamp": _T, "coordinator_epoch": 0, "current_txn_first_offset": n - 1,
            }
            for n in range(3)
        ],
    ),
    Sample("kafka.leader_epoch_checkpoint", "leader-epoch-checkpoint", [{"epoch": 0, "start_offset": 0}, {"epoch": 7, "start_offset": 1234}]),
    Sample(
        "kafka.offset_checkpoint",
        "recovery-point-offset-checkpoint",
        [{"topic": "orders", "partition": n, "offset": 10**n} for n in range(3)],
    ),
    Sample("kafka.partition_metadata", "partition.metadata", [{"version": 0, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}]),
    *(
        Sample("leveldb.table", "000005.ldb", _entries(12), {"block_size": 80, "compression": one, "bloom_bits_per_key": bits})
        for one, bits in (("none", 10), ("snappy", 0), ("zstd", 0))
    ),
    *(
        Sample("leveldb.log", "000003.log", _operations(9), {"batch_size": size}) for size in (1, 4)
    ),
    Sample(
        "leveldb.manifest",
        "MANIFEST-000002",
        [
            {"field": "comparator", "comparator": "leveldb.BytewiseComparator", "position": 0},
            *(
                {"field": name, "number": number, "position": 1}
                for number, name in enumerate(("prev_log_number", "log_number", "next_file_number", "last_sequence"))
            ),
            *(
                {
                    "field": "new_file", "level": n, "number": 5 + n, "size": 300 << n,
                    "smallest": b"a" + _TAG, "largest": b"b" * n + _TAG, "position": 2 + n,
                }
                for n in range(3)
            ),
            {"field": "compact_pointer", "level": 0, "smallest": b"b" + _TAG, "position": 9},
            {"field": "deleted_file", "level": 0, "number": 5, "position": 9},
        ],
    ),
    Sample("leveldb.current", "CURRENT", [{"manifest": "MANIFEST-000002"}]),
    Sample("zookeeper.txnlog", "log.1", _txns("nested"), {"multi": "nested"}),
    Sample("zookeeper.txnlog", "log.6", _txns("exploded")[5:], {"multi": "exploded"}),
    Sample("zookeeper.snapshot", "snapshot.7", _NODES),
    *(
        Sample("zookeeper.snapshot", f"snapshot.7.{one}", _NODES, {"snapshot.compression.method": one})
        for one in ("gz", "snappy")
    ),
    Sample("zookeeper.accepted_epoch", "acceptedEpoch", [{"epoch": 7}]),
    Sample("zookeeper.current_epoch", "currentEpoch", [{"epoch": 6}]),
    Sample("zookeeper.myid", "myid", [{"myid": 3}]),
)  # fmt: skip


@dataclass(frozen=True)
class Box:
    """A directory: the layout that makes it, its name, the rows that it is made of and those written next, and the column that
    tells them apart. `own`: what that column has for rows that are there in any case."""

    layout: str
    name: str
    old: Sequence[Mapping[str, Any]]
    new: Sequence[Mapping[str, Any]]
    key: str
    options: Mapping[str, Any] = field(default_factory=dict)
    own: Sequence[Any] = ()


BOXES: tuple[Box, ...] = (
    Box(
        "kafka.partition",
        "orders-0",
        [{"value": b"old-%d" % n, "timestamp": _T} for n in range(9)],
        [{"value": b"new-%d" % n, "timestamp": _T} for n in range(12)],
        "value",
        {"segment.bytes": 200, "batch.size": 110, "topic.id": "AAAAAAAAAAAAAAAAAAAAAQ"},
    ),
    # In the order of keys, those written next behind: whoever reads a database gets them so.
    Box(
        "leveldb.db",
        "chainstate",
        [{"key": b"a%d" % n, "value": b"old" * n} for n in range(6)],
        [{"key": b"b%d" % n, "value": b"new" * n} for n in range(8)],
        "key",
        {"max_file_size": 150, "block_size": 60, "compression": "none"},
    ),
    # Those written next behind, with their parent: whoever reads a tree gets them so.
    Box(
        "zookeeper.datadir",
        "version-2",
        [{"path": f"/a{n}", "data": b"old" * n} for n in range(6)],
        [{"path": f"/b{n}", "data": b"new" * n} for n in range(8)],
        "path",
        {"write_as": "logs", "txnLogSizeLimitInKb": 1},
        ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"),
    ),
)


def samples(codec: str | None = None) -> list[Sample]:
    """All of them, or those of one codec. Raises `UsageError` for a codec without any."""
    found = [one for one in SAMPLES if codec in (None, one.codec)]
    if not found:
        registry.get(str(codec))  # raises for a name that is none
        raise UsageError(f"{codec} has no sample", advice="Add one in logwright.roundtrip.specimens")
    return found
