"""LevelDB itself (through plyvel) opens our databases without repair or compaction, and both append to the other's."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.codec.fault import BusyError

plyvel = pytest.importorskip("plyvel")
pytestmark = pytest.mark.oracle

Rows = list[dict[str, Any]]


def shuffled(count: int, first: int = 0, seed: int = 1) -> Rows:
    rows = [{"key": b"k%06d" % n, "value": b"value %d " % n * (n % 9)} for n in range(first, first + count)]
    random.Random(seed).shuffle(rows)
    return rows


def model(*writes: Rows) -> dict[bytes, bytes]:
    """Return the same rows applied to a dict."""
    actual: dict[bytes, bytes] = {}
    for rows in writes:
        for row in rows:
            if row["value"] is None:
                actual.pop(row["key"], None)
            else:
                actual[row["key"]] = row["value"]
    return actual


def opened(
    path: Path, then: Callable[[Any], None] = lambda db: None, *, compacts: bool = False, **options: Any
) -> dict[bytes, bytes]:
    """Return the database as read by LevelDB's iterator with every checksum verified. Also look up each key."""
    db = plyvel.DB(str(path), create_if_missing=False, paranoid_checks=True, **options)
    try:
        actual = list(db.iterator(verify_checksums=True))
        assert [key for key, _ in actual] == sorted(key for key, _ in actual)
        for key, value in actual[:: max(1, len(actual) // 50)]:
            assert db.get(key) == value
        then(db)
    finally:
        db.close()
    log = (path / "LOG").read_text()
    assert compacts or "ompact" not in log
    assert "epair" not in log
    return dict(actual)


def read(path: Path) -> dict[bytes, bytes]:
    table = lw.read(path)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "none", "block_size": 300, "block_restart_interval": 1},
        {"compression": "snappy", "block_size": "16k", "block_restart_interval": 50},
        {"bloom_bits_per_key": 10, "max_file_size": 20_000},
        {"bloom_bits_per_key": 1, "compression": "none", "max_file_size": 1},
        {"sort_buffer_size": 1024, "max_file_size": 30_000},
        {"write_as": "logs"},
        {"write_as": "logs", "batch_size": 100, "write_buffer_size": 10_000},
    ],
    ids=str,
)
def test_leveldb_opens_what_we_write(tmp_path: Path, options: dict[str, Any]) -> None:
    rows = shuffled(2000)
    written = lw.write(iter(_batches(rows)), tmp_path / "db", "leveldb.db", **options)
    assert written.rows == 2000
    bloom = options.get("bloom_bits_per_key", 0)
    # Of each log a table of level 0 is made.
    many = len(written.files) > 6 and "write_as" in options
    assert opened(tmp_path / "db", bloom_filter_bits=bloom, compacts=many) == model(rows)
    assert read(tmp_path / "db") == model(rows)


def _batches(rows: Rows) -> Any:
    import pyarrow as pa

    for at in range(0, len(rows), 300):
        yield pa.RecordBatch.from_pylist(rows[at : at + 300])


def test_leveldb_and_we_append_alternately(tmp_path: Path) -> None:
    path, rows = tmp_path / "db", shuffled(1000)
    lw.write(rows, path, "leveldb.db", max_file_size=4000)
    theirs = [*shuffled(30, 990, 2), {"key": b"k000007", "value": None}]

    def go_on(db: Any) -> None:
        for row in theirs:
            db.put(row["key"], row["value"]) if row["value"] is not None else db.delete(row["key"])

    opened(path, go_on)
    assert read(path) == model(rows, theirs)
    # Their last writes are in a log only: ours have to be newer than these too, for lookups as for iterators.
    ours = [
        {"key": b"k000007", "value": b"back"},
        {"key": b"k000991", "value": None},
        {"key": b"z", "value": b"last"},
    ]
    written = lw.write(ours, path, "leveldb.db", mode="append")
    assert written.ids == {"first_sequence": 33, "last_sequence": 33}

    def ask(db: Any) -> None:
        assert db.get(b"k000007") == b"back"
        assert db.get(b"k000991") is None
        assert db.get(b"k001001") == model(theirs)[b"k001001"]

    assert opened(path, ask) == model(rows, theirs, ours)
    assert read(path) == model(rows, theirs, ours)


@pytest.mark.parametrize("write_as", ["tables", "logs"])
def test_every_kind_of_append(tmp_path: Path, write_as: str) -> None:
    """After, between and over existing keys, with writes by LevelDB in between."""
    path = tmp_path / "db"
    writes = [shuffled(500)]
    lw.write(writes[0], path, "leveldb.db", max_file_size=4000, write_as=write_as)
    for step, rows in enumerate(
        [
            shuffled(300, 500, 3),
            shuffled(100, 200, 4),
            [{"key": b"k%06d" % n, "value": None} for n in range(0, 900, 7)],
        ]
    ):
        lw.write(rows, path, "leveldb.db", mode="append", write_as=write_as, max_file_size=4000)
        theirs = [{"key": b"k%06d" % (n * 5 + step), "value": b"theirs"} for n in range(100)]
        writes += [rows, theirs]

        def go_on(db: Any, theirs: Rows = theirs) -> None:
            with db.write_batch() as batch:
                for row in theirs:
                    batch.put(row["key"], row["value"])

        # Newer entries are in level 0, which grows with each write.
        opened(path, go_on, compacts=True)
        assert read(path) == model(*writes)
    assert opened(path, compacts=True) == model(*writes)


def test_append_behind_all_keys_needs_no_level_0(tmp_path: Path) -> None:
    path = tmp_path / "db"
    for n in range(6):
        rows = shuffled(200, 200 * n)
        lw.write(rows, path, "leveldb.db", mode="append", max_file_size=2000)
    actual: list[str] = []
    assert len(opened(path, lambda db: actual.append(db.get_property(b"leveldb.sstables").decode()))) == 1200
    levels = re.split(r"--- level \d ---\n", actual[0])[1:]
    assert [bool(level) for level in levels] == [False, True, False, False, False, False, False]


def test_more_than_level_1_holds_goes_deeper(tmp_path: Path) -> None:
    path = tmp_path / "db"
    rows = [{"key": b"%03d" % n, "value": random.Random(n).randbytes(100_000)} for n in range(110)]
    lw.write(rows, path, "leveldb.db")
    counts: list[list[bytes]] = []
    assert opened(
        path,
        lambda db: counts.append([db.get_property(b"leveldb.num-files-at-level%d" % n) for n in range(7)]),
    ) == model(rows)
    assert [int(count) > 0 for count in counts[0]] == [False, False, True, False, False, False, False]


def test_our_file_numbers_exceed_all_existing_ones(tmp_path: Path) -> None:
    """Files LevelDB does not know yet, a leftover with a larger number, and a log next to tables."""
    path = tmp_path / "db"
    db = plyvel.DB(str(path), create_if_missing=True)
    db.put(b"a", b"1")
    db.close()
    (path / "000090.ldb").write_bytes(b"of a compaction that was cut short")
    lw.write([{"key": b"a", "value": b"2"}], path, "leveldb.db", mode="append", write_as="logs")
    assert (path / "000091.log").exists()
    lw.write([{"key": b"b", "value": b"3"}], path, "leveldb.db", mode="append")
    assert opened(path) == {b"a": b"2", b"b": b"3"}


_HOLD = (
    "import plyvel, sys; db = plyvel.DB(sys.argv[1], create_if_missing=True); print(1, flush=True); input()"
)


def test_locked_database_is_not_written(tmp_path: Path) -> None:
    """Locked by another process, or by this one, whose lock would be lost if we opened and closed the file."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path / "db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        for mode in ("append", "overwrite"):
            with pytest.raises(BusyError, match=rf"leveldb is running.*process {other.pid}"):
                lw.write([{"key": b"k"}], tmp_path / "db", "leveldb.db", mode=mode)
        other.communicate(b"\n")
    db = plyvel.DB(str(tmp_path / "db"))
    try:
        with pytest.raises(BusyError, match=r"leveldb is running.*this process"):
            lw.write([{"key": b"k"}], tmp_path / "db", "leveldb.db", mode="append")
        assert lw.read(tmp_path / "db").num_rows == 0
        result = subprocess.run(
            [sys.executable, "-c", _HOLD, str(tmp_path / "db")],
            capture_output=True,
            text=True,
            input="\n",
            check=False,
        )
        assert "Resource temporarily unavailable" in result.stderr
    finally:
        db.close()
    assert opened(tmp_path / "db") == {}


def test_leveldb_opens_and_fills_an_empty_database(tmp_path: Path) -> None:
    lw.write([], tmp_path / "db", "leveldb.db")
    assert sorted(path.name for path in (tmp_path / "db").iterdir()) == ["CURRENT", "MANIFEST-000001"]
    assert opened(tmp_path / "db", lambda db: db.put(b"k", b"v")) == {}
    assert opened(tmp_path / "db") == {b"k": b"v"}
