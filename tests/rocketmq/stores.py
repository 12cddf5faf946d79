"""Stores that tests write, copies of golden stores, and what is read from them."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

from golden_stores import CASES, HEALTHY, store

import logwright as lw
from logwright.codec.fault import Severity

INDEX = {"maxHashSlotNum": 8, "maxIndexNum": 10}
"""Sizes of index files. One of the default size takes 420 MB, which each step of a test reads."""
SIZES = {"mappedFileSizeCommitLog": 1024, "mappedFileSizeConsumeQueue": 100, **INDEX}


LARGER = {**SIZES, "mappedFileSizeCommitLog": 1 << 16, "mappedFileSizeConsumeQueue": 2000}
"""Sizes of files that hold all messages of a test."""


ROWS = [
    {"topic": f"T{n % 2}", "queue_id": n % 3, "keys": f"k{n}", "tags": "a", "store_timestamp_ms": 1_700_000_000_000 + 700 * n,
     "body": b"x" * (n * 37 % 300)}
    for n in range(40)
]  # fmt: skip


SOUND = [name for name in HEALTHY if not name.startswith("hand")]


def placed(case: str, tmp_path: Path) -> Path:
    """Copy a golden store and return its path."""
    home = tmp_path / case
    for name, path in store(case).items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        if name == "timerwheel.gz":
            (home / "timerwheel").write_bytes(gzip.decompress(path.read_bytes()))
        else:
            shutil.copyfile(path, home / name)
    home.mkdir(exist_ok=True)
    return home


def path_options(case: str, home: Path) -> dict[str, Any]:
    """Return the option for several commit log paths, if the store has them."""
    paths = CASES[case]["config"].get("storePathCommitLog")
    return {} if paths is None else {"storePathCommitLog": paths.replace("@ROOT@", str(home))}


def sizes(case: str, home: Path) -> dict[str, Any]:
    config = CASES[case]["config"]
    known = ("mappedFileSizeConsume", "mappedFileSizeCommit", "mapperFile", "maxHash", "maxIndex")
    return {name: value for name, value in config.items() if name.startswith(known)} | path_options(
        case, home
    )


def real_rows(path: Path, **options: Any) -> list[int]:
    """Return the physical offsets of messages, without placeholders and fillers."""
    rows = lw.read(path, "rocketmq.store", columns="*", mode="DROPMALFORMED", **options).to_pylist()
    marked = [any(entry["key"] == "LW_LOST" for entry in row["properties"]) for row in rows]
    return sorted(
        row["physical_offset"]
        for row, lost in zip(rows, marked, strict=True)
        if not lost and (row["topic"] or row["tags"])
    )


def faults_of(store: Path) -> list[tuple[str, int, str]]:
    """Return path, offset and text of the errors and warnings of a check."""
    return [
        (path, fault.offset, fault.detail) for path, fault in lw.verify(store).faults if fault.severity is not Severity.INFO
    ]  # fmt: skip


def flip(path: Path, place: int) -> None:
    """Flip the lowest bit of a byte."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def set_bytes(path: Path, at: int, new: bytes) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:at] + new + data[at + len(new) :])


TIME = 1_700_000_000_000


def batch(number: int, count: int) -> dict[str, Any]:
    """Return a row with an inner batch of `count` messages."""
    inner = {"INNER_NUM": str(count), "INNER_BASE": str(number)} if count > 1 else {}
    return {
        "topic": "B", "queue_id": 1, "queue_offset": number, "sys_flag": 0xC0 if count > 1 else 0, "body": b"x" * 50,
        "store_timestamp_ms": TIME + number, "properties": [{"key": key, "value": value} for key, value in inner.items()],
    }  # fmt: skip


def light(number: int) -> dict[str, Any]:
    """Return a row that is also in a light message queue."""
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(number)}
    return {
        "topic": "T", "queue_id": 0, "body": b"y", "store_timestamp_ms": TIME + number,
        "properties": [{"key": key, "value": value} for key, value in properties.items()],
    }  # fmt: skip
