"""Repair of a directory: out of place and in place, what is kept and cut, and everything that is refused."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from mending_shelf import (
    DAMAGED,
    FRAMES,
    LAYOUT,
    PREFIX,
    SALVAGED,
    SIZE,
    MendingShelf,
    broken,
    found,
    ids,
    joined,
    mending,
    put,
)

import logwright as lw
from logwright.codec.engine.repair import OutputFile
from logwright.codec.fault import UnreadableError
from logwright.codec.store.extents import Copy
from logwright.readers.journal import COMMIT, Journal

__all__ = ["mending"]
pytestmark = pytest.mark.usefixtures("mending")


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    return put(tmp_path / "data" / "shelf", DAMAGED)


# Out of place


def test_every_undamaged_frame_is_kept(shelf: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "shelf"
    report = lw.repair(shelf, out)
    assert found(out) == SALVAGED
    assert found(shelf) == DAMAGED
    assert [one.name for one in out.parent.iterdir()] == ["shelf"]
    assert lw.verify(out).ok
    assert not report.ok
    assert report.incomplete
    assert report["rows"] == 8
    assert report["cut"] == [
        {
            "file": "003.toy", "offset": SIZE, "length": SIZE, "saved_to": str(shelf / "003.toy"), "why": "checksum mismatch",
            "rows_lost": None, "lost": {},
        }
    ]  # fmt: skip
    assert report["kept"] == [
        {"file": "000.toy", "offset": 0, "length": 3 * SIZE},
        {"file": "003.toy", "offset": 0, "length": SIZE},
        {"file": "003.toy", "offset": 2 * SIZE, "length": 2 * SIZE},
        {"file": "007.toy", "offset": 0, "length": 2 * SIZE},
    ]
    text = report.text()
    assert "before you start toy: dust it" in text
    assert text.splitlines()[-1].strip().startswith(f"logwright verify {out}")
    json.dumps(report.to_dict())


def test_all_before_the_first_damage(shelf: Path, tmp_path: Path) -> None:
    report = lw.repair(shelf, tmp_path / "shelf", strategy="PREFIX")
    assert found(tmp_path / "shelf") == PREFIX
    assert [one["file"] for one in report["cut"]] == ["003.toy", "007.toy"]
    with pytest.raises(lw.UsageError, match="Did you mean 'prefix'"):
        lw.repair(shelf, tmp_path / "other", strategy="prefixes")


def test_options_go_to_the_layout_and_to_reading(shelf: Path, tmp_path: Path) -> None:
    lw.repair(shelf, tmp_path / "shelf", drop_readme=True, from_id=3)
    assert "README" not in found(tmp_path / "shelf")
    with pytest.raises(lw.UsageError, match=r"drop\.readme"):
        lw.repair(shelf, tmp_path / "other", drop_raedme=True)


def test_modes_and_times_come_along(shelf: Path, tmp_path: Path) -> None:
    shelf.chmod(0o750)
    for name, mode in (("000.toy", 0o640), ("003.toy", 0o604), ("000.ids", 0o600)):
        (shelf / name).chmod(mode)
        os.utime(shelf / name, ns=(1, 1_500_000_000_000_000_001))
    out = tmp_path / "out"
    lw.repair(shelf, out)
    modes = {one.name: one.stat().st_mode & 0o777 for one in out.iterdir()}
    assert out.stat().st_mode & 0o777 == 0o750
    assert (modes["000.toy"], modes["003.toy"], modes["000.ids"]) == (0o640, 0o604, 0o600)
    # A file that is not of the first copy has what the primary ones have.
    assert modes["007.ids"] == 0o640
    times = {one.name: one.stat().st_mtime_ns == 1_500_000_000_000_000_001 for one in out.iterdir()}
    assert (times["000.toy"], times["000.ids"], times["003.toy"]) == (True, True, False)


def test_into_an_empty_directory_and_no_other(shelf: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    lw.repair(shelf, tmp_path / "empty")
    assert found(tmp_path / "empty") == SALVAGED
    with pytest.raises(lw.ExistsError, match="not empty"):
        lw.repair(shelf, tmp_path / "empty")
    for out in (shelf, shelf / "inside"):
        with pytest.raises(lw.LogwrightError, match="into the directory that it is made from"):
            lw.repair(shelf, out)
    assert found(shelf) == DAMAGED


def test_a_dry_run_writes_nothing(shelf: Path, tmp_path: Path) -> None:
    report = lw.repair(shelf, dry_run=True)
    assert report.incomplete
    assert len(report["cut"]) == 1
    text = report.text()
    assert "would be changed: 003.toy, 003.ids" in text
    assert "would be made: 007.ids" in text
    assert "would be removed: 009.ids" in text
    assert found(tmp_path) == {f"data/shelf/{name}": data for name, data in DAMAGED.items()}


def test_where_to_is_asked_for_clearly(shelf: Path, tmp_path: Path) -> None:
    out, backup = tmp_path / "out", tmp_path / "backup"
    with pytest.raises(lw.UsageError, match="not said where"):
        lw.repair(shelf)
    with pytest.raises(lw.UsageError, match="not both"):
        lw.repair(shelf, out, in_place=True, backup=backup)
    with pytest.raises(lw.UsageError, match="needs a backup"):
        lw.repair(shelf, in_place=True)
    with pytest.raises(lw.UsageError, match="in place"):
        lw.repair(shelf, out, backup=backup)
    with pytest.raises(lw.UsageError, match="only local"):
        lw.repair(shelf, "s3://bucket/out")
    with pytest.raises(lw.NotFoundError):
        lw.repair(tmp_path / "nothing", out)
    assert found(shelf) == DAMAGED
    assert not out.exists()


def test_a_layout_that_has_no_repair_says_so(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shelf import FRAMES_CODEC, Shelf, ToyNote

    from logwright.codec import registry

    known = ({"toy.frames": FRAMES_CODEC, "toy.note": ToyNote()}, {"toy.shelf": Shelf()})
    monkeypatch.setattr(registry, "_all", lambda: known)
    with pytest.raises(lw.UsageError, match="can't be repaired"):
        lw.repair(shelf, tmp_path / "out")


def test_a_result_that_is_not_sound_is_not_written(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = MendingShelf.repair

    def careless(self, copies, plans, strategy, options):  # type: ignore[no-untyped-def]
        mending = plain(self, copies, plans, strategy, options)
        mending.mended = [
            OutputFile(one.name, [Copy("003.toy", 0, 4 * SIZE)]) if one.name == "003.toy" else one
            for one in mending.mended
        ]
        return mending

    monkeypatch.setattr(MendingShelf, "repair", careless)
    with pytest.raises(lw.DamageError, match=r"not be sound.*003\.toy at byte"):
        lw.repair(shelf, tmp_path / "out")
    with pytest.raises(lw.DamageError, match=r"not be sound.*003\.toy at byte"):
        lw.repair(shelf, in_place=True, backup=tmp_path / "backup")
    assert found(tmp_path) == {f"data/shelf/{name}": data for name, data in DAMAGED.items()}
    assert not (tmp_path / "backup").exists()
    # What the system itself would leave may well be damaged.
    report = lw.repair(shelf, tmp_path / "out", strategy="system")
    assert f"still: 003.toy at {SIZE}, checksum mismatch" in report.text()
    assert found(tmp_path / "out")["003.toy"] == DAMAGED["003.toy"]


def test_what_was_not_there_before_keeps_nothing_from_being_mended(shelf: Path, tmp_path: Path) -> None:
    (shelf / "NOTE").unlink()
    assert "still: NOTE at 0, missing link" in lw.repair(shelf, tmp_path / "out").text()
    assert found(tmp_path / "out") == {name: data for name, data in SALVAGED.items() if name != "NOTE"}


# In place


def test_in_place_nothing_else_is_touched(shelf: Path, tmp_path: Path) -> None:
    (shelf / "003.toy").chmod(0o640)
    before = {one.name: (one.stat().st_ino, one.stat().st_mtime_ns) for one in shelf.iterdir()}
    backup = tmp_path / "backup"
    report = lw.repair(shelf, in_place=True, backup=backup)
    assert found(shelf) == SALVAGED
    after = {one.name: (one.stat().st_ino, one.stat().st_mtime_ns) for one in shelf.iterdir()}
    same = {name for name in before if before[name] == after.get(name)}
    assert same == {"000.toy", "000.ids", "007.toy", "NOTE", "README"}
    assert (shelf / "003.toy").stat().st_mode & 0o777 == 0o640
    saved = found(backup)
    said = json.loads(saved.pop("backup.json"))
    assert saved == {name: DAMAGED[name] for name in ("003.toy", "003.ids", "009.ids")}
    assert said["of"] == str(shelf)
    assert said["files"]["003.toy"]["sha256"] == hashlib.sha256(DAMAGED["003.toy"]).hexdigest()
    assert said["cut"] == [{"file": "003.toy", "offset": SIZE, "length": SIZE, "why": "checksum mismatch"}]
    assert (backup / "003.toy").stat().st_mode & 0o777 == 0o640
    cut = report["cut"][0]
    with open(cut["saved_to"], "rb") as file:
        file.seek(cut["offset"])
        assert file.read(cut["length"]) == broken(
            FRAMES[4], SIZE - SIZE + len(FRAMES[4]) - len(b"text 4") - 1
        )
    assert f"the originals are in {backup}" in report.text()


def test_what_is_sound_stays_as_it_is(tmp_path: Path) -> None:
    shelf = put(tmp_path / "shelf", SALVAGED)
    report = lw.repair(shelf, in_place=True, backup=tmp_path / "backup")
    assert not report.incomplete
    assert "nothing needed to be changed" in report.text()
    assert found(shelf) == SALVAGED
    assert not (tmp_path / "backup").exists()
    assert "nothing needs to be changed" in lw.repair(shelf, dry_run=True).text()


def test_the_backup_lies_elsewhere(shelf: Path, tmp_path: Path) -> None:
    for backup in (shelf, shelf / "backup", tmp_path):
        with pytest.raises(lw.UsageError, match="outside"):
            lw.repair(shelf, in_place=True, backup=backup)
    # The lock file shows a data directory of the system, which looks at all that is in it.
    (shelf.parent / ".lock").touch()
    with pytest.raises(lw.UsageError, match="outside"):
        lw.repair(shelf, in_place=True, backup=shelf.parent / "backup")
    with pytest.raises(lw.UsageError, match="data directory of toy"):
        lw.repair(shelf, shelf.parent / "other")
    full = put(tmp_path / "full", {"a": b""})
    with pytest.raises(lw.ExistsError, match="not empty"):
        lw.repair(shelf, in_place=True, backup=full)
    with pytest.raises(lw.ExistsError, match="is a file"):
        lw.repair(shelf, in_place=True, backup=full / "a")
    assert found(shelf) == DAMAGED
    (tmp_path / "empty").mkdir()
    lw.repair(shelf, in_place=True, backup=tmp_path / "empty")
    assert found(shelf) == SALVAGED
    # It holds what may be missed now.
    (shelf / "000.ids").write_bytes(b"")
    with pytest.raises(lw.ExistsError, match="not empty"):
        lw.repair(shelf, in_place=True, backup=tmp_path / "empty")


def test_a_backup_that_was_not_needed_is_made_again(shelf: Path, tmp_path: Path) -> None:
    """A run that was killed between the backup and the commit leaves a complete one with its lock file."""
    other = put(tmp_path / "other" / "shelf", DAMAGED)
    lw.repair(other, in_place=True, backup=tmp_path / "backup")
    said = json.loads((tmp_path / "backup" / "backup.json").read_text())
    (tmp_path / "backup" / "backup.json").write_text(json.dumps({**said, "of": str(shelf)}))
    (tmp_path / "backup" / "backup.lock").touch()
    lw.repair(shelf, in_place=True, backup=tmp_path / "backup")
    assert found(shelf) == SALVAGED
    assert not (tmp_path / "backup" / "backup.lock").exists()
    # Had the originals been changed since, then it is all there is of them.
    (tmp_path / "backup" / "backup.lock").touch()
    (shelf / "000.ids").write_bytes(b"")
    with pytest.raises(lw.ExistsError, match="not empty"):
        lw.repair(shelf, in_place=True, backup=tmp_path / "backup")


# Left alone


def test_a_running_system_is_left_alone(shelf: Path, tmp_path: Path) -> None:
    lock = shelf.parent / ".lock"
    lock.touch()
    code = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); sys.stdin.read()"
    import subprocess
    import sys

    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        for words in ({"out": tmp_path / "out"}, {"in_place": True, "backup": tmp_path / "backup"}):
            with pytest.raises(
                lw.BusyError, match=r"running on this directory.*Stop it first, or make a copy"
            ):
                lw.repair(shelf, **words)
            with pytest.raises(lw.BusyError):
                lw.rebuild(shelf, **words)
        with pytest.raises(lw.BusyError):
            lw.repair(shelf / "003.toy", tmp_path / "out.toy")
        assert "running" in lw.repair(shelf, dry_run=True).text()
    finally:
        holder.communicate()
    assert found(shelf) == DAMAGED
    assert not (tmp_path / "out").exists()


def test_another_writer_is_left_alone(shelf: Path, tmp_path: Path) -> None:
    (shelf / ".shelf").mkdir()
    with open(shelf / ".shelf" / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(lw.BusyError, match="another logwright"):
            lw.repair(shelf, tmp_path / "out")
        with pytest.raises(lw.BusyError, match="another logwright"):
            lw.repair(shelf, in_place=True, backup=tmp_path / "backup")
    lw.repair(shelf, tmp_path / "out")
    assert found(tmp_path / "out") == SALVAGED


def test_what_was_committed_but_not_finished_counts(shelf: Path, tmp_path: Path) -> None:
    sizes = {name: len(data) for name, data in DAMAGED.items()}
    place = put(shelf / ".shelf" / ("ab" * 16), {"009.toy": joined(9, 10)})
    record = Journal((("009.toy", "009.toy"),), {"009.toy": len(joined(9, 10))}, sizes)
    (place / COMMIT).write_text(record.to_json())
    whole = {**SALVAGED, "009.toy": joined(9, 10), "009.ids": ids(9, 10)}
    kept = found(shelf)
    lw.repair(shelf, tmp_path / "out")
    assert found(tmp_path / "out") == whole
    assert found(shelf) == kept
    lw.repair(shelf, in_place=True, backup=tmp_path / "backup")
    assert found(shelf) == whole


def test_an_input_that_changes_is_noticed(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = MendingShelf.repair

    def meanwhile(self, *given):  # type: ignore[no-untyped-def]
        mending = plain(self, *given)
        with open(shelf / "007.toy", "ab") as file:
            file.write(FRAMES[9])
        return mending

    monkeypatch.setattr(MendingShelf, "repair", meanwhile)
    with pytest.raises(lw.BusyError, match=r"007\.toy has been changed"):
        lw.repair(shelf, tmp_path / "out")
    with pytest.raises(lw.BusyError, match="changed by someone else"):
        lw.repair(shelf, in_place=True, backup=tmp_path / "backup")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "backup").exists()


# Replicas


def test_each_frame_is_taken_from_whichever_copy_is_sound(tmp_path: Path) -> None:
    one = put(tmp_path / "a" / "shelf", DAMAGED)
    other = put(tmp_path / "b" / "shelf", {**DAMAGED, "003.toy": broken(joined(3, 4, 5, 6), 3 * SIZE - 1)})
    report = lw.repair([one, other], tmp_path / "out")
    assert found(tmp_path / "out")["003.toy"] == joined(3, 4, 5, 6)
    assert not report.incomplete
    assert [(k["offset"], k["length"], k["copy"]) for k in report["kept"] if k["file"] == "003.toy"] == [
        (0, SIZE, str(one)),
        (SIZE, SIZE, str(other)),
        (2 * SIZE, 2 * SIZE, str(one)),
    ]
    assert f"replica {other}: 1 fault" in report.text()
    lw.repair([one, other], in_place=True, backup=tmp_path / "backup")
    assert found(one)["003.toy"] == joined(3, 4, 5, 6)
    assert found(other)["003.toy"] != joined(3, 4, 5, 6)
    assert set(found(tmp_path / "backup")) == {"003.toy", "009.ids", "backup.json"}


def test_copies_that_diverged_are_refused(tmp_path: Path) -> None:
    from shelf import frame

    one = put(tmp_path / "a" / "shelf", DAMAGED)
    other = put(tmp_path / "b" / "shelf", {**DAMAGED, "007.toy": frame(7, b"other!") + FRAMES[8]})
    with pytest.raises(lw.UsageError, match="diverged"):
        lw.repair([one, other], tmp_path / "out")
    with pytest.raises(lw.UsageError, match="twice"):
        lw.repair([one, one], tmp_path / "out")
    with pytest.raises(lw.UsageError, match="replicas"):
        lw.repair([one, other / "000.toy"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


# One file


def test_one_file_keeps_its_good_frames(shelf: Path, tmp_path: Path) -> None:
    out = tmp_path / "new.toy"
    (shelf / "003.toy").chmod(0o640)
    report = lw.repair(shelf / "003.toy", out)
    assert out.read_bytes() == joined(3, 5, 6)
    assert out.stat().st_mode & 0o777 == 0o640
    assert report.incomplete
    assert report["rows"] == 3
    assert [(one["offset"], one["length"]) for one in report["cut"]] == [(SIZE, SIZE)]
    assert [(one["offset"], one["length"]) for one in report["kept"]] == [(0, SIZE), (2 * SIZE, 2 * SIZE)]
    report = lw.repair(shelf / "003.toy", tmp_path / "less.toy", strategy="prefix")
    assert (tmp_path / "less.toy").read_bytes() == joined(3)
    assert [(one["offset"], one["length"]) for one in report["cut"]] == [(SIZE, 3 * SIZE)]
    with pytest.raises(lw.ExistsError):
        lw.repair(shelf / "003.toy", out)
    with pytest.raises(lw.UsageError, match="strategy"):
        lw.repair(shelf / "003.toy", tmp_path / "other.toy", strategy="system")
    with pytest.raises(lw.UsageError, match="one file"):
        lw.repair([shelf / "003.toy", shelf / "000.toy"], tmp_path / "other.toy")
    with pytest.raises(lw.UsageError, match="where it is made from"):
        lw.repair(shelf / "003.toy", shelf / "003.toy")
    assert found(shelf) == DAMAGED


def test_one_file_in_place(shelf: Path, tmp_path: Path) -> None:
    assert "would be cut" in lw.repair(shelf / "003.toy", dry_run=True).text()
    with pytest.raises(lw.UsageError, match="outside"):
        lw.repair(shelf / "003.toy", in_place=True, backup=shelf / "backup")
    report = lw.repair(shelf / "003.toy", in_place=True, backup=tmp_path / "backup")
    assert found(shelf) == {**DAMAGED, "003.toy": joined(3, 5, 6)}
    assert (tmp_path / "backup" / "003.toy").read_bytes() == DAMAGED["003.toy"]
    assert report["cut"][0]["saved_to"] == str(tmp_path / "backup" / "003.toy")
    assert "derived" in report.text()
    report = lw.repair(shelf / "003.toy", in_place=True, backup=tmp_path / "other")
    assert "nothing needed to be cut" in report.text()
    assert not report.incomplete
    assert not (tmp_path / "other").exists()


def test_what_is_no_damage_stays(tmp_path: Path) -> None:
    data = joined(0, 1) + bytes(100)
    path = tmp_path / "000.toy"
    path.write_bytes(data)
    assert not lw.repair(path, tmp_path / "out.toy").incomplete
    assert (tmp_path / "out.toy").read_bytes() == data
    torn = tmp_path / "torn.toy"
    torn.write_bytes(joined(0, 1)[:-3])
    lw.repair(torn, tmp_path / "whole.toy")
    assert (tmp_path / "whole.toy").read_bytes() == joined(0)


def test_a_file_that_is_one_frame_is_good_or_not(tmp_path: Path) -> None:
    (tmp_path / "NOTE").write_bytes(b"nothing")
    with pytest.raises(lw.DamageError, match="as a whole or not at all"):
        lw.repair(tmp_path / "NOTE", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "NOTE").write_bytes(b"note:good")
    lw.repair(tmp_path / "NOTE", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"note:good"


def test_the_toy_is_what_these_tests_take_it_for() -> None:
    assert LAYOUT.capabilities.repair is not None


# What layouts and machines may do wrong


def test_a_layout_that_contradicts_itself_is_found_out(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = MendingShelf.repair

    def twice(self, *given):  # type: ignore[no-untyped-def]
        mending = plain(self, *given)
        mending.mended.append(mending.mended[0])
        return mending

    def outside(self, *given):  # type: ignore[no-untyped-def]
        mending = plain(self, *given)
        mending.mended.append(OutputFile("../x", [b""]))
        return mending

    def too_much(self, *given):  # type: ignore[no-untyped-def]
        mending = plain(self, *given)
        mending.mended[0] = OutputFile("000.toy", [Copy("000.toy", 0, 10 * SIZE)])
        return mending

    for wrong, words in (
        (twice, "twice"),
        (outside, "can't be one"),
        (too_much, "shorter"),
    ):
        monkeypatch.setattr(MendingShelf, "repair", wrong)
        with pytest.raises(lw.LogwrightError, match=words):
            lw.repair(shelf, tmp_path / "out")
    assert found(tmp_path) == {f"data/shelf/{name}": data for name, data in DAMAGED.items()}


def test_what_a_user_may_not_give_away_is_said(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "utime", forbidden)
    report = lw.repair(shelf, tmp_path / "out")
    assert "owner, mode or times of files could not be kept" in report.text()
    assert found(tmp_path / "out") == SALVAGED

    def failing(*_: object, **__: object) -> None:
        raise OSError(5, "bad")

    monkeypatch.setattr(os, "utime", failing)
    assert "could not be kept" in lw.repair(shelf, tmp_path / "other").text()


def test_a_backup_that_reads_back_as_something_else(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logwright.writers.filesystem import LocalFileSystem

    plain = LocalFileSystem.read

    def rotten(self, path, offset=0, length=None):  # type: ignore[no-untyped-def]
        data = plain(self, path, offset, length)
        return bytes(len(data)) if path == str(tmp_path / "backup" / "003.toy") else data

    monkeypatch.setattr(LocalFileSystem, "read", rotten)
    with pytest.raises(lw.StorageError, match="reads back as something else"):
        lw.repair(shelf, in_place=True, backup=tmp_path / "backup")
    assert found(tmp_path) == {f"data/shelf/{name}": data for name, data in DAMAGED.items()}


def test_an_original_that_becomes_shorter_while_it_is_saved(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logwright.writers import backup

    monkeypatch.setattr(backup, "zero_filled", lambda source, at, length: (np.empty(0, np.uint8), []))
    with pytest.raises(lw.BusyError, match="became shorter"):
        lw.repair(shelf, in_place=True, backup=tmp_path / "backup")
    assert found(tmp_path) == {f"data/shelf/{name}": data for name, data in DAMAGED.items()}


def test_a_place_that_dies_while_it_is_copied(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was judged to be sound: nothing stands for its bytes, so nothing is written."""
    from logwright.writers.mend import Mender

    def dying(self, stage, copies, name, pieces):  # type: ignore[no-untyped-def]
        raise UnreadableError.of(0, 512, "Input/output error", name)

    monkeypatch.setattr(Mender, "_stage", dying)
    with pytest.raises(lw.StorageError, match="can't read 512 bytes"):
        lw.repair(shelf, tmp_path / "out")
    assert found(tmp_path) == {f"data/shelf/{name}": data for name, data in DAMAGED.items()}


def test_a_backup_in_use_is_left_alone(shelf: Path, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    with open(tmp_path / "backup" / "backup.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(lw.BusyError, match="saving files"):
            lw.repair(shelf, in_place=True, backup=tmp_path / "backup")
    # What is no list of a backup is not taken for one.
    (tmp_path / "backup" / "backup.json").write_text("[1]")
    with pytest.raises(lw.ExistsError):
        lw.repair(shelf, in_place=True, backup=tmp_path / "backup")
    (tmp_path / "backup" / "backup.json").unlink()
    lw.repair(shelf, in_place=True, backup=tmp_path / "backup")
    assert found(shelf) == SALVAGED


def test_a_staged_write_of_many_tasks_is_left_alone(shelf: Path, tmp_path: Path) -> None:
    from logwright.writers.filesystem import LocalFileSystem
    from logwright.writers.lock import claim

    (shelf / ".shelf" / ("cd" * 16)).mkdir(parents=True)
    claim(LocalFileSystem(), str(shelf / ".shelf" / ("cd" * 16)))
    with pytest.raises(lw.BusyError, match="another logwright"):
        lw.repair(shelf, tmp_path / "out")


def test_lists_are_capped_and_counts_are_not(shelf: Path, tmp_path: Path) -> None:
    report = lw.repair(shelf, tmp_path / "out", max_faults=1)
    assert len(report["kept"]) == 1
    assert "of 4 stretches kept, the first 1 are listed" in report.text()
    assert "kept: 8 rows" in report.text()


def test_progress_is_shown(shelf: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    lw.repair(shelf, tmp_path / "out", show=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == sum(len(data) for data in SALVAGED.values())


def test_one_file_of_standard_input_and_its_limits(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys
    from types import SimpleNamespace

    def stdin() -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(DAMAGED["003.toy"])))

    stdin()
    lw.repair("-", tmp_path / "005.toy", codec="toy.frames")
    assert (tmp_path / "005.toy").read_bytes() == joined(3, 5, 6)
    stdin()
    with pytest.raises(lw.UsageError, match="only local files"):
        lw.repair("-", in_place=True, backup=tmp_path / "backup", codec="toy.frames")
    (tmp_path / "009.toy").touch()
    lw.repair(shelf / "003.toy", tmp_path / "009.toy")
    assert (tmp_path / "009.toy").read_bytes() == joined(3, 5, 6)
    (tmp_path / "001.toy").write_bytes(b"??" + joined(1))
    lw.repair(tmp_path / "001.toy", tmp_path / "002.toy")
    assert (tmp_path / "002.toy").read_bytes() == joined(1)


def test_one_file_that_changes_is_noticed(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logwright.writers import repair_file

    plain, path = repair_file._others, shelf / "003.toy"

    def growing(*given):  # type: ignore[no-untyped-def]
        path.write_bytes(DAMAGED["003.toy"] + b"x")
        return plain(*given)

    monkeypatch.setattr(repair_file, "_others", growing)
    with pytest.raises(lw.BusyError, match="changed by someone else"):
        lw.repair(path, in_place=True, backup=tmp_path / "backup")
    assert path.read_bytes() == DAMAGED["003.toy"] + b"x"
    assert not (tmp_path / "backup").exists()

    def shrinking(*given):  # type: ignore[no-untyped-def]
        path.write_bytes(DAMAGED["003.toy"][:-SIZE])
        return plain(*given)

    path.write_bytes(DAMAGED["003.toy"])
    monkeypatch.setattr(repair_file, "_others", shrinking)
    with pytest.raises(lw.BusyError, match="shorter"):
        lw.repair(path, tmp_path / "out.toy")

    def careless(gone: object, size: int) -> list[tuple[int, int]]:
        return [(0, size)]

    path.write_bytes(DAMAGED["003.toy"])
    monkeypatch.setattr(repair_file, "_others", careless)
    with pytest.raises(lw.DamageError, match="would not be sound"):
        lw.repair(path, tmp_path / "out.toy")
    assert not (tmp_path / "out.toy").exists()


def test_out_of_a_store_without_rename(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow import fs

    from logwright.readers import listing, resolve, source

    def far(uri: str) -> tuple[fs.LocalFileSystem, str]:
        return fs.LocalFileSystem(), uri.removeprefix("far://")

    for module in (source, listing, resolve):
        monkeypatch.setattr(module, "file_system", far)
    lw.repair(f"far://{shelf}", tmp_path / "out")
    assert found(tmp_path / "out") == SALVAGED
    with pytest.raises(lw.UsageError, match="only local"):
        lw.repair(f"far://{shelf}", in_place=True, backup=tmp_path / "backup")
    lw.repair(f"far://{shelf}/003.toy", tmp_path / "005.toy")
    assert (tmp_path / "005.toy").read_bytes() == joined(3, 5, 6)
    with pytest.raises(lw.UsageError, match="only local"):
        lw.repair(f"far://{shelf}/003.toy", in_place=True, backup=tmp_path / "backup")
    assert found(shelf) == DAMAGED
