"""Index files whose headers or entries contradict the messages of the log, and histories of a broker that are no fault."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec.fault import Severity
from logwright.codec.rocketmq.formats.indexfile.layout import HEADER, entry_at
from logwright.codec.rocketmq.startup.index_service import key_hash

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
TIME = 1_700_000_000_000
SLOTS, MOST = 7, 40
SIZES = {
    "mappedFileSizeCommitLog": 2048, "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": SLOTS, "maxIndexNum": MOST,
}  # fmt: skip
Fault = tuple[str, int, str]


def write(home: Path, rows: list[dict[str, Any]]) -> Path:
    """Write messages of one topic, each with a body of 30 bytes, 1.7 seconds apart."""
    messages = [
        {"topic": "T", "queue_id": 0, "body": b"x" * 30, "store_timestamp_ms": TIME + 1700 * n, **row}
        for n, row in enumerate(rows)
    ]
    lw.write(messages, home, "rocketmq.store", **SIZES)
    return home


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of 60 messages with one key each, the same of four in turn, and a tag. It has four index files."""
    return write(tmp_path / "store", [{"keys": f"k{n % 4}", "tags": "a"} for n in range(60)])


@pytest.fixture
def alike(tmp_path: Path) -> Path:
    """A store of 30 messages with the same key in one index file."""
    return write(tmp_path / "store", [{"keys": "k"} for _ in range(30)])


def index(store: Path, number: int = 0) -> Path:
    return sorted((store / "index").iterdir())[number]


def faults(store: Path, *severities: Severity) -> list[Fault]:
    """Return path, offset and text of the faults of the index, by default of those that are warnings or errors."""
    chosen = severities or (Severity.WARNING, Severity.ERROR)
    return [
        (path, fault.offset, fault.detail)
        for path, fault in lw.verify(store).faults
        if fault.severity in chosen and path.startswith("index/") and "preallocated" not in fault.detail
    ]


def change(file: Path, at: int, data: bytes) -> None:
    content = bytearray(file.read_bytes())
    content[at : at + len(data)] = data
    file.write_bytes(content)


def entries(file: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lw.read(file, maxHashSlotNum=SLOTS, columns="*").to_pylist()
    return rows


def put(file: Path, kept: list[dict[str, Any]]) -> None:
    """Replace the entries of a file by `kept`, with a header and slots that fit."""
    header = file.read_bytes()[: HEADER.offset("begin_physical_offset")]
    rows = [{name: row[name] for name in ("key_hash", "physical_offset", "time_diff")} for row in kept]
    file.unlink()
    lw.write(rows, file, "rocketmq.indexfile", maxHashSlotNum=SLOTS, maxIndexNum=MOST)
    change(file, 0, header)


def assert_repaired(store: Path, out: Path, file: Path, before: bytes) -> None:
    """Check that a repair writes the index file as it was."""
    lw.repair(store, out)
    assert faults(out) == []
    assert (out / "index" / file.name).read_bytes() == before


@pytest.mark.alike
@pytest.mark.parametrize("end", ["begin", "end"])
@pytest.mark.parametrize("number", [0, 2, 3])
@pytest.mark.parametrize("place", [3, 7])
def test_times_of_the_header_are_those_of_the_first_and_the_last_message(
    store: Path, tmp_path: Path, end: str, number: int, place: int
) -> None:
    assert faults(store) == []
    file = index(store, number)
    before = file.read_bytes()
    at = HEADER.offset(f"{end}_timestamp")
    change(file, at + place, bytes([before[at + place] ^ 1]))
    value, stored = (int.from_bytes(data[at : at + 8], "big") for data in (before, file.read_bytes()))
    which = "first" if end == "begin" else "last"
    text = f"{end}_timestamp is {stored}, but the message of the {which} entry has {value}"
    assert faults(store) == [(f"index/{file.name}", at, text)]
    assert_repaired(store, tmp_path / "out", file, before)


@pytest.mark.parametrize(
    ("value", "severity"),
    [(0, Severity.WARNING), (MOST, Severity.WARNING), (8, Severity.INFO), (MOST - 1, None), (4, None)],
)
def test_number_of_used_slots_is_theirs_or_as_in_old_releases_that_of_the_entries(
    store: Path, value: int, severity: Severity | None
) -> None:
    """A number between them is possible if a release up to 4.7.0 began the file."""
    file, at = index(store), HEADER.offset("hash_slot_count")
    assert int.from_bytes(file.read_bytes()[at : at + 4], "big") == 4
    change(file, at, value.to_bytes(4, "big"))
    text = f"hash_slot_count is {value}, but 4 slots of {SLOTS} are used"
    expected = [] if severity is None else [(f"index/{file.name}", at, text)]
    assert faults(store, *Severity) == expected
    if severity is not None:
        assert faults(store, severity) == expected


@pytest.mark.parametrize("value", [0, 1, 5, 39, 41, 1 << 30])
def test_header_counts_the_entries(store: Path, value: int) -> None:
    file, at = index(store), HEADER.offset("index_count")
    change(file, at, value.to_bytes(4, "big"))
    assert (
        f"index/{file.name}", at, f"index_count is {value}, expected {MOST}: the file has {MOST - 1} entries"
    ) in faults(store)  # fmt: skip


def test_header_of_a_file_without_entries_has_one_end(tmp_path: Path) -> None:
    store = write(tmp_path / "store", [{} for _ in range(3)])
    assert faults(store) == []
    change(index(store), HEADER.offset("end_physical_offset"), (500).to_bytes(8, "big"))
    ((_, at, detail),) = faults(store)
    assert at == HEADER.offset("end_physical_offset")
    assert detail == "end_physical_offset is 500, but begin_physical_offset is 0 and the file has no entry"


@pytest.mark.alike
@pytest.mark.parametrize(("number", "other"), [(5, 4), (5, 6), (5, 20), (20, 5), (2, 28)])
def test_entry_that_leads_to_another_message_with_its_key_is_wrong(
    alike: Path, tmp_path: Path, number: int, other: int
) -> None:
    file = index(alike)
    before = file.read_bytes()
    phy = {row["entry"]: row["physical_offset"] for row in entries(file)}
    change(file, entry_at(SLOTS, number) + 4, phy[other].to_bytes(8, "big"))
    assert faults(alike) == [
        (
            f"index/{file.name}", entry_at(SLOTS, number),
            "1 entry with a wrong physical offset or hash; the first is entry "
            f"{number} (physical_offset {phy[other]}, expected {phy[number]})",
        )
    ]  # fmt: skip
    assert_repaired(alike, tmp_path / "out", file, before)


def test_entry_of_a_tag_that_leads_to_another_message_with_the_tag_is_wrong(store: Path) -> None:
    file = index(store)
    rows = entries(file)
    assert rows[11]["key_hash"] == rows[13]["key_hash"] == key_hash("T", "T#a")
    change(file, entry_at(SLOTS, 12) + 4, rows[13]["physical_offset"].to_bytes(8, "big"))
    ((_, at, detail),) = [fault for fault in faults(store) if "wrong physical offset" in fault[2]]
    assert at == entry_at(SLOTS, 12)
    assert detail.endswith(f"expected {rows[11]['physical_offset']})")


def test_entry_that_leads_into_a_message_or_a_blank_record_is_wrong(alike: Path) -> None:
    file = index(alike)
    phy = [row["physical_offset"] for row in entries(file)]
    last = next(number for number, at in enumerate(phy) if at // 2048 < phy[number + 1] // 2048)
    for number, to in ((3, phy[2] + 1), (last + 1, 2047)):
        before = file.read_bytes()
        change(file, entry_at(SLOTS, number) + 4, to.to_bytes(8, "big"))
        ((_, at, detail),) = faults(alike)
        assert at == entry_at(SLOTS, number)
        assert detail.endswith(f"(physical_offset {to}, expected {phy[number - 1]})")
        file.write_bytes(before)


def test_first_entry_counts_from_the_last_message_of_the_file_before(store: Path) -> None:
    file = index(store, 2)
    at = entry_at(SLOTS, 1)
    assert struct.unpack_from(">i", file.read_bytes(), at + 12) == (1,)
    change(file, at + 12, (3).to_bytes(4, "big"))
    text = "1 entry with another time than the message; the first is entry 1 (time_diff 3, expected 1)"
    assert faults(store) == [(f"index/{file.name}", at, text)]
    index(store, 1).unlink()  # another file may have been before it
    assert faults(store) == []


def test_missing_entry_before_another_one_of_its_message_is_reported(tmp_path: Path) -> None:
    store = write(tmp_path / "store", [{"keys": f"a{n} b{n}"} for n in range(15)])
    file = index(store)
    rows = entries(file)
    put(file, rows)
    assert faults(store, *Severity) == []
    put(file, [row for row in rows if row["entry"] != 9])
    key, phy = rows[8]["key_hash"], rows[8]["physical_offset"]
    text = f"1 entry is missing; the first has key hash {key} and belongs to the message at physical offset {phy}"
    assert (f"index/{file.name}", entry_at(SLOTS, 10), text) in faults(store)


@pytest.mark.parametrize(
    ("removed", "count"),
    [(range(9, 15), 3), (range(10, 11), 1), (range(10, 15), 3), (range(1, 9), 4), (range(25, 31), 3)],
)
def test_messages_that_were_not_indexed_are_no_damage(tmp_path: Path, removed: range, count: int) -> None:
    """The index was switched off, or a broker was killed after the first entry of a message."""
    store = write(tmp_path / "store", [{"keys": f"a{n} b{n}"} for n in range(15)])
    file = index(store)
    rows = entries(file)
    put(file, [row for row in rows if row["entry"] not in removed])
    if removed.start == 1:
        change(file, 0, struct.pack(">q", TIME + 4 * 1700))
        for number, row in enumerate(entries(file), 1):
            change(
                file, entry_at(SLOTS, number) + 12, struct.pack(">i", 1700 * (row["entry"] - 1) // 2 // 1000)
            )
    if removed.stop == 31:
        change(file, 8, struct.pack(">q", TIME + 11 * 1700))
    assert [fault for fault in faults(store) if "time" not in fault[2]] == []
    notes = [detail for _, _, detail in faults(store, Severity.INFO) if "without an entry" in detail]
    assert [note.split()[0] for note in notes] == ([str(count)] if count else [])


def test_message_that_a_broker_indexes_again_is_no_damage(alike: Path) -> None:
    """After an unclean stop it indexes the message at the end of a file again."""
    file = index(alike)
    rows = entries(file)
    put(file, rows[:12] + rows[11:])
    assert faults(alike, *Severity) == []


@pytest.mark.parametrize("written", [4, 12, 16, 20])
@pytest.mark.parametrize("in_slot", [False, True])
def test_entry_that_a_killed_broker_did_not_finish_is_no_damage(
    alike: Path, written: int, in_slot: bool
) -> None:
    """It writes the entry, then its slot, then the header."""
    file = index(alike)
    rows = entries(file)
    put(file, rows[:-1])
    change(file, 8, struct.pack(">q", TIME + 28 * 1700))
    entry = struct.pack(">iqii", rows[0]["key_hash"], rows[-1]["physical_offset"], 49, 29)
    change(file, entry_at(SLOTS, 30), entry[:written])
    if in_slot and written == 20:
        change(file, 40 + 4 * (rows[0]["key_hash"] % SLOTS), struct.pack(">i", 30))
    assert faults(alike) == []
    assert [row["entry"] for row in entries(file)] == list(range(1, 30))
    assert "an unfinished entry" in "".join(fault.detail for _, fault in lw.verify(alike).faults)


def test_entries_of_deleted_messages_are_passed_over(tmp_path: Path) -> None:
    """A broker deletes an index file only when its last message is before the log."""
    sizes = {
        **SIZES,
        "mappedFileSizeCommitLog": 1 << 20,
        "mappedFileSizeConsumeQueue": 20_000,
        "maxIndexNum": 200_000,
    }
    home, count = tmp_path / "store", 60_000
    table = {
        "topic": ["T"] * count, "queue_id": [0] * count, "body": [b"x"] * count, "keys": [f"k{n % 100}" for n in range(count)],
        "store_timestamp_ms": [TIME + n for n in range(count)],
    }  # fmt: skip
    lw.write(pa.table(table), home, "rocketmq.store", **sizes)
    logs = sorted((home / "commitlog").iterdir())
    for log in logs[: 3 * len(logs) // 4]:
        log.unlink()
    assert faults(home, *Severity) == []
    file, number = index(home), count - 5
    change(file, entry_at(SLOTS, number) + 4, entries(file)[number - 2]["physical_offset"].to_bytes(8, "big"))
    assert [(path, at) for path, at, _ in faults(home)] == [(f"index/{file.name}", entry_at(SLOTS, number))]


@pytest.mark.parametrize(("number", "messages", "noted"), [(0, 39, 0), (1, 39, 1), (3, 3, 2)])
def test_messages_of_a_missing_index_file_are_noted(
    tmp_path: Path, number: int, messages: int, noted: int
) -> None:
    """A broker that was killed leaves such gaps too, so they are no damage."""
    store = write(tmp_path / "store", [{"keys": f"k{n}"} for n in range(120)])
    index(store, number).unlink()
    notes = [fault for fault in faults(store, Severity.INFO) if "without an entry" in fault[2]]
    assert [(path, detail.split()[0]) for path, _, detail in notes] == [
        (f"index/{index(store, noted).name}", str(messages))
    ]
    assert faults(store) == []


def test_entry_missing_between_two_index_files_is_reported(store: Path) -> None:
    """The last entry of a message is in the second file, and the first one was in the first file."""
    index(store).unlink()
    assert [detail[:18] for _, _, detail in faults(store)] == ["1 entry is missing"]


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 3), (2, 3)])
def test_index_files_with_exchanged_names_are_reported_and_rebuilt(
    store: Path, tmp_path: Path, first: int, second: int
) -> None:
    contents = {file.name: file.read_bytes() for file in (store / "index").iterdir()}
    before, after = index(store, first), index(store, second)
    before.write_bytes(contents[after.name])
    after.write_bytes(contents[before.name])
    details = [detail for _, _, detail in faults(store)]
    assert details
    assert all(detail.endswith("files were renamed") for detail in details)
    lw.repair(store, tmp_path / "repaired")
    assert {file.name: file.read_bytes() for file in (tmp_path / "repaired/index").iterdir()} == contents
