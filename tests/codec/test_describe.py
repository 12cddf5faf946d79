"""The description language: packing, unpacking, gapless walks, and errors for invalid bytes."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logwright.codec.describe import (
    I8,
    I16BE,
    I32BE,
    I64BE,
    I64LE,
    U8,
    U32BE,
    U32LE,
    UVARINT,
    UVARLONG,
    VARINT,
    VARLONG,
    Bit,
    Bytes,
    DescriptionError,
    Field,
    Flags,
    Int,
    Repeated,
    Struct,
    Switch,
    Type,
    Until,
    Varint,
    dtype_of,
    structures,
    time_of,
)  # fmt: skip
from logwright.codec.explain import Explainer

INTS = (I8, U8, I16BE, I32BE, I64BE, I64LE, U32BE, U32LE)
VARINTS = (VARINT, VARLONG, UVARINT, UVARLONG)


def numbers(kind: Int | Varint) -> st.SearchStrategy[int]:
    bits = kind.bits if isinstance(kind, Varint) else 8 * kind.width
    signed = kind.zigzag if isinstance(kind, Varint) else kind.signed
    return st.integers(-(1 << bits - 1) if signed else 0, (1 << bits - signed) - 1)


@pytest.mark.parametrize("kind", [*INTS, *VARINTS], ids=lambda kind: kind.label())
@given(st.data())
def test_numbers_round_trip_and_every_cut_is_refused(kind: Any, data: st.DataObject) -> None:
    value = data.draw(numbers(kind))
    packed = kind.pack(value, {})
    assert kind.min_size <= len(packed) <= kind.max_size
    assert kind.unpack(b"x" + packed + b"y", 1, len(packed) + 1, {}) == (value, len(packed) + 1)
    for cut in range(len(packed)):
        with pytest.raises(DescriptionError):
            kind.unpack(packed[:cut], 0, cut, {})


@pytest.mark.parametrize("kind", [*INTS, *VARINTS], ids=lambda kind: kind.label())
def test_numbers_out_of_range_are_refused(kind: Any) -> None:
    for value in (1 << 64, -(1 << 64)):
        with pytest.raises(DescriptionError, match="does not fit"):
            kind.pack(value, {})


@pytest.mark.parametrize(
    ("kind", "value", "packed"),
    [
        (VARINT, -1, "01"), (VARINT, 63, "7e"), (VARINT, -64, "7f"), (VARINT, 64, "8001"), (VARINT, 300, "d804"),
        (VARINT, 2**31 - 1, "feffffff0f"), (VARINT, -(2**31), "ffffffff0f"),
        (VARLONG, 1_700_000_000_000, "80a0abfef962"), (VARLONG, -(2**63), "ffffffffffffffffff01"),
        (UVARINT, 300, "ac02"), (UVARINT, 16384, "808001"),
    ],
)  # fmt: skip
def test_varints_are_packed_as_documented(kind: Varint, value: int, packed: str) -> None:
    assert kind.pack(value, {}).hex() == packed


def test_overlong_varints_are_read_and_too_long_ones_refused() -> None:
    assert VARINT.unpack(bytes.fromhex("8000"), 0, 2, {}) == (0, 2)
    with pytest.raises(DescriptionError, match="longer than 5"):
        VARINT.unpack(b"\x80" * 6, 0, 6, {})


def test_unknown_bits_of_flags_are_shown_and_kept() -> None:
    flags = Flags(I16BE, (Bit("codec", 0, 3, {1: "gzip"}), Bit("control", 5)))
    assert flags["codec"].of(0x21) == 1
    assert (flags["codec"].of(np.array([0x21, 2])) == [1, 2]).all()
    assert flags["control"].mask == 0x20
    assert flags.meaning(0x21) == "codec=gzip, control"
    assert flags.meaning(0x85) == "codec=5, unknown bits 0x80"
    assert flags.unpack(flags.pack(0x85, {}), 0, 2, {})[0] == 0x85, "bits that are not known are not lost"


# Structures

HEADER = Struct("Header", Field("key", Bytes(VARINT, text=True)), Field("value", Bytes(VARINT, null=-1)))


SAMPLE = Struct(
    "Sample",
    Field("id", I64BE, "first"),
    Field("size", I32BE, "bytes that follow", sizes=True),
    Field("crc", U32BE, checksum=(zlib.crc32, "kind")),
    Field("kind", U8, default=0),
    Field("count", I32BE),
    Field("odd", Switch("kind & 1", {1: I64BE, 0: Bytes(UVARINT)})),
    Field("fixed", Bytes(3)),
    Field("headers", Repeated(HEADER, VARINT), default=()),
    Field("items", Repeated(I16BE, "count")),
    Field("rest", Bytes("rest"), default=b""),
)

VALUES = st.builds(
    lambda kind, odd, blob, items, **rest: {
        "kind": kind, "odd": odd if kind & 1 else blob, "items": items, "count": len(items), **rest,
    },
    kind=st.integers(0, 255),
    odd=st.integers(-(1 << 63), (1 << 63) - 1),
    blob=st.binary(max_size=5),
    items=st.lists(st.integers(-9, 9), max_size=4),
    id=st.integers(-9, 9),
    fixed=st.binary(min_size=3, max_size=3),
    headers=st.lists(
        st.fixed_dictionaries({"key": st.binary(max_size=3), "value": st.none() | st.binary(max_size=3)}), max_size=3
    ),
    rest=st.binary(max_size=4),
)  # fmt: skip


@given(VALUES, st.binary(max_size=3), st.binary(max_size=3))
def test_structures_round_trip_and_their_sizes_and_checksums_are_computed(
    value: dict[str, Any], before: bytes, after: bytes
) -> None:
    packed = SAMPLE.pack(value)
    assert SAMPLE.min_size <= len(packed) <= SAMPLE.max_size
    buf, at, end = before + packed + after, len(before), len(before) + len(packed)
    actual, stop = SAMPLE.unpack(buf, at)
    assert stop == end
    assert {name: actual[name] for name in value} == value
    assert actual["size"] == len(packed) - 12
    assert SAMPLE.check(buf, at, end) == []
    assert SAMPLE.pack(actual) == packed, "sizes and checksums that are given are written as they are"
    places = list(SAMPLE.places(buf, at, end).values())
    assert [start for start, _, _ in places] == [at, *(stop for _, stop, _ in places[:-1])]
    assert places[-1][1] == end


@given(VALUES, st.data())
def test_truncated_values_are_refused(value: dict[str, Any], data: st.DataObject) -> None:
    packed = bytearray(SAMPLE.pack(value))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(packed)))
    try:
        SAMPLE.unpack(packed[:cut])
    except DescriptionError as caught:
        error = caught
    else:
        return
    assert 0 <= error.offset <= len(packed)
    assert error.path.partition("/")[0] in {field.name for field in SAMPLE.fields} | {""}
    assert str(error.offset) in str(error)


def test_wrong_checksum_is_an_error() -> None:
    packed = bytearray(
        SAMPLE.pack({"id": 1, "count": 0, "odd": b"", "fixed": b"abc", "items": [], "rest": b"z"})
    )
    assert SAMPLE.check(packed, 0, len(packed)) == []
    packed[-1] ^= 1
    ((name, stored, computed),) = SAMPLE.check(packed, 0, len(packed))
    assert name == "crc"
    assert stored != computed


def test_end_beyond_the_buffer_is_refused() -> None:
    """For example a length a caller read from the bytes."""
    with pytest.raises(DescriptionError):
        Struct("One", Field("number", I64BE)).unpack(b"\1\2\3", 0, 8)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"key": None, "value": b""}, "key: null"),
        ({"key": b"", "value": b"", "other": 1}, "no field 'other'"),
    ],
)
def test_out_of_range_values_are_refused(value: dict[str, Any], text: str) -> None:
    with pytest.raises(DescriptionError, match=text):
        HEADER.pack(value)


def test_impossible_count_is_refused_before_allocation() -> None:
    packed = VARINT.pack((1 << 31) - 1, {}) + b"\0" * 20
    with pytest.raises(DescriptionError, match="count 2147483647, but 20 bytes left"):
        Repeated(I64BE, VARINT).unpack(packed, 0, len(packed), {})


def test_fields_before_a_variable_width_have_fixed_offsets() -> None:
    assert SAMPLE.head_size == 8 + 4 + 4 + 1 + 4
    assert [SAMPLE.offset(name) for name in ("id", "size", "crc", "kind", "count", "odd")] == [
        0,
        8,
        12,
        16,
        17,
        21,
    ]
    assert SAMPLE.head_dtype["id"] == np.dtype(">i8")
    with pytest.raises(TypeError, match="variable width"):
        dtype_of(SAMPLE)
    pair = Struct("Pair", Field("a", I16BE), Field("b", I64LE))
    assert dtype_of(pair).itemsize == pair.min_size == pair.max_size == 10
    assert np.frombuffer(pair.pack({"a": -2, "b": 5}), dtype_of(pair))[0].tolist() == (-2, 5)


def test_structures_include_those_nested_in_others() -> None:
    assert list(structures([SAMPLE, HEADER])) == [SAMPLE, HEADER]


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        (I64LE, "int64 LE"),
        (UVARLONG, "uvarlong"),
        (Flags(I16BE, (Bit("control", 5),)), "int16 BE"),
        (Bytes("rest"), "bytes, rest"),
        (Bytes(3), "bytes[3]"),
        (Bytes(VARINT, text=True), "string, length varint"),
        (Bytes(VARINT, null=-1), "bytes, length varint, negative = null"),
        (Repeated(HEADER, VARINT), "repeated Header, count varint"),
        (Repeated(I16BE, "count"), "repeated int16 BE, count count"),
        (Repeated(I16BE), "repeated int16 BE, count rest"),
        (SAMPLE["odd"].type, "int64 BE or bytes, length uvarint"),
        (SAMPLE, "Sample"),
    ],
)
def test_label_of_a_type_states_width_byte_order_and_length(kind: Type, label: str) -> None:
    assert kind.label() == label


@pytest.mark.parametrize(("kind", "value"), [(Bytes(3), b"ab"), (Bytes(3), None), (Bytes("rest"), None)])
def test_bytes_of_a_wrong_length_are_refused(kind: Bytes, value: bytes | None) -> None:
    with pytest.raises(DescriptionError, match="bytes, got"):
        kind.pack(value, {})


def test_null_is_refused_if_not_allowed() -> None:
    assert Bytes(VARINT, null=-1).unpack(b"\x01", 0, 1, {}) == (None, 1)
    with pytest.raises(DescriptionError, match="length -1, but null is not allowed"):
        Bytes(VARINT).unpack(b"\x01", 0, 1, {})


def test_items_fill_the_rest_of_the_buffer() -> None:
    numbers = Struct("Numbers", Field("numbers", Repeated(I16BE)))
    packed = numbers.pack({"numbers": [1, -2, 3]})
    assert numbers.unpack(packed) == ({"numbers": [1, -2, 3]}, 6)
    with pytest.raises(DescriptionError, match=r"numbers/\[2\]: expected 2 bytes, 1 left"):
        numbers.unpack(packed[:5])


def test_count_must_equal_the_number_of_items() -> None:
    counted = Struct("Counted", Field("count", U8), Field("items", Repeated(I16BE, "count")))
    with pytest.raises(DescriptionError, match="items: count is 3, but there are 2 items"):
        counted.pack({"count": 3, "items": [1, 2]})


def test_errors_name_the_field_and_item() -> None:
    two = Struct("Two", Field("first", I16BE), Field("second", I16BE))
    with pytest.raises(DescriptionError, match=r"second: expected 2 bytes, 1 left \(at byte 2\)"):
        two.places(b"\0\1\0", 0, 3)
    sized = Struct("Sized", Field("size", U8, sizes=True), Field("rest", Bytes()))
    assert sized.places(b"\1ab", 0, 3)["rest"] == (1, 2, b"a")
    with pytest.raises(DescriptionError, match="size: expected 9 bytes, 2 left"):
        sized.places(b"\x09ab", 0, 3)


def test_sized_bytes_without_a_field() -> None:
    sized = Struct("Sized", Field("size", U8, sizes=True), Field("first", U8))
    with pytest.raises(DescriptionError, match="1 unused byte at the end of Sized"):
        sized.unpack(b"\2ab")


def test_bytes_whose_length_is_another_field() -> None:
    message = Struct("Said", Field("size", U8), Field("data", Bytes("size")), Field("more", U8))
    packed = message.pack({"size": 2, "data": b"ab", "more": 7})
    assert packed == b"\2ab\7"
    assert message.unpack(packed) == ({"size": 2, "data": b"ab", "more": 7}, 4)
    with pytest.raises(DescriptionError, match="2 bytes, got b'abc'"):
        message.pack({"size": 2, "data": b"abc", "more": 7})
    with pytest.raises(DescriptionError, match="data: expected 3 bytes, 1 left"):
        message.unpack(b"\3a")
    assert Bytes("size").label() == "bytes, size"


def test_field_that_ends_before_trailing_fields() -> None:
    tail = Struct(
        "Tail",
        Field("front", Bytes(), size="left - 2"),
        Field("back", I16BE),
    )
    assert tail.unpack(b"abc\0\5") == ({"front": b"abc", "back": 5}, 5)
    assert tail.places(b"abc\0\5", 0, 5)["front"] == (0, 3, b"abc")


def test_items_with_a_length_prefix_each() -> None:
    block = Struct("Block", Field("words", Repeated(I16BE, least=2)), Field("filler", Bytes()))
    file = Struct("File", Field("blocks", Repeated(block, every=5)))
    data = b"\0\1\0\2x" + b"\0\3\0\4y" + b"\0\5"
    actual = [
        {"words": [1, 2], "filler": b"x"},
        {"words": [3, 4], "filler": b"y"},
        {"words": [5], "filler": b""},
    ]
    assert file.unpack(data) == ({"blocks": actual}, len(data))
    assert file.pack({"blocks": actual}) == data
    with pytest.raises(DescriptionError, match=r"blocks/\[1\]/text"):
        Struct("File", Field("blocks", Repeated(Struct("B", Field("text", Bytes(U8))), every=2))).unpack(
            b"\1a\2b"
        )


def test_items_up_to_a_terminator() -> None:
    item = Struct("Item", Field("a", U8), Field("size", U8), Field("data", Bytes("size")))
    many = Repeated(item, least=2, until=Until(0, U8, 1, "a size of 0"))
    file = Struct("File", Field("items", many), Field("rest", Bytes(), default=b""))
    items = [{"a": 0, "size": 1, "data": b"x"}, {"a": 7, "size": 2, "data": b"yz"}]
    for rest in (b"", b"\5", b"\5\0", b"\0\0more"):
        for subset in (items, items[:1], []):
            value = {"items": subset, "rest": rest}
            data = file.pack(value)
            assert file.unpack(data) == (value, len(data))
            [node] = Explainer(data).all(file, 0, len(data))
            assert [child.end for child in node.children] == [len(data) - len(rest), len(data)]
            assert len(node.children[0].children) == len(subset)
    assert many.until is not None
    assert not many.until.met(b"\1\0", 0, 1)
    assert many.until.met(b"\1\0", 0, 2)


def test_checksum_of_preceding_bytes() -> None:
    sealed = Struct("Sealed", Field("data", Bytes(2)), Field("sum", U8, checksum=(sum, "data")))
    packed = sealed.pack({"data": b"\3\4"})
    assert packed == b"\3\4\7"
    assert sealed.check(packed, 0, 3) == []
    assert sealed.check(b"\3\5\7", 0, 3) == [("sum", 7, 8)]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01 00:00:00.000 UTC"),
        (-1, ""),
        (1661111160812, "2022-08-21 19:46:00.812 UTC"),
        (1 << 62, ""),
    ],
)
def test_times_are_utc_text_and_negative_or_huge_ones_have_no_text(milliseconds: int, text: str) -> None:
    assert time_of(milliseconds) == text
    assert Int(8, unit="ms").meaning(milliseconds) == text
