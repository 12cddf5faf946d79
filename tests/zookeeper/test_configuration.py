"""A server's `zoo.cfg` instead of its data directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from zookeeper_datadir import GOLDEN

import logwright as lw
from logwright.codec.zookeeper.store.configuration import CONFIGURATION


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    """Configuration of a server with a separate log directory."""
    place = GOLDEN / "split_dirs"
    path = tmp_path / "zoo.cfg"
    path.write_text(
        f"# one server\ntickTime=2000\ndataDir={place / 'data'} \ndataLogDir={place / 'datalog'}\nclientPort=2181\n"
        "ssl.keyStore.password=geheim\nextendedTypesEnabled=true\n"
    )
    return path


def test_zoo_cfg_path_opens_its_data_directory(configuration: Path) -> None:
    place = GOLDEN / "split_dirs"
    there = lw.read(place / "data", dataLogDir=str(place / "datalog"))
    assert lw.read(configuration).equals(there)
    assert len(there) > len(lw.read(place / "data"))
    assert lw.detect(configuration) == "zookeeper.datadir"
    report = lw.verify(configuration, as_system=True)
    assert report.ok
    assert "geheim" not in str(report.to_dict()) + report.text()


@pytest.mark.parametrize(
    ("text", "directories", "options"),
    [
        ("dataDir=/a\n", ("/a",), {}),
        ("dataDir = /a\ndataLogDir=/b", ("/a",), {"dataLogDir": "/b"}),
        ("dataDir=/a\ndataLogDir=/a", ("/a",), {}),
        ("dataDir=/a\nsnapshot.trust.empty=true\nkey=1", ("/a",), {"snapshot.trust.empty": "true"}),
        ("clientPort=2181", None, None),
    ],
)
def test_zoo_cfg_properties_are_parsed(
    text: str, directories: tuple[str, ...] | None, options: dict[str, str] | None
) -> None:
    actual = CONFIGURATION.parse(text.encode())
    assert (None if actual is None else actual.directories) == directories
    assert (None if actual is None else dict(actual.options)) == options


def test_unusable_path_in_zoo_cfg_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "zoo.cfg").write_text("dataDir=../data\n")
    with pytest.raises(
        lw.UsageError, match=r"zoo\.cfg: dataDir is '\.\./data'.*Name the data directory itself"
    ):
        lw.read(tmp_path / "zoo.cfg")
