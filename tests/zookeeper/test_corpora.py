"""ZooKeeper's corpora: generated files read as their manifest says, cover the formats, and are the same on every platform."""

from __future__ import annotations

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
    (generator.name, recipe.name)
    for generator in generators()
    if generator.name.startswith("zookeeper.")
    for recipe in generator.recipes
]
NAMES = {"zookeeper.datadir": "version-2", "zookeeper.txnlog": "log.1", "zookeeper.snapshot": "snapshot.7"}


def objects(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines()]


def read(path: Path, codec: str, columns: list[str]) -> list[Any]:
    table = lw.read(path, codec, columns=columns)
    return [item for batch in table.to_batches() for item in objects(lines(batch))]


@pytest.mark.alike
@pytest.mark.parametrize("rows", [0, 1, 2, 150])
@pytest.mark.parametrize(("codec", "recipe"), RECIPES)
def test_generated_directories_read_as_their_manifest_says(
    codec: str, recipe: str, rows: int, tmp_path: Path
) -> None:
    path = tmp_path / NAMES[codec]
    generated = lw.generate(codec, path, rows=rows, seed=11, recipe=recipe)
    ((view, expected),) = generated.expected.items()
    message = objects(Path(expected).read_bytes())
    if message:
        assert sorted(read(path, codec, list(message[0])), key=str) == sorted(message, key=str)
    assert generated.manifest["views"][view] == {"rows": len(message), "expected": Path(expected).name}
    report = lw.verify(path, codec)
    assert report.ok, report.text()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        for law in (decode_encode, encode_without_payloads):
            verdict = law(file)
            assert verdict, verdict


def test_mixed_recipe_has_every_transaction_type(tmp_path: Path) -> None:
    path = tmp_path / "version-2"
    lw.generate("zookeeper.datadir", path, rows=1200, seed=5, recipe="mixed")
    tree = lw.read(path).to_pylist()
    assert {row["kind"] for row in tree} == {"persistent", "ephemeral", "container", "ttl"}
    assert {None, b""} < {row["data"] for row in tree}
    assert len({str(row["acl"]) for row in tree}) >= 4
    txns = lw.read(path, view="txns").to_pylist()
    assert len(txns) == 1200
    assert {row["type"] for row in txns} == {
        *(
            "create",
            "create2",
            "createTTL",
            "createContainer",
            "delete",
            "deleteContainer",
            "setData",
            "setACL",
        ),
        *("createSession", "closeSession", "error", "multi"),
    }
    subs = {entry["type"] for row in txns for entry in row["txns"] or ()}
    assert subs == {"create", "setData", "check", "error"}
    assert {row["paths_to_delete"] is None for row in txns if row["type"] == "closeSession"} == {True, False}
    assert sorted(file.name for file in path.iterdir()) == [
        "log.1",
        "log.259",
        "snapshot.0",
        "snapshot.258.gz",
    ]


def test_manifest_lists_every_file(tmp_path: Path) -> None:
    generated = lw.generate("zookeeper.datadir", tmp_path / "zk", rows=60, recipe="mixed")
    actual = {entry["name"]: entry for entry in generated.manifest["files"]}
    assert sorted(actual) == [
        f"version-2/{name}" for name in ("log.1", "log.1f", "snapshot.0", "snapshot.1e.gz")
    ]
    assert generated.bytes == sum((tmp_path / "zk" / name).stat().st_size for name in actual)
    assert "content_sha256" in actual["version-2/snapshot.1e.gz"]
    assert "content_sha256" not in actual["version-2/snapshot.0"]


def test_same_seed_generates_the_same_bytes(tmp_path: Path) -> None:
    for recipe, options in (("plain", {"write_as": "snapshot"}), ("mixed", {})):
        for place in ("one", "second"):
            lw.generate(
                "zookeeper.datadir", tmp_path / recipe / place, rows=60, seed=3, recipe=recipe, **options
            )
        first, second = (
            {file.name: file.read_bytes() for file in (tmp_path / recipe / place / "version-2").iterdir()}
            for place in ("one", "second")
        )
        assert first == second


@pytest.mark.parametrize(
    ("codec", "name", "recipe"),
    [
        ("zookeeper.txnlog", "a.log", "plain"),
        ("zookeeper.txnlog", "log.7", "mixed"),
        ("zookeeper.snapshot", "log.1", "mixed"),
        ("zookeeper.snapshot", "snap", "plain"),
    ],
)
def test_file_name_that_contradicts_the_recipe_is_refused(
    codec: str, name: str, recipe: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"is not a name of such a file|does not begin with the first"):
        lw.generate(codec, tmp_path / name, recipe=recipe)
    assert list(tmp_path.iterdir()) == []
