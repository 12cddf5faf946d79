"""Dead transactions, the list of all transactions, and the history of single nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zookeeper_datadir import CASES, GOLDEN, create, delete, set_data, spoil, truth, write_log

import logwright as lw
from logwright.codec.zookeeper.store.succession import dead_from, gaps

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
ACL = [{"perms": 31, "scheme": "world", "id": "anyone"}]


def history(folder: Path, **options: Any) -> list[tuple[int, str, str, int | None]]:
    rows = lw.read(folder, view="history", **options).to_pylist()
    return [(row["zxid"], row["type"], row["path"], row["sub"]) for row in rows]


def zxids(folder: Path, **options: Any) -> list[int]:
    return lw.read(folder, view="txns", columns=["zxid"], **options).column(0).to_pylist()


def session(zxid: int, id: int) -> dict[str, Any]:
    return {"zxid": zxid, "session_id": id, "type": "createSession", "time_out": 30000}


def close(zxid: int, id: int, paths: list[str] | None) -> dict[str, Any]:
    return {"zxid": zxid, "session_id": id, "type": "closeSession", "paths_to_delete": paths}


def multi(zxid: int, *txns: dict[str, Any]) -> dict[str, Any]:
    return {"zxid": zxid, "session_id": 1, "type": "multi", "txns": list(txns)}


def sub(path: str, type: str = "create", **more: Any) -> dict[str, Any]:
    return {
        "type": type,
        "path": path,
        "data": b"",
        "acl": ACL,
        "ephemeral": False,
        "parent_cversion": 1,
        **more,
    }


# Succession


@pytest.mark.parametrize(
    ("first", "following", "inputs", "dead"),
    [
        (1, 10, [1, 2, 3], 3),
        (1, 2, [1, 2, 3], 3),  # nothing is missing: a server reads on to the end
        (1, 4, [1, 3, 4, 5], 2),
        (1, 4, [1, 3], 2),
        (2, 3, [3, 4], 0),  # the first one is missing
        (1, 4, [1, 2, (1 << 32) + 1, (1 << 32) + 2], 4),  # a new epoch is no gap
        (1, 4, [1, 2, 2, 1, 5, 6], 4),
        (1, 9, [1, 2, 11, 12, 3, 4], 6),  # bytes of the next log between those of this one
    ],
)
def test_transactions_after_a_gap_are_dead_if_the_next_log_repeats_them(
    first: int, following: int, inputs: list[int], dead: int
) -> None:
    assert dead_from(first, np.array(inputs, np.int64), following) == dead


def test_gaps_between_zxids_respect_epochs() -> None:
    epoch = 1 << 32
    inputs = np.array([3, 4, 9, 9, 8, epoch + 1, epoch + 3], np.int64)
    assert gaps(2, inputs) == [(5, 8), (epoch + 2, epoch + 2)]
    assert gaps(0, inputs)[0] == (1, 2)
    assert gaps(0, inputs[:0]) == []


# Transactions


@pytest.mark.alike
@pytest.mark.parametrize("case", CASES)
def test_txns_view_is_the_rows_of_the_logs(case: str) -> None:
    """Except dead transactions, which only some damaged directories have."""
    folder = GOLDEN / case / ("datalog/version-2" if case == "split_dirs" else "version-2")
    logs = sorted(folder.glob("log.*"), key=lambda log: (int(log.name.split(".")[1], 16), log.name))
    expected = [zxid for log in logs for zxid in zxids_of(log)]
    assert zxids(folder, mode="DROPMALFORMED") == expected


def zxids_of(log: Path) -> list[int]:
    table = lw.read(log, columns=["zxid"], mode="DROPMALFORMED")
    return table.column(0).to_pylist()


@pytest.fixture
def superseded(tmp_path: Path) -> Path:
    """A server read two transactions of log.1 and rewrote the others."""
    write_log(tmp_path, [create(i, f"/old{i}") for i in range(1, 7)])
    spoil(tmp_path / "log.1", 2)
    write_log(tmp_path, [create(i, f"/new{i}") for i in range(3, 8)])
    return tmp_path


def test_rewritten_transactions_replace_the_old_ones(superseded: Path) -> None:
    rows = lw.read(superseded, view="txns", mode="DROPMALFORMED").column("path").to_pylist()
    assert rows == ["/old1", "/old2", "/new3", "/new4", "/new5", "/new6", "/new7"]


def test_transactions_before_the_next_log_are_kept(superseded: Path) -> None:
    """Records after damage are not dead if no other log has them."""
    (superseded / "log.3").rename(superseded / "log.6")
    assert zxids(superseded, mode="DROPMALFORMED") == [1, 2, 4, 5, 3, 4, 5, 6, 7]


def test_undamaged_log_is_read_to_its_end(tmp_path: Path) -> None:
    """As a server does, which applies such transactions twice."""
    write_log(tmp_path, [create(i, "/a") for i in range(1, 5)])
    write_log(tmp_path, [create(i, "/a") for i in range(3, 6)])
    assert zxids(tmp_path) == [1, 2, 3, 4, 3, 4, 5]


def test_transactions_are_filtered_and_exploded() -> None:
    nested = lw.read(GOLDEN / "multi", view="txns", filter="zxid >= 4")
    assert min(nested.column("zxid").to_pylist()) == 4
    exploded = lw.read(GOLDEN / "multi", view="txns", multi="exploded")
    assert exploded.num_rows > nested.num_rows


# History


def test_history_of_one_node() -> None:
    actual = history(GOLDEN / "multi", path_prefix="/app/k")
    assert actual == history(GOLDEN / "multi", filter="path == '/app/k'")
    assert [type for _, type, _, _ in actual][:2] == ["create", "setData"]


def test_multis_are_split_into_changes(tmp_path: Path) -> None:
    rows = [
        create(1, "/a"),
        multi(2, sub("/a/b"), {"type": "check", "path": "/a", "version": 1}, sub("/a", "setData", version=1)),
        multi(3, sub("/lost"), {"type": "error", "err": -110}),
        multi(4),
        multi(5, sub("/a/b", "delete")),
        delete(6, "/a"),
        {"zxid": 7, "session_id": 1, "type": "error", "err": -101},
    ]
    write_log(tmp_path, rows)
    assert history(tmp_path) == [
        (1, "create", "/a", None),
        (2, "create", "/a/b", 0),
        (2, "setData", "/a", 2),
        (5, "delete", "/a/b", 0),
        (6, "delete", "/a", None),
    ]


def test_closing_a_session_deletes_its_nodes(tmp_path: Path) -> None:
    rows = [
        session(1, 7),
        create(2, "/mine", session=7, ephemeral=True),
        create(3, "/also", session=7, ephemeral=True),
        create(4, "/gone", session=7, ephemeral=True),
        delete(5, "/gone"),
        create(6, "/stays", session=7),
        create(7, "/other", session=8, ephemeral=True),
        close(8, 7, None),  # as up to 3.5
        close(9, 8, ["/other", "/unknown"]),
        close(10, 8, []),
    ]
    write_log(tmp_path, rows)
    closed = [item for item in history(tmp_path) if item[1] == "closeSession"]
    assert closed == [
        (8, "closeSession", "/mine", None),
        (8, "closeSession", "/also", None),
        (9, "closeSession", "/other", None),
        (9, "closeSession", "/unknown", None),
    ]
    assert history(tmp_path, path_prefix="/also") == [
        (3, "create", "/also", None),
        (8, "closeSession", "/also", None),
    ]


def test_node_recreated_by_another_session(tmp_path: Path) -> None:
    rows = [
        create(1, "/e", session=7, ephemeral=True),
        create(2, "/e", session=8, ephemeral=True),  # of which the first one's end was lost
        close(3, 7, None),
        close(4, 8, None),
    ]
    write_log(tmp_path, rows)
    assert [item[0] for item in history(tmp_path) if item[1] == "closeSession"] == [4]


def test_null_paths_are_kept(tmp_path: Path) -> None:
    """No server writes them."""
    rows = [
        {**create(1, "/e", session=7, ephemeral=True), "path": None},
        {**delete(2, "/e"), "path": None},
        close(3, 7, [None]),
        close(4, 7, None),
    ]
    write_log(tmp_path, rows)
    assert history(tmp_path) == [(1, "create", None, None), (2, "delete", None, None)]
    assert history(tmp_path, path_prefix="/e") == []


def test_selected_columns_equal_those_of_a_full_read() -> None:
    for case in ("multi", "sessions"):
        everything = lw.read(GOLDEN / case, view="history", columns="*")
        for name in everything.column_names:
            assert lw.read(GOLDEN / case, view="history", columns=[name]).equals(everything.select([name]))


def test_close_of_a_session_deletes_ephemerals_of_an_earlier_log(tmp_path: Path) -> None:
    write_log(tmp_path, [session(1, 7), create(2, "/e", session=7, ephemeral=True)])
    write_log(tmp_path, [set_data(3, "/e", b"x", 1), close(4, 7, None)])
    assert history(tmp_path)[-1] == (4, "closeSession", "/e", None)


def test_path_prefix_matches_whole_names(tmp_path: Path) -> None:
    write_log(tmp_path, [create(i, path) for i, path in enumerate(("/a", "/a/b", "/ab", "/b"), 1)])
    assert [item[2] for item in history(tmp_path, path_prefix="/a")] == ["/a", "/a/b"]
    assert [item[2] for item in history(tmp_path, path_prefix="/a/")] == ["/a", "/a/b"]
    assert len(history(tmp_path, path_prefix="/")) == 4
    assert history(tmp_path, path_prefix="/c") == []


def test_history_has_the_columns_of_transactions() -> None:
    where = GOLDEN / "basic"
    table = lw.read(where, view="history", columns="*")
    txns = {row["zxid"]: row for row in lw.read(where, view="txns", columns="*").to_pylist()}
    assert table.num_rows
    for item in table.to_pylist():
        if item["type"] != "closeSession":
            assert item == {name: txns[item["zxid"]][name] for name in item}


def test_history_of_a_directory_without_logs() -> None:
    assert lw.read(GOLDEN / "fresh", view="history").num_rows == 0
    assert lw.read(GOLDEN / "fresh", view="txns").num_rows == 0


@pytest.mark.parametrize("case", ["basic", "multi", "sessions", "v3414", "v362", "v380", "extended_types"])
def test_nodes_of_a_client_have_a_history(case: str) -> None:
    """Nodes a client sees and no starting snapshot has were created, and not deleted later."""
    last: dict[str, str] = {}
    for _, type, path, _ in history(GOLDEN / case):
        last[path] = type
    seen = {node["path"] for node in truth(case)[1] if not node["path"].startswith("/zookeeper")} - {"/"}
    gone = {path for path, type in last.items() if type in ("delete", "deleteContainer", "closeSession")}
    assert not seen & gone
    assert seen <= set(last) | {"/"}
