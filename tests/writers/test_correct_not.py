"""A repair with `--no-correct` leaves every flipped bit: its frame is removed, or stays as it is."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.codec.fault import LogwrightError

_T = 1_700_000_000_000
NODES = [{"path": f"/n{n}", "data": b"node %d" % n} for n in range(12)]
STORES: dict[str, tuple[str, list[dict[str, Any]], dict[str, Any], str]] = {
    "kafka": (
        "kafka.partition",
        [{"value": b"value %d" % n, "timestamp": _T + n} for n in range(30)],
        {"batch.size": 150},
        f"{0:020d}.log",
    ),
    "kafka magic 1": (
        "kafka.partition",
        [{"value": b"value %d" % n, "timestamp": _T + n} for n in range(30)],
        {"magic": 1},
        f"{0:020d}.log",
    ),
    "leveldb": (
        "leveldb.db",
        [{"key": b"k%03d" % n, "value": b"value %d" % n} for n in range(40)],
        {"block_size": 80, "compression": "none"},
        "*.ldb",
    ),
    "zookeeper": ("zookeeper.datadir", NODES, {"write_as": "logs"}, "log.*"),
    "zookeeper snapshot": ("zookeeper.datadir", NODES, {"write_as": "snapshot"}, "snapshot.*"),
    "rocketmq": (
        "rocketmq.store",
        [
            {"topic": "Orders", "queue_id": n % 2, "body": b"body %d" % n, "store_timestamp_ms": _T + n}
            for n in range(12)
        ],
        {
            "mappedFileSizeCommitLog": 4096,
            "mappedFileSizeConsumeQueue": 400,
            "maxHashSlotNum": 8,
            "maxIndexNum": 60,
        },
        "commitlog/*",
    ),
    "bookkeeper": (
        "bookkeeper.bookie",
        [{"ledger_id": n % 2, "entry_id": n // 2, "payload": b"payload %d" % n} for n in range(16)],
        {},
        "ledger/current/*.log",
    ),
}


@pytest.mark.alike
@pytest.mark.parametrize("name", sorted(STORES))
def test_no_correct_leaves_every_bit(name: str, tmp_path: Path) -> None:
    codec, rows, options, pattern = STORES[name]
    path = tmp_path / "store-0"
    lw.write(rows, path, codec, **options)
    file = max(path.rglob(pattern), key=lambda path: path.stat().st_size)
    before = file.read_bytes()
    # The second half has what is derived from rows: the index and the filter of a table, the ledgers map of an entry log.
    end = len(before.rstrip(b"\0")) // 2
    frames = lw.read(file, view="frames", columns=["position", "size"]).to_pylist()
    bits = [
        bit
        for frame in frames
        for bit in range(8 * frame["position"], 8 * (frame["position"] + frame["size"]))
        if bit < 8 * end
    ]
    sizes = options if codec == "rocketmq.store" else {}
    for n, bit in enumerate(random.Random(name).sample(bits, 16)):
        data = bytearray(before)
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        out = tmp_path / f"out{n}" / "store-0"
        try:
            report = lw.repair(path, out, strategy="salvage", correct=False, **sizes)
        except LogwrightError:
            continue  # Nothing can be kept without the bit.
        assert report.corrected is None
        assert "corrected:" not in str(report)
        repaired = out / file.relative_to(path)
        assert not repaired.exists() or repaired.read_bytes() != before, (bit // 8, bit % 8)
