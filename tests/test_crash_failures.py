"""Any single operation of the file system fails once: a directory is the old one or the new one, and the error says which."""

from __future__ import annotations

import pytest
from boxes import SCENARIOS, known_staging, prepared, seen, settled

from logwright.codec.fault import LogwrightError, StorageError
from logwright.roundtrip.memory_filesystem import Failure, Interrupted

__all__ = ["known_staging"]


@pytest.mark.parametrize("failure", [*Failure, None])
@pytest.mark.parametrize("name", SCENARIOS)
def test_any_operation_may_fail(name: str, failure: Failure | None) -> None:
    clean, act, old, new = prepared(name)
    at = 0
    while True:
        files = clean.fork()
        files.fail(at, failure)
        raised: BaseException | None = None
        try:
            act(files)
        except (LogwrightError, Interrupted) as error:
            raised = error
        if files.ticks <= at:
            break
        files.fail(-1)
        rows = seen(files)
        if raised is None:
            assert rows == new
        else:
            assert rows in (old, new), f"operation {at}"
            if isinstance(raised, LogwrightError) and rows == new:
                assert isinstance(raised, StorageError)
                assert "the rows are committed" in str(raised)
            if isinstance(raised, LogwrightError):
                assert raised.path
        # A staging directory whose own removal failed is left alone until its process has ended.
        assert settled(files.fork()) == rows
        at += 1
    assert at > 20
