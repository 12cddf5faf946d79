"""Small files of RocketMQ: see `logwright.roundtrip.specimens`."""

from __future__ import annotations

from typing import Any

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

SAMPLES: tuple[Sample, ...] = (
    Sample("rocketmq.commitlog", _NAME, _MESSAGES),
    Sample("rocketmq.consumequeue", _NAME, _UNITS),
)
DIRECTORY_SAMPLES: tuple[DirectorySample, ...] = ()
