"""`diff` reports the difference between files or directories, down to the byte."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import logwright as lw
from logwright.cli import main
from logwright.corpora.cases import cases
from logwright.readers import diff_frames
from logwright.readers.explain import address

KAFKA = cases("kafka")
ROWS = 3000


def table(count: int = ROWS) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([b"user-%04d" % n for n in range(count)], pa.binary()),
            "value": pa.array([b"value %d" % n for n in range(count)], pa.binary()),
            "timestamp": pa.array(range(count), pa.timestamp("ms", "UTC")),
            "offset": pa.array(range(count), pa.int64()),
        }
    )


def changed(rows: pa.Table, at: int, value: bytes | None) -> pa.Table:
    values = rows.column("value").to_pylist()
    values[at] = value
    return rows.set_column(1, "value", pa.array(values, pa.binary()))


def without(rows: pa.Table, at: int) -> pa.Table:
    return pa.concat_tables([rows.slice(0, at), rows.slice(at + 1)])


def partition(path: Path, rows: pa.Table, **options: Any) -> Path:
    options.setdefault("topic_id", "q83vASNFZ4mrze8BI0VniQ")
    lw.write(rows, path, "kafka.partition", **options)
    return path


def database(path: Path, rows: pa.Table, **options: Any) -> Path:
    lw.write(rows.select(["key", "value"]), path, "leveldb.db", **options)
    return path


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def bytes_at(path: str, place: str, length: int) -> bytes:
    """Return bytes of a file, or of a decompressed block in it."""
    if "@" not in place:
        with open(path, "rb") as file:
            file.seek(int(place))
            return file.read(length)
    explanation = lw.explain(path, at=place)
    outer, inner = address(place)
    node = next(
        node
        for piece in explanation.pieces
        for top in piece.nodes
        for node in top.walk()
        if node.space and node.space.start == outer
    )
    assert node.space is not None
    return node.space.data[inner : inner + length]


# Rows


@pytest.mark.alike
@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("at", [0, 1234, ROWS - 1])
def test_one_changed_value_is_reported_with_its_bytes(tmp_path: Path, compression: str, at: int) -> None:
    a = partition(tmp_path / "a" / "orders-0", table(), compression_type=compression)
    b = partition(tmp_path / "b" / "orders-0", changed(table(), at, b"VALUE!"), compression_type=compression)
    difference = lw.diff(a, b)
    assert not difference.equal
    assert difference.counts == {
        "a": ROWS,
        "b": ROWS,
        "same": ROWS - 1,
        "added": 0,
        "removed": 0,
        "changed": 1,
    }
    assert difference.columns == {"value": 1}
    first = difference.first
    assert first is not None
    assert first["id"] == {"offset": at}
    assert first["columns"] == {"value": [b"value %d" % at, b"VALUE!"]}
    field = first["fields"][0]
    assert field["field"].endswith(".value")
    for side, value in (("a", b"value %d" % at), ("b", b"VALUE!")):
        assert bytes_at(first[side]["path"], field[side]["at"], field[side]["length"]) == value
    assert f"row offset={at} differs in value" in difference.text()
    assert lw.diff(a, a).equal
    assert "are equal: 3,000 rows" in str(lw.diff(a, a))


def test_rows_on_one_side_only_are_reported(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", table())
    b = partition(tmp_path / "b" / "orders-0", without(table(), 70))
    difference = lw.diff(a, b)
    assert difference.counts == {
        "a": ROWS,
        "b": ROWS - 1,
        "same": ROWS - 1,
        "added": 0,
        "removed": 1,
        "changed": 0,
    }
    assert difference.first is not None
    assert (difference.first["kind"], difference.first["id"]) == ("removed", {"offset": 70})
    assert "is only in a" in difference.text()
    back = lw.diff(b, a)
    assert back.counts["added"] == 1
    assert "is only in b" in back.text()
    assert "row at" in back.text()


def test_batch_and_segment_boundaries_are_no_difference(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", table())
    b = partition(
        tmp_path / "b" / "orders-0", table(), compression_type="lz4", batch_size="1k", segment_bytes="20k"
    )
    assert lw.diff(a, b).equal
    assert not lw.diff(a, b, by="frames").equal


def test_difference_is_reported_by_column_if_batch_boundaries_differ(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", table())
    b = partition(tmp_path / "b" / "orders-0", changed(table(), 2000, b"other"), batch_size="1k")
    first = lw.diff(a, b).first
    assert first is not None
    assert first["fields"][0]["field"].endswith(".value")
    assert first["fields"][0]["b"]["value"] == b"other"


def test_directory_name_is_compared_only_on_request(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", table())
    b = partition(tmp_path / "b" / "copies-3", table())
    difference = lw.diff(a, b)
    assert difference.equal
    assert any("topic, partition" in note for note in difference.notes)
    asked = lw.diff(a, b, columns="topic,value")
    assert asked.columns == {"topic": ROWS}


def test_limit_caps_the_listed_differences(tmp_path: Path) -> None:
    other = changed(changed(changed(table(), 5, None), 500, b""), 2500, b"x")
    a = partition(tmp_path / "a" / "orders-0", table(), segment_bytes="20k")
    b = partition(tmp_path / "b" / "orders-0", other, segment_bytes="20k")
    difference = lw.diff(a, b, limit=2)
    assert difference.counts["changed"] == 3
    assert [difference["id"]["offset"] for difference in difference.differences] == [5, 500]
    assert lw.diff(a, b, filter="offset >= 1000").counts["changed"] == 1


def test_damage_on_one_side_is_reported(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", table())
    b = shutil.copytree(a, tmp_path / "b" / "orders-0")
    log = b / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[20_000] ^= 1
    log.write_bytes(data)
    with pytest.raises(lw.DamageError):
        lw.diff(a, b)
    difference = lw.diff(a, b, mode="DROPMALFORMED")
    assert difference.counts["removed"] > 0
    assert any("fault" in note for note in difference.notes)
    fields = lw.diff(a / log.name, log, by="fields")
    assert fields.counts["changed"] == 1
    assert fields.first is not None
    assert int(fields.first["fields"][0]["a"]["first"]) == 20_000


def test_databases_are_compared_by_key(tmp_path: Path) -> None:
    a = database(tmp_path / "a", table())
    b = database(
        tmp_path / "b", without(changed(table(), 9, b"other"), 100), compression="snappy", write_as="logs"
    )
    difference = lw.diff(a, b, columns="key,value")
    assert difference.key == ("key",)
    assert (difference.counts["changed"], difference.counts["removed"], difference.counts["same"]) == (
        1,
        1,
        ROWS - 2,
    )
    assert difference.first is not None
    assert difference.first["id"] == {"key": b"user-0009"}
    assert difference.first["a"]["file"].endswith(".ldb")
    assert difference.first["b"]["file"].endswith(".log")
    assert {field["field"].rpartition(".")[2] for field in difference.first["fields"]} >= {"value"}
    same = shutil.copytree(a, tmp_path / "c")
    assert lw.diff(a, same).equal


def test_tables_and_logs_are_compared_as_single_files(tmp_path: Path) -> None:
    for name, codec in (("000005.ldb", "leveldb.table"), ("000005.log", "leveldb.log")):
        paths = []
        for folder, rows in (("a", table()), ("b", changed(table(), 1500, b"other"))):
            (tmp_path / folder).mkdir(exist_ok=True)
            path = tmp_path / folder / name
            more = rows.select(["key", "value"]).append_column("sequence", pa.array(range(1, ROWS + 1)))
            lw.write(more, path, codec)
            paths.append(path)
        for by in ("rows", "frames", "fields", "files"):
            difference = lw.diff(*paths, by=by)
            assert not difference.equal, by
            assert json.loads(json.dumps(difference.to_dict()))["first"] is not None
            assert difference.text()
        assert lw.diff(paths[0], paths[0], by="frames").equal


def test_frames_view_is_compared_as_rows(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", table())
    b = partition(tmp_path / "b" / "orders-0", changed(table(), 1234, b"other"))
    difference = lw.diff(a, b, view="frames")
    assert difference.key == ("base_offset",)
    assert difference.counts["changed"] == 1
    assert "crc" in difference.columns
    assert not lw.diff(a, b, view="files").notes


def test_user_may_choose_the_key(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", table())
    b = partition(tmp_path / "b" / "orders-0", without(table(), 0).drop_columns("offset"))
    assert lw.diff(a, b, columns="key,value").counts["changed"] == ROWS - 1
    by_key = lw.diff(a, b, columns="key,value", key="key")
    assert (by_key.counts["removed"], by_key.counts["changed"]) == (1, 0)
    assert lw.diff(a, b, columns="value", key=()).counts["changed"] == ROWS - 1
    with pytest.raises(lw.UsageError, match="to match rows by"):
        lw.diff(a, b, key="nothing")
    backwards = table().sort_by([("key", "descending")]).drop_columns("offset")
    c = partition(tmp_path / "c" / "orders-0", backwards)
    assert lw.diff(a, c, columns="key,value", key="key").equal
    first = backwards.slice(ROWS - 1)
    often = partition(tmp_path / "d" / "orders-0", pa.concat_tables([backwards, first, first]))
    with pytest.raises(lw.UsageError, match="are not sorted by key, each key once"):
        lw.diff(a, often, columns="key,value", key="key")


def test_key_with_unordered_values_is_refused(tmp_path: Path) -> None:
    rows = [{"value": b"v", "headers": [{"key": "h", "value": bytes([i])}]} for i in range(3)]
    for name, log_entries in (("a", rows), ("b", rows[::-1])):
        lw.write(log_entries, tmp_path / name / "orders-0", "kafka.partition")
    with pytest.raises(lw.UsageError, match="values of headers have no order"):
        lw.diff(tmp_path / "a" / "orders-0", tmp_path / "b" / "orders-0", key="headers")


def test_unordered_offsets_are_matched_by_position(tmp_path: Path) -> None:
    """A repeated offset has no order. The report says so and compares the rows."""
    rows = table().select(["key", "value"]).append_column("sequence", pa.array([7] * ROWS))
    for name, log_rows in (("a", rows), ("b", changed(rows, 20, b"x"))):
        lw.write(log_rows, tmp_path / name, "leveldb.db")
    difference = lw.diff(tmp_path / "a", tmp_path / "b", key=None, view="rows", columns="key,value")
    assert difference.counts["changed"] == 1


# Table files


@pytest.mark.alike
@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl"])
def test_directory_is_compared_with_a_table_file(tmp_path: Path, kind: str) -> None:
    a = partition(tmp_path / "orders-0", table())
    out = tmp_path / f"rows.{kind}"
    lw.convert(a, out)
    assert lw.diff(a, out).equal
    b = partition(tmp_path / "b" / "orders-0", changed(table(), 77, b"other"))
    difference = lw.diff(out, b)
    assert difference.counts["changed"] == 1
    assert difference.first is not None
    assert difference.first["id"] == {"offset": 77}
    assert "offset" in difference.first["b"]
    assert lw.diff(out, b, filter="offset < 50").equal


def test_table_files_are_compared(tmp_path: Path) -> None:
    a = partition(tmp_path / "orders-0", table())
    lw.convert(a, tmp_path / "a.parquet")
    lw.convert(a, tmp_path / "b.arrow")
    assert lw.diff(tmp_path / "a.parquet", tmp_path / "b.arrow").equal
    with pytest.raises(lw.UsageError, match="two table files cannot be filtered"):
        lw.diff(tmp_path / "a.parquet", tmp_path / "b.arrow", filter="offset < 5")
    lw.convert(a, tmp_path / "c.jsonl")
    with pytest.raises(lw.UsageError, match="unknown without a native file"):
        lw.diff(tmp_path / "c.jsonl", tmp_path / "c.jsonl")
    with pytest.raises(lw.UsageError, match="rows only"):
        lw.diff(a, tmp_path / "a.parquet", by="frames")
    lw.convert(a, tmp_path / "few.parquet", columns="offset,value")
    difference = lw.diff(a, tmp_path / "few.parquet")
    assert difference.equal
    assert any("not compared" in note for note in difference.notes)
    with pytest.raises(lw.UsageError, match="no column"):
        lw.diff(a, tmp_path / "few.parquet", columns="key")
    lw.convert(a, tmp_path / "other.parquet", columns="key")
    with pytest.raises(lw.UsageError, match="in common"):
        lw.diff(tmp_path / "few.parquet", tmp_path / "other.parquet")


# Frames, fields, files


def test_comparison_by_frames_fields_and_files(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", table(), segment_bytes="20k")
    b = partition(tmp_path / "b" / "orders-0", changed(table(), 1234, b"other"), segment_bytes="20k")
    (b / "more.txt").write_text("x")
    (a / "note.txt").write_text("x")
    (b / "note.txt").write_text("y")
    frames = lw.diff(a, b, by="frames")
    assert frames.counts["changed"] >= 1
    assert frames.counts["added"] == 1
    assert frames.first is not None
    assert frames.first["fields"][0]["field"].endswith(".value")
    assert {field["field"] for field in frames.first["fields"]} >= {"crc", "batch_length"}
    fields = lw.diff(a, b, by="fields")
    assert all(len(difference.get("fields", [1])) == 1 for difference in fields.differences)
    files = lw.diff(a, b, by="files")
    assert files.counts["added"] == 1
    assert {difference["id"]["file"] for difference in files.differences} >= {"more.txt", "note.txt"}
    for report in (frames, fields, files):
        assert report.text().startswith(f"{a} and {b} DIFFER")
    assert lw.diff(a / "partition.metadata", b / "partition.metadata", by="files").equal


def test_extra_batch_is_one_difference(tmp_path: Path) -> None:
    paths = []
    for name, count in (("a", ROWS), ("b", ROWS + 2000)):
        paths.append(partition(tmp_path / name / "orders-0", table(count)) / "00000000000000000000.log")
    difference = lw.diff(*paths, by="frames")
    assert difference.counts["added"] > 0
    assert difference.counts["removed"] == 0
    assert difference.text()


@pytest.mark.parametrize("few", [4096, 0])
def test_frames_without_ids_are_aligned_by_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """A short gap is aligned by equal frames, a long one is matched in order."""
    monkeypatch.setattr(diff_frames, "_FEW", few)
    entries = [(n * 10, n * 4096) for n in range(1, 60)]
    for name, log_frames in (
        ("a", entries),
        ("b", [*entries[:20], *entries[21:40], (401, 7), *entries[41:]]),
    ):
        (tmp_path / name).mkdir()
        offsets, positions = zip(*log_frames, strict=True)
        names = lw.codecs("kafka.index")[0]["tables"]["rows"]["columns"]
        columns = {
            names[0]["name"]: pa.array(offsets, pa.int64()),
            names[1]["name"]: pa.array(positions, pa.int64()),
        }
        lw.write(pa.table(columns), tmp_path / name / "00000000000000000000.index", "kafka.index")
    difference = lw.diff(*(tmp_path / name / "00000000000000000000.index" for name in "ab"), by="frames")
    if few:
        assert (difference.counts["removed"], difference.counts["changed"]) == (1, 1)
    assert difference.counts["same"] >= 38


def test_padding_and_damaged_ranges_are_compared(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", table()) / "00000000000000000000.log"
    b = tmp_path / "b" / "orders-0" / a.name
    b.parent.mkdir(parents=True)
    data = bytearray(a.read_bytes())
    data[16_400:16_420] = b"\xff" * 20  # Lengths of the second batch.
    b.write_bytes(data + bytes(500))
    difference = lw.diff(a, b, by="frames", limit=100)
    assert not difference.equal
    assert difference.text()
    reversed_difference = lw.diff(b, b, by="frames")
    assert reversed_difference.equal


def test_golden_bit_flips_are_found_at_their_byte() -> None:
    """The only difference to the undamaged case is the flipped byte."""
    tried = 0
    for name in ("dmg_flip_value", "dmg_flip_crc", "dmg_flip_attr_txn", "dmg_batch_crc"):
        case = KAFKA.get(name)
        if case is None or case.base is None:
            continue
        base = KAFKA[case.base].partition
        for path in case.partition.glob("*.log"):
            base_path = base / path.name
            if not base_path.exists() or base_path.stat().st_size != path.stat().st_size:
                continue
            a, b = (np.frombuffer(side.read_bytes(), np.uint8) for side in (base_path, path))
            where = np.flatnonzero(a != b)
            if len(where) == 1:
                difference = lw.diff(base_path, path, by="fields")
                assert difference.first is not None
                assert any(
                    int(difference["fields"][0]["a"]["first"]) == where[0]
                    for difference in difference.differences
                )
                tried += 1
    assert tried


# Files


def test_first_differing_byte_of_a_file_is_printed(tmp_path: Path) -> None:
    for name, data in (("a", b"0\n1\n0 0\n"), ("b", b"0\n1\n0 5\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "leader-epoch-checkpoint").write_bytes(data)
    a, b = (tmp_path / name / "leader-epoch-checkpoint" for name in "ab")
    difference = lw.diff(a, b, by="files")
    assert difference.text().split("\n")[2:] == [
        f"  first: file {a} differs at byte 6",
        f"    a: {a}, 8 bytes",
        f"    b: {b}, 8 bytes",
    ]


def test_files_of_different_formats_are_compared_by_bytes(tmp_path: Path) -> None:
    (tmp_path / "lastId").write_bytes(b"0\n")
    (tmp_path / "currentEpoch").write_bytes(b"0\n")
    assert lw.diff(tmp_path / "lastId", tmp_path / "currentEpoch", by="files").equal


# Keys


def test_rows_of_a_view_with_its_own_table_are_matched_by_the_key_of_that_table(tmp_path: Path) -> None:
    """Entries of a bookie are merged by ledger, but identified by ledger and entry."""
    rows = [{"ledger_id": 1, "entry_id": entry, "payload": f"entry {entry}"} for entry in range(6)]
    lw.write(rows, tmp_path / "a", "bookkeeper.bookie")
    lw.write(rows[1:], tmp_path / "b", "bookkeeper.bookie")
    difference = lw.diff(tmp_path / "a", tmp_path / "b", columns=["payload"])
    assert difference.key == ("ledger_id", "entry_id")
    assert difference.counts == {"a": 6, "b": 5, "same": 5, "added": 0, "removed": 1, "changed": 0}


# Messages


def test_incomparable_inputs_are_refused(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", table(10))
    b = database(tmp_path / "b", table(10))
    for words, match in (
        ({}, "is kafka.partition, but .* is leveldb.db: their rows cannot be compared"),
        ({"by": "frames"}, "cannot be compared by frames"),
        ({"by": "row"}, "Did you mean 'rows'"),
        ({"by": "files", "view": "rows"}, "by rows, not by files"),
        ({"mode": "AS_SYSTEM"}, "does not support mode AS_SYSTEM"),
    ):
        with pytest.raises(lw.UsageError, match=match):
            lw.diff(a, b, **words)
    with pytest.raises(lw.UsageError, match="diff compares one path with one other"):
        lw.diff(f"{tmp_path}/a/orders-0/*", a)


def test_segment_is_equal_to_its_partition(tmp_path: Path) -> None:
    a = partition(tmp_path / "a" / "orders-0", table())
    assert lw.diff(a / "00000000000000000000.log", a).equal


def test_diff_command_prints_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = partition(tmp_path / "a" / "orders-0", table())
    b = partition(tmp_path / "b" / "orders-0", changed(table(), 1234, b"\xff\x00" + b"long" * 40))
    assert run("diff", str(a), str(a)) == 0
    assert "equal" in capsys.readouterr().out
    assert run("diff", str(a), str(b)) == 3
    shown = capsys.readouterr().out
    assert "row offset=1234 differs in value" in shown
    assert "logwright explain" in shown
    assert "0xff00" in shown
    assert run("diff", str(a), str(b), "--json", "--limit", "1") == 3
    values = json.loads(capsys.readouterr().out)
    assert values["first"]["columns"]["value"][0] == "value 1234"
    assert values["counts"]["changed"] == 1
    assert run("diff", str(a), str(b), "--filter", "offset < 1000") == 0
    assert run("diff", str(a), str(tmp_path / "nothing")) == 1
    assert run("diff", str(a), str(b), "--columns", "valu") == 2


@pytest.mark.extended
def test_record_beyond_the_shown_ones_is_found(tmp_path: Path) -> None:
    """The differing record of a very large batch is found."""
    rows = table(9000)
    a = partition(tmp_path / "a" / "orders-0", rows, batch_size="10m")
    b = partition(tmp_path / "b" / "orders-0", changed(rows, 8765, b"VALUE 8765"), batch_size="10m")
    for by in ("rows", "frames"):
        first = lw.diff(a / "00000000000000000000.log", b / "00000000000000000000.log", by=by).first
        assert first is not None
        assert first["fields"][0]["field"] == "records[8765].value"


def test_frames_of_different_kinds_are_named(tmp_path: Path) -> None:
    source, out = KAFKA["v1_gzip"].partition, tmp_path / "out" / "v1_gzip-0"
    lw.convert(source, out, magic=2)
    text = str(lw.diff(source, out, by="frames"))
    assert "field Message" in text
    assert "also: RecordBatch" in text
