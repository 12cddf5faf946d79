"""Settings of a broker, and files of another size than configured."""

from __future__ import annotations

from pathlib import Path

import pytest
from stores import ROWS, SIZES, placed

import logwright as lw
from logwright.codec.fault import Kind, Severity

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")


def test_configuration_file_names_the_store(tmp_path: Path) -> None:
    home = placed("basic", tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"brokerName=a\nstorePathRootDir={home}\nstorePathCommitLog={home}/commitlog\nmappedFileSizeCommitLog=4096\n"
    )
    assert lw.read(conf).num_rows == 14


def test_errors_of_settings_and_sizes_name_the_file(tmp_path: Path) -> None:
    home = placed("basic", tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={home}\nmappedFileSizeCommitLog=4k0\n")
    with pytest.raises(lw.UsageError) as invalid:
        lw.read(conf)
    assert str(invalid.value).startswith(f"{conf}: option mappedFileSizeCommitLog: '4k0' is not valid")
    with pytest.raises(lw.DamageError) as other:
        lw.read(home, mappedFileSizeCommitLog=1000)
    assert other.value.path == f"{home}/commitlog/{0:020d}"
    conf.write_text(f"storePathRootDir={tmp_path}/gone\n")
    with pytest.raises(lw.UsageError, match="If the data has moved, pass its directory"):
        lw.read(conf)


def test_files_of_another_size_than_configured_are_damage(tmp_path: Path) -> None:
    lw.write([{"topic": "T", "body": b"x"}], tmp_path / "store", "rocketmq.store", **SIZES)
    assert lw.verify(tmp_path / "store", **SIZES).ok
    for option, folder in (
        ("mappedFileSizeCommitLog", "commitlog"),
        ("mappedFileSizeConsumeQueue", "consumequeue/T/0"),
    ):
        report = lw.verify(tmp_path / "store", **{**SIZES, option: 4000})
        faults = [(file, fault.detail) for file, fault in report.faults if fault.severity is Severity.ERROR]
        text = f"the file has {SIZES[option]} bytes, expected 4000 as configured"
        assert faults == [(f"{folder}/00000000000000000000", text)]


def test_store_without_its_commit_log_is_one_fault(tmp_path: Path) -> None:
    """The log may be in another directory, which only an option names."""
    home = tmp_path / "store"
    lw.write([{"topic": "T", "body": b"x"}] * 30, home, "rocketmq.store", **SIZES)
    (home / "commitlog").rename(tmp_path / "elsewhere")
    report = lw.verify(home)
    (text,) = [str(fault.detail) for _, fault in report.faults if fault.kind is Kind.LINK]
    assert "pass storePathCommitLog" in text
    assert not report.ok
    assert lw.verify(home, storePathCommitLog=str(tmp_path / "elsewhere")).ok


def test_size_of_files_that_are_all_cut_off_follows_from_their_names(tmp_path: Path) -> None:
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **SIZES)
    for i, path in enumerate(sorted((tmp_path / "store/commitlog").iterdir())):
        path.write_bytes(path.read_bytes()[: 900 - 10 * i])
    text = " ".join(lw.verify(tmp_path / "store").text().split())
    assert "the file has 900 bytes, expected 1024" in text
    lw.repair(tmp_path / "store", tmp_path / "out")
    assert {path.stat().st_size for path in (tmp_path / "out/commitlog").iterdir()} == {1024}
    assert lw.verify(tmp_path / "out", as_system="5.5.0").ok


@pytest.mark.alike
@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json", "delayOffset.json"])
@pytest.mark.parametrize(
    ("content", "backup", "opens"),
    [
        (b"{", b"{", False),
        (b"{", b"", True),
        (b"{", None, True),
        (b"{", b"{}", True),
        (b"{}", b"{", True),
        (b"", b"{", False),
        (None, b"{", False),
        (bytes(9), bytes(9), False),
        (b"", b"", True),
    ],
)
def test_broker_does_not_start_if_a_configuration_file_and_its_backup_are_damaged(
    name: str, content: bytes | None, backup: bytes | None, opens: bool, tmp_path: Path
) -> None:
    """A missing or empty file is read from its backup, and a missing or empty backup is as good as an empty one."""
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **SIZES)
    for path, data in ((name, content), (f"{name}.bak", backup)):
        (tmp_path / "store/config" / path).unlink(missing_ok=True)
        if data is not None:
            (tmp_path / "store/config" / path).write_bytes(data)
    system = lw.verify(tmp_path / "store", as_system="5.5.0", **SIZES).system
    assert system is not None
    assert system["opens"] is opens
    assert opens or f"load config/{name} Failed" in system["error"]
