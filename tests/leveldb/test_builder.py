"""Writing databases: any rows in any order and chunking, in bounded memory; and refused input with its messages."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leveldb_build import KEYS, batch, check_levels, live_rows, numbered_rows, read_state
from memory_directory import MemoryDirectory
from pieces import take
from row_batches import chunked

import logwright as lw
from logwright.cli import main
from logwright.codec import registry, sorting
from logwright.codec.engine.merge import SortedRun, merge
from logwright.codec.fault import UsageError
from logwright.codec.leveldb.derive import current, snapshot
from logwright.codec.leveldb.formats.records.layout import fragmented
from logwright.codec.leveldb.formats.table.write import TableSettings
from logwright.codec.leveldb.store.levels import user_key
from logwright.codec.leveldb.store.resume import log_rows
from logwright.codec.leveldb.store.rolling import TableWriter
from logwright.codec.leveldb.store.sorted_run import ROWS, twice
from logwright.codec.option import Options
from logwright.codec.sorting import Sorter
from logwright.codec.store.build import Piece
from logwright.writers.staged import StagedWrite

LAYOUT = registry.get_layout("leveldb.db")


def build(
    batches: Iterable[pa.RecordBatch],
    initial: dict[str, bytes] | None = None,
    extra: MemoryDirectory | None = None,
    **options: Any,
) -> dict[str, bytes]:
    """Return the files of a database, or those that an append adds to it."""
    listing = None if initial is None else MemoryDirectory(initial)
    builder = LAYOUT.builder(listing, "db", Options(LAYOUT.options, options), extra=extra)

    def pieces() -> Iterator[Piece]:
        for rows in batches:
            yield from builder.add(rows)
        yield from builder.finish()

    return take(pieces())


def content(files: dict[str, bytes], path: Path) -> dict[bytes, bytes]:
    path.mkdir(exist_ok=True)
    for name, data in files.items():
        (path / name).write_bytes(data)
    report = lw.verify(path)
    assert report.ok, report.text()
    table = lw.read(path)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


VALUES = st.none() | st.binary(max_size=40)


OPTIONS = st.fixed_dictionaries(
    {
        "max_file_size": st.sampled_from([1, 60, 300, 1 << 21]),
        "block_size": st.sampled_from([1, 50, 4096]),
        "block_restart_interval": st.integers(1, 4),
        "bloom_bits_per_key": st.sampled_from([0, 10]),
        "compression": st.sampled_from(["none", "snappy", "zstd"]),
    }
)


@given(
    data=st.data(),
    pairs=st.dictionaries(KEYS, VALUES, max_size=60),
    options=OPTIONS,
    budget=st.integers(1 << 10, 1 << 12),
)
@settings(deadline=None)
def test_any_rows_in_any_chunks(
    data: st.DataObject, pairs: dict[bytes, Any], options: dict[str, Any], budget: int, tmp_path_factory: Any
) -> None:
    rows = [{"key": key, "value": value} for key, value in pairs.items()]
    expected = build([batch(rows)] if rows else [], **options)
    check_levels(expected)
    shuffled = data.draw(st.permutations(rows))
    appended = build(
        data.draw(chunked(batch(shuffled))) if rows else [],
        extra=MemoryDirectory(),
        sort_buffer_size=budget,
        **options,
    )
    assert appended == expected, "neither order nor chunks nor memory change a byte"
    live_rows = {key: value for key, value in pairs.items() if value is not None}
    assert content(expected, tmp_path_factory.mktemp("db")) == live_rows


@given(data=st.data(), rows=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=40), logs=st.booleans())
@settings(deadline=None)
def test_database_equals_a_dict_after_any_writes(
    data: st.DataObject, rows: list[Any], logs: bool, tmp_path_factory: Any
) -> None:
    """In several writes, as tables or as logs; within one write the last value of a key counts."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    edges = [0, *cuts, len(rows)]
    files: dict[str, bytes] = {}
    model: dict[bytes, bytes] = {}
    for a, b in itertools.pairwise(edges):
        part = [{"key": key, "value": value} for key, value in rows[a:b]]
        as_logs = logs and data.draw(st.booleans())
        written = build(
            [batch(part)] if part else [],
            files or None,
            on_duplicate="last",
            max_file_size=data.draw(st.sampled_from([1, 1000])),
            write_as="logs" if as_logs else "tables",
            batch_size=data.draw(st.sampled_from([1, 3])),
        )
        assert not set(files) & set(written) - {"CURRENT"}, "no file is written over"
        files |= written
        for key, value in rows[a:b]:
            model.pop(key, None)
            if value is not None:
                model[key] = value
    check_levels(files)
    assert content(files, tmp_path_factory.mktemp("db")) == model


@given(data=st.data(), values=st.lists(VALUES, min_size=1, max_size=50), batch_size=st.integers(1, 5))
@settings(deadline=None)
def test_logs_in_any_chunks(data: st.DataObject, values: list[Any], batch_size: int) -> None:
    rows = [{"key": b"k%d" % (n % 7), "value": value} for n, value in enumerate(values)]
    options = {
        "write_as": "logs",
        "batch_size": batch_size,
        "write_buffer_size": data.draw(st.sampled_from([1, 200, 1 << 20])),
    }
    expected = build([batch(rows)], **options)
    assert build(data.draw(chunked(batch(rows))), **options) == expected
    assert read_state(expected).version.last_sequence == 0
    names = sorted(name for name in expected if name.endswith(".log"))
    read_back = [operation for name in names for operation in _operations(expected[name], name)]
    assert read_back == [(row["key"], row["value"], n + 1) for n, row in enumerate(rows)]


def _operations(data: bytes, name: str) -> list[Any]:
    operations = [row for piece in log_rows(MemoryDirectory({name: data}), name) for row in piece.to_pylist()]
    return [(row["key"], row["value"], row["sequence"]) for row in operations]


# Runs


@given(
    lists=st.lists(st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=30), max_size=5),
    size=st.integers(1, 7),
)
@settings(deadline=None)
def test_merged_runs_are_sorted_rows(lists: list[list[tuple[bytes, int]]], size: int) -> None:
    """Rows of equal key and sequence keep the order of their runs; the streams are read in pieces of any size."""
    order = {
        number: sorted(dict.fromkeys(rows), key=lambda row: (row[0], -row[1]))
        for number, rows in enumerate(lists)
    }

    def stream(number: int) -> SortedRun:
        rows = [
            {"key": key, "value": b"%d" % number, "sequence": sequence} for key, sequence in order[number]
        ]
        run = pa.RecordBatch.from_pylist(rows, ROWS)
        pieces = [run.slice(at, size) for at in range(0, len(rows), size)]
        return SortedRun(rows[0]["key"], rows[-1]["key"], lambda: iter(pieces))

    streams = [stream(number) for number in order if order[number]]
    merged = [row for piece in merge(streams) for row in piece.to_pylist()]
    expected = [(key, -sequence, number) for number, rows in order.items() for key, sequence in rows]
    assert [(r["key"], -r["sequence"], int(r["value"])) for r in merged] == sorted(expected)


def test_many_runs_are_merged_in_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "FAN_IN", 3)
    monkeypatch.setattr(sorting, "_LEAST_CHUNK", 300)
    stage = MemoryDirectory()
    sorter = Sorter(stage, 1 << 10, ROWS, twice, last=False)
    keys = [b"%05d" % (n * 7919 % 1000) for n in range(1000)]
    for at in range(0, 1000, 10):
        rows = [{"key": key, "value": b"x" * 20, "sequence": 1} for key in keys[at : at + 10]]
        sorter.add(pa.RecordBatch.from_pylist(rows, ROWS))
    merged_keys = [key for piece in sorter.ordered() for key in piece.column("key").to_pylist()]
    assert merged_keys == sorted(keys)
    assert 1 <= len(stage.files) <= 3, "what has been merged is gone"
    assert stage.appended > 100_000, "in more than one pass"


def test_sorting_no_rows_yields_nothing() -> None:
    assert list(Sorter(MemoryDirectory(), 1024, ROWS, twice, last=False).ordered()) == []


def test_ordered_input_is_not_sorted_again() -> None:
    """Disjoint runs are read one after the other, without buffering the later ones."""
    held: list[int] = []

    def stream(number: int) -> SortedRun:
        def pieces() -> Iterator[pa.RecordBatch]:
            for step in range(3):
                held.append(number)
                yield pa.RecordBatch.from_pylist(
                    [{"key": b"%d%d" % (number, step), "value": b"", "sequence": 1}], ROWS
                )

        return SortedRun(b"%d0" % number, b"%d2" % number, pieces)

    merged = merge([stream(number) for number in range(5)])
    first = next(merged)
    assert first.column("key").to_pylist() == [b"00"]
    assert set(held) == {0}
    assert sum(piece.num_rows for piece in merged) == 14


# Duplicates and numbers


def test_equal_keys_are_refused_unless_a_rule_is_given() -> None:
    rows = [{"key": b"a", "value": b"1"}, {"key": b"b", "value": b"2"}, {"key": b"a", "value": b"3"}]
    for options in ({}, {"sort_buffer_size": 1024, "extra": MemoryDirectory()}):
        with pytest.raises(
            UsageError, match="the key b'a' occurs more than once with sequence number 1"
        ) as caught:
            build([batch(rows[:2]), batch(rows[2:])], **options)
        assert "on_duplicate=last" in str(caught.value.advice)
    files = build([batch(rows)], on_duplicate="last", compression="none")
    assert b"3" in files["000002.ldb"]
    assert files == build([batch(rows[1:])], compression="none")


def test_versions_of_a_key_are_kept_by_sequence_number(tmp_path: Path) -> None:
    rows = [{"key": b"k", "value": b"%d" % n, "sequence": n, "type": "value"} for n in range(1, 200)]
    rows.append({"key": b"k", "value": None, "sequence": 100_000, "type": "deletion"})
    rows.append({"key": b"z", "value": b"", "sequence": 7, "type": "value"})
    files = build([batch(rows[::-1])], max_file_size=1, block_size=50)
    tables = [table_file for level in read_state(files).version.levels for table_file in level]
    assert [user_key(table.smallest) for table in tables] == [b"k", b"z"], "versions of a key are not parted"
    assert read_state(files).version.last_sequence == 100_000
    assert content(files, tmp_path / "db") == {b"z": b""}


def test_sequence_numbers_are_kept_or_assigned() -> None:
    rows = [{"key": b"a", "value": b"", "sequence": 5}, {"key": b"b", "value": b"", "sequence": 3}]
    assert read_state(build([batch(rows)])).version.last_sequence == 5
    assert read_state(build([batch(rows)], sequences="assign")).version.last_sequence == 1
    with pytest.raises(UsageError, match="there is no column 'sequence'"):
        build([batch([{"key": b"a"}])], sequences="keep")
    with pytest.raises(UsageError, match="some rows have sequence numbers and others do not"):
        build([batch(rows), batch([{"key": b"c"}])])
    initial = build([batch(rows)])
    with pytest.raises(UsageError, match="row 1: sequence number 3 is not above 5"):
        build([batch([{"key": b"c", "sequence": 6}, {"key": b"d", "sequence": 3}])], initial)
    added = initial | build([batch([{"key": b"c", "sequence": 60}])], initial)
    assert read_state(added).version.last_sequence == 60


def test_logs_require_increasing_sequence_numbers() -> None:
    rows = [{"key": b"a", "sequence": 5}, {"key": b"b", "sequence": 9}]
    files = build([batch(rows)], write_as="logs", batch_size=10)
    assert _operations(files["000002.log"], "000002.log") == [(b"a", None, 5), (b"b", None, 9)]
    for wrong in ([rows[::-1]], [rows[1:], rows[:1]]):
        with pytest.raises(UsageError, match="row 1: sequence number 5 is not above 9, the previous one"):
            build([batch(fault) for fault in wrong], write_as="logs")


def test_invalid_rows_are_refused() -> None:
    with pytest.raises(UsageError, match="row 1: the key is null"):
        build([batch([{"key": b"a"}]), batch([{"key": None, "value": b"x"}])])
    with pytest.raises(UsageError, match="needs a column 'key'"):
        build([batch([{"value": b"x"}])])
    with pytest.raises(UsageError, match="column 'key' has type int64"):
        build([pa.record_batch({"key": pa.array([1])})])
    for wrong in (pa.array([1 << 63], pa.uint64()), pa.array([1 << 56]), pa.array([-1])):
        with pytest.raises(UsageError, match=f"row 0: sequence {wrong[0]} does not fit 56 bits"):
            build([pa.record_batch({"key": pa.array([b"k"]), "sequence": wrong})])
    with pytest.raises(UsageError, match="a deletion that has a value"):
        build([batch([{"key": b"a", "value": b"x", "type": "deletion"}])])
    with pytest.raises(UsageError, match=r"unknown type 'merge'; expected one of"):
        build([batch([{"key": b"a", "value": b"x", "type": "merge"}])])
    with pytest.raises(UsageError, match="unknown comparator 'mine'"):
        build([], comparator="mine")
    text = pa.record_batch(
        {
            "key": pa.array(["ä"]),
            "value": pa.array([None], pa.large_string()),
            "type": pa.array([None], pa.string()),
        }
    )
    assert build([text]) == build([batch([{"key": "ä".encode()}])])


# Adding to a database


def test_other_manifest_fields_are_kept() -> None:
    """Compaction pointers and the level of tables are kept; an empty log or batch adds nothing."""
    first = build([batch([{"key": b"a"}])])
    meta = read_state(first).version.levels[1][0]
    data = snapshot(
        [[meta]], log_number=3, next_file_number=9, last_sequence=7, compact_pointers={1: meta.largest}
    )
    initial = {
        "000002.ldb": first["000002.ldb"],
        "MANIFEST-000005": data,
        "CURRENT": current(5),
        "000003.log": b"",
    }
    initial["000004.log"] = fragmented((8).to_bytes(8, "little") + bytes(4), 0)
    added = build([batch([{"key": b"b"}])], initial)
    version = read_state(initial | added).version
    assert sorted(added) == ["000010.ldb", "CURRENT", "MANIFEST-000009"]
    assert (version.compact_pointers, version.last_sequence, version.log_number) == ({1: meta.largest}, 8, 9)
    assert [len(level) for level in version.levels[:2]] == [1, 1]


def test_writer_of_tables_without_rows_writes_none() -> None:
    assert list(TableWriter(TableSettings(), 100, lambda: 1).finish()) == []


def log_of(rows: list[dict[str, Any]], first: int, number: int) -> dict[str, bytes]:
    """Return a log as LevelDB writes it."""
    log_rows = [{**row, "sequence": first + n} for n, row in enumerate(rows)]
    return {f"{number:06d}.log": build([batch(log_rows)], write_as="logs", batch_size=2)["000002.log"]}


def test_append_adopts_logs_below_the_new_rows(tmp_path: Path) -> None:
    """LevelDB converts its logs to tables when it opens: files newer than ours with older entries."""
    initial = build([batch([{"key": b"a", "value": b"1"}, {"key": b"b", "value": b"1"}])])
    initial |= log_of(
        [{"key": b"a", "value": b"2"}, {"key": b"c", "value": b"2"}, {"key": b"a", "value": b"3"}], 2, 7
    )
    added = build([batch([{"key": b"a", "value": b"4"}])], initial, extra=MemoryDirectory())
    version = read_state(initial | added).version
    assert [{table_file.number for table_file in level} for level in version.levels[:2]] == [{9, 10}, {2}]
    assert version.log_number == 8, "the log is read no more"
    assert version.last_sequence == 5
    assert content(initial | added, tmp_path / "db") == {b"a": b"4", b"b": b"1", b"c": b"2"}


def test_append_of_nothing_changes_nothing() -> None:
    initial = build([batch([{"key": b"a"}])])
    assert build([], initial) == {}
    assert build([], initial, write_as="logs") == {}


def test_append_as_a_log_is_one_file() -> None:
    initial = build([batch([{"key": b"a"}])])
    assert list(build([batch([{"key": b"b"}, {"key": b"b"}])], initial, write_as="logs")) == ["000003.log"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("manifest", "LevelDB does not open the database: Corruption: checksum mismatch"),
        ("CURRENT", "LevelDB does not open the database: Corruption: CURRENT file does not end with newline"),
        ("missing", r"000002\.ldb, a table of the database, is missing"),
        ("short", r"000002\.ldb, a table of the database, has 10 bytes, not"),
        ("log", r"000007\.log is damaged at byte 0: checksum mismatch"),
        ("batch", r"000007\.log is damaged: the batch at byte 0: WriteBatch has wrong count"),
        ("sequence", "the database has used up its sequence numbers"),
    ],
)
def test_append_to_a_damaged_database_is_refused(damage: str, message: str) -> None:
    top = (1 << 56) - 1
    initial = build([batch([{"key": b"a", "sequence": top if damage == "sequence" else 1}])])
    initial |= log_of([{"key": b"b"}], 2, 7)
    if damage == "manifest":
        initial["MANIFEST-000001"] = initial["MANIFEST-000001"][:-1] + b"\xff"
    elif damage == "CURRENT":
        initial["CURRENT"] = b"MANIFEST-000001"
    elif damage == "missing":
        del initial["000002.ldb"]
    elif damage == "short":
        initial["000002.ldb"] = initial["000002.ldb"][:10]
    elif damage == "log":
        initial["000007.log"] = initial["000007.log"][:-1] + b"\xff"
    elif damage == "batch":
        initial["000007.log"] = fragmented(
            initial["000007.log"][7:15] + b"\x09\0\0\0" + initial["000007.log"][19:], 0
        )
    with pytest.raises(UsageError, match=message):
        build([batch([{"key": b"z"}])], initial)


def test_torn_log_ends_where_leveldb_ends_it(tmp_path: Path) -> None:
    initial = build([batch([{"key": b"a", "value": b"1"}])])
    log = log_of(
        [{"key": b"b", "value": b"2"}, {"key": b"c", "value": b"3"}, {"key": b"d", "value": b"4"}], 2, 7
    )
    initial["000007.log"] = log["000007.log"][:-3]
    added = build([batch([{"key": b"z", "value": b"5"}])], initial)
    assert content(initial | added, tmp_path / "db") == {b"a": b"1", b"b": b"2", b"c": b"3", b"z": b"5"}


def test_too_many_tables_at_level_0_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "db"
    reports = [
        lw.write([{"key": b"a", "value": b"1"}], path, "leveldb.db", mode="append").warnings for _ in range(5)
    ]
    assert [bool(report) for report in reports] == [False] * 4 + [True]
    assert "level 0 now has 4 tables" in reports[-1][0]


# Public API


def test_table_file_round_trip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Live rows, or every version of every key."""
    lw.write(batch(numbered_rows(*range(300))), tmp_path / "db", "leveldb.db", max_file_size=500)
    lw.write(
        batch([{"key": b"0007"}, {"key": b"0008", "value": b"new"}]),
        tmp_path / "db",
        "leveldb.db",
        mode="append",
    )
    for view, rows in (("live", 299), ("history", 302)):
        outputs, back = str(tmp_path / f"{view}.parquet"), str(tmp_path / view)
        for words in (
            [str(tmp_path / "db"), outputs, "--view", view],
            [outputs, back, "--codec", "leveldb.db", "--compression", "none"],
        ):
            with pytest.raises(SystemExit) as ended:
                main(["convert", *words])
            assert not ended.value.code
        assert f"{rows} rows in {back}, 3 files" in capsys.readouterr().err
        assert live_rows(tmp_path / view) == live_rows(tmp_path / "db")
        assert lw.read(tmp_path / view, view="history").num_rows == rows


def test_sorting_holds_only_a_few_buffers_in_memory() -> None:
    """Of 30 MB at most a few times the buffer is in memory."""
    stage = MemoryDirectory()
    sorter = Sorter(stage, 1 << 20, ROWS, twice, last=False)
    before = pa.total_allocated_bytes()
    numbers = list(range(30_000))
    random.Random(1).shuffle(numbers)
    for at in range(0, len(numbers), 100):
        rows = [{"key": b"%06d" % n, "value": bytes(1000), "sequence": 1} for n in numbers[at : at + 100]]
        sorter.add(pa.RecordBatch.from_pylist(rows, ROWS))
        assert pa.total_allocated_bytes() - before < 8 << 20
    most_held = 0
    for piece in sorter.ordered():
        most_held += piece.num_rows
        assert pa.total_allocated_bytes() - before < 8 << 20
    assert most_held == 30_000


@pytest.mark.parametrize(
    ("row", "warned"),
    [
        ({"key": b"a"}, True),
        ({"key": b"a", "value": None}, False),
        ({"key": b"a", "type": "deletion"}, False),
    ],
)
def test_rows_without_a_value_are_written_as_deletions_with_a_warning(
    tmp_path: Path, row: dict[str, Any], warned: bool
) -> None:
    written = lw.write([row], tmp_path / "db", "leveldb.db")
    by_tasks = StagedWrite(str(tmp_path / "other"), "leveldb.db")
    task = by_tasks.task(0)
    task.add(pa.RecordBatch.from_pylist([row]))
    for warnings in (written.warnings, by_tasks.commit([task.commit()]).warnings):
        assert any("deletions" in text for text in warnings) == warned
