"""Writing databases: any rows, in any order and any chunking, in bounded memory; what is refused, and in which words."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.cli import main
from logwright.codec import registry, sorting
from logwright.codec.engine.merge import SortedRun, merge
from logwright.codec.fault import UsageError
from logwright.codec.leveldb.derive import current, snapshot
from logwright.codec.leveldb.formats.records.layout import fragmented
from logwright.codec.leveldb.formats.table.write import TableSettings
from logwright.codec.leveldb.store.descriptor import Descriptor, read_descriptor
from logwright.codec.leveldb.store.levels import most_bytes, user_key
from logwright.codec.leveldb.store.resume import logged
from logwright.codec.leveldb.store.rolling import TableWriter
from logwright.codec.leveldb.store.sorted_run import ROWS, twice
from logwright.codec.option import Options
from logwright.codec.sorting import Sorter
from logwright.codec.store.build import Piece, take
from logwright.writers.staged import StagedWrite
from logwright.writers.write import Written

LAYOUT = registry.get_layout("leveldb.db")


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    types = {"key": pa.binary(), "value": pa.binary(), "sequence": pa.int64(), "type": pa.string()}
    names = [name for name in types if any(name in row for row in rows)]
    return pa.RecordBatch.from_arrays(
        [pa.array([r.get(n) for r in rows], types[n]) for n in names], names=names
    )


def build(
    batches: Iterable[pa.RecordBatch],
    there: dict[str, bytes] | None = None,
    extra: MemoryDirectory | None = None,
    **options: Any,
) -> dict[str, bytes]:
    """The files of a database, or those that an append adds to it."""
    listing = None if there is None else MemoryDirectory(there)
    builder = LAYOUT.builder(listing, "db", Options(LAYOUT.options, options), extra=extra)

    def pieces() -> Iterator[Piece]:
        for one in batches:
            yield from builder.add(one)
        yield from builder.finish()

    return take(pieces())


def state(files: dict[str, bytes]) -> Descriptor:
    found = read_descriptor(MemoryDirectory(files))
    assert found.error is None
    return found


def content(files: dict[str, bytes], path: Path) -> dict[bytes, bytes]:
    path.mkdir(exist_ok=True)
    for name, data in files.items():
        (path / name).write_bytes(data)
    report = lw.verify(path)
    assert report.ok, report.text()
    table = lw.read(path)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def sound(files: dict[str, bytes]) -> None:
    """What LevelDB relies on: tables at levels below 0 are disjoint, numbers and the last sequence are beyond all others."""
    version = state(files).version
    # A log that was added is found by its number, and the next one is beyond it from then on.
    numbers = [
        int("".join(c for c in name if c.isdigit()) or 0) for name in files if not name.endswith(".log")
    ]
    assert (version.next_file_number or 0) > max(numbers)
    for level, tables in enumerate(version.levels):
        for one in tables:
            assert len(files[f"{one.number:06d}.ldb"]) == one.size
        if level:
            for a, b in itertools.pairwise(tables):
                assert user_key(a.largest) < user_key(b.smallest)
            assert sum(one.size for one in tables) < most_bytes(level)


KEYS = st.binary(max_size=3) | st.sampled_from([b"", b"\xff", b"\xff\xff", b"same", b"same\0", b"sam"])
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


@st.composite
def chunked(draw: st.DrawFn, rows: list[dict[str, Any]]) -> list[pa.RecordBatch]:
    """The same rows in batches, empty ones too."""
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    edges = [0, *cuts, len(rows)]
    return [batch(rows).slice(a, b - a) for a, b in itertools.pairwise(edges)]


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
    sound(expected)
    shuffled = data.draw(st.permutations(rows))
    again = build(
        data.draw(chunked(shuffled)) if rows else [],
        extra=MemoryDirectory(),
        sort_buffer_size=budget,
        **options,
    )
    assert again == expected, "neither order nor chunks nor memory change a byte"
    live = {key: value for key, value in pairs.items() if value is not None}
    assert content(expected, tmp_path_factory.mktemp("db")) == live


@given(data=st.data(), rows=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=40), logs=st.booleans())
@settings(deadline=None)
def test_a_database_is_a_dict_whatever_is_added(
    data: st.DataObject, rows: list[Any], logs: bool, tmp_path_factory: Any
) -> None:
    """In several writes, as tables or as logs; within one write the last of a key counts."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    edges = [0, *cuts, len(rows)]
    files: dict[str, bytes] = {}
    model: dict[bytes, bytes] = {}
    for a, b in itertools.pairwise(edges):
        part = [{"key": key, "value": value} for key, value in rows[a:b]]
        as_logs = logs and data.draw(st.booleans())
        made = build(
            [batch(part)] if part else [],
            files or None,
            on_duplicate="last",
            max_file_size=data.draw(st.sampled_from([1, 1000])),
            write_as="logs" if as_logs else "tables",
            batch_size=data.draw(st.sampled_from([1, 3])),
        )
        assert not set(files) & set(made) - {"CURRENT"}, "no file is written over"
        files |= made
        for key, value in rows[a:b]:
            model.pop(key, None)
            if value is not None:
                model[key] = value
    sound(files)
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
    assert build(data.draw(chunked(rows)), **options) == expected
    assert state(expected).version.last_sequence == 0
    names = sorted(name for name in expected if name.endswith(".log"))
    found = [one for name in names for one in _operations(expected[name], name)]
    assert found == [(row["key"], row["value"], n + 1) for n, row in enumerate(rows)]


def _operations(data: bytes, name: str) -> list[Any]:
    made = [one for piece in logged(MemoryDirectory({name: data}), name) for one in piece.to_pylist()]
    return [(row["key"], row["value"], row["sequence"]) for row in made]


# Runs


@given(
    lists=st.lists(st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=30), max_size=5),
    size=st.integers(1, 7),
)
@settings(deadline=None)
def test_merged_runs_are_sorted_rows(lists: list[list[tuple[bytes, int]]], size: int) -> None:
    """Of rows with one key and sequence the runs' order counts; the streams are read in pieces of any size."""
    order = {
        number: sorted(dict.fromkeys(rows), key=lambda row: (row[0], -row[1]))
        for number, rows in enumerate(lists)
    }

    def stream(number: int) -> SortedRun:
        rows = [
            {"key": key, "value": b"%d" % number, "sequence": sequence} for key, sequence in order[number]
        ]
        made = pa.RecordBatch.from_pylist(rows, ROWS)
        pieces = [made.slice(at, size) for at in range(0, len(rows), size)]
        return SortedRun(rows[0]["key"], rows[-1]["key"], lambda: iter(pieces))

    streams = [stream(number) for number in order if order[number]]
    found = [row for piece in merge(streams) for row in piece.to_pylist()]
    wanted = [(key, -sequence, number) for number, rows in order.items() for key, sequence in rows]
    assert [(r["key"], -r["sequence"], int(r["value"])) for r in found] == sorted(wanted)


def test_many_runs_are_merged_in_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "FAN_IN", 3)
    monkeypatch.setattr(sorting, "_LEAST_CHUNK", 300)
    stage = MemoryDirectory()
    sorter = Sorter(stage, 1 << 10, ROWS, twice, last=False)
    keys = [b"%05d" % (n * 7919 % 1000) for n in range(1000)]
    for at in range(0, 1000, 10):
        rows = [{"key": key, "value": b"x" * 20, "sequence": 1} for key in keys[at : at + 10]]
        sorter.add(pa.RecordBatch.from_pylist(rows, ROWS))
    found = [key for piece in sorter.ordered() for key in piece.column("key").to_pylist()]
    assert found == sorted(keys)
    assert 1 <= len(stage.files) <= 3, "what has been merged is gone"
    assert stage.appended > 100_000, "in more than one pass"


def test_nothing_in_order() -> None:
    assert list(Sorter(MemoryDirectory(), 1024, ROWS, twice, last=False).ordered()) == []


def test_what_comes_in_order_is_not_sorted_again() -> None:
    """Disjoint runs are read one after the other: of the later ones nothing is held."""
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


def test_equal_keys_are_refused_unless_one_is_said_to_count() -> None:
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


def test_versions_of_a_key_are_kept_by_their_sequence_numbers(tmp_path: Path) -> None:
    rows = [{"key": b"k", "value": b"%d" % n, "sequence": n, "type": "value"} for n in range(1, 200)]
    rows.append({"key": b"k", "value": None, "sequence": 100_000, "type": "deletion"})
    rows.append({"key": b"z", "value": b"", "sequence": 7, "type": "value"})
    files = build([batch(rows[::-1])], max_file_size=1, block_size=50)
    tables = [one for level in state(files).version.levels for one in level]
    assert [user_key(one.smallest) for one in tables] == [b"k", b"z"], "versions of a key are not parted"
    assert state(files).version.last_sequence == 100_000
    assert content(files, tmp_path / "db") == {b"z": b""}


def test_sequence_numbers_are_kept_or_assigned() -> None:
    rows = [{"key": b"a", "value": b"", "sequence": 5}, {"key": b"b", "value": b"", "sequence": 3}]
    assert state(build([batch(rows)])).version.last_sequence == 5
    assert state(build([batch(rows)], sequences="assign")).version.last_sequence == 1
    with pytest.raises(UsageError, match="there is no column 'sequence'"):
        build([batch([{"key": b"a"}])], sequences="keep")
    with pytest.raises(UsageError, match="some rows have sequence numbers and others do not"):
        build([batch(rows), batch([{"key": b"c"}])])
    there = build([batch(rows)])
    with pytest.raises(UsageError, match="row 1: sequence number 3 is not above 5"):
        build([batch([{"key": b"c", "sequence": 6}, {"key": b"d", "sequence": 3}])], there)
    added = there | build([batch([{"key": b"c", "sequence": 60}])], there)
    assert state(added).version.last_sequence == 60


def test_logs_want_rising_sequence_numbers() -> None:
    rows = [{"key": b"a", "sequence": 5}, {"key": b"b", "sequence": 9}]
    files = build([batch(rows)], write_as="logs", batch_size=10)
    assert _operations(files["000002.log"], "000002.log") == [(b"a", None, 5), (b"b", None, 9)]
    for wrong in ([rows[::-1]], [rows[1:], rows[:1]]):
        with pytest.raises(UsageError, match="row 1: sequence number 5 is not above 9, the previous one"):
            build([batch(one) for one in wrong], write_as="logs")


def test_rows_that_are_none() -> None:
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
    with pytest.raises(UsageError, match=r"type 'merge' is none of"):
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


def test_what_a_manifest_says_besides_is_kept() -> None:
    """Where the next compaction of a level starts, and where tables of level 0 lie; an empty log, or batch, holds nothing."""
    first = build([batch([{"key": b"a"}])])
    meta = state(first).version.levels[1][0]
    data = snapshot(
        [[meta]], log_number=3, next_file_number=9, last_sequence=7, compact_pointers={1: meta.largest}
    )
    there = {
        "000002.ldb": first["000002.ldb"],
        "MANIFEST-000005": data,
        "CURRENT": current(5),
        "000003.log": b"",
    }
    there["000004.log"] = fragmented((8).to_bytes(8, "little") + bytes(4), 0)
    added = build([batch([{"key": b"b"}])], there)
    found = state(there | added).version
    assert sorted(added) == ["000010.ldb", "CURRENT", "MANIFEST-000009"]
    assert (found.compact_pointers, found.last_sequence, found.log_number) == ({1: meta.largest}, 8, 9)
    assert [len(level) for level in found.levels[:2]] == [1, 1]


def test_a_writer_of_tables_without_rows_makes_none() -> None:
    assert list(TableWriter(TableSettings(), 100, lambda: 1).finish()) == []


def log_of(rows: list[dict[str, Any]], first: int, number: int) -> dict[str, bytes]:
    """A log that LevelDB left."""
    made = [{**row, "sequence": first + n} for n, row in enumerate(rows)]
    return {f"{number:06d}.log": build([batch(made)], write_as="logs", batch_size=2)["000002.log"]}


def test_what_is_in_logs_gets_under_what_is_new(tmp_path: Path) -> None:
    """LevelDB makes tables of its logs when it opens: newer files than ours, with older entries."""
    there = build([batch([{"key": b"a", "value": b"1"}, {"key": b"b", "value": b"1"}])])
    there |= log_of(
        [{"key": b"a", "value": b"2"}, {"key": b"c", "value": b"2"}, {"key": b"a", "value": b"3"}], 2, 7
    )
    added = build([batch([{"key": b"a", "value": b"4"}])], there, extra=MemoryDirectory())
    found = state(there | added).version
    assert [{one.number for one in level} for level in found.levels[:2]] == [{9, 10}, {2}]
    assert found.log_number == 8, "the log is read no more"
    assert found.last_sequence == 5
    assert content(there | added, tmp_path / "db") == {b"a": b"4", b"b": b"1", b"c": b"2"}


def test_an_append_of_nothing_changes_nothing() -> None:
    there = build([batch([{"key": b"a"}])])
    assert build([], there) == {}
    assert build([], there, write_as="logs") == {}


def test_an_append_as_a_log_is_one_file() -> None:
    there = build([batch([{"key": b"a"}])])
    assert list(build([batch([{"key": b"b"}, {"key": b"b"}])], there, write_as="logs")) == ["000003.log"]


@pytest.mark.parametrize(
    ("damage", "said"),
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
def test_nothing_is_added_to_what_is_damaged(damage: str, said: str) -> None:
    top = (1 << 56) - 1
    there = build([batch([{"key": b"a", "sequence": top if damage == "sequence" else 1}])])
    there |= log_of([{"key": b"b"}], 2, 7)
    if damage == "manifest":
        there["MANIFEST-000001"] = there["MANIFEST-000001"][:-1] + b"\xff"
    elif damage == "CURRENT":
        there["CURRENT"] = b"MANIFEST-000001"
    elif damage == "missing":
        del there["000002.ldb"]
    elif damage == "short":
        there["000002.ldb"] = there["000002.ldb"][:10]
    elif damage == "log":
        there["000007.log"] = there["000007.log"][:-1] + b"\xff"
    elif damage == "batch":
        there["000007.log"] = fragmented(
            there["000007.log"][7:15] + b"\x09\0\0\0" + there["000007.log"][19:], 0
        )
    with pytest.raises(UsageError, match=said):
        build([batch([{"key": b"z"}])], there)


def test_a_torn_log_ends_where_leveldb_ends_it(tmp_path: Path) -> None:
    there = build([batch([{"key": b"a", "value": b"1"}])])
    log = log_of(
        [{"key": b"b", "value": b"2"}, {"key": b"c", "value": b"3"}, {"key": b"d", "value": b"4"}], 2, 7
    )
    there["000007.log"] = log["000007.log"][:-3]
    added = build([batch([{"key": b"z", "value": b"5"}])], there)
    assert content(there | added, tmp_path / "db") == {b"a": b"1", b"b": b"2", b"c": b"3", b"z": b"5"}


def test_too_much_at_level_0_is_said(tmp_path: Path) -> None:
    path = tmp_path / "db"
    said = [
        lw.write([{"key": b"a", "value": b"1"}], path, "leveldb.db", mode="append").warnings for _ in range(5)
    ]
    assert [bool(one) for one in said] == [False] * 4 + [True]
    assert "level 0 now has 4 tables" in said[-1][0]


# Tasks


def by_tasks(
    path: Path, tasks: Sequence[Sequence[dict[str, Any]]], mode: str = "error", **options: Any
) -> Written:
    staged = StagedWrite(str(path), "leveldb.db", mode, options)
    try:
        messages = []
        for number, rows in enumerate(tasks):
            task = staged.task(number)
            if rows:
                task.add(batch(rows))
            messages.append(task.commit())
        return staged.commit(messages)
    finally:
        staged.abort()


def numbered(*numbers: int, value: bytes = b"v", **columns: Any) -> list[dict[str, Any]]:
    return [{"key": b"%04d" % n, "value": value, **columns} for n in numbers]


def live(path: Path) -> dict[bytes, bytes]:
    table = lw.read(path)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def tables(path: Path) -> list[tuple[int, bytes, bytes]]:
    found = state({one.name: one.read_bytes() for one in path.iterdir() if one.is_file()}).version
    return [
        (level, user_key(one.smallest), user_key(one.largest))
        for level, files in enumerate(found.levels)
        for one in files
    ]


@given(
    data=st.data(), pairs=st.dictionaries(KEYS, st.binary(max_size=20), max_size=40), count=st.integers(1, 4)
)
@settings(deadline=None, max_examples=examples(40))
def test_tasks_make_what_one_makes(
    data: st.DataObject, pairs: dict[bytes, bytes], count: int, tmp_path_factory: Any
) -> None:
    rows = [{"key": key, "value": value} for key, value in pairs.items()]
    owner = [data.draw(st.integers(0, count - 1)) for _ in rows]
    parts = [[row for row, one in zip(rows, owner, strict=True) if one == number] for number in range(count)]
    path = tmp_path_factory.mktemp("tasks") / "db"
    size = data.draw(st.sampled_from([1, 100, 1 << 20]))
    written = by_tasks(path, parts, max_file_size=size, block_size=30)
    assert written.rows == len(rows)
    files = {one.name: one.read_bytes() for one in path.iterdir()}
    sound(files)
    assert lw.verify(path).ok
    assert live(path) == pairs


def test_disjoint_tables_are_placed_and_others_merged(tmp_path: Path) -> None:
    """1 and 2 share a stretch of keys, the others share none."""
    parts = [numbered(10, 11), numbered(30, 40), numbered(35, 36), [], numbered(0, 1)]
    written = by_tasks(tmp_path / "db", parts)
    assert tables(tmp_path / "db") == [(1, b"0000", b"0001"), (1, b"0010", b"0011"), (1, b"0030", b"0040")]
    assert (written.rows, written.ids) == (8, {"first_sequence": 1, "last_sequence": 1})
    assert [one.name for one in tmp_path.iterdir()] == ["db"]


def test_large_tables_are_merged_piece_by_piece(tmp_path: Path) -> None:
    value = random.Random(1).randbytes(50_000)
    by_tasks(
        tmp_path / "db", [numbered(*range(n, 90, 3), value=value) for n in range(3)], bloom_bits_per_key=10
    )
    assert live(tmp_path / "db") == {b"%04d" % n: value for n in range(90)}
    assert len(tables(tmp_path / "db")) == 3


def test_the_last_task_counts(tmp_path: Path) -> None:
    parts = [numbered(1, 2, 3, value=b"first"), numbered(2, value=b"second"), numbered(2, 3, value=b"third")]
    with pytest.raises(UsageError, match="the key b'0002' occurs more than once"):
        by_tasks(tmp_path / "db", parts)
    assert not (tmp_path / "db").exists()
    assert by_tasks(tmp_path / "db", parts, on_duplicate="last").rows == 3
    assert live(tmp_path / "db") == {b"0001": b"first", b"0002": b"third", b"0003": b"third"}


def test_tasks_add_to_a_database(tmp_path: Path) -> None:
    path = tmp_path / "db"
    by_tasks(path, [numbered(*range(0, 100, 2))])
    by_tasks(path, [numbered(101, 102), numbered(200)], "append")
    assert [level for level, *_ in tables(path)] == [1, 1, 1], "behind all keys that are there"
    by_tasks(path, [numbered(1, value=b"new"), numbered(4, value=b"new")], "append")
    assert [level for level, *_ in tables(path)] == [0, 0, 1, 1, 1]
    written = by_tasks(path, [numbered(6, value=b"newer"), numbered(8, value=b"newer"), []], "append")
    assert tables(path)[:3] == [(0, b"0001", b"0001"), (0, b"0004", b"0004"), (0, b"0006", b"0008")], (
        "few at level 0"
    )
    assert written.ids == {"first_sequence": 4, "last_sequence": 4}
    found = live(path)
    assert (found[b"0001"], found[b"0004"], found[b"0006"], found[b"0010"]) == (
        b"new",
        b"new",
        b"newer",
        b"v",
    )
    assert by_tasks(path, [[]], "append").rows == 0


def test_what_tasks_can_not_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="logs are written by a single writer"):
        by_tasks(tmp_path / "db", [numbered(1)], write_as="logs")
    with pytest.raises(UsageError, match="some rows have sequence numbers and others do not"):
        by_tasks(tmp_path / "db", [numbered(1), numbered(2, sequence=4)])
    assert list(tmp_path.iterdir()) == []


def test_a_staged_table_that_has_changed_is_not_placed(tmp_path: Path) -> None:
    staged = StagedWrite(str(tmp_path / "db"), "leveldb.db", "error", {"compression": "none"})
    messages = []
    for number in range(2):
        task = staged.task(number)
        task.add(batch(numbered(number, number + 5)))
        messages.append(task.commit())
    (one, _) = sorted(tmp_path.glob(".*/**/*.ldb"))
    data = bytearray(one.read_bytes())
    data[5] ^= 1
    one.write_bytes(data)
    with pytest.raises(lw.LogwrightError, match="a staged table differs from what its task wrote"):
        staged.commit(messages)
    assert list(tmp_path.iterdir()) == []


# As people call it


def test_to_a_table_file_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Live rows, or every version of every key."""
    lw.write(batch(numbered(*range(300))), tmp_path / "db", "leveldb.db", max_file_size=500)
    lw.write(
        batch([{"key": b"0007"}, {"key": b"0008", "value": b"new"}]),
        tmp_path / "db",
        "leveldb.db",
        mode="append",
    )
    for view, rows in (("live", 299), ("history", 302)):
        there, back = str(tmp_path / f"{view}.parquet"), str(tmp_path / view)
        for words in (
            [str(tmp_path / "db"), there, "--view", view],
            [there, back, "--codec", "leveldb.db", "--compression", "none"],
        ):
            with pytest.raises(SystemExit) as ended:
                main(["convert", *words])
            assert not ended.value.code
        assert f"{rows} rows in {back}, 3 files" in capsys.readouterr().err
        assert live(tmp_path / view) == live(tmp_path / "db")
        assert lw.read(tmp_path / view, view="history").num_rows == rows


def test_what_is_held_in_memory_is_bounded() -> None:
    """Of 30 MB there is never more than a few times the buffer."""
    stage = MemoryDirectory()
    sorter = Sorter(stage, 1 << 20, ROWS, twice, last=False)
    before = pa.total_allocated_bytes()
    numbers = list(range(30_000))
    random.Random(1).shuffle(numbers)
    for at in range(0, len(numbers), 100):
        rows = [{"key": b"%06d" % n, "value": bytes(1000), "sequence": 1} for n in numbers[at : at + 100]]
        sorter.add(pa.RecordBatch.from_pylist(rows, ROWS))
        assert pa.total_allocated_bytes() - before < 8 << 20
    found = 0
    for piece in sorter.ordered():
        found += piece.num_rows
        assert pa.total_allocated_bytes() - before < 8 << 20
    assert found == 30_000
