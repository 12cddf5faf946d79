"""Small files of LevelDB: see `logwright.roundtrip.specimens`."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from logwright.roundtrip.sample import DirectorySample, Sample


def _entries(count: int) -> list[dict[str, Any]]:
    """Return entries of a table: versions of a key, deletions, empty values, some compressible."""
    return [
        {
            "key": b"key%d" % (n // 2),
            "value": (b"v" * 30 * n, None, b"")[n % 4 if n % 4 < 3 else 0],
            "sequence": 100 - n,
            "type": "deletion" if n % 4 == 1 else "value",
        }
        for n in range(count)
    ]


_TAG = b"\1" + bytes(7)


def _operations(count: int) -> list[dict[str, Any]]:
    return [
        {"key": b"k%d" % n * (n % 3), "value": (b"v" * (n * 5), None, b"")[n % 3], "sequence": 7 + n}
        for n in range(count)
    ]


SAMPLES: tuple[Sample, ...] = (
    *(
        Sample("leveldb.table", "000005.ldb", _entries(12), {"block_size": 80, "compression": name, "bloom_bits_per_key": bits})
        for name, bits in (("none", 10), ("snappy", 0), ("zstd", 0), ("zlib", 0), ("zlib_raw", 0))
    ),
    *(
        Sample("leveldb.log", "000003.log", _operations(9), {"batch_size": size}) for size in (1, 4)
    ),
    Sample(
        "leveldb.manifest",
        "MANIFEST-000002",
        [
            {"field": "comparator", "comparator": "leveldb.BytewiseComparator", "position": 0},
            *(
                {"field": name, "number": number, "position": 1}
                for number, name in enumerate(("prev_log_number", "log_number", "next_file_number", "last_sequence"))
            ),
            *(
                {
                    "field": "new_file", "level": n, "number": 5 + n, "size": 300 << n,
                    "smallest": b"a" + _TAG, "largest": b"b" * n + _TAG, "position": 2 + n,
                }
                for n in range(3)
            ),
            {"field": "compact_pointer", "level": 0, "smallest": b"b" + _TAG, "position": 9},
            {"field": "deleted_file", "level": 0, "number": 5, "position": 9},
        ],
    ),
    Sample("leveldb.current", "CURRENT", [{"manifest": "MANIFEST-000002"}]),
)  # fmt: skip

_SORTED = sorted(_entries(60), key=itemgetter("key"))
PRIMARY_SAMPLES: tuple[Sample, ...] = (
    *(
        Sample("leveldb.table", "000005.ldb", _SORTED, {"block_size": 400, "compression": name, "bloom_bits_per_key": 10})
        for name in ("none", "snappy")
    ),
    Sample("leveldb.log", "000003.log", _operations(60), {"batch_size": 4}),
    Sample("leveldb.log", "000003.log", [{"key": b"k", "value": b"v" * 50_000, "sequence": 7}], {"batch_size": 1}),
    next(sample for sample in SAMPLES if sample.codec == "leveldb.manifest"),
)  # fmt: skip

DIRECTORY_SAMPLES: tuple[DirectorySample, ...] = (
    # Sorted by key, the newest last: the order in which reading a database returns them.
    DirectorySample(
        "leveldb.db",
        "chainstate",
        [{"key": b"a%d" % n, "value": b"old" * n} for n in range(6)],
        [{"key": b"b%d" % n, "value": b"new" * n} for n in range(8)],
        "key",
        {"max_file_size": 150, "block_size": 60, "compression": "none"},
    ),
)
