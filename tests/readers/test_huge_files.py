"""Files of a store that are small, but of which a damaged file system shows any size: they are not read into memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import logwright as lw
from logwright.codec.fault import UnreadableError
from logwright.readers.listing import LocalDirectory

_SIZE = 1 << 40


def test_file_of_any_size_is_read_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    os.truncate(tmp_path / "file", _SIZE)
    listing = LocalDirectory(str(tmp_path))
    with pytest.raises(UnreadableError, match=f"{_SIZE} bytes, at most {1 << 30} are read") as caught:
        listing.read("file")
    assert (caught.value.start, caught.value.stop) == (1 << 30, _SIZE)
    assert listing.read("file", 0, 4) == b"abc\0"


@pytest.mark.parametrize("name", ["00000000000000000003.snapshot", "leader-epoch-checkpoint"])
def test_huge_small_file_of_a_partition_costs_no_row(name: str, tmp_path: Path) -> None:
    place = tmp_path / "orders-0"
    lw.write([{"key": b"a", "value": b"b"}] * 3, place, "kafka.partition")
    assert (place / name).stat().st_size < 1000
    os.truncate(place / name, _SIZE)
    report = lw.verify(place)
    assert not report.ok
    assert {fault["kind"] for file in report["files"] for fault in file["faults"]} >= {"bad length"}
    assert lw.read(place, mode="DROPMALFORMED").num_rows == 3
