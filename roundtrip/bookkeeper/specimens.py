"""Small files of BookKeeper: see `logwright.roundtrip.specimens`."""

from __future__ import annotations

from typing import Any

from logwright.roundtrip.sample import DirectorySample, Sample

_RECORDS: list[dict[str, Any]] = [
    {"ledger_id": 3, "kind": "master_key", "data": b"k" * 20},
    *({"ledger_id": 3, "entry_id": n, "payload": b"entry %d" % n} for n in range(3)),
    {"ledger_id": 3, "kind": "explicit_lac", "data": bytes(20)},
    {"ledger_id": 3, "kind": "fence"},
    {"ledger_id": 3, "entry_id": 3, "payload": b""},
]

SAMPLES: tuple[Sample, ...] = (
    Sample("bookkeeper.journal", "18c2.txn", _RECORDS, {"journalFormatVersionToWrite": 4}),
    Sample("bookkeeper.journal", "18c3.txn", _RECORDS[:3]),
)
DIRECTORY_SAMPLES: tuple[DirectorySample, ...] = ()
