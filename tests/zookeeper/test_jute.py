"""Jute: described types, Java's text encoding, kernels compared with the description, and Adler-32."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from explanations import check_nodes_tile
from hypothesis import given
from hypothesis import strategies as st

from logwright.codec import address
from logwright.codec.columns import binary
from logwright.codec.describe import (
    I32BE,
    U8,
    Bytes,
    DescriptionError,
    Enclosed,
    Field,
    Nothing,
    Repeated,
    Struct,
    Switch,
    structures,
)
from logwright.codec.explain import Explainer, Node
from logwright.codec.fault import UsageError
from logwright.codec.java import java_string, java_strings
from logwright.codec.kernels.adler32 import adler32, adler32_combine, adler32_of
from logwright.codec.zookeeper import jute
from logwright.codec.zookeeper.jute import ACL, BUFFER, STAT_PERSISTED, USTRING, vector

_WORLD = {"perms": 31, "id": {"scheme": b"world", "id": b"anyone"}}


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (BUFFER, None, "ffffffff"),
        (BUFFER, b"", "00000000"),
        (BUFFER, b"1", "0000000131"),
        (USTRING, b"/a", "000000022f61"),
        (vector(ACL), [_WORLD], "000000010000001f00000005776f726c6400000006616e796f6e65"),
        (vector(ACL), None, "ffffffff"),
        (vector(ACL), [], "00000000"),
        (vector(USTRING), [b"a", b""], "00000002000000016100000000"),
    ],
)
def test_jute_values_round_trip(kind: Any, value: Any, data: str) -> None:
    stored = bytes.fromhex(data)
    assert kind.pack(value, {}) == stored
    assert kind.unpack(stored, 0, len(stored), {}) == (value, len(stored))
    nodes = Explainer(stored).all(kind, 0, len(stored), {}, "x")
    check_nodes_tile(nodes, stored, 0)
    assert not any(item.problem for item in nodes[0].walk())


def test_out_of_range_jute_values() -> None:
    with pytest.raises(DescriptionError, match="length -2, null is -1"):
        BUFFER.unpack(bytes.fromhex("fffffffe"), 0, 4, {})
    # Any other negative count reads as none, which writing does not give again.
    assert vector(USTRING).unpack(bytes.fromhex("fffffffb"), 0, 4, {}) == ([], 4)
    assert _explained(vector(USTRING), "fffffffb").meaning == "no items"
    assert _explained(vector(USTRING), "ffffffff").meaning == "null"
    assert vector(ACL).label() == "repeated ACL, count int32 BE, -1 = null"
    with pytest.raises(DescriptionError, match="null is not allowed"):
        Repeated(USTRING, I32BE).pack(None, {})
    assert STAT_PERSISTED.head_size == 60
    assert jute.ACL_MIN == 12


def _explained(kind: Any, data: str) -> Node:
    (node,) = Explainer(bytes.fromhex(data)).all(kind, 0, len(data) // 2, {}, "x")
    return node


def test_text_encodes_as_java_does() -> None:
    assert jute.jute_string("é数") == bytes.fromhex("c3a9e695b0")
    assert jute.jute_string("\U0001f600") == bytes.fromhex("eda0bdedb880")
    stored = jute.stored_strings(pa.array(["a", None, "u\U0001f600x", "é"]))
    assert stored.to_pylist() == [b"a", None, b"u\xed\xa0\xbd\xed\xb8\x80x", "é".encode()]
    assert jute.stored_strings(pa.array(["a", "b", "c"])[1:]).to_pylist() == [b"b", b"c"]
    assert jute.stored_strings(pa.array([], pa.string())).to_pylist() == []
    assert jute.stored_strings(pa.array([None], pa.string())).to_pylist() == [None]
    assert jute.stored_strings(pa.array([b"\xff"])).to_pylist() == [b"\xff"]


def test_text_decodes_as_java_does() -> None:
    text, wrong = java_strings(pa.array([b"a", None, b"\xed\xa0\xbd\xed\xb8\x80", "é".encode()]))
    assert text.to_pylist() == ["a", None, "\ufffd\ufffd", "é"]
    assert wrong is not None
    assert wrong.tolist() == [False, False, True, False]
    assert java_strings(pa.array([b"a"]))[1] is None
    assert java_string(b"\xed\xa0") == "\ufffd"


@given(st.binary(max_size=12) | st.text(max_size=6).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_kinds_of_text_are_classified(data: bytes) -> None:
    kind = jute.text_kind(np.frombuffer(data, np.uint8), 0, len(data))
    try:
        text = data.decode()
    except UnicodeDecodeError:
        assert kind == jute.BAD_TEXT
        return
    assert kind == (jute.WIDE_TEXT if any(item > "\uffff" for item in text) else jute.PLAIN_TEXT)
    assert (jute.jute_string(text) == data) == (kind == jute.PLAIN_TEXT)


@pytest.mark.parametrize(
    "data",
    [b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xe0\x9f\xbf", b"\xe2\x82", b"\xc1\xbf"],
)  # fmt: skip
def test_text_at_the_limits_of_utf8(data: bytes) -> None:
    test_kinds_of_text_are_classified.hypothesis.inner_test(data)  # type: ignore[attr-defined]


_acls = st.none() | st.lists(
    st.fixed_dictionaries(
        {
            "perms": st.integers(-(1 << 31), (1 << 31) - 1),
            "id": st.fixed_dictionaries(
                {"scheme": st.none() | st.binary(max_size=4), "id": st.none() | st.binary(max_size=4)}
            ),
        }
    ),
    max_size=3,
)


@given(_acls, st.data())
def test_acl_lists_round_trip(value: Any, data: Any) -> None:
    stored = vector(ACL).pack(value, {})
    buf = np.frombuffer(b"xx" + stored + b"yy", np.uint8)
    count, end, _ = jute.skip_acl(buf, 2, len(buf))
    assert (count, end) == (-1 if value is None else len(value), 2 + len(stored))
    cut = data.draw(st.integers(0, len(stored) - 1))
    assert jute.skip_acl(buf, 2, 2 + cut)[1] == -1
    subset = max(count, 0)
    perms, starts, lengths = (
        np.empty(subset, np.int64),
        np.empty(2 * subset, np.int64),
        np.empty(2 * subset, np.int64),
    )
    at, counts = np.array([2]), np.array([subset])
    assert jute.acl_entries(buf, at, counts, perms, starts, lengths) == subset
    names = binary(buf, starts, lengths).to_pylist()
    actual = [
        {"perms": int(perms[i]), "id": {"scheme": names[2 * i], "id": names[2 * i + 1]}}
        for i in range(subset)
    ]
    assert actual == (value or [])


def test_list_counts_beyond_the_buffer_are_refused() -> None:
    def skip(text: str) -> tuple[int, int, int]:
        buf = np.frombuffer(bytes.fromhex(text), np.uint8)
        return jute.skip_acl(buf, 0, len(buf))

    assert skip("fffffffe") == (0, 4, 0)
    assert skip("7fffffff")[1] == -1
    # There is room for one entry at least, but its first string takes it all; or is longer than all.
    assert skip("000000010000001f0000000461626364")[1] == -1
    assert skip("000000010000001f7fffffff61626364")[1] == -1
    # The first of two takes the room of the second.
    assert skip("00000002" + "0000001f" + "0000000c" + "61" * 12 + "00000000")[1] == -1
    buf = np.frombuffer(bytes.fromhex("fffffffe"), np.uint8)
    assert jute.skip_bytes(buf, 0, 4) == (-2, -1)
    assert jute.skip_bytes(buf, 0, 3) == (0, -1)


@given(st.lists(st.none() | st.binary(max_size=5), max_size=5))
def test_string_lists_round_trip(values: list[bytes | None]) -> None:
    buf = np.frombuffer(vector(USTRING).pack(values, {}), np.uint8)
    starts, lengths = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    assert jute.string_entries(buf, np.zeros(1, np.int64), np.array([len(values)]), starts, lengths) == len(
        values
    )
    assert binary(buf, starts, lengths).to_pylist() == values
    assert binary(buf, starts, lengths).validate(full=True) is None


# Types of the description language


def test_length_prefixed_structures_round_trip() -> None:
    inner = Struct("Inner", Field("a", U8), Field("rest", Bytes(I32BE)))
    kind = Enclosed(I32BE, inner)
    complete = Struct("Whole", Field("b", U8), Field("inner", kind), Field("c", U8))
    value = {"b": 1, "inner": {"a": 2, "rest": b"xy"}, "c": 3}
    stored = complete.pack(value)
    assert stored.hex() == "01" + "00000007" + "02" + "00000002" + "7879" + "03"
    assert complete.unpack(stored) == (value, len(stored))
    (node,) = Explainer(stored).all(complete, 0, len(stored))
    check_nodes_tile([node], stored, 0)
    assert [leaf.name for leaf in node.leaves()] == ["b", "length", "a", "length", "data", "c"]
    wrong = Explainer(stored[:1] + b"\0\0\0\x63" + stored[5:]).all(complete, 0, len(stored))
    check_nodes_tile(wrong, stored[:1] + b"\0\0\0\x63" + stored[5:], 0)
    assert "expected 99 more bytes, found 8" in [item.problem for item in wrong[0].walk()]
    assert [structure.name for structure in structures([complete])] == ["Whole", "Inner"]
    assert kind.label() == "Inner, length int32 BE"
    with pytest.raises(DescriptionError, match="1 unused bytes after Inner"):
        kind.unpack(bytes.fromhex("0000000602000000000000"), 0, 10, {})
    with pytest.raises(DescriptionError, match=r"expected -?\d+ bytes"):
        kind.unpack(bytes.fromhex("ffffffff"), 0, 4, {})
    longer = address.edit(complete, stored, ("inner", "rest"), lambda old, kind: b"\0\0\0\3xyz", reseal=True)
    assert longer.hex() == "01" + "00000008" + "02" + "00000003" + "78797a" + "03"
    assert address.find(complete, stored, ("inner", "length")).start == 1
    assert address.find(complete, stored, ("inner", "a")).start == 5
    assert address.find(complete, stored, ("inner",)).stop == 12
    with pytest.raises(UsageError, match="no field 'z'"):
        address.find(complete, stored, ("inner", "z"))
    tiny = Struct("Tiny", Field("inner", Enclosed(U8, inner)))
    with pytest.raises(UsageError, match="cannot be resealed: length"):
        address.edit(tiny, b"\6\2\0\0\0\1x", ("inner", "rest"), lambda old, kind: bytes(300), reseal=True)


def test_null_and_optional_fields() -> None:
    kind = Switch("left > 0", {1: U8, 0: Nothing()})
    struct = Struct("S", Field("x", kind))
    assert struct.unpack(b"") == ({"x": None}, 0)
    assert struct.unpack(b"\5") == ({"x": 5}, 1)
    assert struct.pack({"x": None}) == b""
    assert struct.pack({"x": 5}) == b"\5"
    (node,) = Explainer(b"").all(struct, 0, 0)
    assert (node.start, node.end, node.problem) == (0, 0, "")
    assert kind.label() == "uint8 or nothing"
    with pytest.raises(DescriptionError, match="the field is absent here"):
        Nothing().pack(1, {})


# Adler-32


@pytest.mark.parametrize("size", [31, 32, 33, 127, 128, 129, 639, 640, 641, 768, 1280, 5000])
@pytest.mark.parametrize("at", [0, 1, 127, 128, 177])
def test_adler32_of_0xff_bytes(at: int, size: int) -> None:
    """No partial sum overflows at full block sizes."""
    data = bytes([255]) * (at + size)
    buf = np.frombuffer(data, np.uint8)
    assert adler32(buf, at, len(data)) == adler32.py_func(buf, at, len(data)) == zlib.adler32(data[at:])
    compiled = adler32.compile()
    assert compiled(buf, at, len(data)) == zlib.adler32(data[at:])
    with pytest.raises(IndexError):
        compiled(buf, at, len(data) + 1)


def test_adler32_of_large_input() -> None:
    data = np.random.default_rng(3).integers(0, 256, 1 << 20).astype(np.uint8)
    adler32.compile()
    half = adler32_of(data[:500_000])
    assert adler32_of(data[500_000:], half) == zlib.adler32(data) == adler32_of(data.tobytes())
    assert adler32_of(b"a", half) == zlib.adler32(b"a", half)


@pytest.mark.parametrize("size", range(7, 34))
def test_one_byte_text_is_classified(size: int) -> None:
    """Eight bytes are tested at once: an invalid byte is found at any position."""
    for place in range(size):
        for byte, kind in ((0x80, jute.BAD_TEXT), (0xFF, jute.BAD_TEXT), (0x7F, jute.PLAIN_TEXT)):
            buf = np.full(size + 2, 0x61, np.uint8)
            buf[place + 1] = byte
            assert jute.text_kind(buf, 1, size + 1) == kind
            buf[0] = buf[-1] = 0xFF
            assert jute.text_kind(buf, 1, size + 1) == kind


@given(st.binary(max_size=300), st.integers(0, 300))
def test_adler32_and_its_combination_equal_zlib(data: bytes, at: int) -> None:
    buf = np.frombuffer(data, np.uint8)
    at = min(at, len(data))
    assert adler32(buf, at, len(data)) == zlib.adler32(data[at:]) == adler32.py_func(buf, at, len(data))
    first, second = zlib.adler32(data[:at]), zlib.adler32(data[at:])
    assert adler32_combine(first, second, len(data) - at) == zlib.adler32(data)
