"""A damaged file that is read in parts has the rows that it has as a whole."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import logwright as lw
from logwright.roundtrip import laws
from logwright.roundtrip.specimen import Specimen

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
TIME = 1_700_000_000_000


def kafka_log(home: Path) -> Path:
    rows = [
        {"offset": n, "timestamp_ms": TIME + n, "key": b"k%d" % n, "value": b"v" * (n * 7 % 60)}
        for n in range(60)
    ]
    lw.write(rows, home / "t-0", "kafka.partition", **{"batch.size": 200})
    return next((home / "t-0").glob("*.log"))


def commit_log(home: Path) -> Path:
    rows = [
        {"topic": "A", "queue_id": n % 2, "store_timestamp_ms": TIME + n, "body": bytes(n * 7 % 60)}
        for n in range(24)
    ]
    lw.write(rows, home / "store", "rocketmq.store", mappedFileSizeCommitLog=4096)
    return next((home / "store" / "commitlog").iterdir())


def entry_log(home: Path) -> Path:
    """Ledger 2 has HMACs, whose password is not passed to readers."""
    rows = [
        {
            "ledger_id": n % 3, "entry_id": n // 3, "last_add_confirmed": n // 3 - 1, "length": 20 * (n // 3 + 1), "payload": bytes(20),
            "digest_type": "HMAC" if n % 3 == 2 else "CRC32C",
        }
        for n in range(60)
    ]  # fmt: skip
    lw.write(rows, home / "1.log", "bookkeeper.entrylog", passwd=b"secret")
    return home / "1.log"


def damaged(data: bytes, frames: Sequence[int], chance: random.Random) -> bytes:
    """Return the bytes with a copy of some frames elsewhere, or with removed bytes, and with a changed byte."""
    new = bytearray(data)
    start, stop = sorted(chance.sample(frames, 2))
    at = chance.choice(frames) + chance.choice((0, 0, chance.randrange(200)))
    way = chance.randrange(3)
    if way == 2:
        del new[at : at + chance.randrange(300)]
    else:
        new[at : at + way * (stop - start)] = data[start:stop]
    new[chance.randrange(frames[0], len(data))] ^= 1 << chance.randrange(8)
    return bytes(new)


@pytest.mark.alike
@pytest.mark.parametrize("write", [kafka_log, commit_log, entry_log])
def test_parts_of_a_damaged_file_give_the_same_rows(write: Callable[[Path], Path], tmp_path: Path) -> None:
    path = write(tmp_path)
    specimen = Specimen.of(path)
    frames = specimen.read("frames", columns="position").table["position"].to_pylist()
    data = specimen.all_bytes()
    assert len(frames) > 20
    for seed in range(40):
        changed = damaged(data, frames, random.Random(seed))
        sizes = [len(changed) // parts + 1 for parts in (2, 3, 7)]
        verdict = laws.any_split(changed, specimen.codec, sizes=sizes, name=path.name)
        assert verdict, f"seed {seed}: {verdict}"
