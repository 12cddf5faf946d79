"""Small samples of RocketMQ files. See `logwright.roundtrip.specimens`."""

from __future__ import annotations

from typing import Any

from logwright.codec import registry
from logwright.roundtrip.sample import DirectorySample, Sample

_T = 1_700_000_000_000
_NAME = "00000000000000000000"


def _message(n: int, **more: Any) -> dict[str, Any]:
    return {
        "topic": "Orders", "queue_id": n % 2, "queue_offset": n // 2, "born_timestamp_ms": _T + n,
        "store_timestamp_ms": _T + 5 + n, "body": b"body %d" % n, **more,
    }  # fmt: skip


_MESSAGES = [
    _message(0, tags="TagA", keys="k0"),
    _message(1, born_host="[2001:db8::1]:50001", store_host="10.0.0.2:10911", body=None),
    _message(
        2, properties=[{"key": "UNIQ_KEY", "value": "0A01"}, {"key": "KEYS", "value": "a b"}], keys="a b"
    ),
    _message(3, topic="t" * 130, sys_flag=0x301, body=b"12" * 20),
]
_UNITS = [{"physical_offset": 120 * n, "size": 120, "tags_code": 2598919 + n} for n in range(5)]

_BATCHES = [
    {"physical_offset": 300 * n, "size": 300, "tags_code": n, "store_timestamp": _T + n, "base_offset": 3 * n, "batch_size": 3,
     "compacted_offset": -1, "reserved": 0}
    for n in range(4)
]  # fmt: skip
_EXTENSIONS = [
    {"tags_code": 2598919 + n, "store_timestamp": _T + n, "filter_bit_map": b"\x07" * (8 * (n % 2))}
    for n in range(5)
]
_INDEX = [
    {"key_hash": 1903240649 + 5 * n % 7, "physical_offset": 120 * n, "store_timestamp": _T + 700 * n}
    for n in range(6)
]
_TOPIC = {
    "read_queue_nums": 2, "write_queue_nums": 2, "perm": 6, "topic_filter_type": "SINGLE_TAG", "topic_sys_flag": 0, "order": False,
}  # fmt: skip
_TIMERS = [
    {"previous": 52 * n - 52 if n else -1, "write_time": _T, "delayed_time": 2000 + n, "physical_offset": 320 * n,
     "message_size": 320, "topic_hash": 1148717942}
    for n in range(4)
]  # fmt: skip
_SLOTS = [
    {"time": 1_700_000_000 + n, "first_position": 0, "last_position": 52 * n, "count": 1 + n, "magic": 0}
    for n in range(3)
]

SAMPLES: tuple[Sample, ...] = (
    Sample("rocketmq.commitlog", _NAME, _MESSAGES),
    Sample("rocketmq.consumequeue", _NAME, _UNITS),
    Sample("rocketmq.batchconsumequeue", _NAME, _BATCHES),
    Sample("rocketmq.consumequeue_ext", _NAME, _EXTENSIONS),
    Sample("rocketmq.indexfile", "20240131120000123", _INDEX, {"maxHashSlotNum": 4, "maxIndexNum": 7}),
    Sample(
        "rocketmq.checkpoint",
        "checkpoint",
        [{name: n for n, name in enumerate(registry.get("rocketmq.checkpoint").tables["rows"].names())}],
    ),
    Sample(
        "rocketmq.timercheck",
        "timercheck",
        [{name: n for n, name in enumerate(registry.get("rocketmq.timercheck").tables["rows"].names())}],
    ),
    Sample("rocketmq.abort", "abort", [{"pid": 22642}]),
    Sample(
        "rocketmq.topics",
        "topics.json",
        [
            {"topic": "Orders", **_TOPIC, "attributes": [{"key": "queue.type", "value": "BatchCQ"}]},
            {"topic": "t", **_TOPIC, "attributes": []},
        ],
    ),
    Sample(
        "rocketmq.consumer_offsets",
        "consumerOffset.json",
        [{"topic": "Orders", "group": "g", "queue_id": n, "offset": 10 * n} for n in range(2)],
    ),
    Sample(
        "rocketmq.delay_offsets",
        "delayOffset.json",
        [{"delay_level": n, "offset": n * n} for n in range(1, 3)],
    ),
    Sample("rocketmq.timerlog", _NAME, _TIMERS),
    Sample("rocketmq.timerwheel", "timerwheel", _SLOTS),
)
_SEAL = [{"key": "TAGS", "value": "TagA"}, {"key": "__CRC32#", "value": "0" * 10}]
"""With the checksum of the complete message, which the writer fills in."""
PRIMARY_SAMPLES: tuple[Sample, ...] = tuple(
    Sample(
        "rocketmq.commitlog",
        _NAME,
        [_message(n, properties=properties, body=b"body %d" % n * n) for n in range(24)],
        note=note,
    )
    for note, properties in (("", _SEAL[:1]), ("__CRC32#", _SEAL))
)
_SIZES = {
    "mappedFileSizeCommitLog": 512,
    "mappedFileSizeConsumeQueue": 60,
    "maxHashSlotNum": 4,
    "maxIndexNum": 6,
}


def _row(n: int) -> dict[str, Any]:
    return {
        "topic": ("Orders", "Pay")[n % 2], "queue_id": n % 3 % 2, "born_timestamp_ms": _T + n, "store_timestamp_ms": _T + 5 + n,
        "tags": "TagA", "keys": f"k{n}", "body": b"body %d" % n,
    }  # fmt: skip


DIRECTORY_SAMPLES: tuple[DirectorySample, ...] = (
    DirectorySample(
        "rocketmq.store",
        "store",
        [_row(n) for n in range(7)],
        [_row(n) for n in range(7, 12)],
        "body",
        _SIZES,
    ),
)
