"""Cookies and index files that are written from rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.codec.fault import UsageError

COOKIE = {
    "bookie_host": "h:3181", "journal_dir": "/j", "ledger_dirs": "1\t/l", "instance_id": None, "index_dirs": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "content"),
    [
        ({**COOKIE, "layout_version": 3}, b"3\nh:3181\n/j\n1\t/l\n"),
        ({**dict.fromkeys(COOKIE), "layout_version": 2}, b"2\n"),
    ],
)
def test_cookies_of_old_layouts_are_plain_lines(row: dict[str, Any], content: bytes, tmp_path: Path) -> None:
    lw.write([row], tmp_path / "VERSION", "bookkeeper.cookie")
    assert (tmp_path / "VERSION").read_bytes() == content


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({**COOKIE, "layout_version": 3, "instance_id": "i"}, "layout 3 has three plain lines only"),
        ({**COOKIE, "layout_version": 3, "journal_dir": "/j\n"}, "layout 3 has three plain lines only"),
        ({**COOKIE, "layout_version": 5, "journal_dir": None}, "the required field journalDir is null"),
    ],
)
def test_cookies_that_no_bookie_reads_are_refused(row: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=reason):
        lw.write([row], tmp_path / "VERSION", "bookkeeper.cookie")


def test_location_of_an_entry_is_a_log_and_an_offset(tmp_path: Path) -> None:
    rows = [{"entry_id": 0, "log_id": 2, "offset": 1028}, {"entry_id": 3, "log_id": 2, "offset": 1100}]
    lw.write(rows, tmp_path / "7.idx", "bookkeeper.index")
    read = lw.read(tmp_path / "7.idx", columns=["entry_id", "log_id", "offset", "location"]).to_pylist()
    assert read == [{**row, "location": row["log_id"] << 32 | row["offset"]} for row in rows]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"entry_id": 0, "log_id": 2}], "needs a column 'location', or 'log_id' and 'offset'"),
        ([{"ledger_id": n, "entry_id": n, "location": 1} for n in range(2)], "rows of several ledgers"),
        ([{"entry_id": -1, "location": 1}], "entry_id of row 0 is -1"),
        ([{"entry_id": 1 << 40, "location": 1}], "entry_id of row 0 is 1099511627776"),
    ],
)
def test_rows_that_no_index_file_holds_are_refused(
    rows: list[dict[str, Any]], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=reason):
        lw.write(rows, tmp_path / "7.idx", "bookkeeper.index")
