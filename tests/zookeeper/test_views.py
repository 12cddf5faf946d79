"""The tree of a data directory as clients see it: golden directories, the tree at any zxid, damage."""

from __future__ import annotations

import hashlib
import shutil
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from zookeeper_datadir import (
    CASES,
    GOLDEN,
    copy,
    create,
    delete,
    paths,
    set_data,
    spoil,
    truth,
    write_log,
    write_snapshot,
)

import logwright as lw
from logwright.codec.fault import DamageError, DamageWarning, UsageError
from logwright.codec.zookeeper.formats.snapshot import codec as snapshots
from logwright.codec.zookeeper.formats.snapshot.expand import Expanded, expand
from logwright.codec.zookeeper.state.columns import CONTAINER

DIFFERENT = {
    # A server says nothing of what it leaves out; the tree has it, or is not made at all without being told to go on.
    "dmg_flip_eor", "dmg_len_past_eof", "dmg_len_plus", "dmg_len_zero", "dmg_mid_eor_silent",
    "dmg_snap_all_trunc_nologs",
}  # fmt: skip
DAMAGED = DIFFERENT | {
    "dmg_gz_flip", "dmg_gz_trunc", "dmg_mid_missing_silent", "dmg_snap_flip_data", "dmg_snap_flip_digest", "dmg_snap_flip_path",
    "dmg_snap_flip_version", "dmg_snap_path_null", "dmg_snap_trunc_tree_end", "dmg_snappy_trunc",
}  # fmt: skip
"""Of those that a server starts with: what is damaged is needed for the tree, or would be without an older snapshot."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        yield


def read(case: str, **options: Any) -> list[dict[str, Any]]:
    where = GOLDEN / case
    if case == "split_dirs":
        where, options["dataLogDir"] = GOLDEN / case / "data", GOLDEN / case / "datalog"
    return lw.read(where, **options).to_pylist()


def owner(text: Any) -> int:
    value = int(text, 16) if isinstance(text, str) else int(text)
    return value - (1 << 64) if value >= 1 << 63 else value


def as_seen(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row in the form of `truth.jsonl`."""
    data = row["data"]
    reported = {"data_hex": None if data is None else data.hex()}
    if data is not None and len(data) > 1500:
        reported = {"data_sha256": hashlib.sha256(data).hexdigest(), "data_len": len(data)}
    return {
        **reported,
        "path": row["path"],
        "acl": row["acl"],
        "stat": {
            "czxid": row["czxid"], "mzxid": row["mzxid"], "ctime": row["ctime"], "mtime": row["mtime"], "version": row["version"],
            "cversion": row["cversion"], "aversion": row["aversion"], "ephemeralOwner": row["ephemeral_owner"],
            "dataLength": row["data_length"], "numChildren": row["num_children"], "pzxid": row["pzxid"],
        },
    }  # fmt: skip


def expected_node(node: dict[str, Any]) -> dict[str, Any]:
    node = {name: value for name, value in node.items() if name != "kind"}
    stat = dict(node["stat"])
    stat["ephemeralOwner"] = owner(stat["ephemeralOwner"])
    acl = [{"perms": row["perms"], "scheme": row["scheme"], "id": row["id"]} for row in node["acl"]]
    return {**node, "stat": stat, "acl": acl}


def seen(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    out = {}
    for row in rows:
        row = {**row, "ctime": row["ctime_ms"], "mtime": row["mtime_ms"]}
        out[row["path"]] = as_seen(row)
    return out


def client(case: str) -> dict[str, dict[str, Any]]:
    return {node["path"]: expected_node(node) for node in truth(case)[1]}


STARTED = [case for case in CASES if truth(case)[0]["started"]]


# Golden directories


@pytest.mark.parametrize("case", [case for case in STARTED if case not in DAMAGED])
def test_tree_is_what_a_client_saw(case: str) -> None:
    rows = read(case, columns="*")
    actual = seen(rows)
    assert [row["path"] for row in rows] == sorted(actual)
    if case == "syn_acl_dangling":  # which a client can't read
        (dangling,) = set(actual) - set(client(case))
        assert actual.pop(dangling)["acl"] is None
    assert actual == client(case)


@pytest.mark.parametrize("case", sorted(DAMAGED))
def test_damage_a_server_tolerates_is_an_error(case: str) -> None:
    with pytest.raises(DamageError):
        read(case)


@pytest.mark.alike
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize("case", sorted(DAMAGED))
def test_damaged_tree_has_what_a_client_saw_and_what_a_server_drops(case: str, mode: str) -> None:
    rows = [row for row in read(case, columns="*", mode=mode) if row["path"] is not None]
    actual, known = seen(rows), client(case)
    if case in DIFFERENT:
        assert len(actual) > len(known)
        newest = max(node["stat"]["mzxid"] for node in known.values())
        assert max(node["stat"]["mzxid"] for node in actual.values()) > newest or case == "dmg_mid_eor_silent"
    else:
        assert actual == known


@pytest.mark.parametrize("case", [case for case in CASES if case not in STARTED])
def test_directory_no_server_starts_on_still_has_a_tree(case: str) -> None:
    rows = read(case, mode="DROPMALFORMED")
    assert {"/", "/zookeeper"} <= {row["path"] for row in rows}


def test_log_from_the_first_transaction_needs_no_snapshot() -> None:
    """Servers since 3.5 refuse it; 3.4, which wrote it, does not."""
    assert len(read("v3414_log_only")) == 6


# The tree at a transaction


@pytest.mark.parametrize(
    "case", ["dmg_base", "upgrade_chain", "quorum_one", "acls", "clean_restart", "sessions", "extended_types"]
)
def test_tree_at_a_snapshots_zxid_is_that_snapshot(case: str, tmp_path: Path) -> None:
    """Built from the oldest snapshot and the logs alone, and compared with the server's own snapshots."""
    home = copy(case, tmp_path)
    snapshots = sorted(home.glob("snapshot.*"), key=lambda snapshot: int(snapshot.name.split(".")[1], 16))
    compared = 0
    for snapshot in snapshots[1:]:
        zxid = int(snapshot.name.split(".")[1], 16)
        (about,) = lw.read(snapshot, view="file").to_pylist()
        if (about["digest_zxid"] or 0) > zxid or (about["last_processed_zxid"] or 0) > zxid:
            continue  # transactions went on while it was taken
        stored = {row["path"]: row for row in lw.read(snapshot, columns="*").to_pylist()}
        snapshot.unlink()
        rows = lw.read(home, at_zxid=zxid, columns="*").to_pylist()
        names = [
            name for name in next(iter(stored.values())) if name not in ("position", "acl_id", "acl_raw")
        ]
        assert {row["path"]: {name: row[name] for name in names} for row in rows} == {
            path: {name: row[name] for name in names} for path, row in stored.items()
        }
        compared += 1
    assert compared


@pytest.mark.parametrize(
    "case", ["basic", "multi", "sessions", "rolled", "snap_gz", "snap_snappy", "extended_types"]
)
def test_tree_at_a_zxid_has_the_transactions_up_to_it(case: str, tmp_path: Path) -> None:
    home = copy(case, tmp_path)
    for snapshot in home.glob("snapshot.*"):
        if not snapshot.name.startswith("snapshot.0"):
            snapshot.unlink()
    zxids = lw.read(home, view="txns", columns=["zxid"]).column(0).to_pylist()
    records = {
        log: lw.read(log, view="frames", columns=["position", "size", "zxid"]).to_pylist()
        for log in home.glob("log.*")
    }
    for zxid in [zxids[len(zxids) // 3], zxids[-2], zxids[-1]]:
        table = lw.read(home, at_zxid=hex(zxid), columns="*")
        short = tmp_path / hex(zxid) / "version-2"
        short.mkdir(parents=True)
        for snapshot in home.glob("snapshot.*"):
            (short / snapshot.name).write_bytes(snapshot.read_bytes())
        for log, frames in records.items():
            ends = [
                frame["position"] + frame["size"]
                for frame in frames
                if frame["zxid"] is None or frame["zxid"] <= zxid
            ]
            (short / log.name).write_bytes(log.read_bytes()[: max(ends)])
        assert lw.read(short, columns="*").equals(table)


def test_tree_before_the_first_transaction() -> None:
    assert [row["path"] for row in read("basic", at_zxid=0)] == [
        "/",
        "/zookeeper",
        "/zookeeper/config",
        "/zookeeper/quota",
    ]


def test_zxid_beyond_the_last_transaction_is_an_error() -> None:
    last = max(row["zxid"] for row in read("basic", view="txns"))
    with pytest.warns(DamageWarning, match=f"zxid {last + 5:#x} is beyond the last transaction, {last:#x}"):
        table = lw.read(GOLDEN / "basic", at_zxid=last + 5)
    assert table.equals(lw.read(GOLDEN / "basic"))


def test_fuzzy_snapshot_finished_later_is_not_used(tmp_path: Path) -> None:
    """The tree before a fuzzy snapshot is rebuilt from the earlier logs."""
    home = copy("fuzzy", tmp_path)
    fuzzy = max(home.glob("snapshot.*"), key=lambda snapshot: int(snapshot.name.split(".")[1], 16))
    zxid = int(fuzzy.name.split(".")[1], 16)
    table = lw.read(home, at_zxid=zxid, columns="*")
    assert max(table.column("mzxid").to_pylist()) <= zxid
    fuzzy.unlink()
    assert table.equals(lw.read(home, at_zxid=zxid, columns="*"))
    stored = lw.read(GOLDEN / "fuzzy/version-2" / fuzzy.name, columns=["mzxid"]).column(0)
    assert max(stored.to_pylist()) > zxid


def test_fuzzy_snapshot_without_earlier_logs(tmp_path: Path) -> None:
    home = copy("fuzzy", tmp_path)
    snapshots = sorted(home.glob("snapshot.*"), key=lambda snapshot: int(snapshot.name.split(".")[1], 16))
    for snapshot in [*snapshots[:-1], *sorted(home.glob("log.*"))]:
        snapshot.unlink()
    zxid = int(snapshots[-1].name.split(".")[1], 16)
    with pytest.raises(DamageError, match=f"no snapshot was done by {zxid:#x}"):
        lw.read(home, at_zxid=zxid)
    assert lw.read(home, at_zxid=zxid, mode="DROPMALFORMED").num_rows == 204


def test_snapshot_of_older_versions_has_an_unknown_end(tmp_path: Path) -> None:
    """Up to 3.5 it has no digest: its content decides."""
    home = tmp_path / "version-2"
    home.mkdir()
    lw.write(
        [{"path": "/a", "czxid": 4, "mzxid": 7}],
        home / "snapshot.5",
        "zookeeper.snapshot",
        **{"digest.enabled": False},
    )
    write_log(home, [create(6, "/b")])
    with pytest.raises(DamageError, match=r"snapshot\.5 holds later changes, up to 0x7"):
        lw.read(home, at_zxid=6)


@pytest.mark.parametrize("word", ["0x16", 0x16, "16", " 0x16 "])
def test_zxid_is_read_in_hexadecimal_with_or_without_prefix(word: Any) -> None:
    assert len(read("dmg_base", at_zxid=word)) == 15


@pytest.mark.parametrize("word", ["x", "", True, "0x", -1, 1 << 63])
def test_invalid_zxids_are_refused(word: Any) -> None:
    with pytest.raises(UsageError, match="at_zxid"):
        read("dmg_base", at_zxid=word)


# Parts of the tree


def test_tree_below_a_path() -> None:
    everything = read("basic")
    for prefix in ("/app", "/zookeeper", "/zookeeper/quota"):
        expected = [
            row for row in everything if row["path"] == prefix or row["path"].startswith(prefix + "/")
        ]
        assert read("basic", path_prefix=prefix) == expected
        assert read("basic", path_prefix=prefix + "/") == expected
    assert read("basic", path_prefix="/") == everything
    assert read("basic", path_prefix="/ap") == []


def test_columns_filters_and_limits() -> None:
    where = GOLDEN / "basic"
    everything = lw.read(where)
    assert lw.read(where, columns=["num_children", "path"]).equals(
        everything.select(["num_children", "path"])
    )
    table = lw.read(where, columns=["path"], filter="data_length > 100")
    assert paths(table) == [row["path"] for row in everything.to_pylist() if row["data_length"] > 100]
    assert lw.read(where, limit=3).equals(everything.slice(0, 3))
    assert (
        lw.read(where, columns=["data"], path_prefix="/app").num_rows
        == lw.read(where, path_prefix="/app").num_rows
    )


def test_session_and_acl_views_agree_with_the_nodes() -> None:
    rows = read("sessions")
    by_session: dict[int, int] = {}
    for row in rows:
        if row["kind"] == "ephemeral":
            by_session[row["ephemeral_owner"]] = by_session.get(row["ephemeral_owner"], 0) + 1
    sessions = {row["session_id"]: row["ephemerals"] for row in read("sessions", view="sessions")}
    assert {id: count for id, count in sessions.items() if count} == by_session
    assert read("sessions", view="sessions", columns=["timeout"]) == [{"timeout": 21000}, {"timeout": 23000}]
    acls = {row["acl_id"]: row for row in read("acls", view="acls")}
    used = [row["acl_id"] for row in read("acls", columns=["acl_id"])]
    assert {id: row["nodes"] for id, row in acls.items()} == {id: used.count(id) for id in set(used) - {-1}}
    for row in read("acls", columns=["acl_id", "acl"]):
        if row["acl_id"] != -1:
            assert row["acl"] == acls[row["acl_id"]]["acl"]


def test_sessions_at_a_zxid() -> None:
    opened = [row["zxid"] for row in read("sessions", view="txns") if row["type"] == "createSession"]
    assert len(read("sessions", view="sessions", at_zxid=opened[0])) == 1
    assert len(read("sessions", view="sessions", at_zxid=opened[4])) == 5


def test_ttl_nodes_are_recognised_without_extended_types_enabled() -> None:
    """TTL nodes are recognised whether extended types are enabled or not."""
    kinds = {row["path"]: (row["kind"], row["ttl"]) for row in read("extended_types")}
    assert {kind for kind, _ in kinds.values()} == {"persistent", "container", "ttl"}
    assert max(ttl for _, ttl in kinds.values() if ttl) == (1 << 40) - 1
    seen = client("extended_types")
    assert CONTAINER not in {node["stat"]["ephemeralOwner"] for node in seen.values()}


def test_tables_of_one_snapshot() -> None:
    file = GOLDEN / "sessions/version-2"
    newest = max(file.glob("snapshot.*"), key=lambda snapshot: int(snapshot.name.split(".")[1], 16))
    assert lw.read(newest, view="sessions").num_rows == 2
    assert lw.read(newest, view="acls").column("acl_id").to_pylist() == [1, 2]
    with pytest.raises(UsageError, match="whole directory"):
        lw.read(GOLDEN / "basic/version-2/log.1", view="txns")


# Damage


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Three snapshots, each followed by a log."""
    folder = tmp_path / "version-2"
    folder.mkdir()
    write_snapshot(folder, 0)
    write_log(folder, [create(1, "/a", b"1"), create(2, "/b", b"1"), set_data(3, "/a", b"2", 1)])
    for zxid in (3, 6):
        rows = lw.read(folder, columns="*").to_pylist()
        write_snapshot(folder, zxid, rows)
        write_log(
            folder,
            [
                create(zxid + 1, f"/c{zxid}"),
                set_data(zxid + 2, "/a", b"%d" % zxid, zxid),
                delete(zxid + 3, "/b"),
            ],
        )
    return folder


def flip(path: Path, at: int = -30) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def tree(folder: Path, **options: Any) -> dict[str, Any]:
    rows = lw.read(folder, columns=["path", "data"], **options).to_pylist()
    return {
        row["path"]: row["data"]
        for row in rows
        if row["path"] is not None and not row["path"].startswith("/zookeeper")
    }


def test_sound_directory_has_no_faults(home: Path) -> None:
    assert tree(home) == {"/": b"", "/a": b"6", "/c3": b"", "/c6": b""}
    assert tree(home, at_zxid=4) == {"/": b"", "/a": b"2", "/b": b"1", "/c3": b""}


def test_older_snapshot_and_its_logs_give_the_same_tree(home: Path) -> None:
    expected = tree(home)
    flip(home / "snapshot.6")
    with pytest.raises(DamageError, match=r"snapshot\.6"):
        tree(home)
    with pytest.warns(DamageWarning, match=r"snapshot\.6: damaged; the tree is built from snapshot\.3"):
        assert tree(home, mode="DROPMALFORMED") == expected
    flip(home / "snapshot.3")
    assert tree(home, mode="PERMISSIVE") == expected
    (home / "snapshot.0").unlink()
    assert tree(home, mode="PERMISSIVE") == expected


def test_torn_snapshot_is_skipped_as_a_server_does(home: Path) -> None:
    expected = tree(home)
    file = home / "snapshot.6"
    file.write_bytes(file.read_bytes()[:-20])
    assert tree(home) == expected


def test_only_snapshot_is_damaged(home: Path) -> None:
    for name in ("snapshot.0", "snapshot.3", "log.1", "log.4"):
        (home / name).unlink()
    expected = tree(home)
    data = (home / "snapshot.6").read_bytes()
    at = data.index(b"/c3")
    (home / "snapshot.6").write_bytes(data[: at + 1] + b"x" + data[at + 2 :])
    with pytest.raises(DamageError):
        tree(home)
    actual = tree(home, mode="DROPMALFORMED")
    assert actual == {**{path: value for path, value in expected.items() if path != "/c3"}, "/x3": b""}
    (home / "snapshot.6").write_bytes(data[:at])
    with pytest.raises(DamageError, match=r"all snapshots are damaged"):
        tree(home)
    assert tree(home, mode="DROPMALFORMED")["/a"] == b"6"


def test_missing_log_is_an_error(home: Path) -> None:
    (home / "snapshot.6").unlink()
    (home / "log.4").unlink()
    with pytest.raises(DamageError, match="the transactions 0x4 to 0x6 are in no log"):
        tree(home)
    assert tree(home, mode="DROPMALFORMED") == {"/": b"", "/a": b"6", "/c6": b""}
    assert tree(home, at_zxid=3) == {"/": b"", "/a": b"2", "/b": b"1"}


def test_no_snapshot_and_incomplete_logs(home: Path) -> None:
    for name in ("snapshot.0", "snapshot.3", "snapshot.6", "log.1"):
        (home / name).unlink()
    with pytest.raises(
        DamageError, match="there is no snapshot, and the logs do not go back to the first transaction"
    ):
        tree(home)
    assert tree(home, mode="DROPMALFORMED") == {"/": b"", "/c3": b"", "/c6": b""}


def test_lost_transaction_keeps_the_others(home: Path) -> None:
    spoil(home / "log.7", 0)
    with pytest.raises(DamageError, match=r"log\.7: at byte 16"):
        tree(home)
    report = lw.scan(home, mode="DROPMALFORMED")
    assert {row["path"] for row in report.to_table().to_pylist()} >= {"/a", "/c3"}
    assert [fault.kind.value for name, fault in report.report.faults if name == "log.7"] == [
        "bad magic or version"
    ]
    corrupt = [
        row for row in lw.read(home, mode="PERMISSIVE").to_pylist() if row["_corrupt_record"] is not None
    ]
    assert [row["_corrupt_offset"] for row in corrupt] == [16]


def test_damaged_snapshot_after_the_end_of_the_logs_is_an_error(home: Path) -> None:
    (home / "log.7").unlink()
    (home / "log.4").unlink()
    torn = (home / "snapshot.6").read_bytes()
    (home / "snapshot.6").write_bytes(torn[:-20])
    (home / "snapshot.3").unlink()
    text = r"snapshot\.6 is damaged, and transactions before it are in no log: the tree is that after 0x3"
    with pytest.raises(DamageError, match=text):
        tree(home)
    assert tree(home, mode="DROPMALFORMED") == {"/": b"", "/a": b"2", "/b": b"1"}


@pytest.mark.parametrize("left", [0, 16])
def test_log_without_a_transaction_does_not_replace_a_damaged_snapshot(home: Path, left: int) -> None:
    for name in ("snapshot.0", "snapshot.3", "log.4", "log.7"):
        (home / name).unlink()
    (home / "log.1").write_bytes((home / "log.1").read_bytes()[:left])
    (home / "snapshot.6").write_bytes((home / "snapshot.6").read_bytes()[:-20])
    with pytest.raises(DamageError, match=r"all snapshots are damaged"):
        tree(home)
    assert tree(home, mode="DROPMALFORMED")["/a"] == b"3"


def test_unneeded_logs_are_not_read(home: Path) -> None:
    for name in ("log.1", "log.4"):
        flip(home / name, 40)
    assert tree(home)["/a"] == b"6"


def test_orphan_makes_a_server_load_an_older_snapshot() -> None:
    scan = lw.scan(GOLDEN / "syn_orphan")
    assert seen(lw.read(GOLDEN / "syn_orphan", columns="*").to_pylist()) == client("syn_orphan")
    scan.to_table()
    assert any("the tree is built from" in fault.detail for _, fault in scan.report.faults)


def test_transactions_rewritten_after_damage_are_in_the_tree(home: Path) -> None:
    (home / "snapshot.6").unlink()
    spoil(home / "log.4", 1)
    (home / "log.7").unlink()
    write_log(home, [create(5, "/new"), create(6, "/new2")])
    assert tree(home, mode="DROPMALFORMED") == {
        "/": b"",
        "/a": b"2",
        "/b": b"1",
        "/c3": b"",
        "/new": b"",
        "/new2": b"",
    }


def test_empty_directory_is_an_empty_tree(tmp_path: Path) -> None:
    (tmp_path / "version-2").mkdir()
    actual = paths(lw.read(tmp_path))
    assert actual == ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"]
    assert lw.read(tmp_path, view="sessions").num_rows == 0


def test_unreadable_transaction_is_damage(home: Path) -> None:
    with pytest.raises(DamageError, match="transaction 0x4 cannot be read"):
        read("toplevel_check")
    assert len(read("toplevel_check", mode="DROPMALFORMED")) == 6


# Single files and differences


def test_single_snapshot_as_a_tree() -> None:
    file = GOLDEN / "dmg_base/version-2/snapshot.16"
    table = lw.read(file, view="tree", columns="*")
    assert table.equals(lw.read(GOLDEN / "dmg_base", at_zxid=0x16, columns="*"))
    assert paths(lw.read(file, view="tree", path_prefix="/zookeeper/quota")) == ["/zookeeper/quota"]
    with pytest.raises(DamageError):
        lw.read(GOLDEN / "dmg_snap_flip_data/version-2/snapshot.16", view="tree")


def test_history_of_a_single_log() -> None:
    file = GOLDEN / "dmg_base/version-2/log.17"
    table = lw.read(file, view="history", columns=["zxid", "path"])
    assert table.equals(
        lw.read(GOLDEN / "dmg_base", view="history", columns=["zxid", "path"], filter="zxid >= 0x17")
    )


def test_diff_of_two_trees() -> None:
    difference = lw.diff(GOLDEN / "dmg_base", GOLDEN / "dmg_trunc_tail_16")
    assert difference.key == ("path",)
    assert (
        difference.counts["same"],
        difference.counts["changed"],
        difference.counts["removed"],
        difference.counts["added"],
    ) == (14, 1, 9, 0)
    assert not difference.notes
    assert lw.diff(GOLDEN / "basic", GOLDEN / "basic").equal


def test_diff_of_two_snapshots() -> None:
    folder = GOLDEN / "dmg_base/version-2"
    difference = lw.diff(folder / "snapshot.a", folder / "snapshot.16", view="tree")
    expected = set(paths(lw.read(folder / "snapshot.16"))) - set(paths(lw.read(folder / "snapshot.a")))
    assert difference.counts["added"] == len(expected) > 0


@pytest.mark.parametrize("view", ["sessions", "acls", "frames", "file", "files"])
def test_option_unused_by_a_view_is_refused(view: str) -> None:
    with pytest.raises(UsageError, match=f"option path_prefix does not apply to view {view}") as raised:
        read("basic", view=view, path_prefix="/a")
    assert "read (view history, tree, txns)" in raised.value.advice


# Filters of single files


LOG = GOLDEN / "dmg_base/version-2/log.17"
SNAPSHOT = GOLDEN / "dmg_base/version-2/snapshot.16"


@pytest.mark.parametrize("prefix", ["/zookeeper", "/app", "/nothing"])
def test_path_prefix_selects_the_nodes_of_a_snapshot_file(prefix: str) -> None:
    for file in (SNAPSHOT, GOLDEN / "snap_gz/version-2/snapshot.42.gz"):
        expected = [path for path in paths(lw.read(file)) if path == prefix or path.startswith(f"{prefix}/")]
        assert paths(lw.read(file, path_prefix=prefix)) == expected
        assert lw.read(file, path_prefix=prefix, columns="data").num_rows == len(expected)
    assert paths(lw.read(SNAPSHOT, path_prefix="/")) == paths(lw.read(SNAPSHOT))


def named(txn: dict[str, Any]) -> list[str]:
    subs = [row["path"] for row in txn["txns"] or ()]
    return [sub for sub in (txn["path"], *subs, *(txn["paths_to_delete"] or ())) if sub is not None]


@pytest.mark.parametrize("case", ["basic", "multi", "sessions", "closesession_nobody"])
@pytest.mark.parametrize("prefix", ["/app", "/a", "/zookeeper"])
def test_path_prefix_selects_transactions_on_such_nodes(case: str, prefix: str) -> None:
    home = GOLDEN / case / "version-2"
    for place in (home, *sorted(home.glob("log.*"))):
        for multi in ("nested", "exploded"):
            every = lw.read(place, view="txns" if place == home else None, multi=multi).to_pylist()
            expected = [
                item
                for item in every
                if any(name == prefix or name.startswith(f"{prefix}/") for name in named(item))
            ]
            view = "txns" if place == home else None
            assert lw.read(place, view=view, multi=multi, path_prefix=prefix).to_pylist() == expected


def test_at_zxid_ends_a_log_at_that_transaction() -> None:
    every = lw.read(LOG).column("zxid").to_pylist()
    for at in (every[0] - 1, every[0], every[3], every[-1]):
        for view in ("rows", "history"):
            table = lw.read(LOG, view=view, filter=f"zxid <= {hex(at)}")
            assert lw.read(LOG, view=view, at_zxid=hex(at)).equals(table)
        assert lw.read(LOG.parent, view="txns", at_zxid=at).column("zxid").to_pylist() == [
            row for row in lw.read(LOG.parent, view="txns").column("zxid").to_pylist() if row <= at
        ]


@pytest.mark.parametrize("view", ["rows", "tree"])
def test_at_zxid_of_a_single_snapshot_must_be_its_zxid(view: str) -> None:
    assert lw.read(SNAPSHOT, view=view, at_zxid=0x16).equals(lw.read(SNAPSHOT, view=view))
    for at in (0x15, 0x17):
        with pytest.raises(UsageError, match=r"cannot be built from this file alone: .*zxid 0x16") as raised:
            lw.read(SNAPSHOT, view=view, at_zxid=at)
        assert "Name the data directory" in raised.value.advice


def test_at_zxid_of_a_fuzzy_snapshot_is_refused() -> None:
    old = next((GOLDEN / "v3414/version-2").glob("snapshot.*"))
    with pytest.raises(UsageError, match="does not record the last transaction"):
        lw.read(old, at_zxid=old.suffix[1:])
    for file in (GOLDEN / "fuzzy/version-2").glob("snapshot.*"):
        zxid = int(file.suffix[1:], 16)
        later = [row[name] for row in lw.read(file).to_pylist() for name in ("czxid", "mzxid", "pzxid")]
        if max(later) > zxid:
            with pytest.raises(UsageError, match="holds changes up to zxid"):
                lw.read(file, at_zxid=zxid)


def test_at_zxid_before_all_snapshots_is_an_error(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "dmg_base/version-2", tmp_path / "version-2")
    for name in ("snapshot.0", "log.1"):
        (tmp_path / "version-2" / name).unlink(missing_ok=True)
    with pytest.raises(DamageError, match="every snapshot is later than 0x2"):
        lw.read(tmp_path, at_zxid=2)


def test_path_prefix_must_be_a_path() -> None:
    with pytest.raises(UsageError, match="a path starts with /"):
        lw.read(SNAPSHOT, path_prefix="app")


@pytest.mark.parametrize(
    "option", [{"dataLogDir": "/tmp"}, {"distributed": True}, {"compression.type": "gzip"}]
)
def test_directory_option_is_refused_for_a_file(option: dict[str, Any]) -> None:
    for file in (LOG, SNAPSHOT):
        with pytest.raises(UsageError, match=r"does not apply to|unknown option"):
            lw.read(file, **option)


@pytest.mark.parametrize("case", ["snap_gz", "snap_snappy"])
def test_compressed_snapshot_is_decompressed_once(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = GOLDEN / case / "version-2"
    for view in ("tree", "sessions", "acls"):
        seen: list[str] = []

        def counted(compression: str, data: Any, limit: int, seen: list[str] = seen) -> Expanded:
            seen.append(compression)
            return expand(compression, data, limit)

        monkeypatch.setattr(snapshots, "expand", counted)
        assert lw.read(path, view=view).num_rows > 0
        assert len(seen) == 1
