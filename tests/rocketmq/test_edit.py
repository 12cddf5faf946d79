"""Edited stores: removed messages are gone, redacted ones have another body, and a broker serves all others as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden_stores import HEALTHY
from stores import ROWS, SIZES, path_options, placed

import logwright as lw

CASES = [
    case
    for case in HEALTHY
    if case not in ("empty", "killed", "live", "multipath") and not case.startswith("hand")
]


def all_bytes(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file())


def rows_by_offset(home: Path, **options: Any) -> dict[int, dict[str, Any]]:
    rows = lw.read(home, "rocketmq.store", columns="*", **options).to_pylist()
    return {row["physical_offset"]: row for row in rows}


@pytest.mark.alike
@pytest.mark.parametrize("case", CASES)
def test_dropped_message_is_not_served_and_others_keep_their_offsets(case: str, tmp_path: Path) -> None:
    home, out = placed(case, tmp_path), tmp_path / "out"
    options = path_options(case, home)
    before = rows_by_offset(home, **options)
    dropped = sorted(before)[len(before) // 2]
    lw.edit(home, out, drop=f"physical_offset == {dropped}", **options)
    after = rows_by_offset(out)
    assert after == {offset: row for offset, row in before.items() if offset != dropped}
    report = lw.verify(out, "rocketmq.store", as_system="5.5.0")
    assert report.ok, report.text()
    assert report.system is not None
    assert report.system["opens"]
    assert report.system["rows_lost"] == 0


@pytest.mark.alike
@pytest.mark.parametrize("body", [b"", b"gone", b"x" * 37])
def test_redacted_bodies_are_gone_and_the_broker_accepts_the_messages(body: bytes, tmp_path: Path) -> None:
    home, out = tmp_path / "store", tmp_path / "out"
    rows = [{**row, "body": b"secret-%d " % n * (5 + n)} for n, row in enumerate(ROWS)]
    lw.write(rows, home, "rocketmq.store", **{**SIZES, "mappedFileSizeCommitLog": 4096})
    lw.edit(home, out, redact="topic == T1", columns="body", with_=body)
    before, after = rows_by_offset(home), rows_by_offset(out)
    assert [offset for offset in before if before[offset] != after[offset]] == [
        offset for offset, row in before.items() if row["topic"] == "T1"
    ]
    assert {row["body"] or b"" for row in after.values() if row["topic"] == "T1"} == {body}
    assert b"secret-1 " not in all_bytes(out)
    report = lw.verify(out, "rocketmq.store", as_system="5.5.0")
    assert report.ok, report.text()
    served = lw.read(out, "rocketmq.store", mode="AS_SYSTEM", columns=["physical_offset", "body"])
    assert served.to_pylist() == [{name: row[name] for name in served.column_names} for row in after.values()]


def test_keys_of_a_dropped_message_are_not_in_the_index(tmp_path: Path) -> None:
    home, out = tmp_path / "store", tmp_path / "out"
    lw.write(ROWS, home, "rocketmq.store", **SIZES)
    lw.edit(home, out, drop="keys == k7")
    assert lw.read(home, view="index", key="T1#k7").num_rows == 1
    assert lw.read(out, view="index", key="T1#k7").num_rows == 0
    assert lw.read(out, view="index", key="T0#k8").num_rows == 1


def test_body_longer_than_the_stored_one_is_refused(tmp_path: Path) -> None:
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **SIZES)
    with pytest.raises(lw.UsageError, match="no room for the new body"):
        lw.edit(tmp_path / "store", tmp_path / "out", redact="keys == k0", columns="body", with_=b"long")
    assert not (tmp_path / "out").exists()


def test_messages_are_counted_without_those_that_replace_removed_ones(tmp_path: Path) -> None:
    """A redaction adds fillers, which no consumer sees; a removal leaves placeholders, which verify counts in a note."""
    home = tmp_path / "store"
    rows = [{**row, "body": b"secret-%d " % n * (25 + n)} for n, row in enumerate(ROWS)]
    lw.write(rows, home, "rocketmq.store", **{**SIZES, "mappedFileSizeCommitLog": 8192})
    lw.edit(home, tmp_path / "less", drop="physical_offset == 0 or queue_offset == 1", columns="body")
    kept = lw.read(tmp_path / "less", "rocketmq.store").num_rows
    assert kept < len(rows)
    for path in (tmp_path / "less", tmp_path / "redacted", tmp_path / "repaired"):
        if path.name == "redacted":
            assert lw.edit(tmp_path / "less", path, redact="queue_id >= 0", columns="body").rows == kept
        if path.name == "repaired":
            assert lw.repair(tmp_path / "less", path).rows == kept
        report = lw.verify(path, "rocketmq.store")
        assert (report.ok, report.rows) == (True, kept)
        assert lw.read(path, "rocketmq.store").num_rows == kept
        notes = [fault for _, fault in report.faults if "LW_LOST" in fault.detail]
        assert [(note.severity, note.detail.split(" of ")[0]) for note in notes] == [
            ("info", f"the log has {len(rows) - kept} placeholders")
        ]
    assert not any("LW_LOST" in fault.detail for _, fault in lw.verify(home, "rocketmq.store").faults)


def test_every_file_of_a_log_with_placeholders_decodes_and_encodes_to_the_same_bytes(tmp_path: Path) -> None:
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **SIZES)
    lw.edit(
        tmp_path / "store",
        tmp_path / "less",
        drop="physical_offset == 0 or queue_offset == 1",
        columns="body",
    )
    for log in sorted((tmp_path / "less" / "commitlog").iterdir()):
        tables = [lw.read(log, view=view, columns="*") for view in ("rows", "frames", "file")]
        lw.write(tables[0], tmp_path / log.name, "rocketmq.commitlog", frames=tables[1], file=tables[2])
        assert (tmp_path / log.name).read_bytes() == log.read_bytes()
