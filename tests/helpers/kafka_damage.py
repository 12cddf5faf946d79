"""Random damage to Kafka partitions, by seed, to compare our verdicts with Kafka's loader."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from logwright.codec.kafka.formats.log.layout import HEAD_SIZE, LENGTH_END

BASES = (
    "dmg_base", "dmg_tbase", "v2_rolled", "v2_epochs", "craft_spec22", "v2_compacted_producers", "killed_txn", "v2_idempotent",
    "v2_none_java",
)  # fmt: skip
NAMES = (
    "00000000000000000000.log.swap", "00000000000000000005.log", "7.log", "00000000000000000030.log.cleaned",
    "00000000000000000030.index", "README", "00000000000000000058.log.deleted", "00000000000000000012.snapshot", "x.snapshot",
)  # fmt: skip
KINDS = (
    "flip", "flip", "flip", "head", "cut", "zero", "insert", "drop", "remove", "tail", "copy", "other", "repeat", "exchange",
)  # fmt: skip


def damage(directory: Path, rng: random.Random) -> list[tuple[str, ...]]:
    """Make one to three edits of any kind. Return them."""
    done: list[tuple[str, ...]] = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        names = sorted(child.name for child in directory.iterdir())
        logs = [name for name in names if name.endswith(".log") and (directory / name).stat().st_size]
        kind = rng.choice(KINDS)
        name = rng.choice(names if kind in ("remove", "copy", "other", "exchange") or not logs else logs)
        path = directory / name
        if kind == "remove":
            path.unlink()
            done.append((kind, name))
            continue
        if kind in ("copy", "exchange"):
            to, source = (rng.choice(NAMES), name) if kind == "copy" else (name, rng.choice(names))
            if to != source:
                shutil.copy(directory / source, directory / to)
            done.append((kind, source, to))
            continue
        path.write_bytes(edited(kind, bytearray(path.read_bytes()), rng))
        done.append((kind, name))
    return done


def edited(kind: str, data: bytearray, rng: random.Random) -> bytes:
    if kind in ("flip", "other") and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "head" and data:
        at = min(rng.choice(starts(data)) + rng.randrange(HEAD_SIZE), len(data) - 1)
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "cut" and data:
        del data[rng.randrange(len(data)) :]
    elif kind == "zero" and data:
        at = rng.randrange(len(data))
        length = min(rng.randrange(1, 100), len(data) - at)
        data[at : at + length] = bytes(length)
    elif kind == "insert":
        at = rng.randrange(len(data) + 1)
        data[at:at] = rng.randbytes(rng.randrange(1, 60))
    elif kind == "drop" and data:
        at = rng.randrange(len(data))
        del data[at : at + rng.randrange(1, 200)]
    elif kind == "tail":
        data += bytes(rng.randrange(1, 200)) if rng.random() < 0.5 else rng.randbytes(rng.randrange(1, 60))
    elif kind == "repeat":
        data += data[: starts(data)[1]] if len(starts(data)) > 1 else b""
    return bytes(data)


def starts(data: bytearray) -> list[int]:
    out, at = [0], 0
    while at + HEAD_SIZE <= len(data):
        at += LENGTH_END + max(HEAD_SIZE, int.from_bytes(data[at + 8 : at + 12], "big"))
        out.append(at)
    return out[:-1] or out
