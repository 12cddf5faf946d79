"""Assigning a level to each table: tables that are searched first have the newer entries."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from logwright.codec.leveldb.repair.levels import (
    APART,
    NEWER,
    OLDER,
    TANGLED,
    Assignment,
    Span,
    assign_levels,
)


def span(number: int, keys: str, low: int, high: int, level: int | None = None) -> Span:
    return Span(number, keys[0].encode(), keys[1].encode(), low, high, level)


def never(a: Span, b: Span) -> int:
    raise AssertionError((a, b))


def test_disjoint_tables_go_to_the_last_level() -> None:
    levels = assign_levels([span(3, "ab", 1, 5), span(4, "cd", 3, 9)], never)
    assert levels == Assignment({3: 6, 4: 6})


def test_newer_tables_go_above() -> None:
    levels = assign_levels([span(9, "ac", 1, 5), span(4, "bd", 6, 9), span(5, "cf", 10, 12)], never)
    assert levels.levels == {9: 6, 4: 5, 5: 4}


def test_more_tables_than_levels() -> None:
    levels = assign_levels([span(number, "az", number, number) for number in range(1, 12)], never)
    assert [levels.levels[number] for number in range(1, 8)] == [6, 5, 4, 3, 2, 1, 0]
    assert levels.level_0 == [7, 8, 9, 10, 11]


def test_known_levels_are_kept_if_they_fit() -> None:
    levels = assign_levels([span(3, "ac", 1, 5, 2), span(4, "bd", 6, 9, 1), span(5, "ad", 10, 12, 0)], never)
    assert levels.levels == {3: 2, 4: 1, 5: 0}
    assert levels.level_0 == [5]


@pytest.mark.parametrize("level", [2, 4])
def test_known_level_below_older_entries_is_not_kept(level: int) -> None:
    levels = assign_levels([span(3, "ac", 1, 5, 2), span(4, "bd", 6, 9, level)], never)
    assert levels.levels == {3: 2, 4: 1}


@pytest.mark.parametrize(("order", "levels"), [(OLDER, {3: 6, 4: 5}), (NEWER, {3: 5, 4: 6})])
def test_keys_decide_if_sequence_numbers_do_not(order: int, levels: dict[int, int]) -> None:
    compared = []

    def compare(a: Span, b: Span) -> int:
        compared.append((a.number, b.number))
        return order

    assigned = assign_levels([span(3, "ac", 1, 9), span(4, "bd", 5, 12)], compare)
    assert assigned.levels == levels
    assert compared == [(3, 4)]


def test_overlapping_tables_without_a_common_key_need_two_levels() -> None:
    levels = assign_levels([span(3, "ac", 1, 9), span(4, "bd", 5, 12)], lambda a, b: APART)
    assert sorted(levels.levels.values()) == [5, 6]
    many = assign_levels([span(number, "az", 1, 9) for number in range(1, 10)], lambda a, b: APART)
    assert sorted(many.levels.values()) == [0, 0, 0, 1, 2, 3, 4, 5, 6]


def test_tangled_tables_are_in_level_0() -> None:
    levels = assign_levels(
        [span(3, "ac", 1, 9), span(4, "bd", 5, 12), span(5, "xy", 1, 2)], lambda a, b: TANGLED
    )
    assert levels.tangled == {3, 4}
    assert levels.levels == {3: 0, 4: 0, 5: 6}


def test_tables_in_a_cycle_of_ages_are_tangled_in_level_0() -> None:
    """Each table is older than the next one by their common keys."""
    older = {(1, 2), (2, 3), (3, 1)}

    def compare(a: Span, b: Span) -> int:
        return OLDER if (a.number, b.number) in older else NEWER

    levels = assign_levels([span(number, "az", 1, 9) for number in (1, 2, 3)], compare)
    assert levels.tangled == {1, 2, 3}
    assert set(levels.levels.values()) == {0}


@settings(deadline=None, max_examples=examples(200))
@given(
    st.lists(
        st.tuples(
            st.integers(0, 20),
            st.integers(0, 6),
            st.integers(0, 60),
            st.integers(0, 9),
            st.none() | st.integers(0, 6),
        ),
        max_size=14,
    )
)
def test_tables_of_a_level_are_disjoint_and_older_entries_come_later(
    drawn: list[tuple[int, int, int, int, int | None]],
) -> None:
    """For any tables: levels from 1 on are disjoint, and older entries are searched later."""
    tables = [
        Span(number, bytes([key]), bytes([key + width]), low * 10, low * 10 + length, level)
        for number, (key, width, low, length, level) in enumerate(drawn)
    ]

    def compare(a: Span, b: Span) -> int:
        return OLDER if (a.high, a.number) < (b.high, b.number) else NEWER

    levels = assign_levels(tables, compare)
    assert not levels.tangled
    place_of = {number: i for i, number in enumerate(levels.level_0)}
    for a in tables:
        for b in tables:
            if a.number == b.number or not a.overlaps(b):
                continue
            older = a.high < b.low or (not b.high < a.low and compare(a, b) == OLDER)
            if older:
                la, lb = levels.levels[a.number], levels.levels[b.number]
                assert lb < la or (la == lb == 0 and place_of[a.number] < place_of[b.number])
