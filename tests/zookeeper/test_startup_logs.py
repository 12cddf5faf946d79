"""Reading logs as a ZooKeeper server does: the end of a log, and failures that end the start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from memory_directory import MemoryDirectory
from zookeeper_crafted import (
    CRAFTED,
    HEADER,
    OPEN,
    ROOT,
    buf,
    create,
    directory,
    i4,
    i8,
    log,
    multi,
    record,
    sealed,
    snapshot,
    ttl,
)
from zookeeper_startup import data_directory, memory_of, nodes_of, server, start

from logwright.codec.fault import UnreadableError
from logwright.codec.option import Options
from logwright.codec.store.listing import Entry
from logwright.codec.store.overlay import Overlay
from logwright.codec.zookeeper.startup import file_txn_log
from logwright.codec.zookeeper.startup.exceptions import Thrown
from logwright.codec.zookeeper.startup.file_txn_log import FileTxnLog, Records, Stop
from logwright.codec.zookeeper.startup.file_txn_snap_log import Committed
from logwright.codec.zookeeper.startup.settings import OPTIONS, VERSIONS, ServerSettings
from logwright.codec.zookeeper.startup.start import STARTUP

A, B, C = (record(zxid, 1, create(path)) for zxid, path in ((1, b"/a"), (2, b"/b"), (3, b"/c")))
PATHS = ["/zookeeper", "/zookeeper/config", "/zookeeper/quota"]


def read(
    files: dict[str, bytes], zxid: int = 1, version: str = "3.9.5", **options: Any
) -> tuple[list[int], Any, list[Stop]]:
    """Return the zxids read, the failure that ends it (class and message), and logs that end early."""
    zxids: list[int] = []
    stops = []
    reader = FileTxnLog(
        Overlay(data_directory(files)), ServerSettings(STARTUP.version_of(version), Options(OPTIONS, options))
    )
    try:
        for actual in reader.read(zxid):
            if isinstance(actual, Records):
                zxids += actual.frames.header["zxid"].tolist()
            else:
                stops.append(actual)
    except Thrown as thrown:
        return zxids, str(thrown), stops
    return zxids, None, stops


def test_log_ends_at_an_incomplete_record() -> None:
    complete = log(A, B)
    for size in range(len(log(A)) + 1, len(complete)):
        zxids, ended, (stop,) = read({"log.1": complete[:size]})
        assert (zxids, ended) == ([1], None)
        assert stop.position == len(log(A))
    assert read({"log.1": complete}) == ([1, 2], None, [])
    assert read({"log.1": log(A)}) == ([1], None, [])


def test_short_or_missing_header() -> None:
    for size in range(1, len(HEADER)):
        assert read({"log.1": HEADER[:size]})[1] == "java.io.EOFException"
    assert read({"log.1": HEADER}) == ([], None, [])
    assert read({"log.1": b"ZKSN" + HEADER[4:]})[1] == (
        "java.io.IOException: Transaction log: log.1 has invalid magic number 1514885966 != 1514884167"
    )
    # Version and dbid are not looked at.
    assert read({"log.1": b"ZKLG" + bytes(12) + A})[0] == [1]


def test_server_deletes_an_empty_newest_log() -> None:
    files = {"log.1": log(A), "log.2": b""}
    disk = Overlay(data_directory(files))
    reader = FileTxnLog(disk, ServerSettings("3.9.3", Options(OPTIONS)))
    assert len(list(reader.read(1))) == 1
    assert disk.removed == reader.deleted == ["log.2"]
    assert read(files, version="3.9.2")[1] == "java.io.EOFException"
    # Only the last one may be empty.
    assert read({"log.1": b"", "log.2": log(B)})[1] == "java.io.EOFException"


@pytest.mark.parametrize(
    ("length", "ended"),
    [
        (-1, 'java.lang.NullPointerException: Cannot read the array length because "bytes" is null'),
        (-2, "java.io.IOException: Unreasonable length = -2"),
        (2 * 0xFFFFF + 1, "java.io.IOException: Unreasonable length = 2097151"),
        (2 * 0xFFFFF, None),
        (0, None),
    ],
)
def test_impossible_record_length_ends_the_log(length: int, ended: str | None) -> None:
    zxids, why, stops = read({"log.1": log(A, B[:8] + i4(length) + B[12:], C)})
    assert (zxids, why) == ([1], ended)
    assert len(stops) == (ended is None)


def test_jute_maxbuffer_limits_record_lengths() -> None:
    large = record(1, 1, create(b"/a", data=bytes(3000)))
    assert read({"log.1": log(large)})[0] == [1]
    message = f"java.io.IOException: Unreasonable length = {len(large) - 13}"
    assert read({"log.1": log(large)}, **{"jute.maxbuffer": 1024})[1] == message
    assert read({"log.1": log(large)}, **{"jute.maxbuffer": 1024, "jute.maxbuffer.extrasize": 4096})[0] == [1]
    # Before 3.5.7 there is no such property.
    options = {"jute.maxbuffer": 1024, "jute.maxbuffer.extrasize": 4096}
    assert read({"log.1": log(large)}, version="3.5.6", **options)[1] == message
    assert read({"log.1": log(large)}, version="3.5.6", **{"jute.maxbuffer": 2100})[0] == [1]
    # The sum of the two did not fit 31 bits before 3.8.5 and 3.9.3: then no length is reasonable.
    most = {"jute.maxbuffer": (1 << 31) - 1}
    assert read({"log.1": log(large)}, version="3.9.3", **most)[0] == [1]
    assert read({"log.1": log(large)}, version="3.9.2", **most)[1] == message
    # The data within is a length too.
    inside = record(1, 1, buf(b"/a") + i4(1 << 24) + bytes(99))
    assert read({"log.1": log(inside)})[1] == "java.io.IOException: Unreasonable length = 16777216"


def test_wrong_record_marks_and_checksums() -> None:
    zxids, ended, (stop,) = read({"log.1": log(A, B[:-1] + b"C", C)})
    assert (zxids, ended, stop.why) == ([1], None, "Last transaction was partial.")
    assert (
        read({"log.1": log(A, record(2, 1, create(b"/b"), checksum=5), C)})[1]
        == "java.io.IOException: CRC check failed"
    )


def test_records_after_zeros_are_not_read() -> None:
    assert read({"log.1": log(A) + bytes(5000)}) == ([1], None, [])
    zxids, ended, (stop,) = read({"log.1": log(A) + bytes(12) + B})
    assert (zxids, ended, stop.position) == ([1], None, len(log(A)))


def test_next_log_continues_the_previous_one() -> None:
    files = {"log.1": log(A)[:-1], "log.2": log(B)}
    assert read(files)[0] == [2]
    # The one before the first that is wanted is read too, and what is skipped is checked.
    files = {"log.1": log(A, B), "log.3": log(C)}
    assert read(files, 3)[0] == [3]
    assert (
        read(files | {"log.1": log(A, B[:-9] + b"?" + B[-8:])}, 3)[1]
        == "java.io.IOException: CRC check failed"
    )
    assert read(files | {"log.0": b"nothing"}, 3)[0] == [3]
    # Later transactions are no longer skipped.
    assert read({"log.1": log(A, C, B)}, 2)[0] == [3, 2]
    assert read(files, 9) == ([], None, [])
    assert read({"log.1": log(A), "log.2.bak": log(B)})[0] == [1, 2]
    assert read({"log.1": log(A), "log.2.bak": log(B)}, version="3.5.10")[0] == [1]
    assert read({"log.5": log(A), "log.-1": b"?", "log.xyz": b"?", "log": b"?"})[0] == [1]


@pytest.mark.parametrize("window", [1, 64, 150, 1 << 20])
def test_windows_of_any_size(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_txn_log, "WINDOW", window)
    large = record(2, 1, create(b"/large", data=bytes(2000)))
    assert read({"log.1": log(A, large, C) + bytes(700)}) == ([1, 2, 3], None, [])
    assert read({"log.1": log(A, large, C), "log.4": log(record(4, 2, buf(b"/a")))}) == (
        [1, 2, 3, 4],
        None,
        [],
    )


def test_log_ends_at_a_transaction_the_server_cannot_read() -> None:
    short = record(2, 5, buf(b"/a") + buf(b"x"))
    zxids, ended, (stop,) = read({"log.1": log(A, short, C)})
    assert (zxids, ended, stop.why) == ([1], None, "the transaction ends early")
    assert read({"log.1": log(A, sealed(bytes(20)), C)})[0] == [1]
    for version, kind, name in [
        ("3.9.5", 13, "13"),
        ("3.8.0", 13, "%d13"),
        ("3.4.14", 15, "%d15"),
        ("3.5.2", 21, "%d21"),
    ]:
        body = ttl(b"/a", 5) if kind == 21 else create(b"/a")
        message = read({"log.1": log(record(1, kind, body))}, version=version)[1]
        assert message == f"java.io.IOException: Unsupported Txn with type={name}"
        assert kind == 13 or read({"log.1": log(record(1, kind, body))}, version="3.6")[0] == [1]
    # Only those of create may be from before 3.4.
    assert read({"log.1": log(record(1, 1, create(b"/a")[:-4]))})[0] == [1]
    assert read({"log.1": log(record(1, 15, create(b"/a")[:-4]))})[0] == []


def test_paths_in_close_session() -> None:
    digest = i4(2) + i8(0x51C6D660)
    files = {"log.1": log(record(1, -11, digest))}
    # A digest that is read as two paths, the second one of 0x51c6d660 bytes.
    assert read(files)[1] == "java.io.IOException: Unreasonable length = 1371985504"
    assert read(files, **{"closeSessionTxn.enabled": False})[0] == [1]
    assert read(files, version="3.5.10")[0] == [1]
    assert read({"log.1": log(record(1, -11, b""))})[0] == [1]


def test_unreadable_log_stops_the_start_with_an_input_error() -> None:
    class Broken(MemoryDirectory):
        def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
            if name.startswith("log"):
                raise UnreadableError.of(offset, 1, "bad sector", name)
            return super().read(name, offset, length)

    opened = start(Broken(directory((1, create(b"/a"))).files))
    assert (opened.verdict.error_class, opened.verdict.error) == ("java.io.IOException", "Input/output error")


def test_log_truncated_while_being_read() -> None:
    class Shorter(MemoryDirectory):
        def entries(self) -> list[Entry]:
            return [Entry(entry.name, entry.size + 5000) for entry in super().entries()]

    reader = FileTxnLog(
        Overlay(Shorter({"log.1": log(A, B), "log.3": log(C)[:-1]})),
        ServerSettings(VERSIONS[0], Options(OPTIONS)),
    )
    table = list(reader.read(1))
    assert sum(len(item.frames) for item in table if isinstance(item, Records)) == 2
    assert [item.file.name for item in table if isinstance(item, Stop)] == ["log.3"]


# Together with the tree


def test_digests_if_the_close_session_body_is_not_read() -> None:
    off = {"closeSessionTxn.enabled": False}
    written = memory_of("closesession_nobody")
    assert start(written, **off).verdict.warnings == ()
    data = written.files["log.1"]
    (at,) = [
        actual.frames.start[i] + actual.window.offset + 12
        for actual in FileTxnLog(Overlay(written), ServerSettings(VERSIONS[0], Options(OPTIONS, off))).read(0)
        if isinstance(actual, Records)
        for i in np.flatnonzero(actual.frames.header["type"] == -11)[:1].tolist()
    ]
    payload = data[at : at + 43] + bytes([data[at + 43] ^ 1])
    written.files["log.1"] = data[: at - 12] + sealed(payload) + data[at + 45 :]
    (message,) = start(written, **off).verdict.warnings
    assert "Digests are not matching" in message
    assert "(one transaction)" in message
    # Where there is one, its paths are no digest.
    assert start(memory_of("clean_restart"), **off).verdict.warnings == ()


def test_digest_in_the_place_of_closed_paths_is_not_compared() -> None:
    """By default the bytes after closeSession are read as paths, so a digest there is lost."""
    written = directory(A, record(2, -11, i4(2) + i4(0x2B) + i4(7)))
    assert start(written).verdict.warnings == ()
    (message,) = start(written, **{"closeSessionTxn.enabled": False}).verdict.warnings
    assert "Digests are not matching" in message
    # Behind paths there is one.
    (message,) = start(directory(A, record(2, -11, i4(0) + i4(2) + i4(0x2B) + i4(7)))).verdict.warnings
    assert "Digests are not matching" in message


def paths(opened: Any) -> list[str]:
    return [row["path"] for row in nodes_of(opened)]


def test_gaps_refuse_the_start_from_3_9_4_on() -> None:
    gap = directory(A, C)
    verdict = start(gap).verdict
    assert verdict.error == "Committed proposal cached out of order: 0x3 is not the next proposal of 0x1"
    assert verdict.error_class == "java.lang.IllegalStateException"
    assert paths(start(gap, version="3.9.3")) == ["/", "/a", "/c", *PATHS]
    # Before the first transaction nobody looks.
    opened = start(directory(B, C))
    assert opened.verdict.opens
    assert opened.verdict.warnings == (
        "transactions 0x1 to 0x1 are not applied, and the server does not report it",
    )


def test_zxids_after_a_gap_are_refused() -> None:
    committed = Committed(True)
    epoch = 1 << 32
    assert committed.add(np.array([5, 6, 6, 2, 7, epoch + 9, epoch + 10, 8], np.int64)) is None
    assert committed.add(np.zeros(0, np.int64)) is None
    gap = committed.add(np.array([epoch + 11, epoch + 13], np.int64))
    assert gap is not None
    assert gap.at == 1
    assert gap.failure.message.endswith("0x10000000d is not the next proposal of 0x10000000b")
    assert Committed(False).add(np.array([1, 9], np.int64)) is None


def test_first_failure_ends_the_start() -> None:
    # A transaction that it would die of, then a gap, then a wrong checksum.
    bad = record(9, 1, create(b"/x"), checksum=1)
    dies = record(2, 1, create(None))
    assert (
        start(directory(A, dies, record(5, 1, create(b"/c")), bad)).verdict.error_class
        == "java.lang.NullPointerException"
    )
    assert (
        start(directory(A, B, record(5, 1, create(b"/c")), bad)).verdict.error_class
        == "java.lang.IllegalStateException"
    )
    assert start(directory(A, B, bad, record(5, 1, create(None)))).verdict.error == "CRC check failed"


def test_first_null_part_of_a_multi_decides() -> None:
    # The first null part decides; unknown parts are skipped.
    parts = multi(
        (13, buf(None) + i4(1)), (1, create(b"/a")), (2, buf(None)), (5, buf(None) + buf(b"") + i4(1))
    )
    assert start(directory((14, parts))).verdict.error == DIES["create: null path"]


DIES = {
    "create: null path": 'Cannot invoke "String.lastIndexOf(int)" because "path" is null',
    "setData: null path": 'Cannot invoke "Object.hashCode()" because "key" is null',
    "closeSession: null path": 'Cannot invoke "String.lastIndexOf(int)" because "path" is null',
    "multi: null": 'Cannot invoke "java.util.List.iterator()" because "txns" is null',
    "multi: part without bytes": 'Cannot read the array length because "array" is null',
    "multi: create of null": 'Cannot invoke "String.lastIndexOf(int)" because "path" is null',
    "quota: null stats": 'Cannot read the array length because "bytes" is null',
    "acl: null id": 'Cannot invoke "String.hashCode()" because "this.id" is null',
    "acl: null scheme": 'Cannot invoke "String.hashCode()" because "this.scheme" is null',
    "create: no slash": "begin 0, end -1, length 3",
    "create: no slash, beyond ASCII": "begin 0, end -1, length 5",
    "ttl: 0": "ttl must be positive and cannot be larger than: 1099511627775",
    "quota: bad stats": "Index 1 out of bounds for length 1",
}


@pytest.mark.parametrize(("name", "error"), DIES.items())
def test_transactions_that_crash_a_server(name: str, error: str) -> None:
    verdict = start(CRAFTED[name]).verdict
    assert not verdict.opens
    assert verdict.error == error


def test_failed_transactions_that_a_server_survives() -> None:
    assert paths(start(CRAFTED["multi: unknown part"])) == ["/", "/a", *PATHS]
    assert paths(start(CRAFTED["multi: more in a part"])) == ["/", "/a", "/b", *PATHS]
    failed = directory((14, multi((1, create(b"/a")), (-1, i4(-2)))))
    assert paths(start(failed)) == ["/", *PATHS]
    assert paths(start(CRAFTED["create V0"])) == ["/", "/a", "/b", *PATHS]


def test_transactions_a_snapshot_contains_are_skipped() -> None:
    base = memory_of("dmg_base").files
    opened = start(data_directory({"snapshot.16": base["snapshot.16"], "log.b": base["log.b"]}))
    assert opened.verdict.opens
    assert opened.verdict.serves["transactions"] == 0
    assert opened.verdict.serves["zxid"] == "0x16"


def stat(opened: Any, path: str) -> Any:
    return next(row["stat"] for row in nodes_of(opened) if row["path"] == path)


def test_children_of_a_deleted_node_depend_on_the_version() -> None:
    """Children of a node that was deleted and created again."""
    result = CRAFTED["a deleted node's children"]
    for version, children in [("3.9.5", 1), ("3.9.3", 2), ("3.8.6", 1), ("3.8.4", 2), ("3.4.14", 2)]:
        assert stat(start(result, version=version), "/a")["numChildren"] == children


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("left behind, its owner's session closed", False),
        ("left behind, a dead owner", False),
        ("left behind, replaced by a node of nobody", False),
        ("left behind, replaced and deleted", False),
        ("left behind, replaced by one of the same session", True),
    ],
)
def test_node_created_over_an_orphan(name: str, old: bool) -> None:
    """Before 3.9.4 it is deleted with the session of the orphan, whose list of paths it is on; later it is not created at all."""
    for version in ("3.8.4", "3.4.14"):
        assert ("/a/b" in paths(start(CRAFTED[name], version=version))) == old


def test_deleted_root_is_not_found_by_its_name() -> None:
    """The root has two names. Once "/" is deleted, transactions do not find it by that name, and its digest is subtracted once."""
    for name, digest in [
        ("the root deleted", 5596060818),
        ("the root deleted as a container", 5596060818),
        ("the root deleted by a multi", 9435113487),
        ("the root deleted with a session", 176534009),
    ]:
        opened = start(CRAFTED[name])
        assert "/b" in paths(opened)
        assert stat(opened, "/")["version"] == 0
        assert server(opened).tree.digest == digest
    twice = directory((2, buf(b"/")), (2, buf(b"/")), (7, buf(b"/") + i4(0) + i4(9)), (1, create(b"/")))
    started = start(twice)
    assert stat(started, "/")["aversion"] == 0
    assert stat(started, "/")["pzxid"] == 4


def test_repeated_transactions_by_version() -> None:
    # Transactions already in the snapshot: a node was created and deleted, another one exists.
    second = directory(
        (1, create(b"/a")),
        record(9, 2, buf(b"/a/gone")),
        record(5, 1, buf(b"/b") + buf(b"") + OPEN + b"\0" + i4(1)),
    )
    new, old = (
        start(second, version=version, **{"snapshot.trust.empty": True}) for version in ("3.9.3", "3.4.14")
    )
    assert (stat(new, "/a")["pzxid"], stat(old, "/a")["pzxid"]) == (9, 1)
    before = directory(
        (1, create(b"/a")), (1, create(b"/b")), record(1, 1, buf(b"/c") + buf(b"") + OPEN + b"\0" + i4(1))
    )
    new, old = (start(before, version=version) for version in ("3.9.5", "3.4.14"))
    assert (stat(new, "/")["cversion"], stat(new, "/")["pzxid"]) == (2 * 2 - 4, 2)
    assert (stat(old, "/")["cversion"], stat(old, "/")["pzxid"]) == (2 * 1 - 4, 1)


def test_containers_expire_only_in_versions_that_have_them() -> None:
    owner = CRAFTED["owner: like a container"]
    assert "/a" in paths(start(owner))
    assert "/a" not in paths(start(owner, version="3.4.14"))


@pytest.mark.parametrize(
    ("version", "taken"),
    [("3.9.0", True), ("3.8.2", True), ("3.8.1", False), ("3.7.2", True), ("3.7.1", False), ("3.6.4", False)],
)
def test_multi_with_create2_by_version(version: str, taken: bool) -> None:
    result = [path for path in paths(start(CRAFTED["multi: create2"], version=version)) if len(path) == 2]
    assert result == (["/a", "/b", "/c"] if taken else ["/a"])


def test_leftover_session_of_a_rejected_snapshot_is_closed() -> None:
    """Whichever session is closed first: the node's session is 5, and a transaction may come before."""
    rejected = snapshot(ROOT, (b"/app", -1, 0), (b"/app/one", -1, 5))[:-6] + b"?" + buf(b"/")
    sound = snapshot(ROOT, (b"/app", -1, 0), (b"/app/one", -1, 0))

    def left(*records: bytes) -> list[str]:
        files = {"snapshot.5": rejected, "snapshot.3": sound, "log.4": log(*records)}
        opened = start(data_directory(files))
        assert opened.verdict.opens
        return paths(opened)

    closed, other = (record(4, -11, i4(0), client=client) for client in (5, 6))
    # A server deletes such nodes at its start too: the session is in no table.
    assert left(closed) == left(other) == ["/", "/app"]
    second = record(5, 1, create(b"/app/one"))
    assert left(closed, second) == ["/", "/app", "/app/one"]
    assert left(other, second) == ["/", "/app"]
    late = record(6, -11, i4(0), client=5)
    assert left(other, second, late) == ["/", "/app"]


def test_session_closed_without_a_digest() -> None:
    off = {"closeSessionTxn.enabled": False}
    assert start(directory(A, record(2, -11, b""), record(3, -11, i4(0))), **off).verdict.warnings == ()
