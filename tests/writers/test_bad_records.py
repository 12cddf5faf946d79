"""`badRecordsPath`: which faults of a read by many tasks are recorded, and when."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from logwright.codec.fault import (
    DamageError,
    Fault,
    Kind,
    LogwrightError,
    Severity,
    UnreadableError,
    UsageError,
)
from logwright.readers.record import HeardReport, described
from logwright.readers.source import MemorySource, open_source
from logwright.readers.stream import RECORD_LIMIT
from logwright.roundtrip.memory_filesystem import Failure, MemoryFileSystem
from logwright.writers.bad_records import BadRecords

LINE = {"path": "a\udc80", "offset": 1}


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*/bad_records/*.json")) for line in path.open()]


def test_one_file_for_each_task_with_faults(tmp_path: Path) -> None:
    records = pickle.loads(pickle.dumps(BadRecords.at(str(tmp_path / "new" / "bad"))))
    for task, count in enumerate((2, 0, 1)):
        with records.task(task) as write:
            for number in range(count):
                write({"path": f"{task}", "offset": number})
    (folder,) = (tmp_path / "new" / "bad").glob("*/bad_records")
    assert len(folder.parent.name) == len("20261121T095911")
    assert [path.name[:11] for path in sorted(folder.iterdir())] == ["part-00000-", "part-00002-"]
    assert [(line["path"], line["offset"]) for line in lines(tmp_path / "new" / "bad")] == [
        ("0", 0),
        ("0", 1),
        ("2", 0),
    ]


def test_reads_in_the_same_second_use_different_folders(tmp_path: Path) -> None:
    for _ in range(3):
        with BadRecords.at(f"file://{tmp_path}").task(0) as write:
            write(LINE)
    assert len(lines(tmp_path)) == 3
    assert lines(tmp_path)[0] == LINE


def test_attempts_of_a_task_leave_one_file(tmp_path: Path) -> None:
    records = BadRecords.at(str(tmp_path))

    def attempt(*offsets: int, error: type[BaseException] | None = None) -> None:
        with records.task(0) as write:
            for offset in offsets:
                write({"offset": offset})
            if error is not None:
                raise error("ended")

    def found() -> list[int]:
        return [line["offset"] for line in lines(tmp_path)]

    for error in (DamageError, GeneratorExit):
        with pytest.raises(error):
            attempt(1, error=error)
        assert found() == [1], "what was met before it ended"
    attempt(1, 2)
    assert found() == [1, 2]
    with pytest.raises(GeneratorExit):
        attempt(1, error=GeneratorExit)
    assert found() == [1, 2], "one cut short does not replace one that met all"
    attempt(1, 2)
    assert found() == [1, 2]
    assert (
        len(list(tmp_path.glob("*/bad_records/*"))) == len(list(tmp_path.glob("*/bad_records/.*"))) + 1 == 1
    )


def test_only_local_paths_are_accepted() -> None:
    with pytest.raises(UsageError, match="only local file systems can be written"):
        BadRecords.at("s3://bucket/bad")


@pytest.mark.parametrize("failure", [Failure.EIO, Failure.ENOSPC])
def test_failing_disk_leaves_no_partial_lines(failure: Failure) -> None:
    """Whichever operation fails, there is an error, and the final name has the complete file or none."""
    for at in range(100):
        files = MemoryFileSystem()
        files.mkdir("/bad")
        records = BadRecords("/bad/now/bad_records", "0", files)
        files.fail(at, failure)
        ended = False
        try:
            with records.task(0) as write:
                write(LINE)
                write(LINE)
            ended = True
        except LogwrightError:
            assert files.failed
        if not files.failed:
            break
        committed = files.stat("/bad/now/bad_records") is not None
        names = [item.name for item in files.listdir("/bad/now/bad_records")] if committed else []
        shown = [name for name in names if not name.startswith(".")]
        for name in shown:
            assert files.read(f"/bad/now/bad_records/{name}").count(b"\n") == 2
        assert shown or not ended
    assert at > 8


def test_faults_are_recorded_with_their_bytes_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(bytes(100) + b"bad" + bytes(RECORD_LIMIT))
    fault = Fault("kafka.log", 100, 3, Kind.CHECKSUM, "no", rows_lost=2, lost={"first_offset": 7})
    assert described("shown", fault, lambda: open_source(str(path))) == {
        "path": "shown", "offset": 100, "length": 3, "kind": "checksum mismatch", "severity": "error", "detail": "no",
        "rows_lost": 2, "lost": {"first_offset": 7}, "system": None, "record": base64.b64encode(b"bad").decode(),
    }  # fmt: skip
    long = Fault("kafka.log", 100, RECORD_LIMIT + 3, Kind.CHECKSUM, "no")
    assert (
        len(base64.b64decode(described("shown", long, lambda: open_source(str(path)))["record"]))
        == RECORD_LIMIT
    )
    missing = Fault("kafka.log", 0, 0, Kind.LINK, "no", Severity.WARNING)
    assert described("shown", fault, None)["record"] is None
    assert described("shown", missing, lambda: open_source(str(path)))["record"] is None
    assert described("shown", fault, lambda: open_source(str(tmp_path / "gone")))["record"] is None

    class Dying(MemorySource):
        def pread(self, offset: int, length: int) -> Any:
            if offset <= 101 < offset + length:
                raise UnreadableError.of(101, 1, "no", "shown")
            return super().pread(offset, length)

    first = Fault("kafka.log", 101, 2, Kind.CHECKSUM, "no")
    assert described("shown", first, lambda: Dying(path.read_bytes()))["record"] is None
    cut = described("shown", fault, lambda: Dying(path.read_bytes()))["record"]
    assert base64.b64decode(cut) == b"b", "zeros are not what the disk cannot read"


def test_observed_report_keeps_a_bounded_number_of_faults() -> None:
    report = HeardReport("x", max_faults=2)
    heard: list[tuple[str, int]] = []
    report.file("deaf", None).add(Fault("c", 9, 1, Kind.ORDER, ""))
    report.hear = lambda name, fault: heard.append((name, fault.offset))
    for offset in range(5):
        report.file("a", None).add(Fault("c", offset, 1, Kind.ORDER, ""))
    assert heard == [("a", offset) for offset in range(5)]
    assert [len(file.faults) for file in report.files] == [1, 2]
    assert report.faults_total == 6
