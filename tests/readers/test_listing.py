"""Directories that are more than a folder, or less: further roots, a file alone, the folder that is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.codec import registry
from logwright.codec.fault import NotFoundError
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


def test_two_directories_as_one(place: Path) -> None:
    main, other = (open_listing(str(place / one / "version-2")) for one in ("data", "logs"))
    found = Store(main, {"dataLogDir": other})
    assert {entry.name: entry.size for entry in found.entries()} == {"snapshot.0": 10, "dataLogDir/log.1": 5}
    assert (found.name, found.path, found.folders()) == ("version-2", main.path, ["inner"])
    assert found.read("dataLogDir/log.1", 1, 2) == b"og"
    assert found.read("snapshot.0") == b"snapshot.0"
    assert (
        found.shown("dataLogDir/log.1")
        == str(place / "logs/version-2/log.1")
        == found.real("dataLogDir/log.1")
    )
    assert found.shown("other/log.1").endswith("data/version-2/other/log.1")
    above = found.parent()
    assert above is not None
    assert above.path == str(place / "data")


def test_what_is_odd_in_either(place: Path) -> None:
    (place / "logs/version-2/log.2").mkdir()
    found = Store(
        open_listing(str(place / "data/version-2")),
        {"dataLogDir": open_listing(str(place / "logs/version-2"))},
    )
    assert found.odd == {"dataLogDir/log.2": "a folder"}


def test_a_file_alone(place: Path) -> None:
    path = str(place / "data/version-2/snapshot.0")
    found = LoneFile(path, 10)
    assert [(entry.name, entry.size) for entry in found.entries()] == [("snapshot.0", 10)]
    assert (found.name, found.folders(), found.parent()) == ("version-2", [], None)
    assert found.read("snapshot.0", 8) == b".0"
    assert found.shown("snapshot.0") == found.real("snapshot.0") == path


def test_the_folder_that_is_meant(place: Path) -> None:
    assert home(str(place / "data")).path == str(place / "data/version-2")
    assert home(str(place / "data/version-2")).path == str(place / "data/version-2")
    assert home(f"{place}/data/").path == f"{place}/data/version-2"
    assert home(f"file://{place}/data").path == f"file://{place}/data/version-2"
    assert home(str(place)).path == str(place)
    layouts = {layout.name: layout for layout in registry.layouts()}
    assert home(str(place / "data"), layouts["leveldb.db"]).path == str(place / "data")
    assert home(str(place / "data"), layouts["zookeeper.datadir"]).path == str(place / "data/version-2")


def test_a_folder_of_that_name_with_other_files_is_not_meant(tmp_path: Path) -> None:
    (tmp_path / "version-2").mkdir()
    assert home(str(tmp_path)).name == "version-2"  # nothing yet
    (tmp_path / "version-2/000003.log").write_bytes(b"")
    (tmp_path / "version-2/MANIFEST-000002").write_bytes(b"")
    layouts = {layout.name: layout for layout in registry.layouts()}
    assert home(str(tmp_path), layouts["leveldb.db"]).path == str(tmp_path)
    with pytest.raises(NotFoundError):
        home(str(tmp_path / "absent"))
