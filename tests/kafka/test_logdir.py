"""A log directory: which of its directories are read, and its checkpoints and markers after a repair of its partitions."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from kafka_golden import CASES

import logwright as lw
from logwright.codec.kafka.store.logdir import CONTAINER
from logwright.codec.layout import RepairedStore
from logwright.readers import store_search
from logwright.spark import many

CHECKPOINT = b"0\n3\norders 0 30\norders 1 300\ngone 0 7\n"
BELOW_END = RepairedStore(
    "orders-0", False, {"first_offset": 0, "last_offset": 29}, ["00000000000000000000.log"]
)
CUT = RepairedStore("orders-1", True, {"first_offset": 0, "last_offset": 199}, ["00000000000000000000.log"])
STORES = [BELOW_END, CUT]


def test_rows_of_a_partition_that_may_not_be_listed_are_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"topic": name, "partition": 0, "value": "a"} for name in ("orders", "pay")]
    lw.write(rows, tmp_path / "logs", "kafka.logdir")
    real = store_search.open_listing

    def listing(path: str) -> Any:
        if path.endswith("pay-0"):
            raise lw.AccessError("permission denied", path=path)
        return real(path)

    assert lw.read(tmp_path / "logs").num_rows == 2
    monkeypatch.setattr(store_search, "open_listing", listing)
    for mode in ("FAILFAST", "DROPMALFORMED", "AS_SYSTEM"):
        with pytest.raises(lw.AccessError, match="pay-0"):
            lw.read(tmp_path / "logs", mode=mode)
    with pytest.raises(lw.AccessError, match="pay-0"):
        lw.convert(tmp_path / "logs", tmp_path / "rows.parquet")
    (failed,) = many.plan([str(tmp_path / "logs")]).failed
    assert failed["path"].endswith("pay-0")
    assert "permission denied" in failed["error"]


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "cleaner-offset-checkpoint",
    ],
)
def test_offsets_beyond_the_end_of_a_repaired_log_are_lowered_to_it(name: str) -> None:
    after, note = CONTAINER.after_repair(name, CHECKPOINT, STORES)
    assert after == b"0\n2\norders 0 30\norders 1 200\n"
    assert "orders-1 lowered from 300 to the log end offset 200" in note
    assert "gone-0 removed" in note


def test_log_start_beyond_the_end_is_removed_because_the_broker_would_delete_the_log() -> None:
    after, note = CONTAINER.after_repair("log-start-offset-checkpoint", CHECKPOINT, STORES)
    assert after == b"0\n2\norders 0 30\ngone 0 7\n"
    assert "orders-1 removed (300 is beyond the log end offset 200)" in note


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
@pytest.mark.parametrize(
    "data", [b"0\r\n1\r\norders 0 30", b"0\n2\norders 1 200\norders 0 0\n", b"0\n0\n", b""]
)
def test_valid_checkpoint_keeps_its_bytes(name: str, data: bytes) -> None:
    assert CONTAINER.after_repair(name, data, STORES) == (data, "")


@pytest.mark.parametrize(
    "data", [b"0\n9\norders 0 30\n\n\xff\norders 1 x\norders 1 12\n", b"0\nx\norders 0 30\norders 1 12\n"]
)
def test_malformed_checkpoint_keeps_its_readable_entries(data: bytes) -> None:
    after, note = CONTAINER.after_repair("replication-offset-checkpoint", data, STORES)
    assert after == b"0\n2\norders 0 30\norders 1 12\n"
    assert "it was malformed" in note
    assert "2 of its entries were kept" in note


def test_clean_shutdown_marker_is_removed_only_with_a_changed_partition() -> None:
    name = ".kafka_cleanshutdown"
    assert CONTAINER.after_repair(name, b"{}", [BELOW_END]) == (b"{}", "")
    after, note = CONTAINER.after_repair(name, b"{}", STORES)
    assert after is None
    assert "is removed" in note


def test_other_files_keep_their_bytes() -> None:
    for name in ("meta.properties", "bootstrap.checkpoint"):
        assert CONTAINER.after_repair(name, b"\x00x", STORES) == (b"\x00x", "")


def test_end_of_a_log_without_records_is_the_base_of_its_last_segment() -> None:
    empty = RepairedStore("orders-1", True, {}, ["00000000000000000120.log", "00000000000000000000.log"])
    nothing = RepairedStore("orders-0", True, {}, ["partition.metadata"])
    after, note = CONTAINER.after_repair("recovery-point-offset-checkpoint", CHECKPOINT, [empty, nothing])
    assert after == b"0\n1\norders 1 120\n"
    assert "orders-0 removed" in note


def test_stray_partition_does_not_represent_the_one_of_its_name() -> None:
    aside = [
        RepairedStore(f"orders-1.0123456789abcdef0123456789abcdef-{why}", False, {"last_offset": 5}, [])
        for why in ("future", "stray")
    ]
    after, _ = CONTAINER.after_repair(
        "recovery-point-offset-checkpoint", CHECKPOINT, [BELOW_END, *aside, CUT]
    )
    assert after == b"0\n2\norders 0 30\norders 1 200\n"


# Recognition


def test_log_directory_with_segments_beside_its_partitions_is_no_partition(tmp_path: Path) -> None:
    # The second name is also that of a partition.
    for name in ("logs", "kafka-logs-1"):
        logs = tmp_path / name
        shutil.copytree(CASES["logdir_43"].data, logs)
        served = lw.read(logs).num_rows
        for path in (logs / "lost-0").glob("0*"):
            shutil.copy(path, logs)
        assert lw.detect(logs) == "kafka.logdir"
        scan = lw.scan(logs)
        assert scan.to_table().num_rows == served
        assert "beside the directories of layout kafka.partition" in " ".join(scan.report.notes)
        report = lw.repair(logs, tmp_path / f"{name}-repaired")
        assert len(report.parts) == 8
        assert "where the system does not read them" in report.text()


def test_partition_that_holds_a_copy_of_itself_is_still_a_partition(tmp_path: Path) -> None:
    source, copy = CASES["logdir_43"].data / "orders-0", tmp_path / "orders-0"
    shutil.copytree(source, copy)
    rows = lw.read(copy)
    shutil.copytree(source, copy / "orders-0")
    assert lw.detect(copy) == "kafka.partition"
    assert lw.read(copy).equals(rows)


# Directories set aside

SERVED = {"__consumer_offsets": 5, "__transaction_state": 4, "compact.me": 21, "lost": 5, "orders": 61}
"""The records of each topic that the broker of `logdir_43` serves."""


@pytest.fixture
def log_directory(tmp_path: Path) -> Path:
    """The golden log directory with a future replica of a partition, which an interrupted move leaves."""
    path = tmp_path / "logs"
    shutil.copytree(CASES["logdir_43"].data, path)
    shutil.copytree(path / "orders-0", path / f"orders-0.{'0' * 32}-future")
    return path


def test_stray_future_and_deleted_replicas_are_not_read(log_directory: Path) -> None:
    scan = lw.scan(log_directory, columns="topic")
    counts = scan.to_table().group_by("topic").aggregate([("topic", "count")]).to_pydict()
    assert dict(zip(counts["topic"], counts["topic_count"], strict=True)) == SERVED
    notes = {note.partition(" ")[0].rpartition("-")[2]: note for note in scan.report.notes}
    assert set(notes) == {"delete", "future", "stray"}
    assert (
        "is a future replica, which a broker does not serve before it replaces the current one"
        in notes["future"]
    )
    assert "is a stray replica, which a broker does not serve" in notes["stray"]
    assert "is marked for deletion" in notes["delete"]
    as_system = lw.read(log_directory, columns="topic", mode="AS_SYSTEM")
    assert as_system.num_rows == sum(SERVED.values())


def test_dump_names_the_replicas_that_it_leaves_out(
    log_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("dump", str(log_directory), "--columns", "offset") == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == sum(SERVED.values())
    assert "-stray is a stray replica, which a broker does not serve: skipped" in printed.err


def test_replica_set_aside_is_read_by_its_own_path(log_directory: Path) -> None:
    future = log_directory / f"orders-0.{'0' * 32}-future"
    assert lw.read(future, columns="offset").equals(lw.read(log_directory / "orders-0", columns="offset"))
    with pytest.raises(lw.UsageError, match="a broker does not serve"):
        lw.read(future, mode="AS_SYSTEM")


def test_stray_and_future_replicas_are_verified_and_inspected(log_directory: Path) -> None:
    names = {Path(target["path"]).name.rpartition("-")[2] for target in lw.verify(log_directory)["targets"]}
    assert {"future", "stray"} <= names
    assert {"-future", "-stray"} <= set(re.findall(r"-(?:future|stray)", str(lw.inspect(log_directory))))


@pytest.mark.parametrize("release", ["0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "2.8.2"])
def test_log_directory_without_partitions_is_verified_and_inspected(release: str) -> None:
    path = CASES[f"logdir_{release}"].path / "data"
    report = lw.verify(path, as_system="4.3")
    assert report.ok
    assert {Path(part.path).name for part in report.parts} == {
        each.name for pattern in ("*-offset-checkpoint", "meta.properties") for each in path.glob(pattern)
    }
    # A current broker refuses the meta.properties of some.
    assert re.search(r"kafka 4\.3: (starts, and has nothing to load|does not start: )", report.text())
    assert lw.inspect(path)["codec"] == "kafka.logdir"
    with pytest.raises(lw.UsageError, match=r"kafka\.logdir has no kafka\.partition"):
        lw.read(path)


def test_log_directory_without_a_served_partition_is_an_error(tmp_path: Path) -> None:
    (stray,) = CASES["logdir_43"].data.glob("*-stray")
    shutil.copytree(stray, tmp_path / "logs" / stray.name)
    shutil.copy(CASES["logdir_43"].data / "meta.properties", tmp_path / "logs")
    with pytest.raises(lw.UsageError, match="stray"):
        lw.read(tmp_path / "logs")
    properties = tmp_path / "server.properties"
    properties.write_text(f"process.roles=broker\nnode.id=1\nlog.dirs={tmp_path / 'logs'}\n")
    with pytest.raises(lw.UsageError, match="serves none of the stores"):
        lw.read(properties)


def test_job_repairs_replicas_set_aside_on_their_own(log_directory: Path) -> None:
    pytest.importorskip("pyspark")
    from logwright.spark import many

    todo = many.plan([str(log_directory)])
    assert {len(item.paths) for item in todo.items} == {1}
    assert sum(item.name.startswith("orders-0") for item in todo.items) == 2


def test_a_decoded_view_of_a_log_directory_reads_only_the_partitions_of_its_topic(tmp_path: Path) -> None:
    keys = {"consumer_offsets": b"\0\1\0\1g\0\1t\0\0\0\0", "transaction_state": b"\0\0\0\1x"}
    for topic, key in keys.items():
        lw.write([{"key": key, "value": None}] * 2, tmp_path / f"__{topic}-0", "kafka.partition")
    lw.write([{"value": b"no key"}], tmp_path / "orders-0", "kafka.partition")
    (tmp_path / "meta.properties").write_text("broker.id=0\n")
    assert lw.read(tmp_path, view="consumer_offsets").num_rows == 2
    assert lw.read(tmp_path, view="transaction_state", jobs=2).num_rows == 2
    assert lw.read(tmp_path).num_rows == 5
    with pytest.raises(
        lw.UsageError, match=r"no store there has rows of view 'share_group_state' \(3 stores found\)"
    ):
        lw.scan(tmp_path, view="share_group_state")
    with pytest.raises(lw.UsageError, match="unknown view 'offsets'"):
        lw.scan(tmp_path, view="offsets")


def test_diff_and_edit_of_a_log_directory_name_the_stores_to_pass(tmp_path: Path) -> None:
    for name in ("a/orders-0", "a/orders-1", "b/orders-1", "b/orders-2", "c/other-0"):
        lw.write([{"value": b"x"}], tmp_path / name, "kafka.partition")
    for name in "abc":
        (tmp_path / name / "meta.properties").write_text("broker.id=0\n")
    a, b, c = (str(tmp_path / name) for name in "abc")
    with pytest.raises(lw.UsageError) as error:
        lw.diff(a, b)
    assert error.value.message == "diff compares one store with one other; this is a directory of 2 stores"
    assert error.value.advice == f"Compare {a}/orders-1 with {b}/orders-1, and so on"
    for others in ((a, c), (f"{c}/other-0", a)):
        with pytest.raises(lw.UsageError, match=f"2 stores. Pass one of them, such as {a}/orders-"):
            lw.diff(*others)
    with pytest.raises(
        lw.UsageError, match=r"this is a kafka\.logdir of 2 stores: one kafka\.partition was expected"
    ):
        lw.edit(a, tmp_path / "out", drop="offset == 0")
    assert lw.diff(f"{a}/orders-1", f"{b}/orders-1", columns="value").equal


def test_a_damaged_log_directory_has_a_verdict_and_counts_what_repair_cannot_restore(tmp_path: Path) -> None:
    rows = [
        {"topic": "t", "partition": number, "key": b"k%d" % i, "value": b"v" * 50}
        for i in range(50)
        for number in range(3)
    ]
    lw.write(rows, tmp_path / "logs", "kafka.logdir", cluster_id="q83vASNFZ4mrze8BI0VniQ", node_id=1)
    log = "00000000000000000000.log"
    for name, size in (("t-0", 1), ("t-1", 30)):
        data = bytearray((tmp_path / "logs" / name / log).read_bytes())
        data[200 : 200 + size] = bytes(byte ^ 1 for byte in data[200 : 200 + size])
        (tmp_path / "logs" / name / log).write_bytes(data)
    text = str(lw.verify(tmp_path / "logs", as_system=True))
    assert "lost in total: 50 rows" in text
    assert "kafka 4.3: opens all and loses nothing more" in text
    assert "checksum mismatch; repair restores it" in text
    shutil.rmtree(tmp_path / "logs" / "t-0")
    (tmp_path / "logs" / "t-1" / "partition.metadata").unlink()
    assert "kafka 4.3: does not open 1 of them" in str(lw.verify(tmp_path / "logs", as_system=True))


# Folders that keep a broker from starting

MISNAMED = ("backup", "orders-0.bak", "orders-0-old", "orders-0 (copy)", "orders-00", "orders-+0")


@pytest.mark.parametrize("name", MISNAMED)
def test_copies_of_partitions_under_other_names_are_not_read(log_directory: Path, name: str) -> None:
    shutil.copytree(log_directory / "orders-0", log_directory / name)
    scan = lw.scan(log_directory, columns="topic")
    assert scan.to_table().num_rows == sum(SERVED.values())
    assert any(f"/{name} " in note and "a broker" in note for note in scan.report.notes)
    assert lw.read(log_directory / name, columns="offset").num_rows > 0


@pytest.mark.alike
@pytest.mark.parametrize("name", MISNAMED)
def test_broker_that_does_not_start_serves_nothing(log_directory: Path, name: str) -> None:
    shutil.copytree(log_directory / "orders-0", log_directory / name)
    verdict = lw.verify(log_directory, as_system=True)["system"]
    assert (verdict["opens"], verdict["scope"]) == (False, "process")
    with pytest.raises(lw.DamageError, match="does not start"):
        lw.read(log_directory, mode="AS_SYSTEM")


def test_repair_names_the_folders_that_keep_a_broker_from_starting(log_directory: Path) -> None:
    shutil.copytree(log_directory / "orders-0", log_directory / "orders-0.bak")
    report = lw.repair(log_directory, log_directory.parent / "repaired")
    (note,) = (note for note in report.notes if note.startswith("orders-0.bak "))
    assert note.endswith(
        "a broker does not start with it in its log directory: move it elsewhere before the start"
    )


def test_two_folders_of_one_partition_keep_a_broker_from_starting(log_directory: Path) -> None:
    other = log_directory.parent / "other"
    shutil.copytree(log_directory / "orders-1", other / "orders-1")
    for name in ("meta.properties", "bootstrap.checkpoint"):
        shutil.copy(log_directory / name, other)
    identity = (other / "meta.properties").read_text()
    (other / "meta.properties").write_text(
        re.sub("directory.id=.*", "directory.id=ODDn20Dc_EMKAt_Sl5HOQA", identity)
    )
    properties = log_directory.parent / "server.properties"
    properties.write_text(
        "process.roles=broker\nnode.id=1\ncontroller.listener.names=C\ncontroller.quorum.voters=2@h:9\n"
        f"log.dirs={log_directory},{other}\n"
    )
    verdict = lw.verify(properties, as_system=True)["system"]
    assert verdict["error_class"] == "java.lang.IllegalStateException"
    assert verdict["error"].startswith("Duplicate log directories for orders-1 are found in both ")
    # Without a topic id a broker sets one of them aside.
    (other / "orders-1" / "partition.metadata").unlink()
    assert lw.verify(properties, as_system=True)["system"]["opens"]


# The log directory as a whole


def faults_of(path: Path) -> dict[str, str]:
    """Return the errors that verify finds, by folder."""
    return {
        Path(part.path).name: fault.detail
        for part in lw.verify(path).parts
        for _, fault in part.faults
        if fault.severity == "error"
    }


def test_partition_that_is_missing_is_found_by_the_checkpoints(log_directory: Path) -> None:
    assert not faults_of(log_directory)
    shutil.rmtree(log_directory / f"orders-0.{'0' * 32}-future")
    for path in (log_directory / "orders-0").iterdir():
        path.unlink()
    text = "the partition is missing, but replication-offset-checkpoint has offset 53"
    assert faults_of(log_directory) == {"orders-0": text}
    (log_directory / "orders-0").rmdir()
    assert faults_of(log_directory) == {"orders-0": text}
    report = lw.verify(log_directory)
    assert not report.ok
    (fault,) = (fault for part in report.parts for _, fault in part.faults if fault.detail == text)
    assert (fault.lost["first_offset"], fault.lost["last_offset"]) == (8, 52)


def test_partition_that_is_being_deleted_is_not_missing(log_directory: Path) -> None:
    (log_directory / "orders-0").rename(log_directory / f"orders-0.{'1' * 32}-delete")
    assert not faults_of(log_directory)


def test_topic_has_one_id_and_an_id_one_topic(log_directory: Path) -> None:
    first, second = (log_directory / name / "partition.metadata" for name in ("orders-0", "compact.me-0"))
    own, other = first.read_text(), second.read_text()
    first.write_text(other)
    second.write_text(own)
    ids = [text.rpartition(" ")[2].strip() for text in (own, other)]
    assert faults_of(log_directory) == {
        "compact.me-0": f"the topic id {ids[0]} is also that of topic orders",
        "orders-0": f"the topic id is {ids[1]}, but that of other partitions of the topic is {ids[0]}",
        "orders-1": f"the topic id {ids[0]} is also that of topic compact.me",
    }
    second.write_text(other)
    assert faults_of(log_directory)["orders-0"] == f"the topic id {ids[1]} is also that of topic compact.me"
    first.write_text(f"version: 0\ntopic_id: {'q' * 22}\n".replace("q" * 22, "q83vASNFZ4mrze8BI0VniQ"))
    assert faults_of(log_directory) == {
        "orders-0": f"the topic id is q83vASNFZ4mrze8BI0VniQ, but that of other partitions of the topic is {ids[0]}",
        "orders-1": f"the topic id is {ids[0]}, but that of other partitions of the topic is q83vASNFZ4mrze8BI0VniQ",
    }


def test_repair_takes_a_missing_topic_id_from_another_partition_of_the_topic(log_directory: Path) -> None:
    metadata = log_directory / "orders-0" / "partition.metadata"
    content = metadata.read_text()
    metadata.unlink()
    out = log_directory.parent / "repaired"
    report = lw.repair(log_directory, out)
    assert (out / "orders-0" / "partition.metadata").read_text() == content
    notes = [note for part in report.parts for note in part.notes]
    assert "partition.metadata is copied from ../orders-1, a partition of the same topic." in notes
    assert lw.verify(out, as_system=True).safe
