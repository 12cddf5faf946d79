"""Small files of BookKeeper: see `logwright.roundtrip.specimens`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from logwright.codec.bookkeeper.formats.digest import CRC32C, digest_of
from logwright.roundtrip.sample import DirectorySample, Sample

_RECORDS: list[dict[str, Any]] = [
    {"ledger_id": 3, "kind": "master_key", "data": b"k" * 20},
    *({"ledger_id": 3, "entry_id": n, "payload": b"entry %d" % n} for n in range(3)),
    {"ledger_id": 3, "kind": "fence"},
    {"ledger_id": 3, "entry_id": 3, "payload": b""},
]

_ENTRIES: list[dict[str, Any]] = [
    {"ledger_id": 3, "entry_id": 0, "last_add_confirmed": -1, "length": 7, "payload": b"entry 0"},
    {"ledger_id": 1 << 40, "entry_id": 0, "last_add_confirmed": -1, "length": 2, "payload": b"ab"},
    {"ledger_id": 3, "entry_id": 1, "last_add_confirmed": 0, "length": 14, "payload": b"entry 1"},
    {"ledger_id": 3, "entry_id": 2, "last_add_confirmed": 1, "length": 14, "payload": b""},
]
_LAC = (3).to_bytes(8, "big") + bytes(8)
_TIME = datetime.fromtimestamp(1_700_000_000, UTC)
_COOKIE = {
    "layout_version": 5, "bookie_host": "127.0.0.1:3181", "journal_dir": "/data/j", "ledger_dirs": "2\t/data/l1\t/data/l2",
    "instance_id": "3a5b6c1e-0000-4000-8000-1234567890ab", "index_dirs": None,
}  # fmt: skip

SAMPLES: tuple[Sample, ...] = (
    Sample("bookkeeper.entrylog", "1f.log", _ENTRIES),
    Sample("bookkeeper.entrylog", "20.log", _ENTRIES, {"digestType": "CRC32", "ledgersMap": False}),
    Sample("bookkeeper.journal", "18c2.txn", _RECORDS, {"journalFormatVersionToWrite": 4}),
    Sample(
        "bookkeeper.journal",
        "18c3.txn",
        [*_RECORDS[:2], {"ledger_id": 3, "kind": "explicit_lac", "data": _LAC + digest_of(_LAC, CRC32C)}],
    ),
    Sample(
        "bookkeeper.index",
        "1f.idx",
        [
            {"ledger_id": 31, "entry_id": 5 * n, "location": (n << 32) + 1028, "log_id": n, "offset": 1028}
            for n in range(3)
        ],
        {"pageSize": 256},
    ),
    Sample("bookkeeper.lastmark", "lastMark", [{"journal_id": 0x1A1FC455EEB, "offset": 512}]),
    Sample("bookkeeper.lastid", "lastId", [{"log_id": 26}]),
    Sample(
        "bookkeeper.bookiestatus",
        "BOOKIE_STATUS",
        [{"layout_version": 1, "mode": "READ_ONLY", "last_update_time": _TIME, "manually_modified": False}],
    ),
    Sample("bookkeeper.dirty", "DIRTY", []),
    Sample("bookkeeper.cookie", "VERSION", [_COOKIE]),
)
_PASSWORD = b"secret"


def _ledgers(kind: str) -> list[dict[str, Any]]:
    """Return the entries of three ledgers, which take turns."""
    totals: dict[int, int] = {}
    rows = []
    for n in range(36):
        ledger, entry = n % 3, n // 3
        payload = b"%d " % n * (7 * n % 60)
        totals[ledger] = totals.get(ledger, 0) + len(payload)
        rows.append({"ledger_id": ledger, "entry_id": entry, "last_add_confirmed": entry - 1, "length": totals[ledger],
                     "payload": payload, "digest_type": kind})  # fmt: skip
    return rows


PRIMARY_SAMPLES: tuple[Sample, ...] = tuple(
    Sample(codec, name, _ledgers(kind), {"passwd": _PASSWORD} if kind == "HMAC" else {}, note=kind)
    for codec, name in (("bookkeeper.entrylog", "1f.log"), ("bookkeeper.journal", "18c2.txn"))
    for kind in ("CRC32C", "CRC32", "HMAC", "DUMMY")
)
DIRECTORY_SAMPLES: tuple[DirectorySample, ...] = (
    DirectorySample(
        "bookkeeper.bookie",
        "bookie",
        [{"ledger_id": n // 3, "entry_id": n % 3, "payload": b"old %d" % n} for n in range(6)],
        [{"ledger_id": 1 + n // 6, "entry_id": n % 6, "payload": b"new %d" % n} for n in range(3, 9)],
        "payload",
        {"logSizeLimit": 1200},
    ),
)
