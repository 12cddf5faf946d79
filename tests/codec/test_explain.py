"""The tree of fields made from a description covers every byte once and reports problems at their position."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from explanations import check_nodes_tile
from hypothesis import given
from hypothesis import strategies as st

from logwright.codec.describe import (
    I16BE,
    U8,
    U32BE,
    VARINT,
    Bit,
    Bytes,
    Content,
    DescriptionError,
    Field,
    Flags,
    Int,
    Nothing,
    Repeated,
    Struct,
    Switch,
)
from logwright.codec.explain import PADDING, SKIPPED, UNEXPLAINED, Explainer, Focus, Node, explain_values
from logwright.codec.expression import OUTER
from logwright.codec.window import Window


def window(data: bytes, offset: int = 0) -> Window:
    return Window(np.frombuffer(data, np.uint8), offset, offset + len(data))


def explain(struct: Struct, data: bytes, *, base: int = 0, **focus: Any) -> list[Node]:
    nodes = explain_values(struct, window(data, base), Focus(**focus), single=True)
    check_nodes_tile(nodes, data, base)
    return nodes


def explained(struct: Struct, data: bytes, **rest: Any) -> Node:
    return explain(struct, data, **rest)[0]


def child(node: Node, *names: str) -> Node:
    for name in names:
        node = next(each for each in node.children if each.name == name)
    return node


PAIR = Struct(
    "Pair", Field("key", Bytes(VARINT, text=True), "its name"), Field("value", Bytes(VARINT, null=-1))
)


def test_fields_are_explained_with_their_offsets() -> None:
    node = explained(PAIR, b"\x04ab\x02\xff", base=100)
    assert (node.name, node.kind, node.start, node.end) == ("Pair", "struct", 100, 105)
    key = child(node, "key")
    assert (key.value, key.meaning, key.doc, key.kind) == (b"ab", "ab", "its name", "text")
    assert [(each.name, each.start, each.end, each.value) for each in key.children] == [
        ("length", 100, 101, 2),
        ("data", 101, 103, b"ab"),
    ]
    assert key.children[0].role == "length"
    assert child(node, "value", "data").value == b"\xff"


def test_null_and_empty_values_differ() -> None:
    node = explained(PAIR, b"\x00\x01")
    assert child(node, "key").value == b""
    value = child(node, "value")
    assert value.value is None
    assert [(each.name, each.meaning) for each in value.children] == [("length", "null")]


def test_flags_are_explained_bit_by_bit() -> None:
    flags = Flags(Int(1), (Bit("mode", 0, 2, {1: "one"}, "how"), Bit("on", 3)))
    node = child(explained(Struct("F", Field("flags", flags)), b"\x19"), "flags")
    assert node.meaning == "mode=one, on, unknown bits 0x10"
    assert [(bit.name, bit.value, bit.meaning, bit.pattern()) for bit in node.bits] == [
        ("mode", 1, "one", ".... ..01"),
        ("on", 1, "", ".... 1..."),
        ("bit 4", 1, "", "...1 ...."),
    ]


SEALED = Struct(
    "Sealed",
    Field("size", U8, sizes=True),
    Field("crc", U32BE, checksum=(zlib.crc32, "kind")),
    Field("kind", U8, only=7),
    Field("data", Bytes(2)),
)


def test_checksum_names_its_range_and_the_bit_that_would_fix_it() -> None:
    good = SEALED.pack({"kind": 7, "data": b"ab"})
    node = child(explained(SEALED, good, base=10), "crc")
    assert node.check is not None
    assert (node.check.right, node.check.start, node.check.end, node.role) == (True, 15, 18, "checksum")
    assert not node.problem
    bad = child(explained(SEALED, good[:-1] + b"c"), "crc")
    assert bad.check is not None
    assert not bad.check.right
    computed, stored = zlib.crc32(b"\x07ac"), zlib.crc32(b"\x07ab")
    assert bad.problem == (
        f"checksum mismatch: stored {stored:#010x}, computed {computed:#010x}. Flipping bit 0 of byte 7 would fix it"
    )


def test_flipped_bit_is_explained_with_the_correct_value() -> None:
    good = SEALED.pack({"kind": 7, "data": b"ab"})
    nodes = explained(SEALED, good[:-1] + b"c")
    text = "bit 0 of byte 7 is flipped, according to the checksum: stored 0x63, correct 0x62"
    assert child(nodes, "data").problem == text
    counted = Struct("Counted", SEALED["crc"], Field("kind", U32BE))
    data = counted.pack({"kind": 1000})
    wrong = explained(counted, data[:6] + bytes([data[6] ^ 1]) + data[7:])
    assert child(wrong, "kind").problem.endswith("stored 744, correct 1000")


def test_checksum_of_preceding_bytes_is_explained() -> None:
    behind = Struct(
        "Behind", Field("data", Bytes(2)), Field("sum", U8, checksum=(sum, "data")), Field("z", U8)
    )
    check = child(explained(behind, b"\x01\x02\x03\x00"), "sum").check
    assert check is not None
    assert (check.start, check.end, check.right) == (0, 2, True)


def test_checksum_of_missing_bytes_is_not_compared() -> None:
    node = explained(SEALED, b"\x07\0\0\0\0")
    assert child(node, "crc").check is None
    assert explained(SEALED, b"\x07\0\0").broken


def test_wrong_constant_is_a_problem() -> None:
    assert (
        child(explained(SEALED, SEALED.pack({"kind": 8, "data": b"ab"})), "kind").problem
        == "expected 7, found 8"
    )
    magic = Struct("Magic", Field("magic", Bytes(2), only=b"ab"))
    assert child(explained(magic, b"ac"), "magic").problem == "expected 61 62, found 61 63"


def test_leftover_bytes_are_explained() -> None:
    """Within a structure with a length, and after one without."""
    node = explained(SEALED, b"\x09" + SEALED.pack({"kind": 7, "data": b"ab"})[1:] + b"xy")
    assert (node.children[-1].kind, node.children[-1].value) == (UNEXPLAINED, b"xy")
    assert node.children[-1].meaning == "unused bytes at the end of Sealed"
    nodes = explain(PAIR, b"\0\0zz")
    assert [each.kind for each in nodes] == ["struct", UNEXPLAINED]
    assert explain(PAIR, b"\0\0\0\0")[1].kind == PADDING
    assert explain(PAIR, b"\0\0\0\0")[1].meaning == "2 zero bytes"


@pytest.mark.parametrize("size", [b"\x40", b"\x02"])
def test_impossible_size_is_a_problem_of_its_field(size: bytes) -> None:
    """Readable parts are still read."""
    packed = size + SEALED.pack({"kind": 7, "data": b"ab"})[1:]
    node = explained(SEALED, packed)
    if size == b"\x40":
        assert child(node, "size").problem == "expected 64 more bytes, found 7"
        assert child(node, "data").value == b"ab"
    else:
        assert child(node, "crc").problem == "expected 4 bytes, 2 left"
        assert child(node, "crc").kind == UNEXPLAINED
    assert node.broken == (size == b"\x40")


def test_damage_within_an_item_does_not_spread() -> None:
    """An item with a length ends there, whatever it contains."""
    item = Struct("Item", Field("size", U8, sizes=True), Field("data", Bytes(VARINT)))
    items = Struct("Items", Field("items", Repeated(item)))
    node = child(explained(items, b"\x02\x02a" + b"\x02\x7ea" + b"\x02\x02b"), "items")
    assert [each.children[-1].value for each in node.children] == [b"a", None, b"b"]
    data = node.children[1].children[-1]
    assert data.broken
    assert data.children[0].problem == "expected 63 bytes, 1 left"
    assert data.children[1].meaning == "does not match the stored length"
    assert not node.broken


def test_items_of_counted_typed_and_empty_lists_are_explained() -> None:
    counted = Struct("Counted", Field("n", U8), Field("items", Repeated(I16BE, "n")), Field("z", U8))
    node = child(explained(counted, b"\x02\0\1\0\2\5"), "items")
    assert (node.kind, node.value, node.meaning, [each.value for each in node.children]) == (
        "list",
        2,
        "2 items",
        [1, 2],
    )
    typed = Struct("Typed", Field("items", Repeated(I16BE, VARINT)))
    node = child(explained(typed, b"\x02\0\1"), "items")
    assert [each.name for each in node.children] == ["count", "[0]"]
    assert node.meaning == "1 item"
    assert child(explained(typed, b"\0"), "items").value == 0
    empty = Struct("Empty", Field("n", U8), Field("items", Repeated(I16BE, "n")))
    assert child(explained(empty, b"\0"), "items").children == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\xc8\x01\0\1", "count 100, but 2 bytes left"),
        (b"\x01\0\1", "count -1, but 2 bytes left"),
        (b"\x04\0\1\0", "count 2, but only 1 item can be read"),
    ],
)
def test_list_that_does_not_match_its_count_is_a_problem(data: bytes, problem: str) -> None:
    typed = Struct("Typed", Field("items", Repeated(I16BE, VARINT)), Field("more", U8))
    node = explained(typed, data)
    assert child(node, "items").problem == problem
    assert node.broken
    assert len(node.children) == 1


def test_missing_count_is_a_problem() -> None:
    typed = Struct("Typed", Field("items", Repeated(I16BE, VARINT)))
    assert child(explained(typed, b"\x80"), "items").problem == "expected 1 byte, 0 left"


# Only some of a long list

MANY = Struct("Many", Field("items", Repeated(Struct("Item", Field("n", I16BE))), rows=True))
THOUSAND = b"".join(i.to_bytes(2, "big") for i in range(1000))


def shown(node: Node) -> list[str]:
    return [each.name for each in node.children]


def test_long_lists_are_abridged() -> None:
    node = child(explained(MANY, THOUSAND, items=2), "items")
    assert shown(node) == ["[0]", "[1]", "[2..999]"]
    assert node.value == 1000
    assert (node.children[-1].kind, node.children[-1].meaning) == (
        SKIPPED,
        "998 more items, not shown",
    )


def test_requested_item_is_shown() -> None:
    by_byte = child(explained(MANY, THOUSAND, items=1, at=(1401,)), "items")
    by_row = child(explained(MANY, THOUSAND, items=1, row=700), "items")
    expected = ["[0]", "[1..699]", "[700]", "[701]", "[702]", "[703..999]"]
    assert shown(by_byte) == shown(by_row) == expected
    assert by_row.children[2].row == 700
    assert shown(child(explained(MANY, THOUSAND, items=1, row=999), "items"))[-1] == "[999]"
    assert shown(child(explained(MANY, THOUSAND, items=1, at=(1401,), base=1400), "items"))[1] == "[1..999]"


def test_damage_in_items_that_are_not_shown_is_counted() -> None:
    pairs = Struct("Pairs", Field("pairs", Repeated(PAIR)))
    node = child(explained(pairs, PAIR.pack({"key": b"k", "value": b""}) * 9 + b"\x7e", items=2), "pairs")
    assert shown(node) == ["[0]", "[1]", "[2..8]", "[9]"]
    assert node.children[-1].broken


# What bytes hold


def unfold(stored: bytes, scope: dict[str, Any], limit: int) -> bytes:
    if scope["kind"] > 1:
        raise DescriptionError(f"kind {scope['kind']} is unknown")
    try:
        return zlib.decompress(stored)[:limit]
    except zlib.error as error:
        raise DescriptionError(str(error)) from None


PACKED = Struct(
    "Packed",
    Field("kind", U8),
    Field("data", Bytes(VARINT, null=-1), holds=Content(MANY, "kind == 0", "kind != 0 and kind != 9", unfold)),
    Field("end", U8),
)  # fmt: skip


def packed(kind: int, data: bytes | None) -> bytes:
    return PACKED.pack({"kind": kind, "data": data, "end": 5})


def test_compressed_bytes_have_separate_addresses() -> None:
    node = explained(PACKED, packed(1, zlib.compress(THOUSAND)), base=50, items=3, at=(51, 1401))
    data = child(node, "data")
    assert data.space is not None
    assert (data.space.start, data.space.origin, data.space.data) == (51, "unpacked", THOUSAND)
    many = data.space.nodes[0].children[0]
    assert many.start == 0
    assert "[700]" in shown(many)
    assert many.children[0].row == 0


def test_uncompressed_nested_bytes_have_no_separate_addresses() -> None:
    data = child(explained(PACKED, packed(0, b"\0\1\0\2\7")), "data", "data")
    assert data.space is None
    assert [each.kind for each in data.children] == ["struct"]
    assert data.children[0].broken


def test_unknown_or_missing_nested_bytes_are_not_unpacked() -> None:
    assert child(explained(PACKED, packed(9, b"abc")), "data", "data").children == []
    assert child(explained(PACKED, packed(1, None)), "data").space is None
    node = child(explained(PACKED, packed(3, b"abc")), "data")
    assert node.problem == "kind 3 is unknown"
    assert node.space is None


def test_meanings_use_values_of_the_enclosing_scope() -> None:
    inner = Struct(
        "Inner", Field("delta", U8, says=lambda value, scope: f"is {scope[OUTER]['base'] + value}")
    )
    outer = Struct("Outer", Field("base", I16BE), Field("items", Repeated(inner)))
    node = child(explained(outer, b"\1\0\5"), "items", "[0]", "delta")
    assert node.meaning == "is 261"


def test_type_is_selected_by_another_field() -> None:
    either = Struct("Either", Field("kind", U8), Field("body", Switch("kind", {1: PAIR, 0: U8})))
    assert child(explained(either, b"\1\0\0"), "body").type == "Pair"
    assert child(explained(either, b"\0\7"), "body").value == 7
    assert child(explained(either, b"\2\7\7"), "body").problem == "unknown kind 2"


def test_too_few_bytes_for_trailing_fields_is_a_problem() -> None:
    tail = Struct("Tail", Field("front", Bytes(), size="left - 2"), Field("back", I16BE))
    assert child(explained(tail, b"abcd"), "front").value == b"ab"
    assert child(explained(tail, b"a"), "front").problem == "1 byte too few for the following fields"


def test_items_of_a_fixed_stride_are_explained() -> None:
    block = Struct("Block", Field("words", Repeated(I16BE, least=2)))
    file = Struct("File", Field("blocks", Repeated(block, every=5)))
    data = b"\0\1\0\2x" + b"\0\3\0\4\0" + b"\0\5"
    blocks = child(explained(file, data), "blocks").children
    assert [(each.start, each.end) for each in blocks] == [(0, 5), (5, 10), (10, 12)]
    assert [[word.value for word in each.children[0].children] for each in blocks] == [[1, 2], [3, 4], [5]]
    assert [each.children[1].kind for each in blocks[:2]] == [UNEXPLAINED, PADDING]
    nodes = Explainer(data, 0, Focus(items=1)).all(file, 0, len(data))
    check_nodes_tile(nodes, data, 0)
    assert [each.name for each in nodes[0].children[0].children] == ["[0]", "[1..2]"]


# Stretches


def test_consecutive_values_and_padding_are_explained() -> None:
    three = PAIR.pack({"key": b"k", "value": b"v"}) * 3
    nodes = explain_values(PAIR, window(three + bytes(5), 7), Focus())
    check_nodes_tile(nodes, three + bytes(5), 7)
    assert [(each.name, each.start) for each in nodes] == [
        ("Pair", 7),
        ("Pair", 11),
        ("Pair", 15),
        (PADDING, 19),
    ]
    few = explain_values(PAIR, window(three), Focus(items=2))
    assert [each.kind for each in few] == ["struct", "struct", UNEXPLAINED]
    assert [each.kind for each in explain_values(None, window(b"ab"), Focus())] == [UNEXPLAINED]
    assert explain_values(PAIR, window(b""), Focus()) == []
    nothing = Struct("Nothing")
    assert [each.kind for each in explain_values(nothing, window(b"ab"), Focus())] == ["struct", UNEXPLAINED]


def test_absent_field_is_not_listed() -> None:
    versioned = Struct(
        "Versioned", Field("version", U8), Field("time", Switch("version", {1: U8, None: Nothing()}))
    )
    assert [each.name for each in explained(versioned, b"\1\7").children] == ["version", "time"]
    assert [each.name for each in explained(versioned, b"\0").children] == ["version"]


def test_empty_items_end_a_list() -> None:
    empty = Struct("Empty", Field("items", Repeated(Struct("Nothing"))))
    assert len(child(explained(empty, b"ab"), "items").children) == 1
    assert len(child(explained(empty, b"ab", items=1), "items").children) == 1


def test_focus_enters_nested_bytes_by_offset() -> None:
    assert Focus((5, 6, 7)).inside(5).at == (6, 7)
    assert Focus((5, 6)).inside(4).at == ()
    assert Focus((5,)).inside(5).at == ()


DEEP = Struct(
    "Deep",
    Field("size", U8, sizes=True),
    Field("crc", U32BE, checksum=(zlib.crc32, "kind")),
    Field("kind", U8),
    Field("pairs", Repeated(PAIR, VARINT)),
    Field("data", Bytes(VARINT, null=-1), holds=PACKED["data"].holds),
    Field("rest", Repeated(I16BE)),
)


@given(st.binary(max_size=80), st.integers(1, 4), st.integers(0, 90))
def test_any_bytes_are_explained(data: bytes, items: int, at: int) -> None:
    """No exception, and every byte is covered."""
    nodes = explain_values(DEEP, window(data, 9), Focus((at,), items=items))
    check_nodes_tile(nodes, data, 9)


@given(st.data())
def test_any_changed_bytes_are_explained(data: st.DataObject) -> None:
    pairs = [{"key": b"k", "value": None}] * 3
    sound = DEEP.pack({"kind": 1, "pairs": pairs, "data": zlib.compress(THOUSAND[:40]), "rest": [1, 2]})
    changed = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(sound) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(changed[: data.draw(st.integers(0, len(sound)))])
    check_nodes_tile(explain_values(DEEP, window(cut), Focus()), cut, 0)


def test_structure_gets_the_requested_name() -> None:
    nodes = Explainer(b"\0\1\0\2x").all(Repeated(I16BE), 0, 4, name="numbers")
    assert [each.name for each in nodes] == ["numbers"]
