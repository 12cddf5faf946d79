"""Every failure and every crash of writes to a store with sub-folders, in one root or in two (`roundtrip.trust`)."""

from __future__ import annotations

import pytest
import queue_store as stores

from logwright.roundtrip import trust
from logwright.roundtrip.sample import DirectorySample

queue_store = stores.queue_store
DIRECTORY_SAMPLES = {"one root": stores.BOX, "two roots": stores.TWO_ROOTS}


SAMPLE = [pytest.param(stores.TWO_ROOTS, "append", id="two roots, append")]
REST = [
    pytest.param(box, way, id=f"{name}, {way}", marks=pytest.mark.extended)
    for name, box in DIRECTORY_SAMPLES.items()
    for way in ("new", "append", "overwrite", "append by tasks")
    if (name, way) != ("two roots", "append")
]


@pytest.mark.parametrize(("box", "way"), [*SAMPLE, *REST])
def test_crash_leaves_the_old_or_the_new_rows(
    box: DirectorySample, way: str, queue_store: stores.QueueStore
) -> None:
    figures = trust.writing_directory(box, [way])
    assert figures.failures > 100
    assert figures.crashes > 100


@pytest.mark.nightly
@pytest.mark.parametrize("box", DIRECTORY_SAMPLES.values(), ids=DIRECTORY_SAMPLES)
def test_every_kind_of_write(box: DirectorySample, queue_store: stores.QueueStore) -> None:
    assert trust.writing_directory(box).crashes > 2000
