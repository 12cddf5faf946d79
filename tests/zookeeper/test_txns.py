"""The descriptions of transactions: all forms, and the constants kernels use."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from logwright.codec import address
from logwright.codec.describe import U8, DescriptionError, Field, Struct
from logwright.codec.zookeeper.formats.txnlog import layout as txns
from logwright.codec.zookeeper.formats.txnlog.layout import FILE_HEADER, PAYLOAD, RECORD

_HEAD = {"client_id": 1 << 56, "cxid": 3, "zxid": 4, "time": 1700000000000}
_NODE = {"path": b"/a", "data": b"1", "acl": None}
_DIGEST = {"version": 2, "tree_digest": -5}


def _payload(kind: int, body: Any, digest: Any = None, rest: bytes = b"") -> bytes:
    return PAYLOAD.pack({**_HEAD, "type": kind, "body": body, "digest": digest, "rest": rest})


def _back(stored: bytes) -> tuple[Any, Any, bytes]:
    value, end = PAYLOAD.unpack(stored)
    assert end == len(stored)
    return value["body"], value["digest"], value["rest"]


BODIES: list[tuple[int, Any]] = [
    (txns.CREATE_SESSION, {"time_out": 30000}),
    (txns.CLOSE_SESSION, {"paths_to_delete": [b"/a", b"/b"]}),
    (txns.CLOSE_SESSION, {"paths_to_delete": None}),
    (txns.CLOSE_SESSION, None),
    (txns.ERROR, {"err": -101}),
    (txns.CREATE, {**_NODE, "ephemeral": 1, "parent_cversion": 7}),
    (txns.CREATE2, {**_NODE, "ephemeral": 0, "parent_cversion": -1}),
    (txns.DELETE, {"path": b"/a"}),
    (txns.SET_DATA, {"path": b"/a", "data": None, "version": 2}),
    (txns.SET_ACL, {"path": b"/a", "acl": [], "version": 2}),
    (txns.RECONFIG, {"path": b"/zookeeper/config", "data": b"x", "version": -1}),
    (txns.CREATE_CONTAINER, {**_NODE, "parent_cversion": 1}),
    (txns.DELETE_CONTAINER, {"path": b"/a"}),
    (txns.CREATE_TTL, {**_NODE, "parent_cversion": 1, "ttl": 5}),
    (txns.MULTI, {"txns": [{"type": txns.ERROR, "data": {"err": -2}}, {"type": 99, "data": b"xyz"}]}),
    (txns.MULTI, {"txns": []}),
    (txns.CHECK, b"no reader knows it alone"),
]


@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_transaction_bodies_round_trip_with_digest_and_extra_bytes(kind: int, body: Any) -> None:
    assert _back(_payload(kind, body)) == (body, None, b"")
    if isinstance(body, dict):
        assert _back(_payload(kind, body, _DIGEST, b"more")) == (body, _DIGEST, b"more")


def test_close_session_without_a_body_and_with_a_digest() -> None:
    assert _back(_payload(txns.CLOSE_SESSION, None, _DIGEST)) == (None, _DIGEST, b"")
    # Twelve bytes that are a vector, not a digest of a known version.
    body = {"paths_to_delete": [b"/abc"]}
    assert len(_payload(txns.CLOSE_SESSION, body)) == 32 + 12
    assert _back(_payload(txns.CLOSE_SESSION, body)) == (body, None, b"")


def test_create_of_older_versions() -> None:
    body = {**_NODE, "ephemeral": 1}
    assert _back(_payload(txns.CREATE, body)) == (body, None, b"")
    with pytest.raises(DescriptionError):
        PAYLOAD.unpack(_payload(txns.CREATE, body)[:-2])


def test_checksum_of_a_record_covers_neither_length_nor_mark() -> None:
    stored = RECORD.pack(
        {"payload": {**_HEAD, "type": txns.DELETE, "body": {"path": b"/a"}, "digest": _DIGEST}}
    )
    length = len(stored) - txns.OVERHEAD
    assert stored[:8] == zlib.adler32(stored[12:-1]).to_bytes(8, "big")
    assert stored[8:12] == length.to_bytes(4, "big")
    assert stored[-1:] == b"B"
    assert RECORD.check(stored, 0, len(stored)) == []
    flipped = stored[:20] + b"x" + stored[21:]
    assert [field for field, _, _ in RECORD.check(flipped, 0, len(flipped))] == ["checksum"]
    # Neither the length nor the mark are covered.
    assert RECORD.check(stored[:-1] + b"C", 0, len(stored)) == []
    longer = address.edit(
        RECORD,
        stored,
        ("payload", "body", "path"),
        lambda old, kind: b"\0\0\0\3/ab",
        reseal=True,
    )
    value, end = RECORD.unpack(longer)
    assert end == len(longer) == len(stored) + 1
    assert value["payload"]["body"] == {"path": b"/ab"}
    assert RECORD.check(longer, 0, end) == []


def test_file_header_round_trips() -> None:
    assert FILE_HEADER.pack({}) == b"ZKLG" + (2).to_bytes(4, "big") + bytes(8)
    assert txns.HEADER_SIZE == 16
    assert txns.TXN_HEADER == 32


def test_field_recipes_follow_the_descriptions() -> None:
    assert txns.RECIPES[txns.DELETE - txns.LOWEST] == txns.PATH
    assert txns.RECIPES[txns.CHECK - txns.LOWEST] == 0
    assert txns.SUB_RECIPES[txns.CHECK - txns.LOWEST] == txns.PATH | txns.NUMBER
    assert txns.NUMBER_OF[txns.CREATE] == "parent_cversion"
    assert txns.NUMBER_OF[txns.CREATE_SESSION] == "time_out"
    with pytest.raises(TypeError, match="another order"):
        txns.recipe(Struct("Odd", Field("version", U8), Field("path", U8)))
