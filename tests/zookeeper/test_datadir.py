"""A server's data directory: recognition, plan, search below a given folder, and separate logs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from zookeeper_datadir import CASES, GOLDEN, copy, create, write_log, write_snapshot

import logwright as lw
from logwright.cli import main
from logwright.codec.base import Match
from logwright.codec.fault import LogwrightError, UnreadableError, UsageError
from logwright.codec.option import Options
from logwright.codec.store.listing import Entry
from logwright.codec.zookeeper.store.datadir import LAYOUT
from logwright.codec.zookeeper.store.files import candidates, logs, logs_from, snapshots
from logwright.readers.listing import open_listing

SNAPSHOT_END = b"\0\0\0\1/"


def plan_of(folder: Path, **options: Any) -> Any:
    return LAYOUT.plan(open_listing(str(folder)), Options(LAYOUT.read_options, options))


def faults_of(folder: Path) -> list[tuple[str, str, str]]:
    return [(name, str(fault.severity), fault.detail) for name, fault in plan_of(folder).faults]


# Recognised


@pytest.mark.parametrize("case", CASES)
def test_each_golden_directory_is_recognised(case: str) -> None:
    where = GOLDEN / case / "data" if case == "split_dirs" else GOLDEN / case
    assert lw.detect(where) == "zookeeper.datadir"
    assert lw.detect(where / "version-2") == "zookeeper.datadir"


def test_server_files_are_recognised_in_a_folder_of_any_name(tmp_path: Path) -> None:
    home = tmp_path / "saved"
    home.mkdir()
    shutil.copy(GOLDEN / "basic/version-2/log.1", home / "log.1")
    assert LAYOUT.recognise(open_listing(str(home))) is Match.NAME
    (home / "log.1").write_text("INFO all is well\n")
    assert LAYOUT.recognise(open_listing(str(home))) is Match.NO
    (home / "snapshot.16.gz").write_bytes(b"")
    assert LAYOUT.recognise(open_listing(str(home))) is Match.NAME


def test_empty_version_2_folder_may_be_a_data_directory(tmp_path: Path) -> None:
    (tmp_path / "version-2").mkdir()
    assert lw.detect(tmp_path) == "zookeeper.datadir"
    assert lw.detect(tmp_path / "version-2") == "zookeeper.datadir"
    (tmp_path / "other").mkdir()
    assert lw.detect(tmp_path / "other") is None


def test_version_2_folder_with_other_files_is_not_recognised(tmp_path: Path) -> None:
    (tmp_path / "db/version-2").mkdir(parents=True)
    (tmp_path / "db/version-2/MANIFEST-000001").write_bytes(b"")
    (tmp_path / "db/version-2/CURRENT").write_bytes(b"MANIFEST-000001\n")
    assert lw.detect(tmp_path / "db/version-2") == "leveldb.db"


# Planned


def test_plan_of_a_server_in_a_quorum() -> None:
    summary = lw.inspect(GOLDEN / "quorum_one")
    assert [(row["name"], row["role"], row["codec"]) for row in summary["files"]] == [
        ("snapshot.0", "primary", "zookeeper.snapshot"),
        ("snapshot.100000005", "primary", "zookeeper.snapshot"),
        ("log.100000001", "primary", "zookeeper.txnlog"),
        ("log.200000001", "primary", "zookeeper.txnlog"),
        ("acceptedEpoch", "metadata", "zookeeper.accepted_epoch"),
        ("currentEpoch", "metadata", "zookeeper.current_epoch"),
    ]
    facts = summary["facts"]
    assert (facts["accepted_epoch"], facts["current_epoch"], facts["myid"]) == (2, 2, 1)
    assert facts["newest_snapshot"] == "snapshot.100000005"
    assert facts["zxids"] == [["0x100000001", "0x100000005"], ["0x200000001", "0x200000003"]]
    assert facts["types"] == {"create": 4, "createSession": 2, "reconfig": 2}
    assert (facts["snapshot_nodes"], facts["snapshot_sessions"]) == (7, 1)


def test_files_are_ordered_by_their_zxids_not_their_names(tmp_path: Path) -> None:
    for zxid in (0x9, 0xA, 0x10, 0x100000001):
        write_log(tmp_path, [create(zxid, "/a")])
        write_snapshot(tmp_path, zxid)
    names = [file.name for file in plan_of(tmp_path).files]
    assert names == [
        "snapshot.9", "snapshot.a", "snapshot.10", "snapshot.100000001", "log.9", "log.a", "log.10", "log.100000001",
    ]  # fmt: skip


def test_file_names_a_server_reads_or_ignores(tmp_path: Path) -> None:
    home = copy("dmg_base", tmp_path)
    for name in ("log.17.fixed", "log.zz", "snapshot.-5", "notes.txt", "currentEpoch.tmp", "updatingEpoch"):
        (home / name).write_bytes(b"1")
    roles = {file.name: (str(file.role), file.note) for file in plan_of(home).files}
    assert roles["log.17.fixed"] == (
        "primary",
        "a server treats it as a log of zxid 0x17, although the name continues with 'fixed'",
    )
    assert roles["log.zz"] == ("leftover", "no zxid in its name: a server never reads it")
    shutil.copy(home / "snapshot.0", home / "snapshot.xyz")
    assert [severity for name, severity, _ in faults_of(home) if name == "snapshot.xyz"] == ["warning"]
    (home / "snapshot.xyz").unlink()
    separate = tmp_path / "logs" / "version-2"
    separate.mkdir(parents=True)
    shutil.copy(home / "log.1", separate / "log.xyz")
    report = lw.verify(home, dataLogDir=str(separate.parent))
    assert "no zxid in its name" in str(report)
    assert roles["snapshot.-5"] == ("leftover", "a server never reads it: its zxid is -5")
    assert roles["notes.txt"] == ("foreign", "not ZooKeeper's, ignored by it")
    assert roles["currentEpoch.tmp"] == ("leftover", "of an epoch that was being written")
    assert roles["updatingEpoch"] == ("metadata", "a server of 3.4 was stopped while it wrote currentEpoch")
    assert {name for name, _, _ in faults_of(home)} == {
        "log.17.fixed",
        "log.zz",
        "snapshot.-5",
        "currentEpoch.tmp",
    }


def test_compressed_snapshot_is_recognised_by_its_name() -> None:
    for case in ("snap_gz", "snap_snappy"):
        assert faults_of(GOLDEN / case / "version-2") == []


def test_logs_without_a_snapshot() -> None:
    ((name, fault),) = plan_of(GOLDEN / "dmg_snap_none/version-2").faults
    assert not name
    assert fault.detail == (
        "there are logs, and no snapshot that a server would try; if the snapshots are elsewhere, name that directory, and pass this one as "
        "dataLogDir"
    )
    assert "No snapshot found, but there are log entries. Something is broken!" in fault.system


def test_torn_snapshots_and_no_log_start_with_an_empty_tree() -> None:
    ((name, fault),) = plan_of(GOLDEN / "dmg_snap_all_trunc_nologs/version-2").faults
    assert (name, fault.system) == ("", "the server starts with an empty tree")


def test_unreadable_epoch_files_are_noted(tmp_path: Path) -> None:
    home = copy("fresh", tmp_path)
    (home / "currentEpoch").write_bytes(b"\n")
    (tmp_path / "myid").write_bytes(b"one\n")
    facts = plan_of(home).facts
    assert (facts["current_epoch"], facts["accepted_epoch"], facts["myid"]) == (None, None, None)


# The files as a server looks for them


def test_candidate_snapshots_have_a_complete_end(tmp_path: Path) -> None:
    home = copy("dmg_base", tmp_path)
    listing = open_listing(str(home))
    assert [candidate.name for candidate in candidates(listing)] == [
        "snapshot.16",
        "snapshot.a",
        "snapshot.0",
    ]
    data = (home / "snapshot.16").read_bytes()
    (home / "snapshot.16").write_bytes(data[:-1])
    (home / "snapshot.a").write_bytes(SNAPSHOT_END)  # shorter than any
    (home / "snapshot.20.gz").write_bytes(b"\x1f\x8b")
    (home / "snapshot.21.snappy").write_bytes(b"\x82SNAPPY")  # its magic is longer
    (home / "snapshot.22.SNAPPY").write_bytes(b"\x82SNAPPY\0")
    (home / "snapshot.-1").write_bytes(data)
    actual = [candidate.name for candidate in candidates(open_listing(str(home)))]
    assert actual == ["snapshot.22.SNAPPY", "snapshot.20.gz", "snapshot.0"]


def test_at_most_a_hundred_snapshot_candidates(tmp_path: Path) -> None:
    for zxid in range(105):
        (tmp_path / f"snapshot.{zxid:x}").write_bytes(bytes(5) + SNAPSHOT_END)
    actual = candidates(open_listing(str(tmp_path)))
    assert (len(actual), actual[0].zxid, actual[-1].zxid) == (100, 104, 5)


@pytest.mark.parametrize(
    ("zxid", "opened"),
    [
        (1, ["log.1", "log.b", "log.17"]),
        (2, ["log.1", "log.b", "log.17"]),
        (0xB, ["log.1", "log.b", "log.17"]),
        (0xC, ["log.b", "log.17"]),
        (0x17, ["log.b", "log.17"]),
        (0x18, ["log.17"]),
        (0x100000001, ["log.17"]),
    ],
)
def test_logs_opened_for_a_zxid_begin_with_the_one_that_contains_it(zxid: int, opened: list[str]) -> None:
    actual = logs(open_listing(str(GOLDEN / "dmg_base/version-2")))
    assert [item.name for item in logs_from(actual, zxid)] == opened


def test_logs_with_negative_zxids_are_never_opened(tmp_path: Path) -> None:
    for name in ("log.-1", "log.5", "log.x"):
        (tmp_path / name).write_bytes(b"")
    actual = logs(open_listing(str(tmp_path)))
    assert [item.name for item in logs_from(actual, 0)] == ["log.5"]
    assert logs_from([], 5) == []


class Dying:
    """A directory on a disk that fails to read files."""

    name = "version-2"

    def __init__(self, folder: Path) -> None:
        self._below = open_listing(str(folder))

    def entries(self) -> Sequence[Entry]:
        return self._below.entries()

    def parent(self) -> Any:
        return self

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        raise UnreadableError.of(offset, 1 << 20 if length is None else max(1, length), "EIO", name)


def test_unreadable_directory_is_an_error() -> None:
    listing = Dying(GOLDEN / "quorum_one/version-2")
    assert LAYOUT.recognise(listing) is Match.NAME
    assert candidates(listing) == []
    plan = LAYOUT.plan(listing, Options(LAYOUT.read_options))
    assert [file.name for file in plan.files][:2] == ["snapshot.0", "snapshot.100000005"]
    assert (plan.facts["current_epoch"], plan.facts["myid"]) == (None, None)
    assert LAYOUT.facts(listing, plan)["transactions"] == 0
    listing.name = "saved"
    assert LAYOUT.recognise(listing) is Match.NAME  # for its snapshots' names


def test_inspect_reads_compressed_snapshots_and_impossible_times(tmp_path: Path) -> None:
    assert "snapshot_nodes" not in lw.inspect(GOLDEN / "snap_gz")["facts"]
    write_log(tmp_path, [{**create(i, "/a"), "time_ms": 1 << 62} for i in (1, 2)])
    assert lw.inspect(tmp_path)["facts"]["times"] == [1 << 62, 1 << 62]


def test_ranges_of_zxids_over_several_logs(tmp_path: Path) -> None:
    epoch = 1 << 32
    for zxids in ([1, 2], [3, 4, 7], [9], [epoch + 1, epoch + 2], [epoch + 2, epoch + 3]):
        write_log(
            tmp_path,
            [create(zxid, "/a") for zxid in zxids],
            f"log.{zxids[0]:x}{'.b' * (zxids[-1] == epoch + 3)}",
        )
    assert lw.inspect(tmp_path)["facts"]["zxids"] == [
        ["0x1", "0x4"], ["0x7", "0x7"], ["0x9", "0x9"], ["0x100000001", "0x100000003"],
    ]  # fmt: skip


# The directory a user names


def test_parent_of_version_2_opens_its_data_directory() -> None:
    case = GOLDEN / "basic"
    assert lw.read(case, view="txns").equals(lw.read(case / "version-2", view="txns"))
    assert lw.inspect(case)["path"] == str(case / "version-2")
    report = lw.verify(case)
    assert report.path == str(case / "version-2")
    assert report.ok


def test_several_data_directories_in_one_folder_are_listed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        copy("fresh", tmp_path / name)
    report = lw.verify(tmp_path)
    assert [part.path for part in report.parts] == [
        str(tmp_path / name / "version-2") for name in ("one", "two")
    ]


def test_folder_of_a_data_directory_stands_for_it_and_one_without_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "zk/version-2").mkdir(parents=True)
    (tmp_path / "other/folder").mkdir(parents=True)
    with pytest.raises(UsageError, match="unrecognised"):
        lw.read(tmp_path / "other")
    for path in (tmp_path, tmp_path / "zk"):
        assert lw.read(path, view="files").num_rows == 0


# Logs in a separate directory


SPLIT = GOLDEN / "split_dirs"


@pytest.mark.parametrize("logs_at", ["datalog", "datalog/version-2"])
@pytest.mark.parametrize("data_at", ["data", "data/version-2"])
def test_logs_in_data_log_dir_are_read(data_at: str, logs_at: str) -> None:
    files = lw.read(SPLIT / data_at, view="files", dataLogDir=SPLIT / logs_at).to_pylist()
    assert [(file["name"], file["role"]) for file in files] == [
        ("snapshot.0", "primary"),
        ("dataLogDir/log.1", "primary"),
    ]
    table = lw.read(SPLIT / data_at, view="txns", data_log_dir=SPLIT / logs_at, columns="*")
    assert table.equals(lw.read(SPLIT / "datalog/version-2/log.1", columns="*"))


def test_damage_in_data_log_dir_is_reported_with_its_path(tmp_path: Path) -> None:
    shutil.copytree(SPLIT, tmp_path / "zk")
    log = tmp_path / "zk/datalog/version-2/log.1"
    data = bytearray(log.read_bytes())
    data[60] ^= 1
    log.write_bytes(data)
    with pytest.raises(lw.DamageError) as error:
        lw.read(tmp_path / "zk/data", view="txns", dataLogDir=tmp_path / "zk/datalog")
    assert str(error.value).startswith(f"{log}: at byte 16")


def test_files_in_the_wrong_of_two_directories_are_noted(tmp_path: Path) -> None:
    shutil.copytree(SPLIT, tmp_path / "zk")
    data, separate = tmp_path / "zk/data/version-2", tmp_path / "zk/datalog/version-2"
    shutil.copy(separate / "log.1", data / "log.1")
    shutil.copy(data / "snapshot.0", separate / "snapshot.0")
    (separate / "readme").write_text("x")
    summary = lw.inspect(tmp_path / "zk/data", dataLogDir=separate)
    assert {row["name"]: (row["role"], row["note"]) for row in summary["files"]} == {
        "snapshot.0": ("primary", ""),
        "dataLogDir/log.1": ("primary", ""),
        "log.1": ("leftover", "a log in the directory of the snapshots"),
        "dataLogDir/snapshot.0": ("leftover", "a snapshot in the directory of the logs"),
        "dataLogDir/readme": ("foreign", "not ZooKeeper's, ignored by it"),
    }
    assert {row["detail"]: row["system"] for row in summary["faults"]} == {
        "log.1 is a log in the directory of the snapshots": "the server does not start: SnapDirContentCheckException",
        "snapshot.0 is a snapshot in the directory of the logs": "the server does not start: LogDirContentCheckException",
    }


def test_missing_data_log_dir_is_an_error() -> None:
    with pytest.raises(LogwrightError, match="nowhere"):
        lw.read(SPLIT / "data", dataLogDir=SPLIT / "nowhere")


# Printed reports


def test_inspect_prints_the_directory(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["inspect", str(GOLDEN / "dmg_mid_eor_gap")])
    out = capsys.readouterr().out
    assert "zookeeper.datadir: ZooKeeper data directory" in out
    assert "zxids              0x1 .. 0xc, 0xe .. 0x21" in out
    with pytest.raises(SystemExit, match="0"):
        main(["inspect", str(SPLIT / "data"), "--dataLogDir", str(SPLIT / "datalog"), "--json"])
    assert json.loads(capsys.readouterr().out)["facts"]["transactions"] == 2


def test_foreign_files_are_listed(tmp_path: Path) -> None:
    (tmp_path / "version-2").mkdir()
    (tmp_path / "version-2/readme").write_text("x")
    files = lw.read(tmp_path, view="files").to_pylist()
    assert [(file["name"], file["role"]) for file in files] == [("readme", "foreign")]


def test_files_are_committed_in_an_order_a_server_can_start_from() -> None:
    inputs = ["log.b", "snapshot.a", "currentEpoch", "log.1", "snapshot.0", "acceptedEpoch"]
    assert LAYOUT.order(inputs) == [
        "acceptedEpoch",
        "currentEpoch",
        "snapshot.0",
        "snapshot.a",
        "log.1",
        "log.b",
    ]


def test_snapshots_are_listed_by_zxid() -> None:
    actual = snapshots(open_listing(str(GOLDEN / "dmg_base/version-2")))
    assert [item.zxid for item in actual] == [0, 0xA, 0x16]
