"""What is found by looking at the row before: paths in order, lists that come again. Held to plain Python."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from modes import other_modes

from logwright.codec.zookeeper.acl import OPEN, AclTable, flat, taken
from logwright.codec.zookeeper.acl_lists import coded
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE
from logwright.codec.zookeeper.node import SLASH
from logwright.codec.zookeeper.paths import Family, ascending
from logwright.codec.zookeeper.tree import from_children

pytestmark = pytest.mark.kernel_modes
test_other_modes = other_modes(__file__)

_PATHS = st.lists(st.text("/ab.\u00e9", max_size=12).map(str.encode), max_size=12)


@given(_PATHS)
def test_ascending(paths: list[bytes]) -> None:
    data, ends, _ = flat(pa.array(paths, pa.binary()))
    for lowest in (SLASH, -1):
        keys = [bytes(0 if byte == lowest else byte for byte in path) for path in paths]
        assert ascending(data, ends, lowest) == all(one < two for one, two in pairwise(keys))


@given(_PATHS.map(sorted))
def test_a_path_that_comes_twice(paths: list[bytes]) -> None:
    found = Family.of(pa.array(paths, pa.binary())).twice()
    assert (found is None) == (len(set(paths)) == len(paths))
    assert found is None or paths[found] in paths[:found]


@given(st.lists(st.none() | st.sampled_from([b"", b"a", b"b" * 20, b"b" * 19 + b"c", b"b" * 8]), max_size=20))
def test_lists_by_number(lists: list[bytes | None]) -> None:
    codes, found = coded(pa.array(lists, pa.binary()))
    assert [None if code < 0 else found[code] for code in codes.tolist()] == lists
    assert found == list(dict.fromkeys(one for one in lists if one is not None))
    sliced, found = coded(pa.array([b"x", *lists, None], pa.binary()).slice(1, len(lists)))
    assert [None if code < 0 else found[code] for code in sliced.tolist()] == lists


def test_children() -> None:
    parent = np.array([-1, 0, 1, 1, 0, -2], np.int64)
    czxid = np.array([1, 2, 9, 3, 4, 5], np.int64)
    children, last = np.empty(6, np.int64), np.empty(6, np.int64)
    from_children(parent, czxid, children, last)
    assert children.tolist() == [2, 2, 0, 0, 0, 0]
    assert last.tolist() == [4, 9, 9, 3, 4, 5]


def test_the_list_of_all_rows() -> None:
    """Where all nodes have one list it is made once: slices of any length are the same as what is made for each."""
    lists = [OPEN, [{"perms": 1, "scheme": b"ip", "id": b"10.0.0.1"}, *OPEN], []]
    table = AclTable(np.array([5, 7, 9], np.int64), pa.array(lists, ACL_RAW_TYPE))
    for number in (5, 7, 9, -1, 8):
        for count in (1, 3, 2, 40, 0):
            places = table.places(np.full(count, number))
            made = table.taken(places)
            made.validate(full=True)
            assert made.equals(taken(table.text[0], places))
            assert len(made) == count
    mixed = table.places(np.array([5, 7, -1, 8]))
    assert table.taken(mixed).equals(taken(table.text[0], mixed))
