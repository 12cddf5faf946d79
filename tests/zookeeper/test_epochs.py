"""acceptedEpoch, currentEpoch and myid."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import logwright as lw
from logwright.cli import main
from logwright.codec import registry
from logwright.codec.fault import UsageError
from logwright.corpora import cases
from logwright.roundtrip import laws
from logwright.roundtrip.specimen import Specimen

QUORUM = cases.cases("zookeeper")["quorum_one"].path


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [("version-2/acceptedEpoch", "epoch", 2), ("version-2/currentEpoch", "epoch", 2), ("myid", "myid", 1)],
)
def test_golden_epoch_files_round_trip(name: str, column: str, value: int) -> None:
    specimen = Specimen.of(QUORUM / name)
    assert specimen.read().table.column(column).to_pylist() == [value]
    assert laws.decode_encode(QUORUM / name)


def test_inspect_prints_the_number(capsys: pytest.CaptureFixture[str]) -> None:
    path = QUORUM / "version-2/acceptedEpoch"
    assert lw.inspect(path)["facts"] == {"epoch": 2}
    with pytest.raises(SystemExit) as caught:
        main(["inspect", str(path)])
    assert caught.value.code == 0
    assert "  epoch   2\n" in capsys.readouterr().out


def test_inspect_of_an_unparseable_number(tmp_path: Path) -> None:
    (tmp_path / "acceptedEpoch").write_bytes(b"two")
    summary = lw.inspect(tmp_path / "acceptedEpoch")
    assert "facts" not in summary
    (fault,) = summary["faults"]
    assert "expected a number" in fault["detail"]


def test_epoch_files_are_recognised_by_name() -> None:
    for name, codec in (
        ("currentEpoch.tmp", "zookeeper.current_epoch"),
        ("acceptedEpoch", "zookeeper.accepted_epoch"),
        ("myid", "zookeeper.myid"),
    ):
        format_name = registry.detect(name, b"1")
        assert format_name is not None
        assert format_name.name == codec


@pytest.mark.parametrize("data", [b"7", b"7\n", b"+7\r\nx", b"007"])
def test_numbers_java_parses_are_read(data: bytes) -> None:
    specimen = Specimen.of(data, "zookeeper.current_epoch", "currentEpoch")
    assert specimen.read().table.to_pylist() == [{"epoch": 7}]
    assert specimen.encode(*specimen.tables()) == data


@pytest.mark.parametrize("data", [b"", b"\n7", b" 7", b"null", b"9223372036854775808", b"\xff"])
def test_numbers_java_rejects_are_faults(data: bytes) -> None:
    report = Specimen.of(data, "zookeeper.current_epoch", "currentEpoch").read().report
    assert [fault.system for fault in report.faults] == ["the server does not start: IOException"]
    specimen = Specimen.of(data, "zookeeper.current_epoch", "currentEpoch")
    assert specimen.encode(*specimen.tables()) == data


def test_invalid_myid_is_a_fault() -> None:
    assert "1 to 255" in Specimen.of(b"256", "zookeeper.myid", "myid").read().report.faults[0].detail
    empty = Specimen.of(b"", "zookeeper.myid", "myid")
    assert empty.encode(pa.table({"myid": [255]})) == b"255"
    for rows in ([0], [1, 2]):
        with pytest.raises(UsageError, match=r"zookeeper\.myid"):
            empty.encode(pa.table({"myid": rows}))
