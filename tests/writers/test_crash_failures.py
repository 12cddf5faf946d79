"""If any single operation of the file system fails, a directory has the old rows or the new ones, and the error says which."""

from __future__ import annotations

import pytest
from sampling import STEPS
from write_scenarios import SCENARIOS, known_staging, prepare, rows_after_recovery, rows_for_readers

from logwright.codec.fault import LogwrightError, StorageError
from logwright.roundtrip.memory_filesystem import Failure, MemoryFileSystem
from logwright.roundtrip.trust import every_operation

__all__ = ["known_staging"]


@pytest.mark.alike
@STEPS
@pytest.mark.parametrize("failure", [*Failure, None])
@pytest.mark.parametrize("name", SCENARIOS)
def test_any_operation_may_fail(name: str, failure: Failure | None, step: int) -> None:
    clean, act, old, new = prepare(name)

    def judge(files: MemoryFileSystem, raised: BaseException | None, text: str) -> None:
        rows = rows_for_readers(files)
        if raised is None:
            assert rows == new
        else:
            assert rows in (old, new), text
            if isinstance(raised, LogwrightError) and rows == new:
                assert isinstance(raised, StorageError)
                assert "the rows are committed" in str(raised)
            if isinstance(raised, LogwrightError):
                assert raised.path
        # If removing a staging directory failed, it is left alone until its process has ended.
        assert rows_after_recovery(files.fork()) == rows

    assert every_operation(clean, act, judge, failures=[failure], step=step).failures > 20 // step
