"""Hypothesis strategies for the formats of ZooKeeper. See `logwright.roundtrip.strategies`."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from logwright.codec import registry
from logwright.codec.describe import Struct
from logwright.codec.zookeeper.formats.snapshot.acl import ACLS
from logwright.codec.zookeeper.formats.snapshot.layout import NODE
from logwright.codec.zookeeper.formats.snapshot.sections import (
    DIGEST,
    END,
    HEADER,
    LAST_PROCESSED,
    SEAL_SIZE,
    SESSIONS,
)
from logwright.codec.zookeeper.formats.txnlog.layout import (
    BODIES,
    CLOSE_SESSION,
    CREATE,
    CREATE_TXN_V0,
    ERROR,
    FILE_HEADER,
    RECORD,
    SUB_BODIES,
    TYPE_NAMES,
)

Strategy = st.SearchStrategy[Any]

INT31 = st.one_of(st.integers(0, 9), st.integers(-(1 << 31), (1 << 31) - 1))
INT63 = st.one_of(st.integers(0, 99), st.integers(0, (1 << 63) - 1))
TIMES = st.one_of(st.integers(0, 10**13), st.just(-1))
_WORDS = st.sampled_from(["a", "b", "node-1", "\u00e9", "\u6570", "lock", "x.y"])
PATHS = st.lists(_WORDS, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
_BYTES = st.one_of(st.none(), st.binary(max_size=30))
# A server does not read larger values as they were written.
_TEXT = st.text(st.characters(max_codepoint=0xD7FF), max_size=5)
_LISTS = st.lists(
    st.fixed_dictionaries(
        {"perms": st.integers(0, 31), "scheme": st.sampled_from(["world", "ip", "sasl"]), "id": _TEXT}
    ),
    max_size=2,
)


# Rows


@st.composite
def _txn_rows(draw: Any) -> pa.Table:
    zxid = draw(st.sampled_from([1, 0x100000001, 0x7FFFFFFF00000001]))
    rows = []
    for _ in range(draw(st.integers(0, 12))):
        row = {
            "zxid": zxid,
            "session_id": draw(INT63),
            "cxid": draw(INT31),
            "time_ms": draw(TIMES),
            **draw(_TXN_ROW),
        }
        if row["type"] != "error" and draw(st.booleans()):
            row |= {"digest_version": 2, "tree_digest": draw(INT63)}
        rows.append(row)
        zxid += 1
    table = registry.get("zookeeper.txnlog").tables["rows"]
    names = [name for name in table.names(detail=True) if any(name in row for row in rows)] or [
        "zxid",
        "type",
    ]
    return pa.Table.from_pylist(rows, schema=table.schema(names))


def _rows_of(bodies: Mapping[int, Struct], columns: Mapping[str, Strategy]) -> tuple[Strategy, ...]:
    """Generate rows of these types, each with the columns of its body."""
    return tuple(
        st.fixed_dictionaries({"type": st.just(TYPE_NAMES[kind]), **_fields_of(body, columns)})
        for kind, body in bodies.items()
    )


def _fields_of(body: Struct, values: Mapping[str, Strategy]) -> dict[str, Strategy]:
    return {field.name: values.get(field.name, INT31) for field in body.fields}


_COLUMNS: dict[str, Strategy] = {
    "path": PATHS, "data": _BYTES, "acl": _LISTS, "ephemeral": st.booleans(), "ttl": INT63, "err": st.sampled_from([-2, -101, -110]),
    "paths_to_delete": st.lists(PATHS, max_size=3),
}  # fmt: skip
_TXN_ROW = st.one_of(
    *_rows_of(BODIES, _COLUMNS | {"txns": st.lists(st.one_of(*_rows_of(SUB_BODIES, _COLUMNS)), max_size=3)})
)


@st.composite
def _node_rows(draw: Any) -> pa.Table:
    """Generate a complete tree in order, with all attributes of nodes."""
    paths = {"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"}
    for path in draw(st.lists(PATHS, max_size=8)):
        while path:
            paths.add(path)
            path = path.rpartition("/")[0]
    rows = []
    for path in sorted(paths, key=lambda item: item.replace("/", "\0").encode()):
        kind = draw(st.sampled_from(["persistent", "persistent", "ephemeral", "container", "ttl"]))
        rows.append(
            {
                "path": path, "data": draw(_BYTES), "acl": draw(_LISTS), "czxid": draw(INT63), "mzxid": draw(INT63),
                "ctime_ms": draw(INT63), "mtime_ms": draw(INT63), "version": draw(INT31), "stored_cversion": draw(INT31),
                "aversion": draw(INT31), "pzxid": draw(INT63), "kind": kind,
                "ephemeral_owner": draw(st.integers(1, 1 << 60)) if kind == "ephemeral" else 0,
                "ttl": draw(st.integers(1, (1 << 40) - 1)) if kind == "ttl" else None,
            }
        )  # fmt: skip
    table = registry.get("zookeeper.snapshot").tables["rows"]
    return pa.Table.from_pylist(rows, schema=table.schema(list(rows[0])))


def _number(codec: str, column: str, numbers: Strategy) -> Strategy:
    schema = registry.get(codec).tables["rows"].schema()
    return numbers.map(lambda number: pa.table({column: [number]}, schema=schema))


NAMES: dict[str, str] = {
    "zookeeper.txnlog": "log.1",
    "zookeeper.snapshot": "snapshot.5",
    "zookeeper.accepted_epoch": "acceptedEpoch",
    "zookeeper.current_epoch": "currentEpoch",
    "zookeeper.myid": "myid",
}
"""The names of the files that the laws are checked on."""
ROWS: dict[str, Callable[[], Strategy]] = {
    "zookeeper.txnlog": _txn_rows,
    "zookeeper.snapshot": _node_rows,
    "zookeeper.accepted_epoch": lambda: _number("zookeeper.accepted_epoch", "epoch", INT63),
    "zookeeper.current_epoch": lambda: _number("zookeeper.current_epoch", "epoch", INT63),
    "zookeeper.myid": lambda: _number("zookeeper.myid", "myid", st.integers(1, 255)),
}
OPTIONS: dict[str, Callable[[], Strategy]] = {
    "zookeeper.snapshot": lambda: st.fixed_dictionaries(
        {"digest.enabled": st.booleans(), "serializeLastProcessedZxid.enabled": st.booleans()}
    )
}


# Files

_STORED = PATHS.map(str.encode)


def _fields(**fields: Strategy) -> Strategy:
    return st.fixed_dictionaries(fields)


_ID = _fields(scheme=st.sampled_from([b"world", b"ip"]), id=st.sampled_from([b"anyone", b"", b"10.0.0.1"]))
_ACL = st.lists(_fields(perms=st.integers(0, 31), id=_ID), max_size=2)


_STORED_FIELDS: dict[str, Strategy] = {
    "path": _STORED, "data": _BYTES, "acl": st.none() | _ACL, "ephemeral": st.integers(0, 1), "ttl": INT63,
    "paths_to_delete": st.lists(_STORED, max_size=3),
}  # fmt: skip
_SUB = st.one_of(
    *(
        _fields(type=st.just(kind), data=_fields(**_fields_of(body, _STORED_FIELDS)))
        for kind, body in SUB_BODIES.items()
    )
)
_STORED_FIELDS["txns"] = st.lists(_SUB, max_size=3)
_BODIES = {kind: _fields(**_fields_of(body, _STORED_FIELDS)) for kind, body in BODIES.items()}
_BODIES[CREATE] |= _fields(**_fields_of(CREATE_TXN_V0, _STORED_FIELDS))
_BODIES[CLOSE_SESSION] |= st.none()
_DIGEST = st.none() | _fields(version=st.just(2), tree_digest=INT63)


@st.composite
def _log(draw: Any) -> bytes:
    out = bytearray(FILE_HEADER.pack({"version": draw(st.sampled_from([2, 9]))}))
    zxid = draw(st.sampled_from([1, 0x500000001]))
    for kind in draw(st.lists(st.sampled_from(sorted(_BODIES)), max_size=8)):
        body = draw(_BODIES[kind])
        # The old form of a create is recognised by its end, which a digest would hide.
        short = kind == CREATE and "parent_cversion" not in body
        payload = {
            "client_id": draw(INT63), "cxid": draw(INT31), "zxid": zxid, "time": draw(st.integers(0, 10**13)), "type": kind,
            "body": body, "digest": None if short or kind == ERROR else draw(_DIGEST),
        }  # fmt: skip
        out += RECORD.pack({"payload": payload})
        zxid += 1
    return bytes(out)


@st.composite
def _snapshot(draw: Any) -> bytes:
    """Generate the three forms that servers have written, with ACL numbers that are in the table or not."""
    sessions = draw(st.lists(_fields(id=INT63, timeout=INT31), max_size=3))
    acls = [{"id": number, "acl": draw(_ACL)} for number in range(1, draw(st.integers(1, 4)))]
    out = bytearray(HEADER.pack({}) + SESSIONS.pack({"sessions": sessions}) + ACLS.pack({"entries": acls}))
    paths = {"", "/zookeeper"} | set(draw(st.lists(_WORDS.map(lambda word: f"/{word}"), max_size=5)))
    for path in sorted(paths):
        stat = {
            name: draw(INT63) for name in ("czxid", "mzxid", "ctime", "mtime", "ephemeral_owner", "pzxid")
        }
        stat |= {name: draw(INT31) for name in ("version", "cversion", "aversion")}
        acl = draw(st.sampled_from([-1, *(entry["id"] for entry in acls)]))
        out += NODE.pack({"path": path.encode(), "data": draw(_BYTES), "acl": acl, "stat": _likely(stat)})
    _seal(out, END.pack({"checksum": 0}))
    for section in draw(st.sampled_from([(), (DIGEST,), (DIGEST, LAST_PROCESSED), (LAST_PROCESSED,)])):
        fields = (
            {"zxid": 5, "digest_version": 2, "digest": draw(INT63)}
            if section is DIGEST
            else {"last_processed_zxid": 5}
        )
        _seal(out, section.pack({**fields, "checksum": 0}))
    return bytes(out)


def _likely(stat: dict[str, int]) -> dict[str, int]:
    """Generate plausible times, with changes after creation. Others are only accepted if more nodes follow."""
    return stat | {
        "ctime": stat["ctime"] % 10**13,
        "mtime": stat["mtime"] % 10**13,
        "mzxid": max(stat["czxid"], stat["mzxid"]),
    }


def _seal(out: bytearray, section: bytes) -> None:
    body = section[:-SEAL_SIZE]
    out += body
    out += zlib.adler32(bytes(out)).to_bytes(8, "big") + section[-SEAL_SIZE + 8 :]


FILES: dict[str, Callable[[], Strategy]] = {"zookeeper.txnlog": _log, "zookeeper.snapshot": _snapshot}
