"""ZooKeeper's own loading code over logs that no server writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from zookeeper_crafted import CRAFTED
from zookeeper_judged import EXTENDED, ours, theirs, written

from logwright.roundtrip.oracles import zookeeper as oracle

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module", autouse=True)
def _available() -> None:
    reason = oracle.available()
    if reason:
        pytest.skip(reason)


@pytest.mark.parametrize("extended", [False, True], ids=["", "extended"])
@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_logs(name: str, extended: bool, tmp_path: Path) -> None:
    directory = CRAFTED[name]
    said = theirs(written(directory, tmp_path), EXTENDED if extended else {})
    assert ours(directory, extendedTypesEnabled=extended) == said
