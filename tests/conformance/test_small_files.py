"""Small files of every format: rows, bytes, and the number of rows left with trailing garbage.

Each triple is written (the rows give the bytes), fed whole, fed by the byte (the bytes give the rows) and fed with junk behind: what
the junk does is reported, and the bytes come back as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from logwright.codec import registry
from logwright.codec.fixed import FixedCodec
from logwright.readers.stream import Mode
from logwright.roundtrip.laws import decode_encode
from logwright.roundtrip.specimen import Specimen

JUNK = b"\xfe\xffjunk"


class Triple(NamedTuple):
    codec: str
    name: str
    rows: Sequence[Mapping[str, Any]]
    data: bytes
    kept: int
    """Rows that are left with `JUNK` behind."""


_MS = 1_700_000_000_000
_LOG = f"{0:020d}"
_EPOCHS = ("zookeeper.accepted_epoch", "acceptedEpoch"), ("zookeeper.current_epoch", "currentEpoch")
TRIPLES = [
    Triple("kafka.index", f"{_LOG}.index", [], b"", 0),
    Triple(
        "kafka.index",
        f"{_LOG}.index",
        [{"offset": 4, "position": 0}, {"offset": 13, "position": 70}],
        bytes.fromhex("0000000400000000 0000000d00000046"),
        2,
    ),
    Triple(
        "kafka.timeindex",
        f"{_LOG}.timeindex",
        [{"timestamp": _MS, "offset": 0}, {"timestamp": _MS + 1, "offset": 4}],
        bytes.fromhex("0000018bcfe5680000000000 0000018bcfe5680100000004"),
        2,
    ),
    Triple(
        "kafka.txnindex",
        f"{_LOG}.txnindex",
        [{"producer_id": 1, "first_offset": 9, "last_offset": 14, "last_stable_offset": 15}],
        bytes.fromhex("0000 0000000000000001 0000000000000009 000000000000000e 000000000000000f"),
        1,
    ),
    Triple("kafka.producer_snapshot", f"{_LOG}.snapshot", [], bytes.fromhex("0001 48674bc7 00000000"), 0),
    Triple(
        "kafka.leader_epoch_checkpoint",
        "leader-epoch-checkpoint",
        [{"epoch": 0, "start_offset": 0}, {"epoch": 7, "start_offset": 1234}],
        b"0\n2\n0 0\n7 1234\n",
        0,
    ),
    Triple("kafka.leader_epoch_checkpoint", "leader-epoch-checkpoint", [], b"0\n0\n", 0),
    Triple(
        "kafka.offset_checkpoint",
        "recovery-point-offset-checkpoint",
        [{"topic": "orders", "partition": 1, "offset": 10}],
        b"0\n1\norders 1 10\n",
        0,
    ),
    Triple(
        "kafka.partition_metadata",
        "partition.metadata",
        [{"version": 0, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}],
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
        0,
    ),
    Triple(
        "kafka.meta_properties",
        "meta.properties",
        [{"version": 1, "cluster_id": "a=\u00fc", "node_id": 7, "directory_id": "JsBZJBOhQL6YO1DSdDfXHQ"}],
        b"cluster.id=a\\=\\u00FC\ndirectory.id=JsBZJBOhQL6YO1DSdDfXHQ\nnode.id=7\nversion=1\n",
        1,
    ),
    Triple(
        "kafka.quorum_state",
        "quorum-state",
        [
            {
                "data_version": 0,
                "leader_id": 1,
                "leader_epoch": 2,
                "voted_id": None,
                "voted_directory_id": None,
                "cluster_id": "",
                "applied_offset": 0,
                "current_voters": [1, 3],
            }
        ],
        b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":3}],"data_version":0}',
        0,
    ),
    Triple("leveldb.current", "CURRENT", [{"manifest": "MANIFEST-000002"}], b"MANIFEST-000002\n", 0),
    *(Triple(codec, name, [{"epoch": 7}], b"7", 0) for codec, name in _EPOCHS),
    Triple("zookeeper.myid", "myid", [{"myid": 3}], b"3", 0),
    Triple(
        "rocketmq.consumequeue",
        _LOG,
        [{"physical_offset": 120, "size": 96, "tags_code": -1}],
        bytes.fromhex("0000000000000078 00000060 ffffffffffffffff"),
        1,
    ),
    Triple(
        "rocketmq.batchconsumequeue",
        _LOG,
        [
            {
                "physical_offset": 0,
                "size": 253,
                "tags_code": 0,
                "store_timestamp": _MS,
                "base_offset": 0,
                "batch_size": 3,
                "compacted_offset": -1,
                "reserved": 0,
            }
        ],
        bytes.fromhex(
            "0000000000000000 000000fd 0000000000000000 0000018bcfe56800 0000000000000000 0003 ffffffff 00000000"
        ),
        1,
    ),
    Triple(
        "rocketmq.checkpoint",
        "checkpoint",
        [
            {
                "physic_msg_timestamp": 0,
                "logics_msg_timestamp": _MS,
                "index_msg_timestamp": 0,
                "master_flushed_offset": 0,
                "confirm_phy_offset": 120,
                "logics_physical_offset": 0,
            }
        ],
        bytes.fromhex(
            "0000000000000000 0000018bcfe56800 0000000000000000 0000000000000000 0000000000000078"
        ).ljust(4096, b"\0"),
        0,
    ),
    Triple(
        "rocketmq.timercheck",
        "timercheck",
        [
            {
                "last_read_time": _MS,
                "last_timer_log_flush_pos": 52,
                "last_timer_queue_offset": 1,
                "master_timer_queue_offset": 1,
                "data_version_state": 0,
                "data_version_timestamp": 0,
                "data_version_counter": 7,
            }
        ],
        bytes.fromhex(
            "0000018bcfe56800 0000000000000034 0000000000000001 0000000000000001 0000000000000000 0000000000000000 0000000000000007"
        ).ljust(4096, b"\0"),
        0,
    ),
    Triple("rocketmq.abort", "abort", [{"pid": 22642}], b"22642", 0),
    Triple(
        "rocketmq.topics",
        "topics.json",
        [],
        b'{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":0,\n\t\t"timestamp":0\n\t},\n\t"topicConfigTable":{}\n}',
        0,
    ),
    Triple(
        "rocketmq.consumer_offsets",
        "consumerOffset.json",
        [{"topic": "Orders", "group": "g", "queue_id": 0, "offset": 12}],
        b'{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":0,\n\t\t"timestamp":0\n\t},\n\t"offsetTable":{\n\t\t"Orders@g":{\n\t\t\t0:12\n\t\t}\n\t}\n}',
        0,
    ),
    Triple(
        "rocketmq.delay_offsets",
        "delayOffset.json",
        [{"delay_level": 1, "offset": 2}],
        b'{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":0,\n\t\t"timestamp":0\n\t},\n\t"offsetTable":{\n\t\t1:2\n\t}\n}',
        0,
    ),
    Triple(
        "rocketmq.timerwheel",
        "timerwheel",
        [
            {
                "slot": 0,
                "time": 1_700_000_000,
                "first_position": 0,
                "last_position": 52,
                "count": 2,
                "magic": 0,
            }
        ],
        bytes.fromhex("000000006553f100 0000000000000000 0000000000000034 00000002 00000000"),
        1,
    ),
    Triple(
        "bookkeeper.index",
        "a.idx",
        [{"ledger_id": 10, "entry_id": 1, "location": 0x7B_40000004, "log_id": 0x7B, "offset": 0x40000004}],
        bytes.fromhex("424b4c45 00000001 00000014 850bf1071c5e3d8c24235676f8816ae0cbe2f14f").ljust(
            1032, b"\0"
        )
        + bytes.fromhex("0000007b40000004").ljust(8184, b"\0"),
        1,
    ),
    Triple(
        "bookkeeper.lastmark",
        "lastMark.1",
        [{"journal_id": 0x1A1FBC31FB7, "offset": 4096}],
        bytes.fromhex("000001a1fbc31fb7 0000000000001000"),
        1,
    ),
    Triple("bookkeeper.lastid", "lastId", [{"log_id": 26}], b"1a\n", 1),
    Triple(
        "bookkeeper.bookiestatus",
        "BOOKIE_STATUS",
        [{"layout_version": 1, "mode": "READ_ONLY", "last_update_time": _MS, "manually_modified": False}],
        b"1,READ_ONLY,1700000000000,false\n",
        1,
    ),
    Triple("bookkeeper.dirty", "DIRTY", [], b"", 1),
    Triple(
        "bookkeeper.cookie",
        "VERSION",
        [
            {
                "layout_version": 5,
                "bookie_host": "127.0.0.1:3181",
                "journal_dir": "/data/j",
                "ledger_dirs": "2\t/data/l1\t/data/l2",
                "instance_id": "3a5b6c1e",
                "index_dirs": None,
            }
        ],
        b'5\nbookieHost: "127.0.0.1:3181"\njournalDir: "/data/j"\nledgerDirs: "2\\t/data/l1\\t/data/l2"\n'
        b'instanceId: "3a5b6c1e"\n',
        0,
    ),
]

each_triple = pytest.mark.parametrize(
    "triple", TRIPLES, ids=lambda triple: f"{triple.codec}-{len(triple.rows)}"
)


def specimen(triple: Triple, data: bytes | None = None) -> Specimen:
    return Specimen.of(triple.data if data is None else data, triple.codec, triple.name)


def shown(triple: Triple, table: pa.Table) -> list[dict[str, Any]]:
    """The columns of the example, times as numbers."""
    names = list(triple.rows[0]) if triple.rows else []
    columns = [table[name] for name in names]
    plain = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in columns]
    return pa.table(plain, names).to_pylist() if names else []


def test_every_small_format_has_an_example() -> None:
    small = {codec.name for codec in registry.codecs() if codec.single_frame or isinstance(codec, FixedCodec)}
    assert {triple.codec for triple in TRIPLES} == small


@each_triple
def test_rows_encode_to_the_bytes(triple: Triple) -> None:
    table = registry.get(triple.codec).tables["rows"]
    names = list(triple.rows[0]) if triple.rows else table.names()
    rows = pa.Table.from_pylist([dict(row) for row in triple.rows], schema=table.schema(names))
    assert specimen(triple, b"").encode(rows) == triple.data


@each_triple
@pytest.mark.parametrize("window", [1 << 20, 1], ids=["whole", "by the byte"])
def test_bytes_decode_to_the_rows(triple: Triple, window: int) -> None:
    read = specimen(triple).read(mode=Mode.FAILFAST, window=window)
    assert not read.report.faults
    assert read.table.num_rows == len(triple.rows)
    assert shown(triple, read.table) == list(triple.rows)


@each_triple
def test_trailing_garbage_is_reported_and_round_trips(triple: Triple) -> None:
    read = specimen(triple, triple.data + JUNK).read()
    assert read.report.faults
    assert shown(triple, read.table) == list(triple.rows)[: triple.kept]
    assert read.table.num_rows == triple.kept
    verdict = decode_encode(triple.data + JUNK, triple.codec, name=triple.name)
    assert verdict, str(verdict)
