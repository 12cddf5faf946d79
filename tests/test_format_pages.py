"""The pages of `docs/formats` are what the descriptions make."""

from __future__ import annotations

import re
from pathlib import Path

import format_pages
import pytest
from format_ksy import described, identifier, ksy

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
    for one in structures(described(codec)):
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


@pytest.mark.parametrize("codec", registry.codecs(), ids=lambda codec: codec.name)
def test_every_type_that_kaitai_is_told_of_is_there(codec: registry.Codec) -> None:
    text = PAGES[f"{codec.name}.ksy"]
    types = re.findall(r"^  (\w+):$", text, re.MULTILINE)
    used = set(re.findall(r"type: (?!str$|[su]\d(?:[lb]e)?$)(\w+)$", text, re.MULTILINE))
    used |= set(re.findall(r"^            (?:-?\d+|_): (\w+)$", text, re.MULTILINE))
    assert len(types) == len(set(types))
    assert used <= set(types)
    for one in structures(described(codec)):
        sized = [field.name for field in one.fields if field.sizes]
        assert identifier(one.name) in types
        assert not sized or f"{identifier(one.name)}_body" in types
        for field in one.fields:
            assert re.search(rf"^      - id: {field.name}$", text, re.MULTILINE), field.name


@pytest.mark.parametrize("codec", registry.codecs(), ids=lambda codec: codec.name)
def test_what_imhex_is_told_is_told_before_it_is_used(codec: registry.Codec) -> None:
    text = PAGES[f"{codec.name}.hexpat"]
    assert text.count("{") == text.count("}")
    there = {"u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "char"}
    for line in text.splitlines():
        if begun := re.match(r"struct (\w+)", line):
            there.add(begun[1])
        elif field := re.match(
            r"(?:    )+(?:[lb]e )?(\w+)(?:<.*>)? \w+(?:\[.*\])?(?: @ .*)? ?(?:\[\[.*\]\])?;$", line
        ):
            assert field[1] in there | {"u128", "s128", "return"}, line
    assert described(codec)[0].name.lower() in {one.lower() for one in there}


def test_what_kaitai_is_told() -> None:
    text = ksy(registry.get("kafka.log"))
    assert "  - id: frames\n    type: record_batch\n    repeat: eos\n" in text
    assert "      - id: body\n        type: record_batch_body\n        size: batch_length\n" in text
    assert (
        "        repeat-expr: records_count\n        type: record\n        if: '(attributes & 7) == 0'\n"
        in text
    )
    assert "        size: 'key_length.value < 0 ? 0 : key_length.value'\n" in text
    assert identifier("RecordBatch") == "record_batch"


def test_blocks_that_a_handle_leads_to() -> None:
    text = PAGES["leveldb.table.ksy"]
    assert "  - id: table\n    type: table\ntypes:\n" in text
    assert (
        "      index_handle_block:\n        io: _root._io\n        pos: index_handle.offset.value\n"
        "        size: index_handle.size.value + 5\n        type: stored_index_block\n" in text
    )
    assert "        size: 'left - 5'" not in text
    assert "        size: '(_io.size - _io.pos) - 4 * num_restarts_ahead - 4'\n" in text
    assert "        if: '(type) == 0'\n" in text
    pattern = PAGES["leveldb.table.hexpat"]
    assert (
        "    StoredIndexBlock<(index_handle.offset) + (index_handle.size + 5)> index_handle_block @ (index_handle.offset);\n"
        in pattern
    )
    assert "    u8 padding_[stop - $]" in pattern
    page = PAGES["leveldb.table.md"]
    assert (
        "| `index_handle` | [BlockHandle](#blockhandle) | where the index block lies; leads to [StoredIndexBlock](#storedindexblock) |"
        in page
    )


def test_records_in_blocks() -> None:
    text = PAGES["leveldb.log.ksy"]
    assert (
        "        size: '(_io.size - _io.pos) < 32768 ? (_io.size - _io.pos) : 32768'\n        type: log_block\n"
        in text
    )
    assert "        repeat-until: '(_io.size - _io.pos) < 7'\n" in text
    assert "        size: length\n        type: write_batch\n        if: '(type) == 1'\n" in text
    assert "      - id: payload_other\n        size: length\n        if: '(type) != 1'\n" in text
    pattern = PAGES["leveldb.log.hexpat"]
    assert "    LogBlockRoom32768<stop> blocks[while(stop >= $ + 1)]" in pattern
    assert "    PhysicalRecord<stop> records[while(stop >= $ + 7)]" in pattern


def test_words() -> None:
    assert (
        "      - id: version\n        type: str\n        terminator: 10\n"
        in PAGES["kafka.offset_checkpoint.ksy"]
    )
    assert "        repeat-expr: count.to_i\n" in PAGES["kafka.offset_checkpoint.ksy"]
    assert "      - id: topic_id_name_end\n        size: 1\n" in PAGES["kafka.partition_metadata.ksy"]
    assert "    name topic_id_name " in PAGES["kafka.partition_metadata.hexpat"]


def test_every_codec_is_exported() -> None:
    for codec in registry.codecs():
        assert {f"{codec.name}.{suffix}" for suffix in ("md", "ksy", "hexpat")} <= set(PAGES)
    assert "    be s64 producer_id [[comment(" in PAGES["kafka.txnindex.hexpat"]
    assert "    ProducerEntry<stop> entries[count] [[comment(" in PAGES["kafka.producer_snapshot.hexpat"]
