"""Compare our simulated start with the recovery of RocketMQ's own store on randomly damaged stores."""

from __future__ import annotations

import os

import pytest
from rocketmq_damaged import SameNameError, index_files, ours, store_of, theirs, without_unanswered

from logwright.roundtrip.oracles import rocketmq as oracle

pytestmark = pytest.mark.oracle
FIRST = int(os.environ.get("LOGWRIGHT_ROCKETMQ_FIRST_SEED", "0"))
SAMPLE = {"5.5.0": 48, "5.3.3": 24, "4.9.7": 8}
"""The number of stores by release. A store of 4.x takes a second to start."""
NIGHTLY = {"5.5.0": 2000, "5.3.3": 500, "4.9.7": 100}


def compare(seed: int, version: str) -> None:
    reason = oracle.available(version)
    if reason:
        pytest.skip(reason)
    store = store_of(seed, version)
    predicted = ours(store)
    try:
        actual = theirs(store, index_files(predicted))
    except SameNameError:
        pytest.skip("the real store creates two index files within a millisecond, and gives them one name")
    except oracle.JavaError as error:
        if error.java_class != "java.lang.OutOfMemoryError":
            raise
        pytest.skip("4.x allocates what a damaged size says, so the outcome depends on the memory of the JVM")
    assert without_unanswered(predicted, actual) == actual, store.operations


@pytest.mark.parametrize(
    ("version", "seed"), [(version, seed) for version, count in SAMPLE.items() for seed in range(count)]
)
def test_verdict_on_damaged_stores_equals_that_of_a_broker(version: str, seed: int) -> None:
    compare(FIRST + seed, version)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("version", "first"),
    [(version, first) for version, count in NIGHTLY.items() for first in range(0, count, 50)],
)
def test_verdict_on_many_damaged_stores_equals_that_of_a_broker(version: str, first: int) -> None:
    for seed in range(first, first + 50):
        try:
            compare(FIRST + seed, version)
        except pytest.skip.Exception:
            continue
