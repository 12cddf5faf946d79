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
        "orders-0  DAMAGED  0.log  at 73400320, 16,421 bytes: checksum mismatch",
        "  lost: topic orders, partition 0, offsets 4183220..4183341 (122 rows, 2025-11-20 03:11:07..03:11:09 UTC)",
        "  kafka cuts the log here",
        "  logwright dump orders-0 --mode DROPMALFORMED   gets every row that is sound",
    ]


SYSTEM = {
    "name": "kafka", "version": "4.3", "clean": False, "clean_from": "option", "opens": True, "scope": None, "error": None, "error_class": None,
    "rows": 5, "rows_lost": 6912004, "lost": [], "serves": {"first": 0, "last": 9, "stops_at": None},
    "truncates": {"0.log": 73400320}, "removes": ["1.log", "2.log", "1.index"], "rewrites": [], "creates": [], "warnings": [],
}  # fmt: skip


def partition_report(*faults: Fault, **system: object) -> Report:
    found = report(*faults)
    found.system = {**SYSTEM, **system}
    for name in ("1.log", "2.log"):
        found.file(name, "kafka.log")
    found.file("1.index", "kafka.index").primary = False
    found.nouns, found.known, found.repairs = ("record", "segment"), {"topic": "orders", "partition": 0}, True
    found.advice = ("another in-sync replica?",)
    return found


def test_text_of_a_directory() -> None:
    """The example of the documentation."""
    assert partition_report(fault(rows_lost=122, lost=LOST)).text().splitlines() == [
        "orders-0  DAMAGED  0.log  at 73400320, 16,421 bytes: checksum mismatch",
        "  lost: offsets 4183220..4183341 (122 records, 2025-11-20 03:11:07..03:11:09 UTC)",
        "  kafka 4.3, after an unclean stop: opens, cuts that file to 73400320, deletes 2 later segments: loses 6,912,004",
        "      records",
        "  logwright repair orders-0 --out DIR   loses 122",
        "  another in-sync replica?",
    ]


def system_line(*faults: Fault, **system: object) -> str:
    lines = partition_report(*faults, **system).text().splitlines()
    found = (lines[i:] for i, line in enumerate(lines) if line.startswith("  kafka 4.3"))
    return " ".join(" ".join(next(found)).split())


def test_what_the_system_would_do() -> None:
    one = fault(lost=LOST)
    opens = {"truncates": {}, "removes": []}
    assert "clean stop: opens, loses nothing more" in system_line(one, clean=True, rows_lost=0, **opens)
    assert "opens, loses nothing" in system_line(fault(), clean=True, rows_lost=0, **opens)
    assert ": opens, deletes 1 segment: loses 1 record" in system_line(
        one, truncates={}, removes=["2.log"], rows_lost=1
    )
    assert "opens, loses records" in system_line(one, rows_lost=None, lost=[{}], **opens)
    assert "cuts 3 files" in system_line(one, truncates=dict.fromkeys("abc", 1))
    assert "cuts 1.log to 7, loses" not in system_line(one, truncates={"1.log": 7})
    assert "its clients stop with an error at 31" in system_line(
        one, serves={"first": 0, "last": 30, "stops_at": 31}
    )
    assert "loses nothing more it stays bad" in system_line(
        one, rows_lost=0, warnings=["it stays bad"], **opens
    )
    assert "not again" not in system_line(one, warnings=["not again"])
    said = system_line(one, opens=False, scope="process", error="it says no")
    assert "stop: does not start: it says no" in said
    assert "starts without the whole disk" in system_line(one, opens=False, scope="log_dir")
    assert "starts without it: BadError" in system_line(
        one, opens=False, scope="partition", error_class="BadError"
    )
    said = system_line(one, opens=False, scope="process", error="No: stored 1, computed 2")
    assert "does not start" in said
    assert "No:" not in said


def test_the_next_command() -> None:
    def last(*faults: Fault) -> str:
        return partition_report(*faults).text().splitlines()[-2].strip()

    assert last(fault(lost=LOST)) == "logwright repair orders-0 --out DIR   loses only what is damaged"
    assert last(fault(rows_lost=0)) == "logwright repair orders-0 --out DIR   loses nothing"
    assert last(fault(rows_lost=2), fault(1 << 30, rows_lost=3)).endswith("loses 5")
    derived = partition_report()
    derived.file("1.index", "kafka.index").add(fault())
    assert derived.text().splitlines()[-2].strip() == "logwright repair orders-0 --out DIR   loses nothing"
    read = partition_report(fault(rows_lost=2))
    read.checked = False
    assert read.text().endswith("logwright verify orders-0   says more of it")
    read.next = "logwright help"
    assert read.text().endswith("logwright help")


def test_what_a_running_system_writes_is_not_there_yet() -> None:
    found = partition_report(fault(rows_lost=2))
    found.live = True
    assert "the system is running on it" in found.text()
    assert "replica" not in found.text()


def test_after_a_repair_the_notes_speak() -> None:
    found = partition_report(fault(rows_lost=122, lost=LOST))
    found.cut, found.rows_kept = [{"file": "0.log"}], 77
    found.notes.append("77 records are in DIR")
    assert found["rows"] == 77
    assert found["cut"] == [{"file": "0.log"}]
    text = found.text()
    assert "77 records are in DIR" in text
    assert "kafka 4.3" not in text
    assert "replica" not in text


def test_faults_that_say_the_same_are_put_together() -> None:
    found = report(*(fault(i) for i in range(11)), fault(99, severity=Severity.INFO))
    found.notes.append("read as it is")
    lines = str(found).splitlines()
    assert lines[0] == "orders-0  DAMAGED  180.6 kB of 1.1 GB, 1,234 frames, 5,678 rows, 12 faults"
    assert (
        lines[1]
        == "  DAMAGED  0.log  at 0, 16,421 bytes: checksum mismatch, and 10 more like it, up to 16431"
    )
    assert "  read as it is" in lines
    assert len(lines) == 4


def test_faults_of_one_place_are_put_together() -> None:
    other = Fault("kafka.log", 73400320, 16421, Kind.ORDER, "not above", rows_lost=3, lost={"first_x": 1})
    lines = report(fault(), other).text().splitlines()
    assert lines[0] == "orders-0  DAMAGED  0.log  at 73400320, 16,421 bytes: checksum mismatch"
    assert lines[1] == "  lost: xs from 1 on, if any (3 rows)"


def test_text_of_many_faults() -> None:
    found = report(*(fault(1000000 * i, rows_lost=i) for i in range(1, 12)))
    found.file("2.log", "kafka.log").add(fault(5, severity=Severity.WARNING))
    lines = str(found).splitlines()
    assert len([line for line in lines if line.startswith("  DAMAGED")]) == 8
    assert "  and 4 more (--json has all)" in lines
    assert "  lost in all: 66 rows" in lines


def test_several_things() -> None:
    """A line each, the worst first, what the system would do with all."""
    whole = Report("/data/logs")
    for name, rows_lost, opens in (("a-0", 5, True), ("b-0", 9, True), ("c-0", 0, False)):
        part = partition_report(
            fault(rows_lost=2), rows_lost=rows_lost, opens=opens, scope=None if opens else "process"
        )
        part.path = f"/data/logs/{name}"
        whole.parts.append(part)
    sound = partition_report(rows_lost=0)
    sound.path = "/data/logs/sound-0"
    whole.parts.append(sound)
    lines = whole.text().splitlines()
    assert lines[0] == "/data/logs  DAMAGED  3 of 4 damaged, 49.3 kB of 4.3 GB, 22,712 records, 3 faults"
    assert lines[1:3] == ["  lost in all: 6 records", "  kafka 4.3: does not start, because of c-0"]
    assert [line.split()[0] for line in lines[3:7]] == ["c-0", "b-0", "a-0", "sound-0"]
    assert lines[4] == "  b-0      DAMAGED  checksum mismatch; lost: 2 records; kafka 4.3 loses 9 records"
    assert lines[7] == "  logwright verify /data/logs/c-0   says more of the worst of them"
    del whole.parts[2]
    assert whole.text().splitlines()[2] == "  kafka 4.3: loses 14 records in 2 of them"
    assert not whole.safe
    assert sound.safe
    found = whole.to_dict()
    assert [one["path"] for one in found["targets"]] == [part.path for part in whole.parts]
    assert found["targets"][0]["system"]["rows_lost"] == 5
    assert "system" not in found
    assert "/data/logs/a-0/0.log" in {file["path"] for file in found["files"]}
    assert (found["faults_total"], found["rows"]) == (2, 3 * 5678)
    json.dumps(found)


def test_several_things_that_are_all_sound() -> None:
    whole = Report("/data/logs")
    for name in ("a-0", "b-0"):
        part = partition_report(rows_lost=0)
        part.path = f"/data/logs/{name}"
        whole.parts.append(part)
    lines = whole.text().splitlines()
    assert lines[0] == "/data/logs  ok  2 looked at, 2.1 GB, 11,356 records"
    assert not [line for line in lines if "fault" in line]


def test_what_is_said_twice_of_one_place_is_told_once() -> None:
    """With what was lost there, whichever of the two says it."""
    for said in ((LOST, {}), ({}, LOST)):
        lines = (
            report(*(fault(7, rows_lost=len(lost) and 122, lost=lost) for lost in said)).text().splitlines()
        )
        assert "offsets 4183220..4183341" in lines[1]
        assert not [line for line in lines[2:] if "lost:" in line]


def test_of_many_things_those_that_are_sound_are_counted() -> None:
    whole = Report("/data/logs")
    for i in range(50):
        part = report(*([fault()] if i % 10 == 3 else []))
        part.path = f"/data/logs/x-{i}"
        whole.parts.append(part)
    lines = whole.text().splitlines()
    assert len(lines) == 1 + 5 + 2
    assert lines[6] == "  and 45 more, all ok"
    whole.parts = [part for part in whole.parts if not part.ok] * 10
    assert "  and 10 more with faults (--json has all)" in whole.text().splitlines()


def test_no_line_is_long() -> None:
    words = "a broker that recovers the segment empties it and deletes all that follow " * 5
    found = report(Fault("kafka.log", 1, 2, Kind.ORDER, words, system=words, lost=LOST), fault())
    assert max(len(line) for line in found.text().splitlines()) <= 118


def test_text_when_all_is_well() -> None:
    assert report().text().splitlines() == [
        "orders-0  ok  1.1 GB, 1,234 frames, 5,678 rows",
        "  logwright dump orders-0 --limit 10",
    ]
    noted = report(*(fault(100000 * i, severity=Severity.INFO, lost={"first_y": i}) for i in range(5)))
    lines = noted.text().splitlines()
    assert lines[0].endswith("5,678 rows, 5 notes")
    assert "  and 2 more notes (--json has all)" in lines
    noted.file("0.log", None).unchecked = True
    assert noted.text().startswith("orders-0  not checked  ")


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
    assert "lost: ids from 3 on, if any" in report(fault(lost={"first_id": 3})).text()
    assert "lost: ids up to 3\n" in report(fault(lost={"last_id": 3})).text()
    same = {"first_id": 3, "last_id": 4, "first_timestamp": 5000, "last_timestamp": 5000}
    assert "lost: ids 3..4 (1970-01-01 00:00:05 UTC)" in report(fault(lost=same)).text()
    assert "5 rows" in report(fault(rows_lost=5)).text()


def test_paths_are_quoted_for_the_shell() -> None:
    assert Report("my dir").text().endswith("logwright dump 'my dir' --limit 10")
