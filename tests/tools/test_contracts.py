"""The import contracts that the project's linter enforces."""

from __future__ import annotations

from itertools import pairwise

from contracts import find_circle


def test_chain_of_imports_is_not_a_cycle() -> None:
    assert find_circle({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_cycle_is_reported_in_import_order() -> None:
    imports = {"a": ["b"], "b": ["c", "d"], "c": ["a"], "d": []}
    circle = find_circle(imports)
    assert circle[0] == circle[-1]
    assert set(circle) == {"a", "b", "c"}
    assert all(after in imports[before] for before, after in pairwise(circle))
