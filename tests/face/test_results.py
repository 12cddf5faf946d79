"""Results of the functions are plain values: they can be pickled and copied, and are exported."""

from __future__ import annotations

import copy
import pickle
import traceback
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright import api
from logwright.codec import registry


@pytest.mark.parametrize(
    "layout", [layout.name for layout in registry.layouts() if layout.name != "kafka.logdir"]
)
def test_reports_of_damage_can_be_pickled_and_copied(layout: str, tmp_path: Path) -> None:
    original = tmp_path / "orders-0"
    lw.generate(layout, original, rows=20, seed=1)
    for file in sorted(original.rglob("*")):
        if file.is_file() and file.stat().st_size > 8:
            with file.open("r+b") as stream:
                stream.seek(min(file.stat().st_size // 2, 600))
                stream.write(b"damaged")
    report = lw.verify(original)
    assert not report.ok
    for twin in (pickle.loads(pickle.dumps(report)), copy.deepcopy(report)):
        assert twin.to_dict() == report.to_dict()
        assert twin.text() == report.text()


def test_types_of_results_are_exported() -> None:
    for name in ("edit", "explain", "generate", "rebuild", "repair", "verify", "write"):
        result = typing.get_type_hints(
            getattr(api, name), vars(lw) | vars(api) | {each: getattr(lw, each) for each in lw.__all__}
        )["return"]
        assert getattr(lw, result.__name__) is result


def test_part_of_a_store_is_named(tmp_path: Path) -> None:
    lw.write(
        [{"topic": "orders", "body": "x"}],
        tmp_path / "store",
        "rocketmq.store",
        mappedFileSizeCommitLog=4096,
        maxHashSlotNum=4,
        maxIndexNum=8,
    )
    for folder in ("commitlog", "consumequeue/orders/0"):
        with pytest.raises(
            lw.UsageError, match=rf"It is part of {tmp_path}/store, a rocketmq\.store: pass that directory"
        ):
            lw.read(tmp_path / "store" / folder)


@pytest.mark.parametrize(
    ("magic", "program"), [(b"\x1f\x8b\x08", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"PK\x03\x04", "zip")]
)
def test_packed_file_is_named(magic: bytes, program: str, tmp_path: Path) -> None:
    (tmp_path / "backup").write_bytes(magic + bytes(100))
    with pytest.raises(lw.UsageError, match=f"It looks like a {program} file: unpack it first"):
        lw.verify(tmp_path / "backup")


def test_ignored_columns_are_named(tmp_path: Path) -> None:
    """Not those of readers, which start with an underscore."""
    rows = [{"topic": "orders", "payload": "x", "_path": "a"}]
    options = {"mappedFileSizeCommitLog": 4096, "maxHashSlotNum": 4, "maxIndexNum": 8}
    written = lw.write(rows, tmp_path / "store", "rocketmq.store", **options)
    assert written.warnings == ("ignored the unknown column 'payload'",)


@pytest.mark.alike
@pytest.mark.parametrize(
    ("codec", "row", "name"),
    [
        ("kafka.partition", {"value": "x"}, "timestamp"),
        ("rocketmq.store", {"topic": "orders", "body": "x"}, "born_timestamp"),
        ("zookeeper.datadir", {"path": "/a", "data": "x"}, "mtime"),
    ],
)
@pytest.mark.parametrize("unit", ["us", "ns"])
def test_times_are_truncated_to_milliseconds(
    codec: str, row: dict[str, str], name: str, unit: str, tmp_path: Path
) -> None:
    """Spark has microseconds, pandas nanoseconds."""
    time = 1_700_000_000_123_999 * (1000 if unit == "ns" else 1)
    data = pa.table(
        {
            **{column: [value] for column, value in row.items()},
            name: pa.array([time], pa.timestamp(unit, "UTC")),
        }
    )
    lw.write(data, tmp_path / "orders-0", codec)
    times = lw.read(tmp_path / "orders-0", columns=[name])[name].cast(pa.int64()).to_pylist()
    assert 1_700_000_000_123 in times


@pytest.mark.parametrize(
    ("codec", "row", "name"),
    [
        ("kafka.partition", {"value": "x"}, "headers"),
        ("rocketmq.store", {"topic": "orders", "body": "x"}, "properties"),
    ],
)
def test_pairs_may_be_a_dict(codec: str, row: dict[str, str], name: str, tmp_path: Path) -> None:
    lw.write([{**row, name: {"a": "1", "b": "2"}}], tmp_path / "orders-0", codec)
    (stored,) = lw.read(tmp_path / "orders-0", columns=[name])[name].to_pylist()
    assert [
        (pair["key"], pair["value"] if name == "properties" else pair["value"].decode()) for pair in stored
    ] == [
        ("a", "1"),
        ("b", "2"),
    ]


def test_edit_that_drops_all_rows_names_no_offsets(tmp_path: Path) -> None:
    lw.write([{"value": "x"}] * 3, tmp_path / "orders-0", "kafka.partition")
    text = lw.edit(tmp_path / "orders-0", tmp_path / "out", drop="offset >= 0").text()
    assert "kept: 0 records\n" in text


def test_damage_without_damaged_bytes_counts_none(tmp_path: Path) -> None:
    partition = tmp_path / "orders-0"
    lw.write([{"value": "x" * 90}] * 9, partition, "kafka.partition", segment_bytes=300, batch_size=100)
    for log in sorted(partition.glob("*.log"))[1::2]:
        log.unlink()
    report = lw.verify(partition)
    assert len([fault for _, fault in report.faults if fault.severity == "error"]) > 1
    assert "0 bytes of" not in report.text()


def test_traceback_of_a_user_error_has_no_frames_of_this_package(tmp_path: Path) -> None:
    gone, broken = tmp_path / "gone", tmp_path / "00000000000000000000.log"
    lw.generate("kafka.log", broken, rows=3)
    lw.damage(broken, tmp_path / "out", "zero:at=70,length=5")
    calls: list[Callable[[], object]] = [
        lambda: lw.read(gone),
        lambda: lw.read(tmp_path / "out" / broken.name),
        lambda: list(lw.scan(tmp_path / "out" / broken.name)),
        lambda: lw.verify(gone),
        lambda: lw.detect(gone),
        lambda: lw.codecs("kafka.lg"),
        lambda: lw.repair(gone, tmp_path / "repaired"),
        lambda: lw.diff(gone, broken),
        lambda: lw.write([{"key": "a"}], broken, "kafka.log"),
    ]
    for call in calls:
        with pytest.raises(lw.LogwrightError) as caught:
            call()
        frames = traceback.extract_tb(caught.value.__traceback__)
        ours = [frame for frame in frames if frame.filename != __file__]
        assert [frame.line for frame in ours] == ["raise _short(error) from None"] * len(ours)
        assert caught.value.__suppress_context__


def test_warning_about_damage_names_the_line_of_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    lw.generate("kafka.log", path, rows=3)
    lw.damage(path, tmp_path / "out", "zero:at=70,length=5")
    with pytest.warns(lw.DamageWarning) as caught:
        lw.read(tmp_path / "out" / path.name, mode="DROPMALFORMED")
    assert caught[0].filename == __file__


def test_result_of_a_write_is_printed_on_several_lines(tmp_path: Path) -> None:
    lines = str(lw.write([{"key": "a"}, {"key": "b"}], tmp_path / "w-0", "kafka.partition")).splitlines()
    assert lines[0].startswith(f"{tmp_path / 'w-0'}: 2 rows, 6 files, ")
    assert lines[1:3] == ["  first_offset: 0", "  last_offset: 1"]
    assert lines[3].startswith("  before you start the system: ")


@pytest.mark.parametrize(
    ("layout", "column", "rows"),
    [
        ("kafka.partition", "offset", {"value": ["v"]}),
        ("leveldb.db", "sequence", {"key": ["k"], "value": ["v"]}),
        ("zookeeper.datadir", "version", {"path": ["/a"], "data": ["d"]}),
        ("rocketmq.store", "queue_id", {"topic": ["T"], "body": ["b"]}),
        ("bookkeeper.bookie", "entry_id", {"ledger_id": [1], "payload": ["p"]}),
    ],
)
def test_text_booleans_and_fractions_are_no_numbers(
    layout: str, column: str, rows: dict[str, Any], tmp_path: Path
) -> None:
    """Not even text of digits, in any system, and numbers are no text."""
    for values in (pa.array(["3"]), pa.array([True]), pa.array([3.0])):
        with pytest.raises(lw.UsageError, match=f"column '{column}' has type {values.type}, expected int"):
            lw.write(pa.table(rows | {column: values}), tmp_path / "w-0", layout)
    name = list(rows)[-1]
    with pytest.raises(lw.UsageError, match=f"column '{name}' has type int64, expected bytes or text"):
        lw.write(pa.table(rows | {name: [1], column: [0]}), tmp_path / "w-0", layout)
    assert not (tmp_path / "w-0").exists()
    lw.write(pa.table(rows | {column: pa.array([1], pa.int16())}), tmp_path / "w-0", layout)


@pytest.mark.parametrize(
    ("layout", "column", "values"),
    [
        ("kafka.partition", "timestamp", pa.array([1 << 60], pa.timestamp("s"))),
        ("kafka.partition", "timestampType", pa.array(["x"])),
        ("kafka.partition", "topic", pa.array([[1]])),
        ("leveldb.db", "type", pa.array([b"\xff"])),
        ("rocketmq.store", "queue_id", pa.array(["x"])),
        ("bookkeeper.journal", "digest_type", pa.array([[1]])),
    ],
)
def test_column_of_another_type_is_named(layout: str, column: str, values: pa.Array, tmp_path: Path) -> None:
    row = {"topic": ["T"], "queue_id": [0], "body": [b""]} if layout == "rocketmq.store" else {"key": [b"k"]}
    row = {"ledger_id": [1], "entry_id": [1]} if layout == "bookkeeper.journal" else row
    with pytest.raises(lw.UsageError, match=f"column '{column}' has type "):
        lw.write(pa.table(row | {column: values}), tmp_path / "w-0", layout)
    assert not (tmp_path / "w-0").exists()
