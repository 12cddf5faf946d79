"""Rare inputs of `diff`: other kinds of files, empty sides, unreadable sectors, and items that only one frame has."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import logwright as lw
from logwright.codec.fault import UnreadableError
from logwright.codec.frames.walk import Stretch
from logwright.codec.window import Frames, Window
from logwright.readers import diff as diffing
from logwright.readers import diff_fields, diff_frames, diff_rows
from logwright.readers.difference import Difference, plain, show
from logwright.readers.resolve import resolve
from logwright.readers.source import MemorySource


def log(path: Path, rows: dict[str, list[Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lw.write(pa.table(rows), path, "leveldb.log")
    return path


def partition(path: Path, values: list[bytes], **options: Any) -> Path:
    lw.write(
        pa.table({"value": values, "timestamp": pa.array(range(len(values)), pa.int64())}),
        path,
        "kafka.partition",
        **options,
    )
    return path


def backwards(tmp_path: Path) -> tuple[Path, Path]:
    """Logs with descending sequences that differ in one of them."""
    keys = [b"a", b"b", b"c", b"d"]
    a = log(tmp_path / "a" / "000003.log", {"key": keys, "value": keys, "sequence": [9, 5, 7, 3]})
    b = log(tmp_path / "b" / "000003.log", {"key": keys, "value": keys, "sequence": [9, 6, 7, 3]})
    return a, b


def test_unsorted_file_is_sorted_and_keeps_row_numbers(tmp_path: Path) -> None:
    difference = lw.diff(*backwards(tmp_path))
    assert difference.key == ("sequence",)
    assert difference.notes == []
    assert {key: difference.counts[key] for key in ("a", "b", "same", "changed", "removed", "added")} == {
        "a": 4, "b": 4, "same": 3, "changed": 0, "removed": 1, "added": 1,
    }  # fmt: skip
    removed, added = difference.differences
    assert (removed["id"], removed["a"]["number"]) == ({"sequence": 5}, 1)
    assert (added["id"], added["b"]["number"]) == ({"sequence": 6}, 1)
    assert removed["a"]["offset"] == added["b"]["offset"] > 0


def test_input_too_large_to_sort_is_matched_by_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff_rows, "_IN_MEMORY", 16)
    a, b = backwards(tmp_path)
    difference = lw.diff(a, b)
    assert difference.counts["changed"] == 1
    assert difference.key == ()
    assert any("matched row by row" in note for note in difference.notes)
    with pytest.raises(lw.UsageError, match="not sorted by sequence"):
        lw.diff(a, b, key="sequence")


def test_empty_side_against_rows(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", [])
    b = partition(tmp_path / "b" / "orders-0", [b"x"])
    assert lw.diff(a, a).equal
    assert lw.diff(a, b).counts["added"] == 1
    assert lw.diff(a, b, by="frames").counts["added"] >= 1
    assert lw.diff(a, b, by="files").text()
    assert lw.diff(a, b, view="files").text()


def test_single_frame_files_are_compared(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", [b"x"])
    b = partition(tmp_path / "b" / "orders-0", [b"x"])
    for name in ("partition.metadata",):
        difference = lw.diff(a / name, b / name)
        assert difference.counts["changed"] == 1
        assert difference.first is not None
        assert "topic_id" in difference.columns


def test_database_files_are_compared_one_by_one(tmp_path: Path) -> None:
    rows = pa.table({"key": [b"a", b"b"], "value": [b"1", b"2"], "sequence": [1, 2]})
    lw.write(rows, tmp_path / "a", "leveldb.db")
    lw.write(rows, tmp_path / "b", "leveldb.db", write_as="logs")
    assert lw.diff(tmp_path / "a", tmp_path / "b", view="rows", columns="key,value,sequence").equal


def test_table_file_without_the_key_is_matched_by_position(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", [b"x", b"y"])
    lw.convert(a, tmp_path / "x.parquet", columns="value")
    difference = lw.diff(a, tmp_path / "x.parquet")
    assert difference.equal
    assert difference.key == ()


def test_unreadable_sector_is_reported_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = partition(tmp_path / "a" / "orders-0", [b"x", b"y"])
    b = shutil.copytree(a, tmp_path / "b" / "orders-0")

    def broken(*_: Any) -> Any:
        raise UnreadableError.of(0, 1, "EIO", "x")

    for module in (diffing, diff_rows):
        monkeypatch.setattr(module, "same_bytes", broken)
    assert lw.diff(a, b).equal  # All of it was read.
    with pytest.raises(lw.StorageError):
        lw.diff(a, b, by="files")


def test_different_kinds_of_store_are_refused() -> None:
    other: Any = object()
    assert not diff_rows._alike(other, other)


def test_list_item_on_one_side_only(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", [b"x", b"y", b"z"])
    b = partition(tmp_path / "b" / "orders-0", [b"x", b"y"])
    name = "00000000000000000000.log"
    difference = lw.diff(a / name, b / name, by="frames")
    assert difference.first is not None
    gone = [field for field in difference.first["fields"] if field["b"] is None]
    assert gone
    assert difference.to_dict()["first"]["fields"]
    text = Difference(
        "a", "b", "frames", differences=[{**difference.first, "fields": gone}], counts={**difference.counts}
    ).text()
    assert "b: missing" in text


def test_differences_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", [b"x%d" % n for n in range(9)])
    b = partition(tmp_path / "b" / "orders-0", [b"y%d" % n for n in range(9)], batch_size="0")
    text = lw.diff(a, b).text()
    assert "and 5 more rows" in text
    frames = lw.diff(a, b, by="frames", limit=1)
    assert len(frames.differences) == 1
    alone = partition(tmp_path / "c" / "orders-0", [b"z%d" % n for n in range(5)])
    five = partition(tmp_path / "d" / "orders-0", [b"x%d" % n for n in range(5)])
    assert "and 1 row" in lw.diff(alone, five).text()


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (None, "null"), (True, "true"), (7, "7"), (b"a\x1bb", '"a\\x1bb"'), (b"\xff", "0xff"),
        ([{"key": "h", "value": b"v"}], '[{key: "h", value: "v"}]'), ([1] * 9, "[1, 1, 1, 1, 1, 1, 1, 1, …]"),
        (b"\xff" * 100, f"0x{'ff' * 31}… (100 bytes)"),
    ],
)  # fmt: skip
def test_values_are_printed_on_one_line(value: Any, want: str) -> None:
    assert show(value) == want


def test_frames_with_decreasing_offsets_are_compared_without_ids(tmp_path: Path) -> None:
    """Two logs one after the other are no log; their frames can be compared."""
    paths = []
    for name, values in (("a", [b"x", b"y"]), ("b", [b"x", b"z"])):
        log_path = partition(tmp_path / name / "orders-0", values) / "00000000000000000000.log"
        path = tmp_path / f"{name}.d" / log_path.name
        path.parent.mkdir()
        path.write_bytes(log_path.read_bytes() * 3)
        paths.append(path)
    difference = lw.diff(*paths, by="frames")
    assert (difference.counts["a"], difference.counts["changed"]) == (3, 3)


def test_files_of_many_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff_frames, "WINDOW", 64)
    values = [b"value %04d" % n for n in range(300)]
    a = partition(tmp_path / "a" / "orders-0", values, batch_size="100")
    b = partition(
        tmp_path / "b" / "orders-0", [*values[:100], b"VALUE 0100", *values[101:]], batch_size="100"
    )
    for by in ("rows", "frames", "files"):
        difference = lw.diff(a / "00000000000000000000.log", b / "00000000000000000000.log", by=by)
        assert difference.counts["changed"] == 1


def test_garbage_before_and_between_frames(tmp_path: Path) -> None:
    a = (
        partition(tmp_path / "a" / "orders-0", [b"x" * 50, b"y" * 50, b"z" * 50], batch_size="0")
        / "00000000000000000000.log"
    )
    data = a.read_bytes()
    b = tmp_path / "b" / a.name
    b.parent.mkdir()
    size = len(data) // 3
    b.write_bytes(data[:size] + b"garbage that is no batch" * 5 + data[size:])
    difference = lw.diff(a, b, by="frames", limit=50)
    assert difference.counts["added"] == 1
    assert difference.counts["same"] == 3
    assert any(difference["b"]["what"] == "damaged region" for difference in difference.differences)


def test_garbage_at_the_start(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", [b"x" * 50]) / "00000000000000000000.log"
    b = tmp_path / "b" / "orders-0" / a.name
    b.parent.mkdir(parents=True)
    b.write_bytes(b"garbage that is no batch" * 5 + a.read_bytes())
    assert lw.diff(a, b, by="frames").counts["added"] == 1
    difference = lw.diff(b, b.parent / a.name, mode="DROPMALFORMED")
    assert difference.equal
    assert lw.diff(a, b, mode="DROPMALFORMED").equal


def test_batch_without_records_counts_as_removed_rows(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", [b"x"])
    lw.edit(a, tmp_path / "b" / "orders-0", drop="offset == 0")
    assert lw.diff(a, tmp_path / "b" / "orders-0").counts["removed"] == 1
    assert lw.diff(tmp_path / "b" / "orders-0", a).counts["added"] == 1


def test_position_column_is_compared_as_data(tmp_path: Path) -> None:
    """The position in an index entry points into the log."""
    values = [b"%d" % n * 100 for n in range(200)]
    a = partition(tmp_path / "a" / "orders-0", values, index_interval_bytes=100, batch_size="0")
    b = partition(tmp_path / "b" / "orders-0", [b"", *values[1:]], index_interval_bytes=100, batch_size="0")
    name = "00000000000000000000.index"
    difference = lw.diff(a / name, b / name)
    assert "position" in difference.columns
    assert difference.first is not None
    assert "offset" not in difference.first["a"]
    assert lw.diff(a / name, b / name, by="frames").counts["changed"] == difference.counts["changed"]


def test_row_without_a_matching_field_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = partition(tmp_path / "a" / "orders-0", [b"x", b"y"])
    b = partition(tmp_path / "b" / "orders-0", [b"x", b"z"])
    monkeypatch.setattr(diff_fields, "_row", lambda side, row: None)
    first = lw.diff(a, b).first
    assert first is not None
    assert first["fields"][0]["field"].endswith(".value")
    assert "at" not in first["a"]


def test_row_number_beyond_the_rows_of_a_frame(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", [b"x", b"y"]) / "00000000000000000000.log"
    (target,) = resolve(str(a))
    file: Any = diffing._opened(target)  # type: ignore[arg-type]
    with file.source:
        span = diff_fields.Span(file, *file.frame(0))
        assert diff_fields.row_place(span, 1) is not None
        assert diff_fields.row_place(span, 2) is None


def test_decreasing_ids_on_one_side(tmp_path: Path) -> None:
    log_a = (
        partition(tmp_path / "a" / "orders-0", [b"%d" % n for n in range(6)], batch_size="0")
        / "00000000000000000000.log"
    )
    data = log_a.read_bytes()
    size = len(data) // 6
    parts = [data[n * size : (n + 1) * size] for n in range(6)]
    b = tmp_path / "b" / log_a.name
    b.parent.mkdir()
    b.write_bytes(b"".join(parts[n] for n in (0, 3, 2, 1, 4, 5)))
    difference = lw.diff(log_a, b, by="frames")
    assert difference.counts["a"] == difference.counts["b"] == 6
    assert not difference.equal


def test_frames_with_gaps_between_them() -> None:
    class Gaps:
        source = MemorySource(b"frame...frame..")
        codec: Any = type("Codec", (), {"ordered": None})()

        def walk(self) -> Any:
            window = Window(np.frombuffer(b"frame...frame..", np.uint8), 0, 15)
            starts, ends = np.array([0, 8]), np.array([5, 13])
            yield Stretch(window, Frames(starts, ends, np.zeros(2), 13), [])

    differences: Any = Gaps()
    rows = pa.Table.from_batches(
        diff_frames._stretches(differences, diff_frames.Same(0, 0, False))
    ).to_pylist()
    assert [(row["start"], row["stop"], row["kind"]) for row in rows] == [
        (0, 5, 0),
        (5, 8, 2),
        (8, 13, 0),
        (13, 15, 2),
    ]


def test_unknown_files_are_compared_by_bytes(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", [b"x"])
    (a / "note.txt").write_text("same")
    b = shutil.copytree(a, tmp_path / "b" / "orders-0")
    assert lw.diff(a, b, by="frames").equal


def test_equal_segments_after_a_changed_one_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [b"%03d" % i * 40 for i in range(60)]
    a = partition(tmp_path / "a" / "orders-0", values, segment_bytes=3000, batch_size=500)
    b = partition(
        tmp_path / "b" / "orders-0",
        [*values[:3], b"x" * 120, *values[4:]],
        segment_bytes=3000,
        batch_size=500,
    )
    assert len(list(a.glob("*.log"))) == 4
    counted: list[str] = []
    count = diff_rows._count
    monkeypatch.setattr(
        diff_rows, "_count", lambda work, mode: (counted.append(Path(work.path).name), count(work, mode))[1]
    )
    difference = lw.diff(a, b)
    assert (difference.counts["a"], difference.counts["same"], difference.counts["changed"]) == (60, 59, 1)
    assert difference.first is not None
    assert difference.first["id"] == {"offset": 3}
    # Equal files are not compared row by row, nor is the common start of the first one.
    assert counted == [f"{offset:020}.log" for offset in (54, 36, 18, 0)]


def database(path: Path, values: list[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = [b"k%03d" % i for i in range(len(values))]
    lw.write(
        pa.table({"key": keys, "value": values}),
        path,
        "leveldb.db",
        max_file_size=2000,
        block_size=500,
        compression="none",
    )
    return path


@pytest.mark.parametrize("view", ["live", "history"])
def test_table_of_a_row_is_named(tmp_path: Path, view: str) -> None:
    values = [b"%03d" % i * 40 for i in range(60)]
    a = database(tmp_path / "a" / "db", values)
    b = database(tmp_path / "b" / "db", [*values[:40], b"x" * 120, *values[41:]])
    assert len(list(a.glob("*.ldb"))) == 4
    difference = lw.diff(a, b, view=view)
    assert (difference.counts["a"], difference.counts["same"], difference.counts["changed"]) == (60, 59, 1)
    assert difference.first is not None
    assert difference.first["columns"] == {"value": [values[40], b"x" * 120]}
    assert difference.first["a"]["file"] == difference.first["b"]["file"] == "000004.ldb"
    assert difference.first["fields"][0]["field"] == "contents.entries[0].value"
    rows = lw.read(a / "000004.ldb")["key"].to_pylist()
    assert b"k040" in rows


def test_rows_of_one_frame(tmp_path: Path) -> None:
    path = partition(tmp_path / "a" / "orders-0", [b"x", b"y", b"z"], batch_size="0")
    (target,) = resolve(str(path / "00000000000000000000.log"))
    file: Any = diffing._opened(target)  # type: ignore[arg-type]
    with file.source:
        _, stop = file.frame(0)
        assert list(file.rows(stop, "rows", ["offset", "value"])) == [{"offset": 1, "value": b"y"}]


def test_row_missing_from_decompressed_bytes(tmp_path: Path) -> None:
    path = partition(tmp_path / "a" / "orders-0", [b"x" * 50] * 3, compression_type="zstd")
    (target,) = resolve(str(path / "00000000000000000000.log"))
    file: Any = diffing._opened(target)  # type: ignore[arg-type]
    with file.source:
        span = diff_fields.Span(file, *file.frame(0))
        assert str(diff_fields.row_place(span, 2)).startswith("@")
        assert diff_fields.row_place(span, 3) is None


def test_times_beyond_the_calendar(tmp_path: Path) -> None:
    def times(path: Path, *milliseconds: int) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = {"value": [b"v"] * len(milliseconds), "timestamp": pa.array(milliseconds, pa.int64())}
        lw.write(pa.table(rows), path, "kafka.partition")
        return path

    a = times(tmp_path / "a" / "orders-0", 1, 5, 1 << 60)
    b = times(tmp_path / "b" / "orders-0", 1, 1 << 59, 1 << 60)
    difference = lw.diff(a, b)
    assert difference.to_dict()["differences"][0]["columns"] == {"timestamp": [5, 1 << 59]}
    assert "      a: 1970-01-01 00:00:00.005 UTC\n      b: 576460752303423488 ms\n" in difference.text()
    assert difference.first is not None
    assert difference.first["fields"][0]["field"] == "records[1].timestamp_delta"
    matched = lw.diff(a, b, key="timestamp")
    assert (matched.counts["removed"], matched.counts["added"], matched.counts["changed"]) == (1, 1, 0)
    assert matched.first is not None
    assert plain(matched.first["id"]) == {"timestamp": 5}


def test_values_without_a_json_form(tmp_path: Path) -> None:
    for name, day in (("a", datetime.date(2024, 1, 1)), ("b", datetime.date(2024, 1, 2))):
        pq.write_table(pa.table({"day": [day], "n": [1.5]}), tmp_path / f"{name}.parquet")
    difference = lw.diff(tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert json.loads(json.dumps(difference.to_dict()))["differences"][0]["columns"] == {
        "day": ["2024-01-01", "2024-01-02"]
    }


def test_compressed_snapshots_are_compared_by_rows(tmp_path: Path) -> None:
    nodes = [{"path": f"/node-{n}", "data": b"x"} for n in range(9)]
    for folder, rows in (("a", nodes), ("b", [*nodes[:-1], {"path": "/node-8", "data": b"y"}])):
        (tmp_path / folder).mkdir()
        lw.write(rows, str(tmp_path / folder / "snapshot.5.gz"), "zookeeper.snapshot")
    comparison = lw.diff(str(tmp_path / "a" / "snapshot.5.gz"), str(tmp_path / "b" / "snapshot.5.gz"))
    (difference,) = comparison.differences
    assert difference["columns"] == {"data": [b"x", b"y"]}
