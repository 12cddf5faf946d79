"""Sets of numbers: groups of equal values, and membership among sorted ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from logwright.codec.arrays import among, groups

VALUES = st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3), max_size=40)


@given(VALUES)
def test_groups_have_every_index_of_each_value_in_order(values: list[int]) -> None:
    expected = {value: [i for i, each in enumerate(values) if each == value] for value in sorted(set(values))}
    actual = [(value, index.tolist()) for value, index in groups(np.array(values, np.int64))]
    assert actual == list(expected.items())


@given(VALUES, VALUES)
def test_values_are_among_sorted_numbers_if_one_is_equal(values: list[int], known: list[int]) -> None:
    mask = among(np.array(values, np.int64), np.sort(np.array(known, np.int64)))
    assert mask.tolist() == [value in known for value in values]
