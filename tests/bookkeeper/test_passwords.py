"""Passwords of ledgers: where they come from, that they are never shown, and what is said without them."""

from __future__ import annotations

import os
import pickle
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from golden_bookies import case

import logwright as lw
from logwright.codec.bookkeeper.formats.digest import PASSWORD, Passwords
from logwright.codec.fault import UsageError
from logwright.readers.resolve import resolve

PASSWORDS = case("elog_flip_body").passwords
HMAC_LEDGER = 2
BOOKIE = str(case("elog_flip_body").path)


@pytest.fixture
def references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The password of the ledger with HMACs, as each kind of value that options take."""
    password = PASSWORDS[HMAC_LEDGER]
    monkeypatch.setitem(os.environ, "BK_PASSWORD", password.decode())
    file = tmp_path / "password"
    file.write_bytes(password + b"\n")
    return {
        "bytes": password,
        "environment": "env:BK_PASSWORD",
        "file": f"file:{file}",
        "mapping of bytes": PASSWORDS,
        "mapping of references": {HMAC_LEDGER: f"file:{file}"},
        "mapping in text": f"1=env:BK_PASSWORD, {HMAC_LEDGER}=file:{file}",
    }


def notes(report: Any) -> list[str]:
    faults = [fault for file in report.to_dict()["files"] for fault in file["faults"]]
    return [fault["detail"] for fault in faults if "not verified" in fault["detail"]]


def test_ledgers_without_a_matching_crc_and_a_password_are_noted_once_per_file() -> None:
    report = lw.verify(BOOKIE)
    assert report.ok
    files = [
        file
        for file in report.to_dict()["files"]
        if file["path"].endswith((".log", ".txn")) and file["frames"]
    ]
    assert len(files) == 3
    for file in files:
        (note,) = [fault for fault in file["faults"] if "not verified" in fault["detail"]]
        assert (note["severity"], note["rows_lost"]) == ("info", None)
        assert note["detail"].startswith("the digests of ledger 2 are not verified")
        assert "--passwd env:NAME or --passwd file:PATH" in note["detail"]
    assert "the digests of ledger 2 are not verified" in report.text()


def test_ledgers_with_crcs_or_without_digests_are_not_noted() -> None:
    types = {
        row["digest_type"] for row in lw.read(str(case("digests").path), columns=["digest_type"]).to_pylist()
    }
    assert types == {"CRC32", "CRC32C", "DUMMY", "HMAC"}
    named = {note.split(" are ")[0] for note in notes(lw.verify(str(case("digests").path)))}
    assert named == {"the digests of ledger 2"}


def test_wrong_password_of_a_ledger_of_unknown_type_is_noted(tmp_path: Path) -> None:
    rows = [{"ledger_id": 7, "entry_id": 5, "payload": b"alone"}]
    path = str(tmp_path / "0.log")
    lw.write(rows, path, "bookkeeper.entrylog", passwd=b"right", digestType="HMAC")
    assert notes(lw.verify(path, passwd=b"right")) == []
    (note,) = notes(lw.verify(path, passwd=b"wrong"))
    assert note.endswith("nor does an HMAC with the password")


@pytest.mark.parametrize(
    "kind", ["bytes", "environment", "file", "mapping of bytes", "mapping of references", "mapping in text"]
)
def test_damage_of_an_hmac_is_seen_with_a_password_from_anywhere(
    kind: str, references: dict[str, Any]
) -> None:
    report = lw.verify(BOOKIE, passwd=references[kind])
    assert not report.ok
    assert not notes(report)
    assert report.to_dict()["files"][0]["faults"][0]["offset"] == 1552


@pytest.mark.parametrize("kind", ["environment", "file", "mapping in text"])
def test_command_line_takes_references_to_passwords(
    kind: str, references: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", BOOKIE, "--passwd", references[kind]) == 3
    assert "at 1552" in capsys.readouterr().out


@pytest.mark.parametrize(
    "value",
    [
        "hunter2", "7=hunter2", "7=env:BK_PASSWORD,hunter2", "env:", "env:NO_SUCH_VARIABLE", "file:/no/such/file", "file:/dev/zero",
        {"hunter2": b"hunter2"}, {7: 2}, ["hunter2"],
    ],
)  # fmt: skip
def test_unusable_passwords_are_errors_that_do_not_show_them(value: Any, references: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as error:
        lw.verify(BOOKIE, passwd=value)
    assert "hunter2" not in "".join(traceback.format_exception(error.value))
    assert "the value is not valid" in str(error.value)


def test_file_of_a_password_is_regular_and_small(tmp_path: Path) -> None:
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    large.write_bytes(bytes(1 << 17))
    for path, text in (
        (pipe, "not a regular file"),
        (large, "expected at most"),
        (tmp_path, "not a regular file"),
    ):
        with pytest.raises(UsageError, match=text):
            lw.verify(BOOKIE, passwd=f"file:{path}")


def test_passwords_are_in_no_printed_form() -> None:
    for value in (b"hunter2", {HMAC_LEDGER: b"hunter2"}, {HMAC_LEDGER: "hunter2"}):
        (target,) = resolve(BOOKIE, options={"passwd": value})
        (file,) = resolve(f"{BOOKIE}/ledger/current/0.log", options={"passwd": value})
        report = lw.verify(BOOKIE, passwd=value)
        for shown in (
            target,
            file,
            target.options,
            file.options,
            report.text(),
            report.to_dict(),
            lw.scan(BOOKIE, passwd=value),
        ):
            assert "hunter2" not in f"{shown!r} {shown}"
    passwords = PASSWORD.read(b"hunter2")
    assert isinstance(passwords, Passwords)
    assert pickle.loads(pickle.dumps(passwords)) == passwords


def test_bookie_with_hmacs_is_written_with_a_password_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BK_PASSWORD", "hunter2")
    rows = [{"ledger_id": 7, "entry_id": i, "payload": b"p%d" % i} for i in range(3)]
    out = str(tmp_path / "bookie")
    lw.write(rows, out, "bookkeeper.bookie", digestType="MAC", passwd="env:BK_PASSWORD")
    report = lw.verify(out, passwd=b"hunter2")
    assert report.ok
    assert not notes(report)
    assert not any(b"hunter2" in path.read_bytes() for path in Path(out).rglob("*") if path.is_file())


def test_wrong_password_is_no_damage_if_the_bookie_has_the_master_key(tmp_path: Path) -> None:
    bookie, out = tmp_path / "bookie", tmp_path / "out"
    rows = [{"ledger_id": 7, "entry_id": n, "payload": b"entry %d" % n} for n in range(5)]
    lw.write(rows, bookie, "bookkeeper.bookie", digestType="HMAC", passwd=b"secret")
    with warnings.catch_warnings(action="ignore"):
        report = lw.verify(bookie, passwd=b"other")
        lw.repair(bookie, out, passwd=b"other")
    assert report.ok
    texts = [fault.detail for file in report.files for fault in file.faults if fault.severity == "warning"]
    assert texts
    assert all("the password is wrong: the bookie has another master key" in text for text in texts)
    assert lw.read(out, passwd=b"secret").num_rows == 5
    with pytest.raises(lw.UsageError, match="the password of ledger 7 is wrong"):
        lw.edit(bookie, tmp_path / "edited", redact="entry_id == 1", columns=("payload",), passwd=b"other")


def test_wrong_digests_are_damage_although_a_copy_of_the_master_key_is_damaged(tmp_path: Path) -> None:
    bookie = tmp_path / "bookie"
    rows = [{"ledger_id": 7, "entry_id": n, "payload": b"entry %d" % n} for n in range(5)]
    lw.write(rows, bookie, "bookkeeper.bookie", digestType="HMAC", passwd=b"secret")
    (index,) = bookie.rglob("*.idx")
    changed(index, 14)
    (log,) = (path for path in bookie.rglob("*.log") if path.stat().st_size > 1024)
    changed(log, log.read_bytes().index(b"entry 0"))
    with warnings.catch_warnings(action="ignore"):
        report = lw.verify(bookie, passwd=b"secret")
    assert "checksum mismatch" in [fault.kind for file in report.files for fault in file.faults]


def changed(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(data)
