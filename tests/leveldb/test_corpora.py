"""LevelDB's corpora: what is generated reads as its manifest says, has everything of the formats, and is the same everywhere."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.codec.fault import UsageError
from logwright.corpora.expected import lines
from logwright.corpora.generate import generators
from logwright.roundtrip.laws import decode_encode, encoded_anew

RECIPES = [
    (one.name, recipe.name) for one in generators() if one.name.startswith("leveldb.") for recipe in one.recipes
]  # fmt: skip
NAMES = {"leveldb.db": "chainstate", "leveldb.log": "000003.log", "leveldb.table": "000005.ldb"}
CORE = ["key", "value", "sequence", "type"]


def objects(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines()]


def read(path: Path, codec: str) -> list[Any]:
    found = lw.read(path, codec, columns=CORE)
    return [one for batch in found.to_batches() for one in objects(lines(batch))]


@pytest.mark.parametrize("rows", [0, 1, 2, 150])
@pytest.mark.parametrize(("codec", "recipe"), RECIPES)
def test_it_reads_as_expected(codec: str, recipe: str, rows: int, tmp_path: Path) -> None:
    path = tmp_path / NAMES[codec]
    made = lw.generate(codec, path, rows=rows, seed=11, recipe=recipe)
    ((view, expected),) = made.expected.items()
    said = objects(Path(expected).read_bytes())
    assert read(path, codec) == said
    assert made.manifest["views"][view] == {"rows": len(said), "expected": Path(expected).name}
    if recipe == "plain" or codec != "leveldb.db":
        assert len(said) == rows
    report = lw.verify(path, codec)
    assert report.ok, report.text()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if file.name != "LOCK":
            for law in (decode_encode, encoded_anew):
                verdict = law(file)
                assert verdict, verdict


def test_the_mixed_one_has_everything(tmp_path: Path) -> None:
    path = tmp_path / "chainstate"
    made = lw.generate("leveldb.db", path, rows=1500, seed=5, recipe="mixed")
    every = lw.read(path, view="history").to_pylist()
    assert len(every) == 1500
    assert {one["state"] for one in every} == {"live", "overwritten", "deleted"}
    assert {one["level"] for one in every} == {None, 0, 1, 2}
    assert {one["type"] for one in every} == {"value", "deletion"}
    assert any(one["key"] == b"" for one in every)
    assert any(one["value"] == b"" for one in every)
    assert max(len(one["value"] or b"") for one in every) > 32768
    tables = sorted(path.glob("*.ldb"))
    frames = [one for file in tables for one in lw.read(file, view="frames", columns="*").to_pylist()]
    assert {one["compression"] for one in frames} == {"none", "snappy", "zstd"}
    assert {one["kind"] for one in frames} == {"data", "filter", "metaindex", "index"}
    assert len({one["restart_interval"] for one in frames if one["kind"] == "data"}) > 2
    records = [one for file in path.glob("*.log") for one in lw.read(file, view="frames").to_pylist()]
    assert {one["type"] for one in records} == {"FULL", "FIRST", "MIDDLE", "LAST"}
    fields = {one["field"] for one in lw.read(path / "MANIFEST-000003").to_pylist()}
    assert fields == {
        "comparator", "log_number", "prev_log_number", "next_file_number", "last_sequence", "compact_pointer",
        "deleted_file", "new_file",
    }  # fmt: skip
    expected = objects(Path(made.expected["live"]).read_bytes())
    assert 0 < len(expected) < len({one["key"] for one in every})


def test_real_leveldb_reads_it(tmp_path: Path) -> None:
    plyvel = pytest.importorskip("plyvel")
    for recipe, options in (("mixed", {"compression": "snappy"}), ("plain", {"bloom_bits_per_key": 10})):
        path = tmp_path / recipe
        made = lw.generate("leveldb.db", path, rows=700, seed=3, recipe=recipe, **options)
        before = lw.read(path, columns=["key", "value"])
        database = plyvel.DB(str(path), paranoid_checks=True)
        found = list(database.iterator(verify_checksums=True))
        database.close()
        assert found == list(zip(*(one.to_pylist() for one in before.columns), strict=True))
        assert len(found) == made.manifest["views"]["live"]["rows"]


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    """On all versions of Python and NumPy; of what compressors make the content."""
    digest = hashlib.sha256()
    for codec, recipe in RECIPES:
        path = tmp_path / recipe / NAMES[codec]
        path.parent.mkdir(exist_ok=True)
        options = {} if codec == "leveldb.log" else {"compression": "none"}
        made = lw.generate(codec, path, rows=300, seed=9, recipe=recipe, **options)
        for entry in made.manifest["files"]:
            digest.update(f"{entry['name']} {entry['size']} {entry['sha256']}\n".encode())
            assert ("content_sha256" in entry) == entry["name"].startswith("MANIFEST")
    assert digest.hexdigest() == DIGEST


DIGEST = "f5f797c8eca3e280baffaff4b09bc2abe13efa0b5ab7b033503fb7d61946a8e4"


def test_content_is_told_apart_from_compression(tmp_path: Path) -> None:
    found = {}
    for level in (1, 19):
        made = lw.generate(
            "leveldb.table", tmp_path / f"00000{level % 10}.ldb", rows=400, compression="zstd", zstd_compression_level=level,
            value_bytes=300,
        )  # fmt: skip
        (found[level],) = made.manifest["files"]
    assert found[1]["sha256"] != found[19]["sha256"]
    assert found[1]["content_sha256"] == found[19]["content_sha256"]


def test_names_that_are_none(tmp_path: Path) -> None:
    for codec, name in (("leveldb.log", "000003.ldb"), ("leveldb.table", "x.log")):
        with pytest.raises(UsageError, match="is no name of such a file"):
            lw.generate(codec, tmp_path / name, rows=3, recipe="mixed")
