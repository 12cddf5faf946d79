"""A directory that contains stores: which of them are read, and how the others are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from command_line import run

import logwright as lw
from logwright.readers import store_search

ROWS = pa.table({"key": [b"a", b"b"], "value": [b"1", b"2"]})
NEAR = ("Extension State", "shared_proto_db")
DEEP = ("IndexedDB/site.indexeddb.leveldb", "Local Storage/leveldb", "shared_proto_db/metadata")


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A browser's profile: two databases at the top, deeper ones, and one inside another. One deeper database is damaged."""
    path = tmp_path / "Default"
    for name in (*NEAR, *DEEP):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        lw.write(ROWS, path / name, "leveldb.db")
    table = next((path / DEEP[2]).glob("*.ldb"))
    data = bytearray(table.read_bytes())
    data[5] ^= 1
    table.write_bytes(data)
    (path / "Cache" / "Cache_Data").mkdir(parents=True)
    (path / "History").write_text("?")
    return path


def names(report: Any, path: Path) -> list[str]:
    return [str(Path(part.path).relative_to(path)) for part in report.parts]


def test_skipped_stores_are_named(profile: Path) -> None:
    report = lw.verify(profile)
    assert report.ok
    assert names(report, profile) == list(NEAR)
    assert report.notes == [
        f"not checked: 3 stores in sub-folders: {', '.join(f'{name} (leveldb.db)' for name in DEEP)}; -r (recursive=True) includes "
        "them",
        "skipped folders without a store: Cache",
        "skipped files outside the stores: History",
    ]
    assert report["notes"] == report.notes
    assert lw.inspect(profile)["notes"] == report.notes


def test_recursive_visits_all_sub_folders(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = lw.verify(profile, recursive=True)
    assert not report.ok
    assert names(report, profile) == sorted([*NEAR, *DEEP])
    assert not any(note.startswith("not checked") for note in report.notes)
    assert run("verify", "-r", str(profile.parent)) == 3
    assert run("verify", "--recursive", "--json", str(profile)) == 3
    text = capsys.readouterr().out
    assert len(json.loads(text[text.index("\n{") :])["targets"]) == 5
    summary = lw.inspect(profile, recursive=True)
    assert [directory["path"] for directory in summary["directories"]] == [part.path for part in report.parts]
    assert run("inspect", "-r", str(profile)) == 0
    assert "Local Storage/leveldb" in capsys.readouterr().out


def test_nested_store_is_named_and_read_on_request(profile: Path) -> None:
    store = profile / "shared_proto_db"
    report = lw.verify(store)
    assert report.ok
    assert report.notes == [
        "not checked: 1 store in sub-folders: metadata (leveldb.db); -r (recursive=True) includes them"
    ]
    assert not report.parts
    assert lw.inspect(store)["notes"] == report.notes
    assert names(lw.verify(store, recursive=True), store) == [".", "metadata"]


def test_folder_with_only_deeper_stores_says_how_to_read_them(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", str(profile.parent)) == 2
    output = capsys.readouterr().err
    assert "Extension State (leveldb.db)" in output
    assert "verify, repair and rebuild take all with -r" in output


def test_store_that_may_not_be_listed_is_not_left_out(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the folder lost+found of a file system is."""
    (profile / "lost+found").mkdir()
    real, denied = store_search.open_listing, {"lost+found"}

    def listing(path: str) -> Any:
        if Path(path).name in denied:
            raise lw.AccessError("permission denied", path=path)
        return real(path)

    monkeypatch.setattr(store_search, "open_listing", listing)
    assert run("verify", str(profile)) == 0
    denied.add(NEAR[0])
    report = lw.verify(profile)
    assert not report.ok
    assert [part.path for part in report.parts if not part.ok] == [str(profile / NEAR[0])]
    assert run("verify", str(profile)) == 1
    assert "Extension State  NOT CHECKED  permission denied" in capsys.readouterr().out
    assert run("roundtrip", str(profile)) == 1
    assert run("repair", str(profile), "--out", str(tmp_path / "out")) == 1
    assert "Extension State  FAILED" in capsys.readouterr().out


def test_loop_of_links_ends(profile: Path) -> None:
    (profile / "Cache" / "loop").symlink_to(profile)
    (profile / "again").symlink_to(profile)
    report = lw.verify(profile, recursive=True)
    assert names(report, profile) == sorted([*NEAR, *DEEP])
    assert any("loop is a symbolic link to a directory: skipped" in note for note in report.notes)


def test_search_for_unrequested_stores_is_bounded(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (profile / "Cache" / "Cache_Data" / f"{number:02}").mkdir()
    monkeypatch.setattr(store_search, "FOLDER_LIMIT", 10)
    report = lw.verify(profile)
    assert names(report, profile) == list(NEAR)
    assert any("searched only the first 10 sub-folders" in note for note in report.notes)
    assert names(lw.verify(profile, recursive=True), profile) == sorted([*NEAR, *DEEP])


def test_read_does_not_search_sub_folders(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_search.StoreSearch, "below", lambda *_: pytest.fail("it searched"))
    assert lw.read(profile / "shared_proto_db").num_rows == 2


def test_zookeeper_directory_is_not_listed_twice(tmp_path: Path) -> None:
    lw.write([{"path": "/a", "data": b"x"}], tmp_path / "zk", "zookeeper.datadir")
    for path in (tmp_path / "zk", tmp_path / "zk" / "version-2"):
        report = lw.verify(path, recursive=True)
        assert not report.parts
        assert not report.notes


@pytest.mark.parametrize("count", [1, 2])
def test_folder_is_a_log_directory_only_with_the_files_of_a_broker(tmp_path: Path, count: int) -> None:
    for number in range(count):
        lw.write([{"value": b"x"}], tmp_path / f"orders-{number}", "kafka.partition")
    assert lw.inspect(tmp_path)["codec"] == "kafka.partition"
    assert lw.inspect(tmp_path, "kafka.logdir")["codec"] == "kafka.logdir"
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    summary = lw.inspect(tmp_path)
    assert (summary["codec"], len(summary["directories"])) == ("kafka.logdir", count)
