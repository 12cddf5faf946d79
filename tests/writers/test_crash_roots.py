"""Every failure and every crash of writes to a store with sub-folders, in one root or in two (`roundtrip.trust`)."""

from __future__ import annotations

import pytest
import queue_store as stores

from logwright.roundtrip import trust
from logwright.roundtrip.sample import DirectorySample

queue_store = stores.queue_store
DIRECTORY_SAMPLES = {"one root": stores.BOX, "two roots": stores.TWO_ROOTS}


def test_append_to_two_roots_survives_failures_and_crashes_at_some_operations(
    queue_store: stores.QueueStore,
) -> None:
    figures = trust.writing_directory(stores.TWO_ROOTS, ["append"], step=7)
    assert figures.failures > 14
    assert figures.crashes > 14


@pytest.mark.extended
@pytest.mark.parametrize("way", ["new", "append", "overwrite", "append by tasks"])
@pytest.mark.parametrize("box", DIRECTORY_SAMPLES.values(), ids=DIRECTORY_SAMPLES)
def test_crash_leaves_the_old_or_the_new_rows(
    box: DirectorySample, way: str, queue_store: stores.QueueStore
) -> None:
    """At every third operation. `make nightly` tries all of them, in all ways."""
    figures = trust.writing_directory(box, [way], step=3)
    assert figures.failures > 33
    assert figures.crashes > 33


@pytest.mark.nightly
@pytest.mark.parametrize("box", DIRECTORY_SAMPLES.values(), ids=DIRECTORY_SAMPLES)
def test_every_kind_of_write(box: DirectorySample, queue_store: stores.QueueStore) -> None:
    assert trust.writing_directory(box).crashes > 2000
