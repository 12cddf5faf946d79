"""The codec `zookeeper.txnlog`: logs written from rows."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zookeeper_logs import EMPTY, body_payload, log_of, payload_of, record_of, specimen_of, table_of

from logwright.codec.fault import UsageError
from logwright.codec.zookeeper.formats.txnlog import layout as txns
from logwright.codec.zookeeper.formats.txnlog.codec import CODEC
from logwright.codec.zookeeper.formats.txnlog.layout import FILE_HEADER, RECORD
from logwright.codec.zookeeper.formats.txnlog.rows import ROWS
from logwright.roundtrip import laws

# Writing


def test_rows_alone_make_a_log() -> None:
    result = EMPTY.with_bytes(
        EMPTY.encode(pa.table({"type": ["error", "delete"], "path": [None, "/a"], "err": [-4, None]}))
    )
    rows = result.read(columns="*").table.to_pylist()
    assert [(row["zxid"], row["session_id"], row["cxid"], row["type"]) for row in rows] == [
        (1, 0, 0, "error"), (2, 0, 0, "delete"),
    ]  # fmt: skip
    assert abs(rows[0]["time_ms"] / 1000 - datetime.datetime.now().timestamp()) < 60
    assert rows[0]["tree_digest"] is None
    named = specimen_of(b"", "log.20")
    second = named.with_bytes(named.encode(pa.table({"type": ["error"], "err": [1]})))
    assert second.read().table["zxid"].to_pylist() == [0x20]
    assert EMPTY.encode(pa.table({"type": pa.array([], pa.string())})) == FILE_HEADER.pack({})


def test_written_log_is_preallocated() -> None:
    rows = pa.table({"type": ["error"], "err": [1]})
    assert len(specimen_of(b"", preAllocSize=4).encode(rows)) == 16 + 4096
    assert len(specimen_of(b"", preAllocSize=1).encode(rows.slice(0, 0))) == 16 + 1024
    large = pa.table({"type": ["setData"], "path": ["/"], "data": [bytes(3000)], "version": [1]})
    assert len(specimen_of(b"", preAllocSize=1).encode(large)) == 16 + 3 * 1024


def test_times_of_any_type_and_null() -> None:
    moment = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    for column, expected in (
        (pa.array([moment, None], pa.timestamp("us", tz="UTC")), [1767312000000, -1]),
        (pa.array([5, None]), [5, -1]),
    ):
        rows = pa.table({"type": ["error", "error"], "err": [1, 2], "time": column})
        table = EMPTY.with_bytes(EMPTY.encode(rows)).read(columns="time_ms,time").table
        assert table["time_ms"].to_pylist() == expected
        assert table["time"].null_count == 1
    raw = pa.table({"type": ["error"], "err": [1], "time_ms": [1 << 62]})
    assert EMPTY.with_bytes(EMPTY.encode(raw)).read(columns="time_ms").table["time_ms"].to_pylist() == [
        1 << 62
    ]


def test_binary_text_and_other_integer_widths() -> None:
    rows = pa.table(
        {
            "type": pa.array(["setData", "setData"], pa.large_string()),
            "path": pa.array([b"/\xed\xa0\xbd", b"/b"], pa.large_binary()),
            "data": pa.array([b"x", None], pa.large_binary()),
            "version": pa.array([1, 2], pa.int64()),
        }
    )
    actual = EMPTY.with_bytes(EMPTY.encode(rows)).read(columns="path,path_raw,data").table.to_pylist()
    assert actual[0] == {"path": "/\ufffd", "path_raw": b"/\xed\xa0\xbd", "data": b"x"}
    assert actual[1] == {"path": "/b", "path_raw": None, "data": None}


def test_raw_columns_are_used_if_they_agree() -> None:
    acl = [{"perms": 1, "scheme": "\ufffd", "id": None}]
    raw = [{"perms": 1, "scheme": b"\xff", "id": None}]
    rows: list[dict[str, Any]] = [
        {"type": "setACL", "path": "/\ufffd", "path_raw": b"/\xff", "acl": acl, "acl_raw": raw, "version": 1},
        {"type": "setACL", "path": "/a", "path_raw": b"/\xff", "acl": [], "acl_raw": raw, "version": 1},
        {"type": "setACL", "path": None, "path_raw": b"/\xff", "acl": None, "acl_raw": None, "version": 1},
    ]
    table = table_of([{"zxid": 1 + n, **row} for n, row in enumerate(rows)])
    actual = EMPTY.with_bytes(EMPTY.encode(table)).read(columns="*").table.to_pylist()
    assert [row["path_raw"] for row in actual] == [b"/\xff", None, None]
    assert [row["acl_raw"] for row in actual] == [raw, None, None]
    assert [row["acl"] for row in actual] == [acl, [], None]


def test_digests_come_from_frames_if_rows_have_none() -> None:
    data = log_of(
        payload_of(1, digest={"version": 2, "tree_digest": 3}), payload_of(2), payload_of(3, rest=b"x")
    )
    specimen = specimen_of(data)
    rows, frames, file = specimen.tables()
    assert specimen.encode(rows.drop_columns(["digest_version", "tree_digest"]), frames, file) == data
    few = frames.drop_columns(["digest_version", "tree_digest", "payload", "raw"])
    encoded = specimen.encode(rows.drop_columns(["digest_version", "tree_digest"]), few, None)
    assert (
        specimen.with_bytes(encoded).read(columns="tree_digest").table["tree_digest"].to_pylist()
        == [None] * 3
    )


def test_dropped_transaction_is_not_written() -> None:
    data = log_of(payload_of(1), payload_of(2, rest=b"x"), payload_of(3))
    specimen = specimen_of(data)
    rows, frames, file = specimen.tables()
    subset = rows.filter(pa.array([True, False, True]))
    kept = specimen.with_bytes(specimen.encode(subset, frames, file))
    assert kept.read().table["zxid"].to_pylist() == [1, 3]
    assert specimen.encode(rows.slice(0, 0), frames, file) == FILE_HEADER.pack({})


def test_unusual_header_is_kept() -> None:
    data = FILE_HEADER.pack({"version": 9, "dbid": 7}) + record_of(payload_of(1))
    specimen = specimen_of(data)
    rows, frames, file = specimen.tables()
    assert specimen.encode(rows, frames) == specimen.encode(rows, frames, file) == data
    assert specimen.encode(rows, None, file) == data
    assert specimen.encode(rows.slice(0, 0), frames.slice(0, 0), file) == b""
    assert specimen.read("frames", columns="position,size").table["size"].to_pylist() == [16, 49]


def test_stored_payloads_are_used_for_unchanged_rows() -> None:
    data = log_of(payload_of(1, rest=b"x"), body_payload(99, b"?"))
    specimen = specimen_of(data)
    rows, frames, file = specimen.tables()
    # Without a column of which there is nothing, the same is said.
    assert specimen.encode(rows.drop_columns(["ttl"]), frames, file) == data
    assert specimen.encode(rows.drop_columns(["err"]), frames, file) != data
    # A row for what could not be understood is written in its place.
    second = rows.set_column(rows.schema.get_field_index("position"), "position", frames["position"].slice(2))
    result = specimen.with_bytes(specimen.encode(second, frames, file))
    assert result.read().table["zxid"].to_pylist() == [1]
    assert result.read().report.errors == 0
    odd = rows.set_column(rows.schema.get_field_index("ephemeral"), "ephemeral", pa.array(["?"]))
    with pytest.raises(UsageError, match="column 'ephemeral' is not bool"):
        specimen.encode(odd, frames, file)


def test_rows_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from logwright.codec.zookeeper.formats.txnlog import write as txnlog_encode

    monkeypatch.setattr(txnlog_encode, "MOST", 100)
    with pytest.raises(UsageError, match="larger than 100 bytes"):
        EMPTY.encode(pa.table({"type": ["setData"], "data": [bytes(100)]}))


def test_invalid_rows_are_refused() -> None:
    specimen = specimen_of(log_of(payload_of(1), payload_of(2)))
    rows, frames, file = specimen.tables()
    with pytest.raises(UsageError, match="rows have no positions"):
        specimen.encode(rows.drop_columns(["position"]), frames, file)
    with pytest.raises(UsageError, match="row 0 belongs to no frame"):
        specimen.encode(rows, frames.slice(0, 1), file)
    with pytest.raises(UsageError, match="row 0 belongs to no frame"):
        specimen.encode(rows, frames.slice(2), file)
    with pytest.raises(UsageError, match="needs a column 'kind'"):
        specimen.encode(rows, frames.drop_columns(["kind"]), file)
    with pytest.raises(UsageError, match="needs a column 'type'"):
        EMPTY.encode(pa.table({"path": ["/"]}))
    with pytest.raises(UsageError, match="row 1 is of type 'check', which is not written on its own"):
        EMPTY.encode(pa.table({"type": ["delete", "check"], "path": ["/", "/"]}))
    with pytest.raises(UsageError, match="row 0 is of type None"):
        EMPTY.encode(pa.table({"type": pa.array([None], pa.string())}))
    with pytest.raises(UsageError, match="null in column 'zxid'"):
        EMPTY.encode(pa.table({"type": ["error"], "zxid": pa.array([None], pa.int64())}))
    with pytest.raises(UsageError, match="column 'path' is not"):
        EMPTY.encode(pa.table({"type": ["delete"], "path": [[1]]}))
    with pytest.raises(UsageError, match="column 'acl' is not"):
        EMPTY.encode(pa.table({"type": ["setACL"], "acl": [7]}))
    with pytest.raises(UsageError, match="column 'txns' is int64"):
        EMPTY.encode(pa.table({"type": ["multi"], "txns": [7]}))
    with pytest.raises(UsageError, match="a transaction of a multi is null"):
        EMPTY.encode(pa.table({"type": ["multi"], "txns": [[None, {"type": "error"}]]}))


def test_multis_are_written_from_rows() -> None:
    columns: list[dict[str, Any]] = [
        {},
        {"txns": pa.nulls(2)},
        {"txns": pa.array([None, None], ROWS["txns"].type)},
    ]
    for column in columns:
        encoded = EMPTY.encode(pa.table({"type": ["multi", "error"], **column}))
        assert EMPTY.with_bytes(encoded).read().table["txns"].to_pylist() == [[], None]
    rows = pa.table(
        {
            "type": ["error", "delete", "error", "error", "delete", "error"],
            "sub": pa.array([0, 1, 0, None, 0, 1], pa.int32()),
            "path": [None, "/a", None, None, "/b", None],
            "err": [1, None, 2, 3, None, 4],
        }
    )
    actual = EMPTY.with_bytes(EMPTY.encode(rows)).read().table.to_pylist()
    assert [(row["zxid"], row["type"]) for row in actual] == [
        (1, "multi"),
        (2, "multi"),
        (3, "error"),
        (4, "multi"),
    ]
    assert [len(row["txns"]) if row["txns"] else 0 for row in actual] == [2, 1, 0, 2]


_TEXT = st.none() | st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=4)


_I32, _I64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)


_DATA = st.none() | st.binary(max_size=6)

_ACL = st.none() | st.lists(st.fixed_dictionaries({"perms": _I32, "scheme": _TEXT, "id": _TEXT}), max_size=2)

_FIELDS: dict[str, Any] = {
    "path": _TEXT, "data": _DATA, "acl": _ACL, "ephemeral": st.booleans(), "parent_cversion": _I32, "version": _I32,
    "err": _I32, "ttl": _I64, "time_out": _I32, "paths_to_delete": st.none() | st.lists(_TEXT.filter(bool), max_size=3),
}  # fmt: skip


def _bodies(known: dict[int, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from(sorted(kind for kind in known if kind != txns.MULTI)).flatmap(
        lambda kind: st.fixed_dictionaries(
            {
                "type": st.just(txns.TYPE_NAMES[kind]),
                **{field.name: _FIELDS[field.name] for field in known[kind].fields},
            }
        )
    )


_MULTIS = st.lists(_bodies(txns.SUB_BODIES), max_size=3).map(lambda subs: {"type": "multi", "txns": subs})

_ROWS = st.lists(
    st.tuples(
        _bodies(txns.BODIES) | _MULTIS,
        st.fixed_dictionaries(
            {
                "zxid": _I64, "time_ms": _I64, "session_id": _I64, "cxid": _I32,
                "tree_digest": st.none() | _I64, "digest_version": st.just(2),
            }
        ),
    ),
    max_size=6,
).map(lambda pairs: [{**head, **body} for body, head in pairs])  # fmt: skip


def _whole(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as they are read: without a digest its version is null; an absent closeSession body is null."""
    schema = ROWS.schema([name for name in ROWS.names(detail=True) if name not in _PLACES])
    result = [
        {**row, "digest_version": None if row["tree_digest"] is None else row["digest_version"]}
        for row in rows
    ]
    complete: list[dict[str, Any]] = pa.Table.from_pylist(result, schema).to_pylist()
    return complete


_PLACES = ("position", "file", "time", "path_raw", "acl_raw")


@given(_ROWS)
def test_any_rows_round_trip(rows: list[dict[str, Any]]) -> None:
    data = EMPTY.encode(table_of(rows) if rows else pa.table({"type": pa.array([], pa.string())}))
    result = EMPTY.with_bytes(data)
    names = [name for name in ROWS.names(detail=True) if name not in _PLACES]
    reread = result.read(columns=",".join(names))
    assert reread.table.to_pylist() == _whole(rows)
    assert result.read("frames").table.num_rows == len(rows) + 1
    # Nothing is stored: all comes from rows, in either form.
    for multi in ("nested", "exploded"):
        item = specimen_of(data, multi=multi)
        tables = item.tables()
        assert tables[1]["payload"].null_count == len(rows) + 1
        assert item.encode(*tables) == data
        assert item.encode(tables[0]) == data


@given(_ROWS)
def test_any_transaction_packs_as_described(rows: list[dict[str, Any]]) -> None:
    if rows:
        data = EMPTY.encode(table_of(rows))
        verdict = laws.kernel_equals_description(data, CODEC, name="log.1")
        assert verdict, verdict
        # And back: the description writes the same bytes.
        at = 16
        while at < len(data):
            value, end = RECORD.unpack(data, at, at + 13 + int.from_bytes(data[at + 8 : at + 12], "big"))
            assert RECORD.pack({**value, "checksum": None}) == data[at:end]
            at = end
