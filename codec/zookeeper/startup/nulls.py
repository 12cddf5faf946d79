"""The messages of a server's NullPointerException: the "helpful" messages of Java 15 and later.

Source: `DataTree.processTxn`, `createNode`, `deleteNode`, `setData`, `ReferenceCountedACLCache`, `Id.hashCode` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from logwright.codec.describe import DescriptionError
from logwright.codec.zookeeper.formats.txnlog import layout
from logwright.codec.zookeeper.startup.exceptions import NullPointer

BYTES = 'Cannot read the array length because "bytes" is null'
"""The messages for a transaction without bytes in the log, and for quota stats without data."""
_INVOKE = 'Cannot invoke "{}" because "{}" is null'
_TAKEN_APART = _INVOKE.format("String.lastIndexOf(int)", "path")
_LOOKED_UP = _INVOKE.format("Object.hashCode()", "key")
_LIST = _INVOKE.format("java.util.List.iterator()", "txns")
_ARRAY = 'Cannot read the array length because "array" is null'


def in_acls(lists: Iterable[Iterable[Mapping[str, Any]] | None]) -> NullPointer | None:
    """Return the first null name in these lists. Lists are keyed by their content."""
    for entries in lists:
        for entry in entries or ():
            for name in ("scheme", "id"):
                if entry[name] is None:
                    return NullPointer(_INVOKE.format("String.hashCode()", f"this.{name}"))
    return None


def in_txn(payload: bytes) -> NullPointer:
    """Return the message for a transaction with a null that ends the server."""
    try:
        txn, _ = layout.PAYLOAD.unpack(payload)
    except DescriptionError:
        return NullPointer(_ARRAY)  # the description has no multi part without bytes
    kind, body = txn["type"], txn["body"]
    if kind == layout.MULTI:
        if body["txns"] is None:
            return NullPointer(_LIST)
        parts = [(txn["type"], txn["data"]) for txn in body["txns"]]
    else:
        parts = [(kind, body)]
    for part, fields in parts:
        text = _in_body(part, fields)
        if text is not None:
            return NullPointer(text)
    return NullPointer(BYTES)


def _in_body(kind: int, body: Any) -> str | None:
    if not isinstance(body, Mapping) or kind in (layout.CHECK, layout.ERROR):
        return None
    if kind == layout.CLOSE_SESSION:
        return _TAKEN_APART if None in (body["paths_to_delete"] or ()) else None
    if "path" in body and body["path"] is None:
        return _LOOKED_UP if kind in (layout.SET_DATA, layout.RECONFIG, layout.SET_ACL) else _TAKEN_APART
    acls = in_acls([[{**entry, **entry["id"]} for entry in body.get("acl") or ()]])
    return None if acls is None else acls.message
