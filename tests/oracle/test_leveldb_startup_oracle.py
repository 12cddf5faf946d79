"""Compare our simulated start with LevelDB itself on randomly damaged databases."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from leveldb_startup import dropped, iterated, open_listing, rows_of, status

from logwright.codec.leveldb.formats.records.layout import BLOCK, HEADER, RECORD
from logwright.codec.leveldb.formats.table.compression import sealed
from logwright.codec.leveldb.formats.table.index import INDEX, survey
from logwright.readers import listing
from logwright.roundtrip.oracles import leveldb as oracle

plyvel = pytest.importorskip("plyvel")
pytestmark = pytest.mark.oracle
Files = dict[str, bytearray]


@pytest.fixture(scope="module")
def leveldb() -> Iterator[oracle.LevelDB]:
    reason = oracle.available()
    if reason:
        pytest.skip(reason)
    with oracle.LevelDB() as item:
        yield item


def build(path: Path, chance: random.Random) -> None:
    """Write a database in several sessions with different options."""
    options: dict[str, Any] = {
        "compression": chance.choice([None, "snappy"]),
        "block_size": chance.choice([1024, 4096]),
        "block_restart_interval": chance.choice([1, 4, 16]),
        "write_buffer_size": chance.choice([65536, 4 << 20]),
    }
    for _ in range(chance.randrange(1, 4)):
        with plyvel.DB(str(path), create_if_missing=True, **options) as db:
            keys = chance.choice([20, 200, 2000])
            for _ in range(chance.choice([5, 50, 400, 1500])):
                key = b"k%05d" % chance.randrange(keys)
                kind = chance.random()
                if kind < 0.2:
                    db.delete(key)
                elif kind < 0.3:
                    with db.write_batch() as batch:
                        for _ in range(chance.randrange(6)):
                            batch.put(
                                b"k%05d" % chance.randrange(keys), chance.randbytes(chance.randrange(80))
                            )
                elif kind < 0.33:
                    db.put(key, chance.randbytes(chance.choice([3000, 40_000])))
                else:
                    db.put(
                        key,
                        chance.choice(
                            [b"abc " * chance.randrange(20), chance.randbytes(chance.randrange(200))]
                        ),
                    )
            if chance.random() < 0.3:
                db.compact_range()


def anywhere(files: Files, chance: random.Random) -> None:
    """Change some bytes of a file, or all of it."""
    name = chance.choice(sorted(files))
    data = files[name]
    kind = chance.choice(["flip", "flip", "flip", "byte", "zeros", "cut", "more", "gone"])
    near = chance.random() < 0.4
    at = len(data) - 1 - chance.randrange(min(len(data), 400)) if near and data else -1
    at = chance.randrange(max(len(data), 1)) if at < 0 else at
    if kind == "gone":
        del files[name]
    elif kind == "more":
        data += chance.choice([bytes(chance.randrange(1, 9000)), chance.randbytes(100)])
    elif kind == "cut":
        del data[at:]
    elif data:
        length = min(len(data) - at, chance.choice([1, 8, 64, 4096])) if kind == "zeros" else 1
        data[at : at + length] = bytes(length)
        if kind != "zeros":
            data[at] ^= 1 << chance.randrange(8)


def sealed_again(files: Files, chance: random.Random) -> None:
    """Change bytes of a block or of a record and recompute its checksum."""
    name = chance.choice([file for file in sorted(files) if file != "CURRENT" and files[file]] or ["CURRENT"])
    if name == "CURRENT":
        return
    (_block if name.endswith(".ldb") else _record)(files[name], chance)


def _block(data: bytearray, chance: random.Random) -> None:
    array = np.frombuffer(bytes(data), np.uint8)
    actual = survey(lambda at, size: array[at : at + size], len(data), 1 << 30)
    if not len(actual.offset):
        return  # the damage before left none
    i = chance.randrange(len(actual.offset))
    index = np.flatnonzero(actual.kind == INDEX)
    if chance.random() < 0.4 and len(index):
        i = int(index[0])
    start, size = int(actual.offset[i]), int(actual.size[i])
    for _ in range(chance.choice([1, 1, 3])):
        place = size - chance.randrange(1, 12) if chance.random() < 0.4 else chance.randrange(size + 1)
        data[start + max(place, 0)] ^= 1 << chance.randrange(8)
    data[start : start + size + 5] = sealed(bytes(data[start : start + size]), data[start + size])


def _record(data: bytearray, chance: random.Random) -> None:
    places = []
    at = 0
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        size = int.from_bytes(data[at + 4 : at + 6], "little")
        places.append((at, size))
        at += HEADER + size
    if not places:
        return
    at, size = chance.choice(places)
    kind, payload = data[at + 6], bytearray(data[at + HEADER : at + HEADER + size])
    if chance.random() < 0.3:
        kind = chance.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 127, 128, 255])
    elif payload:
        place = chance.randrange(min(len(payload), 40)) if chance.random() < 0.6 else chance.randrange(size)
        payload[place] = chance.choice(
            [payload[place] ^ 1 << chance.randrange(8), chance.choice([0, 1, 127, 255])]
        )
    data[at : at + HEADER + size] = RECORD.pack({"length": size, "type": kind, "payload": bytes(payload)})


def renamed(files: Files, chance: random.Random) -> None:
    """Rename a file, or give it a second name."""
    name = chance.choice([file for file in sorted(files) if file != "CURRENT"])
    if name.startswith("MANIFEST"):
        new = f"MANIFEST-{int(name[9:]) + 1:06d}"
    else:
        number, _, suffix = name.partition(".")
        new = chance.choice(
            [f"{int(number)}.{suffix}", f"{int(number) + 1:06d}.{suffix}", f"{number}.sst", f"{number}.log"]
        )
    if new in files:
        return
    files[new] = bytearray(files[name])
    if chance.random() < 0.5:
        del files[name]


DAMAGES: list[Callable[[Files, random.Random], None]] = [
    anywhere,
    sealed_again,
    anywhere,
    sealed_again,
    renamed,
]


@pytest.mark.parametrize("seed", range(60))
def test_predicted_verdict_rows_and_files_equal_leveldbs(
    seed: int, tmp_path: Path, leveldb: oracle.LevelDB
) -> None:
    chance = random.Random(seed)
    build(tmp_path / "db", chance)
    names = [name for name in os.listdir(tmp_path / "db") if name not in ("LOG", "LOG.old", "LOCK")]
    files = {name: bytearray((tmp_path / "db" / name).read_bytes()) for name in sorted(names)}
    for _ in range(chance.choice([1, 1, 2])):
        DAMAGES[seed % len(DAMAGES)](files, chance)
    shutil.rmtree(tmp_path / "db")
    (tmp_path / "db").mkdir()
    for name, data in files.items():
        (tmp_path / "db" / name).write_bytes(data)
    options: dict[str, Any] = {
        "paranoid_checks": chance.random() < 0.3,
        "verify_checksums": chance.random() < 0.5,
        "reuse_logs": chance.random() < 0.2,
        "create_if_missing": chance.random() < 0.2,
        "write_buffer_size": chance.choice([64 << 10, 4 << 20]),
    }
    opened = open_listing(listing.open_listing(str(tmp_path / "db")), version=oracle.VERSION, **options)
    verdict, rows = opened.verdict, rows_of(opened)
    left = sorted(entry.name for entry in opened.after.entries())
    message = leveldb.open(str(tmp_path / "db"), **options)
    # Its C interface ends texts at a zero byte.
    assert status(verdict).partition("\0")[0] == message.status
    assert (iterated(verdict) or "") == message.iterated
    assert rows == list(message.rows)
    assert verdict.rows == len(rows)
    assert dropped(verdict) == list(message.dropped)
    if not any("a compaction starts" in warning for warning in verdict.warnings):
        assert left == list(message.after)


def test_predicted_files_are_opened_by_leveldb(tmp_path: Path, leveldb: oracle.LevelDB) -> None:
    """LevelDB reads the files we predict it leaves: tables made from logs, manifest, CURRENT."""
    for seed in range(100, 106):
        chance = random.Random(seed)
        place = tmp_path / str(seed)
        place.mkdir()
        build(place / "db", chance)
        options: dict[str, Any] = {"reuse_logs": seed % 2 == 0, "write_buffer_size": 64 << 10}
        opened = open_listing(listing.open_listing(str(place / "db")), **options)
        (place / "after").mkdir()
        for entry in opened.after.entries():
            (place / "after" / entry.name).write_bytes(opened.after.read(entry.name))
        message = leveldb.open(
            str(place / "after"), paranoid_checks=True, verify_checksums=True, bloom_bits_per_key=10
        )
        assert (message.status, message.iterated) == ("OK", "OK")
        assert list(message.rows) == rows_of(opened)


def test_crashed_process_is_reported(tmp_path: Path) -> None:
    with oracle.LevelDB() as item:
        assert item.open(str(tmp_path / "no")).status.startswith("Invalid argument: no: does not exist")
        assert item._process is not None
        item._process.kill()
        item._process.wait()
        opened = item.open(str(tmp_path / "db"), create_if_missing=True, bloom_bits_per_key=10)
        assert (opened.status, opened.iterated, list(opened.rows)) == ("OK", "OK", [])
        # It ends in the middle of a question.
        item._process.send_signal(signal.SIGSTOP)
        timer = threading.Timer(0.2, item._process.kill)
        timer.start()
        assert item.open(str(tmp_path / "db")).status == oracle.DIED
        timer.join()


def test_file_instead_of_a_directory(tmp_path: Path, leveldb: oracle.LevelDB) -> None:
    (tmp_path / "file").write_bytes(b"")
    opened = leveldb.open(str(tmp_path / "file"))
    assert opened.status == "IO error: file/LOCK: Not a directory"
    assert (list(opened.rows), opened.iterated, list(opened.dropped), list(opened.after)) == ([], "", [], [])


def test_missing_library_is_named_and_only_needed_on_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    assert oracle.available() == ""
    monkeypatch.setattr(oracle, "_library", lambda: ctypes.CDLL("nowhere.so"))
    assert "plyvel with the C interface of LevelDB is needed: nowhere.so" in oracle.available()
    with oracle.LevelDB():
        pass  # nothing was asked
