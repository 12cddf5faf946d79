"""What is said where a server meets null: the "helpful" message of its NullPointerException, as Java has it since 15.

Source: `DataTree.processTxn`, `createNode`, `deleteNode`, `setData`, `ReferenceCountedACLCache`, `Id.hashCode` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from logwright.codec.describe import DescriptionError
from logwright.codec.zookeeper.formats.txnlog.layout import (
    CHECK,
    CLOSE_SESSION,
    ERROR,
    MULTI,
    PAYLOAD,
    RECONFIG,
    SET_ACL,
    SET_DATA,
)
from logwright.codec.zookeeper.startup.exceptions import NullPointer

BYTES = 'Cannot read the array length because "bytes" is null'
"""Of a transaction without bytes in the log; of a quota's stats without data."""
_INVOKE = 'Cannot invoke "{}" because "{}" is null'
_TAKEN_APART = _INVOKE.format("String.lastIndexOf(int)", "path")
_LOOKED_UP = _INVOKE.format("Object.hashCode()", "key")
_LIST = _INVOKE.format("java.util.List.iterator()", "txns")
_ARRAY = 'Cannot read the array length because "array" is null'


def in_acls(lists: Iterable[Iterable[Mapping[str, Any]] | None]) -> NullPointer | None:
    """The first name in these lists that is null: lists are kept by what is in them."""
    for entries in lists:
        for one in entries or ():
            for name in ("scheme", "id"):
                if one[name] is None:
                    return NullPointer(_INVOKE.format("String.hashCode()", f"this.{name}"))
    return None


def in_txn(payload: bytes) -> NullPointer:
    """What a transaction is that a server dies of for something that is null."""
    try:
        txn, _ = PAYLOAD.unpack(payload)
    except DescriptionError:
        return NullPointer(_ARRAY)  # a part of a multi without bytes is none that the description knows
    kind, body = txn["type"], txn["body"]
    if kind == MULTI:
        if body["txns"] is None:
            return NullPointer(_LIST)
        parts = [(one["type"], one["data"]) for one in body["txns"]]
    else:
        parts = [(kind, body)]
    for part, fields in parts:
        found = _in_body(part, fields)
        if found is not None:
            return NullPointer(found)
    return NullPointer(BYTES)


def _in_body(kind: int, body: Any) -> str | None:
    if not isinstance(body, Mapping) or kind in (CHECK, ERROR):
        return None
    if kind == CLOSE_SESSION:
        return _TAKEN_APART if None in (body["paths_to_delete"] or ()) else None
    if "path" in body and body["path"] is None:
        return _LOOKED_UP if kind in (SET_DATA, RECONFIG, SET_ACL) else _TAKEN_APART
    acls = in_acls([[{**one, **one["id"]} for one in body.get("acl") or ()]])
    return None if acls is None else acls.message
