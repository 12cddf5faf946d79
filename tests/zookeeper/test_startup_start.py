"""The simulated start on a ZooKeeper data directory: changed files, lost rows, and the tree clients see."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from memory_directory import MemoryDirectory
from zookeeper_crafted import FRESH, ROOT, buf, create, directory, i4, log, record, snapshot, ttl
from zookeeper_startup import DATA_LOG_DIR, GOLDEN, data_directory, listing_of, memory_of, nodes_of, start

import logwright as lw
from logwright.cli import main
from logwright.codec.fault import DamageError, UnreadableError, UsageError
from logwright.codec.zookeeper.formats.snapshot.sections import Shape
from logwright.codec.zookeeper.startup.settings import VERSIONS
from logwright.codec.zookeeper.startup.start import STARTUP
from logwright.readers.plan import AsSystem, reading
from logwright.readers.report import Report
from logwright.readers.resolve import resolve
from logwright.readers.task import split_tasks

pytestmark = pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")
EPOCH = 1 << 32


def warned(opened: Any) -> str:
    return "\n".join(opened.verdict.warnings)


# Versions and options


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        (None, "3.9.5"), ("zookeeper", "3.9.5"), ("3.8", "3.8.6"), ("ZooKeeper 3.6.2", "3.6.2"), ("v3.4.14", "3.4.14"),
        ("zookeeper-3.5.0", "3.5.0"), ("", "3.9.5"),
    ],
)  # fmt: skip
def test_version_names_are_resolved(asked: str | None, version: str) -> None:
    assert STARTUP.version_of(asked) == version


@pytest.mark.parametrize("asked", ["3.3", "3.9.99", "4", "3.10", "kafka", "3.9.5-rc0"])
def test_unknown_versions_are_refused(asked: str) -> None:
    with pytest.raises(UsageError, match="unknown version"):
        STARTUP.version_of(asked)
    assert VERSIONS[:7] == ("3.9.5", "3.9.4", "3.9.3", "3.9.2", "3.9.1", "3.9.0", "3.8.6")
    assert VERSIONS[-1] == "3.4.0"


# Directories


def test_empty_directory_starts_with_the_files_of_a_new_server() -> None:
    opened = start(data_directory({}))
    verdict = opened.verdict
    assert (verdict.opens, verdict.rows, verdict.creates) == (True, 4, ("snapshot.0",))
    # Files of a new server.
    assert opened.after.read("snapshot.0") == FRESH
    assert start(data_directory({}), version="3.4.14").verdict.creates == ()
    assert start(data_directory({}), version="3.4.14").verdict.rows == 3
    small = start(
        data_directory({}), **{"digest.enabled": False, "serializeLastProcessedZxid.enabled": False}
    )
    assert len(small.after.read("snapshot.0")) == 424


def test_all_logs_are_replayed_on_a_snapshot_of_the_largest_zxid() -> None:
    """The zxid after it overflows to the smallest one."""
    files = {f"snapshot.{(1 << 63) - 1:x}": FRESH, "log.1": log(record(1, 1, create(b"/node")))}
    opened = start(data_directory(files))
    assert opened.verdict.opens
    assert "/node" in {row["path"] for batch in opened.rows("tree", ("path",)) for row in batch.to_pylist()}


def test_empty_directory_is_refused_with_trust_empty_snapshot_off() -> None:
    nothing = start(data_directory({}), **{"db.autocreate": False})
    assert nothing.verdict.serves["zxid"] == "0xffffffffffffffff"
    assert nothing.verdict.creates == ("snapshot.ffffffffffffffff",)
    marked = data_directory({}, above=data_directory({"initialize": b""}, name="data"))
    assert start(marked, **{"db.autocreate": False}).verdict.creates == ("snapshot.0",)
    assert start(data_directory({}), version="3.5.10", **{"db.autocreate": False}).verdict.creates == (
        "snapshot.0",
    )


def test_logs_without_a_snapshot() -> None:
    files = {"log.1": log(record(1, 1, create(b"/a")), record(2, 1, create(b"/b")))}
    refused = start(data_directory(files)).verdict
    assert refused.error == "No snapshot found, but there are log entries. Something is broken!"
    assert (refused.error_class, refused.scope, refused.rows) == ("java.io.IOException", "process", 0)
    trusted = start(data_directory(files), **{"snapshot.trust.empty": True})
    assert trusted.verdict.rows == 6
    assert "This should only be allowed during upgrading" in warned(trusted)
    assert start(data_directory(files), version="3.5.2").verdict.rows == 6
    assert not start(data_directory(files), version="3.5.5", **{"snapshot.trust.empty": True}).verdict.opens
    # It is looked at all the same: what can't be survived there, and an empty log.
    assert start(data_directory(files | {"log.3": b""})).verdict.removes == ("log.3",)
    broken = data_directory({"log.1": log(b"12345678" + i4(-1) + bytes(9))})
    assert start(broken).verdict.error_class == "java.lang.NullPointerException"
    assert not start(data_directory({"log.1": b"nothing"}), version="3.5.2").verdict.opens


def test_separate_data_log_dir() -> None:
    separate = listing_of("split_dirs")
    files = {entry.name: separate.read(entry.name) for entry in separate.entries()}
    assert start(data_directory(files)).verdict.opens
    misplaced = start(data_directory(files | {f"{DATA_LOG_DIR}/snapshot.0": FRESH})).verdict
    assert misplaced.error is not None
    assert misplaced.error.startswith("Log directory has snapshot files.")
    assert misplaced.error_class is not None
    assert misplaced.error_class.endswith("LogDirContentCheckException")
    misplaced = start(data_directory(files | {"log.9": b""})).verdict
    assert misplaced.error_class is not None
    assert misplaced.error_class.endswith("SnapDirContentCheckException")
    assert start(data_directory(files | {"log.9": b""}), version="3.5.3").verdict.opens


# Files a start writes


def test_start_writes_a_snapshot() -> None:
    base = memory_of("dmg_base")
    opened = start(base)
    written = opened.after.read("snapshot.21")
    # Whether it was made already or not.
    assert opened.verdict.creates == start(base).verdict.creates == ("snapshot.21",)
    shape = Shape.of(lambda at, size: np.frombuffer(written, np.uint8)[at : at + size], len(written))
    assert not list(shape.wrong())
    started = start(data_directory({"snapshot.21": written}))
    assert nodes_of(started) == nodes_of(opened)
    assert started.verdict.rewrites == ("snapshot.21",)
    assert started.verdict.creates == ()
    packed = start(base, **{"snapshot.compression.method": "gz"})
    assert packed.verdict.creates == ("snapshot.21.gz",)
    assert nodes_of(
        start(data_directory({"snapshot.21.gz": packed.after.read("snapshot.21.gz")}))
    ) == nodes_of(opened)
    # Older servers don't compress.
    options = {"snapshot.compression.method": "gz"}
    assert start(base, version="3.5.10", **options).verdict.creates == ("snapshot.21",)


def test_expired_sessions_are_closed() -> None:
    result = directory(
        (-10, i4(3000)),
        (1, create(b"/mine", ephemeral=1)),
        record(3, 1, create(b"/other", ephemeral=1), client=99),
    )
    opened = start(result)
    assert [row["path"] for row in nodes_of(opened)][:2] == ["/", "/mine"]
    assert "ephemeral nodes of closed sessions are deleted: /other" in warned(opened)
    assert opened.verdict.rows_lost == 0
    sessions = pa.Table.from_batches(opened.rows("sessions", ["session_id", "timeout"]))
    assert sessions.to_pylist() == [{"session_id": 77, "timeout": 3000}]


def test_what_a_rejected_snapshot_takes_for_the_node_of_a_session() -> None:
    good = snapshot(ROOT, (b"/app", -1, 0), (b"/app/one", -1, 0), (b"/app/two", -1, 0))
    owners = [(b"/app/one", -1, 99), (b"/app/two", -1, -(1 << 63)), (b"/gone", -1, 99)]
    damaged = snapshot((b"", -1, 99), (b"/app", -1, 0), *owners)
    result = data_directory({"snapshot.5": damaged[:-6] + b"?" + damaged[-5:], "snapshot.3": good})
    opened = start(result)
    assert opened.verdict.serves["snapshot"] == "snapshot.3"
    assert [row["path"] for row in nodes_of(opened)] == ["/", "/app", "/app/two"]
    assert "a closed session: /app/one" in warned(opened)
    assert opened.verdict.rows_lost is None
    assert {"nodes": ["/app/one"]} in opened.verdict.lost
    # Up to 3.5.0 a container is a node of a session too; one with a TTL is unless they are known.
    assert [row["path"] for row in nodes_of(start(result, version="3.5.0"))] == ["/", "/app"]
    with_ttl = snapshot(ROOT, (b"/app", -1, 0), (b"/app/one", -1, -(1 << 56) | 5))
    result = data_directory({"snapshot.5": with_ttl[:-6] + b"?" + with_ttl[-5:], "snapshot.3": good})
    assert start(result).verdict.rows == 3
    assert start(result, extendedTypesEnabled=True).verdict.rows == 4
    # They go with their session too, where it is closed.
    result.files["log.4"] = log(
        record(4, -10, i4(5)), record(5, -11, b"", client=-(1 << 56) | 5), record(6, 1, create(b"/z"))
    )
    opened = start(result)
    assert [row["path"] for row in nodes_of(opened)] == ["/", "/app", "/app/two", "/z"]
    assert nodes_of(opened)[1]["stat"]["pzxid"] == 5
    assert opened.verdict.serves["transactions"] == 3


def test_ttl_nodes_without_extended_types_are_deleted() -> None:
    result = directory(*((21, ttl(b"/t%d" % i, 5000)) for i in range(7)))
    opened = start(result)
    assert opened.verdict.rows == 4
    assert opened.verdict.rows_lost is None
    assert opened.verdict.lost[0]["nodes"] == [f"/t{i}" for i in range(7)]
    assert "extendedTypesEnabled is off: /t0, /t1, /t2, /t3, /t4, and 2 more" in warned(opened)
    kept = start(result, extendedTypesEnabled=True).verdict
    assert (kept.rows, kept.rows_lost, kept.lost) == (11, 0, ())


def test_acls_missing_from_the_table() -> None:
    opened = start(listing_of("syn_acl_dangling"))
    assert "fail with MarshallingError: ACL 4242" in warned(opened)
    rows = pa.Table.from_batches(opened.rows("acls", ["acl_id", "acl"])).to_pylist()
    assert 4242 not in [row["acl_id"] for row in rows]
    # From 3.9.2 on the ACL of a node that changes is looked up.
    memory = memory_of("syn_acl_dangling")
    path = b"/app/d1-4"
    memory.files["log.22"] = log(record(0x22, 5, buf(path) + buf(b"new") + i4(9)))
    assert start(memory).verdict.error == "Failed to fetch acls for 4242"
    assert start(memory, version="3.9.1").verdict.opens


# Lost rows


LOSES: Mapping[str, int | None] = {
    "dmg_base": 0, "dmg_flip_eor": 6, "dmg_len_zero": 6, "dmg_mid_eor_silent": 11, "dmg_trunc_tail_midbody": 0,
    "dmg_mid_missing_silent": 0, "dmg_snap_all_trunc_nologs": None, "basic": 0, "dmg_pad_garbage_far": 0, "dmg_gz_flip": 0,
}  # fmt: skip


@pytest.mark.parametrize(("case", "rows"), LOSES.items())
def test_sound_transactions_after_damage_are_lost(case: str, rows: int | None) -> None:
    verdict = start(listing_of(case)).verdict
    assert verdict.rows_lost == rows
    assert bool(verdict.lost) == (rows != 0)


def test_lost_ranges_are_reported() -> None:
    (gone,) = start(listing_of("dmg_flip_eor")).verdict.lost
    assert gone == {"file": "log.17", "first_zxid": 0x1C, "last_zxid": 0x21}
    (gone,) = start(listing_of("dmg_snap_all_trunc_nologs")).verdict.lost
    assert gone == {"first_zxid": 1, "last_zxid": 0x16}
    # Zxids that were given again are not lost with the record that had them first.
    dead = directory(*((1, create(b"/%d" % i)) for i in range(6)))
    complete = dead.files["log.1"]
    place = complete.index(b"/2") + 6
    cut = complete.index(b"B", place)
    dead.files["log.1"] = complete[:cut] + b"?" + complete[cut + 1 :]
    assert start(dead).verdict.rows_lost == 3
    dead.files["log.3"] = log(record(3, 1, create(b"/x")), record(4, 1, create(b"/y")))
    (gone,) = start(dead).verdict.lost
    assert gone == {"file": "log.1", "first_zxid": 5, "last_zxid": 6}


def test_two_logs_of_one_zxid() -> None:
    result = directory((1, create(b"/a")))
    result.files["log.1.fixed"] = result.files["log.1"]
    assert "log.1 and log.1.fixed are both read" in warned(start(result))


# An ensemble


def member(**files: bytes) -> MemoryDirectory:
    result = log(record(2 * EPOCH + 1, 1, create(b"/a")))
    return data_directory({"snapshot.0": FRESH, "log.200000001": result, **files})


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"currentEpoch": b"2", "acceptedEpoch": b"2\n"}, None),
        ({"currentEpoch": b"3", "acceptedEpoch": b"4"}, None),
        ({}, None),
        (
            {"currentEpoch": b"1", "acceptedEpoch": b"2"},
            "The current epoch, 1, is older than the last zxid, 8589934593",
        ),
        (
            {"currentEpoch": b"3", "acceptedEpoch": b"2"},
            "The accepted epoch, 2 is less than the current epoch, 3",
        ),
        ({"currentEpoch": b"x"}, "Found x in currentEpoch"),
        ({"currentEpoch": b""}, "Found null in currentEpoch"),
        ({"currentEpoch": b"1", "currentEpoch.tmp": b"2", "acceptedEpoch": b"2"}, None),
        ({"currentEpoch": b"1", "currentEpoch.tmp": b"?"}, "Found ? in currentEpoch.tmp"),
    ],
)
def test_start_of_an_ensemble_member(files: dict[str, bytes], error: str | None) -> None:
    opened = start(member(**files), distributed=True)
    assert opened.verdict.error == error
    assert start(member(**files)).verdict.opens
    if error is None:
        # Only who is elected writes a snapshot.
        assert not any(
            name.startswith("snapshot") for name in (*opened.verdict.creates, *opened.verdict.rewrites)
        )


def test_unreadable_epoch_stops_only_a_member_of_an_ensemble() -> None:
    class Broken(MemoryDirectory):
        def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
            if name == "currentEpoch":
                raise UnreadableError.of(offset, 1, "bad sector", name)
            return super().read(name, offset, length)

        def parent(self) -> MemoryDirectory | None:
            raise UnreadableError.of(0, 1, "bad sector", "..")

    broken = Broken(member(currentEpoch=b"2", acceptedEpoch=b"2").files)
    assert start(broken, distributed=True).verdict.error == "Input/output error"
    opened = start(broken)
    assert opened.verdict.opens
    assert opened.parts("tree") is None


def test_start_writes_epoch_files() -> None:
    opened = start(member(), distributed=True)
    assert opened.verdict.creates == ("acceptedEpoch", "currentEpoch")
    assert opened.after.read("currentEpoch") == b"2"
    opened = start(
        member(**{"currentEpoch": b"1", "currentEpoch.tmp": b"2", "acceptedEpoch": b"2"}), distributed=True
    )
    assert opened.verdict.rewrites == ("currentEpoch",)
    assert opened.verdict.removes == ("currentEpoch.tmp",)
    assert start(listing_of("quorum_one"), distributed=True).verdict.opens


# Through the front door


def test_mode_as_system_reads_what_the_server_serves(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "dmg_flip_eor", tmp_path / "data")
    rows = lw.read(tmp_path / "data", mode="AS_SYSTEM")
    seen = [row["path"] for row in nodes_of(start(listing_of("dmg_flip_eor")))]
    assert rows["path"].to_pylist() == seen
    assert (
        lw.read(tmp_path / "data", mode="AS_SYSTEM", columns="path", limit=3)["path"].to_pylist() == seen[:3]
    )
    below = lw.read(tmp_path / "data", mode="AS_SYSTEM", path_prefix="/zookeeper/", columns="path")
    assert below["path"].to_pylist() == ["/zookeeper", "/zookeeper/config", "/zookeeper/quota"]
    sessions = lw.read(GOLDEN / "sessions", mode="AS_SYSTEM", view="sessions")
    assert sessions["ephemerals"].to_pylist() == [1, 3]
    assert len(lw.read(tmp_path / "data", mode="AS_SYSTEM", view="acls", columns="acl_id,nodes")) == 2
    with pytest.raises(UsageError, match="serves no view 'txns'"):
        lw.read(tmp_path / "data", mode="AS_SYSTEM", view="txns")
    with pytest.raises(UsageError, match="option at_zxid does not apply to reading with mode=AS_SYSTEM"):
        lw.read(tmp_path / "data", mode="AS_SYSTEM", at_zxid="0x18")
    with pytest.raises(
        DamageError, match=r"zookeeper 3.9.5 does not open it \(java.io.IOException: CRC check failed\)"
    ):
        lw.read(GOLDEN / "dmg_flip_body", mode="AS_SYSTEM")


def test_tasks_can_be_pickled() -> None:
    (target,) = resolve(str(GOLDEN / "dmg_flip_eor"), None, {"extendedTypesEnabled": True})
    actual = reading([target], "tree", AsSystem())
    assert actual.systems[0]["rows"] == 18
    (task,) = split_tasks(pickle.loads(pickle.dumps(actual.tasks)), 1)
    report = Report(str(GOLDEN / "dmg_flip_eor"), "zookeeper.datadir")
    rows = pa.Table.from_batches(task.rows(("path", "data"), report))
    assert len(rows) == report.rows == 18
    assert rows.equals(pa.Table.from_batches(actual.tasks[0].rows(("path", "data"), report)))


def test_logs_in_data_log_dir_are_loaded() -> None:
    table = lw.read(
        GOLDEN / "split_dirs/data", dataLogDir=str(GOLDEN / "split_dirs/datalog"), mode="AS_SYSTEM"
    )
    assert table["path"].to_pylist() == [row["path"] for row in nodes_of(start(listing_of("split_dirs")))]


def test_report_names_versions_and_options() -> None:
    report = lw.verify(GOLDEN / "dmg_mid_missing", as_system="3.8")
    assert report.system is not None
    assert (report.system["version"], report.system["opens"], report.system["rows"]) == ("3.8.6", True, 19)
    report = lw.verify(GOLDEN / "v3414_log_only", as_system="3.9.5", **{"snapshot.trust.empty": True})
    assert report.system is not None
    assert report.system["rows"] == 6
    with pytest.raises(UsageError, match=r"unknown version '2\.0' of zookeeper"):
        lw.verify(GOLDEN / "fresh", as_system="2.0")


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def test_verify_as_system_reports_the_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", str(GOLDEN / "dmg_flip_eor"), "--as-system") == 3
    message = capsys.readouterr().out
    assert "zookeeper 3.9.5: opens it and loses 6 records" in message
    assert "log.17: the server stops reading at byte 506: Last transaction was partial." in message
    assert run("verify", str(GOLDEN / "dmg_mid_missing"), "--as-system") == 3
    message = " ".join(capsys.readouterr().out.split())
    assert (
        "does not start: Committed proposal cached out of order: 0x17 is not the next proposal of 0xa"
        in message
    )
    assert run("verify", str(GOLDEN / "extended_types"), "--as-system") == 3
    assert "nodes with a TTL are deleted, since extendedTypesEnabled is off" in capsys.readouterr().out
    assert run("verify", str(GOLDEN / "extended_types"), "--as-system", "--extendedTypesEnabled", "true") == 0
    assert "opens it and loses nothing" in capsys.readouterr().out
