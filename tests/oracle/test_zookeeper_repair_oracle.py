"""ZooKeeper itself loads repaired and rebuilt data directories, and has the predicted tree."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from zookeeper_crafted import create, log, record
from zookeeper_restore import written
from zookeeper_startup import data_directory

import logwright as lw
from logwright.codec.fault import DamageWarning, LogwrightError

GOLDEN = Path(__file__).resolve().parents[2] / "corpora/golden/zookeeper"
CASES = {path.parent.name: json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*/case.json"))}
DAMAGED = [case for case in CASES if case.startswith(("dmg_", "syn_", "toplevel", "v3414_log"))]
HEALTHY = [
    case
    for case in CASES
    if case not in DAMAGED and case not in ("split_dirs", "closesession_nobody", "digest_off")
]
EXTENDED = {"zookeeper.extendedTypesEnabled": "true"}
NO_HISTORY = {"dmg_snap_none"}
"""There is no snapshot, and the logs do not begin with the first transaction."""
OPEN_CASES = {"syn_acl_dangling"}
"""A client gets MarshallingError for one of its nodes, before and after."""
pytestmark = pytest.mark.oracle


def judge(zookeeper: Any, path: Path, *, digests: bool = True) -> None:
    """Its loading code accepts the directory and has our nodes."""
    nodes, facts = zookeeper.restore(path.parent, properties=EXTENDED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        ours = {row["path"]: row for row in lw.read(path, columns="*").to_pylist()}
    alive = set(map(int, facts["sessions"]))
    theirs = {node["path"]: node for node in nodes if not _dead(node["persisted"]["ephemeralOwner"], alive)}
    assert theirs.keys() == ours.keys()
    for name, item in theirs.items():
        row, stat = ours[name], item["persisted"]
        if not name.endswith("zookeeper_stats"):
            assert item["data"] == (None if row["data"] is None else row["data"].hex()), name
        assert item["acl"] == row["acl"], name
        assert stat["ctime"] == row["ctime_ms"]
        assert stat["mtime"] == row["mtime_ms"]
        assert stat["cversion"] == row["stored_cversion"]
        assert {k: stat[k] for k in ("czxid", "mzxid", "pzxid", "version", "aversion")} == {
            k: row[k] for k in ("czxid", "mzxid", "pzxid", "version", "aversion")
        }
    if digests:
        assert facts["digest_mismatches"] == []


def _dead(owner: int, alive: set[int]) -> bool:
    """Return whether a server deletes the node after its start because its session has expired."""
    return owner > 0 and owner not in alive


def repaired(path: Path, out: Path, strategy: str = "prefix", **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        lw.repair(path, out / "version-2", strategy=strategy, **options)
    return out / "version-2"


TOLD = {"dmg_digest_mismatch", "dmg_fixed_swapped", "syn_trailing_bytes"}
"""Only digests tell that something is wrong: that stays as it is."""


@pytest.mark.parametrize("case", [item for item in DAMAGED if item not in NO_HISTORY | OPEN_CASES])
def test_prefix_of_a_golden_directory(case: str, tmp_path: Path, zookeeper: Any) -> None:
    result = repaired(GOLDEN / case / "version-2", tmp_path)
    judge(zookeeper, result, digests=case not in TOLD)


@pytest.mark.parametrize("case", ["dmg_digest_mismatch", "dmg_fixed_swapped"])
def test_wrong_digests_can_be_truncated(case: str, tmp_path: Path, zookeeper: Any) -> None:
    result = repaired(GOLDEN / case / "version-2", tmp_path, **{"digest.mismatch": "cut"})
    judge(zookeeper, result)


LOSSY = {"dmg_mid_empty", "dmg_mid_missing", "dmg_mid_missing_silent", "dmg_snap_none", "syn_zxid_gap"}
"""Transactions are missing, and made up for."""


@pytest.mark.parametrize("case", [item for item in DAMAGED if item not in OPEN_CASES])
def test_salvage_of_a_golden_directory(case: str, tmp_path: Path, zookeeper: Any) -> None:
    result = repaired(GOLDEN / case / "version-2", tmp_path, "salvage")
    judge(zookeeper, result, digests=case not in TOLD | LOSSY)


def test_salvage_of_a_log_that_begins_with_an_impossible_zxid(tmp_path: Path, zookeeper: Any) -> None:
    """A snapshot named after it, snapshot.ffffff0000000000, would not be read."""
    records = [record(zxid, 1, create(b"/node%d" % zxid)) for zxid in (-(1 << 40) + 1, 5, 6)]
    directory = data_directory({"log.1": log(*records)})
    (tmp_path / "lost").mkdir()
    result = repaired(written(directory, tmp_path / "lost") / "version-2", tmp_path, "salvage")
    judge(zookeeper, result)
    nodes, facts = zookeeper.restore(tmp_path)
    assert facts["last_processed_zxid"] == 6
    assert {"/node5", "/node6"} < {node["path"] for node in nodes}


@pytest.mark.parametrize("case", HEALTHY)
def test_server_accepts_a_rebuilt_golden_directory(case: str, tmp_path: Path, zookeeper: Any) -> None:
    lw.rebuild(GOLDEN / case / "version-2", tmp_path / "version-2")
    judge(zookeeper, tmp_path / "version-2")


@pytest.mark.parametrize(
    "case", ["dmg_base", "rolled", "fuzzy", "quota", "sessions", "upgrade_chain", "v380"]
)
def test_golden_directory_without_its_newest_snapshots(case: str, tmp_path: Path, zookeeper: Any) -> None:
    shutil.copytree(GOLDEN / case / "version-2", tmp_path / "lost" / "version-2")
    before = lw.read(tmp_path / "lost/version-2")
    names = sorted(
        (tmp_path / "lost/version-2").glob("snapshot.*"), key=lambda path: int(path.name.split(".")[1], 16)
    )
    for path in names[1:]:
        data = bytearray(path.read_bytes())
        data[len(data) // 2 : len(data) // 2 + 9] = b"\xff" * 9
        path.write_bytes(data)
    report = lw.rebuild(tmp_path / "lost/version-2", tmp_path / "made/version-2")
    assert "is built from" in str(report)
    judge(zookeeper, tmp_path / "made/version-2")
    # The snapshot alone is all of it.
    newest = max(
        (tmp_path / "made/version-2").glob("snapshot.*"), key=lambda path: int(path.name.split(".")[1], 16)
    )
    for path in (tmp_path / "made/version-2").iterdir():
        if path != newest:
            path.unlink()
    judge(zookeeper, tmp_path / "made/version-2")
    assert lw.read(tmp_path / "made/version-2").drop_columns(["data"]).equals(before.drop_columns(["data"]))


@pytest.mark.parametrize("zxid", [0x1, 0x9, 0xA, 0xB, 0x15, 0x16, 0x1B, 0x20])
def test_chop_to_a_transaction(zxid: int, tmp_path: Path, zookeeper: Any) -> None:
    result = repaired(GOLDEN / "dmg_base" / "version-2", tmp_path, **{"chop.zxid": zxid})
    judge(zookeeper, result)
    _, facts = zookeeper.restore(tmp_path, nodes=False)
    assert facts["last_processed_zxid"] == zxid


# Damage at random


def damage(random_: random.Random, path: Path) -> None:
    """Damage one of the files."""
    file = random_.choice(
        sorted(file for file in path.iterdir() if file.name.startswith(("log.", "snapshot.")))
    )
    data = bytearray(file.read_bytes())
    end = max(len(bytes(data).rstrip(b"\0")), 1)
    at = random_.randrange(end)
    target = random_.choice(("flip", "flip", "flip", "cut", "zero", "insert", "append", "remove", "swap"))
    if target == "remove":
        file.unlink()
        return
    if target == "flip" and data:
        data[at] ^= 1 << random_.randrange(8)
    elif target == "cut":
        del data[at:]
    elif target == "zero":
        data[at : at + 100] = bytes(len(data[at : at + 100]))
    elif target == "insert":
        data[at:at] = random_.randbytes(random_.randrange(1, 300))
    elif target == "append":
        data[end:end] = random_.randbytes(random_.randrange(1, 300))
    elif target == "swap":
        data[at : at + 4] = random_.randbytes(4)
    file.write_bytes(data)


BASES = (
    "dmg_base",
    "rolled",
    "sessions",
    "multi",
    "snap_gz",
    "snap_snappy",
    "upgrade_chain",
    "v362",
    "v3414",
    "acls",
    "size_rolled",
)


def damaged_at_random(seed: int, tmp_path: Path, zookeeper: Any, strategy: str) -> None:
    random_ = random.Random(seed)
    case = random_.choice(BASES)
    shutil.copytree(GOLDEN / case / "version-2", tmp_path / "lost" / "version-2")
    for _ in range(random_.choice((1, 1, 2, 3))):
        damage(random_, tmp_path / "lost/version-2")
    refused: LogwrightError | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        try:
            report = lw.repair(tmp_path / "lost/version-2", tmp_path / "version-2", strategy=strategy)
        except LogwrightError as error:
            refused = error
        if refused is not None:
            assert strategy == "prefix" or "nothing is left" in str(refused), refused
            return
        history = {row["zxid"]: row for row in lw.read(GOLDEN / case / "version-2", view="txns").to_pylist()}
        kept = lw.read(tmp_path / "version-2", view="txns").to_pylist()
    # No transaction is another one than it was; those that are made up say so.
    for row in kept:
        was = history.get(row["zxid"])
        made_up = row["type"] == "error" and not row["session_id"]
        assert was == row or made_up, (row, was)
        assert not made_up or strategy == "salvage"
    judge(zookeeper, tmp_path / "version-2", digests=strategy == "prefix" and not report.incomplete)


@pytest.mark.parametrize("seed", range(24))
def test_server_accepts_the_repair_of_random_damage(seed: int, tmp_path: Path, zookeeper: Any) -> None:
    damaged_at_random(seed, tmp_path, zookeeper, "prefix" if seed % 2 else "salvage")


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(24, 424))
def test_server_accepts_the_repair_of_more_random_damage(seed: int, tmp_path: Path, zookeeper: Any) -> None:
    damaged_at_random(seed, tmp_path, zookeeper, "prefix" if seed % 2 else "salvage")
