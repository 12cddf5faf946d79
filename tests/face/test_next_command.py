"""The command that a report ends with repeats the options of the caller: without them it would do something else."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.cli import main as command

SIZES = {
    "mappedFileSizeCommitLog": 4096,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 8,
    "maxIndexNum": 60,
}


def last_command(report: object) -> list[str]:
    """Return the words of the last command in the text of a report, without the explanation behind it."""
    lines = [line.strip() for line in str(report).splitlines() if line.strip().startswith("logwright ")]
    return shlex.split(lines[-1].partition("   ")[0])


def run(words: list[str], out: Path) -> int:
    with pytest.raises(SystemExit) as ended:
        command([str(out) if word == "DIR" else word for word in words[1:]])
    return int(ended.value.code or 0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A damaged RocketMQ store."""
    rows = [{"topic": "T", "queue_id": 0, "body": b"x%d" % n} for n in range(50)]
    lw.write(rows, tmp_path / "store", "rocketmq.store", **SIZES)
    log = tmp_path / "store" / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    data[700:760] = bytes(60)
    log.write_bytes(data)
    return tmp_path / "store"


def test_options_of_verify_are_those_of_the_next_repair(store: Path, tmp_path: Path) -> None:
    report = lw.verify(store, maxIndexNum=60, forceVerifyPropCRC="true")
    words = last_command(report)
    assert words[1:3] == ["repair", str(store)]
    assert words[3:] == ["--maxIndexNum", "60", "--forceVerifyPropCRC", "true", "--out", "DIR"]
    assert run(words, tmp_path / "out") == 3  # rows are lost
    report = lw.repair(store, tmp_path / "again", maxIndexNum=60)
    assert last_command(report)[1:] == ["verify", str(tmp_path / "again"), "--maxIndexNum", "60"]


def test_options_that_only_reading_uses_are_not_those_of_the_next_verify(tmp_path: Path) -> None:
    lw.generate("zookeeper.datadir", tmp_path / "zk", rows=50, seed=1)
    lw.damage(tmp_path / "zk", out=tmp_path / "disk", seed=2, count=1)
    with pytest.warns(lw.DamageWarning) as caught:
        lw.read(tmp_path / "disk" / "zk", mode="PERMISSIVE", path_prefix="/", at_zxid="0xffffffff")
    words = last_command(caught[0].message)
    assert words[1] == "verify"
    assert not any(word.startswith(("--path", "--at")) for word in words)


def test_values_of_a_configuration_file_that_are_not_the_defaults_are_repeated(
    store: Path, tmp_path: Path
) -> None:
    configuration = tmp_path / "broker.conf"
    configuration.write_text(
        f"storePathRootDir={store}\nmappedFileSizeCommitLog=4096\nmaxMessageSize=65536\n"
    )
    assert last_command(lw.verify(configuration)) == [
        "logwright", "repair", str(store), "--mappedFileSizeCommitLog", "4096", "--out", "DIR",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "shown"),
    [("env:LEDGER_PASSWORD", "env:LEDGER_PASSWORD"), (b"pw", "env:NAME"), ({0: b"pw"}, "env:NAME")],
)
def test_place_of_a_password_is_repeated_and_the_password_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any, shown: str
) -> None:
    monkeypatch.setenv("LEDGER_PASSWORD", "pw")
    rows = [{"ledger_id": 0, "entry_id": n, "payload": b"x" * 50} for n in range(9)]
    lw.write(rows, tmp_path / "bookie", "bookkeeper.bookie", digestType="HMAC", passwd=b"pw")
    (log,) = (tmp_path / "bookie").rglob("0.log")
    data = bytearray(log.read_bytes())
    place = data.index(b"x" * 50)
    data[place : place + 3] = b"abc"
    log.write_bytes(data)
    report = lw.verify(tmp_path / "bookie", passwd=given)
    words = last_command(report)
    assert words[:5] == ["logwright", "repair", str(tmp_path / "bookie"), "--passwd", shown]
    assert "pw" not in str(report).replace("passwd", "")
