"""Compare our simulated start with that of a real bookie on randomly damaged bookies, and start it on repaired ones.

`LOGWRIGHT_BOOKKEEPER_FIRST_SEED=5000 pytest tests/oracle/test_bookkeeper_startup_oracle.py -m nightly` compares further ones.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from dataclasses import replace
from pathlib import Path

import pytest
from bookkeeper_damaged import (
    GOLDEN,
    bookie_of,
    differences,
    files_of,
    golden,
    needs_heap,
    ours,
    theirs,
    undefined,
)

import logwright as lw
from logwright.roundtrip.oracles import bookkeeper as oracle

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
FIRST = int(os.environ.get("LOGWRIGHT_BOOKKEEPER_FIRST_SEED", "0"))
needs_rocksdb = pytest.mark.skipif(
    importlib.util.find_spec("rocksdict") is None, reason="rocksdict is not installed"
)
SAMPLE, SAMPLE_DB, REPAIRED = 50, 10, 15
NIGHTLY, NIGHTLY_DB, AT_ONCE = 2000, 300, 50


@pytest.fixture(autouse=True)
def _available() -> None:
    reason = oracle.available()
    if reason:
        pytest.skip(reason)


def compare(seed: int, db: bool = False) -> None:
    bookie = bookie_of(FIRST + seed, db)
    predicted = ours(bookie)
    reason = undefined(bookie, predicted)
    if reason:
        pytest.skip(reason)
    answers = theirs(bookie, predicted)
    if list(differences(predicted, answers)):
        # On a busy machine a client may run into its time-out.
        answers = theirs(bookie, predicted)
        if list(differences(predicted, answers)) and needs_heap(bookie, predicted):
            pytest.skip("whether a large buffer fits into the heap depends on the JVM")
    assert list(differences(predicted, answers)) == [], bookie.damage


@pytest.mark.parametrize("seed", range(0, 11 * SAMPLE, 11))
def test_verdict_on_damaged_bookies_equals_that_of_a_bookie(seed: int) -> None:
    compare(seed)


@needs_rocksdb
@pytest.mark.parametrize("seed", range(0, 11 * SAMPLE_DB, 11))
def test_damaged_bookies_with_rocksdb(seed: int) -> None:
    compare(seed, db=True)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, NIGHTLY, AT_ONCE))
def test_verdict_on_many_damaged_bookies_equals_that_of_a_bookie(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        with contextlib.suppress(pytest.skip.Exception):
            compare(seed)


@needs_rocksdb
@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, NIGHTLY_DB, AT_ONCE))
def test_many_damaged_bookies_with_rocksdb(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        with contextlib.suppress(pytest.skip.Exception):
            compare(seed, db=True)


@pytest.mark.parametrize("name", GOLDEN)
def test_files_after_a_start_and_a_clean_stop_equal_those_of_a_real_bookie(name: str) -> None:
    bookie = golden(name)
    predicted = ours(bookie)
    assert list(differences(predicted, theirs(bookie, predicted))) == []
    assert len(predicted["files"]) >= 6


def repair(seed: int, tmp_path: Path) -> None:
    bookie = bookie_of(FIRST + seed)
    out = tmp_path / f"repaired {seed}"
    lw.repair(str(bookie.place(tmp_path / f"damaged {seed}")), str(out), **bookie.options)
    repaired = replace(bookie, files=files_of(out))
    predicted = ours(repaired)
    actual = theirs(repaired, predicted)
    assert list(differences(predicted, actual)) == [], bookie.damage
    assert "error" not in actual, bookie.damage


@pytest.mark.parametrize("seed", range(3, 3 + 13 * REPAIRED, 13))
def test_bookie_starts_on_a_repaired_one_and_serves_what_we_say(seed: int, tmp_path: Path) -> None:
    repair(seed, tmp_path)
