"""Rebuild: what is derived is made anew, from sound primary files only."""

from __future__ import annotations

from pathlib import Path

import pytest
from mending_shelf import DAMAGED, SALVAGED, found, ids, mending, put

import logwright as lw

__all__ = ["mending"]
pytestmark = pytest.mark.usefixtures("mending")

WRONG = {**SALVAGED, "000.ids": ids(7, 7), "009.ids": ids(9)}
del WRONG["007.ids"]


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    return put(tmp_path / "shelf", WRONG)


def test_beside(shelf: Path, tmp_path: Path) -> None:
    report = lw.rebuild(shelf, tmp_path / "out")
    assert found(tmp_path / "out") == SALVAGED
    assert found(shelf) == WRONG
    assert not report.incomplete
    assert report["cut"] == []
    assert report["rows"] == 8
    assert report.text().splitlines()[-1].strip().startswith("logwright verify")


def test_in_place_only_what_was_wrong_is_touched(shelf: Path, tmp_path: Path) -> None:
    before = {one.name: one.stat().st_ino for one in shelf.iterdir()}
    report = lw.rebuild(shelf, in_place=True, backup=tmp_path / "backup")
    assert found(shelf) == SALVAGED
    after = {one.name: one.stat().st_ino for one in shelf.iterdir()}
    assert {name for name in after if after[name] != before.get(name)} == {"000.ids", "007.ids"}
    assert set(found(tmp_path / "backup")) == {"000.ids", "009.ids", "backup.json"}
    assert "made: 007.ids" in report.text()
    # Where files are only added there is nothing to be saved.
    (shelf / "003.ids").unlink()
    lw.rebuild(shelf, in_place=True, backup=tmp_path / "other")
    assert found(shelf) == SALVAGED
    assert not (tmp_path / "other").exists()


def test_damaged_primaries_are_refused(tmp_path: Path) -> None:
    shelf = put(tmp_path / "shelf", DAMAGED)
    for words in (
        {"out": tmp_path / "out"},
        {"dry_run": True},
        {"in_place": True, "backup": tmp_path / "backup"},
    ):
        with pytest.raises(lw.DamageError, match=r"003\.toy.*checksum mismatch"):
            lw.rebuild(shelf, **words)
    assert found(tmp_path) == {f"shelf/{name}": data for name, data in DAMAGED.items()}


def test_what_is_to_be_rebuilt(shelf: Path, tmp_path: Path) -> None:
    lw.rebuild(shelf, tmp_path / "a", what="ids, nothing")
    lw.rebuild(shelf, tmp_path / "b", what=["IDS"])
    assert found(tmp_path / "a") == found(tmp_path / "b") == SALVAGED
    lw.rebuild(shelf, tmp_path / "c", what="nothing")
    assert found(tmp_path / "c")["000.ids"] == WRONG["000.ids"]
    with pytest.raises(lw.UsageError, match="Did you mean 'ids'"):
        lw.rebuild(shelf, tmp_path / "d", what="idx")
    with pytest.raises(lw.UsageError, match="There are: ids, nothing"):
        lw.rebuild(shelf, tmp_path / "d", what=" , ")
    report = lw.rebuild(shelf, dry_run=True)
    assert "would be changed: 000.ids" in report.text()


def test_a_directory_and_only_one(shelf: Path, tmp_path: Path) -> None:
    with pytest.raises(lw.UsageError, match="a directory is rebuilt"):
        lw.rebuild(shelf / "000.toy", tmp_path / "out")
    other = put(tmp_path / "other", SALVAGED)
    with pytest.raises(lw.UsageError, match="one directory"):
        lw.rebuild([shelf, other], tmp_path / "out")
    with pytest.raises(lw.UsageError, match="not said where"):
        lw.rebuild(shelf)


def test_all_is_a_word_for_all(shelf: Path, tmp_path: Path) -> None:
    lw.rebuild(shelf, tmp_path / "out", what="all")
    assert found(tmp_path / "out") == SALVAGED
