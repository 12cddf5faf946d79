"""A commit log in one or several directories that settings name."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
from memory_directory import MemoryDirectory
from stores import ROWS, SIZES
from test_write import files

import logwright as lw
from logwright.codec.option import Options
from logwright.codec.rocketmq.store.layout import LAYOUT
from logwright.codec.rocketmq.store.tree import config_of


def test_files_of_several_commit_log_paths_are_written_in_turn(tmp_path: Path) -> None:
    paths = [tmp_path / "disk1", tmp_path / "disk2"]
    options = {**SIZES, "storePathCommitLog": ",".join(map(str, paths))}
    lw.write(ROWS[:30], tmp_path / "store", "rocketmq.store", **options)
    lw.write(ROWS[30:], tmp_path / "store", "rocketmq.store", mode="append", **options)
    for i, path in enumerate(paths):
        names = sorted(int(file.name) for file in path.iterdir())
        assert len(names) > 1
        assert all(number // 1024 % 2 == i for number in names)
    assert lw.read(tmp_path / "store", storePathCommitLog=options["storePathCommitLog"]).num_rows == len(ROWS)
    lw.write(ROWS, tmp_path / "one", "rocketmq.store", **SIZES)
    assert files(tmp_path / "one", "consumequeue") == files(tmp_path / "store", "consumequeue")


@pytest.mark.parametrize(
    "paths", [["store/commitlog"], ["store/commitlog", "other"], ["store/a/log", "store/b"]]
)
def test_commit_log_path_may_be_below_the_store(paths: list[str], tmp_path: Path) -> None:
    home, named = tmp_path / "store", ",".join(str(tmp_path / path) for path in paths)
    lw.write(ROWS[:30], home, "rocketmq.store", storePathCommitLog=named, **SIZES)
    lw.write(ROWS[30:], home, "rocketmq.store", mode="append", storePathCommitLog=named, **SIZES)
    assert all(any((tmp_path / path).iterdir()) for path in paths)
    assert lw.verify(home, storePathCommitLog=named).rows == len(ROWS)
    with pytest.raises(lw.LogwrightError, match="already exists"):
        lw.write(ROWS, home, "rocketmq.store", storePathCommitLog=named, **SIZES)


def test_read_only_paths_are_read_and_get_no_file(tmp_path: Path) -> None:
    home, old, new = (tmp_path / name for name in ("store", "old", "new"))
    options = {**SIZES, "storePathCommitLog": f"{old},{new}"}
    lw.write(ROWS[:30], home, "rocketmq.store", **options)
    before = sorted(old.iterdir())
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"storePathRootDir={home}\nstorePathCommitLog={new},{tmp_path / 'newest'}\nreadOnlyCommitLogStorePaths={old}\n"
    )
    (tmp_path / "newest").mkdir()
    assert lw.read(conf).num_rows == 30
    options |= {"storePathCommitLog": f"{new},{old}", "readOnlyCommitLogStorePaths": str(old)}
    lw.write(ROWS[30:], home, "rocketmq.store", mode="append", **options)
    assert sorted(old.iterdir()) == before
    report = lw.verify(conf, as_system="5.5.0")
    assert report.ok
    assert report.rows == len(ROWS)


@pytest.mark.parametrize("missing", [0, 1])
def test_missing_commit_log_path_is_a_warning_if_there_is_another(missing: int, tmp_path: Path) -> None:
    """A broker reads the others, and creates the directory with its first file."""
    home, paths = tmp_path / "store", [tmp_path / "disk1", tmp_path / "disk2"]
    lw.write(ROWS[:30], home, "rocketmq.store", storePathCommitLog=str(paths[1 - missing]), **SIZES)
    options = {"storePathCommitLog": ",".join(map(str, paths))}
    report = lw.verify(home, as_system="5.5.0", **options)
    assert (report.ok, report.rows) == (True, 30)
    assert report.notes[0].startswith(f"{paths[missing]} does not exist")
    assert not paths[missing].exists()
    lw.write(ROWS[30:], home, "rocketmq.store", mode="append", **options, **SIZES)
    assert any(paths[missing].iterdir())
    assert lw.read(home, **options).num_rows == len(ROWS)


def test_missing_commit_log_paths_are_an_error_if_there_is_no_other(tmp_path: Path) -> None:
    home = tmp_path / "store"
    lw.write(ROWS, home, "rocketmq.store", **SIZES)
    with pytest.raises(lw.NotFoundError, match="disk1"):
        lw.verify(home, storePathCommitLog=f"{tmp_path / 'disk1'},{tmp_path / 'disk2'}")


@pytest.mark.alike
@pytest.mark.parametrize("folder", ["store/commitlog", "store/consumequeue/T0/0", "other"])
def test_folder_among_the_files_of_a_queue_keeps_old_brokers_from_starting(
    folder: str, tmp_path: Path
) -> None:
    """Such as `lost+found`, if the directory is the root of a file system. Releases from 5.1.0 on ignore it."""
    home = tmp_path / "store"
    named = f"{home / 'commitlog'},{tmp_path / 'other'}" if folder == "other" else None
    options = {} if named is None else {"storePathCommitLog": named}
    lw.write(ROWS, home, "rocketmq.store", **SIZES, **options)
    (home / "lost+found").mkdir()
    opens = [
        lw.verify(home, as_system=version, **options).system["opens"]
        for version in ("4.9.7", "5.3.3", "5.5.0")
    ]
    assert opens == [True, True, True]
    (tmp_path / folder / "lost+found").mkdir()
    old, *new = (
        lw.verify(home, as_system=version, **options).system for version in ("4.9.7", "5.3.3", "5.5.0")
    )
    assert [verdict["opens"] for verdict in new] == [True, True]
    assert not old["opens"]
    assert "lost+found is a folder: length not matched" in str(old)


def test_copy_of_the_log_beside_it_is_not_part_of_it(tmp_path: Path) -> None:
    lw.write(ROWS, tmp_path, "rocketmq.store", mode="overwrite", **SIZES)
    shutil.copytree(tmp_path / "commitlog", tmp_path / "commitlog-2")
    assert lw.read(tmp_path).num_rows == len(ROWS)


def test_store_is_recognised_without_its_log_and_checkpoint(tmp_path: Path) -> None:
    options = {"storePathCommitLog": str(tmp_path / "log")}
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **SIZES, **options)
    (tmp_path / "store/checkpoint").unlink()
    assert lw.read(tmp_path / "store", **options).num_rows == len(ROWS)
    for folder in ("consumequeue", "index"):
        shutil.rmtree(tmp_path / "store" / folder)
    assert lw.read(tmp_path / "store", "rocketmq.store", **options).num_rows == len(ROWS)


@pytest.mark.parametrize(("paths", "first"), [("/a,/b", "commitlog"), ("/a,/p", "storePathCommitLog-2")])
def test_of_two_log_files_with_one_name_that_of_the_first_path_of_a_hash_set_is_first(
    paths: str, first: str
) -> None:
    names = [f"{folder}/{0:020d}" for folder in ("commitlog", "storePathCommitLog-2")]
    listing = MemoryDirectory(dict.fromkeys(names, bytes(1024)), "store")
    options = Options(LAYOUT.read_options, {"storePathCommitLog": paths})
    assert config_of(listing, options).log_folders[0] == first


@pytest.mark.alike
@pytest.mark.parametrize("way", ["complete", "cut", "padded", "damaged original"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_log_file_in_two_paths_is_an_error_and_its_messages_are_read_once(
    way: str, first: int, tmp_path: Path
) -> None:
    """As after a copy to another disk that was interrupted. A repair takes from either file what the other one lacks."""
    home, paths = tmp_path / "store", [tmp_path / "disk1", tmp_path / "disk2"]
    options = {**SIZES, "storePathCommitLog": ",".join(map(str, paths))}
    lw.write(ROWS, home, "rocketmq.store", **options)
    expected = lw.read(home, **options)
    original = sorted(paths[first].iterdir())[1]
    data = original.read_bytes()
    half = data[: len(data) // 2]
    copy = {"cut": half, "padded": half.ljust(len(data), b"\0")}.get(way, data)
    (paths[1 - first] / original.name).write_bytes(copy)
    if way == "damaged original":
        original.write_bytes(data[:100] + bytes(300) + data[400:])
    report = lw.verify(home, as_system="5.5.0", **options)
    assert not report.ok
    assert "is the file of the same offset, and is not read" in str(report.to_dict())
    with pytest.raises(lw.DamageError):
        lw.read(home, **options)
    rows = lw.read(home, mode="DROPMALFORMED", **options)
    assert rows == expected or way == "damaged original"
    assert len(set(rows["physical_offset"].to_pylist())) == rows.num_rows
    for verb in (lw.rebuild, partial(lw.edit, drop="queue_id == 0")):
        with pytest.raises(lw.DamageError, match=r"file of the same offset|it is damaged"):
            verb(home, tmp_path / "out", **options)
    if way == "complete":
        lw.repair(home, tmp_path / "system", strategy="system", **options)
        assert lw.read(tmp_path / "system", **SIZES) == expected
    lw.repair(home, tmp_path / "out", **options)
    assert lw.read(tmp_path / "out", **SIZES) == expected
    assert lw.verify(tmp_path / "out", **SIZES).ok


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_displaced_messages_are_read_without_the_copy_that_ends_one_of_them(tmp_path: Path) -> None:
    """All bytes of two files are displaced, so that a message begins in one and ends in the next. A complete next file is elsewhere."""
    home, paths = tmp_path / "store", [tmp_path / "disk1", tmp_path / "disk2"]
    lw.write(ROWS, home, "rocketmq.store", storePathCommitLog=str(paths[0]), **SIZES)
    options = {**SIZES, "storePathCommitLog": ",".join(map(str, paths))}
    expected = lw.read(home, **options)
    first, second = sorted(paths[0].iterdir())[1:3]
    blank = lw.read(first, view="frames").to_pylist()[-1]
    assert blank["kind"] == "blank"
    paths[1].mkdir()
    shutil.copy(second, paths[1])
    displaced = bytes([1]) * (blank["total_size"] + 10) + first.read_bytes() + second.read_bytes()
    first.write_bytes(displaced[:1024])
    second.write_bytes(displaced[1024:1500])
    rows = lw.read(home, mode="DROPMALFORMED", **options)
    assert rows.num_rows == expected.num_rows - 1
    assert [row for row in expected.to_pylist() if row in rows.to_pylist()] == rows.to_pylist()
    lw.repair(home, tmp_path / "out", **options)
    assert lw.read(tmp_path / "out", **SIZES) == expected
