"""Random damage to Kafka partitions, by seed, to compare our verdicts with Kafka's loader."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
from kafka_log import data_batch, end_marker

import logwright as lw
from logwright.codec.kafka.formats.log.layout import COMPRESSION_NAMES, HEAD_SIZE, LENGTH_END, MIN_MESSAGE
from logwright.codec.kafka.formats.producer_snapshot import ENTRY, pack
from logwright.codec.kafka.names import METADATA_FILE, segment_name
from logwright.codec.kafka.store.assemble import rebase
from logwright.corpora.cases import cases

BASES = (
    "dmg_base", "dmg_tbase", "v2_rolled", "v2_epochs", "craft_spec22", "v2_compacted_producers", "killed_txn", "v2_idempotent",
    "v2_none_java",
)  # fmt: skip
OLD_BASES = (
    "v0_rolled", "v1_rolled", "v0_mixed_09", "v0_compacted", "v1_compacted", "v0_lz4", "v1_append_time_gzip", "mixed_v0_v1",
    "mixed_v0_v1_v2", "craft_magic_mix", "craft_v0_gzip_gaps", "craft_v1_wrapper_offset0", "craft_v1_partial_inner",
)  # fmt: skip
"""Partitions with messages of magic 0 and 1."""
LATER = ("v2_idempotent", "v2_epochs", "killed_txn", "dmg_tbase", "v2_append_time_lz4")
"""Partitions of magic 2 that may follow."""
NAMES = (
    "00000000000000000000.log.swap", "00000000000000000005.log", "7.log", "00000000000000000030.log.cleaned",
    "00000000000000000030.index", "README", "00000000000000000058.log.deleted", "00000000000000000012.snapshot", "x.snapshot",
)  # fmt: skip
KINDS = (
    "flip", "flip", "flip", "head", "cut", "zero", "insert", "drop", "remove", "tail", "copy", "other", "repeat", "exchange",
)  # fmt: skip
_FAR = (1 << 31, (1 << 31) + 5, 1 << 32, 1 << 40, 1 << 54, (1 << 31) - 3, 3)
"""Differences of offsets. An index can hold those below 2^31."""


def mixed_partition(directory: Path, rng: random.Random) -> None:
    """Write a partition of several magics and compressions: random runs of rows, often followed by the segments of a golden case."""
    magics, codecs = [], []
    for _ in range(rng.randrange(1, 9)):
        magic, codec, count = (
            rng.choice([0, 1, 0, 1, 2]),
            rng.choice(COMPRESSION_NAMES[:4]),
            rng.randrange(1, 25),
        )
        magics += [magic] * count
        codecs += [codec] * count
    count = len(magics)
    rows = pa.table(
        {
            "key": pa.array([rng.choice([None, b"", b"key-%d" % n]) for n in range(count)], pa.binary()),
            "value": pa.array([rng.randbytes(rng.randrange(40)) for _ in range(count)], pa.binary()),
            "timestamp_ms": pa.array(
                [1_700_000_000_000 + rng.randrange(5000) for _ in range(count)], pa.int64()
            ),
            "timestampType": pa.array([int(rng.random() < 0.1) for _ in range(count)], pa.int32()),
            "offset": pa.array(
                np.cumsum([rng.choice([1, 1, 1, 1, 4]) for _ in range(count)]) - 1, pa.int64()
            ),
            "magic": pa.array(magics, pa.int8()),
            "compression": pa.array(codecs, pa.string()),
        }
    )
    lw.write(rows, directory, "kafka.partition", segment_bytes=rng.choice([700, 900, 5000]), batch_size=rng.choice([100, 600]),
             index_interval_bytes=rng.choice([50, 250]))  # fmt: skip
    if rng.random() < 0.5:
        end = rows["offset"][-1].as_py() + 1 + rng.choice([0, 0, 3])
        for log in cases("kafka")[rng.choice(LATER)].partition.glob("*.log"):
            data = np.frombuffer(bytearray(log.read_bytes()), np.uint8)
            rebase(data, end, rng.randrange(3))
            (directory / segment_name(int(log.stem) + end, ".log")).write_bytes(data.tobytes())


def damage(directory: Path, rng: random.Random) -> list[tuple[str, ...]]:
    """Make one to three edits of any kind. Return them."""
    done: list[tuple[str, ...]] = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        names = sorted(child.name for child in directory.iterdir())
        logs = [name for name in names if name.endswith(".log") and (directory / name).stat().st_size]
        if not names:
            break
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
    while at + MIN_MESSAGE <= len(data):
        at += LENGTH_END + max(MIN_MESSAGE - LENGTH_END, int.from_bytes(data[at + 8 : at + 12], "big"))
        out.append(at)
    return out[:-1] or out


def shift_offsets(place: Path, rng: random.Random) -> list[object]:
    """Add to the offsets of some batches of one or two segments, mostly so much that a segment cannot hold them, and remove some of the
    files beside the segments. Return what was done."""
    done: list[object] = []
    for _ in range(rng.choice([1, 1, 2])):
        log = rng.choice(sorted(place.glob("*.log")))
        data = bytearray(log.read_bytes())
        starts = [0]
        while starts[-1] + LENGTH_END < len(data):
            at = starts[-1]
            starts.append(
                at + LENGTH_END + int.from_bytes(data[at + 8 : at + LENGTH_END], "big", signed=True)
            )
        batches = len(starts) - 1
        if not batches:
            continue
        first, by = rng.choice([0, 0, batches - 1, rng.randrange(batches)]), rng.choice(_FAR)
        last = rng.choice([first + 1, batches])
        for at in starts[first:last]:
            data[at : at + 8] = (int.from_bytes(data[at : at + 8], "big") + by).to_bytes(8, "big")
        log.write_bytes(data)
        done.append((log.name, first, last, by))
        for suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            file = log.with_suffix(suffix)
            if rng.random() < (0.7 if suffix == ".index" else 0.3) and file.exists():
                file.unlink()
                done.append(f"no {file.name}")
    return done


def colliding_transactions(place: Path, rng: random.Random) -> list[object]:
    """Replace the segments by transactions of three producers that often begin at the same offset, with snapshots of any content."""
    for path in place.iterdir():
        if path.name != METADATA_FILE:
            path.unlink()
    done: list[object] = []
    end = 0
    for _ in range(rng.randrange(1, 4)):
        base, batches = end, []
        for _ in range(rng.randrange(1, 8)):
            producer, kind = rng.randrange(3), rng.choice([None, None, 0, 1])
            batches.append(data_batch(end, producer) if kind is None else end_marker(end, producer, kind))
            done.append((end, producer, kind))
            end += rng.choice([0, 0, 1]) if kind is None else 1
        end += 1
        (place / segment_name(base, ".log")).write_bytes(b"".join(batches))
        if rng.random() < 0.7:
            (place / segment_name(base, ".index")).touch()
            (place / segment_name(base, ".timeindex")).touch()
    for _ in range(rng.randrange(3)):
        entries = np.zeros(rng.randrange(4), ENTRY)
        offset = rng.randrange(1, end + 1)
        entries["producer_id"] = rng.choices(range(4), k=len(entries))
        entries["current_txn_first_offset"] = rng.choices(range(-1, offset), k=len(entries))
        (place / segment_name(offset, ".snapshot")).write_bytes(pack(entries))
        done.append((offset, entries[["producer_id", "current_txn_first_offset"]].tolist()))
    return done
