"""Conversion between magics, by the rules of a broker that converts batches for older consumers or from older producers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_golden import CASES as KAFKA

import logwright as lw

ROWS = ["key", "value", "offset", "timestamp_ms", "timestampType", "headers", "magic"]


def rows(path: Path, **options: Any) -> list[dict[str, Any]]:
    return lw.read(path, columns=[*ROWS, "compression"], **options).to_pylist()


def log_of(name: str) -> Path:
    return min(KAFKA[name].partition.glob("*.log"))


@pytest.mark.alike
@pytest.mark.parametrize("name", ["v0_none", "v0_lz4", "v1_none", "v1_append_time_gzip", "mixed_v0_v1_v2"])
@pytest.mark.parametrize(
    "options", [{"compression_type": "snappy"}, {"batch_size": 300}], ids=["codec", "size"]
)
def test_each_row_keeps_its_magic(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    for source in (log_of(name), KAFKA[name].partition):
        out = tmp_path / source.name
        lw.convert(source, out, **options)
        assert lw.diff(source, out, columns=ROWS).equal
        assert lw.verify(out).ok
        if "compression_type" in options:
            assert {row["compression"] for row in rows(out)} == {"snappy"}


def test_rows_without_another_codec_keep_their_compression(tmp_path: Path) -> None:
    source = KAFKA["mixed_v0_v1_v2"].partition
    lw.convert(source, tmp_path / "m-0", batch_size=300)
    assert lw.diff(source, tmp_path / "m-0", columns=["offset", "compression"]).equal


def test_a_compressed_batch_becomes_one_wrapper(tmp_path: Path) -> None:
    source, out = log_of("v2_gzip_java"), tmp_path / "00000000000000000000.log"
    lw.convert(source, out, magic=1)
    columns = ["base_offset", "last_offset", "records_count", "compression"]
    assert lw.diff(source, out, view="frames", columns=columns).equal
    assert set(lw.read(out, view="frames").column("magic").to_pylist()) == {1}


def test_batch_size_divides_wrappers(tmp_path: Path) -> None:
    source, out = log_of("v2_gzip_java"), tmp_path / "00000000000000000000.log"
    lw.convert(source, out, magic=1, batch_size=100)
    assert lw.read(out, view="frames").num_rows > 2 * lw.read(source, view="frames").num_rows
    assert lw.diff(source, out, columns=["key", "value", "offset", "timestamp"]).equal


def test_magic_1_has_no_headers(tmp_path: Path) -> None:
    source, out = log_of("v2_headers"), tmp_path / "00000000000000000000.log"
    done = lw.convert(source, out, magic=1)
    assert done["notes"] == ("not kept: 29 rows have headers",)
    assert lw.diff(source, out, columns=["key", "value", "offset", "timestamp"]).equal


def test_magic_0_has_no_timestamps(tmp_path: Path) -> None:
    source, out = log_of("v2_append_time_none"), tmp_path / "00000000000000000000.log"
    done = lw.convert(source, out, message_format_version="0.9")
    count = len(rows(out))
    assert f"not kept: {count} rows have a timestamp" in done["notes"]
    assert f"not kept: {count} rows have the time of the append (LogAppendTime)" in done["notes"]
    assert {(row["timestamp_ms"], row["timestampType"]) for row in rows(out)} == {(-1, -1)}


def test_append_time_survives_in_magic_1(tmp_path: Path) -> None:
    source, out = log_of("v2_append_time_lz4"), tmp_path / "00000000000000000000.log"
    assert lw.convert(source, out, magic=1)["notes"] == ()
    assert lw.diff(source, out, columns=["offset", "timestamp_ms", "timestampType", "value"]).equal


def test_markers_are_left_out(tmp_path: Path) -> None:
    source, out = KAFKA["v2_txn_commit_abort"].partition, tmp_path / "t-0"
    with pytest.raises(lw.UsageError, match="belong to transactions"):
        lw.convert(source, out, magic=1)
    markers = lw.read(source, view="log", filter="is_control == true").num_rows
    done = lw.convert(source, out, magic=1, view="log")
    assert f"left out: {markers} rows are control records, which brokers write" in done["notes"]
    assert any("producer id" in note for note in done["notes"])
    assert lw.diff(source, out, columns=["offset", "key", "value"]).equal


def test_zstd_needs_magic_2(tmp_path: Path) -> None:
    source, out = log_of("v2_zstd_java"), tmp_path / "00000000000000000000.log"
    with pytest.raises(lw.UsageError, match="magic 1 has no compression zstd"):
        lw.convert(source, out, magic=1)
    assert not out.exists()
    lw.convert(source, out, magic=1, compression_type="lz4")
    assert lw.diff(source, out, columns=["key", "value", "offset", "timestamp"]).equal


@pytest.mark.parametrize("name", ["v0_none", "v0_gzip", "v1_lz4", "mixed_v0_v1_v2", "v1_append_time_gzip"])
def test_older_messages_become_batches(tmp_path: Path, name: str) -> None:
    source, out = log_of(name), tmp_path / "00000000000000000000.log"
    lw.convert(source, out, magic=2)
    before, after = rows(source), rows(out)
    assert [row["magic"] for row in after] == [2] * len(after)
    # Without a timestamp, as a broker does: -1, of the type CreateTime.
    for row in before:
        row["timestampType"] = max(row["timestampType"], 0)
        row["magic"] = 2
    assert before == after


@pytest.mark.parametrize(("name", "value"), [("magic", 3), ("compression", "brotli")])
def test_unknown_magic_or_compression_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(lw.UsageError, match=f"column '{name}' has {value!r}"):
        lw.write([{"key": b"k", name: value}], tmp_path / "t-0", "kafka.partition")


@pytest.mark.parametrize(
    "name", ["v0_gzip", "v0_lz4", "v1_snappy", "v1_rolled", "mixed_v0_v1_v2", "v1_append_time_gzip"]
)
def test_a_wrapper_without_compression_becomes_its_messages(tmp_path: Path, name: str) -> None:
    source = KAFKA[name].partition
    out = tmp_path / source.name
    lw.convert(source, out, compression_type="uncompressed")
    assert rows(out) == [{**row, "compression": "none"} for row in rows(source)]
    batches = lw.read(out, view="batches", columns=["magic", "records_count"]).to_pylist()
    assert {batch["records_count"] for batch in batches if batch["magic"] < 2} == {1}
    assert lw.verify(out).ok


def test_messages_with_timestamps_in_a_wrapper_of_magic_0_keep_them_without_it(tmp_path: Path) -> None:
    source = KAFKA["craft_v0_inner_magic1"].partition
    lw.convert(source, tmp_path / source.name, compression_type="uncompressed")
    columns = ["key", "value", "offset", "timestamp"]
    assert lw.diff(source, tmp_path / source.name, columns=columns).equal
