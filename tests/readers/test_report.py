"""The report: exact numbers, capped lists, and text that names the next step."""

from __future__ import annotations

import json
import pickle

from logwright.codec.fault import DamageError, Fault, Kind, Severity
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
    new_report = Report("orders-0", "kafka.partition", live=False, max_faults=max_faults)
    file = new_report.file("0.log", "kafka.log")
    file.bytes, file.frames, file.rows = 1 << 30, 1234, 5678
    for fault in faults:
        file.add(fault, damaged=True)
    return new_report


def test_keys_are_those_of_the_interface() -> None:
    fields = report(fault(rows_lost=122, lost=LOST)).to_dict()
    assert list(fields) == KEYS
    assert (fields["ok"], fields["bytes"], fields["bytes_damaged"], fields["faults_total"]) == (
        False,
        1 << 30,
        16421,
        1,
    )
    (file,) = fields["files"]
    assert list(file) == ["path", "codec", "bytes", "frames", "rows", "faults"]
    assert file["faults"] == [
        {
            "offset": 73400320, "length": 16421, "kind": "checksum mismatch", "severity": "error",
            "detail": "stored 1, computed 2", "rows_lost": 122, "lost": LOST, "system": None,
        }
    ]  # fmt: skip
    json.dumps(fields)


def test_report_reads_like_a_dict() -> None:
    summary = report()
    assert dict(summary) == summary.to_dict()
    assert summary["ok"] is True
    assert len(summary) == len(KEYS)
    assert "0.log" in str(summary["files"])
    assert repr(report(fault())) == "<Report orders-0: damaged, 1 fault>"


def test_only_errors_make_it_not_ok() -> None:
    assert report(fault(severity=Severity.WARNING), fault(severity=Severity.INFO)).ok
    assert not report(fault(severity=Severity.INFO), fault()).ok
    assert report(fault(severity=Severity.WARNING), fault(severity=Severity.INFO)).worst is Severity.WARNING
    assert report(fault(severity=Severity.INFO)).worst is Severity.INFO
    assert report().worst is None
    assert report(fault(severity=Severity.INFO)).bytes_damaged == 0


def test_lists_are_capped_and_counts_exact() -> None:
    capped = report(*(fault(i) for i in range(20)), max_faults=5)
    other = capped.file("1.log", "kafka.log")
    for i in range(20):
        other.add(fault(i), damaged=True)
    assert capped["faults_total"] == 40
    assert [len(file["faults"]) for file in capped["files"]] == [5, 0]
    assert len(capped.faults) == 5
    assert capped.bytes_damaged == 40 * 16421


def test_merged_reports_add_up() -> None:
    first, second = report(fault(900)), report(fault(100), fault(5, severity=Severity.INFO))
    second.live = True
    second.notes.append("a note")
    second.file("1.log", "kafka.log").rows = 7
    merged = pickle.loads(pickle.dumps(first)).merge(pickle.loads(pickle.dumps(second)))
    assert (merged.rows, merged.frames, merged.bytes) == (2 * 5678 + 7, 2 * 1234, 2 << 30)
    assert [fault.offset for _, fault in merged.faults] == [5, 100, 900]
    assert merged.faults_total == 3
    assert merged.live is True
    assert merged.notes == ["a note"]


def test_path_of_several_inputs() -> None:
    assert Report(["a", "b"])["path"] == "a, b"


def test_text_of_one_fault() -> None:
    text = report(fault(rows_lost=122, lost=LOST, system="kafka cuts the log here")).text()
    assert text.splitlines() == [
        "orders-0  DAMAGED  0.log  at 73400320, 16,421 bytes: checksum mismatch",
        "  lost: topic orders, partition 0, offsets 4183220..4183341 (122 rows, 2025-11-20 03:11:07..03:11:09 UTC)",
        "  kafka cuts the log here",
        "  logwright dump orders-0 --mode DROPMALFORMED   prints every undamaged row",
    ]


SYSTEM = {
    "name": "kafka", "version": "4.3", "clean": False, "clean_from": "option", "opens": True, "scope": None, "error": None, "error_class": None,
    "rows": 5, "rows_lost": 6912004, "lost": [], "serves": {"first": 0, "last": 9, "stops_at": None},
    "truncates": {"0.log": 73400320}, "removes": ["1.log", "2.log", "1.index"], "rewrites": [], "creates": [], "warnings": [],
}  # fmt: skip


def partition_report(*faults: Fault, **system: object) -> Report:
    partition = report(*faults)
    partition.system = {**SYSTEM, **system}
    for name in ("1.log", "2.log"):
        partition.file(name, "kafka.log")
    partition.file("1.index", "kafka.index").primary = False
    partition.nouns, partition.known, partition.repairs = (
        ("record", "segment"),
        {"topic": "orders", "partition": 0},
        True,
    )
    partition.advice = ("another in-sync replica?",)
    return partition


def test_control_characters_of_data_are_escaped() -> None:
    text = report(fault(rows_lost=1, lost={"topic": "a\x1b[31m\n\0é\tb"})).text()
    assert "  lost: topic a\\x1b[31m\\n\\x00é b (1 row)" in text.splitlines()
    assert str(DamageError("a\x1b[31m\tb", path="x")) == "x: a\\x1b[31m b"


def test_text_of_a_directory() -> None:
    """The example of the documentation."""
    assert partition_report(fault(rows_lost=122, lost=LOST)).text().splitlines() == [
        "orders-0  DAMAGED  0.log  at 73400320, 16,421 bytes: checksum mismatch",
        "  lost: offsets 4183220..4183341 (122 records, 2025-11-20 03:11:07..03:11:09 UTC)",
        "  kafka 4.3, after an unclean stop: opens it, truncates this file to 73,400,320 bytes, deletes 2 later segments and",
        "      loses 6,912,004 records",
        "  logwright repair orders-0 --out DIR   loses 122 records",
        "  another in-sync replica?",
    ]


def system_line(*faults: Fault, **system: object) -> str:
    lines = partition_report(*faults, **system).text().splitlines()
    paragraph = (lines[i:] for i, line in enumerate(lines) if line.startswith("  kafka 4.3"))
    return " ".join(" ".join(next(paragraph)).split())


def test_text_of_what_the_system_would_do() -> None:
    loss = fault(lost=LOST)
    opens = {"truncates": {}, "removes": []}
    assert "clean stop: opens it and loses nothing more" in system_line(
        loss, clean=True, rows_lost=0, **opens
    )
    assert "opens it and loses nothing" in system_line(fault(), clean=True, rows_lost=0, **opens)
    assert ": opens it, deletes 1 segment and loses 1 record" in system_line(
        loss, truncates={}, removes=["2.log"], rows_lost=1
    )
    assert "opens it and loses records" in system_line(loss, rows_lost=None, lost=[{}], **opens)
    assert "truncates 3 files" in system_line(loss, truncates=dict.fromkeys("abc", 1))
    assert "truncates 1.log to 7 bytes, loses" not in system_line(loss, truncates={"1.log": 7})
    assert "clients stop with an error at 31" in system_line(
        loss, serves={"first": 0, "last": 30, "stops_at": 31}
    )
    assert "loses nothing more it stays bad" in system_line(
        loss, rows_lost=0, warnings=["it stays bad"], **opens
    )
    assert "not again" not in system_line(loss, warnings=["not again"])
    line = system_line(loss, opens=False, scope="process", error="it says no")
    assert "stop: does not start: it says no" in line
    assert "starts without this log directory" in system_line(loss, opens=False, scope="log_dir")
    assert "starts without this partition: BadError" in system_line(
        loss, opens=False, scope="partition", error_class="BadError"
    )
    line = system_line(loss, opens=False, scope="process", error="No: stored 1, computed 2")
    assert "does not start" in line
    assert "No:" not in line


def test_next_command_says_what_a_repair_would_lose() -> None:
    def last(*faults: Fault) -> str:
        return partition_report(*faults).text().splitlines()[-2].strip()

    assert last(fault(lost=LOST)) == "logwright repair orders-0 --out DIR   loses only damaged data"
    assert last(fault(rows_lost=0)) == "logwright repair orders-0 --out DIR   loses nothing"
    assert last(fault(rows_lost=2), fault(1 << 30, rows_lost=3)).endswith("loses 5 records")
    derived = partition_report()
    derived.file("1.index", "kafka.index").add(fault())
    assert derived.text().splitlines()[-2].strip() == "logwright repair orders-0 --out DIR   loses nothing"
    read = partition_report(fault(rows_lost=2))
    read.checked = False
    assert read.text().endswith("logwright verify orders-0   for details")
    read.next = "logwright help"
    assert read.text().endswith("logwright help")


def test_next_command_after_warnings_of_derived_files_is_a_repair() -> None:
    warned = partition_report()
    warned.derived = frozenset({"1.index", "2.index"})
    warned.file("1.index", "kafka.index").add(fault(severity=Severity.WARNING))
    assert warned.text().endswith("logwright repair orders-0 --out DIR   rebuilds this file")
    warned.file("2.index", "kafka.index").add(fault(severity=Severity.WARNING))
    assert warned.text().endswith("logwright repair orders-0 --out DIR   rebuilds these files")
    warned.file("0.log", "kafka.log").add(fault(severity=Severity.WARNING))
    assert warned.text().endswith("logwright verify orders-0 --json   for the full list")


def test_unfinished_write_of_a_running_system_is_no_loss() -> None:
    partition = partition_report(fault(rows_lost=2))
    partition.live = True
    assert "the system is running here" in partition.text()
    assert "replica" not in partition.text()


def test_notes_after_a_repair() -> None:
    partition = partition_report(fault(rows_lost=122, lost=LOST))
    partition.cut, partition.rows_kept = [{"file": "0.log"}], 77
    partition.notes.append("77 records are in DIR")
    assert partition["rows"] == 77
    assert partition["cut"] == [{"file": "0.log"}]
    text = partition.text()
    assert "77 records are in DIR" in text
    assert "kafka 4.3" not in text
    assert "replica" not in text


def test_equal_faults_are_grouped_and_notes_are_counted_apart() -> None:
    capped = report(*(fault(i) for i in range(11)), fault(99, severity=Severity.INFO))
    capped.notes.append("read as it is")
    lines = str(capped).splitlines()
    assert lines[0] == "orders-0  DAMAGED  180.6 kB of 1.1 GB, 1,234 frames, 5,678 rows, 11 faults, 1 note"
    assert lines[1] == "  DAMAGED  0.log  at 0, 16,421 bytes: checksum mismatch, and 10 similar up to 16431"
    assert "  read as it is" in lines
    assert len(lines) == 4


def test_equal_notes_of_several_files_are_grouped() -> None:
    noted = report(*(fault(i, severity=Severity.INFO) for i in range(2)))
    for name in ("1.log", "2.log"):
        noted.file(name, "kafka.log").add(fault(5, severity=Severity.INFO))
    lines = str(noted).splitlines()
    assert lines[0].endswith("4 notes")
    assert lines[1] == "  note  0.log  at 0, 16,421 bytes: checksum mismatch, and 3 similar in 3 files"
    assert len(lines) == 3


def test_the_headline_after_an_edit_counts_the_rows_of_the_input() -> None:
    edited = report()
    edited.cut, edited.rows_kept = [{"file": "0.log"}], 77
    assert edited.rows == 77
    assert edited.text().splitlines()[0] == "orders-0  ok  1.1 GB, 1,234 frames, 5,678 rows"


def test_faults_at_one_position_are_grouped() -> None:
    other = Fault("kafka.log", 73400320, 16421, Kind.ORDER, "not above", rows_lost=3, lost={"first_x": 1})
    lines = report(fault(), other).text().splitlines()
    assert lines[0] == "orders-0  DAMAGED  0.log  at 73400320, 16,421 bytes: checksum mismatch"
    assert lines[1] == "  lost: xs from 1, if any (3 rows)"


def test_text_of_many_faults() -> None:
    capped = report(*(fault(1000000 * i, rows_lost=i) for i in range(1, 12)))
    capped.file("2.log", "kafka.log").add(fault(5, severity=Severity.WARNING))
    lines = str(capped).splitlines()
    assert len([line for line in lines if line.startswith("  DAMAGED")]) == 8
    assert "  and 4 more (--json lists all)" in lines
    assert "  lost in total: 66 rows" in lines


def test_text_says_what_is_not_listed() -> None:
    lines = str(report(*(fault(1000000 * i, rows_lost=i) for i in range(1, 31)), max_faults=20)).splitlines()
    assert "  and 22 more (--json lists the first 20)" in lines
    assert "  lost in total: at least 210 rows" in lines


def test_text_of_several_inputs() -> None:
    """One line each, the worst first, and what the system would do with all of them."""
    merged = Report("/data/logs")
    for name, rows_lost, opens in (("a-0", 5, True), ("b-0", 9, True), ("c-0", 0, False)):
        part = partition_report(
            fault(rows_lost=2), rows_lost=rows_lost, opens=opens, scope=None if opens else "process"
        )
        part.paths = (f"/data/logs/{name}",)
        merged.parts.append(part)
    sound = partition_report(rows_lost=0)
    sound.paths = ("/data/logs/sound-0",)
    merged.parts.append(sound)
    lines = merged.text().splitlines()
    assert lines[0] == "/data/logs  DAMAGED  3 of 4 damaged, 49.3 kB of 4.3 GB, 22,712 records, 3 faults"
    assert lines[1:3] == ["  lost in total: 6 records", "  kafka 4.3: does not start, because of c-0"]
    assert [line.split()[0] for line in lines[3:7]] == ["c-0", "b-0", "a-0", "sound-0"]
    assert lines[4] == "  b-0      DAMAGED  checksum mismatch; lost: 2 records; kafka 4.3 loses 9 records"
    assert lines[7] == "  logwright verify /data/logs/c-0   for details of the worst"
    del merged.parts[2]
    assert merged.text().splitlines()[2] == "  kafka 4.3: loses 14 records in 2 of them"
    assert not merged.safe
    assert sound.safe
    fields = merged.to_dict()
    assert [target["path"] for target in fields["targets"]] == [part.path for part in merged.parts]
    assert fields["targets"][0]["system"]["rows_lost"] == 5
    assert "system" not in fields
    assert "/data/logs/a-0/0.log" in {file["path"] for file in fields["files"]}
    assert (fields["faults_total"], fields["rows"]) == (2, 3 * 5678)
    json.dumps(fields)


def test_each_system_has_its_own_line() -> None:
    merged = Report("/backup")
    for name, system in (("a-0", "kafka"), ("b-0", "kafka"), ("db", "leveldb")):
        part = partition_report(fault(rows_lost=2), rows_lost=5)
        part.system = {**(part.system or {}), "name": system}
        part.paths = (f"/backup/{name}",)
        merged.parts.append(part)
    lines = merged.text().splitlines()
    assert lines[2:4] == [
        "  kafka 4.3: loses 10 records in 2 of them",
        "  leveldb 4.3: loses 5 records in 1 of them",
    ]


def test_text_of_several_sound_inputs() -> None:
    merged = Report("/data/logs")
    for name in ("a-0", "b-0"):
        part = partition_report(rows_lost=0)
        part.paths = (f"/data/logs/{name}",)
        merged.parts.append(part)
    lines = merged.text().splitlines()
    assert lines[0] == "/data/logs  ok  2 checked, 2.1 GB, 11,356 records"
    assert not [line for line in lines if "fault" in line]


def test_repeated_fault_is_printed_once() -> None:
    """With the loss, whichever of the two faults names it."""
    for faults in ((LOST, {}), ({}, LOST)):
        lines = (
            report(*(fault(7, rows_lost=len(lost) and 122, lost=lost) for lost in faults)).text().splitlines()
        )
        assert "offsets 4183220..4183341" in lines[1]
        assert not [line for line in lines[2:] if "lost:" in line]


def test_sound_inputs_are_counted() -> None:
    merged = Report("/data/logs")
    for i in range(50):
        part = report(*([fault()] if i % 10 == 3 else []))
        part.paths = (f"/data/logs/x-{i}",)
        merged.parts.append(part)
    lines = merged.text().splitlines()
    assert len(lines) == 1 + 5 + 2
    assert lines[6] == "  and 45 more, all ok"
    merged.parts = [part for part in merged.parts if not part.ok] * 10
    assert "  and 10 more with faults (--json lists all)" in merged.text().splitlines()


def test_no_line_is_long() -> None:
    words = "a broker that recovers the segment empties it and deletes all that follow " * 5
    long = report(Fault("kafka.log", 1, 2, Kind.ORDER, words, system=words, lost=LOST), fault())
    assert max(len(line) for line in long.text().splitlines()) <= 118


def test_text_without_faults_has_totals_and_at_most_three_notes() -> None:
    assert report().text().splitlines() == [
        "orders-0  ok  1.1 GB, 1,234 frames, 5,678 rows",
        "  logwright dump orders-0 --limit 10",
    ]
    noted = report(*(fault(100000 * i, severity=Severity.INFO, lost={"first_y": i}) for i in range(5)))
    lines = noted.text().splitlines()
    assert lines[0].endswith("5,678 rows, 5 notes")
    assert "  and 2 more notes (--json lists all)" in lines
    noted.file("0.log", None).unchecked = True
    assert noted.text().startswith("orders-0  not checked  ")


def test_text_of_a_warning_leads_to_the_bytes() -> None:
    text = report(fault(12, severity=Severity.WARNING, lost={"first_id": 3, "last_id": 3, "of": None})).text()
    assert "warning  0.log  at 12" in text
    assert "lost: id 3" in text
    assert text.splitlines()[-1] == "  logwright verify orders-0 --json   for the full list"


def test_damage_without_lost_rows_loses_nothing_for_certain() -> None:
    """Neither with a correction, nor where an unfinished append may be lost."""
    healed = report(fault(rows_lost=0))
    healed.file("0.log", None).healed.add(73400320)
    torn = report(Fault("kafka.log", 9, 1, Kind.TRUNCATED, "torn", Severity.WARNING, rows_lost=0))
    assert [str(each).splitlines()[1] for each in (healed, torn)] == ["  lost: nothing", "  lost: nothing"]


def test_damage_that_loses_nothing_says_so_only_if_it_stands_alone() -> None:
    assert "lost: nothing" in report(fault(rows_lost=0)).text()
    other = Fault("kafka.log", 9, 1, Kind.LINK, "no such offset", rows_lost=122, lost=LOST)
    assert "lost: nothing" not in report(fault(rows_lost=0), other).text()


def test_text_of_an_unknown_codec() -> None:
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
    assert "lost: ids from 3, if any" in report(fault(lost={"first_id": 3})).text()
    assert "lost: ids up to 3\n" in report(fault(lost={"last_id": 3})).text()
    same = {"first_id": 3, "last_id": 4, "first_timestamp": 5000, "last_timestamp": 5000}
    assert "lost: ids 3..4 (1970-01-01 00:00:05 UTC)" in report(fault(lost=same)).text()
    assert "5 rows" in report(fault(rows_lost=5)).text()


def test_paths_are_quoted_for_the_shell() -> None:
    assert Report("my dir").text().endswith("logwright dump 'my dir' --limit 10")
