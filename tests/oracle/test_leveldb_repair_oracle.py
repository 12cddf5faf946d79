"""LevelDB itself opens repaired databases in its strictest mode, and gives the predicted rows."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import logwright as lw
from logwright.codec.fault import DamageWarning, LogwrightError
from logwright.roundtrip.oracles import leveldb

GOLDEN = Path(__file__).resolve().parents[2] / "corpora/golden/leveldb"
ALL = {
    path.parent.name: bool(json.loads(path.open().readline()).get("damaged"))
    for path in sorted(GOLDEN.glob("*/truth.jsonl"))
}
BYTEWISE = [item for item in ALL if item not in ("custom_comparator", "zstd_tables")]
"""The library of the oracle has no other order, and no Zstandard."""
pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def oracle() -> Iterator[leveldb.LevelDB]:
    reason = leveldb.available()
    if reason:
        pytest.skip(reason)
    with leveldb.LevelDB() as item:
        yield item


def judge(oracle: leveldb.LevelDB, path: Path) -> None:
    """LevelDB opens a copy without warnings, iterates over our rows, and finds each by its key, with a filter policy."""
    plyvel = pytest.importorskip("plyvel")
    live = [(row["key"], row["value"]) for row in lw.read(path).to_pylist()]
    shutil.copytree(path, path.with_name("opened"))
    answer = oracle.open(str(path.with_name("opened")), paranoid_checks=True, verify_checksums=True)
    assert (answer.status, answer.iterated, list(answer.dropped)) == ("OK", "OK", [])
    assert list(answer.rows) == live
    shutil.copytree(path, path.with_name("asked"))
    with plyvel.DB(str(path.with_name("asked")), paranoid_checks=True, bloom_filter_bits=10) as database:
        assert [(key, database.get(key, verify_checksums=True)) for key, _ in live] == live


@pytest.mark.parametrize("case", [item for item in BYTEWISE if ALL[item]])
def test_leveldb_accepts_a_repaired_golden_database(
    case: str, tmp_path: Path, oracle: leveldb.LevelDB
) -> None:
    lw.repair(GOLDEN / case / "db", tmp_path / "db")
    judge(oracle, tmp_path / "db")


@pytest.mark.parametrize("case", [item for item in BYTEWISE if not ALL[item]])
def test_leveldb_accepts_a_golden_database_with_rebuilt_metadata(
    case: str, tmp_path: Path, oracle: leveldb.LevelDB
) -> None:
    shutil.copytree(GOLDEN / case / "db", tmp_path / "lost")
    before = lw.read(tmp_path / "lost")
    for path in [*(tmp_path / "lost").glob("MANIFEST-*"), tmp_path / "lost" / "CURRENT"]:
        path.unlink()
    # A lone log could be anybody's: it has to be said whose it is.
    lw.rebuild(tmp_path / "lost", tmp_path / "db", codec="leveldb.db")
    judge(oracle, tmp_path / "db")
    assert lw.read(tmp_path / "db").equals(before)


def damage(random_: random.Random, path: Path) -> None:
    """Damage one of the relevant files."""
    names = [
        file
        for file in path.iterdir()
        if file.suffix in (".ldb", ".sst", ".log") or file.name.startswith(("MANIFEST", "CURRENT"))
    ]
    file = random_.choice(sorted(names))
    data = bytearray(file.read_bytes())
    at = random_.randrange(max(len(data), 1))
    target = random_.choice(("flip", "flip", "flip", "cut", "zero", "insert", "append", "remove"))
    if target == "remove":
        file.unlink()
        return
    if target == "flip" and data:
        data[at] ^= 1 << random_.randrange(8)
    elif target == "cut":
        del data[at:]
    elif target == "zero":
        data[at : at + 512] = bytes(len(data[at : at + 512]))
    elif target == "insert":
        data[at:at] = random_.randbytes(random_.randrange(1, 300))
    elif target == "append":
        data += random_.randbytes(random_.randrange(1, 300))
    file.write_bytes(data)


def damaged_at_random(seed: int, tmp_path: Path, oracle: leveldb.LevelDB) -> None:
    random_ = random.Random(seed)
    shutil.copytree(
        GOLDEN / random_.choice([item for item in BYTEWISE if not ALL[item]]) / "db", tmp_path / "lost"
    )
    before = {
        tuple(row.values())
        for row in lw.read(
            tmp_path / "lost", view="history", columns=["key", "sequence", "value"]
        ).to_pylist()
    }
    for _ in range(random_.choice((1, 1, 2, 3))):
        damage(random_, tmp_path / "lost")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        try:
            lw.repair(tmp_path / "lost", tmp_path / "db")
        except LogwrightError:
            assert not any(path.suffix in (".ldb", ".sst") for path in (tmp_path / "lost").iterdir())
            return
    judge(oracle, tmp_path / "db")
    after = lw.read(tmp_path / "db", view="history", columns=["key", "sequence", "value"])
    assert {tuple(row.values()) for row in after.to_pylist()} <= before


@pytest.mark.parametrize("seed", range(30))
def test_leveldb_accepts_databases_repaired_after_random_damage(
    seed: int, tmp_path: Path, oracle: leveldb.LevelDB
) -> None:
    damaged_at_random(seed, tmp_path, oracle)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(30, 330))
def test_leveldb_accepts_databases_repaired_after_more_random_damage(
    seed: int, tmp_path: Path, oracle: leveldb.LevelDB
) -> None:
    damaged_at_random(seed, tmp_path, oracle)
