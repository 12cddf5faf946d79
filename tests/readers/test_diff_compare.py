"""Rows put next to each other and compared: against the same done slowly, row by row."""

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


def batches(some: dict[int, Any], size: int) -> Iterator[pa.RecordBatch]:
    known = sorted(some)
    for at in range(0, len(known), size):
        part = known[at : at + size]
        yield pa.record_batch(
            {
                "id": pa.array(part, pa.int64()),
                "value": pa.array([some[one][0] for one in part], pa.binary()),
                "headers": pa.array([some[one][1] for one in part], HEADERS),
            }
        )


def told(found: Iterator[Pairs], columns: list[str]) -> list[tuple[Any, Any, tuple[str, ...]]]:
    out = []
    for some in found:
        masks = changed(some, columns)
        for i, (a, b) in enumerate(zip(some.ia.tolist(), some.ib.tolist(), strict=True)):
            one = some.a.column("id")[a].as_py() if a >= 0 else None
            two = some.b.column("id")[b].as_py() if b >= 0 else None
            out.append((one, two, tuple(name for name in columns if name in masks and masks[name][i])))
    return out


@given(rows, rows, st.integers(1, 7), st.integers(1, 7))
def test_by_key_as_row_by_row(a: dict[int, Any], b: dict[int, Any], one: int, two: int) -> None:
    want = []
    for key in sorted({*a, *b}):
        differs = tuple(
            name
            for n, name in enumerate(("value", "headers"))
            if key in a and key in b and a[key][n] != b[key][n]
        )
        want.append((key if key in a else None, key if key in b else None, differs))
    assert told(match(batches(a, one), batches(b, two), ("id",)), ["value", "headers"]) == want


@given(rows, rows, st.integers(1, 7))
def test_by_place_as_row_by_row(a: dict[int, Any], b: dict[int, Any], size: int) -> None:
    left, right = sorted(a), sorted(b)
    want = [
        (left[i] if i < len(left) else None, right[i] if i < len(right) else None)
        for i in range(max(len(left), len(right)))
    ]
    assert [one[:2] for one in told(match(batches(a, size), batches(b, 5)), [])] == want


def test_row_numbers_count_on() -> None:
    a, b = dict.fromkeys(range(10), (b"", None)), {n: (b"", None) for n in range(10) if n != 4}
    found = list(match(batches(a, 3), batches(b, 3), ("id",)))
    ids = [(some.first_a, some.a.column("id")[0].as_py()) for some in found if len(some.a)]
    assert all(number == first for number, first in ids)
    assert sum(len(some.b) for some in found) == 9


def test_long_stretches_of_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "_SMALL", 4)
    monkeypatch.setattr(compare, "_LARGE", 8)
    a = dict.fromkeys(range(0, 200, 2), (b"", None))
    b = dict.fromkeys(range(1, 200, 2), (b"", None))
    found = told(match(batches(a, 50), batches(b, 30), ("id",)), ["value"])
    assert sorted(one for one, _, _ in found if one is not None) == sorted(a)
    assert sorted(two for _, two, _ in found if two is not None) == sorted(b)


def test_a_descending_column_is_one_of_a_key() -> None:
    def some(*pairs: tuple[int, int]) -> list[pa.RecordBatch]:
        return [pa.record_batch({"id": [one for one, _ in pairs], "n": [two for _, two in pairs]})]

    found = list(match(some((1, 9), (1, 3), (2, 1)), some((1, 9), (1, 5), (1, 3)), ("id", "-n")))
    pairs = [(int(a), int(b)) for one in found for a, b in zip(one.ia, one.ib, strict=True)]
    assert len([1 for a, b in pairs if a >= 0 and b >= 0]) == 2


@pytest.mark.parametrize("ids", [[2, 1], [1, 1], [None, 1]])
def test_rows_out_of_order_are_told(ids: list[Any]) -> None:
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
def test_what_differs(a: Any, b: Any, want: list[bool]) -> None:
    assert unequal(a, b).tolist() == want


def test_types_that_can_not_be_compared() -> None:
    with pytest.raises(lw.UsageError, match="can't be compared"):
        unequal(pa.array([[1]]), pa.array([2]))


def test_nothing_changed_in_no_rows() -> None:
    empty = np.empty(0, np.int64)
    none = pa.record_batch({"id": pa.array([], pa.int64())})
    assert changed(Pairs(none, none, empty, empty, 0, 0), ["id"]) == {}
