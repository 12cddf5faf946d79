"""The one-pass reader of transactions gives the rows of the general reader, or leaves them to it."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from logwright.codec.option import Options
from logwright.codec.window import Frames, Window
from logwright.codec.zookeeper.formats.txnlog import layout as txns
from logwright.codec.zookeeper.formats.txnlog.codec import CODEC
from logwright.codec.zookeeper.formats.txnlog.layout import FILE_HEADER, LOWEST, PAYLOAD
from logwright.codec.zookeeper.formats.txnlog.rows import ROWS, Rows
from logwright.codec.zookeeper.formats.txnlog.tables import TxnLogContext
from logwright.codec.zookeeper.formats.txnlog.txn_fast_path import rows_at_once
from logwright.corpora import cases

COLUMNS = [name for name in ROWS.names(detail=True) if name not in ("digest_version", "tree_digest")]
ACL = [
    {"perms": 31, "id": {"scheme": b"world", "id": b"anyone"}},
    {"perms": 1, "id": {"scheme": None, "id": b""}},
]
BODIES: list[tuple[int, Any]] = [
    (txns.CREATE, {"path": b"/a", "data": b"x", "acl": ACL, "ephemeral": 1, "parent_cversion": 7}),
    (txns.CREATE, {"path": b"/b", "data": None, "acl": None, "ephemeral": 0}),
    (txns.CREATE2, {"path": "/ü".encode(), "data": b"", "acl": [], "ephemeral": 0, "parent_cversion": -1}),
    (txns.CREATE_CONTAINER, {"path": b"/c", "data": b"c" * 300, "acl": ACL, "parent_cversion": 2}),
    (txns.CREATE_TTL, {"path": b"/t", "data": b"t", "acl": ACL, "parent_cversion": 3, "ttl": 99}),
    (txns.SET_DATA, {"path": b"/a", "data": b"y" * 40, "version": 5}),
    (txns.SET_DATA, {"path": None, "data": None, "version": 6}),
    (txns.SET_ACL, {"path": b"/a", "acl": ACL, "version": 5}),
    (txns.DELETE, {"path": b"/a"}),
    (txns.ERROR, {"err": -101}),
    (txns.CREATE_SESSION, {"time_out": 30_000}),
    (txns.CLOSE_SESSION, {"paths_to_delete": [b"/e/1", b"/e/2"]}),
    (txns.CLOSE_SESSION, {"paths_to_delete": []}),
    (txns.CLOSE_SESSION, None),
]


def _payload(zxid: int, kind: int, body: Any, digest: int | None = None) -> bytes:
    message = None if digest is None else {"version": 2, "tree_digest": digest}
    return PAYLOAD.pack(
        {
            "client_id": zxid << 40, "cxid": -zxid, "zxid": zxid, "time": zxid - 1, "type": kind, "body": body,
            "digest": message, "rest": b"",
        }
    )  # fmt: skip


def _log(*payloads: bytes) -> bytes:
    return FILE_HEADER.pack({}) + b"".join(_record(payload) for payload in payloads)


def _record(payload: bytes) -> bytes:
    return zlib.adler32(payload).to_bytes(8, "big") + len(payload).to_bytes(4, "big") + payload + b"B"


def _found(data: bytes) -> tuple[Window, Frames, TxnLogContext]:
    context = CODEC.context("log.1", Options(CODEC.options))
    window = Window(np.frombuffer(data, np.uint8).copy(), 0, len(data))
    frames = CODEC.scan(window, 0, context)
    return window, frames.pick(slice(1, None)), context


def _same(data: bytes, columns: list[str]) -> bool:
    """Return whether the fast path made rows, which must equal the general reader's."""
    window, frames, context = _found(data)
    result = rows_at_once(window, frames, columns, context)
    if result is None:
        return False
    result.validate(full=True)
    measured = Rows(window, frames, context).decoded(columns)
    assert result.schema == measured.batch.schema
    assert result.equals(measured.batch)
    assert not measured.faults
    return True


@pytest.mark.parametrize(
    "columns", [COLUMNS, ["path"], ["data"], ["zxid", "err"], ["acl", "type"]], ids=" ".join
)
def test_fast_path_equals_the_general_reader(columns: list[str]) -> None:
    # What follows a create as it was up to 3.3 would be read as its last field.
    payloads = [_payload(i + 1, *body, None if i == 1 else i) for i, body in enumerate(BODIES)]
    assert _same(_log(*payloads), columns)
    for payload in payloads:
        assert _same(_log(payload), columns)
        assert _same(_log(payload, payload), columns)


def test_fast_path_reads_golden_logs() -> None:
    result = [
        _same(path.read_bytes(), COLUMNS)
        for case in cases.cases("zookeeper").values()
        for path in sorted(case.path.rglob("log.*"))
        if "tools" not in path.parts and path.stat().st_size > 16
    ]
    assert result.count(True) > 50


def test_rare_transactions_take_the_general_reader() -> None:
    sound = _payload(1, txns.SET_DATA, {"path": b"/a", "data": b"y", "version": 5})
    others = [
        _payload(2, txns.MULTI, {"txns": []}),
        _payload(2, txns.SET_DATA, {"path": b"/a", "data": b"y", "version": 5})[:-1],  # ends early
        _payload(2, txns.DELETE, {"path": b"/a"}).replace(b"/a", b"/\xff"),  # no UTF-8
        _payload(2, txns.DELETE, {"path": b"/a"})[:-1],
        _payload(2, txns.CREATE, {"path": b"/a", "data": b"", "acl": None, "ephemeral": 0})[:-1],
        _payload(2, LOWEST - 9, b""),  # of no known type
        b"short",
    ]
    for payload in others:
        assert not _same(_log(payload), COLUMNS)
        assert not _same(_log(sound, payload, sound), COLUMNS)
    assert not _same(_log(sound), ["zxid", "tree_digest"])
    assert not _same(_log(sound), [])
    assert not _same(_log(), COLUMNS)
