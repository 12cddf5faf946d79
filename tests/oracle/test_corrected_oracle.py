"""The real systems open directories in which a repair has corrected a flipped bit, and serve every row."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.roundtrip.oracles import bookkeeper, leveldb, rocketmq

pytestmark = pytest.mark.oracle
GOLDEN = Path(__file__).resolve().parents[2] / "corpora/golden"


def corrected(store: Path, out: Path, primary: str, place: int, **options: Any) -> Path:
    """Flip a bit of a file of a copy of the store, repair that, and return the result, in which the file is as before."""
    damaged = shutil.copytree(store, out / "damaged" / store.name)
    data = bytearray((damaged / primary).read_bytes())
    data[place] ^= 1 << place % 8
    (damaged / primary).write_bytes(data)
    result = out / "corrected" / store.name
    report = lw.repair(damaged, result, **options)
    assert [entry["offset"] for entry in report.corrected or []] == [place]
    assert (result / primary).read_bytes() == (store / primary).read_bytes()
    return result


@pytest.mark.parametrize("place", [0, 9, 40, 100], ids=["offset", "length", "header", "records"])
def test_broker_serves_every_record(
    kafka: Any, golden: Any, as_golden: Any, tmp_path: Path, place: int
) -> None:
    case = golden("dmg_base")
    log = min(case.directory.glob("*.log"))
    second = lw.read(log, view="frames", columns=["position"])["position"].to_pylist()[1]
    result = corrected(case.directory, tmp_path, log.name, second + place, **{"index.interval.bytes": 250})
    before = {path.name: path.read_bytes() for path in result.iterdir()}
    kafka.load(result, index_interval_bytes=250, segment_index_bytes=4096)
    assert {name: (result / name).read_bytes() for name in before if name.endswith(".log")} == {
        name: data for name, data in before.items() if name.endswith(".log")
    }
    records = [record for record in kafka.records(result) if not record["batch"]["is_control"]]
    assert [record["offset"] for record in records] == [record["offset"] for record in case.records()]
    assert [as_golden(record)["value_hex"] for record in records] == [
        record.get("value_hex") for record in case.records()
    ]


def test_broker_serves_every_record_of_a_compacted_log(kafka: Any, tmp_path: Path) -> None:
    """Offset 16 is missing between the batch with the flipped bit and the next one. The index has the offset of that batch."""
    rows = [
        {"offset": n + (n >= 16), "value": b"%04d" % n * 25, "timestamp": 1_700_000_000_000 + n}
        for n in range(32)
    ]
    store = tmp_path / "orders-0"
    lw.write(rows, store, "kafka.partition", **{"batch.size": 530, "index.interval.bytes": 1})
    (log,) = store.glob("*.log")
    frames = lw.read(log, view="frames", columns=["position", "last_offset"]).to_pylist()
    (position,) = (frame["position"] for frame in frames if frame["last_offset"] == 15)
    result = corrected(store, tmp_path, log.name, position + 70)
    kafka.load(result, index_interval_bytes=1, segment_index_bytes=4096)
    assert (result / log.name).read_bytes() == log.read_bytes()
    assert [(record["offset"], record["value"]) for record in kafka.records(result)] == [
        (row["offset"], row["value"]) for row in rows
    ]


@pytest.mark.parametrize("from_end", [3, 20, 44, 47, 60, 500])
def test_leveldb_serves_every_entry(tmp_path: Path, from_end: int) -> None:
    """The bit is in the footer, in the index or in a data block."""
    reason = leveldb.available()
    if reason:
        pytest.skip(reason)
    store = GOLDEN / "leveldb/tables_snappy/db"
    table = max(store.glob("*.ldb"), key=lambda path: path.stat().st_size)
    result = corrected(store, tmp_path, table.name, table.stat().st_size - from_end)
    with leveldb.LevelDB() as library:
        answer = library.open(str(result), paranoid_checks=True, verify_checksums=True)
    assert (answer.status, answer.iterated, list(answer.dropped)) == ("OK", "OK", [])
    assert list(answer.rows) == [(row["key"], row["value"]) for row in lw.read(store).to_pylist()]


@pytest.mark.parametrize(("file", "place"), [("snapshot.16", 858), ("snapshot.16", 1650), ("log.17", 30)])
def test_zookeeper_server_has_every_node(zookeeper: Any, tmp_path: Path, file: str, place: int) -> None:
    store = GOLDEN / "zookeeper/dmg_base/version-2"
    result = corrected(store, tmp_path, file, place)
    nodes, facts = zookeeper.restore(result.parent, properties={})
    assert facts["digest_mismatches"] == []
    ours = {row["path"]: row["data"] for row in lw.read(store).to_pylist()}
    theirs = {node["path"]: node["data"] for node in nodes}
    assert ours.keys() <= theirs.keys()
    assert {path: None if data is None else data.hex() for path, data in ours.items()} == {
        path: theirs[path] for path in ours
    }


@pytest.mark.parametrize("checksum", [True, False], ids=["with __CRC32#", "without"])
@pytest.mark.parametrize("place", [0, 7, 31, 90], ids=["total_size", "magic_code", "physical_offset", "body"])
def test_rocketmq_store_serves_every_message(tmp_path: Path, checksum: bool, place: int) -> None:
    version = rocketmq.VERSIONS[0]
    reason = rocketmq.available(version)
    if reason:
        pytest.skip(reason)
    options: dict[str, Any] = {
        "mappedFileSizeCommitLog": 16384,
        "mappedFileSizeConsumeQueue": 200,
        "maxHashSlotNum": 8,
        "maxIndexNum": 60,
    }
    properties = [{"key": "__CRC32#", "value": "0" * 10}] if checksum else []
    messages: list[dict[str, Any]] = [
        {"topic": "Orders", "queue_id": n % 2, "body": b"body %d" % n, "properties": properties, "store_timestamp_ms": 1_700_000_000_000 + n}
        for n in range(20)
    ]  # fmt: skip
    lw.write(messages, tmp_path / "store", "rocketmq.store", **options)
    (log,) = (tmp_path / "store/commitlog").iterdir()
    fifth = lw.read(log, view="frames", columns=["position"])["position"][4].as_py()
    result = corrected(tmp_path / "store", tmp_path, f"commitlog/{log.name}", fifth + place, **options)
    loaded = rocketmq.load(version, result, options, messages=True)
    assert loaded.load
    assert sorted(row["body"] for row in loaded.messages) == sorted(row["body"].hex() for row in messages)


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32"])
def test_bookie_and_client_serve_every_entry(tmp_path: Path, digest: str) -> None:
    reason = bookkeeper.available()
    if reason:
        pytest.skip(reason)
    known: dict[str, Any] = {"passwd": b"secret", "digestType": digest}
    entries = [{"ledger_id": n % 2, "entry_id": n // 2, "payload": b"payload %d" % n * 9} for n in range(40)]
    home = tmp_path / "bookie"
    lw.write(entries, home, "bookkeeper.bookie", instanceId=bookkeeper.INSTANCE, **known)
    (log,) = (home / "ledger/current").glob("*.log")
    result = corrected(home, tmp_path, str(log.relative_to(home)), 2000, **known)
    storage = "org.apache.bookkeeper.bookie.SortedLedgerStorage"
    assert bookkeeper.start(result, {"ledgerStorageClass": storage}).started
    try:
        answers = bookkeeper.read([bookkeeper.Ledger(n, digest, b"secret", range(20)) for n in (0, 1)])
    finally:
        bookkeeper.stop()
    served = {(ledger, entry): data for ledger, of in answers.items() for entry, data in of.served.items()}
    assert {
        key: data.endswith(b"payload %d" % (2 * key[1] + key[0]) * 9) for key, data in served.items()
    } == {(row["ledger_id"], row["entry_id"]): True for row in entries}
    assert {(ledger, entry) for ledger, of in answers.items() for entry in of.read or ()} == served.keys()
