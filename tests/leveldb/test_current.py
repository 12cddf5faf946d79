"""CURRENT: a line, with its end, names the manifest."""

from __future__ import annotations

import pyarrow as pa
import pytest

from logwright.codec.fault import Kind, LogwrightError
from logwright.readers.stream import Mode
from logwright.roundtrip.specimen import Specimen


def specimen_of(data: bytes) -> Specimen:
    return Specimen.of(data, "leveldb.current", "CURRENT")


@pytest.mark.parametrize("name", ["MANIFEST-000002", "", "two\nlines", "Ünïcode"])
def test_manifest_name_round_trips(name: str) -> None:
    """As in LevelDB, everything before the last line end is the name."""
    data = name.encode() + b"\n"
    assert specimen_of(data).read().table.to_pylist() == [{"manifest": name}]
    assert specimen_of(data).encode(*specimen_of(data).tables()) == data
    assert specimen_of(b"").encode(pa.table({"manifest": [name]})) == data


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"", Kind.TRUNCATED, "CURRENT file does not end with newline"),
        (b"MANIFEST-000002", Kind.TRUNCATED, "CURRENT file does not end with newline"),
        (b"MANIFEST-\xff\n", None, "the name of the manifest is not text"),
    ],
)
def test_invalid_current_yields_a_fault_and_no_rows(data: bytes, kind: Kind | None, words: str) -> None:
    rows = specimen_of(data).read()
    assert rows.table.num_rows == 0
    (fault,) = rows.report.faults
    assert words in fault.detail
    assert kind is None or fault.kind == kind
    assert "LevelDB refuses to open" in fault.system
    assert specimen_of(data).encode(*specimen_of(data).tables()) == data
    with pytest.raises(LogwrightError, match=words):
        specimen_of(data).read(mode=Mode.FAILFAST)


@pytest.mark.parametrize("names", [[], ["a", "b"]])
def test_table_has_one_row(names: list[str]) -> None:
    with pytest.raises(LogwrightError, match=f"a file has one row, found {len(names)}"):
        specimen_of(b"").encode(pa.table({"manifest": pa.array(names, pa.string())}))
