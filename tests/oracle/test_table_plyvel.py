"""LevelDB itself (through plyvel) reads our tables, and writes tables that ours must equal."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec.leveldb.formats.table.compression import sealed
from logwright.codec.leveldb.formats.table.layout import handle, pack_entries
from logwright.codec.leveldb.formats.table.write import TableBuilder, TableSettings, footer, metaindex_block
from logwright.codec.leveldb.keys import BYTEWISE, internal_key
from logwright.roundtrip.specimen import Specimen

plyvel = pytest.importorskip("plyvel")
pytestmark = pytest.mark.oracle


def lp(data: bytes) -> bytes:
    out, size = bytearray(), len(data)
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*out, size]) + data


def varint(number: int) -> bytes:
    return lp(bytes(number))[:-number] if number else b"\0"


def database(path: Path, table: bytes, built: TableBuilder) -> None:
    """Build a database around one table at level 1."""
    import crc32c

    assert built.smallest is not None
    assert built.largest is not None
    edit = b"\x01" + lp(BYTEWISE.encode()) + b"\x02\x00\x03\x03\x04" + varint(built.largest_sequence)
    edit += b"\x07\x01\x02" + varint(len(table)) + lp(built.smallest) + lp(built.largest)
    crc = crc32c.crc32c(b"\x01" + edit)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    path.mkdir()
    (path / "000002.ldb").write_bytes(table)
    (path / "MANIFEST-000001").write_bytes(
        masked.to_bytes(4, "little") + len(edit).to_bytes(2, "little") + b"\x01" + edit
    )
    (path / "CURRENT").write_bytes(b"MANIFEST-000001\n")


@pytest.mark.parametrize(
    "settings",
    [
        TableSettings(),
        TableSettings(compression="none", block_size=300, block_restart_interval=3),
        TableSettings(bloom_bits_per_key=10, block_size=1024),
    ],
)
def test_leveldb_reads_our_tables(tmp_path: Path, settings: TableSettings) -> None:
    rows = [
        {"key": b"k%06d" % n, "value": None if n % 7 == 0 else b"v%d" % n * (n % 30), "sequence": n + 1}
        for n in range(3000)
    ]
    builder = TableBuilder(settings)
    table = builder.add(pa.RecordBatch.from_pylist(rows))[0] + builder.finish()
    database(tmp_path / "db", table, builder)
    bits = settings.bloom_bits_per_key
    with plyvel.DB(str(tmp_path / "db"), paranoid_checks=True, bloom_filter_bits=bits) as db:
        live = [(row["key"], row["value"]) for row in rows if row["value"] is not None]
        assert list(db.iterator(verify_checksums=True)) == live
        assert all(db.get(key) == value for key, value in live[::50])
        assert db.get(b"k000007") is None


@pytest.mark.parametrize("options", [
    {}, {"bloom_filter_bits": 10}, {"block_size": 1024, "block_restart_interval": 4, "bloom_filter_bits": 14},
    {"block_size": 65536, "bloom_filter_bits": 3},
])  # fmt: skip
def test_rewritten_tables_equal_leveldbs(tmp_path: Path, options: dict[str, Any]) -> None:
    chance = random.Random(7)
    for _ in range(2):
        with plyvel.DB(str(tmp_path / "db"), create_if_missing=True, compression=None, **options) as db:
            for _ in range(2000):
                key = b"key%05d" % chance.randrange(1500)
                if chance.random() < 0.2:
                    db.delete(key)
                else:
                    db.put(key, chance.randbytes(chance.randrange(300)))
    tables = sorted((tmp_path / "db").glob("*.ldb"))
    assert tables
    ours = {
        "compression": "none",
        "block_size": options.get("block_size", 4096),
        "block_restart_interval": options.get("block_restart_interval", 16),
        "bloom_bits_per_key": options.get("bloom_filter_bits", 0),
    }
    for path in tables:
        actual = Specimen.of(path)
        rows = actual.read(columns=None).table
        encoded = Specimen.of(b"", "leveldb.table", path.name, **ours).encode(rows)
        assert encoded == actual.all_bytes()


LIVE = [(b"key%03d" % n, b"value%d" % n) for n in range(40)]


def of_points(path: Path, points: list[int], count: int | None = None) -> None:
    """Build a database of one block with these restart points and the stored count `count`."""
    plain = pack_entries([(internal_key(key, n + 1, 1), value) for n, (key, value) in enumerate(LIVE)], 4)
    plain = plain[: -4 * 11] + np.array([*points, len(points) if count is None else count], "<u4").tobytes()
    data, last = sealed(plain, 0), internal_key(LIVE[-1][0], 40, 1)
    meta = sealed(metaindex_block(None, 16), 0)
    index = sealed(pack_entries([(last, handle(0, len(plain)))], 1), 0)
    place = handle(len(data), len(meta) - 5)
    table = data + meta + index + footer(place, handle(len(data) + len(meta), len(index) - 5))
    built = TableBuilder(TableSettings())
    built.smallest, built.largest, built.largest_sequence = internal_key(LIVE[0][0], 1, 1), last, 40
    database(path, table, built)


def shown(path: Path) -> tuple[bool, bool]:
    """Return whether LevelDB gives all rows by its iterator, and by Get."""
    with plyvel.DB(str(path), paranoid_checks=True) as db:
        try:
            iterated = list(db.iterator(verify_checksums=True)) == LIVE
        except plyvel.CorruptionError:
            iterated = False
        try:
            actual = [(key, db.get(key)) for key, _ in LIVE] == LIVE
        except plyvel.CorruptionError:
            actual = False
    return iterated, actual


def good_points() -> list[int]:
    plain = pack_entries([(internal_key(key, n + 1, 1), value) for n, (key, value) in enumerate(LIVE)], 4)
    points = np.frombuffer(plain[-4 * 11 : -4], "<u4").tolist()
    assert plain[-4:] == (10).to_bytes(4, "little")
    assert points[0] == 0
    return [int(point) for point in points]


def test_restart_points_follow_leveldbs_rules(tmp_path: Path) -> None:
    good, chance = good_points(), random.Random(5)
    wrong: list[tuple[list[int], int | None, tuple[bool, bool]]] = [
        ([*good[:5], good[5] + 1, *good[6:]], None, (True, False)),
        ([*good[:5], 24, *good[6:]], None, (True, False)),  # it shares its beginning
        ([*good[:5], 1 << 31, *good[6:]], None, (True, False)),
        ([*good[:3], good[4], good[3], *good[5:]], None, (True, True)),  # it only searches longer
        ([good[2], *good[1:]], None, (False, False)),
        ([9999, *good[1:]], None, (False, False)),
        (good, 0, (False, False)),
        (good, 9, (False, False)),
        (good, 11, (False, False)),
    ]
    for n, (points, count, message) in enumerate(wrong):
        path = tmp_path / f"wrong{n}"
        of_points(path, points, count)
        assert lw.verify(path).ok == all(message), (points, count)
        assert not lw.repair(path, tmp_path / f"right{n}").cut, (points, count)
        assert shown(path) == message, (points, count)
        assert lw.verify(tmp_path / f"right{n}").ok
        assert shown(tmp_path / f"right{n}") == (True, True)
    for n in range(40):
        points = list(good)
        for _ in range(chance.randrange(3)):
            points[chance.randrange(10)] = chance.choice([*good, chance.randrange(good[-1] + 100)])
        if chance.random() < 0.3:
            del points[chance.randrange(10)]
        path = tmp_path / f"some{n}"
        of_points(path, points)
        report = lw.verify(path)
        if report.ok:
            assert shown(path) == (True, True), points
        if report.faults:
            lw.repair(path, tmp_path / f"repaired{n}")
            assert shown(tmp_path / f"repaired{n}") == (True, True), points
