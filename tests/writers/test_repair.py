"""Repair of a directory out of place and in place: what is kept, what is removed, and what is refused."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from repairable_store import (
    DAMAGED,
    FRAMES,
    LAYOUT,
    PREFIX,
    SALVAGED,
    SIZE,
    RepairableStore,
    flip_byte,
    ids,
    joined,
    read_files,
    write_files,
)

import logwright as lw
from logwright.codec.engine.repair import OutputFile
from logwright.codec.fault import UnreadableError
from logwright.codec.store.extents import Copy
from logwright.readers.journal import COMMIT, Journal

pytestmark = pytest.mark.usefixtures("repairable_store")

# Out of place


def test_every_undamaged_frame_is_kept(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "store"
    report = lw.repair(store, out)
    assert read_files(out) == SALVAGED
    assert read_files(store) == DAMAGED
    assert [path.name for path in out.parent.iterdir()] == ["store"]
    assert lw.verify(out).ok
    assert not report.ok
    assert report.incomplete
    assert report["rows"] == 8
    assert report["cut"] == [
        {
            "file": "003.toy", "offset": SIZE, "length": SIZE, "saved_to": str(store / "003.toy"), "why": "checksum mismatch",
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
    assert "before starting toy: dust it" in text
    assert text.splitlines()[-1].strip().startswith(f"logwright verify {out}")
    json.dumps(report.to_dict())


def test_folders_that_do_not_belong_to_the_directory_are_named_and_not_copied(
    store: Path, tmp_path: Path
) -> None:
    """They stay where they are in place, but are lost for a system that is started on another directory."""
    (store / "other").mkdir()
    (store / "other/file").write_bytes(b"x")
    report = lw.repair(store, tmp_path / "out")
    assert f"not copied: 1 folder that a {LAYOUT.name} does not include: other" in report.notes
    assert not (tmp_path / "out/other").exists()
    report = lw.repair(store, in_place=True, backup=tmp_path / "backup")
    assert not any("not copied" in note for note in report.notes)
    assert (store / "other/file").exists()


def test_prefix_keeps_everything_before_the_first_damage(store: Path, tmp_path: Path) -> None:
    report = lw.repair(store, tmp_path / "store", strategy="PREFIX")
    assert read_files(tmp_path / "store") == PREFIX
    assert [removed["file"] for removed in report["cut"]] == ["003.toy", "007.toy"]
    with pytest.raises(lw.UsageError, match="Did you mean 'prefix'"):
        lw.repair(store, tmp_path / "other", strategy="prefixes")


def test_options_are_passed_to_the_layout_and_the_reader(store: Path, tmp_path: Path) -> None:
    lw.repair(store, tmp_path / "store", drop_readme=True, from_id=3)
    assert "README" not in read_files(tmp_path / "store")
    with pytest.raises(lw.UsageError, match=r"drop\.readme"):
        lw.repair(store, tmp_path / "other", drop_raedme=True)


def test_permissions_and_times_are_copied(store: Path, tmp_path: Path) -> None:
    store.chmod(0o750)
    for name, mode in (("000.toy", 0o640), ("003.toy", 0o604), ("000.ids", 0o600)):
        (store / name).chmod(mode)
        os.utime(store / name, ns=(1, 1_500_000_000_000_000_001))
    out = tmp_path / "out"
    lw.repair(store, out)
    modes = {path.name: path.stat().st_mode & 0o777 for path in out.iterdir()}
    assert out.stat().st_mode & 0o777 == 0o750
    assert (modes["000.toy"], modes["003.toy"], modes["000.ids"]) == (0o640, 0o604, 0o600)
    # A new file gets the permissions of the primary files.
    assert modes["007.ids"] == 0o640
    times = {path.name: path.stat().st_mtime_ns == 1_500_000_000_000_000_001 for path in out.iterdir()}
    assert (times["000.toy"], times["000.ids"], times["003.toy"]) == (True, True, False)


def test_output_must_be_an_empty_or_a_new_directory(store: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    lw.repair(store, tmp_path / "empty")
    assert read_files(tmp_path / "empty") == SALVAGED
    with pytest.raises(lw.ExistsError, match="not empty"):
        lw.repair(store, tmp_path / "empty")
    for out in (store, store / "inside"):
        with pytest.raises(lw.LogwrightError, match="into the input directory"):
            lw.repair(store, out)
    assert read_files(store) == DAMAGED


def test_dry_run_writes_nothing(store: Path, tmp_path: Path) -> None:
    report = lw.repair(store, dry_run=True)
    assert report.incomplete
    assert len(report["cut"]) == 1
    text = report.text()
    assert "would change files: 003.toy, 003.ids" in text
    assert "would create files: 007.ids" in text
    assert "would remove files: 009.ids" in text
    assert read_files(tmp_path) == {f"data/store/{name}": data for name, data in DAMAGED.items()}


def test_exactly_one_output_must_be_named(store: Path, tmp_path: Path) -> None:
    out, backup = tmp_path / "out", tmp_path / "backup"
    with pytest.raises(lw.UsageError, match="no destination"):
        lw.repair(store)
    with pytest.raises(lw.UsageError, match="cannot be combined"):
        lw.repair(store, out, in_place=True, backup=backup)
    with pytest.raises(lw.UsageError, match="in_place needs backup"):
        lw.repair(store, in_place=True)
    with pytest.raises(lw.UsageError, match="in_place"):
        lw.repair(store, out, backup=backup)
    with pytest.raises(lw.UsageError, match="only local"):
        lw.repair(store, "s3://bucket/out")
    with pytest.raises(lw.NotFoundError):
        lw.repair(tmp_path / "nothing", out)
    assert read_files(store) == DAMAGED
    assert not out.exists()


def test_layout_without_repair_is_refused(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fake_store import FRAMES_CODEC, FakeStore, ToyNote, know

    known = ({"toy.frames": FRAMES_CODEC, "toy.note": ToyNote()}, {"toy.store": FakeStore()})
    know(monkeypatch, *known)
    with pytest.raises(lw.UsageError, match="cannot be repaired"):
        lw.repair(store, tmp_path / "out")


def test_unsound_result_is_not_written(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = RepairableStore.repair

    def careless(self, *arguments, correct):  # type: ignore[no-untyped-def]
        repair_plan = plain(self, *arguments, correct=correct)
        repair_plan.output_files = [
            OutputFile(output_file.name, [Copy("003.toy", 0, 4 * SIZE)])
            if output_file.name == "003.toy"
            else output_file
            for output_file in repair_plan.output_files
        ]
        return repair_plan

    monkeypatch.setattr(RepairableStore, "repair", careless)
    with pytest.raises(lw.DamageError, match=r"would be damaged.*003\.toy at byte"):
        lw.repair(store, tmp_path / "out")
    with pytest.raises(lw.DamageError, match=r"would be damaged.*003\.toy at byte"):
        lw.repair(store, in_place=True, backup=tmp_path / "backup")
    assert read_files(tmp_path) == {f"data/store/{name}": data for name, data in DAMAGED.items()}
    assert not (tmp_path / "backup").exists()
    # The result of strategy `system` may be damaged.
    report = lw.repair(store, tmp_path / "out", strategy="system")
    assert f"still damaged: 003.toy at {SIZE}, checksum mismatch" in report.text()
    assert read_files(tmp_path / "out")["003.toy"] == DAMAGED["003.toy"]


def test_missing_file_does_not_prevent_a_repair(store: Path, tmp_path: Path) -> None:
    (store / "NOTE").unlink()
    assert (
        "still damaged: NOTE at 0, missing link to another file" in lw.repair(store, tmp_path / "out").text()
    )
    assert read_files(tmp_path / "out") == {name: data for name, data in SALVAGED.items() if name != "NOTE"}


# In place


def test_in_place_changes_nothing_else(store: Path, tmp_path: Path) -> None:
    (store / "003.toy").chmod(0o640)
    before = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in store.iterdir()}
    backup = tmp_path / "backup"
    report = lw.repair(store, in_place=True, backup=backup)
    assert read_files(store) == SALVAGED
    after = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in store.iterdir()}
    same = {name for name in before if before[name] == after.get(name)}
    assert same == {"000.toy", "000.ids", "007.toy", "NOTE", "README"}
    assert (store / "003.toy").stat().st_mode & 0o777 == 0o640
    saved = read_files(backup)
    values = json.loads(saved.pop("backup.json"))
    assert saved == {name: DAMAGED[name] for name in ("003.toy", "003.ids", "009.ids")}
    assert values["of"] == str(store)
    assert values["files"]["003.toy"]["sha256"] == hashlib.sha256(DAMAGED["003.toy"]).hexdigest()
    assert values["cut"] == [{"file": "003.toy", "offset": SIZE, "length": SIZE, "why": "checksum mismatch"}]
    assert (backup / "003.toy").stat().st_mode & 0o777 == 0o640
    cut = report["cut"][0]
    with open(cut["saved_to"], "rb") as file:
        file.seek(cut["offset"])
        assert file.read(cut["length"]) == flip_byte(
            FRAMES[4], SIZE - SIZE + len(FRAMES[4]) - len(b"text 4") - 1
        )
    assert f"the originals are in {backup}" in report.text()


def test_sound_directory_is_not_changed(tmp_path: Path) -> None:
    store = write_files(tmp_path / "store", SALVAGED)
    report = lw.repair(store, in_place=True, backup=tmp_path / "backup")
    assert not report.incomplete
    assert "no changes needed" in report.text()
    assert read_files(store) == SALVAGED
    assert not (tmp_path / "backup").exists()
    assert "no changes needed" in lw.repair(store, dry_run=True).text()


def test_backup_must_be_outside_of_the_store(store: Path, tmp_path: Path) -> None:
    for backup in (store, store / "backup", tmp_path):
        with pytest.raises(lw.UsageError, match="outside"):
            lw.repair(store, in_place=True, backup=backup)
    # The lock file marks a data directory of the system, which reads everything in it.
    (store.parent / ".lock").touch()
    with pytest.raises(lw.UsageError, match="outside"):
        lw.repair(store, in_place=True, backup=store.parent / "backup")
    with pytest.raises(lw.UsageError, match="data directory of toy"):
        lw.repair(store, store.parent / "other")
    full = write_files(tmp_path / "full", {"a": b""})
    with pytest.raises(lw.ExistsError, match="not empty"):
        lw.repair(store, in_place=True, backup=full)
    with pytest.raises(lw.ExistsError, match="is a file"):
        lw.repair(store, in_place=True, backup=full / "a")
    assert read_files(store) == DAMAGED
    (tmp_path / "empty").mkdir()
    lw.repair(store, in_place=True, backup=tmp_path / "empty")
    assert read_files(store) == SALVAGED
    # It contains files that may be missing now.
    (store / "000.ids").write_bytes(b"")
    with pytest.raises(lw.ExistsError, match="not empty"):
        lw.repair(store, in_place=True, backup=tmp_path / "empty")


def test_unused_backup_is_created_again(store: Path, tmp_path: Path) -> None:
    """A run killed between backup and commit leaves a complete backup with its lock file."""
    other = write_files(tmp_path / "other" / "store", DAMAGED)
    lw.repair(other, in_place=True, backup=tmp_path / "backup")
    values = json.loads((tmp_path / "backup" / "backup.json").read_text())
    (tmp_path / "backup" / "backup.json").write_text(json.dumps({**values, "of": str(store)}))
    (tmp_path / "backup" / "backup.lock").touch()
    lw.repair(store, in_place=True, backup=tmp_path / "backup")
    assert read_files(store) == SALVAGED
    assert not (tmp_path / "backup" / "backup.lock").exists()
    # If the originals have changed since, the backup is their only copy.
    (tmp_path / "backup" / "backup.lock").touch()
    (store / "000.ids").write_bytes(b"")
    with pytest.raises(lw.ExistsError, match="not empty"):
        lw.repair(store, in_place=True, backup=tmp_path / "backup")


# Refused while in use


def test_running_system_is_refused(store: Path, tmp_path: Path) -> None:
    lock = store.parent / ".lock"
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
                lw.repair(store, **words)
            with pytest.raises(lw.BusyError):
                lw.rebuild(store, **words)
        with pytest.raises(lw.BusyError):
            lw.repair(store / "003.toy", tmp_path / "out.toy")
        assert "running" in lw.repair(store, dry_run=True).text()
    finally:
        holder.communicate()
    assert read_files(store) == DAMAGED
    assert not (tmp_path / "out").exists()


def test_concurrent_writer_is_refused(store: Path, tmp_path: Path) -> None:
    (store / ".logwright-toy").mkdir()
    with open(store / ".logwright-toy" / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(lw.BusyError, match="another logwright process"):
            lw.repair(store, tmp_path / "out")
        with pytest.raises(lw.BusyError, match="another logwright process"):
            lw.repair(store, in_place=True, backup=tmp_path / "backup")
    lw.repair(store, tmp_path / "out")
    assert read_files(tmp_path / "out") == SALVAGED


def test_committed_but_unfinished_write_counts(store: Path, tmp_path: Path) -> None:
    sizes = {name: len(data) for name, data in DAMAGED.items()}
    place = write_files(store / ".logwright-toy" / ("ab" * 16), {"009.toy": joined(9, 10)})
    record = Journal((("009.toy", "009.toy"),), {"009.toy": len(joined(9, 10))}, sizes)
    (place / COMMIT).write_text(record.to_json())
    finished = {**SALVAGED, "009.toy": joined(9, 10), "009.ids": ids(9, 10)}
    kept = read_files(store)
    lw.repair(store, tmp_path / "out")
    assert read_files(tmp_path / "out") == finished
    assert read_files(store) == kept
    lw.repair(store, in_place=True, backup=tmp_path / "backup")
    assert read_files(store) == finished


def test_input_that_changes_is_detected(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = RepairableStore.repair

    def meanwhile(self, *arguments, correct):  # type: ignore[no-untyped-def]
        repair_plan = plain(self, *arguments, correct=correct)
        with open(store / "007.toy", "ab") as file:
            file.write(FRAMES[9])
        return repair_plan

    monkeypatch.setattr(RepairableStore, "repair", meanwhile)
    with pytest.raises(lw.BusyError, match=r"007\.toy was changed"):
        lw.repair(store, tmp_path / "out")
    with pytest.raises(lw.BusyError, match="changed by someone else"):
        lw.repair(store, in_place=True, backup=tmp_path / "backup")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "backup").exists()


# Replicas


def test_each_frame_is_taken_from_a_sound_replica(tmp_path: Path) -> None:
    first_copy = write_files(tmp_path / "a" / "store", DAMAGED)
    other = write_files(
        tmp_path / "b" / "store", {**DAMAGED, "003.toy": flip_byte(joined(3, 4, 5, 6), 3 * SIZE - 1)}
    )
    report = lw.repair([first_copy, other], tmp_path / "out")
    assert read_files(tmp_path / "out")["003.toy"] == joined(3, 4, 5, 6)
    assert not report.incomplete
    assert [(k["offset"], k["length"], k["copy"]) for k in report["kept"] if k["file"] == "003.toy"] == [
        (0, SIZE, str(first_copy)),
        (SIZE, SIZE, str(other)),
        (2 * SIZE, 2 * SIZE, str(first_copy)),
    ]
    assert f"replica {other}: 1 fault" in report.text()
    lw.repair([first_copy, other], in_place=True, backup=tmp_path / "backup")
    assert read_files(first_copy)["003.toy"] == joined(3, 4, 5, 6)
    assert read_files(other)["003.toy"] != joined(3, 4, 5, 6)
    assert set(read_files(tmp_path / "backup")) == {"003.toy", "009.ids", "backup.json"}


def test_diverged_replicas_are_refused(tmp_path: Path) -> None:
    from fake_store import frame

    first_copy = write_files(tmp_path / "a" / "store", DAMAGED)
    other = write_files(tmp_path / "b" / "store", {**DAMAGED, "007.toy": frame(7, b"other!") + FRAMES[8]})
    with pytest.raises(lw.UsageError, match="diverged"):
        lw.repair([first_copy, other], tmp_path / "out")
    with pytest.raises(lw.UsageError, match="twice"):
        lw.repair([first_copy, first_copy], tmp_path / "out")
    with pytest.raises(lw.UsageError, match="replicas"):
        lw.repair([first_copy, other / "000.toy"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Single file


def test_fake_store_is_registered() -> None:
    assert LAYOUT.capabilities.repair is not None


# Errors of layouts and machines


def test_inconsistent_repair_plan_is_detected(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = RepairableStore.repair

    def twice(self, *arguments, correct):  # type: ignore[no-untyped-def]
        repair_plan = plain(self, *arguments, correct=correct)
        repair_plan.output_files.append(repair_plan.output_files[0])
        return repair_plan

    def outside(self, *arguments, correct):  # type: ignore[no-untyped-def]
        repair_plan = plain(self, *arguments, correct=correct)
        repair_plan.output_files.append(OutputFile("../x", [b""]))
        return repair_plan

    def too_much(self, *arguments, correct):  # type: ignore[no-untyped-def]
        repair_plan = plain(self, *arguments, correct=correct)
        repair_plan.output_files[0] = OutputFile("000.toy", [Copy("000.toy", 0, 10 * SIZE)])
        return repair_plan

    for wrong, words in (
        (twice, "twice"),
        (outside, "invalid file name"),
        (too_much, "truncated"),
    ):
        monkeypatch.setattr(RepairableStore, "repair", wrong)
        with pytest.raises(lw.LogwrightError, match=words):
            lw.repair(store, tmp_path / "out")
    assert read_files(tmp_path) == {f"data/store/{name}": data for name, data in DAMAGED.items()}


def test_files_the_user_cannot_chown_are_reported(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "utime", forbidden)
    report = lw.repair(store, tmp_path / "out")
    assert "owner, mode or times of files could not be preserved" in report.text()
    assert read_files(tmp_path / "out") == SALVAGED

    def failing(*_: object, **__: object) -> None:
        raise OSError(5, "bad")

    monkeypatch.setattr(os, "utime", failing)
    assert "could not be preserved" in lw.repair(store, tmp_path / "other").text()


def test_repair_stops_if_the_backup_reads_back_differently(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logwright.writers.filesystem import LocalFileSystem

    plain = LocalFileSystem.read

    def rotten(self, path, offset=0, length=None):  # type: ignore[no-untyped-def]
        data = plain(self, path, offset, length)
        return bytes(len(data)) if path == str(tmp_path / "backup" / "003.toy") else data

    monkeypatch.setattr(LocalFileSystem, "read", rotten)
    with pytest.raises(lw.StorageError, match="reads back with different content"):
        lw.repair(store, in_place=True, backup=tmp_path / "backup")
    assert read_files(tmp_path) == {f"data/store/{name}": data for name, data in DAMAGED.items()}


def test_original_that_shrinks_during_the_backup_is_detected(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logwright.writers import backup

    monkeypatch.setattr(backup, "zero_filled", lambda source, at, length: (np.empty(0, np.uint8), []))
    with pytest.raises(lw.BusyError, match="truncated while it was being saved"):
        lw.repair(store, in_place=True, backup=tmp_path / "backup")
    assert read_files(tmp_path) == {f"data/store/{name}": data for name, data in DAMAGED.items()}


def test_sector_that_fails_during_the_copy_is_an_error(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes were judged sound. Without them nothing is written."""
    from logwright.writers.apply_plan import PlanWriter

    def dying(self, stage, copies, name, pieces):  # type: ignore[no-untyped-def]
        raise UnreadableError.of(0, 512, "Input/output error", name)

    monkeypatch.setattr(PlanWriter, "_stage", dying)
    with pytest.raises(lw.StorageError, match="cannot read 512 bytes"):
        lw.repair(store, tmp_path / "out")
    assert read_files(tmp_path) == {f"data/store/{name}": data for name, data in DAMAGED.items()}


def test_backup_in_use_is_refused(store: Path, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    with open(tmp_path / "backup" / "backup.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(lw.BusyError, match="saving files"):
            lw.repair(store, in_place=True, backup=tmp_path / "backup")
    # A file that is no backup list is not taken for one.
    (tmp_path / "backup" / "backup.json").write_text("[1]")
    with pytest.raises(lw.ExistsError):
        lw.repair(store, in_place=True, backup=tmp_path / "backup")
    (tmp_path / "backup" / "backup.json").unlink()
    lw.repair(store, in_place=True, backup=tmp_path / "backup")
    assert read_files(store) == SALVAGED


def test_staged_write_of_many_tasks_is_left_alone(store: Path, tmp_path: Path) -> None:
    from logwright.writers.filesystem import LocalFileSystem
    from logwright.writers.lock import claim

    (store / ".logwright-toy" / ("cd" * 16)).mkdir(parents=True)
    claim(LocalFileSystem(), str(store / ".logwright-toy" / ("cd" * 16)))
    with pytest.raises(lw.BusyError, match="another logwright process"):
        lw.repair(store, tmp_path / "out")


def test_lists_are_capped_and_counts_exact(store: Path, tmp_path: Path) -> None:
    report = lw.repair(store, tmp_path / "out", max_faults=1)
    assert len(report["kept"]) == 1
    assert "of 4 ranges kept, the first 1 are listed" in report.text()
    assert "kept: 8 rows" in report.text()


def test_progress_of_a_repair_ends_at_the_size_of_its_output(store: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    lw.repair(store, tmp_path / "out", show=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == sum(len(data) for data in SALVAGED.values())
