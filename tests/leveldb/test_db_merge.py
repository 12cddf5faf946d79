"""The merge of sorted runs and the states of unsorted entries equal a dictionary, in all kernel modes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from logwright.codec.engine import merge
from logwright.codec.engine.merge import Keys
from logwright.codec.leveldb.store import entry_states, newest
from logwright.codec.leveldb.store.entry_states import DELETED, LIVE, OVERWRITTEN, UNREFERENCED, EntryStates
from logwright.codec.leveldb.store.newest import Shape, merge_newest, sort_newest

pytestmark = pytest.mark.kernel_modes

SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("sequence", pa.int64()), ("type", pa.string())]
)
Row = tuple[bytes, bytes | None, int]
KEYS = st.binary(max_size=3) | st.sampled_from(
    [
        b"prefix00",
        b"prefix00\x00",
        b"prefix001",
        b"prefix0012345678",
        b"prefix0012345679",
        b"\xff" * 9,
        b"\xff" * 8,
    ]
)
OPS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=3)), max_size=40)


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    before: Row = (b"before", b"", 0)
    all_rows = [before, *rows]
    keys, values, sequences = zip(*all_rows, strict=True)
    kinds = ["deletion" if value is None else "value" for value in values]
    full = pa.RecordBatch.from_arrays(
        [
            pa.array(column, kind)
            for column, kind in zip((keys, values, sequences, kinds), SCHEMA.types, strict=True)
        ],
        schema=SCHEMA,
    )
    # The array is a slice of a larger one.
    return full.slice(1)


def in_pieces(rows: Sequence[Row], size: int) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(rows), size):
        yield batch(rows[at : at + size])


def ordered(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row[0], -row[2]))


def newest_rows(rows: Sequence[Row], visible: int | None = None) -> dict[bytes, Row]:
    newest: dict[bytes, Row] = {}
    for row in rows:
        if (visible is None or row[2] <= visible) and (row[0] not in newest or newest[row[0]][2] < row[2]):
            newest[row[0]] = row
    return newest


def live(rows: Sequence[Row], visible: int | None = None) -> list[Row]:
    return sorted(row for row in newest_rows(rows, visible).values() if row[1] is not None)


def fail(before: bytes, key: bytes) -> None:
    raise AssertionError((before, key))


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[Row]:
    return [(row["key"], row["value"], row["sequence"]) for batch in batches for row in batch.to_pylist()]


@settings(max_examples=examples(30), deadline=None)
@given(
    OPS,
    st.data(),
    st.sampled_from([1, 2, 3, 7]),
    st.sampled_from([1, 2, 5, 1000]),
    st.sampled_from([1, 2, 1024]),
    st.sampled_from(["value", "type"]),
    st.sampled_from([merge.MAX_JOINED, 1]),
)
def test_merged_runs_equal_a_dictionary(
    ops: Sequence[tuple[bytes, bytes | None]],
    data: st.DataObject,
    runs: int,
    size: int,
    passing: int,
    marker: str,
    largest: int,
) -> None:
    rows = [(key, value, n + 1) for n, (key, value) in enumerate(ops)]
    spread: list[list[Row]] = [[] for _ in range(runs)]
    for row in rows:
        spread[data.draw(st.integers(0, runs - 1))].append(row)
    visible = data.draw(st.none() | st.integers(0, len(rows)))
    shape = Shape(marker, visible)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "PASS_THROUGH", passing)
        patch.setattr(merge, "MAX_JOINED", largest)
        merged = merge_newest([in_pieces(ordered(run), size) for run in spread], shape, fail)
        assert rows_of(merged) == live(rows, visible)


@settings(max_examples=examples(30), deadline=None)
@given(OPS, st.sampled_from([1, 3, 100]), st.sampled_from([1, 100, 1 << 20]), st.none() | st.integers(0, 40))
def test_unsorted_rows_become_a_run(
    ops: Sequence[tuple[bytes, bytes | None]], size: int, piece: int, visible: int | None
) -> None:
    rows = [(key, value, n + 1) for n, (key, value) in enumerate(ops)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newest, "SORT_BYTES", piece)
        runs = list(sort_newest(in_pieces(rows, size), Shape("value", visible)))
    assert len(runs) <= 1
    assert rows_of(iter(runs)) == sorted(newest_rows(rows, visible).values())


def test_ordered_rows_are_not_copied() -> None:
    rows = [(b"%04d" % n, b"v", n) for n in range(100)]
    given_ = batch(rows)
    assert next(sort_newest([given_], Shape("value"))).column("key").buffers()[2].address == (
        given_.column("key").buffers()[2].address
    )
    merged_rows = next(merge_newest([[given_]], Shape("value"), fail))
    assert merged_rows.column("key").buffers()[2].address == given_.column("key").buffers()[2].address


def test_first_run_wins_among_equally_new_rows() -> None:
    first, other = [(b"k", b"first", 5)], [(b"k", b"second", 5), (b"l", b"x", 1)]
    assert rows_of(merge_newest([[batch(first)], [batch(other)]], Shape("value"), fail))[0] == (
        b"k",
        b"first",
        5,
    )
    assert rows_of(merge_newest([[batch(other)], [batch(first)]], Shape("value"), fail))[0] == (
        b"k",
        b"second",
        5,
    )
    # A value comes before a deletion (`InternalKeyComparator`).
    gone = [(b"k", None, 5)]
    assert rows_of(merge_newest([[batch(gone)], [batch(first)]], Shape("value"), fail)) == [
        (b"k", b"first", 5)
    ]


def test_unordered_keys_are_reported() -> None:
    refused: list[tuple[bytes, bytes]] = []
    run = [batch([(b"b", b"1", 1), (b"a", b"2", 2)]), batch([(b"a", b"3", 1), (b"0", b"4", 1)])]
    rows = rows_of(merge_newest([run], Shape("value"), lambda before, key: refused.append((before, key))))
    assert refused == [(b"b", b"a"), (b"a", b"0")]
    assert [key for key, _, _ in rows] == [b"b", b"a", b"0"]
    # Across the border of two batches.
    refused.clear()
    list(
        merge_newest(
            [[batch([(b"b", b"", 1)]), batch([(b"a", b"", 1)])]],
            Shape("value"),
            lambda *two: refused.append(two),
        )
    )
    assert refused == [(b"b", b"a")]


def test_no_deletion_column_without_deletions() -> None:
    rows = [(b"a", b"1", 1), (b"b", b"2", 2)]
    assert rows_of(merge_newest([[batch(rows)], [batch([(b"b", b"3", 3)])]], Shape(None), fail)) == [
        (b"a", b"1", 1), (b"b", b"3", 3),
    ]  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=20), st.binary(max_size=20), st.integers(0, 3))
def test_keys_compare_as_bytes(a: bytes, b: bytes, skip: int) -> None:
    x, y = np.frombuffer(b"<" + a, np.uint8), np.frombuffer(b"<<" + b, np.uint8)
    order = merge.compare(x, 1, len(x), y, 2, len(y))
    assert (order > 0, order < 0) == (a > b, a < b)
    heads = merge.prefix(x, 1, len(x), skip), merge.prefix(y, 2, len(y), skip)
    if a[:skip] == b[:skip] and heads[0] != heads[1]:
        assert (heads[0] < heads[1]) == (a < b)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.binary(max_size=6) | st.sampled_from([b"common-1", b"common-2", b"common"]), max_size=12))
def test_common_prefix_of_keys(keys: list[bytes]) -> None:
    prefix = Keys.of(pa.array([b"<", *keys], pa.binary()).slice(1))
    shortest = min(keys, key=len, default=b"")
    same = [n for n in range(len(shortest) + 1) if all(key.startswith(shortest[:n]) for key in keys)]
    assert merge.common_prefix(prefix.data, prefix.ends, len(prefix)) == max(same)


def test_search_positions_of_keys() -> None:
    keys = Keys.of(pa.array([b"a", b"b", b"b", b"d"], pa.binary()))
    assert [keys.bisect(key, 0, right=False) for key in (b"", b"b", b"c", b"z")] == [0, 1, 3, 4]
    assert [keys.bisect(key, 0, right=True) for key in (b"", b"b", b"c", b"z")] == [0, 3, 3, 4]
    assert keys.bisect(b"a", 2, right=True) == 2
    assert len(Keys.of(pa.array([], pa.binary()))) == 0


# States of entries


class Runs:
    """A run of a group that is read several times."""

    def __init__(self, rows: Sequence[Row], size: int) -> None:
        self.rows, self.size, self.reads, self.params = rows, size, 0, {}

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        self.reads += 1
        return (piece.select(list(columns)) for piece in in_pieces(self.rows, self.size))

    survey = __call__


def states(rows: Sequence[Row], seen: Sequence[Row]) -> list[int]:
    """Return the state of each row; `seen` are those that count."""
    out = []
    for row in rows:
        newer = [other for other in seen if other[0] == row[0] and other[2] > row[2]]
        if row not in seen:
            out.append(UNREFERENCED)
        elif newer:
            following = min(newer, key=lambda entry: entry[2])
            out.append(DELETED if following[1] is None else OVERWRITTEN)
        else:
            out.append(DELETED if row[1] is None else LIVE)
    return out


@settings(max_examples=examples(30), deadline=None)
@given(OPS, st.data(), st.sampled_from([1, 3, 100]), st.sampled_from([1, 300, 1 << 20]))
def test_every_entry_state_is_found(
    ops: Sequence[tuple[bytes, bytes | None]], data: st.DataObject, size: int, budget: int
) -> None:
    rows = [(key, value, n + 1) for n, (key, value) in enumerate(ops)]
    mixed = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(mixed)))
    limit = data.draw(st.none() | st.integers(0, len(rows)))
    spread = [mixed[:cut], mixed[cut:], [(b"\x01", b"gone", 99)]]
    runs: list[Any] = [Runs(run, size) for run in spread]
    taken = EntryStates(runs, [True, True, False], [limit, None, None], budget).compute()
    seen = [row for row in spread[0] if limit is None or row[2] <= limit] + spread[1]
    given_ = [*itertools.chain(*spread)]
    read_states = [
        (key_row["key"], state)
        for part, part_states in taken.rows(("key",))
        for key_row, state in zip(part.to_pylist(), part_states.tolist(), strict=True)
    ]
    assert read_states == list(zip([row[0] for row in given_], states(given_, seen), strict=True))


def test_keys_beyond_the_memory_limit_are_processed_by_parts() -> None:
    rows = [(b"key%05d" % n, b"v", n) for n in range(2000)]
    run: Any = Runs(rows, 100)
    budget = 2000 * 56 // 4
    taken = EntryStates([run], [True], [None], budget).compute()
    assert (taken.states == LIVE).all()
    assert 4 < run.reads <= 16


def test_rows_that_appear_later_are_not_returned() -> None:
    run: Any = Runs([(b"a", b"v", 1)], 10)
    taken = EntryStates([run], [True], [None], 1 << 20).compute()
    run.rows = [(b"a", b"v", 1), (b"b", b"v", 2)]
    assert [len(part) for part, _ in taken.rows(("key",))] == [1]


@pytest.mark.parametrize("parts", [1, 2, 8])
def test_every_key_is_in_one_part(parts: int) -> None:
    keys = Keys.of(pa.array([b"%d" % n * (n % 5) for n in range(300)], pa.binary()))
    chosen = np.zeros((parts, len(keys)), np.uint8)
    for part in range(parts):
        row = np.empty(len(keys), np.uint8)
        entry_states.hash_partition(keys.data, keys.ends, len(keys), parts, part, row)
        chosen[part] = row
    assert (chosen.sum(0) == 1).all()
    assert chosen.sum(1).min() > 300 // parts // 3


def test_empty_batches_are_skipped() -> None:
    rows: list[Row] = [(b"b", b"2", 2), (b"a", b"1", 1)]
    pieces = [batch([]), batch(rows[:1]), batch([]), batch(rows[1:])]
    assert rows_of(sort_newest(pieces, Shape("value"))) == sorted(rows)
    # Nor batches without a counting row.
    assert rows_of(sort_newest(pieces, Shape("value", 1))) == rows[1:]
    assert list(sort_newest([batch([])], Shape("value"))) == []


def test_runs_in_another_order() -> None:
    """In an order that only the manifest determines, every row is returned once."""
    run, other = ([(b"%d" % n, b"v", n) for n in sequences] for sequences in ((2, 3, 5, 0), (4, 1)))
    for runs in ([run, other], [other, run], [run[::-1], other]):
        merged = merge_newest([[batch(rows)] for rows in runs], Shape("value"), lambda before, key: None)
        assert sorted(rows_of(merged)) == sorted(run + other)


def test_rows_too_large_to_join_are_taken_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [pa.array([b"%d" % i for i in range(n)], pa.binary()) for n in (3, 0, 5)]
    batches = [pa.record_batch([column], ["key"]) for column in keys]
    order = np.array([7, 0, 4, 2, 3], np.int64)
    bounds = np.array([0, 3, 3, 8], np.int64)
    joined = merge.gather(batches, bounds, order)
    monkeypatch.setattr(merge, "MAX_JOINED", 0)
    assert merge.gather(batches, bounds, order) == joined
    assert joined.column(0).to_pylist() == [b"4", b"0", b"1", b"2", b"0"]
