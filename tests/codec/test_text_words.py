"""Text described word by word, and read as Java reads it."""

from __future__ import annotations

from typing import Any

import pytest
from explanations import all_nodes, check_covers_file

import logwright as lw
from logwright.codec.describe import DescriptionError
from logwright.codec.text import Word


@pytest.mark.parametrize(
    ("kind", "data", "value", "stop"),
    [
        (Word(bits=32), b"12\n3", 12, 3),
        (Word(bits=32), b"-12\r\n3", -12, 5),
        (Word(bits=32), b"+7", 7, 2),
        (Word(" ", 64), b"9  \t8", 9, 4),
        (Word(" "), b"orders 0", "orders", 7),
        (Word(": "), b"version: 0", "version", 9),
        (Word(": "), b"a:b: c", "a:b", 5),
        (Word(), b"\nx", "", 1),
        (Word(), b"\xff\n", "\ufffd", 2),
    ],
)
def test_word_is_read_up_to_its_separator_or_the_end(kind: Word, data: bytes, value: Any, stop: int) -> None:
    assert kind.unpack(data, 0, len(data), {}) == (value, stop)


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        (Word(bits=32), b"", "expected 32-bit number, ended by a line end"),
        (Word(bits=32), b"2147483648\n", "expected a 32-bit number, found b'2147483648'"),
        (Word(bits=32), b"x\n", "expected a 32-bit number, found b'x'"),
        (Word(bits=32), b"1" * 500, "expected a 32-bit number"),
        (Word(" "), b"orders", "expected text, ended by a space"),
        (Word(" "), b"orders\n0 1", "found a line end"),
        (Word(": "), b"version 0", "expected text, ended by a colon and a space"),
    ],
)
def test_invalid_words_are_refused(kind: Word, data: bytes, text: str) -> None:
    with pytest.raises(DescriptionError, match=text):
        kind.unpack(data, 0, len(data), {})


@pytest.mark.parametrize(
    ("kind", "value"), [(Word(bits=32), 5), (Word(" "), "orders"), (Word(": "), "version")]
)
def test_words_written_as_text_are_read_back(kind: Word, value: Any) -> None:
    packed = kind.pack(value, {})
    assert kind.unpack(packed, 0, len(packed), {}) == (value, len(packed))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n6 65\n"),
        ("leader-epoch-checkpoint", b"0\r\n1\r\n0 0"),
        ("leader-epoch-checkpoint", b"0\n9\n0 0\n"),
        ("leader-epoch-checkpoint", b"1\n0\nmore\n"),
        ("leader-epoch-checkpoint", b"0\nx\n"),
        ("leader-epoch-checkpoint", b"\xff\x00\n"),
        ("replication-offset-checkpoint", b"0\n1\norders 0 5\n"),
        ("replication-offset-checkpoint", b"0\n1\norders\n"),
        ("partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"),
        ("partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\nmore: 1\n"),
        ("partition.metadata", b"version 0"),
        ("CURRENT", b"MANIFEST-000002\n"),
        ("CURRENT", b"MANIFEST-000002"),
    ],
)
def test_any_text_file_is_explained_completely(name: str, data: bytes, tmp_path: Any) -> None:
    """All bytes are shown, whatever the content."""
    path = tmp_path / name
    path.write_bytes(data)
    check_covers_file(lw.explain(path), data)


def test_text_fields_are_explained(tmp_path: Any) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    path.write_bytes(b"0\n2\norders 0 5\nother 11 -1\n")
    explanation = lw.explain(path)
    values = {node.name: node.value for node in all_nodes(explanation) if node.kind == "text"}
    assert values == {"version": 0, "count": 2, "topic": "other", "partition": 11, "offset": -1}
    assert [node.row for node in all_nodes(explanation) if node.row is not None] == [0, 1]
    path.write_bytes(b"0\n9\norders 0 5\n")
    assert any("count 9, but only" in node.problem for node in all_nodes(lw.explain(path)))
