"""The pages of `docs/formats` are generated from the descriptions."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import format_pages
import pytest
from format_hexpat import hexpat
from format_ksy import described, identifier, ksy

from logwright.codec import registry
from logwright.codec.describe import (
    I32BE,
    Bytes,
    Enclosed,
    Field,
    Int,
    Nothing,
    Repeated,
    Struct,
    Switch,
    structures,
)

PAGES = format_pages.pages()


def test_pages_are_up_to_date() -> None:
    there = {path.name: path.read_text(encoding="utf-8") for path in format_pages.HOME.iterdir()}
    assert there.keys() == PAGES.keys(), "run `make docs`"
    assert [name for name, text in PAGES.items() if there[name] != text] == [], "run `make docs`"


def test_writing_pages_removes_stale_ones(tmp_path: Path) -> None:
    home = tmp_path / "formats"
    home.mkdir()
    (home / "gone.md").write_text("of a codec that is no more")
    format_pages.write(home)
    assert {path.name for path in home.iterdir()} == set(PAGES)


@pytest.mark.parametrize("codec", registry.codecs(), ids=lambda codec: codec.name)
def test_every_field_is_on_the_page(codec: registry.Codec) -> None:
    page = PAGES[f"{codec.name}.md"]
    for structure in structures(described(codec)):
        assert page.count(f"\n### {structure.name}\n") == 1
        for field in structure.fields:
            assert f"| `{field.name}` |" in page
    for table in codec.tables.values():
        assert all(f"| `{column.name}` |" in page for column in table.columns)
    assert all(f"| `{option.name}` |" in page for option in codec.options)


@pytest.mark.parametrize("codec", registry.codecs(), ids=lambda codec: codec.name)
def test_links_of_a_page_lead_to_its_headings(codec: registry.Codec) -> None:
    page = PAGES[f"{codec.name}.md"]
    heads = {head.lower() for head in re.findall(r"^### (.+)$", page, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= heads


@pytest.mark.parametrize("codec", registry.codecs(), ids=lambda codec: codec.name)
def test_kaitai_types_are_defined(codec: registry.Codec) -> None:
    text = PAGES[f"{codec.name}.ksy"]
    types = re.findall(r"^  (\w+):$", text, re.MULTILINE)
    used = set(re.findall(r"type: (?!str$|[su]\d(?:[lb]e)?$)(\w+)$", text, re.MULTILINE))
    used |= set(re.findall(r"^            (?:-?\d+|_): (\w+)$", text, re.MULTILINE))
    assert len(types) == len(set(types))
    assert used <= set(types)
    for structure in structures(described(codec)):
        sized = [field.name for field in structure.fields if field.sizes]
        assert identifier(structure.name) in types
        assert not sized or f"{identifier(structure.name)}_body" in types
        for field in structure.fields:
            assert re.search(rf"^      - id: {field.name}$", text, re.MULTILINE), field.name


@pytest.mark.parametrize("codec", registry.codecs(), ids=lambda codec: codec.name)
def test_imhex_types_are_defined_before_use(codec: registry.Codec) -> None:
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
    assert described(codec)[0].name.lower() in {item.lower() for item in there}


def test_kaitai_page_states_conditions_counts_and_sizes() -> None:
    text = ksy(registry.get("kafka.log"))
    assert "        type: log_frame\n        if: '(_io.size - _io.pos) >= 20'\n" in text
    assert "            1: message\n            0: record_batch\n" in text
    assert "      - id: body\n        type: record_batch_body\n        size: batch_length\n" in text
    assert (
        "        repeat-expr: records_count\n        type: record\n        if: '(attributes & 7) == 0'\n"
        in text
    )
    assert "        size: 'key_length.value < 0 ? 0 : key_length.value'\n" in text
    assert identifier("RecordBatch") == "record_batch"


def test_blocks_referenced_by_handles() -> None:
    text = PAGES["leveldb.table.ksy"]
    assert "  - id: table\n    type: table\ntypes:\n" in text
    assert (
        "      index_handle_block:\n        io: _root._io\n        pos: index_handle.offset.value\n"
        "        size: index_handle.size.value + 5\n        type: stored_index_block\n" in text
    )
    assert "        size: 'left - 5'" not in text
    assert "        size: '((_io.size - _io.pos) - (4 * num_restarts_ahead)) - 4'\n" in text
    assert "        if: 'type == 0'\n" in text
    pattern = PAGES["leveldb.table.hexpat"]
    assert (
        "    StoredIndexBlock<(index_handle.offset) + (index_handle.size + 5)> index_handle_block @ (index_handle.offset);\n"
        in pattern
    )
    assert "    u8 padding_[stop - $]" in pattern
    page = PAGES["leveldb.table.md"]
    assert (
        "| `index_handle` | [BlockHandle](#blockhandle) | position of the index block; points to [StoredIndexBlock](#storedindexblock) |"
        in page
    )


def test_pages_split_a_log_into_blocks_of_records() -> None:
    text = PAGES["leveldb.log.ksy"]
    assert (
        "        size: '(_io.size - _io.pos) < 32768 ? (_io.size - _io.pos) : 32768'\n        type: log_block\n"
        in text
    )
    assert "        repeat-until: '(_io.size - _io.pos) < 7'\n" in text
    assert "        size: length\n        type: write_batch\n        if: 'type == 1'\n" in text
    assert "      - id: payload_other\n        size: length\n        if: 'not (type == 1)'\n" in text
    pattern = PAGES["leveldb.log.hexpat"]
    assert "    LogBlockRoom32768<stop> blocks[while(stop >= $ + 1)]" in pattern
    assert "    PhysicalRecord<stop> records[while(stop >= $ + 7)]" in pattern


def test_text_words_are_exported() -> None:
    assert (
        "      - id: version\n        type: str\n        terminator: 10\n"
        in PAGES["kafka.offset_checkpoint.ksy"]
    )
    assert "        repeat-expr: count.to_i\n" in PAGES["kafka.offset_checkpoint.ksy"]
    assert "      - id: topic_id_name_end\n        size: 1\n" in PAGES["kafka.partition_metadata.ksy"]
    assert "    name topic_id_name " in PAGES["kafka.partition_metadata.hexpat"]


def test_log_ends_at_trailing_zeros() -> None:
    text = PAGES["zookeeper.txnlog.ksy"]
    assert (
        "        repeat-until: '(_io.size - _io.pos) < 12 or _.following == 0'\n        type: txn_record\n"
        in text
    )
    assert "        if: '(_io.size - _io.pos) >= 12 and records_ahead != 0'\n" in text
    assert "      following:\n        pos: _io.pos + 8\n        type: s4be\n" in text
    assert "        size: payload_length\n        type: txn_log_entry\n" in text
    assert "        type: s4be\n        valid: 1514884167\n        doc: 'ZKLG'\n" in text
    assert "        contents: [90, 75, 83, 78]\n" in PAGES["zookeeper.snapshot.ksy"]
    pattern = PAGES["zookeeper.txnlog.hexpat"]
    assert "    TxnRecord<stop> records[while(stop >= $ + 12 && std::mem::read_signed(" in pattern
    assert "    TxnLogEntry<payload_stop> payload [[" in pattern
    assert (
        "| [TxnRecord](#txnrecord), repeated until a length of 0, in preallocated space |"
        in PAGES["zookeeper.txnlog.md"]
    )
    assert "    Node<stop> nodes[while(stop >= $ + 76 && " in PAGES["zookeeper.snapshot.hexpat"]


def test_switch_on_the_remaining_bytes() -> None:
    text = PAGES["zookeeper.txnlog.ksy"]
    left = "(_io.size - _io.pos)"
    assert (
        f"switch-on: 'type == -11 and ({left} < 4 or ({left} == 12 and body_i32be_0 == 2)) ? -1514864641 : type'\n"
        in text
    )
    assert "            -1514864641: no_bytes\n            _: remaining_bytes\n" in text
    assert (
        "      body_i32be_0:\n        pos: _io.pos\n        type: s4be\n        if: '(_io.size - _io.pos) >= 4'\n"
        in text
    )
    assert f"      - id: parent_cversion\n        type: s4be\n        if: '{left} >= 4'\n" in text
    pattern = PAGES["zookeeper.txnlog.hexpat"]
    assert "    else if ((body_case) == 1) {\n        CreateTxn<stop> body [[" in pattern
    assert "    else if ((body_case) != -1514864641) {\n        u8 body[stop - $] [[" in pattern
    assert "    if (stop - $ >= 4)\n        be s32 parent_cversion [[" in pattern
    page = PAGES["zookeeper.txnlog.md"]
    assert (
        "selected by `-1514864641 if type == -11 and (left < 4 or left == 12 and i32be(0) == 2) else type`"
        in page
    )
    assert (
        "; 1: [CreateTxn](#createtxn), or if that does not fit, [CreateTxnV0](#createtxnv0); 2/20: [DeleteTxn]"
        in page
    )


def codec_of(*structures: Struct, complete: bool = True) -> Any:
    return SimpleNamespace(
        name="made.up", title="made up", structures=structures, described=structures if complete else ()
    )


ITEM = Struct("Item", Field("number", Int(2)))
EITHER = Switch("u32be(0) == 1", {1: ITEM, 0: Nothing()})


@pytest.mark.parametrize(
    "codec",
    [
        pytest.param(codec_of(Struct("Made", Field("items", Repeated(EITHER)))), id="a list of one type or another"),
        pytest.param(codec_of(Struct("Made", Field("words", Repeated(Bytes(2))))), id="a list of bare bytes"),
        pytest.param(codec_of(Struct("Made", Field("items", Switch("kind", {None: ITEM})))), id="a missing field"),
        pytest.param(
            codec_of(Struct("Made", Field("item", ITEM, size="left - 2"), Field("end", Int(2)))), id="a structure of a size"
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed_is_refused(codec: Any) -> None:
    with pytest.raises(TypeError):
        ksy(codec)
    with pytest.raises(TypeError):
        hexpat(codec)


def test_numbers_of_several_widths_in_a_size_are_refused_for_kaitai() -> None:
    codec = codec_of(
        Struct("Made", Field("number", Enclosed(I32BE, Switch("left", {1: Int(1), None: Int(2)}))))
    )
    with pytest.raises(TypeError, match=r"Made\.number"):
        ksy(codec)
    assert "s8 number" in hexpat(codec)


def test_frames_without_an_end_are_refused() -> None:
    for field in (Field("rest", Bytes()), Field("items", Repeated(ITEM)), Field("item", EITHER)):
        with pytest.raises(TypeError, match="the end of the frame"):
            ksy(codec_of(Struct("Made", field), complete=False))
    sized = Struct("Made", Field("size", Int(4), sizes=True), Field("rest", Bytes()))
    assert "        size: size\n" in ksy(codec_of(sized, complete=False))


def test_frames_of_several_kinds() -> None:
    assert "          switch-on: 'frame_u32be_4 == 3419681172 ? 1 : 0'\n" in PAGES["rocketmq.commitlog.ksy"]
    assert "        pos: _io.pos + 4\n        type: u4be\n" in PAGES["rocketmq.commitlog.ksy"]
    assert "        size: 'pad_length - 0'\n" in PAGES["bookkeeper.journal.ksy"]
    assert "    Padding<stop> frame [[" in PAGES["bookkeeper.journal.hexpat"]
    assert (
        "| 1: [Blank](#blank); 0: [Message](#message) | message or blank; selected by `u32be(4) == 3419681172` |"
        in PAGES["rocketmq.commitlog.md"]
    )


def test_every_codec_is_exported() -> None:
    for codec in registry.codecs():
        assert {f"{codec.name}.{suffix}" for suffix in ("md", "ksy", "hexpat")} <= set(PAGES)
    assert "    be s64 producer_id [[comment(" in PAGES["kafka.txnindex.hexpat"]
    assert "    ProducerEntry<stop> entries[count] [[comment(" in PAGES["kafka.producer_snapshot.hexpat"]
