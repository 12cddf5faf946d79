"""The report: exact numbers, capped lists, and a text that says what to do next."""

from __future__ import annotations

import json
import pickle

from logwright.codec.fault import Fault, Kind, Severity
from logwright.readers.report import Report

KEYS = [
    "report",
    "logwright",
    "path",
    "codec",
    "ok",
    "live",
    "bytes",
    "bytes_damaged",
    "frames",
    "rows",
    "faults_total",
    "files",
]
LOST = {
    "topic": "orders", "partition": 0, "first_offset": 4183220, "last_offset": 4183341,
    "first_timestamp": 1763608267000, "last_timestamp": 1763608269000,
}  # fmt: skip


def fault(offset: int = 73400320, severity: Severity = Severity.ERROR, **rest: object) -> Fault:
    return Fault("kafka.log", offset, 16421, Kind.CHECKSUM, "stored 1, computed 2", severity, **rest)  # type: ignore[arg-type]


def report(*faults: Fault, max_faults: int = 1000) -> Report:
    made = Report("orders-0", "kafka.partition", live=False, max_faults=max_faults)
    file = made.file("0.log", "kafka.log")
    file.bytes, file.frames, file.rows = 1 << 30, 1234, 5678
    for one in faults:
        file.add(one, damaged=True)
    return made


def test_fields_are_those_of_the_interface() -> None:
    found = report(fault(rows_lost=122, lost=LOST)).to_dict()
    assert list(found) == KEYS
    assert (found["ok"], found["bytes"], found["bytes_damaged"], found["faults_total"]) == (
        False,
        1 << 30,
        16421,
        1,
    )
    (file,) = found["files"]
    assert list(file) == ["path", "codec", "bytes", "frames", "rows", "faults"]
    assert file["faults"] == [
        {
            "offset": 73400320, "length": 16421, "kind": "checksum mismatch", "severity": "error",
            "detail": "stored 1, computed 2", "rows_lost": 122, "lost": LOST,
        }
    ]  # fmt: skip
    json.dumps(found)


def test_it_reads_like_a_dict() -> None:
    found = report()
    assert dict(found) == found.to_dict()
    assert found["ok"] is True
    assert len(found) == len(KEYS)
    assert "0.log" in str(found["files"])
    assert repr(report(fault())) == "<Report orders-0: damaged, 1 fault>"


def test_only_errors_make_it_not_ok() -> None:
    assert report(fault(severity=Severity.WARNING), fault(severity=Severity.INFO)).ok
    assert not report(fault(severity=Severity.INFO), fault()).ok
    assert report(fault(severity=Severity.WARNING), fault(severity=Severity.INFO)).worst is Severity.WARNING
    assert report(fault(severity=Severity.INFO)).worst is Severity.INFO
    assert report().worst is None
    assert report(fault(severity=Severity.INFO)).bytes_damaged == 0


def test_lists_are_capped_and_counts_exact() -> None:
    found = report(*(fault(i) for i in range(20)), max_faults=5)
    other = found.file("1.log", "kafka.log")
    for i in range(20):
        other.add(fault(i), damaged=True)
    assert found["faults_total"] == 40
    assert [len(file["faults"]) for file in found["files"]] == [5, 0]
    assert len(found.faults) == 5
    assert found.bytes_damaged == 40 * 16421


def test_parts_add_up() -> None:
    first, second = report(fault(900)), report(fault(100), fault(5, severity=Severity.INFO))
    second.live = True
    second.notes.append("a note")
    second.file("1.log", "kafka.log").rows = 7
    whole = pickle.loads(pickle.dumps(first)).merge(pickle.loads(pickle.dumps(second)))
    assert (whole.rows, whole.frames, whole.bytes) == (2 * 5678 + 7, 2 * 1234, 2 << 30)
    assert [one.offset for _, one in whole.faults] == [5, 100, 900]
    assert whole.faults_total == 3
    assert whole.live is True
    assert whole.notes == ["a note"]


def test_several_paths() -> None:
    assert Report(["a", "b"])["path"] == "a, b"


def test_text_of_one_fault() -> None:
    text = report(fault(rows_lost=122, lost=LOST, system="kafka cuts the log here")).text()
    assert text.splitlines() == [
        "orders-0  DAMAGED  0.log  at 73400320, 16421 bytes: checksum mismatch, stored 1, computed 2",
        "  lost: topic orders, partition 0, offsets 4183220..4183341 (122 rows, 2025-11-20 03:11:07..03:11:09 UTC)",
        "  kafka cuts the log here",
        "  logwright dump orders-0 --mode DROPMALFORMED   gets every row that is sound",
    ]


def test_text_of_many_faults() -> None:
    found = report(*(fault(i) for i in range(11)), fault(99, severity=Severity.INFO))
    found.notes.append("read as it is")
    lines = str(found).splitlines()
    assert lines[0] == "orders-0  DAMAGED  180.6 kB of 1.1 GB, 1,234 frames, 5,678 rows, 12 faults"
    assert len([line for line in lines if "DAMAGED" in line]) == 9
    assert "  and 4 more" in lines
    assert "  read as it is" in lines


def test_text_when_all_is_well() -> None:
    assert report().text().splitlines() == [
        "orders-0  ok  1.1 GB, 1,234 frames, 5,678 rows",
        "  logwright dump orders-0 --limit 10",
    ]


def test_text_of_a_warning_leads_to_the_bytes() -> None:
    text = report(fault(12, severity=Severity.WARNING, lost={"first_id": 3, "last_id": 3, "of": None})).text()
    assert "warning  0.log  at 12" in text
    assert "lost: id 3" in text
    assert text.splitlines()[-1] == "  logwright verify orders-0 --json   says all of it"


def test_text_of_what_is_not_known() -> None:
    lost = {
        "first_id": None,
        "last_id": 9,
        "first_timestamp": None,
        "last_timestamp": 1 << 62,
        "first_x": None,
        "last_x": None,
    }
    text = report(fault(lost=lost)).text()
    assert "ids ?..9, x unknown (?..4611686018427387904 UTC)" in text
    assert "lost: ids from 3 on" in report(fault(lost={"first_id": 3})).text()
    assert "lost: ids up to 3\n" in report(fault(lost={"last_id": 3})).text()
    same = {"first_id": 3, "last_id": 4, "first_timestamp": 5000, "last_timestamp": 5000}
    assert "lost: ids 3..4 (1970-01-01 00:00:05 UTC)" in report(fault(lost=same)).text()
    assert "5 rows" in report(fault(rows_lost=5)).text()


def test_paths_are_quoted_for_the_shell() -> None:
    assert Report("my dir").text().endswith("logwright dump 'my dir' --limit 10")
