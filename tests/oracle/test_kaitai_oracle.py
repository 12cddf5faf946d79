"""Kaitai Struct's compiler accepts the exported descriptions, and reads the same values from golden files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from format_ksy import described, identifier, once

import logwright as lw
from logwright.codec import registry
from logwright.codec.describe import Struct
from logwright.codec.zookeeper.formats.snapshot.sections import SNAPSHOT
from logwright.codec.zookeeper.formats.txnlog.layout import CLOSE_SESSION, CREATE, ERROR, MULTI, TXN_LOG
from logwright.roundtrip.specimens import samples

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "corpora" / "golden"
FORMATS = ROOT / "docs" / "formats"
PACKAGES = ("kaitai-struct-compiler@0.11.0", "kaitai-struct@0.11.0", "js-yaml@4.1.0")
Dump = Callable[..., list[Any]]
pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def kaitai() -> Dump:
    """Return the values Kaitai reads in a codec's file."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Node.js is not there: `apt-get install nodejs npm` installs it for this test")
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "logwright" / "kaitai-0.11.0"
    if not (home / "node_modules" / "js-yaml").exists():
        home.mkdir(parents=True, exist_ok=True)
        created = subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(home), *PACKAGES],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if created.returncode:
            pytest.skip(f"the Kaitai compiler can't be had from npm: {created.stderr.strip()[-200:]}")

    def dump(codec: str, *files: Path) -> list[Any]:
        result = subprocess.run(
            [node, str(Path(__file__).with_name("kaitai_dump.js")), str(FORMATS / f"{codec}.ksy"), *map(str, files)],
            capture_output=True, text=True, check=False, env={**os.environ, "NODE_PATH": str(home / "node_modules")},
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]

    return dump


def within(tree: Any, name: str) -> Iterator[Any]:
    """Return all values of that name, in file order."""
    if isinstance(tree, list):
        for item in tree:
            yield from within(item, name)
    elif isinstance(tree, dict):
        for key, item in tree.items():
            if key == name:
                yield item
            else:
                yield from within(item, name)


def values_of(codec: registry.Codec, data: bytes) -> list[Any]:
    """Return the values our description reads in a file: one structure, or a sequence."""
    first, at, actual = described(codec)[0], 0, []
    while at < len(data) or not actual:
        value, at = first.unpack(data, at)
        actual.append(value)
    return actual


@pytest.mark.parametrize("codec", registry.codecs(), ids=lambda codec: codec.name)
def test_every_description_reads_the_samples(kaitai: Dump, codec: registry.Codec, tmp_path: Path) -> None:
    result = {}
    for number, sample in enumerate(samples(codec.name)):
        if sample.options.get("snapshot.compression.method"):
            continue  # the description is that of what is packed
        path = tmp_path / f"{number}"
        path.write_bytes(sample.specimen().data)
        result[path] = values_of(codec, path.read_bytes())
    assert result
    name = camel(identifier(described(codec)[0].name))
    for tree, ours in zip(kaitai(codec.name, *result), result.values(), strict=True):
        assert same([tree[name]] if once(codec) else tree["frames"], ours)


def test_each_kind_of_frame_is_parsed(kaitai: Dump, tmp_path: Path) -> None:
    """The padding of a journal, and the blank record of a commit log with the bytes after it."""
    [*_, journal] = samples("bookkeeper.journal")
    [*_, log] = samples("rocketmq.commitlog")
    blank = bytes.fromhex("0000001c cbd43194") + b"\1" * 20
    for codec, data, value in (
        ("bookkeeper.journal", journal.specimen().data, -256),
        ("rocketmq.commitlog", log.specimen().data + blank, 28),
    ):
        path = tmp_path / codec
        path.write_bytes(data)
        [tree] = kaitai(codec, path)
        [ours] = values_of(registry.get(codec), data)
        assert next(iter(ours["frames"][-1]["frame"].values())) == value
        assert same(tree[camel(identifier(described(registry.get(codec))[0].name))], ours)


@pytest.mark.parametrize("case", ["tables_none", "tables_bloom", "tables_separators"])
def test_blocks_of_a_table_have_all_keys(kaitai: Dump, case: str) -> None:
    for path in sorted((GOLDEN / "leveldb" / case / "db").glob("*.ldb")):
        [tree] = kaitai("leveldb.table", path)
        blocks = [row["contentsParsed"] for row in within(tree, "valueBlock") if "contentsParsed" in row]
        data = [block["entries"]["items"] for block in blocks if "entries" in block]
        key, keys, values = b"", [], []
        for entry in (item for items in data for item in items):
            key = key[: entry["shared"]["value"]] + bytes.fromhex(entry["keyDelta"])
            keys.append(key[:-8])
            values.append(bytes.fromhex(entry["value"]))
        rows = lw.read(str(path))
        assert rows.num_rows > 0
        assert keys == rows["key"].to_pylist()
        assert values == rows["value"].to_pylist()
        filters = [block for block in blocks if "arrayOffset" in block]
        assert len(filters) == (1 if case == "tables_bloom" else 0)
        assert all(row["baseLg"] == 11 and len(row["offsets"]["items"]) for row in filters)


def test_batches_of_a_log_have_all_operations(kaitai: Dump) -> None:
    path = GOLDEN / "leveldb" / "few_puts" / "db" / "000003.log"
    [tree] = kaitai("leveldb.log", path)
    rows = lw.read(str(path)).to_pylist()
    operations = list(within(tree, "operations"))
    assert [bytes.fromhex(row["key"]) for each in operations for row in each] == [row["key"] for row in rows]
    assert [row["type"] for each in operations for row in each] == [
        int(row["type"] == "value") for row in rows
    ]


def test_records_that_end_at_block_ends_are_parsed(kaitai: Dump) -> None:
    path = GOLDEN / "leveldb" / "wal_block_edges" / "db" / "000003.log"
    [tree] = kaitai("leveldb.log", path)
    [blocks] = within(tree, "blocks")
    assert len(blocks) == -(-path.stat().st_size // 32768)
    sizes = [
        sum(7 + row["length"] for row in block["records"]) + len(block["trailer"]) // 2 for block in blocks
    ]
    assert sum(sizes) == path.stat().st_size
    assert set(sizes[:-1]) == {32768}


def test_edits_of_a_manifest_have_all_fields(kaitai: Dump) -> None:
    path = GOLDEN / "leveldb" / "levels_many_edits" / "db" / "MANIFEST-000002"
    [tree] = kaitai("leveldb.manifest", path)
    fields = [item for each in within(tree, "fields") for item in each]
    rows = lw.read(str(path)).to_pylist()
    assert len(fields) == len(rows)
    added = [field["body"]["number"]["value"] for field in fields if field["tag"]["value"] == 7]
    assert added == [row["number"] for row in rows if row["field"] == "new_file"]


def test_batches_of_a_segment_have_all_records(kaitai: Dump) -> None:
    path = (
        GOLDEN
        / "kafka"
        / "v2_txn_commit_abort"
        / "data"
        / "v2_txn_commit_abort-0"
        / "00000000000000000000.log"
    )
    [tree] = kaitai("kafka.log", path)
    batches = [row["frame"] for row in tree["logSegment"]["frames"]]
    frames = lw.read(str(path), view="frames")
    assert [row["baseOffset"] for row in batches] == frames["base_offset"].to_pylist()
    assert [len(row["body"]["records"]) for row in batches] == frames["records_count"].to_pylist()
    values = {
        row["baseOffset"] + record["body"]["offsetDelta"]["value"]: bytes.fromhex(record["body"]["value"])
        for row in batches
        for record in row["body"]["records"]
        if record["body"]["valueLength"]["value"] >= 0
    }
    rows = lw.read(str(path)).to_pylist()
    assert rows
    assert [values[row["offset"]] for row in rows] == [row["value"] for row in rows]


def same(theirs: Any, ours: Any) -> bool:
    """Return whether Kaitai read the values that `Struct.unpack` returns; it also has others, such as lengths."""
    if isinstance(ours, dict):
        return all(same(value_of(theirs, camel(name)), value) for name, value in ours.items())
    if isinstance(ours, list):
        items = theirs.get("items") if isinstance(theirs, dict) else theirs  # a sized list is a separate type
        return len(items or ()) == len(ours) and all(map(same, items or (), ours))
    if isinstance(theirs, dict):  # items of a list and switched values have separate types
        inner = theirs.get("value", theirs.get("data"))
        # Bytes that hold something are what they hold.
        return not theirs if ours is None else inner is None or same(inner, ours)
    if isinstance(ours, bytes):
        return theirs in (ours.hex(), ours.decode("utf-8", "replace"))
    if ours is None or isinstance(ours, str):
        return bool(not theirs or theirs == ours)
    # JavaScript's numbers are doubles, and its runtime takes the lower half of negative ones of 64 bits for signed.
    return abs(float(theirs) - float(ours)) <= (1 << 33 if abs(ours) >> 53 else 0)


def value_of(theirs: Any, name: str) -> Any:
    """Return a field, also from a sized group or from one of several cases."""
    inner = theirs.get("body")
    if isinstance(inner, dict) and (name in inner or name not in theirs):
        return value_of(inner, name)
    cases = [key for key in theirs if re.fullmatch(rf"{name}(\d+|Other)?", key)]
    return next((theirs[key] for key in cases if theirs[key] is not None), None)


def camel(name: str) -> str:
    first, *more = name.split("_")
    return first + "".join(word.capitalize() for word in more)


def zookeeper(start: str) -> list[Path]:
    return [
        path
        for path in sorted((GOLDEN / "zookeeper").glob(f"*/**/version-2/{start}.*"))
        if "dmg_" not in str(path) and path.suffix not in (".gz", ".snappy") and path.stat().st_size < 1 << 20
    ]


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize(
    ("codec", "start", "struct"),
    [("zookeeper.txnlog", "log", TXN_LOG), ("zookeeper.snapshot", "snapshot", SNAPSHOT)],
)
def test_files_of_zookeeper_have_all_records(kaitai: Dump, codec: str, start: str, struct: Struct) -> None:
    paths = zookeeper(start)
    assert len(paths) > 30
    wrong = []
    for path, tree in zip(paths, kaitai(codec, *paths), strict=True):
        ours, end = struct.unpack(path.read_bytes())
        items = ours["records" if start == "log" else "nodes"]
        complete = end == path.stat().st_size
        right = complete and len(items) == lw.read(str(path), mode="PERMISSIVE").num_rows
        if not right or not same(tree[camel(identifier(struct.name))], ours):
            wrong.append(path)
    assert wrong == []


def test_forms_of_transactions_are_detected_from_their_bytes(kaitai: Dump, tmp_path: Path) -> None:
    """A create from before 3.4, one with a digest, closeSession with and without a body and a digest, unknown types."""
    create = {"path": b"/a", "data": None, "acl": None, "ephemeral": 1}
    digest = {"version": 2, "tree_digest": -5}
    entries = [
        (CREATE, create, None),
        (CREATE, {**create, "parent_cversion": -1}, digest),
        (CLOSE_SESSION, None, None),
        (CLOSE_SESSION, None, digest),
        (CLOSE_SESSION, {"paths_to_delete": [b"/abc"]}, None),
        (CLOSE_SESSION, {"paths_to_delete": None}, digest),
        (99, bytes(range(20)), None),
        (MULTI, {"txns": [{"type": ERROR, "data": {"err": -2}}, {"type": 99, "data": b"abc"}]}, digest),
        (MULTI, {"txns": None}, None),
    ]
    head = {"client_id": 1, "cxid": 2, "zxid": 3, "time": 4}
    records = [
        {"payload": {**head, "type": kind, "body": body, "digest": more}} for kind, body, more in entries
    ]
    result = {}
    for padding in (0, 5, 100):
        for subset in (records, records[:3], []):
            path = tmp_path / f"log.{len(subset)}.{padding}"
            path.write_bytes(TXN_LOG.pack({"header": {}, "records": subset, "padding": bytes(padding)}))
            ours = result[path] = TXN_LOG.unpack(path.read_bytes())[0]
            assert [(our["payload"]["body"], our["payload"]["digest"]) for our in ours["records"]] == [
                (body, more) for _, body, more in entries[: len(subset)]
            ]
    trees = kaitai("zookeeper.txnlog", *result)
    assert [same(tree["txnLog"], ours) for tree, ours in zip(trees, result.values(), strict=True)] == [
        True
    ] * 9


def test_text_files_are_parsed(kaitai: Dump) -> None:
    database, partition = GOLDEN / "leveldb" / "few_puts" / "db", GOLDEN / "kafka" / "v2_lz4_aiokafka"
    [current] = kaitai("leveldb.current", database / "CURRENT")
    assert current["current"]["manifest"] == lw.read(str(database / "CURRENT"))["manifest"][0].as_py()
    path = partition / "after-rebuild-200" / "leader-epoch-checkpoint"
    [epochs] = kaitai("kafka.leader_epoch_checkpoint", path)
    assert [
        {"epoch": int(epoch["epoch"]), "start_offset": int(epoch["startOffset"])}
        for epoch in epochs["leaderEpochCheckpoint"]["entries"]
    ] == lw.read(str(path)).to_pylist()
    path = GOLDEN / "zookeeper" / "quorum_one" / "version-2" / "currentEpoch"
    [epoch] = kaitai("zookeeper.current_epoch", path)
    assert int(epoch["currentEpoch"]["epoch"]) == lw.read(str(path))["epoch"][0].as_py()
    path = partition / "data" / "v2_lz4_aiokafka-0" / "partition.metadata"
    [metadata] = kaitai("kafka.partition_metadata", path)
    assert metadata["partitionMetadata"]["topicId"] == path.read_text().split()[-1]
