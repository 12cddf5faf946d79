"""Rows matched and compared by batches give the same as a slow row-by-row comparison."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logwright as lw
from logwright.readers import compare
from logwright.readers.compare import Disordered, Pairs, changed, match, unequal

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
texts = st.one_of(st.none(), st.binary(max_size=3))
lists = st.one_of(
    st.none(),
    st.lists(st.fixed_dictionaries({"key": st.sampled_from(["", "h"]), "value": texts}), max_size=2),
)
rows = st.dictionaries(st.integers(0, 40), st.tuples(texts, lists), max_size=30)


def batches(rows: dict[int, Any], size: int) -> Iterator[pa.RecordBatch]:
    known = sorted(rows)
    for at in range(0, len(known), size):
        part = known[at : at + size]
        yield pa.record_batch(
            {
                "id": pa.array(part, pa.int64()),
                "value": pa.array([rows[id][0] for id in part], pa.binary()),
                "headers": pa.array([rows[id][1] for id in part], HEADERS),
            }
        )


def flatten(pairs: Iterator[Pairs], columns: list[str]) -> list[tuple[Any, Any, tuple[str, ...]]]:
    out = []
    for pair in pairs:
        masks = changed(pair, columns)
        for i, (a, b) in enumerate(zip(pair.ia.tolist(), pair.ib.tolist(), strict=True)):
            id_a = pair.a.column("id")[a].as_py() if a >= 0 else None
            id_b = pair.b.column("id")[b].as_py() if b >= 0 else None
            out.append((id_a, id_b, tuple(name for name in columns if name in masks and masks[name][i])))
    return out


@given(rows, rows, st.integers(1, 7), st.integers(1, 7))
def test_match_by_key_equals_row_by_row(a: dict[int, Any], b: dict[int, Any], step: int, two: int) -> None:
    want = []
    for key in sorted({*a, *b}):
        differs = tuple(
            name
            for n, name in enumerate(("value", "headers"))
            if key in a and key in b and a[key][n] != b[key][n]
        )
        want.append((key if key in a else None, key if key in b else None, differs))
    assert flatten(match(batches(a, step), batches(b, two), ("id",)), ["value", "headers"]) == want


@given(rows, rows, st.integers(1, 7))
def test_match_by_position_equals_row_by_row(a: dict[int, Any], b: dict[int, Any], size: int) -> None:
    left, right = sorted(a), sorted(b)
    want = [
        (left[i] if i < len(left) else None, right[i] if i < len(right) else None)
        for i in range(max(len(left), len(right)))
    ]
    assert [step[:2] for step in flatten(match(batches(a, size), batches(b, 5)), [])] == want


def test_row_numbers_continue_over_batches() -> None:
    a, b = dict.fromkeys(range(10), (b"", None)), {n: (b"", None) for n in range(10) if n != 4}
    pairs = list(match(batches(a, 3), batches(b, 3), ("id",)))
    ids = [(part.first_a, part.a.column("id")[0].as_py()) for part in pairs if len(part.a)]
    assert all(number == first for number, first in ids)
    assert sum(len(part.b) for part in pairs) == 9


def test_long_runs_of_unmatched_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "_SMALL", 4)
    monkeypatch.setattr(compare, "_LARGE", 8)
    a = dict.fromkeys(range(0, 200, 2), (b"", None))
    b = dict.fromkeys(range(1, 200, 2), (b"", None))
    matched = flatten(match(batches(a, 50), batches(b, 30), ("id",)), ["value"])
    assert sorted(match for match, _, _ in matched if match is not None) == sorted(a)
    assert sorted(two for _, two, _ in matched if two is not None) == sorted(b)


def test_rows_match_by_a_descending_key_column() -> None:
    def some(*pairs: tuple[int, int]) -> list[pa.RecordBatch]:
        return [pa.record_batch({"id": [pair for pair, _ in pairs], "n": [two for _, two in pairs]})]

    matches = list(match(some((1, 9), (1, 3), (2, 1)), some((1, 9), (1, 5), (1, 3)), ("id", "-n")))
    pairs = [(int(a), int(b)) for match in matches for a, b in zip(match.ia, match.ib, strict=True)]
    assert len([1 for a, b in pairs if a >= 0 and b >= 0]) == 2


@pytest.mark.parametrize("ids", [[2, 1], [1, 1], [None, 1]])
def test_unordered_rows_are_reported(ids: list[Any]) -> None:
    a = pa.record_batch({"id": pa.array(ids, pa.int64())})
    b = pa.record_batch({"id": pa.array([7, 8], pa.int64())})
    with pytest.raises(Disordered, match="--key ''"):
        list(match([a], [b], ("id",)))


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        (pa.array([1, None, 3]), pa.array([1, None, 4]), [False, False, True]),
        (pa.array([b"a", b""], pa.binary()), pa.array([b"a", None], pa.large_binary()), [False, True]),
        (pa.array(["a", "b"]).dictionary_encode(), pa.array(["a", "c"]), [False, True]),
        (pa.nulls(2), pa.nulls(2), [False, False]),
        (pa.chunked_array([[1], [2]]), pa.chunked_array([[1, 3]]), [False, True]),
        (pa.array([[1], [2, 3], None, []]), pa.array([[1], [2, 4], None, None]), [False, True, False, True]),
        (pa.array([{"x": 1}, None]), pa.array([{"x": 2}, None]), [True, False]),
    ],
)
def test_changed_columns_are_named(a: Any, b: Any, want: list[bool]) -> None:
    assert unequal(a, b).tolist() == want


def test_incomparable_types_are_refused() -> None:
    with pytest.raises(lw.UsageError, match="cannot compare"):
        unequal(pa.array([[1]]), pa.array([2]))


def test_empty_batches_have_no_changes() -> None:
    empty = np.empty(0, np.int64)
    none = pa.record_batch({"id": pa.array([], pa.int64())})
    assert changed(Pairs(none, none, empty, empty, 0, 0), ["id"]) == {}


def test_maps_are_compared_by_their_entries() -> None:
    kind = pa.map_(pa.string(), pa.binary())
    a = pa.array([[("x", b"1")], [("x", b"1")], None, []], kind)
    b = pa.array([[("x", b"1")], [("x", b"2")], [], []], kind)
    assert unequal(a, b).tolist() == [False, True, True, False]
