"""Each entry of an index file leads to a message with its key."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from stores import faults_of, flip

import logwright as lw
from logwright.codec.rocketmq.formats.indexfile.layout import entry_at
from logwright.codec.rocketmq.formats.indexfile.slots import find_slots


@pytest.mark.alike
@pytest.mark.parametrize(("field", "place"), [("hash", 3), ("offset", 11), ("offset beyond the log", 5)])
@pytest.mark.parametrize("file", [0, 1, 2])
def test_entry_of_an_index_file_leads_to_a_message_with_its_key(
    keyed: Path, tmp_path: Path, file: int, field: str, place: int
) -> None:
    assert faults_of(keyed) == []
    files = sorted((keyed / "index").iterdir())
    assert len(files) == 3
    before = files[file].read_bytes()
    at = 40 + 4 * 4 + 20 * 7
    flip(files[file], at + place)
    wrong = [
        (path, offset)
        for path, offset, detail in faults_of(keyed)
        if "1 entry with a wrong physical offset or hash" in detail
    ]
    assert wrong == [(f"index/{files[file].name}", at)]
    lw.repair(keyed, tmp_path / "out")
    assert faults_of(tmp_path / "out") == []
    (repaired,) = (tmp_path / "out" / "index").glob(files[file].name)
    assert repaired.read_bytes()[40:] == before[40:]


def test_damaged_keys_of_a_message_are_shown_by_the_index(keyed: Path) -> None:
    log = sorted((keyed / "commitlog").iterdir())[1]
    flip(log, log.read_bytes().index("größer".encode()))
    ((path, _, detail),) = faults_of(keyed)
    assert path.startswith("index/")
    assert detail.startswith("1 entry with a wrong physical offset or hash")


def test_entries_of_lost_messages_are_no_fault_of_the_index(keyed: Path) -> None:
    log = sorted((keyed / "commitlog").iterdir())[1]
    data = bytearray(log.read_bytes())
    data[2000:3000] = bytes(1000)
    log.write_bytes(data)
    assert [fault for fault in faults_of(keyed) if fault[0].startswith("index/")] == []


@pytest.mark.parametrize(("field", "place", "number"), [("begin", 23, "first"), ("end", 31, "last")])
def test_header_of_an_index_file_has_the_offsets_of_its_ends(
    keyed: Path, tmp_path: Path, field: str, place: int, number: str
) -> None:
    file = sorted((keyed / "index").iterdir())[1]
    flip(file, place)
    ((_, offset, detail),) = faults_of(keyed)
    assert offset == place - 7
    assert detail.startswith(f"{field}_physical_offset is")
    assert f"the {number} entry has" in detail
    lw.repair(keyed, tmp_path / "out")
    assert faults_of(tmp_path / "out") == []


@pytest.mark.parametrize("slots", [1, 2, 7, 100, 1001])
@pytest.mark.parametrize("entries", [2, 20, 400])
def test_number_of_slots_of_an_index_file_without_entries_fits_its_size(slots: int, entries: int) -> None:
    size = entry_at(slots, entries)
    data = np.zeros(size, np.uint8)
    inferred = find_slots(lambda offset, length: data[offset : offset + length], size)
    assert (size - entry_at(inferred, 0)) % 20 == 0
