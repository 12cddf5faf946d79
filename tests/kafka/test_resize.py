"""Segments of other sizes, and retention: `convert` of a partition copies the batches that are left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_golden import CASES

import logwright as lw

ROLLED = "v2_rolled"


def logs(path: Path) -> dict[str, bytes]:
    return {log.name: log.read_bytes() for log in sorted(path.glob("*.log"))}


def offsets(path: Path) -> list[int]:
    return [int(offset) for offset in lw.read(path, view="log").column("offset").to_pylist()]


def producers(path: Path) -> list[dict[str, Any]]:
    """Return the producers in the newest snapshot."""
    rows = [lw.read(snapshot).to_pylist() for snapshot in sorted(path.glob("*.snapshot"))]
    return sorted(rows[-1], key=lambda row: int(row["producer_id"])) if rows else []


@pytest.mark.parametrize(
    "name", [ROLLED, "v2_txn_interleaved", "v0_rolled", "mixed_v0_v1_v2", "v2_compacted"]
)
@pytest.mark.parametrize("size", [500, 1 << 20])
def test_batches_move_between_segments_unchanged(tmp_path: Path, name: str, size: int) -> None:
    source, out = CASES[name].partition, tmp_path / "t-0"
    lw.convert(source, out, segment_bytes=size)
    assert b"".join(logs(out).values()) == b"".join(logs(source).values())
    assert lw.verify(out).ok
    if size > 500:
        assert len(logs(out)) == 1
        return
    frames = lw.read(out, view="batches", columns=["size"]).column("size").to_pylist()
    assert len(logs(out)) > 1
    assert all(len(data) <= max(size, *frames) for data in logs(out).values())


@pytest.mark.parametrize("name", ["v0_gzip", "v1_lz4", "mixed_v0_v1_v2"])
def test_segment_begins_at_the_first_offset_of_a_compressed_wrapper(tmp_path: Path, name: str) -> None:
    """The header of a wrapper has its last offset."""
    source, out = CASES[name].partition, tmp_path / "t-0"
    done = lw.convert(source, out, compression_type="snappy", segment_bytes=400)
    assert done["rows"] == len(CASES[name].records() or [])
    bases = [int(log[:20]) for log in logs(out)]
    assert len(bases) > 2
    assert set(bases) <= set(offsets(out))
    assert lw.diff(source, out).equal


@pytest.mark.parametrize("options", [{"retention_ms": -1}, {"retention_bytes": -1}])
def test_retention_of_minus_one_removes_nothing(tmp_path: Path, options: dict[str, int]) -> None:
    source = CASES[ROLLED].partition
    lw.convert(source, tmp_path / "t-0", **options)
    assert logs(tmp_path / "t-0") == logs(source)


def test_topic_id_of_a_partition_of_the_same_name_is_kept(tmp_path: Path) -> None:
    source = CASES[ROLLED].partition
    ids = {
        target: lw.convert(source, tmp_path / target, "kafka.partition", view="log", batch_size=100)
        and lw.inspect(tmp_path / target)["facts"]["topic_id"]
        for target in (source.name, "other-0")
    }
    assert ids[source.name] == lw.inspect(source)["facts"]["topic_id"] != ids["other-0"]


def test_segments_span_at_most_segment_ms(tmp_path: Path) -> None:
    rows = [{"value": b"x", "timestamp": 1_700_000_000_000 + 1000 * n, "offset": n} for n in range(20)]
    lw.write(rows, tmp_path / "t-0", "kafka.partition", batch_size=1)
    lw.convert(tmp_path / "t-0", tmp_path / "o-0", segment_ms=4500)
    assert [int(name[:20]) for name in logs(tmp_path / "o-0")] == [0, 5, 10, 15]


def test_producers_and_transactions_survive_another_division(tmp_path: Path) -> None:
    source = CASES["v2_txn_interleaved"].partition
    lw.convert(source, tmp_path / "t-0", segment_bytes=400)
    columns = ["offset", "producer_id", "sequence", "is_transactional", "control_type"]
    assert lw.diff(source, tmp_path / "t-0", view="log", columns=columns).equal
    assert lw.diff(source, tmp_path / "t-0", view="read_committed", columns=["offset"]).equal


def test_retention_by_size_keeps_at_least_the_size(tmp_path: Path) -> None:
    source = CASES[ROLLED].partition
    sizes = [len(data) for data in logs(source).values()]
    for limit in (sum(sizes), sum(sizes[1:]), sum(sizes[1:]) - 1, sizes[-1], 0):
        out = tmp_path / f"t-{limit}"
        done = lw.convert(source, out, retention_bytes=limit)
        left = [name for n, name in enumerate(logs(source)) if sum(sizes[n + 1 :]) < limit]
        if left:
            assert logs(out) == {name: logs(source)[name] for name in left}
        else:
            assert logs(out) == {"00000000000000000081.log": b""}
        assert bool(done["notes"]) == (len(left) < len(sizes))
        assert lw.verify(out).ok


def test_retention_by_time_removes_segments_of_older_records(tmp_path: Path) -> None:
    rows = [{"value": b"x" * 50, "timestamp": 1_700_000_000_000 + 1000 * n} for n in range(30)]
    lw.write(rows, tmp_path / "t-0", "kafka.partition", batch_size=1, segment_bytes=1500)
    newest = {
        name: max(lw.read(tmp_path / "t-0" / name).column("timestamp").to_pylist())
        for name in logs(tmp_path / "t-0")
    }
    now = 1_700_000_000_000 + 40_000
    done = lw.convert(tmp_path / "t-0", tmp_path / "o-0", retention_ms=25_000, now=now)
    left = [name for name, time in newest.items() if now - time.timestamp() * 1000 <= 25_000]
    assert list(logs(tmp_path / "o-0")) == left
    assert 0 < len(left) < len(newest)
    first = int(left[0][:20])
    assert done["notes"] == (f"removed: 1 segment, {first} records below offset {first}",)


@pytest.mark.alike
@pytest.mark.parametrize("name", [ROLLED, "v2_gzip_java", "v1_gzip", "dmg_tbase", "v2_idempotent"])
@pytest.mark.parametrize(
    "extra",
    [
        pytest.param({}, id=""),
        pytest.param({"segment_bytes": 600}, id="divided"),
        # Compressed again, whatever else is done: `tests/face/test_convert.py`.
        pytest.param({"compression_type": "lz4"}, id="lz4", marks=pytest.mark.extended),
    ],
)
def test_records_below_an_offset_are_removed(tmp_path: Path, name: str, extra: dict[str, Any]) -> None:
    source, out = CASES[name].partition, tmp_path / "t-0"
    every = offsets(source)
    for below in sorted({0, 5, min(31, every[-1]), every[-1], every[-1] + 1}):
        target = out.with_name(f"t-{below}")
        done = lw.convert(source, target, delete_before_offset=below, now=0, **extra)
        table = lw.read(target)
        left = lw.read(source, filter=f"offset >= {below}")
        assert table.select(["offset", "key", "value"]).equals(left.select(["offset", "key", "value"]))
        assert producers(target) == producers(source)
        assert bool(done["notes"]) == (below > every[0])
        assert lw.verify(target).ok
    with pytest.raises(lw.UsageError, match="above the log end offset"):
        lw.convert(source, tmp_path / "x-0", delete_before_offset=every[-1] + 100)


def test_retention_needs_a_copy_of_all_batches(tmp_path: Path) -> None:
    source = CASES[ROLLED].partition
    for more in ({"partition_leader_epoch": 3}, {"filter": "offset > 3"}, {"magic": 1}):
        with pytest.raises(lw.UsageError, match=r"retention.bytes applies to a copy of all batches"):
            lw.convert(source, tmp_path / "t-0", **{"retention.bytes": 100, **more})
    with pytest.raises(lw.UsageError, match=r"edit does not use retention.bytes"):
        lw.edit(source, tmp_path / "t-0", drop="offset == 3", **{"retention.bytes": 100})
