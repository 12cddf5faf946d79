"""Stores with secret rows, for the tests of `edit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import logwright as lw
from logwright.codec.kernels.compress import decompress

ROWS = 2000


def flat_text(report: lw.Report) -> str:
    """Return the text of a report without its line breaks, which depend on the length of the path."""
    return " ".join(report.text().split())


def secret(number: int) -> bytes:
    return b"SECRET-of-%04d-" % number


def write_users(path: Path, count: int = ROWS, **options: Any) -> Path:
    rows = pa.table(
        {"key": [b"user-%05d" % n for n in range(count)], "value": [secret(n) for n in range(count)]}
    )
    lw.write(rows, path, "leveldb.db", max_file_size="32k", **options)
    return path


def all_bytes(path: Path) -> bytes:
    """Return all bytes of a directory's files, as stored and decompressed."""
    out = b""
    for child in sorted(path.iterdir()):
        out += child.read_bytes()
        if lw.detect(child) == "kafka.log":
            batches_by_offset = lw.read(child, view="frames", columns="position,size,compression")
            data = child.read_bytes()
            for frame in batches_by_offset.to_pylist():
                if frame["compression"] != "none" and frame["size"] > 61:
                    stored = data[frame["position"] + 61 : frame["position"] + frame["size"]]
                    out += decompress(
                        frame["compression"], np.frombuffer(stored, np.uint8), 1 << 26
                    ).tobytes()
        elif lw.detect(child) in ("leveldb.table", "leveldb.log"):
            for row in lw.read(child, columns="key,value").to_pylist():
                out += row["key"] + (row["value"] or b"")
    return out


def batches_by_offset(path: Path) -> dict[int, bytes]:
    """Return the batches of all logs of a partition by base offset."""
    out = {}
    for log in sorted(path.glob("*.log")):
        data = log.read_bytes()
        for frame in lw.read(log, view="frames", columns="position,size,base_offset").to_pylist():
            out[frame["base_offset"]] = data[frame["position"] : frame["position"] + frame["size"]]
    return out
