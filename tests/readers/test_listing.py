"""Listings that are not one folder: further roots, a single file, and a parent folder that stands for its store."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec import registry
from logwright.codec.fault import NotFoundError
from logwright.codec.layout import STAGING_MARK
from logwright.readers.listing import LoneFile, Store, home, open_listing


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for folder, name in (
        ("data/version-2", "snapshot.0"),
        ("logs/version-2", "log.1"),
        ("data/version-2/inner", "x"),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_bytes(name.encode())
    return tmp_path


def test_two_directories_form_one_store(place: Path) -> None:
    main, other = (open_listing(str(place / name / "version-2")) for name in ("data", "logs"))
    store = Store(main, {"dataLogDir": other})
    assert {entry.name: entry.size for entry in store.entries()} == {"snapshot.0": 10, "dataLogDir/log.1": 5}
    assert (store.name, store.path, store.folders()) == ("version-2", main.path, ["inner"])
    assert store.read("dataLogDir/log.1", 1, 2) == b"og"
    assert store.read("snapshot.0") == b"snapshot.0"
    assert (
        store.shown("dataLogDir/log.1")
        == str(place / "logs/version-2/log.1")
        == store.real("dataLogDir/log.1")
    )
    assert store.shown("other/log.1").endswith("data/version-2/other/log.1")
    above = store.parent()
    assert above is not None
    assert above.path == str(place / "data")


def test_odd_entries_in_either_root(place: Path) -> None:
    (place / "logs/version-2/log.2").mkdir()
    store = Store(
        open_listing(str(place / "data/version-2")),
        {"dataLogDir": open_listing(str(place / "logs/version-2"))},
    )
    assert store.odd == {"dataLogDir/log.2": "a folder"}


def test_single_file_is_listed_without_its_siblings(place: Path) -> None:
    path = str(place / "data/version-2/snapshot.0")
    listing = LoneFile(path, 10)
    assert [(entry.name, entry.size) for entry in listing.entries()] == [("snapshot.0", 10)]
    assert (listing.name, listing.folders(), listing.parent()) == ("version-2", [], None)
    assert listing.read("snapshot.0", 8) == b".0"
    assert listing.shown("snapshot.0") == listing.real("snapshot.0") == path


def test_parent_folder_stands_for_its_store(place: Path) -> None:
    assert home(str(place / "data")).path == str(place / "data/version-2")
    assert home(str(place / "data/version-2")).path == str(place / "data/version-2")
    assert home(f"{place}/data/").path == f"{place}/data/version-2"
    assert home(f"file://{place}/data").path == f"file://{place}/data/version-2"
    assert home(str(place)).path == str(place)
    layouts = {layout.name: layout for layout in registry.layouts()}
    assert home(str(place / "data"), layouts["leveldb.db"]).path == str(place / "data")
    assert home(str(place / "data"), layouts["zookeeper.datadir"]).path == str(place / "data/version-2")


def test_folder_of_that_name_with_other_files_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "version-2").mkdir()
    assert home(str(tmp_path)).name == "version-2"  # Nothing yet.
    (tmp_path / "version-2/000003.log").write_bytes(b"")
    (tmp_path / "version-2/MANIFEST-000002").write_bytes(b"")
    layouts = {layout.name: layout for layout in registry.layouts()}
    assert home(str(tmp_path), layouts["leveldb.db"]).path == str(tmp_path)
    with pytest.raises(NotFoundError):
        home(str(tmp_path / "absent"))


def test_staging_folder_of_every_layout_has_the_mark() -> None:
    assert all(STAGING_MARK in layout.inner_staging for layout in registry.writers())


def test_directory_above_many_stores_is_not_listed_again_for_each_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing it for each of thousands of partitions takes longer than reading them."""
    rows = pa.table({"topic": ["orders"] * 20, "partition": range(20), "value": [b"x"] * 20})
    lw.write(rows, tmp_path / "logs", "kafka.logdir")
    listed: list[str] = []
    scandir = os.scandir

    def count(path: str) -> object:
        listed.append(os.path.abspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", count)
    above = str(tmp_path / "logs")
    for work in (lw.read, lw.verify):
        listed.clear()
        work(above)
        assert listed.count(above) < 10
    listed.clear()
    lw.repair(above, tmp_path / "result")
    assert listed.count(above) < 10 + 20  # once more for each of the 20 partitions
