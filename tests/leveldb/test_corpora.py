"""Generated LevelDB corpora read as their manifest says, use every feature of the formats, and are the same on every platform."""

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
from logwright.roundtrip.laws import decode_encode, encode_without_payloads

RECIPES = [
    (generator.name, recipe.name) for generator in generators() if generator.name.startswith("leveldb.") for recipe in generator.recipes
]  # fmt: skip
NAMES = {"leveldb.db": "chainstate", "leveldb.log": "000003.log", "leveldb.table": "000005.ldb"}
CORE = ["key", "value", "sequence", "type"]


def objects(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines()]


def read(path: Path, codec: str) -> list[Any]:
    rows = lw.read(path, codec, columns=CORE)
    return [object_ for batch in rows.to_batches() for object_ in objects(lines(batch))]


@pytest.mark.alike
@pytest.mark.parametrize("rows", [0, 1, 2, 150])
@pytest.mark.parametrize(("codec", "recipe"), RECIPES)
def test_generated_file_reads_as_expected(codec: str, recipe: str, rows: int, tmp_path: Path) -> None:
    path = tmp_path / NAMES[codec]
    manifest = lw.generate(codec, path, rows=rows, seed=11, recipe=recipe)
    ((view, expected),) = manifest.expected.items()
    expected_objects = objects(Path(expected).read_bytes())
    assert read(path, codec) == expected_objects
    assert manifest.manifest["views"][view] == {
        "rows": len(expected_objects),
        "expected": Path(expected).name,
    }
    if recipe == "plain" or codec != "leveldb.db":
        assert len(expected_objects) == rows
    report = lw.verify(path, codec)
    assert report.ok, report.text()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if file.name != "LOCK":
            for law in (decode_encode, encode_without_payloads):
                verdict = law(file)
                assert verdict, verdict


def test_mixed_recipe_uses_every_feature(tmp_path: Path) -> None:
    path = tmp_path / "chainstate"
    manifest = lw.generate("leveldb.db", path, rows=1500, seed=5, recipe="mixed")
    every = lw.read(path, view="history").to_pylist()
    assert len(every) == 1500
    assert {row["state"] for row in every} == {"live", "overwritten", "deleted"}
    assert {row["level"] for row in every} == {None, 0, 1, 2}
    assert {row["type"] for row in every} == {"value", "deletion"}
    assert any(row["key"] == b"" for row in every)
    assert any(row["value"] == b"" for row in every)
    assert max(len(row["value"] or b"") for row in every) > 32768
    tables = sorted(path.glob("*.ldb"))
    frames = [row for file in tables for row in lw.read(file, view="frames", columns="*").to_pylist()]
    assert {frame["compression"] for frame in frames} == {"none", "snappy", "zstd"}
    assert {frame["kind"] for frame in frames} == {"data", "filter", "metaindex", "index"}
    assert len({frame["restart_interval"] for frame in frames if frame["kind"] == "data"}) > 2
    records = [row for file in path.glob("*.log") for row in lw.read(file, view="frames").to_pylist()]
    assert {record["type"] for record in records} == {"FULL", "FIRST", "MIDDLE", "LAST"}
    fields = {row["field"] for row in lw.read(path / "MANIFEST-000003").to_pylist()}
    assert fields == {
        "comparator", "log_number", "prev_log_number", "next_file_number", "last_sequence", "compact_pointer",
        "deleted_file", "new_file",
    }  # fmt: skip
    expected = objects(Path(manifest.expected["live"]).read_bytes())
    assert 0 < len(expected) < len({row["key"] for row in every})


def test_real_leveldb_reads_generated_databases(tmp_path: Path) -> None:
    plyvel = pytest.importorskip("plyvel")
    for recipe, options in (("mixed", {"compression": "snappy"}), ("plain", {"bloom_bits_per_key": 10})):
        path = tmp_path / recipe
        manifest = lw.generate("leveldb.db", path, rows=700, seed=3, recipe=recipe, **options)
        before = lw.read(path, columns=["key", "value"])
        database = plyvel.DB(str(path), paranoid_checks=True)
        pairs = list(database.iterator(verify_checksums=True))
        database.close()
        assert pairs == list(zip(*(column.to_pylist() for column in before.columns), strict=True))
        assert len(pairs) == manifest.manifest["views"]["live"]["rows"]


def test_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    """On all versions of Python and NumPy, except the output of compressors."""
    digest = hashlib.sha256()
    for codec, recipe in RECIPES:
        path = tmp_path / recipe / NAMES[codec]
        path.parent.mkdir(exist_ok=True)
        options = {} if codec == "leveldb.log" else {"compression": "none"}
        manifest = lw.generate(codec, path, rows=300, seed=9, recipe=recipe, **options)
        for entry in manifest.manifest["files"]:
            digest.update(f"{entry['name']} {entry['size']} {entry['sha256']}\n".encode())
            assert ("content_sha256" in entry) == entry["name"].startswith("MANIFEST")
    assert digest.hexdigest() == DIGEST


DIGEST = "f5f797c8eca3e280baffaff4b09bc2abe13efa0b5ab7b033503fb7d61946a8e4"


def test_content_is_independent_of_compression(tmp_path: Path) -> None:
    sizes = {}
    for level in (1, 19):
        manifest = lw.generate(
            "leveldb.table", tmp_path / f"00000{level % 10}.ldb", rows=400, compression="zstd", zstd_compression_level=level,
            value_bytes=300,
        )  # fmt: skip
        (sizes[level],) = manifest.manifest["files"]
    assert sizes[1]["sha256"] != sizes[19]["sha256"]
    assert sizes[1]["content_sha256"] == sizes[19]["content_sha256"]


def test_unknown_recipes_are_refused(tmp_path: Path) -> None:
    for codec, name in (("leveldb.log", "000003.ldb"), ("leveldb.table", "x.log")):
        with pytest.raises(UsageError, match="is not the name of such a file"):
            lw.generate(codec, tmp_path / name, rows=3, recipe="mixed")
