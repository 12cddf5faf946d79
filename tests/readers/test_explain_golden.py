"""Every golden file, damaged ones too: all of its bytes are in its explanation, in their place, and so are those that are packed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from explanations import all_nodes, check_covers_file, nodes_named

import logwright as lw
from logwright.codec import registry
from logwright.codec.explain import SKIPPED
from logwright.corpora.cases import cases

_MOST = 6
"""Cases of a system are tried in so many groups."""


@cache
def files(system: str) -> list[Path]:
    """Each file that a codec takes for its own; of those with the same bytes one."""
    found: dict[tuple[str, bytes], Path] = {}
    home = next(iter(cases(system).values())).path.parent
    for path in sorted(one for one in home.rglob("*") if one.is_file()):
        with path.open("rb") as file:
            head = file.read(4096)
        codec = registry.detect(path.name, head)
        if codec is not None and path.stat().st_size < 4 << 20:
            found.setdefault((codec.name, path.read_bytes()), path)
    return list(found.values())


@pytest.mark.parametrize(
    "group", [0, *(pytest.param(group, marks=pytest.mark.extended) for group in range(1, _MOST))]
)
@pytest.mark.parametrize("system", registry.SYSTEMS)
def test_every_byte_of_every_file(system: str, group: int) -> None:
    for path in files(system)[group::_MOST]:
        check_covers_file(lw.explain(path), path.read_bytes())


@pytest.mark.parametrize("system", registry.SYSTEMS)
def test_every_byte_where_little_is_shown(system: str) -> None:
    for path in files(system)[::9]:
        found = lw.explain(path, items=2)
        check_covers_file(found, path.read_bytes())
        lists = [one for one in all_nodes(found) if one.kind == "list" and one.value > 2]
        assert all(any(each.kind == SKIPPED for each in one.children) for one in lists)


@pytest.mark.parametrize("system", registry.SYSTEMS)
def test_all_forms_of_every_ninth(system: str) -> None:
    """Text, JSON and page are made of each without a complaint."""
    for path in files(system)[4::9]:
        found = lw.explain(path, items=5)
        text, page = found.text(), found.html()
        assert all(line.isprintable() for line in text.splitlines())
        assert found.to_json().startswith('{"explain": 1')
        assert page.startswith("<!doctype html>")


def test_all_kinds_are_among_them() -> None:
    seen = {
        registry.detect(path.name, path.read_bytes()[:4096])
        for system in registry.SYSTEMS
        for path in files(system)
    }
    assert seen == set(registry.codecs())


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize("system", registry.SYSTEMS)
def test_rows_are_counted_as_they_are_read(system: str) -> None:
    """The row of a number in the tree is the row of that number in the table."""
    tried = 0
    for path in files(system)[::5]:
        codec = registry.detect(path.name, path.read_bytes()[:4096])
        assert codec is not None
        try:
            table = lw.read(path)
        except lw.LogwrightError:
            continue
        found = lw.explain(path, items=100_000)
        if sum(1 for one in all_nodes(found) if one.row is not None) == table.num_rows > 0:
            tried += 1
        else:
            assert (
                found.problems
                or not table.num_rows
                or codec.name == "kafka.partition_metadata"
                or path.name in ("CURRENT", "acceptedEpoch", "currentEpoch", "myid")
            ), path
    assert tried > 5


def test_sound_files_have_no_problems() -> None:
    for system, case in (
        ("kafka", "v2_zstd_java"),
        ("leveldb", "tables_bloom"),
        ("leveldb", "wal_large_values"),
    ):
        home = next(iter(cases(system).values())).path.parent / case
        for path in (one for one in files(system) if home in one.parents):
            assert lw.explain(path).problems == 0, path


def test_records_of_several_pieces_are_gathered() -> None:
    path = next(one for one in files("leveldb") if "wal_large_values" in str(one) and one.suffix == ".log")
    found = lw.explain(path)
    records = [one for one in all_nodes(found) if one.space is not None]
    assert records
    assert all(one.space is not None and one.space.how == "gathered" for one in records)
    keys = {str(one.value, "utf-8") for one in nodes_named(found, "key") if isinstance(one.value, bytes)}
    assert {key.decode() for key in lw.read(path)["key"].to_pylist()} == keys


def test_whole_keys_of_a_table() -> None:
    path = next(one for one in files("leveldb") if "tables_snappy" in str(one) and one.suffix == ".ldb")
    found = lw.explain(path, items=100_000)
    rows = lw.read(path, columns="*")
    said = [one.meaning for one in all_nodes(found) if one.row is not None]
    assert said == [
        f"{row['key'].decode()}, sequence {row['sequence']}, {row['type']}" for row in rows.to_pylist()
    ]
