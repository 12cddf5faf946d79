"""The sample of tests that `make test` runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import golden_traits
import pytest
import sampling


class Item:
    """A collected test with parameters."""

    def __init__(self, function: str, test_id: str, system: str = "kafka", **params: Any) -> None:
        self.nodeid = f"tests/{system}/test_x.py::{function}[{test_id}]"
        self.path = sampling.TESTS / system / "test_x.py"
        self.callspec = SimpleNamespace(id=test_id, params=params)
        self.extended = False
        self.nightly = False
        self.alike = False

    def get_closest_marker(self, name: str) -> Any:
        return getattr(pytest.mark, name) if getattr(self, name, False) else None

    def add_marker(self, marker: Any) -> None:
        assert marker == pytest.mark.extended
        self.extended = True


def sampled(items: list[Item]) -> list[Item]:
    sampling.mark_extended(items)  # type: ignore[arg-type]
    return [item for item in items if not item.extended]


@pytest.mark.parametrize("system", sorted(path.name for path in golden_traits.GOLDEN.glob("*/")))
def test_sample_has_every_trait_and_less_than_half_of_the_cases(system: str) -> None:
    cases = golden_traits.cases(system)
    items = [Item("test_it", name, system, case=name) for name in sorted(cases)]
    kept = {item.callspec.id for item in sampled(items)}
    traits = {name: golden_traits.traits(path) for name, path in cases.items()}
    assert frozenset().union(*(traits[name] for name in kept)) == frozenset().union(*traits.values())
    assert len(kept) < len(cases) / 2


def test_each_value_of_another_parameter_is_sampled_separately() -> None:
    cases = golden_traits.cases("kafka")
    items = [
        Item("test_it", f"{name}-{mode}", case=name, mode=mode)
        for name in sorted(cases)
        for mode in ("FAILFAST", "PERMISSIVE")
    ]
    kept = [item.callspec.id.partition("-")[::2] for item in sampled(items) if "dmg" in item.callspec.id]
    assert {name for name, mode in kept if mode == "FAILFAST"} == {
        name for name, mode in kept if mode == "PERMISSIVE"
    }
    assert len(kept) < len(items) / 2


def test_sample_has_a_fifth_of_the_alike_cases_and_each_value_of_each_parameter() -> None:
    kept_of_any = set()
    for function in ("test_it", "test_one", "test_this", "test_these", "test_any_of"):
        items = [Item(function, f"{a}-{b}", a=a, b=b) for a in "vwxyz" for b in "12345"]
        for item in items:
            item.alike = True
        kept = {item.callspec.id for item in sampled(items)}
        assert len(kept) == 5
        assert {name[0] for name in kept} == set("vwxyz")
        assert {name[-1] for name in kept} == set("12345")
        kept_of_any |= kept
    assert len(kept_of_any) == 25, "functions with names of other lengths have other cases in the sample"


@pytest.mark.parametrize("count", range(1, 20))
def test_sample_has_some_of_any_number_of_alike_cases(count: int) -> None:
    for function in ("test_it", "test_one", "test_this"):
        items = [Item(function, name, a=name) for name in "abcdefghijklmnopqrst"[:count]]
        for item in items:
            item.alike = True
        assert 1 <= len(sampled(items)) <= count / 5 + 1


def test_traits_distinguish_verdicts_damage_and_compression() -> None:
    cases = golden_traits.cases("kafka")
    assert "throws NumberFormatException" in golden_traits.traits(cases["dmg_seg_alpha"])
    assert any("started=False" in trait for trait in golden_traits.traits(cases["dmg_seg_alpha"]))
    assert "batch of magic 2, compression 4, flags 0000" in golden_traits.traits(cases["v2_zstd_java"])
    assert "batch of magic 1, compression 1, flags 0000" in golden_traits.traits(cases["v1_gzip"])


def test_first_tenth_of_random_seeds_is_in_the_sample() -> None:
    items = [
        Item("test_it", f"{seed}-{strict}", seed=seed, strict=strict)
        for strict in (True, False)
        for seed in range(80)
    ]
    kept = sampled(items)
    assert [item.callspec.params["seed"] for item in kept] == [*range(8), *range(8)]
    few = [Item("test_few", str(seed), seed=seed) for seed in range(7)]
    assert len(sampled(few)) == sampling.SEEDS


def test_seeds_of_nightly_tests_do_not_count() -> None:
    items = [Item("test_it", str(seed), seed=seed) for seed in range(600)]
    for item in items[60:]:
        item.nightly = True
    assert [item.callspec.params["seed"] for item in sampled(items) if not item.nightly] == [*range(6)]


def test_test_without_parameters_is_in_the_sample() -> None:
    item = SimpleNamespace(
        nodeid="tests/kafka/test_x.py::test_it",
        path=sampling.TESTS / "kafka" / "test_x.py",
        get_closest_marker=lambda name: None,
    )
    sampling.mark_extended([item])  # type: ignore[list-item]  # it would have no `add_marker`


def test_spark_tests_in_the_sample_exist() -> None:
    for name in sampling.SPARK:
        path, _, function = name.partition("::")
        text = (sampling.TESTS.parent / path).read_text(encoding="utf-8")
        assert f"def {function.partition('[')[0]}(" in text
