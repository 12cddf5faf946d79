"""Repair of crafted data directories: fixes, truncation, filler transactions and reports."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from memory_directory import MemoryDirectory
from zookeeper_crafted import create, directory, log, record, set_data
from zookeeper_repairs import checked, cuts, details, losses, notes, repaired, served, truth, zxids
from zookeeper_startup import GOLDEN, data_directory, memory_of

import logwright as lw
from logwright.codec import registry
from logwright.codec.engine.repair import Strategy
from logwright.codec.fault import DamageError, Severity, UnreadableError, UsageError
from logwright.codec.frames.walk import ListedFile, Stretch, Walk
from logwright.codec.option import Options
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.repair import repair as repair_module
from logwright.codec.zookeeper.store import files, write
from logwright.codec.zookeeper.store.trace import trace

LAYOUT = registry.get_layout("zookeeper.datadir")

FRESH = memory_of("fresh").files["snapshot.0"]
RECORDS = [record(zxid, 1, create(b"/node%d" % zxid, data=b"data of %d" % zxid)) for zxid in range(1, 13)]


def at(number: int) -> int:
    """Return the offset of a record in the log of all records."""
    return 16 + sum(map(len, RECORDS[: number - 1]))


def damaged(*changes: tuple[int, bytes], first: int = 1) -> MemoryDirectory:
    """Return a directory with one log of all records from `first` on, with bytes overwritten."""
    data = bytearray(log(*RECORDS))
    for place, new in changes:
        data[place : place + len(new)] = new
    del data[16 : at(first)]
    return data_directory({"snapshot.0": FRESH, f"log.{first:x}": bytes(data)})


GARBAGE = b"\x5a" * 20


# Fixes


def test_two_adjacent_damaged_records_are_fixed() -> None:
    """A wrong end mark followed by a wrong length."""
    result, repair_plan = repaired(damaged((at(5) - 1, b"?"), (at(5) + 8, b"\0\0\7\0")))
    assert result.files["log.1"] == log(*RECORDS)
    assert [cut.offset for cut in cuts(repair_plan)] == [at(4), at(5)]
    assert losses(repair_plan) == []


def test_damaged_header_and_first_record_are_fixed() -> None:
    result, repair_plan = repaired(damaged((0, b"????"), (at(2) - 1, b"?")))
    assert result.files["log.1"] == log(*RECORDS)
    assert losses(repair_plan) == []


@pytest.mark.parametrize("bits", [b"\1", b"\1\2", b"\x10\x01"])
def test_bit_flip_is_not_fixed_without_digests(bits: bytes) -> None:
    """Two flipped bits may look like one other flip, as in the second case."""
    place = at(6) + 50
    data = log(*RECORDS)
    turned = bytes(data[place + i] ^ bit for i, bit in enumerate(bits))
    result, repair_plan = repaired(damaged((place, turned)))
    assert result.files["log.1"] == log(*RECORDS[:5])
    assert ("log.1", 1, {"first_zxid": 6, "last_zxid": 6}) in losses(repair_plan)
    assert ("log.1", 6, {"first_zxid": 7, "last_zxid": 12}) in losses(repair_plan)


def test_fixed_record_must_match_its_neighbours() -> None:
    """The end mark is missing after a record that another log repeats."""
    second = log(*(record(zxid, 5, set_data(b"/node1", b"again")) for zxid in range(5, 8)))
    both = damaged((at(5) - 1, b"?"))
    both.files["log.4"] = second.replace(second[:16], second[:16])
    result, _ = repaired(
        data_directory({**both.files, "log.4": log(record(4, 5, set_data(b"/node1", b"4"))) + second[16:]})
    )
    assert result.files["log.1"] == log(*RECORDS[:3])
    assert zxids(result) == [1, 2, 3, 4, 5, 6, 7]
    assert {row["path"] for row in served(result)} == {
        "/",
        "/zookeeper",
        "/zookeeper/config",
        "/zookeeper/quota",
        "/node1",
        "/node2",
        "/node3",
    }


def test_garbage_between_records_loses_nothing() -> None:
    data = log(*RECORDS)
    between = data_directory({"snapshot.0": FRESH, "log.1": data[: at(6)] + GARBAGE + data[at(6) :]})
    result, repair_plan = repaired(between)
    assert result.files["log.1"] == data
    assert [(cut.offset, cut.length, cut.rows_lost) for cut in cuts(repair_plan)] == [(at(6), 20, 0)]


def test_torn_tail_before_the_next_log_loses_nothing() -> None:
    torn = log(*RECORDS[:6]) + RECORDS[6][:30]
    result, repair_plan = repaired(
        data_directory({"snapshot.0": FRESH, "log.1": torn, "log.7": log(*RECORDS[6:])})
    )
    assert result.files == {"snapshot.0": FRESH, "log.1": log(*RECORDS[:6]), "log.7": log(*RECORDS[6:])}
    assert losses(repair_plan) == []
    assert len(served(result)) == 16


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (record(5, 99, b""), "its checksum is right, but Unsupported Txn with type=99"),
        (record(5, 1, b"\0\0\0\2/a"), "its checksum is right, but the transaction ends early: EOFException"),
    ],
)
def test_records_no_server_can_read_end_the_prefix(odd: bytes, message: str) -> None:
    strange = data_directory({"snapshot.0": FRESH, "log.1": log(*RECORDS[:4], odd, *RECORDS[5:])})
    result, repair_plan = repaired(strange)
    assert result.files["log.1"] == log(*RECORDS[:4])
    assert message in [cut.why for cut in cuts(repair_plan)]
    result, repair_plan = repaired(strange, "salvage")
    assert zxids(result) == list(range(1, 13))
    assert losses(repair_plan) == [("log.1", 1, {"first_zxid": 5, "last_zxid": 5})]
    assert served(result)


BELOW_ALL = record(-(1 << 40) + 1, 1, create(b"/a"))
"""Of zxid 0xffffff0000000001."""


def test_records_with_impossible_zxids_are_removed() -> None:
    """A snapshot named after one would never be read."""
    why = "its checksum is right, but no server gives the zxid 0xffffff0000000001: zxids count up from 1"
    result, repair_plan = repaired(data_directory({"log.1": log(BELOW_ALL, *RECORDS[4:6])}), "salvage")
    assert sorted(result.files) == ["log.1", "snapshot.4"]
    assert zxids(result) == [5, 6]
    assert losses(repair_plan) == [("log.1", 1, {})]
    assert why in [cut.why for cut in cuts(repair_plan)]
    with pytest.raises(
        DamageError, match="nothing is left: no snapshot is readable, and there are no transactions"
    ):
        repaired(data_directory({"log.1": log(BELOW_ALL, record(0, 1, create(b"/b")))}), "salvage")
    within = data_directory({"snapshot.0": FRESH, "log.1": log(*RECORDS[:2], BELOW_ALL, *RECORDS[2:])})
    for strategy in ("prefix", "salvage"):
        result, repair_plan = repaired(within, strategy)
        assert result.files == {"snapshot.0": FRESH, "log.1": log(*RECORDS)}
        assert losses(repair_plan) == [("log.1", 1, {})]


def test_fixable_record_before_an_unfixable_one_is_fixed() -> None:
    result, repair_plan = repaired(damaged((at(5) - 1, b"?"), (at(5) + 40, GARBAGE)), "salvage")
    assert zxids(result) == list(range(1, 13))
    assert [(cut.offset, cut.rows_lost) for cut in cuts(repair_plan)] == [(at(4), 0), (at(5), 1)]
    assert "more unreadable bytes follow" in cuts(repair_plan)[1].why
    torn = damaged((at(12) - 1, b"?"))
    torn.files["log.1"] = torn.files["log.1"][: at(12) + 30]
    result, repair_plan = repaired(torn)
    assert result.files["log.1"] == log(*RECORDS[:11])
    assert losses(repair_plan) == [("log.1", None, {"first_zxid": 12})]


# Truncated histories and filler transactions


def holed(*numbers: int) -> MemoryDirectory:
    return damaged(*((at(number) + 40, GARBAGE) for number in numbers))


def test_prefix_ends_before_the_first_lost_record() -> None:
    result, repair_plan = repaired(holed(4, 9))
    assert result.files["log.1"] == log(*RECORDS[:3])
    assert "The tree is that after transaction 0x3; it has 7 nodes." in notes(repair_plan)
    assert checked(result) == []


def test_salvage_keeps_every_good_record() -> None:
    result, repair_plan = repaired(holed(4, 9), "salvage")
    data = result.files["log.1"]
    assert zxids(result) == list(range(1, 13))
    assert data.startswith(log(*RECORDS[:3]))
    assert b"".join(RECORDS[4:8]) in data
    assert data.endswith(b"".join(RECORDS[9:]))
    assert "0x4 is missing: a transaction that changes nothing is in its place" in notes(repair_plan)
    assert {row["path"] for row in served(result)} >= {"/node3", "/node5", "/node8", "/node12"}
    assert not {row["path"] for row in served(result)} & {"/node4", "/node9"}
    rows = _rows(result, "log.1")
    # It has the time of the one behind it, no session, and says why.
    assert [
        (row["zxid"], row["session_id"], row["err"], row["time_ms"]) for row in rows if row["type"] == "error"
    ] == [
        (4, 0, -3, 1000),
        (9, 0, -3, 1000),
    ]


def _rows(result: MemoryDirectory, name: str) -> list[dict[str, Any]]:
    columns = ["zxid", "session_id", "type", "err", "time_ms"]
    return [row for batch in _decoded(result, name, "rows", columns) for row in batch.to_pylist()]


def _decoded(result: MemoryDirectory, name: str, table: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    codec = txnlog.CODEC
    context = codec.context(name, Options(codec.options))
    for item in Walk(ListedFile(result, name, len(result.files[name])), codec, context):
        if isinstance(item, Stretch):
            yield from (
                part.batch for part in codec.decode(item.window, item.frames, table, columns, context)
            )


def test_salvage_adds_nothing_a_sound_snapshot_covers() -> None:
    """Record 4 is lost, and a later snapshot contains its effect."""
    base = served(data_directory({"snapshot.0": FRESH, "log.1": log(*RECORDS[:8])}))
    created = _snapshot(8)
    for strategy in ("prefix", "salvage"):
        result, repair_plan = repaired(data_directory({**holed(4).files, "snapshot.8": created}), strategy)
        assert zxids(result) == [1, 2, 3, *range(5, 13)]
        assert losses(repair_plan) == [("log.1", 1, {"first_zxid": 4, "last_zxid": 4})]
        assert "0x4 is missing after snapshot.0, an older snapshot" in notes(repair_plan)
        assert len(served(result)) == len(base) + 4
        assert checked(result) == []


def _snapshot(zxid: int) -> bytes:
    complete = data_directory({"snapshot.0": FRESH, "log.1": log(*RECORDS[:zxid])})
    return b"".join(
        bytes(buffer) for buffer in write.of_tree(trace(complete, files.snapshots(complete)[0]).tree)
    )


def test_salvage_does_not_fill_in_too_many_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair_module, "MOST_FILLED", 5)
    far = data_directory({"snapshot.0": FRESH, "log.1": log(*RECORDS[:2], *RECORDS[4:5], *RECORDS[9:])})
    result, repair_plan = repaired(far, "salvage")
    assert zxids(result) == [1, 2, 3, 4, 5, 10, 11, 12]
    assert "0x6 to 0x9 are missing, too many to be replaced" in notes(repair_plan)


def test_filler_transactions_before_a_log_get_their_own_file() -> None:
    both = data_directory({"snapshot.0": FRESH, "log.1": log(*RECORDS[:3]), "log.6": log(*RECORDS[5:])})
    result, _ = repaired(both, "salvage")
    assert zxids(result, "log.4") == [4, 5]
    assert result.files["log.6"] == both.files["log.6"]
    # Where its name is taken by a log that has lost its first records, they are put before the others.
    lost = data_directory({"snapshot.0": FRESH, "log.1": log(*RECORDS[:3]), "log.4": log(*RECORDS[5:])})
    result, _ = repaired(lost, "salvage")
    assert zxids(result, "log.4") == list(range(4, 13))


@pytest.mark.parametrize(
    "renamed",
    [
        {"log.21": "log.0"},
        {"log.21": "log.409"},
        {"log.2a": "log.29"},
        {"log.1": "log.21", "log.21": "log.1"},
        {"log.b": "log.2a", "log.2a": "log.b"},
        {"snapshot.0": "snapshot.3e8"},
        {"snapshot.28": "snapshot.410"},
        {"snapshot.28": "snapshot.9", "snapshot.9": "snapshot.28"},
        {"snapshot.15": "snapshot.9", "snapshot.9": "snapshot.15"},
    ],
    ids=str,
)
@pytest.mark.parametrize("strategy", ["prefix", "salvage"])
def test_files_under_wrong_names_lose_nothing(renamed: dict[str, str], strategy: str) -> None:
    """Logs are named after their first transaction. Snapshots of an earlier tree than their name says are removed."""
    intact = memory_of("rolled")
    wrong = data_directory({renamed.get(name, name): data for name, data in intact.files.items()})
    result, _ = repaired(wrong, strategy)
    assert served(result) == truth("rolled")
    assert checked(result) == []
    logs = {name: data for name, data in intact.files.items() if name.startswith("log.")}
    assert {name: data for name, data in result.files.items() if name.startswith("log.")} == logs


@pytest.mark.parametrize("strategy", ["prefix", "salvage"])
def test_only_snapshot_under_a_later_name_is_removed_if_the_logs_are_complete(strategy: str) -> None:
    intact = memory_of("size_rolled").files
    wrong = {name: data for name, data in intact.items() if name != "snapshot.0"}
    result, _ = repaired(data_directory({**wrong, "snapshot.3e8": intact["snapshot.0"]}), strategy)
    assert served(result) == truth("size_rolled")
    assert checked(result) == []


def lost_end(*gone: str) -> MemoryDirectory:
    """The last transaction of epoch 1 is lost, and epoch 2 follows."""
    quorum = memory_of("quorum_one")
    data = bytearray(quorum.files["log.100000001"])
    data[540:560] = GARBAGE
    return data_directory(
        {
            name: key
            for name, key in {**quorum.files, "log.100000001": bytes(data)}.items()
            if name not in gone
        }
    )


def test_lost_end_of_an_epoch_is_only_detected_by_digests() -> None:
    directory = lost_end("snapshot.100000005")
    result, repair_plan = repaired(directory)
    assert zxids(result) == [0x100000001, 0x100000002, 0x100000003, 0x100000004]
    assert "transactions at the end of epoch 1 are lost" in cuts(repair_plan)[0].why
    assert checked(result) == []
    result, repair_plan = repaired(directory, "salvage")
    assert zxids(result)[3:6] == [0x100000004, 0x100000005, 0x200000001]
    assert "an unknown number. They are replaced by 0x100000005" in notes(repair_plan)
    assert checked(result) == []
    assert repaired(result, "salvage")[0].files == result.files


def test_lost_end_of_an_epoch_is_restored_from_a_snapshot() -> None:
    for strategy in ("prefix", "salvage"):
        result, _ = repaired(lost_end(), strategy)
        assert zxids(result)[3:5] == [0x100000004, 0x200000001]
        assert checked(result) == []
        assert served(result) == served(memory_of("quorum_one"))
        (message,) = [detail for detail in details(result, Severity.WARNING) if "digest" in detail]
        assert message == (
            "log.200000001: the digests of transactions from 0x200000001 on are those of snapshot.100000005, not of what snapshot.0 leads to"
        )


def test_torn_tail_before_an_epoch_loses_nothing_if_digests_match() -> None:
    quorum = memory_of("quorum_one")
    del quorum.files["snapshot.100000005"]
    complete = quorum.files["log.100000001"].rstrip(b"\0")
    quorum.files["log.100000001"] = complete + complete[16:60]
    for strategy in ("prefix", "salvage"):
        result, _ = repaired(quorum, strategy)
        assert result.files["log.100000001"] == complete
        assert zxids(result) == zxids(memory_of("quorum_one"))


# Going back


@pytest.mark.parametrize("zxid", [0, 1, 7, 11, 12, 99])
def test_chop_cuts_at_a_zxid(zxid: int) -> None:
    result, repair_plan = repaired(damaged(), **{"chop.zxid": zxid})
    assert zxids(result) == list(range(1, min(zxid, 12) + 1))
    assert ("log.1" in result.files) == (zxid > 0)
    if zxid < 12:
        assert f"after {zxid:#x}, where the history is cut" in cuts(repair_plan)[-1].why
        assert len(served(result)) == 4 + zxid


def test_chop_takes_hexadecimal_and_removes_later_snapshots() -> None:
    base = memory_of("dmg_base")
    result, repair_plan = repaired(base, **{"chop.zxid": "0x10"})
    assert set(result.files) == {"snapshot.0", "snapshot.a", "log.1", "log.b"}
    assert zxids(result)[-1] == 0x10
    assert ("snapshot.16", 0) in [(cut.file, cut.rows_lost) for cut in cuts(repair_plan)]
    result, _ = repaired(base, "salvage", **{"chop.zxid": "0x10"})
    assert zxids(result)[-1] == 0x10


def test_chop_needs_an_older_snapshot() -> None:
    lone = memory_of("dmg_trunc_tail_boundary")
    with pytest.raises(
        UsageError, match=r"cannot go back to 0x10: the oldest undamaged snapshot is snapshot\.16"
    ):
        repaired(lone, **{"chop.zxid": 0x10})
    with pytest.raises(UsageError, match="cannot go back to 0x10"):
        repaired(lone, "salvage", **{"chop.zxid": 0x10})
    fuzzy = memory_of("fuzzy")
    del fuzzy.files["snapshot.0"], fuzzy.files["log.1"]
    with pytest.raises(UsageError, match="cannot go back to 0x105"):
        repaired(fuzzy, **{"chop.zxid": 0x105})


# Snapshots


def test_fuzzy_snapshot_needs_its_transactions() -> None:
    fuzzy = memory_of("fuzzy")
    data = fuzzy.files["log.1"]
    rows = zxids(fuzzy, "log.1")
    first, stop = (_place(fuzzy, "log.1", rows.index(zxid)) for zxid in (0x102, 0x105))
    # The logs end before what may be in the snapshot.
    cut = data_directory(
        {"snapshot.101": fuzzy.files["snapshot.101"], "log.102": data[:16] + data[first:stop]}
    )
    with pytest.raises(
        DamageError,
        match="was written while transactions up to 0x10d were made, but the logs end at 0x104",
    ):
        repaired(cut)
    result, repair_plan = repaired(cut, "salvage")
    assert result.files == cut.files
    assert "the tree may contain only some of the others" in notes(repair_plan)
    # An older one is whole, and so are logs from the first transaction on.
    complete = data_directory({"snapshot.101": fuzzy.files["snapshot.101"], "log.1": data[:stop]})
    for more in ({}, {"snapshot.0": fuzzy.files["snapshot.0"]}):
        result, _ = repaired(data_directory({**complete.files, **more}))
        assert set(result.files) == {"snapshot.0", "log.1"}
        assert zxids(result)[-1] == 0x104
        assert checked(result) == []


def _place(actual: MemoryDirectory, name: str, number: int) -> int:
    positions = [
        at for batch in _decoded(actual, name, "frames", ["position"]) for at in batch.column(0).to_pylist()
    ]
    return int(positions[number + 1])


def test_damaged_snapshot_is_salvaged_if_no_other_is_left() -> None:
    lone = data_directory({"snapshot.16": memory_of("dmg_snap_path_null").files["snapshot.16"]})
    with pytest.raises(DamageError, match="all snapshots are damaged, and there are no transactions"):
        repaired(lone)
    result, repair_plan = repaired(lone, "salvage")
    before = {
        row["path"]
        for row in served(data_directory({"snapshot.16": memory_of("dmg_base").files["snapshot.16"]}))
    }
    assert {row["path"] for row in served(result)} == before - {"/app/d0-4"}
    assert "snapshot.16 has the readable nodes of snapshot.16 (14). No checksum covers them" in notes(
        repair_plan
    )
    assert [cut.rows_lost for cut in cuts(repair_plan)] == [None]
    assert checked(result) == []


def test_implausible_nodes_are_not_salvaged() -> None:
    data = bytearray(memory_of("dmg_snap_path_null").files["snapshot.16"])
    place = data.index(b"/app/d1-4") + 9
    place += 4 + int.from_bytes(data[place : place + 4], "big") + 8 + 8
    # Its mzxid, which no other damage is needed for.
    data[place : place + 8] = (0x6900000000000016).to_bytes(8, "big")
    lone = data_directory({"snapshot.16": bytes(data)})
    result, _ = repaired(lone, "salvage")
    assert {"/app/d1-4", "/app/d0-4"}.isdisjoint(row["path"] for row in served(result))
    assert checked(result) == []


def test_nodes_with_lost_acls_get_no_permissions() -> None:
    lone = data_directory({"snapshot.16": memory_of("dmg_snap_aclvec_null").files["snapshot.16"]})
    result, repair_plan = repaired(lone, "salvage")
    assert "The ACLs of 12 nodes are lost" in notes(repair_plan)
    shut = [row for row in served(result) if row["acl"] == [{"perms": 0, "scheme": "world", "id": "anyone"}]]
    assert len(shut) == 12


def test_snapshot_with_a_damaged_gzip_trailer_is_written_uncompressed() -> None:
    packed = memory_of("snap_gz")
    data = bytearray(packed.files["snapshot.42.gz"])
    data[-6] ^= 1
    packed.files["snapshot.42.gz"] = bytes(data)
    before = served(memory_of("snap_gz"))
    result, repair_plan = repaired(packed)
    assert "snapshot.42" in result.files
    assert "snapshot.42.gz" not in result.files
    assert losses(repair_plan) == []
    assert served(result) == before
    assert "written without compression" in cuts(repair_plan)[0].why


@pytest.mark.parametrize("case", ["snap_gz", "snap_snappy"])
def test_directory_without_readable_data_cannot_be_repaired(case: str) -> None:
    name = next(name for name in memory_of(case).files if name.startswith("snapshot.42"))
    lone = data_directory({name: b"nothing of it"})
    with pytest.raises(DamageError, match="nothing is left"):
        repaired(lone, "salvage")


@pytest.mark.parametrize("strategy", ["prefix", "salvage"])
@pytest.mark.parametrize("files", [{}, {"log.1": b""}, {"log.1": log()}], ids=len)
def test_directory_that_never_had_a_transaction_gets_the_tree_of_a_new_server(
    files: dict[str, bytes], strategy: str
) -> None:
    result, repair_plan = repaired(data_directory(files), strategy)
    assert result.files["snapshot.0"] == FRESH
    assert "snapshot.0 is the tree of a new server: nothing came before the logs." in notes(repair_plan)


@pytest.mark.parametrize(
    "files", [{"log.500": log()}, {"log.1": log(), "currentEpoch": b"5", "acceptedEpoch": b"5"}], ids=len
)
def test_directory_whose_names_or_epochs_show_lost_transactions_is_not_repaired(
    files: dict[str, bytes],
) -> None:
    with pytest.raises(DamageError, match="no complete history"):
        repaired(data_directory(files), "prefix")


def test_single_bit_flip_in_a_snapshot_is_fixed_where_more_than_its_seals_proves_it() -> None:
    """Nothing but the seals proves bits of ACLs, sessions and the nodes of the server itself."""
    data = memory_of("dmg_base").files["snapshot.16"]
    nodes, of_server = 100, range(data.index(b"/zookeeper"), data.rindex(b"/zookeeper") + 100)
    for place in range(0, len(data), 37):
        turned = bytearray(data)
        turned[place] ^= 1 << place % 8
        try:
            result, repair_plan = repaired(data_directory({"snapshot.16": bytes(turned)}))
        except DamageError:
            assert place < nodes or place in of_server, place
            continue
        assert result.files["snapshot.16"] == data, place
        assert losses(repair_plan) == []


def test_two_flipped_bits_in_a_snapshot_are_not_fixed_as_one() -> None:
    data = bytearray(memory_of("dmg_base").files["snapshot.16"])
    place = data.index(b"/app/d0-4") + 20
    data[place] ^= 1
    data[place + 1] ^= 2
    with pytest.raises(DamageError, match="all snapshots are damaged"):
        repaired(data_directory({"snapshot.16": bytes(data)}))


def test_older_snapshot_is_kept_if_the_digest_of_its_tree_proves_its_bit() -> None:
    base = memory_of("dmg_base")
    turned = bytearray(base.files["snapshot.a"])
    turned[200] ^= 1
    result, _ = repaired(data_directory({**base.files, "snapshot.a": bytes(turned)}))
    assert result.files == base.files
    turned[201] ^= 2
    result, repair_plan = repaired(data_directory({**base.files, "snapshot.a": bytes(turned)}))
    assert result.files == {name: data for name, data in base.files.items() if name != "snapshot.a"}
    assert losses(repair_plan) == []


@pytest.mark.nightly
def test_single_bit_flip_anywhere_in_a_log_is_fixed() -> None:
    base = memory_of("dmg_trunc_tail_boundary")
    data = base.files["log.17"]
    for place in range(len(data)):
        turned = bytearray(data)
        turned[place] ^= 1 << place % 8
        result, repair_plan = repaired(data_directory({**base.files, "log.17": bytes(turned)}))
        # Version and dbid of the header nobody looks at.
        assert result.files["log.17"] == (bytes(turned) if 4 <= place < 16 else data), place
        assert losses(repair_plan) == []


def test_damaged_snapshot_without_logs_falls_back_to_an_older_one() -> None:
    subset = memory_of("dmg_snap_path_null")
    del subset.files["log.b"], subset.files["log.17"]
    result, repair_plan = repaired(subset)
    assert set(result.files) == {"snapshot.a"}
    assert losses(repair_plan) == [("snapshot.16", 12, {"first_zxid": 0xB, "last_zxid": 0x16})]


# Other files


def test_foreign_files_are_kept() -> None:
    more = damaged()
    more.files |= {"notes.txt": b"mine", "log.x": b"?", "currentEpoch.tmp": b"1"}
    result, _ = repaired(more)
    assert result.files == more.files


def test_longest_of_several_logs_with_one_zxid_is_kept() -> None:
    short = data_directory({"snapshot.0": FRESH, "log.1": log(*RECORDS[:4]), "log.1.fixed": log(*RECORDS)})
    result, repair_plan = repaired(short)
    assert set(result.files) == {"snapshot.0", "log.1.fixed"}
    assert "log.1.fixed has the same zxid" in cuts(repair_plan)[0].why
    assert details(result, Severity.WARNING) == [
        "log.1.fixed: a server treats it as a log of zxid 0x1, although the name continues with 'fixed'"
    ]


def test_transaction_above_jute_maxbuffer_is_kept_with_advice() -> None:
    huge = directory(record(1, 1, create(b"/huge", data=b"x" * (2 << 20))))
    result, repair_plan = repaired(huge)
    assert result.files == huge.files
    assert "set jute.maxbuffer to at least 2097229" in notes(repair_plan)


def test_several_servers_are_not_replicas() -> None:
    item = damaged()
    plan = LAYOUT.plan(item, Options(LAYOUT.read_options))
    with pytest.raises(UsageError, match="not copies of one another, but 2 paths were given"):
        LAYOUT.capabilities.repair.repair(
            [item, item], [plan, plan], Strategy.PREFIX, Options(LAYOUT.capabilities.repair.options)
        )


class Dying(MemoryDirectory):
    """Some bytes of one file cannot be read."""

    name_of_bad, low, high = "", 0, 0

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        stop = len(self.files[name]) if length is None else offset + length
        if name == self.name_of_bad and offset < self.high and stop > self.low:
            low = max(self.low, offset)
            raise UnreadableError.of(low, min(self.high, stop) - low, "EIO", name)
        return super().read(name, offset, length)


@pytest.mark.parametrize(
    ("name", "low", "high", "kept"),
    [
        ("log.17", 500, 1012, [*range(0x17, 0x1A)]),
        ("log.b", 0, 512, [*range(0x17, 0x22)]),
        ("snapshot.16", 512, 1024, [*range(0x17, 0x22)]),
        ("log.17", 1290, 1400, [*range(0x17, 0x21)]),
    ],
)
def test_unreadable_disk_blocks_count_as_damage(name: str, low: int, high: int, kept: list[int]) -> None:
    disk = Dying(memory_of("dmg_base").files)
    disk.name_of_bad, disk.low, disk.high = name, low, high
    (message,) = [
        fault.detail
        for file, fault in checked(disk)
        if file == name and "the disk cannot read" in fault.detail
    ]
    assert f"at byte {low}" in message
    result, _ = repaired(disk)
    assert [zxid for zxid in zxids(result) if zxid > 0x16] == kept
    assert ("snapshot.16" in result.files) == (name != "snapshot.16")
    assert checked(result) == []


# SYSTEM


@pytest.mark.parametrize("case", ["dmg_flip_body", "dmg_mid_missing", "dmg_snap_none", "dmg_trunc_tail_hdr"])
def test_strategy_system_refuses_a_directory_no_server_starts_on(case: str) -> None:
    with pytest.raises(DamageError, match="a server does not start on it"):
        repaired(memory_of(case), "system")


@pytest.mark.parametrize(
    "case",
    [
        "dmg_flip_eor",
        "dmg_len_zero",
        "dmg_mid_eor_silent",
        "dmg_snap_flip_data",
        "dmg_trunc_tail_noeor",
        "dmg_torn_zero_tail",
    ],
)
def test_strategy_system_keeps_the_tree_a_server_loads(case: str) -> None:
    result, _ = repaired(memory_of(case), "system")
    assert checked(result) == []
    assert {row["path"] for row in served(result)} == {row["path"] for row in truth(case)}
    last = max(int(name.split(".")[1], 16) for name in result.files if name.startswith("snapshot."))
    alone = data_directory({f"snapshot.{last:x}": result.files[f"snapshot.{last:x}"]})
    assert served(alone) == served(result)


def test_strategy_system_reports_what_a_server_skips() -> None:
    result, repair_plan = repaired(memory_of("dmg_flip_eor"), "system")
    assert zxids(result) == [0x17, 0x18, 0x19, 0x1A]
    assert losses(repair_plan) == [("log.17", 7, {"first_zxid": 0x1B, "last_zxid": 0x21})]
    assert "a server stops reading there" in cuts(repair_plan)[0].why
    result, repair_plan = repaired(memory_of("dmg_snap_all_trunc_nologs"), "system")
    assert set(result.files) == {"snapshot.0"}
    assert [(cut.file, cut.rows_lost, dict(cut.lost)) for cut in cuts(repair_plan)] == [
        ("snapshot.a", None, {"first_zxid": 1, "last_zxid": 0xA}),
        ("snapshot.16", None, {"first_zxid": 1, "last_zxid": 0x16}),
    ]


def test_strategy_system_of_an_old_version_writes_no_snapshot() -> None:
    result, _ = repaired(memory_of("v3414"), "system", version="3.4.14")
    assert result.files == memory_of("v3414").files


def test_strategy_system_in_an_ensemble() -> None:
    quorum = memory_of("quorum_one")
    result, repair_plan = repaired(quorum, "system", distributed=True)
    # It writes no snapshot when it starts.
    assert result.files == quorum.files
    assert "The tree is that after transaction 0x200000003" in notes(repair_plan)


# Through the API


def test_prefix_is_the_default_strategy(tmp_path: Path) -> None:
    report = lw.repair(GOLDEN / "dmg_mid_missing/version-2", tmp_path / "version-2")
    assert report.incomplete
    assert "The tree is that after transaction 0xa; it has 10 nodes." in str(report)
    assert lw.read(tmp_path / "version-2").num_rows == 10


def test_logs_in_data_log_dir_are_repaired(tmp_path: Path) -> None:
    case = GOLDEN / "split_dirs"
    before = lw.read(case / "data", dataLogDir=str(case / "datalog"))
    report = lw.repair(case / "data", tmp_path / "out", dataLogDir=str(case / "datalog"))
    assert "removed" not in str(report)
    assert f"version-2 --dataLogDir {case / 'datalog'} --limit 10" in str(
        lw.verify(case / "data", dataLogDir=str(case / "datalog"))
    )
    assert "change dataLogDir in its configuration" in " ".join(str(report).split())
    assert sorted(path.name for path in (tmp_path / "out/version-2").iterdir()) == ["log.1", "snapshot.0"]
    assert lw.read(tmp_path / "out").equals(before)
    lw.rebuild(case / "data", tmp_path / "made", dataLogDir=str(case / "datalog"))
    assert sorted(path.name for path in (tmp_path / "made/version-2").iterdir()) == [
        "log.1",
        "snapshot.0",
        "snapshot.2",
    ]
    shutil.copytree(case, tmp_path / "own")
    damaged = tmp_path / "own/datalog/version-2/log.1"
    damaged.write_bytes(damaged.read_bytes()[:-3000].rstrip(b"\0")[:-7])
    inputs = {"dataLogDir": str(tmp_path / "own/datalog"), "in_place": True}
    report = lw.repair(tmp_path / "own/data", backup=tmp_path / "backup", **inputs)
    assert "change dataLogDir in" not in str(report)
    assert [path.name for path in (tmp_path / "backup").rglob("log.1")] == ["log.1"]
    assert sorted(path.name for path in (tmp_path / "own/data/version-2").iterdir()) == ["snapshot.0"]
    assert [path.name for path in (tmp_path / "own/datalog/version-2").iterdir()] == ["log.1"]
    assert lw.verify(tmp_path / "own/data", dataLogDir=str(tmp_path / "own/datalog")).ok
    lw.rebuild(tmp_path / "own/data", backup=tmp_path / "more", **inputs)
    assert sorted(path.name for path in (tmp_path / "own/data/version-2").iterdir()) == [
        "snapshot.0",
        "snapshot.1",
    ]
    with pytest.raises(UsageError, match="the backup must be outside"):
        lw.repair(tmp_path / "own/data", backup=tmp_path / "own/datalog/version-2/backup", **inputs)


@pytest.mark.parametrize("strategy", ["prefix", "salvage"])
def test_closed_session_whose_paths_have_a_bad_length_is_removed(strategy: str) -> None:
    """Its checksum is right. A server reads what follows as paths, and does not start on the length of one."""
    body = (20485).to_bytes(4, "big") + (2).to_bytes(4, "big") + (1 << 40).to_bytes(8, "big")
    records = [
        *RECORDS[:3],
        record(4, -11, body),
        record(5, -11, (2).to_bytes(4, "big") + bytes(8)),
        *RECORDS[5:],
    ]
    broken = data_directory({"snapshot.0": FRESH, "log.1": log(*records)})
    assert any("Unreasonable length" in fault.detail for _, fault in checked(broken))
    result, _ = repaired(broken, strategy)
    expected = [1, 2, 3] if strategy == "prefix" else list(range(1, 13))
    assert zxids(result) == expected
    assert checked(result, Severity.ERROR) == []
