"""Randomly damaged golden ZooKeeper directories."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable
from typing import Any

from memory_directory import MemoryDirectory
from zookeeper_startup import GOLDEN, data_directory, memory_of

from logwright.codec.zookeeper.names import log_name, parse, snapshot_name

Files = dict[str, bytearray]
CASES = [
    path.parent.name for path in sorted(GOLDEN.glob("*/case.json")) if not path.parent.name.startswith(("dmg_", "split"))
]  # fmt: skip
CASES += ["dmg_base"] * 5
RUNS = int(os.environ.get("LOGWRIGHT_ORACLE_RUNS", "150"))


def anywhere(files: Files, chance: random.Random) -> None:
    """Change some bytes of a file, or all of it."""
    name = chance.choice(sorted(files))
    data = files[name]
    used = len(data.rstrip(b"\0")) + 40
    kind = chance.choice(["flip", "flip", "flip", "byte", "zeros", "cut", "more", "gone", "empty"])
    at = min(chance.randrange(used), max(len(data) - 1, 0))
    if kind == "gone":
        del files[name]
    elif kind == "more":
        data += chance.choice([bytes(chance.randrange(1, 900)), chance.randbytes(50), b"\0\0\0\1/"])
    elif kind == "cut":
        del data[at:]
    elif kind == "empty":
        del data[chance.choice([0, 0, 3, 9, 12, 16]) :]
    elif data:
        length = min(len(data) - at, chance.choice([1, 4, 12, 200])) if kind == "zeros" else 1
        if kind == "flip":
            data[at] ^= 1 << chance.randrange(8)
        else:
            data[at : at + length] = (
                bytes(length) if kind == "zeros" else bytes([chance.choice([0, 1, 127, 255])])
            )


def records(data: bytearray) -> list[tuple[int, int]]:
    """Return the starts of payloads and their sizes."""
    actual = []
    at = 16
    while at + 13 <= len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if size < 32 or at + 13 + size > len(data):
            break
        actual.append((at + 12, size))
        at += 13 + size
    return actual


def sealed_again(files: Files, chance: random.Random) -> None:
    """Change a transaction or a snapshot and recompute its checksum."""
    name = chance.choice(sorted(files))
    (_record if name.startswith("log") else _snapshot)(files[name], chance)


def _odd(data: bytearray, low: int, high: int, chance: random.Random) -> None:
    """Change a number or a byte."""
    if chance.random() < 0.5 and high - low >= 4:
        at = chance.randrange(low, high - 3)
        data[at : at + 4] = chance.choice([-1, 0, 1, 2, 3, -2, 7, 1 << 21, 0x7FFFFFFF]).to_bytes(
            4, "big", signed=True
        )
    else:
        data[chance.randrange(low, high)] ^= 1 << chance.randrange(8)


def _record(data: bytearray, chance: random.Random) -> None:
    places = records(data)
    if not places:
        return
    at, size = chance.choice(places)
    payload = bytearray(data[at : at + size])
    kind = chance.random()
    if kind < 0.2:
        # Another type.
        types = [-11, -10, -1, 1, 2, 5, 7, 13, 14, 15, 16, 19, 20, 21, 99]
        payload[28:32] = chance.choice(types).to_bytes(4, "big", signed=True)
    elif kind < 0.35:
        payload = payload[: -chance.randrange(1, 20)] or payload
    elif kind < 0.45:
        payload += chance.randbytes(chance.randrange(1, 16))
    else:
        _odd(payload, chance.choice([0, 28, 32, 32, 32, 32]) if size > 36 else 0, size, chance)
    head = zlib.adler32(payload).to_bytes(8, "big") + len(payload).to_bytes(4, "big")
    data[at - 12 : at + size + 1] = head + payload + b"B"


def _snapshot(data: bytearray, chance: random.Random) -> None:
    if len(data) < 60 or data[:4] != b"ZKSN":
        return
    end = len(data) - 54 - 18
    if data[end : end + 5] != b"\0\0\0\1/":
        return
    _odd(data, chance.choice([16, 20, 40]), end, chance)
    if chance.random() < 0.2:
        del data[chance.choice([end + 18, end + 18 + 33]) :]
    for at in (end + 5, end + 18 + 20, end + 18 + 33 + 8):
        if at + 13 <= len(data):
            data[at : at + 8] = zlib.adler32(data[:at]).to_bytes(8, "big")


def renamed(files: Files, chance: random.Random) -> None:
    """Rename a file, or give it a second name."""
    name = chance.choice(sorted(files))
    named = parse(name)
    if named is None:
        return
    make = log_name if named.kind == "log" else snapshot_name
    zxid = named.zxid + chance.choice([-1, 1, 3, 0])
    new = chance.choice(
        [make(zxid), f"{make(zxid)}.bak", f"{make(zxid)}.gz", f"{named.kind}.xyz", f"{named.kind}.-5"]
    )
    files[new] = bytearray(files[name]) if chance.random() < 0.5 else files.pop(name)


DAMAGES: tuple[Callable[[Files, random.Random], None], ...] = (
    anywhere,
    anywhere,
    sealed_again,
    sealed_again,
    renamed,
)


SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"extendedTypesEnabled": True},
    {"extendedTypesEnabled": True},
    {"digest.enabled": False, "serializeLastProcessedZxid.enabled": False},
    {"closeSessionTxn.enabled": False, "snapshot.trust.empty": True, "jute.maxbuffer": 1024},
)
"""Properties of servers, those of most servers more often."""


def directory_of(seed: int) -> tuple[MemoryDirectory, dict[str, Any]]:
    """Return a damaged directory and a server's properties."""
    chance = random.Random(seed)
    directory = memory_of(chance.choice(CASES))
    files = {name: bytearray(data) for name, data in directory.files.items() if not name.endswith("Epoch")}
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        if files:
            chance.choice(DAMAGES)(files, chance)
    return data_directory({name: bytes(data) for name, data in files.items()}), chance.choice(SETTINGS)


def twice(directory: MemoryDirectory) -> bool:
    """Return whether two logs, or two snapshots, have the same zxid."""
    named = [(item.kind, item.zxid) for item in map(parse, directory.files) if item is not None]
    return len(set(named)) < len(named)
