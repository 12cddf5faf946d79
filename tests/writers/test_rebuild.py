"""Rebuild: derived files are created again, from sound primary files only."""

from __future__ import annotations

from pathlib import Path

import pytest
from repairable_store import DAMAGED, SALVAGED, ids, read_files, write_files

import logwright as lw

pytestmark = pytest.mark.usefixtures("repairable_store")

WRONG = {**SALVAGED, "000.ids": ids(7, 7), "009.ids": ids(9)}
del WRONG["007.ids"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_files(tmp_path / "store", WRONG)


def test_rebuild_writes_a_copy_and_leaves_its_input_unchanged(store: Path, tmp_path: Path) -> None:
    report = lw.rebuild(store, tmp_path / "out")
    assert read_files(tmp_path / "out") == SALVAGED
    assert read_files(store) == WRONG
    assert not report.incomplete
    assert report["cut"] == []
    assert report["rows"] == 8
    assert report.text().splitlines()[-1].strip().startswith("logwright verify")


def test_rebuild_in_place_changes_only_wrong_files(store: Path, tmp_path: Path) -> None:
    before = {path.name: path.stat().st_ino for path in store.iterdir()}
    report = lw.rebuild(store, in_place=True, backup=tmp_path / "backup")
    assert read_files(store) == SALVAGED
    after = {path.name: path.stat().st_ino for path in store.iterdir()}
    assert {name for name in after if after[name] != before.get(name)} == {"000.ids", "007.ids"}
    assert set(read_files(tmp_path / "backup")) == {"000.ids", "009.ids", "backup.json"}
    assert "new files: 007.ids" in report.text()
    # If files are only added, no backup is needed.
    (store / "003.ids").unlink()
    lw.rebuild(store, in_place=True, backup=tmp_path / "other")
    assert read_files(store) == SALVAGED
    assert not (tmp_path / "other").exists()


def test_damaged_primary_files_are_refused(tmp_path: Path) -> None:
    store = write_files(tmp_path / "store", DAMAGED)
    for words in (
        {"out": tmp_path / "out"},
        {"dry_run": True},
        {"in_place": True, "backup": tmp_path / "backup"},
    ):
        with pytest.raises(lw.DamageError, match=r"003\.toy.*checksum mismatch"):
            lw.rebuild(store, **words)
    assert read_files(tmp_path) == {f"store/{name}": data for name, data in DAMAGED.items()}


def test_what_selects_the_kinds_of_derived_files(store: Path, tmp_path: Path) -> None:
    lw.rebuild(store, tmp_path / "a", what="ids, nothing")
    lw.rebuild(store, tmp_path / "b", what=["IDS"])
    assert read_files(tmp_path / "a") == read_files(tmp_path / "b") == SALVAGED
    lw.rebuild(store, tmp_path / "c", what="nothing")
    assert read_files(tmp_path / "c")["000.ids"] == WRONG["000.ids"]
    with pytest.raises(lw.UsageError, match="Did you mean 'ids'"):
        lw.rebuild(store, tmp_path / "d", what="idx")
    with pytest.raises(lw.UsageError, match="Valid values: ids, nothing"):
        lw.rebuild(store, tmp_path / "d", what=" , ")
    report = lw.rebuild(store, dry_run=True)
    assert "would change files: 000.ids" in report.text()


def test_exactly_one_directory_is_accepted(store: Path, tmp_path: Path) -> None:
    with pytest.raises(lw.UsageError, match="only a directory can be rebuilt"):
        lw.rebuild(store / "000.toy", tmp_path / "out")
    other = write_files(tmp_path / "other", SALVAGED)
    with pytest.raises(lw.UsageError, match="one directory"):
        lw.rebuild([store, other], tmp_path / "out")
    with pytest.raises(lw.UsageError, match="no destination"):
        lw.rebuild(store)


def test_all_selects_every_kind(store: Path, tmp_path: Path) -> None:
    lw.rebuild(store, tmp_path / "out", what="all")
    assert read_files(tmp_path / "out") == SALVAGED
