"""The classes of Kafka 2.8 and 3.9 read the messages of magic 0 and 1 that we write, and convert batches to them as we do."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.roundtrip.oracles import kafka_old as oracle

pytestmark = pytest.mark.oracle

START = 1_400_000_000_000
SEGMENT = "00000000000000000000.log"


@pytest.fixture(params=oracle.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    reason = oracle.available(request.param)
    if reason:
        pytest.skip(reason)
    return str(request.param)


def rows(*, gaps: bool) -> pa.Table:
    """Null, empty and long keys and values, a missing timestamp, offsets with gaps as after compaction."""
    numbers = range(300)
    return pa.table(
        {
            "key": pa.array([None if n % 7 == 0 else b"" if n % 7 == 1 else b"key-%d" % n for n in numbers], pa.binary()),
            "value": pa.array([None if n % 11 == 0 else b"" if n % 11 == 1 else b"value %d " % n * (n % 90) for n in numbers], pa.binary()),
            "timestamp_ms": pa.array([-1 if n % 13 == 0 else START + 37 * n % 5000 for n in numbers], pa.int64()),
            "offset": pa.array([n + n // 5 * 3 * gaps for n in numbers], pa.int64()),
        }
    )  # fmt: skip


def flat(batches: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (r["offset"], r["timestamp"], r["key"], r["value"]) for batch in batches for r in batch["records"]
    ]


@pytest.mark.parametrize("gaps", [False, True], ids=["dense", "gaps"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_are_read(version: str, tmp_path: Path, magic: int, codec: str, gaps: bool) -> None:
    table, path = rows(gaps=gaps), tmp_path / SEGMENT
    lw.write(table, path, "kafka.log", magic=magic, compression_type=codec, batch_size=5000)
    batches = oracle.batches(version, path)
    times = [-1] * 300 if magic == 0 else table["timestamp_ms"].to_pylist()
    assert flat(batches) == list(
        zip(*(table["offset"].to_pylist(), times, table["key"].to_pylist(), table["value"].to_pylist()), strict=True)
    )  # fmt: skip
    assert {(batch["magic"], batch["compression"]) for batch in batches} == {(magic, codec)}
    assert (len(batches) == 300) == (codec == "none")
    if magic:
        assert all(b["max_timestamp"] == max(r["timestamp"] for r in b["records"]) for b in batches)


def test_append_time_of_a_wrapper_counts(version: str, tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    table = rows(gaps=False).set_column(2, "timestamp_ms", pa.array([START] * 300))
    lw.write(table, path, "kafka.log", magic=1, compression_type="snappy", message_timestamp_type="LogAppendTime")  # fmt: skip
    (batch,) = {(b["timestamp_type"], b["max_timestamp"]) for b in oracle.batches(version, path)}
    assert batch == ("LogAppendTime", START)


@pytest.mark.parametrize(("magic", "first"), [(0, 100), (1, 0)], ids=["absolute", "relative"])
def test_offsets_in_a_wrapper(tmp_path: Path, magic: int, first: int) -> None:
    path = tmp_path / SEGMENT
    table = pa.table({"value": [b"a", b"b"], "offset": [100, 103]})
    lw.write(table, path, "kafka.log", magic=magic, compression_type="gzip")
    data = path.read_bytes()
    inner = zlib.decompress(data[data.index(b"\x1f\x8b") :], 31)
    second = 12 + int.from_bytes(inner[8:12], "big")
    offsets = [int.from_bytes(inner[at : at + 8], "big") for at in (0, second)]
    assert (int.from_bytes(data[:8], "big"), offsets) == (103, [first, first + 3])


def test_lz4_of_magic_0_has_the_wrong_header_checksum(tmp_path: Path) -> None:
    for magic, checksum in ((0, 0x1A), (1, 0x82)):
        path = tmp_path / str(magic) / SEGMENT
        path.parent.mkdir()
        lw.write(rows(gaps=False), path, "kafka.log", magic=magic, compression_type="lz4")
        data = path.read_bytes()
        assert data[data.index(b"\x04\x22\x4d\x18\x60\x40") + 6] == checksum


CONVERTED = ("v2_none_java", "v2_gzip_java", "v2_snappy_java", "v2_lz4_java", "v2_headers", "v2_append_time_none", "v2_append_time_lz4",
             "v2_compacted", "v2_txn_interleaved", "v2_many_in_batch")  # fmt: skip


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("name", CONVERTED)
def test_batches_are_converted_as_by_a_broker(
    version: str, golden: Any, tmp_path: Path, name: str, magic: int
) -> None:
    """Equal batches and records; equal bytes if uncompressed."""
    for source in sorted(golden(name).directory.glob("*.log")):
        if not lw.read(source, filter="is_control == false").num_rows:
            continue
        out = tmp_path / source.name
        lw.convert(source, out, "kafka.log", view="rows", magic=magic)
        batches, data = oracle.down_convert(version, source, magic)
        assert oracle.batches(version, out) == batches
        if {batch["compression"] for batch in batches} == {"none"}:
            assert out.read_bytes() == data
