"""Rows appended to a data directory: nodes as transactions, refused rows, existing files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from zookeeper_builds import BASE, batch, build, content, edits, fields_of, rows_of, txns_of

import logwright as lw
from logwright.codec.fault import UsageError
from logwright.codec.zookeeper.names import parse
from logwright.corpora.cases import cases

# Edits


def test_appended_nodes_become_create_and_set_transactions() -> None:
    result = edits(
        [
            {"path": "/a", "data": b"1"},  # as it is
            {"path": "/a/b", "data": b"3"},
            {"path": "/x/y", "data": None, "ctime_ms": 77},
            {"path": "/x", "data": b"now"},
            {"path": "/x/y", "data": None, "acl": [{"perms": 1, "scheme": "ip", "id": "10.0.0.1"}]},
            {"path": "/c", "data": b"", "kind": "container"},
            {"path": "/t", "data": b"", "kind": "ttl", "ttl": 99},
            {"path": "/f", "data": b"", "kind": "ephemeral", "ephemeral_owner": 8},
            {"path": "/g", "data": b"", "kind": "ephemeral", "ephemeral_owner": 7},
        ]
    )
    assert fields_of(result, "zxid", "type", "path", "session_id") == [
        (5, "setData", "/a/b", 0),
        (6, "create", "/x", 0),
        (7, "create", "/x/y", 0),
        (8, "setData", "/x", 0),
        (9, "setACL", "/x/y", 0),
        (10, "createContainer", "/c", 0),
        (11, "createTTL", "/t", 0),
        (12, "createSession", None, 8),
        (13, "create", "/f", 8),
        (14, "create", "/g", 7),
    ]
    assert fields_of(result, "version", "parent_cversion", "ttl", "time_out") == [
        (1, None, None, None),
        (None, 3, None, None),
        (None, 1, None, None),
        (1, None, None, None),
        (1, None, None, None),
        (None, 4, None, None),
        (None, 5, 99, None),
        (None, None, None, 30000),
        (None, 6, None, None),
        (None, 7, None, None),
    ]
    assert [row["ephemeral"] for row in result] == [
        None,
        False,
        False,
        None,
        None,
        None,
        None,
        None,
        True,
        True,
    ]
    assert result[2]["time_ms"] == 77
    assert all(row["tree_digest"] is not None for row in result)


def test_row_without_data_column_keeps_the_nodes_data() -> None:
    result = edits(
        [{"path": "/a", "acl": [{"perms": 31, "scheme": "world", "id": "anyone"}]}, {"path": "/n"}]
    )
    assert fields_of(result, "type", "path", "data") == [("create", "/n", b"")]
    assert edits([{"path": "/a", "data": b"1"}]) == []


def test_missing_transaction_fields_are_filled_in() -> None:
    result = edits(
        [
            {"type": "delete", "path": "/a/b"},
            {"type": "setData", "path": "/a", "data": b"x"},
            {"type": "setData", "path": "/a", "data": b"y"},
            {"type": "setACL", "path": "/a", "acl": [{"perms": 1, "scheme": "world", "id": "anyone"}]},
            {"type": "multi", "txns": [
                {"type": "check", "path": "/a"},
                {"type": "create", "path": "/a/m", "data": b"1", "acl": None, "ephemeral": False},
                {"type": "setData", "path": "/a/m", "data": b"2"},
            ]},
            {"type": "error", "err": -110},
            {"type": "createSession", "session_id": 9},
            {"type": "create", "path": "/s", "session_id": 9, "ephemeral": True},
            {"type": "closeSession", "session_id": 9},
        ]
    )  # fmt: skip
    assert [row["zxid"] for row in result] == list(range(5, 14))
    assert fields_of(result, "version", "parent_cversion", "time_out")[1:4] == [
        (1, None, None),
        (2, None, None),
        (1, None, None),
    ]
    assert fields_of(result[4]["txns"], "type", "path", "version", "parent_cversion") == [
        ("check", "/a", 3, None),
        ("create", "/a/m", None, 2),
        ("setData", "/a/m", 1, None),
    ]
    assert result[4]["txns"][1]["acl"] == [{"perms": 31, "scheme": "world", "id": "anyone"}]
    assert result[5]["tree_digest"] is None, "errors have no digest"
    assert result[8]["paths_to_delete"] == []
    assert (result[7]["parent_cversion"], result[7]["data"]) == (3, None)


def test_failed_multi_is_written_unchanged() -> None:
    result = edits(
        [
            {
                "type": "multi",
                "txns": [
                    {"type": "setData", "path": "/nowhere", "data": b"", "version": 3},
                    {"type": "error", "err": -101},
                ],
            }
        ]
    )
    assert fields_of(result[0]["txns"], "type", "path", "version", "err") == [
        ("setData", "/nowhere", 3, None),
        ("error", None, None, -101),
    ]


def test_zxids_are_kept_or_assigned(tmp_path: Path) -> None:
    rows = [
        {"type": "create", "path": "/k", "zxid": 5},
        {"type": "error", "err": -1, "zxid": 6},
        {"type": "error", "err": -1, "zxid": 0x100000001},
    ]
    assert [row["zxid"] for row in edits(rows)] == [5, 6, 0x100000001]
    for first, before in ((6, "0x4"), (4, "0x4"), (0x100000002, "0x4")):
        with pytest.raises(
            UsageError, match=f"row 0: zxid {first:#x} does not follow {before}: a server would not start"
        ):
            edits([{"type": "error", "err": -1, "zxid": first}])
    with pytest.raises(UsageError, match="null in column 'zxid'"):
        edits([{"type": "error", "err": -1, "zxid": 5}, {"type": "error", "err": -1}])
    files = build([batch([{"type": "create", "path": "/a", "zxid": 40}])])
    assert sorted(files) == ["log.28", "snapshot.27"]
    assert content(files, tmp_path) == {"/a": None}


def test_transactions_that_were_read_are_written_unchanged() -> None:
    """All transactions of a real server, from its first one."""
    for case in ("basic", "multi", "acls", "extended_types"):
        home = cases("zookeeper")[case].path / "version-2"
        rows = lw.read(home, view="txns", columns="*")
        files = build(rows.to_batches())
        assert files["snapshot.0"] == (home / "snapshot.0").read_bytes()
        (log,) = (data for name, data in files.items() if name != "snapshot.0")
        stored = b"".join(
            path.read_bytes().rstrip(b"\0")[16 * (n > 0) :]
            for n, path in enumerate(sorted(home.glob("log.*"), key=lambda log: parse(log.name).zxid))
        )
        assert log == stored, "digests too"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"type": "create", "path": "/a"}], "row 0: /a exists: create fails"),
        ([{"type": "create", "path": "/q/r"}], "row 0: /q/r has no parent: create fails"),
        ([{"type": "create", "path": "/e/x"}], "row 0: /e/x is below an ephemeral node"),
        ([{"path": "/e/x"}], "row 0: /e/x is below an ephemeral node"),
        ([{"type": "create", "path": "/x", "ephemeral": True}], "is ephemeral, and the row has no session_id"),
        ([{"type": "createTTL", "path": "/x"}], "needs a ttl from 1"),
        ([{"type": "delete", "path": "/a"}], "row 0: /a has children "),
        ([{"type": "delete", "path": "/x"}], "row 0: /x does not exist: delete fails"),
        ([{"type": "setData", "path": "/x"}], "row 0: /x does not exist: setData fails"),
        ([{"type": "setData"}], "a transaction without a path"),
        ([{"path": "/a", "kind": "container"}], "/a exists as persistent: it cannot become container"),
        ([{"path": "/a", "kind": "ephemeral", "ephemeral_owner": 3}], "it cannot become ephemeral"),
        ([{"type": "what", "path": "/a"}], "of type 'what'"),
        ([{"type": "create", "path": "/x", "sub": 0}], "cannot be written as separate rows"),
        ([{"path": "a"}], "row 0: 'a' is not a valid node path"),
        ([{"path": "/x", "kind": "ttl", "ttl": None}], "ttl"),
        ([{"path": "/x", "acl_id": 5}], "row 0 has the number of an ACL, but no list"),
    ],
)  # fmt: skip
def test_rows_a_server_would_reject_are_refused(rows: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        edits(rows)


def test_contradicting_rows_and_options_are_refused() -> None:
    with pytest.raises(UsageError, match="some rows are transactions"):
        build([batch([{"path": "/a"}]), batch([{"type": "delete", "path": "/a"}])])
    with pytest.raises(UsageError, match="some rows have data, others have no such column"):
        build([batch([{"path": "/a"}]), batch([{"path": "/b", "data": b""}])])
    with pytest.raises(UsageError, match="zxid is that of a snapshot"):
        build([batch([{"path": "/a"}])], write_as="logs", zxid=3)
    with pytest.raises(UsageError, match="is extended by transactions"):
        build([batch([{"path": "/a"}])], build([]), write_as="snapshot")
    with pytest.raises(UsageError, match="the path '/a' occurs more than once") as caught:
        build([batch([{"path": "/a", "data": b"1"}]), batch([{"path": "/a", "data": b"2"}])])
    assert "on_duplicate=last" in str(caught.value.advice)
    files = build(
        [batch([{"path": "/a", "data": b"1"}]), batch([{"path": "/a", "data": b"2"}])], on_duplicate="last"
    )
    assert {row["path"]: row["data"] for row in rows_of(files["snapshot.0"], "snapshot.0")}["/a"] == b"2"


def test_rows_no_server_can_read_are_refused() -> None:
    long = bytes((1 << 21) + 1)
    with pytest.raises(
        UsageError, match="row 1: 2097153 bytes of data, a server reads at most 2097150"
    ) as caught:
        build([batch([{"path": "/a", "data": b""}]), batch([{"path": "/b", "data": long}])])
    assert "jute.maxbuffer" in str(caught.value.advice)
    assert build([batch([{"path": "/b", "data": long}])], **{"jute.maxbuffer": 1 << 21})
    near = bytes(2097150 - 20)
    with pytest.raises(UsageError, match=r"transaction 0 has 2097\d* bytes, a server reads at most 2097150"):
        build([batch([{"path": "/b", "data": near}])], write_as="logs")


# Existing files


def test_append_to_a_damaged_directory_is_refused() -> None:
    files = build([batch(BASE)], write_as="logs")
    more = files | build([batch([{"path": "/x", "data": b"x"}, {"path": "/y", "data": b"x"}])], files)
    (name,) = set(more) - set(files)

    def damaged(at: int, to: bytes, which: str = name) -> dict[str, bytes]:
        data = bytearray(more[which])
        data[at : at + len(to)] = to
        return more | {which: bytes(data)}

    def refused(there: dict[str, bytes], words: str) -> None:
        with pytest.raises(UsageError, match=words) as caught:
            build([batch([{"path": "/z"}])], there)
        assert "Repair it first" in str(caught.value.advice)

    refused(damaged(40, b"\xff"), f"{name} is damaged at byte 16")
    refused(damaged(24, b"\0\0\0\0"), f"{name} is damaged at byte 16")
    refused(damaged(0, b"X"), f"{name} is damaged at byte 0")
    refused(damaged(0x90, b"X", "snapshot.0"), "snapshot.0 is damaged")
    refused(
        {name: data for name, data in more.items() if name != "snapshot.0"},
        "the directory has logs and no snapshot",
    )
    refused({"snapshot.0": more["snapshot.0"][:-1]}, "the directory has no snapshot that is undamaged")
    refused(
        {name: data for name, data in more.items() if name != "log.1"}
        | build([batch([{"path": "/q"}])], more),
        "the transactions 0x1 to 0x[0-9a-f]* are missing",
    )
    refused({}, "the directory has no snapshot")


def test_leftovers_of_a_stopped_server_do_not_prevent_an_append() -> None:
    files = build([batch(BASE)], write_as="logs")
    more = files | build([batch([{"path": "/x", "data": b"x"}])], files)
    (name,) = set(more) - set(files)
    last = max(row["zxid"] for row in txns_of(more[name]))
    for there in (
        more | {name: more[name] + bytes(500)},
        more | {name: more[name] + more["log.1"][16:60]},  # torn
        more | {f"log.{last + 1:x}": b""},
        more | {f"log.{last + 1:x}": more["log.1"][:16]},
    ):
        result = build([batch([{"path": "/new"}])], there)
        assert list(result) == [f"log.{last + 1:x}"]
    # A torn log, and one behind it that goes on where it ends.
    torn = files | {"log.1": files["log.1"][:-3]}
    assert list(build([batch([{"path": "/new"}])], torn)) == ["log.4"]


def test_zxids_beyond_the_end_of_an_epoch_are_refused() -> None:
    files = build([batch(BASE)], zxid=0x1FFFFFFFF)
    with pytest.raises(UsageError, match="no zxid is left in the epoch of 0x1ffffffff"):
        build([batch([{"path": "/x"}])], files)


def test_transaction_that_crashes_a_server_is_refused() -> None:
    with pytest.raises(UsageError, match="a server would not start with it"):
        edits([{"type": "create", "path": "/zookeeper/quota/zookeeper_limits", "data": b"count=x"}])
