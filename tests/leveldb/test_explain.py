"""Explanation of a database's files: fragmented records, blocks, and unexpected bytes between them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from explanations import all_nodes, check_covers_file, check_nodes_tile, nodes_named

import logwright as lw
from logwright.codec.explain import Focus, Node
from logwright.codec.leveldb.formats.explain import FILTER_BLOCK, STORED, key_of, records_of, table_of
from logwright.codec.leveldb.formats.log.layout import WRITE_BATCH
from logwright.codec.leveldb.formats.records.layout import BLOCK, FIRST, FULL, LAST, MIDDLE, RECORD
from logwright.codec.leveldb.formats.table.compression import sealed
from logwright.codec.leveldb.formats.table.index import DATA, FILTER, METAINDEX, Blocks
from logwright.codec.leveldb.formats.table.layout import RESTART
from logwright.codec.window import Window

BATCH = WRITE_BATCH.pack({"sequence": 5, "count": 1, "operations": [{"type": 1, "key": b"k", "value": b"v"}]})


def record(kind: int, payload: bytes) -> bytes:
    return RECORD.pack({"length": len(payload), "type": kind, "payload": payload})


def log(data: bytes, offset: int = 0, items: int = 1000) -> list[Node]:
    window = Window(np.frombuffer(data, np.uint8), offset, offset + len(data))
    nodes = records_of(WRITE_BATCH, window, Focus(items=items))
    check_nodes_tile(nodes, data, offset)
    return nodes


def test_batch_in_one_record() -> None:
    (node,) = log(record(FULL, BATCH))
    payload = node.children[-1]
    assert payload.children[0].name == "WriteBatch"
    assert payload.children[0].children[0].value == 5


def test_fragments_of_a_batch_are_explained_as_one_record() -> None:
    """In any fragments, with the filler of the block between them."""
    data = record(FIRST, BATCH[:4]) + record(MIDDLE, BATCH[4:9]) + record(LAST, BATCH[9:])
    (node,) = log(data)
    assert node.name == "LogicalRecord"
    assert node.meaning == "3 physical records"
    assert node.space is not None
    assert node.space.data == BATCH


def test_filler_at_the_end_of_a_block_is_padding() -> None:
    padding, node = log(bytes(3) + record(FULL, BATCH), BLOCK - 3)
    assert (padding.kind, padding.meaning) == (
        "padding",
        "padding: no room for a header in the block of 32 KiB",
    )
    assert node.start == BLOCK
    (torn,) = log(record(FIRST, BATCH[:4]), BLOCK - 11)
    assert torn.name == "PhysicalRecord"


@pytest.mark.parametrize(
    "kinds",
    [
        (FIRST, FULL),
        (FIRST, FIRST, LAST),
        (MIDDLE, LAST),
        (LAST,),
        (FIRST, MIDDLE),
        (FIRST, 9, LAST),
        (FIRST, 0, LAST),
    ],
)
def test_fragments_without_a_record(kinds: tuple[int, ...]) -> None:
    nodes = log(b"".join(record(kind, BATCH[:8]) for kind in kinds))
    gathered = [node for node in nodes if node.space is not None]
    assert len(gathered) == (kinds == (FIRST, FIRST, LAST))


def test_invalid_record_extends_to_the_end_of_its_block() -> None:
    data = record(FULL, BATCH) + b"\x01\x02\x03\x04\xff\xff\x01rest"
    data += b"x" * (BLOCK - len(data)) + record(FULL, BATCH)
    first, broken, last = log(data)
    assert (first.broken, broken.broken, last.broken) == (False, True, False)
    assert broken.children[-1].problem.startswith("expected 65,535 bytes")
    assert last.start == BLOCK


def test_zeros_and_the_bytes_after_them() -> None:
    zeros = bytes(40) + record(FULL, BATCH)
    (node,) = log(zeros)
    assert node.meaning == "not recognised"
    assert log(bytes(40))[0].kind == "padding"
    pieces = log(record(FIRST, BATCH) + bytes(40))
    assert [piece.kind for piece in pieces] == ["struct", "padding"]


def test_many_records_of_a_damaged_range() -> None:
    nodes = log(record(FULL, BATCH) * 5, items=2)
    assert [node.kind for node in nodes] == ["struct", "struct", "unexplained"]


def test_torn_record_header_is_marked_as_broken() -> None:
    (node,) = log(b"\x01\x02\x03\x04\x05")
    assert node.broken


# Tables


def block(kind: int, contents: bytes, items: int = 1000, row: int | None = None) -> Node:
    stored = sealed(contents, 0)
    starts = np.array([0], np.int64)
    blocks = Blocks(
        starts,
        np.array([len(contents)], np.int64),
        np.array([kind], np.int64),
        starts - 1,
        [],
        True,
        len(stored),
        [],
    )
    (node,) = table_of(Window(np.frombuffer(stored, np.uint8), 0, 9999), blocks, Focus(items=items, row=row))
    check_nodes_tile([node], stored, 0)
    assert node.name == STORED[kind].name
    return node


def entry(shared: int, rest: bytes, value: bytes) -> bytes:
    return bytes((shared, len(rest), len(value))) + rest + value


def specimen_of(*entries: bytes) -> bytes:
    return b"".join(entries) + RESTART.pack({"offset": 0}) + RESTART.pack({"offset": 1})


TAG = (7 << 8 | 1).to_bytes(8, "little")


def items(node: Node) -> list[Node]:
    return node.children[0].children[0].children[0].children


def test_complete_keys_after_their_shared_prefix() -> None:
    data = specimen_of(entry(0, b"abc" + TAG, b"1"), entry(2, b"x" + TAG, b"2"), entry(3, b"" + TAG, b"3"))
    assert [node.meaning for node in items(block(DATA, data))] == [
        "abc, sequence 7, value",
        "abx, sequence 7, value",
        "abx, sequence 7, value",
    ]
    few = items(block(DATA, data, items=1))
    assert [node.meaning for node in few] == [
        "abc, sequence 7, value",
        "2 more entries, not shown",
    ]
    many = specimen_of(entry(0, b"a" + TAG, b""), *[entry(0, b"b" + TAG, b"")] * 9, entry(1, b"z" + TAG, b""))
    meanings = [node.meaning for node in items(block(DATA, many, items=1, row=10))]
    assert meanings == [
        "a, sequence 7, value",
        "9 more entries, not shown",
        "bz, sequence 7, value",
    ]
    names = specimen_of(entry(0, b"filter.x", b"\x05\x06"))
    (node,) = items(block(METAINDEX, names))
    assert node.meaning == "filter.x"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x00",
        b"\xff\xff\xff\xff",
        specimen_of(entry(3, b"x" + TAG, b"")),
        specimen_of(entry(0, b"abc" + TAG, b"1"), b"\x00\x7f\x00"),
        specimen_of(b"\x80"),
    ],
)
def test_invalid_blocks_are_explained_without_an_error(data: bytes) -> None:
    block(DATA, data)
    block(FILTER, data)


def test_internal_keys_are_shown_as_text() -> None:
    assert key_of(b"abc") == "abc"
    assert key_of(b"\x00" + TAG) == "0x00, sequence 7, value"
    assert key_of(b"k" + (9 << 8 | 5).to_bytes(8, "little")) == "k, sequence 9, unknown type 5"


@pytest.mark.parametrize(
    ("filters", "offsets", "shown"),
    [
        (b"abc\x06def\x06", [0, 4], ["[0]", "[1]"]),
        (b"abc\x06", [0, 4], ["[0]", "[1]"]),
        (b"abc\x06", [0, 9], []),
        (b"abc\x06", [4, 0], []),
        (b"abc\x06", [1], []),
        (b"", [], []),
    ],
)
def test_filters_one_by_one(filters: bytes, offsets: list[int], shown: list[str]) -> None:
    data = FILTER_BLOCK.pack(
        {"filters": filters, "offsets": offsets, "array_offset": len(filters), "base_lg": 11}
    )
    inner = block(FILTER, data).children[0].children[0]
    assert [child.name for child in inner.children[0].children] == shown
    if shown == ["[0]", "[1]"]:
        shown_keys = [child.meaning for child in inner.children[0].children]
        assert shown_keys[0] == "of the data blocks that start in bytes 0 to 2047: 24 bits, 6 probes"
        assert shown_keys[1].startswith("of the data blocks that start in bytes 2048 to 4095: ")


def test_array_of_filters_at_another_position() -> None:
    block(FILTER, FILTER_BLOCK.pack({"filters": b"abc", "offsets": [0], "array_offset": 99, "base_lg": 11}))


def test_footer_preceded_by_other_bytes(tmp_path: Path) -> None:
    """Bytes that belong to no block."""
    source = next(
        (Path(lw.__file__).parent / "corpora/golden/leveldb/tables_none/db").resolve().glob("*.ldb")
    )
    data = source.read_bytes()
    path = tmp_path / source.name
    path.write_bytes(data[:-48] + b"between" + data[-48:])
    explanation = lw.explain(path)
    check_covers_file(explanation, path.read_bytes())
    (footer,) = nodes_named(explanation, "Footer")
    assert footer.start == len(data) - 48 + 7
    assert any(node.value == b"between" for node in all_nodes(explanation))
    path.write_bytes(data[:100])
    check_covers_file(lw.explain(path), data[:100])
