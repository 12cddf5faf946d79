"""ZooKeeper transaction logs for tests: golden ones, and ones built from payloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from logwright.codec.fault import Fault, Severity
from logwright.codec.zookeeper.formats.txnlog import layout as txns
from logwright.codec.zookeeper.formats.txnlog.codec import CODEC
from logwright.codec.zookeeper.formats.txnlog.layout import FILE_HEADER, PAYLOAD
from logwright.codec.zookeeper.formats.txnlog.rows import ROWS
from logwright.corpora import cases
from logwright.roundtrip.specimen import Specimen

CASES = cases.cases("zookeeper")

FILES = [
    path for case in CASES.values() for path in sorted(case.path.rglob("log.*")) if "tools" not in path.parts
]


def file_id(path: Path) -> str:
    return "/".join(path.parts[-3:])


def golden_log(case: str, name: str = "log.17") -> Specimen:
    return Specimen.of(CASES[case].path / "version-2" / name)


def specimen_of(data: bytes, name: str = "log.1", **options: Any) -> Specimen:
    return Specimen.of(data, CODEC, name, **options)


def faults_of(specimen: Specimen) -> list[Fault]:
    """Return all faults except preallocated zeros."""
    return [fault for fault in specimen.read().report.faults if fault.severity is not Severity.INFO]


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    names = [name for name in ROWS.names(detail=True) if any(name in row for row in rows)]
    return pa.Table.from_pylist(rows, ROWS.schema(names))


def log_of(*payloads: bytes) -> bytes:
    return FILE_HEADER.pack({}) + b"".join(record_of(payload) for payload in payloads)


def record_of(payload: bytes) -> bytes:
    import zlib

    return zlib.adler32(payload).to_bytes(8, "big") + len(payload).to_bytes(4, "big") + payload + b"B"


def payload_of(zxid: int, kind: int = txns.ERROR, body: Any = None, **more: Any) -> bytes:
    body = {"err": -101} if body is None else body
    return PAYLOAD.pack(
        {
            "client_id": 7,
            "cxid": 1,
            "zxid": zxid,
            "time": 1700000000000 + zxid,
            "type": kind,
            "body": body,
            **more,
        }
    )


def with_damage(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


EMPTY = specimen_of(b"")


def body_payload(kind: int, body: bytes) -> bytes:
    complete = payload_of(1)[:-4]
    return complete[:28] + kind.to_bytes(4, "big", signed=True) + body
