"""ZooKeeper's own loading code over logs that no server writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from zookeeper_crafted import CRAFTED
from zookeeper_judged import ours, properties, theirs, written

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
    options = {"extendedTypesEnabled": True} if extended else {}
    said = theirs(written(directory, tmp_path), properties(options))
    assert ours(directory, **options) == said
