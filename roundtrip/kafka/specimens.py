"""Small files of Kafka: see `logwright.roundtrip.specimens`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from logwright.codec.kafka.formats.internal.view import BY_VIEW
from logwright.roundtrip.sample import DirectorySample, Sample

_T = 1_700_000_000_000
_FIRST = f"{0:020d}"


def _records(count: int) -> list[dict[str, Any]]:
    """Return a few diverse records: null and empty keys and values, headers, decreasing times."""
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


def _messages(magic: int) -> list[dict[str, Any]]:
    """Return records that messages of magic 0 or 1 can hold."""
    names = ("key", "value", "offset", "timestamp")[: 3 + magic]
    return [{name: row[name] for name in names} for row in _records(9)]


SAMPLES: tuple[Sample, ...] = (
    Sample("kafka.log", f"{_FIRST}.log", _records(9), {"batch.size": 120}),
    *(
        Sample("kafka.log", f"{_FIRST}.log", _records(12), {"batch.size": 160, "compression.type": compression})
        for compression in ("gzip", "snappy", "lz4", "zstd")
    ),
    *(
        Sample("kafka.log", f"{_FIRST}.log", _messages(magic), {"magic": magic, "batch.size": 150, "compression.type": compression})
        for magic, compression in ((0, "none"), (1, "none"), (0, "lz4"), (1, "gzip"))
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
    Sample(
        "kafka.meta_properties",
        "meta.properties",
        [{"version": 1, "cluster_id": "Kg9s5hQ2T0mYb1cVwXzA_A", "node_id": 1, "directory_id": "JsBZJBOhQL6YO1DSdDfXHQ"}],
    ),
    Sample(
        "kafka.quorum_state",
        "quorum-state",
        [
            {
                "data_version": 1, "leader_id": 1, "leader_epoch": 2, "voted_id": None, "voted_directory_id": None,
                "cluster_id": None, "applied_offset": None, "current_voters": None,
            }
        ],
    ),
)  # fmt: skip


def _dense(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with offsets without gaps."""
    return [{**row, "offset": n} for n, row in enumerate(rows)]


def _idempotent(frames: pa.Table) -> dict[str, list[int]]:
    """Return the columns of batches of one idempotent producer, of which compaction has removed records."""
    bases = frames["base_offset"].to_pylist()
    return {
        "producer_id": [7] * len(bases),
        "producer_epoch": [0] * len(bases),
        "base_sequence": [1000 + base for base in bases],
    }


PRIMARY_SAMPLES: tuple[Sample, ...] = (
    *(
        Sample("kafka.log", f"{_FIRST}.log", _dense(_records(60)), {"batch.size": 500, "compression.type": compression}, {"next_base": 60})
        for compression in ("none", "lz4")
    ),
    Sample("kafka.log", f"{_FIRST}.log", _records(60), {"batch.size": 500}, {"next_base": 74}, "compacted"),
    Sample(
        "kafka.log", f"{_FIRST}.log", _records(60), {"batch.size": 500}, {"next_base": 74}, "compacted idempotent", _idempotent
    ),
    *(
        Sample("kafka.log", f"{_FIRST}.log", _dense(_messages(magic) * 4), {"magic": magic}, {"next_base": 36}, "magic")
        for magic in (0, 1)
    ),
)  # fmt: skip

DIRECTORY_SAMPLES: tuple[DirectorySample, ...] = (
    DirectorySample(
        "kafka.partition",
        "orders-0",
        [{"value": b"old-%d" % n, "timestamp": _T} for n in range(9)],
        [{"value": b"new-%d" % n, "timestamp": _T} for n in range(12)],
        "value",
        {"segment.bytes": 200, "batch.size": 110, "topic.id": "AAAAAAAAAAAAAAAAAAAAAQ"},
        payload_views=tuple(BY_VIEW),
    ),
)
