"""Damaged golden files: no crash, no invented row, and a fault that names the file and the byte."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kafka_golden import CASES, COLUMNS, as_recorded, of_class

import logwright as lw
from logwright.codec import registry
from logwright.codec.fault import Severity
from logwright.codec.option import Options
from logwright.codec.window import Window
from logwright.corpora.cases import Case
from logwright.readers.report import Report

BY_NAME: Any = {"ids": lambda case: getattr(case, "name", None)}
MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")

ELSEWHERE = {
    "dmg_epochs_backwards": "leader epochs",
    "dmg_flip_epoch": "a leader epoch",
    "dmg_flip_epoch_high": "a leader epoch",
    "dmg_flip_offset_back": "a base offset",
    "dmg_flip_offset_bit0": "a base offset",
    "dmg_flip_offset_neg": "a base offset",
    "dmg_flip_offset_plus": "a base offset",
    "dmg_offset_overflow": "a base offset",
}
"""Changes outside of the checksum: rows may have another offset or leader epoch than before."""


def read(
    case: Case, mode: str, **options: Any
) -> tuple[list[dict[str, Any]], Report, lw.LogwrightError | None]:
    """Return the rows up to an error, the report, and the error if any."""
    scan = lw.scan(case.partition, columns=COLUMNS, mode=mode, **options)
    batches = []
    error = None
    try:
        for batch in scan:
            batches.append(batch)
    except lw.LogwrightError as raised:
        error = raised
    rows = [row for batch in batches for row in as_recorded(sound(batch))]
    return rows, scan.report, error


def sound(batch: Any) -> Any:
    """Without the rows that stand for damage, and the columns that say so."""
    if "_corrupt_offset" in batch.schema.names:
        batch = batch.filter(batch.column("_corrupt_offset").is_null())
    return batch.select(COLUMNS.split(","))


@pytest.mark.alike
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", of_class("damaged"), **BY_NAME)
def test_no_row_is_invented(case: Case, mode: str) -> None:
    assert case.base is not None
    was = {row["offset"]: row for row in CASES[case.base].records() or []}
    rows, _, error = read(case, mode)
    assert mode == "FAILFAST" or error is None, error
    if case.name in ELSEWHERE:
        known = {content(row) for row in was.values()}
        assert [row for row in rows if content(row) not in known] == []
        return
    assert [row for row in rows if row != was.get(row["offset"])] == []
    offsets = [row["offset"] for row in rows]
    assert len(set(offsets)) == len(offsets)


def content(row: dict[str, Any]) -> str:
    return repr({name: value for name, value in row.items() if name not in ("offset", "leader_epoch")})


UNTRUSTED = ("craft_gzip_bad_crc", "craft_gzip_truncated")
"""The consumer returns the first record of a stream whose own checksum then fails, or is missing; we return none."""


@pytest.mark.parametrize("case", of_class("refused"), **BY_NAME)
def test_records_of_a_consumer_are_returned(case: Case) -> None:
    """We continue where the broker's consumer stops, but return all that it got."""
    got = [] if case.name in UNTRUSTED else case.records() or []
    for mode in MODES:
        rows, report, error = read(case, mode)
        assert mode == "FAILFAST" or error is None, error
        ours = {row["offset"]: row for row in rows}
        missing = [row for row in got if ours.get(row["offset"]) != row]
        if error is None:
            # A consumer returns the records of a batch one by one up to the bad one; here the batch is damaged as a whole.
            lost = [fault.lost for _, fault in report.faults if fault.lost]
            assert [
                row
                for row in missing
                if not any(
                    offset_range["first_offset"] <= row["offset"] <= offset_range["last_offset"]
                    for offset_range in lost
                )
            ] == []


# Position of the fault


def batches(path: Path) -> Iterator[tuple[int, int]]:
    codec = registry.get("kafka.log")
    data = np.fromfile(path, np.uint8)
    frames = codec.scan(Window(data, 0, len(data)), 0, codec.context(path.name, Options(codec.options)))
    return zip(frames.start.tolist(), frames.end.tolist(), strict=True)


def edits(case: Case) -> dict[str, tuple[int, int]]:
    """Return the `.log` files that differ from the base case, with the range in which their fault must start: from the start of the
    batch with the first different byte to the end of the batch after it."""
    assert case.base is not None
    spans = {}
    for name in case.about["changed"]:
        ours, theirs = case.partition / name, CASES[case.base].partition / name
        if not (name.endswith(".log") and ours.exists() and theirs.exists()):
            continue
        a, b = ours.read_bytes(), theirs.read_bytes()
        first = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        start = max((low for low, _ in batches(theirs) if low <= first), default=0)
        stop = [high for _, high in batches(theirs) if high > first][:2]
        spans[name] = start, stop[-1] if stop else first
    return spans


SILENT = {
    "dmg_batch_removed": "a gap in the offsets is what compaction leaves",
    "dmg_epochs_backwards": "leader epochs are not covered by the checksum, and are no matter of reading",
    "dmg_fix_attr_high": "unknown attribute bits are passed over, as by the broker",
    "dmg_flip_epoch": "a leader epoch that may be",
    "dmg_flip_epoch_high": "a leader epoch that may be",
}
"""Neither the log nor the files beside it show that records are missing."""


@pytest.mark.parametrize("case", [case for case in of_class("damaged") if edits(case)], **BY_NAME)
def test_damage_of_a_log_is_located(case: Case) -> None:
    _, report, _ = read(case, "DROPMALFORMED")
    located = [(name, fault.offset) for name, fault in report.faults if name.endswith(".log")]
    if case.name in SILENT:
        assert located == []
        return
    for name, (low, high) in edits(case).items():
        assert [location for location in located if location[0] == name and low <= location[1] <= high], (
            name,
            low,
            high,
            located,
        )


UNTOLD = {
    "dmg_fix_attr_high": SILENT["dmg_fix_attr_high"],
}
"""No file shows that something is wrong."""


@pytest.mark.parametrize("case", [case for case in of_class("damaged") if edits(case)], **BY_NAME)
def test_other_files_reveal_damage_that_a_log_hides(case: Case) -> None:
    report = lw.verify(case.partition, clean=True)
    errors = [fault for fault in report.faults if fault[1].severity is not Severity.INFO]
    assert bool(errors) is (case.name not in UNTOLD)


@pytest.mark.parametrize("case", of_class("damaged"), **BY_NAME)
def test_failfast_raises_the_error_that_fits_the_faults(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, report, _ = read(case, "DROPMALFORMED")
    faults = [fault for _, fault in report.faults]
    if not any(fault.stops for fault in faults):
        assert report.ok
        assert read(case, "FAILFAST")[2] is None
        return
    expected = lw.UnsupportedError if report.ok else lw.DamageError
    with pytest.raises(expected) as caught:
        lw.read(case.partition)
    assert caught.value.path is not None
    assert caught.value.offset is not None
    assert case.partition.name in caught.value.path


# Other files

UNSEEN = {
    "dmg_ck_*": "the checkpoints of the log directory above are not files of the partition",
    "dmg_epoch_crlf": "read as the broker reads it",
    "dmg_epoch_empty": "read as the broker reads it",
    "dmg_epoch_no_newline": "read as the broker reads it",
    "dmg_foreign_file": "what is not Kafka's is passed over",
    "dmg_index_empty_old": "an empty index may be",
    "dmg_pm_other": "the partition alone does not determine its topic",
    "dmg_txn_index_version": "a reader looks at the first byte of the version only",
}
"""The file itself shows nothing wrong."""


def edited(case: Case) -> list[str]:
    """Return the changed files other than logs."""
    return [
        entry
        for entry in case.about["changed"]
        if not entry.endswith(".log") and (case.partition / entry).exists()
    ]


@pytest.mark.parametrize("case", [case for case in of_class("damaged") if edited(case)], **BY_NAME)
def test_damage_of_another_file_is_located(case: Case) -> None:
    report = lw.verify(case.partition)
    named = {name for name, _ in report.faults}
    if not any(fnmatchcase(case.name, pattern) for pattern in UNSEEN):
        assert named & set(edited(case)), report.text()
    assert report.ok or named
