"""The commit record of an append: what readers make of it, and that no bytes whatever confuse them."""

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


def test_text_and_back() -> None:
    assert parse(JOURNAL.to_json()) == JOURNAL
    assert json.loads(JOURNAL.to_json())["journal"] == 2


def test_nothing_renamed_yet() -> None:
    assert JOURNAL.state(OLD, STAGED) is State.PENDING
    assert JOURNAL.overlay(OLD, STAGED) == {"b.log": "b.log", "a.index": "t1/a.index"}


def test_half_renamed() -> None:
    present = {**OLD, "b.log": 20}
    staged = {"t1/a.index": 8}
    assert JOURNAL.state(present, staged) is State.PENDING
    assert JOURNAL.overlay(present, staged) == {"a.index": "t1/a.index"}


def test_all_renamed_but_not_removed() -> None:
    present = {"a.log": 10, "a.index": 8, "b.log": 20, "old.snapshot": 3}
    journal = Journal(JOURNAL.renames, JOURNAL.sizes, {**OLD, "old.snapshot": 3}, JOURNAL.removes)
    assert journal.state(present, {}) is State.PENDING
    assert journal.overlay(present, {}) == {"old.snapshot": None}


def test_a_file_that_is_removed_and_comes_again() -> None:
    """Removed before the first rename, it is missing until its own."""
    journal = Journal(JOURNAL.renames, JOURNAL.sizes, OLD, ("a.index",))
    assert parse(journal.to_json()) == journal
    for present in (OLD, {"a.log": 10}, {"a.log": 10, "b.log": 20}):
        staged = STAGED if "b.log" not in present else {"t1/a.index": 8}
        assert journal.state(present, staged) is State.PENDING
        assert journal.overlay(present, staged)["a.index"] == "t1/a.index"
    done = {"a.log": 10, "b.log": 20, "a.index": 8}
    assert (journal.state(done, {}), journal.overlay(done, {})) == (State.DONE, {})
    # The new one is gone: that was not us.
    assert journal.state({"a.log": 10, "b.log": 20}, {}) is State.CHANGED


def test_done() -> None:
    present = {"a.log": 10, "a.index": 8, "b.log": 20}
    assert JOURNAL.state(present, {}) is State.DONE
    assert JOURNAL.overlay(present, {}) == {}


@pytest.mark.parametrize(
    ("present", "staged"),
    [
        ({**OLD, "a.log": 11}, STAGED),  # the system appended to what was there
        ({"a.index": 4}, STAGED),  # it removed a file
        ({**OLD, "b.log": 7}, STAGED),  # it made a file of a name that is still to come
        ({**OLD, "b.log": 21}, {"t1/a.index": 8}),  # it changed one that came already
        (OLD, {**STAGED, "b.log": 19}),  # the staged file is not what was committed
    ],
)
def test_changed_since_the_commit(present: dict[str, int], staged: dict[str, int]) -> None:
    assert JOURNAL.state(present, staged) is State.CHANGED
    assert JOURNAL.overlay(present, staged) == {}


def test_files_that_are_none_of_its_own_do_not_matter() -> None:
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
def test_records_that_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(JournalError):
        parse(json.dumps({**json.loads(JOURNAL.to_json()), **change}))


@given(st.one_of(st.binary(max_size=64), st.text(max_size=64)))
def test_any_bytes(data: bytes | str) -> None:
    with pytest.raises(JournalError):
        parse(data)
