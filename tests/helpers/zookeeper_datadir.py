"""Data directories: golden ones, and some written file by file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import logwright as lw
from logwright.codec.zookeeper.formats.txnlog.layout import EOR
from logwright.codec.zookeeper.names import log_name, snapshot_name

GOLDEN = Path(__file__).resolve().parents[2] / "corpora/golden/zookeeper"
CASES = sorted(path.parent.name for path in GOLDEN.glob("*/case.json"))


def truth(case: str, name: str = "truth.jsonl") -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what the real server answered: the result of its start, and the nodes that a client saw then."""
    lines = [json.loads(line) for line in (GOLDEN / case / name).read_text().splitlines()]
    return lines[0], [line for line in lines[1:] if line["kind"] == "node"]


def copy(case: str, to: Path) -> Path:
    """Copy a case's version-2 to a folder of the same name."""
    shutil.copytree(GOLDEN / case / "version-2", to / "version-2")
    return to / "version-2"


def write_log(
    folder: Path, rows: Sequence[Mapping[str, Any]], name: str | None = None, **options: Any
) -> Path:
    """Write a log of these transactions."""
    path = folder / (name or log_name(rows[0]["zxid"]))
    lw.write([dict(row) for row in rows], path, "zookeeper.txnlog", **options)
    return path


def write_snapshot(
    folder: Path, zxid: int, nodes: Sequence[Mapping[str, Any]] = (), suffix: str = ""
) -> Path:
    """Write a snapshot of these nodes."""
    path = folder / (snapshot_name(zxid) + suffix)
    lw.write([dict(row) for row in nodes], path, "zookeeper.snapshot")
    return path


def create(zxid: int, path: str, data: bytes = b"", session: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "zxid": zxid,
        "session_id": session,
        "type": "create",
        "path": path,
        "data": data,
        "ephemeral": False,
        **more,
    }


def set_data(zxid: int, path: str, data: bytes, version: int) -> dict[str, Any]:
    return {"zxid": zxid, "session_id": 1, "type": "setData", "path": path, "data": data, "version": version}


def delete(zxid: int, path: str) -> dict[str, Any]:
    return {"zxid": zxid, "session_id": 1, "type": "delete", "path": path}


def spoil(path: Path, row: int) -> None:
    """Damage the end mark of a transaction: a server stops reading there without an error."""
    frames = lw.read(
        path, view="frames", mode="DROPMALFORMED", columns=["position", "size", "kind"]
    ).to_pylist()
    frame = [frame for frame in frames if frame["kind"] == "transaction"][row]
    at = frame["position"] + frame["size"] - 1
    data = bytearray(path.read_bytes())
    assert data[at] == EOR
    data[at] ^= 0xFF
    path.write_bytes(data)


def paths(table: pa.Table) -> list[str]:
    rows: list[str] = table.column("path").to_pylist()
    return rows
