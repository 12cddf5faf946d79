"""The commit record of an append: how readers interpret it, and that arbitrary bytes are refused cleanly."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logwright.readers.journal import Journal, JournalError, State, parse

OLD = {"a.log": 10, "a.index": 4}
JOURNAL = Journal(
    renames=(("b.log", "b.log"), ("t1/a.index", "a.index")),
    sizes={"b.log": 20, "a.index": 8},
    fingerprint=OLD,
    removes=("old.snapshot",),
)
STAGED = {"b.log": 20, "t1/a.index": 8, "commit.json": 99}


def test_record_round_trips_as_text() -> None:
    assert parse(JOURNAL.to_json()) == JOURNAL
    assert json.loads(JOURNAL.to_json())["journal"] == 2


def test_commit_without_a_rename_is_pending() -> None:
    assert JOURNAL.state(OLD, STAGED) is State.PENDING
    assert JOURNAL.overlay(OLD, STAGED) == {"b.log": "b.log", "a.index": "t1/a.index"}


def test_commit_with_some_renames_is_pending_for_the_rest() -> None:
    present = {**OLD, "b.log": 20}
    staged = {"t1/a.index": 8}
    assert JOURNAL.state(present, staged) is State.PENDING
    assert JOURNAL.overlay(present, staged) == {"a.index": "t1/a.index"}


def test_all_renamed_but_record_not_removed() -> None:
    present = {"a.log": 10, "a.index": 8, "b.log": 20, "old.snapshot": 3}
    journal = Journal(JOURNAL.renames, JOURNAL.sizes, {**OLD, "old.snapshot": 3}, JOURNAL.removes)
    assert journal.state(present, {}) is State.PENDING
    assert journal.overlay(present, {}) == {"old.snapshot": None}


def test_file_that_is_removed_and_written_again() -> None:
    """It is missing from its removal, before the first rename, until its own rename."""
    journal = Journal(JOURNAL.renames, JOURNAL.sizes, OLD, ("a.index",))
    assert parse(journal.to_json()) == journal
    for present in (OLD, {"a.log": 10}, {"a.log": 10, "b.log": 20}):
        staged = STAGED if "b.log" not in present else {"t1/a.index": 8}
        assert journal.state(present, staged) is State.PENDING
        assert journal.overlay(present, staged)["a.index"] == "t1/a.index"
    done = {"a.log": 10, "b.log": 20, "a.index": 8}
    assert (journal.state(done, {}), journal.overlay(done, {})) == (State.DONE, {})
    # The new file is gone: the commit does not do that.
    assert journal.state({"a.log": 10, "b.log": 20}, {}) is State.CHANGED


def test_commit_with_all_renames_is_done() -> None:
    present = {"a.log": 10, "a.index": 8, "b.log": 20}
    assert JOURNAL.state(present, {}) is State.DONE
    assert JOURNAL.overlay(present, {}) == {}


@pytest.mark.parametrize(
    ("present", "staged"),
    [
        ({**OLD, "a.log": 11}, STAGED),  # The system appended to an existing file.
        ({"a.index": 4}, STAGED),  # It removed a file.
        ({**OLD, "b.log": 7}, STAGED),  # It created a file whose rename is pending.
        ({**OLD, "b.log": 21}, {"t1/a.index": 8}),  # It changed a renamed file.
        (OLD, {**STAGED, "b.log": 19}),  # The staged file is not the committed one.
    ],
)
def test_changes_after_the_commit_are_detected(present: dict[str, int], staged: dict[str, int]) -> None:
    assert JOURNAL.state(present, staged) is State.CHANGED
    assert JOURNAL.overlay(present, staged) == {}


def test_unrelated_files_do_not_matter() -> None:
    assert JOURNAL.state({**OLD, "README": 5}, STAGED) is State.PENDING


@pytest.mark.parametrize(
    "change",
    [
        {"journal": 1},
        {"journal": 3},
        {"renames": "b.log"},
        {"renames": [["b.log"]]},
        {"renames": [["b.log", "../b.log"]]},
        {"renames": [["../../etc/passwd", "b.log"]]},
        {"renames": [["b.log", "b.log"], ["x", ".."]]},
        {"sizes": {"b.log": -1, "a.index": 8}},
        {"sizes": {"b.log": True, "a.index": 8}},
        {"sizes": {"b.log": 20}},
        {"fingerprint": {"a/../b": 1}},
        {"roots": {"a/b": "/c"}},
        {"roots": {"a": "c"}},
        {"barrier": "a/b"},
        {"fingerprint": None},
        {"removes": ["/etc/passwd"]},
        {"removes": [""]},
    ],
)
def test_invalid_records_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(JournalError):
        parse(json.dumps({**json.loads(JOURNAL.to_json()), **change}))


@given(st.one_of(st.binary(max_size=64), st.text(max_size=64)))
def test_arbitrary_bytes_are_refused(data: bytes | str) -> None:
    with pytest.raises(JournalError):
        parse(data)
