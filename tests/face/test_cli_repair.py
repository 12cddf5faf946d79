"""`logwright repair` and `logwright rebuild` on the command line: output, error output and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run
from repairable_store import DAMAGED, PREFIX, SALVAGED, SIZE, read_files, repairable_store, write_files

__all__ = ["repairable_store"]
pytestmark = pytest.mark.usefixtures("repairable_store")

Out = pytest.CaptureFixture[str]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_files(tmp_path / "data" / "store", DAMAGED)


def test_lost_rows_are_printed_and_set_the_status(store: Path, tmp_path: Path, capsys: Out) -> None:
    out = tmp_path / "out"
    assert run("repair", str(store), "--out", str(out)) == 3
    message = capsys.readouterr()
    assert message.err == ""
    assert "removed: 22 bytes (1 range" in message.out.replace(str(SIZE), "22")
    assert message.out.splitlines()[-1].strip() == f"logwright verify {out}"
    assert read_files(out) == SALVAGED
    assert run("verify", str(out)) == 0


def test_lossless_repair_has_status_0(tmp_path: Path, capsys: Out) -> None:
    store = write_files(tmp_path / "store", SALVAGED)
    assert run("repair", str(store), "-o", str(tmp_path / "out")) == 0
    (store / "000.ids").write_bytes(b"")
    assert run("rebuild", str(store), "--dry-run") == 0
    assert "would change files: 000.ids" in capsys.readouterr().out
    assert (
        run("rebuild", str(store), "--what", "ids", "--in-place", "--backup", str(tmp_path / "backup")) == 0
    )
    assert read_files(store) == SALVAGED


def test_dry_run_has_the_same_status(store: Path, tmp_path: Path, capsys: Out) -> None:
    assert run("repair", str(store), "--dry-run") == 3
    out = capsys.readouterr().out
    assert "would be removed" in out
    assert out.splitlines()[-1].strip() == f"logwright repair {store} --out DIR"
    target = f"{tmp_path}/out 2"
    assert run("repair", "--strategy", "prefix", str(store), "--dry-run", "-o", target) == 3
    out = capsys.readouterr().out
    assert out.splitlines()[-1].strip() == f"logwright repair --strategy prefix {store} -o '{target}'"
    assert list(tmp_path.iterdir()) == [tmp_path / "data"]


def test_json_output_is_the_report(store: Path, tmp_path: Path, capsys: Out) -> None:
    words = ("--in-place", "--backup", str(tmp_path / "backup"), "--strategy", "prefix", "--json")
    assert run("repair", str(store), *words) == 3
    loaded = json.loads(capsys.readouterr().out)
    assert loaded["report"] == 1
    assert loaded["rows"] == 4
    assert [row["saved_to"] for row in loaded["cut"]] == [
        str(tmp_path / "backup" / "003.toy"),
        str(tmp_path / "backup" / "007.toy"),
    ]
    assert loaded["ok"] is False
    assert read_files(store) == PREFIX


def test_repair_takes_replicas_and_layout_options(store: Path, tmp_path: Path, capsys: Out) -> None:
    other = write_files(tmp_path / "other" / "store", {**DAMAGED, "003.toy": DAMAGED["003.toy"][: 3 * SIZE]})
    assert run("repair", str(store), str(other), "--drop-readme", "yes", "--out", str(tmp_path / "out")) == 0
    assert "README" not in read_files(tmp_path / "out")
    assert "replica" in capsys.readouterr().out


def test_wrong_usage_is_status_2(store: Path, tmp_path: Path, capsys: Out) -> None:
    for words in (
        ("repair", str(store)),
        ("repair", "--out", "x"),
        ("repair", str(store), "--in-place"),
        ("repair", str(store), "--out", str(tmp_path / "out"), "--nonsense", "1"),
        ("repair", str(store), "--out", str(tmp_path / "out"), "--strategy", "best"),
        ("rebuild", str(store)),
        ("rebuild", str(store), "--out", str(tmp_path / "out"), "--what", "idz"),
    ):
        assert run(*words) == 2
        message = capsys.readouterr()
        assert message.out == ""
        assert message.err
    assert not (tmp_path / "out").exists()
    assert read_files(store) == DAMAGED


def test_impossible_repairs_are_errors(store: Path, tmp_path: Path, capsys: Out) -> None:
    assert run("rebuild", str(store), "--out", str(tmp_path / "out")) == 3  # damage found
    assert "003.toy" in capsys.readouterr().err
    assert run("repair", str(store), "--out", str(store.parent)) == 1
    assert "not empty" in capsys.readouterr().err
