"""LevelDB itself, by plyvel, judges the tables that we write, and writes tables that we have to write alike."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logwright.codec.leveldb.encode import TableBuilder, TableSettings
from logwright.codec.leveldb.keys import BYTEWISE
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
    """A whole database around one table at level 1, as it can be made by hand."""
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
def test_leveldb_reads_what_we_write(tmp_path: Path, settings: TableSettings) -> None:
    rows = [
        {"key": b"k%06d" % n, "value": None if n % 7 == 0 else b"v%d" % n * (n % 30), "sequence": n + 1}
        for n in range(3000)
    ]
    builder = TableBuilder(settings)
    table = builder.add(pa.RecordBatch.from_pylist(rows))[0] + builder.finish()
    database(tmp_path / "db", table, builder)
    bits = settings.bloom_bits_per_key
    with plyvel.DB(str(tmp_path / "db"), paranoid_checks=True, bloom_filter_bits=bits) as db:
        live = [(one["key"], one["value"]) for one in rows if one["value"] is not None]
        assert list(db.iterator(verify_checksums=True)) == live
        assert all(db.get(key) == value for key, value in live[::50])
        assert db.get(b"k000007") is None


@pytest.mark.parametrize("options", [
    {}, {"bloom_filter_bits": 10}, {"block_size": 1024, "block_restart_interval": 4, "bloom_filter_bits": 14},
    {"block_size": 65536, "bloom_filter_bits": 3},
])  # fmt: skip
def test_we_write_what_leveldb_writes(tmp_path: Path, options: dict[str, Any]) -> None:
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
        found = Specimen.of(path)
        rows = found.read(columns=None).table
        again = Specimen.of(b"", "leveldb.table", path.name, **ours).encode(rows)
        assert again == found.all_bytes()
