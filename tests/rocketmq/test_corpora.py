"""Generated RocketMQ corpora read as their manifest says, and are undamaged stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import logwright as lw
from logwright.corpora.expected import lines
from logwright.corpora.generate import generators

RECIPES = [
    (generator.name, recipe.name) for generator in generators() if generator.name.startswith("rocketmq.") for recipe in generator.recipes
]  # fmt: skip
NAMES = {"rocketmq.store": "store", "rocketmq.commitlog": "00000000000000000000"}


@pytest.mark.alike
@pytest.mark.parametrize("rows", [0, 1, 300])
@pytest.mark.parametrize(("codec", "recipe"), RECIPES)
def test_generated_store_reads_as_expected(codec: str, recipe: str, rows: int, tmp_path: Path) -> None:
    path = tmp_path / NAMES[codec]
    manifest = lw.generate(codec, path, rows=rows, seed=11, recipe=recipe)
    ((view, expected),) = manifest.expected.items()
    expected_rows = [json.loads(line) for line in Path(expected).read_bytes().splitlines()]
    table = lw.read(path, codec, view=view)
    actual = [json.loads(line) for batch in table.to_batches() for line in lines(batch).splitlines()]
    assert actual == expected_rows
    assert len(actual) == rows
    report = lw.verify(path, codec, as_system="5.5.0" if codec == "rocketmq.store" else None)
    assert report.ok, report.text()
    if report.system is not None:
        assert report.system["opens"], report.system["error"]
        assert report.system["rows_lost"] == 0


def test_mixed_recipe_uses_every_kind_of_message(tmp_path: Path) -> None:
    lw.generate("rocketmq.store", tmp_path / "store", rows=300, seed=3, recipe="mixed")
    rows = lw.read(tmp_path / "store", columns="*").to_pylist()
    assert {row["sys_flag"] for row in rows} == {0, 0x4, 0x8, 0xC, 0x10, 0x30}
    assert {row["version"] for row in rows} == {1, 2}
    assert {row["body"] is None for row in rows} == {True, False}
    assert {row["tags"] is None for row in rows} == {row["keys"] is None for row in rows} == {True, False}
    assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 1
    assert len(list((tmp_path / "store" / "index").iterdir())) > 1
