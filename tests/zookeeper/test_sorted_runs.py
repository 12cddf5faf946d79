"""Comparisons with the previous row (sorted paths, repeated lists) equal plain Python."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logwright.codec.zookeeper.formats.snapshot.acl import OPEN, AclTable, packed
from logwright.codec.zookeeper.formats.snapshot.acl_lists import coded, coded_lists
from logwright.codec.zookeeper.formats.snapshot.layout import SLASH, STATS
from logwright.codec.zookeeper.formats.snapshot.pack import Nodes
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE, ACL_TYPE, flat, raw_lists
from logwright.codec.zookeeper.state.digest import node_digests
from logwright.codec.zookeeper.state.paths import MISSING, Family, _key, ascending, first_bad
from logwright.codec.zookeeper.state.tree_defaults import from_children

pytestmark = pytest.mark.kernel_modes

_ACLS = [
    {"perms": 31, "scheme": "world", "id": "anyone"},
    {"perms": 1, "scheme": "world", "id": "anyone"},
    {"perms": 31, "scheme": "ip", "id": None},
    {"perms": 31, "scheme": "worlds", "id": "anyon"},
]
_PATHS = st.lists(st.text("/ab.\u00e9", max_size=12).map(str.encode), max_size=12)


@given(_PATHS)
def test_order_of_paths_is_checked(paths: list[bytes]) -> None:
    data, ends, _ = flat(pa.array(paths, pa.binary()))
    for lowest in (SLASH, -1):
        keys = [bytes(0 if byte == lowest else byte for byte in path) for path in paths]
        assert ascending(data, ends, lowest) == all(before < after for before, after in pairwise(keys))


@given(_PATHS.map(sorted))
def test_duplicate_path_is_detected(paths: list[bytes]) -> None:
    actual = Family.of(pa.array(paths, pa.binary())).twice()
    assert (actual is None) == (len(set(paths)) == len(paths))
    assert actual is None or paths[actual] in paths[:actual]


@given(st.lists(st.none() | st.sampled_from([b"", b"a", b"b" * 20, b"b" * 19 + b"c", b"b" * 8]), max_size=20))
def test_equal_lists_share_a_code(lists: list[bytes | None]) -> None:
    codes, actual = coded(pa.array(lists, pa.binary()))
    assert [None if code < 0 else actual[code] for code in codes.tolist()] == lists
    assert actual == list(dict.fromkeys(item for item in lists if item is not None))
    sliced, actual = coded(pa.array([b"x", *lists, None], pa.binary()).slice(1, len(lists)))
    assert [None if code < 0 else actual[code] for code in sliced.tolist()] == lists


_NAMED = st.lists(
    st.sampled_from(["a", "b", "ab", "a.b", ".", "..", "...", "", "\u00e9", "\x7f", "\x85", "\uffff"]),
    max_size=4,
)
_TREES = st.lists(_NAMED.map(lambda names: "".join(f"/{name}" for name in names).encode()), max_size=12)


def _is_bad(path: bytes) -> bool:
    names = path.decode().split("/")[1:]
    wrong = any(name in ("", ".", "..") or set(name) & set("\x7f\x85\uffff") for name in names)
    return bool(path) and (not path.startswith(b"/") or wrong)


@given(_TREES | _TREES.map(sorted) | _PATHS)
def test_parents_and_children_of_paths(paths: list[bytes]) -> None:
    """All at once equals one by one, in any order."""
    column = pa.array(paths, pa.binary())
    family = Family.of(column)
    data, ends, _ = flat(column)
    assert family.ascending == bool(ascending(data, ends, SLASH))
    bad = [_is_bad(path) for path in paths]
    assert family.bad == first_bad(data, ends) == (bad.index(True) if True in bad else len(paths))
    if family.bad == len(paths):
        for i, parent in enumerate(family.parents.tolist()):
            above = paths[i][: paths[i].rfind(b"/")] if paths[i] else None
            if parent >= 0:
                assert paths[parent] == above
            elif parent == MISSING:
                assert paths[i].startswith(paths[i][: family.short[i]])
        assert family.lost == sum(item < -1 for item in family.parents.tolist())


@given(st.lists(st.text("/ab.\u00e9", max_size=40).map(str.encode), max_size=80, unique=True))
def test_paths_are_sorted_with_the_slash_first(paths: list[bytes]) -> None:
    column = pa.array(paths, pa.binary())
    order = replace(Family.of(column), lost=1).order()
    assert order is not None
    expected = sorted(range(len(paths)), key=lambda i: paths[i].replace(b"/", b"\0"))
    assert order.tolist() == expected


@given(st.integers(0, 80), st.randoms(use_true_random=False))
def test_new_paths_among_sorted_ones(count: int, random: Random) -> None:
    every = sorted(
        {f"/{'ab/-'[i % 4]}{i % 7}/{i}".replace("//", "/x/").encode() for i in range(count)}, key=_key
    )
    new = sorted(path for path in every if random.random() < 0.3)
    old = [path for path in every if path not in new]
    merged = Family.of(pa.array(old, pa.binary())).merged(new)
    assert [[*old, *new][i] for i in merged.tolist()] == every


@given(st.lists(st.none() | st.lists(st.sampled_from(_ACLS), max_size=2), max_size=12), st.data())
def test_acl_lists_of_rows_are_coded(lists: list[list[dict[str, Any]] | None], data: st.DataObject) -> None:
    """ACL lists are numbered in order of appearance, also after rows are reordered."""
    cut = data.draw(st.integers(0, len(lists)))
    column = pa.chunked_array([pa.array(lists[:cut], ACL_TYPE), pa.array(lists[cut:], ACL_TYPE)])
    actual = coded_lists(column)
    expected = coded(packed(raw_lists(column, None)))
    assert (actual.codes.tolist(), actual.lists) == (expected.codes.tolist(), expected.lists)
    order = np.array(data.draw(st.permutations(range(len(lists)))), np.int64)
    second = actual.take(order)
    reported = [None if code < 0 else actual.lists[code] for code in actual.codes[order].tolist()]
    assert [None if code < 0 else second.lists[code] for code in second.codes.tolist()] == reported
    assert second.lists == list(dict.fromkeys(item for item in reported if item is not None))


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "/a", "/zookeeper/x", "/b" * 20]), st.none() | st.binary(max_size=40)),
        max_size=6,
    ),
    st.data(),
)
def test_digests_of_written_nodes(nodes: list[tuple[str, bytes | None]], data: st.DataObject) -> None:
    """The digest summed while writing equals that of the records, in any order."""
    count = len(nodes)
    numbers = st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=count, max_size=count)
    stats = {name: np.array(data.draw(numbers), np.int64) for name in STATS}
    paths, values = (pa.array([node[k] for node in nodes], pa.binary()) for k in (0, 1))
    result = Nodes.of(paths, values, np.full(count, -1), stats)
    for subset in (result, result.take(np.array(data.draw(st.permutations(range(count))), np.int64))):
        total = 0
        for piece in subset.chunks(0, count):
            digests = np.empty(len(piece.starts), np.int64)
            total += int(node_digests(piece.data, piece.starts, piece.paths, piece.lengths, digests))
        assert subset.digest() == total


def test_children_are_counted_with_the_newest_zxid_of_each_parent() -> None:
    parent = np.array([-1, 0, 1, 1, 0, -2], np.int64)
    czxid = np.array([1, 2, 9, 3, 4, 5], np.int64)
    children, last = np.empty(6, np.int32), np.empty(6, np.int64)
    from_children(parent, czxid, 0, children, last)
    assert children.tolist() == [2, 2, 0, 0, 0, 0]
    assert last.tolist() == [4, 9, 9, 3, 4, 5]


def separately(table: AclTable, places: npt.NDArray[np.int64]) -> pa.Array:
    return table.text[0].take(
        pa.array([place if place >= 0 else None for place in places.tolist()], pa.int64())
    )


def test_shared_acl_list_equals_separately_built_ones() -> None:
    """A list shared by all nodes is built once: slices of any length equal separately built ones."""
    lists = [OPEN, [{"perms": 1, "scheme": b"ip", "id": b"10.0.0.1"}, *OPEN], []]
    table = AclTable(np.array([5, 7, 9], np.int64), pa.array(lists, ACL_RAW_TYPE))
    for number in (5, 7, 9, -1, 8):
        for count in (1, 3, 2, 40, 0):
            places = table.places(np.full(count, number))
            result = table.taken(places)
            result.validate(full=True)
            assert result.equals(separately(table, places))
            assert len(result) == count
    mixed = table.places(np.array([5, 7, -1, 8]))
    assert table.taken(mixed).equals(separately(table, mixed))
