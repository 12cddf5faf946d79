"""The sample of tests that `make test` runs, in less than four minutes on two cores. Each rule is met by at least one test of it.

- Golden cases: of the tests of one function that differ only in the golden case, few that have all traits (see `golden_traits`).
- Cases marked `alike`, slow ones that prove one rule: a fifth of those that are left, one of each five in a row. Its place changes from
  five to five and from function to function, so that every system, codec and other parameter occurs.
- Random seeds: of the tests that differ only in the seed, the first tenth (those of `make nightly` not counted), and at least `SEEDS`.
- Crashes and failing calls: every fifth, wherever there are hundreds of them (`STEPS`).
- Spark: a table that is written and read.
- Kernels bounds-checked and interpreted: the tests of the shared kernels, and the laws of one format (see `modes`).
- Slow laws of codecs: the two codecs of each system that have the most fields (`tests/conformance/test_codecs.py`).
- Properties: a tenth of the examples, the same ones in each run (the Hypothesis profile `sample` in `tests/conftest.py`).
- All other tests, except those that their own file marks as `extended`: slow tests whose rule a faster one proves.

`make test-all` then runs the rest, and the properties with all their examples.
"""

from __future__ import annotations

import functools
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import golden_traits
import pytest

TESTS = Path(__file__).resolve().parents[1]
SEEDS = 3
ALIKE = 5
STEPS = pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.extended)])
"""For tests of crashes and failing calls: every fifth of them in the sample."""
SPARK = frozenset({"tests/spark/test_partition.py::test_written_rows_are_read[none]"})


def mark_extended(items: Iterable[pytest.Item]) -> None:
    """Mark the items that `make test` leaves out as `extended`."""
    golden: defaultdict[str, list[tuple[pytest.Item, frozenset[str]]]] = defaultdict(list)
    seeds: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    alike: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("spark") and item.nodeid not in SPARK:
            item.add_marker(pytest.mark.extended)
        call = getattr(item, "callspec", None)
        if call is None:
            continue
        function = item.nodeid.partition("[")[0]
        if item.get_closest_marker("alike"):
            alike[function].append(item)
        if "seed" in call.params and item.get_closest_marker("nightly") is None:
            seeds[function + _without(call.id, str(call.params["seed"]))].append(item)
        for value in call.params.values():
            case = _golden_case(value, item.path)
            if case is None:
                continue
            same = function + _without(call.id, case.name)
            if isinstance(value, Path) and value.is_file():
                same += golden_traits.kind_of_file(value)
            golden[same].append((item, golden_traits.traits(case)))
            break
    for same_but_case in golden.values():
        for item in _without_new_traits(same_but_case):
            item.add_marker(pytest.mark.extended)
    for same_but_seed in seeds.values():
        for item in same_but_seed[max(SEEDS, math.ceil(len(same_but_seed) / 10)) :]:
            item.add_marker(pytest.mark.extended)
    for function, same_but_parameters in alike.items():
        in_sample = [item for item in same_but_parameters if not item.get_closest_marker("extended")]
        row = min(ALIKE, len(in_sample)) or 1
        for place, item in enumerate(in_sample):
            if (place - place // row - len(function)) % row:
                item.add_marker(pytest.mark.extended)


def is_short(item: pytest.Item) -> bool:
    """Return False for tests that start Spark, and for those that run other tests in another process."""
    return item.get_closest_marker("spark") is None and not item.path.name.startswith("test_kernels_")


def _without_new_traits(items: list[tuple[pytest.Item, frozenset[str]]]) -> list[pytest.Item]:
    """Return the items that remain when the item with the most new traits is taken until all traits are covered."""
    missing = {trait for _, traits in items for trait in traits}
    remaining = list(items)
    while missing:
        best = max(remaining, key=lambda pair: len(pair[1] & missing))
        missing -= best[1]
        remaining.remove(best)
    return [item for item, _ in remaining]


def _without(test_id: str, value: str) -> str:
    """Return the id of a test without a parameter's value and without numbers."""
    return re.sub(r"\d+", "#", test_id.replace(value, "", 1))


def _golden_case(value: Any, test_file: Path) -> Path | None:
    """Return the folder of the golden case that a parameter is, names or is inside of; None for any other value."""
    if isinstance(value, str):
        name: Any = value
    else:
        path = value if isinstance(value, Path) else getattr(value, "path", None)
        if isinstance(path, Path) and path.is_relative_to(golden_traits.GOLDEN):
            return golden_traits.GOLDEN.joinpath(*path.relative_to(golden_traits.GOLDEN).parts[:2])
        name = getattr(value, "case", None)
    return golden_traits.cases(_system(test_file)).get(name) if isinstance(name, str) else None


@functools.cache
def _system(test_file: Path) -> str:
    """Return the folder of a file of tests, which may be a system."""
    return test_file.relative_to(TESTS).parts[0]
