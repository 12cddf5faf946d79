"""The pages of `docs/formats` are what the descriptions make."""

from __future__ import annotations

import re
from pathlib import Path

import format_pages
import pytest
from format_ksy import identifier, ksy

from logwright.codec import registry
from logwright.codec.describe import structures

PAGES = format_pages.pages()


def test_no_drift() -> None:
    there = {one.name: one.read_text(encoding="utf-8") for one in format_pages.HOME.iterdir()}
    assert there.keys() == PAGES.keys(), "run `make docs`"
    assert [name for name, text in PAGES.items() if there[name] != text] == [], "run `make docs`"


def test_writing_them_leaves_nothing_else(tmp_path: Path) -> None:
    home = tmp_path / "formats"
    home.mkdir()
    (home / "gone.md").write_text("of a codec that is no more")
    format_pages.write(home)
    assert {one.name for one in home.iterdir()} == set(PAGES)


@pytest.mark.parametrize("codec", registry.codecs(), ids=lambda codec: codec.name)
def test_every_field_is_on_the_page(codec: registry.Codec) -> None:
    page = PAGES[f"{codec.name}.md"]
    for one in structures(format_pages.described(codec)):
        assert page.count(f"\n### {one.name}\n") == 1
        for field in one.fields:
            assert f"| `{field.name}` |" in page
    for table in codec.tables.values():
        assert all(f"| `{column.name}` |" in page for column in table.columns)
    assert all(f"| `{option.name}` |" in page for option in codec.options)


@pytest.mark.parametrize("codec", registry.codecs(), ids=lambda codec: codec.name)
def test_links_lead_somewhere(codec: registry.Codec) -> None:
    page = PAGES[f"{codec.name}.md"]
    heads = {head.lower() for head in re.findall(r"^### (.+)$", page, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= heads


def test_what_kaitai_is_told() -> None:
    text = ksy(registry.get("kafka.log")) or ""
    assert "  - id: frames\n    type: record_batch\n    repeat: eos\n" in text
    assert "      - id: body\n        type: record_batch_body\n        size: batch_length\n" in text
    assert (
        "        repeat-expr: records_count\n        type: record\n        if: '(attributes & 7) == 0'\n"
        in text
    )
    assert "        size: 'key_length.value < 0 ? 0 : key_length.value'\n" in text
    types = set(re.findall(r"^  (\w+):$", text, re.MULTILINE))
    used = set(re.findall(r"type: (?!str$|[su]\d)(\w+)$", text, re.MULTILINE))
    assert used <= types
    assert identifier("RecordBatch") == "record_batch"


def test_only_what_can_be_told_is_exported() -> None:
    suffixes: dict[str, set[str]] = {"ksy": set(), "hexpat": set()}
    for name in PAGES:
        codec, _, suffix = name.rpartition(".")
        if suffix in suffixes:
            suffixes[suffix].add(codec)
    assert suffixes["hexpat"] == {
        "kafka.index",
        "kafka.timeindex",
        "kafka.txnindex",
        "kafka.producer_snapshot",
    }
    assert suffixes["ksy"] == suffixes["hexpat"] | {"kafka.log"}
    assert "    be s64 producer_id [[comment(" in PAGES["kafka.txnindex.hexpat"]
    assert "    ProducerEntry entries[count] [[comment(" in PAGES["kafka.producer_snapshot.hexpat"]
