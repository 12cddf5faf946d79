"""The explanation of every golden file, damaged ones too, covers each byte once, those of decompressed blocks too."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import golden_traits
import pytest
from explanations import all_nodes, check_covers_file, nodes_named

import logwright as lw
from logwright.codec import registry
from logwright.codec.explain import SKIPPED
from logwright.codec.single_frame import SmallFileCodec

_MOST = 12
"""Number of groups into which the cases of a system are divided."""
EVERY = pytest.mark.parametrize("every", [29, pytest.param(7, marks=pytest.mark.extended)])
"""Try every n-th file."""


@cache
def files(system: str) -> list[Path]:
    """Return each file that a codec recognises, identical files once."""
    by_bytes: dict[tuple[str, bytes], Path] = {}
    home = next(iter(golden_traits.cases(system).values())).parent
    for path in sorted(child for child in home.rglob("*") if child.is_file()):
        with path.open("rb") as file:
            head = file.read(4096)
        codec = registry.detect(path.name, head)
        if codec is not None and path.stat().st_size < 4 << 20:
            by_bytes.setdefault((codec.name, path.read_bytes()), path)
    return list(by_bytes.values())


@pytest.mark.alike
@pytest.mark.parametrize(
    "group", [0, *(pytest.param(group, marks=pytest.mark.extended) for group in range(1, _MOST))]
)
@pytest.mark.parametrize("system", registry.SYSTEMS)
def test_every_byte_of_every_file_is_explained(system: str, group: int) -> None:
    for path in files(system)[group::_MOST]:
        check_covers_file(lw.explain(path), path.read_bytes())


@pytest.mark.alike
@pytest.mark.parametrize("system", registry.SYSTEMS)
@EVERY
def test_every_byte_is_explained_if_the_limit_is_low(system: str, every: int) -> None:
    for path in files(system)[::every]:
        explanation = lw.explain(path, items=2)
        check_covers_file(explanation, path.read_bytes())
        lists = [node for node in all_nodes(explanation) if node.kind == "list" and (node.value or 0) > 2]
        # Items that cannot be read are shown.
        readable = [items for items in lists if not any(node.problem for node in items.walk())]
        assert all(any(each.kind == SKIPPED for each in items.children) for items in readable)


@pytest.mark.alike
@pytest.mark.parametrize("system", registry.SYSTEMS)
@EVERY
def test_text_json_and_html_are_written_without_an_error(system: str, every: int) -> None:
    for path in files(system)[4::every]:
        explanation = lw.explain(path, items=5)
        text, page = explanation.text(), explanation.html()
        assert all(line.isprintable() for line in text.splitlines())
        assert explanation.to_json().startswith('{"explain": 1')
        assert page.startswith("<!doctype html>")


def test_golden_files_cover_all_codecs() -> None:
    seen = {
        registry.detect(path.name, path.read_bytes()[:4096])
        for system in registry.SYSTEMS
        for path in files(system)
    }
    compressed = {"rocketmq.timerwheel"}  # tests/rocketmq has its cases
    assert seen >= {codec for codec in registry.codecs() if codec.name not in compressed}


@pytest.mark.alike
@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize("system", registry.SYSTEMS)
@EVERY
def test_row_numbers_equal_those_of_the_table(system: str, every: int) -> None:
    """Row n in the tree is row n of the table."""
    tried = 0
    for path in files(system)[::every]:
        codec = registry.detect(path.name, path.read_bytes()[:4096])
        assert codec is not None
        try:
            table = lw.read(path)
        except lw.LogwrightError:
            continue
        explanation = lw.explain(path, items=100_000)
        if sum(1 for node in all_nodes(explanation) if node.row is not None) == table.num_rows > 0:
            tried += 1
        else:
            assert (
                explanation.problems
                or not table.num_rows
                or isinstance(codec, SmallFileCodec)  # its one row has no node
            ), path
    assert tried > 1


def test_sound_files_have_no_problems() -> None:
    for system, case in (
        ("kafka", "v2_zstd_java"),
        ("leveldb", "tables_bloom"),
        ("leveldb", "wal_large_values"),
    ):
        home = golden_traits.cases(system)[case]
        for path in (file for file in files(system) if home in file.parents):
            assert lw.explain(path).problems == 0, path


def test_fragmented_records_are_joined() -> None:
    path = next(
        file for file in files("leveldb") if "wal_large_values" in str(file) and file.suffix == ".log"
    )
    explanation = lw.explain(path)
    records = [node for node in all_nodes(explanation) if node.space is not None]
    assert records
    assert all(record.space is not None and record.space.origin == "gathered" for record in records)
    keys = {
        str(node.value, "utf-8") for node in nodes_named(explanation, "key") if isinstance(node.value, bytes)
    }
    assert {key.decode() for key in lw.read(path)["key"].to_pylist()} == keys


def test_keys_of_a_table_are_shown_completely() -> None:
    path = next(file for file in files("leveldb") if "tables_snappy" in str(file) and file.suffix == ".ldb")
    explanation = lw.explain(path, items=100_000)
    rows = lw.read(path, columns="*")
    meanings = [node.meaning for node in all_nodes(explanation) if node.row is not None]
    assert meanings == [
        f"{row['key'].decode()}, sequence {row['sequence']}, {row['type']}" for row in rows.to_pylist()
    ]
