"""Explain the files of a database: logical records assembled from physical ones, and the blocks of a table with their contents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from logwright.codec.describe import U32LE, Content, DescriptionError, Field, Repeated, Scope, Struct
from logwright.codec.describe import Bytes as BytesType
from logwright.codec.explain import SKIPPED, Explainer, Focus, Node
from logwright.codec.expression import LEFT
from logwright.codec.kernels.compress import CompressionError
from logwright.codec.leveldb.formats.records.layout import BLOCK, FIRST, FULL, HEADER, LAST, MIDDLE, RECORD
from logwright.codec.leveldb.formats.table import index
from logwright.codec.leveldb.formats.table.compression import expand
from logwright.codec.leveldb.formats.table.filter import FILTER_END
from logwright.codec.leveldb.formats.table.index import Blocks, stored_block
from logwright.codec.leveldb.formats.table.layout import (
    BLOCK_HANDLE,
    ENTRY,
    NONE,
    RESTART,
    RESTART_SIZE,
    TRAILER,
    stored_crc,
)
from logwright.codec.leveldb.keys import TRAILER_SIZE as KEY_TRAILER
from logwright.codec.leveldb.keys import readable, tag_of
from logwright.codec.window import Window

# Logs and manifests


@cache
def physical_record(content: Struct) -> Struct:
    """Return the description of a physical record. A FULL one holds the structure `content`."""
    payload = Field(
        "payload", RECORD["payload"].type, RECORD["payload"].doc, holds=Content(content, f"type == {FULL}")
    )
    return Struct(RECORD.name, *RECORD.fields[:-1], payload, doc=RECORD.doc, source=RECORD.source)


def file_of_records(content: Struct) -> Struct:
    """Return the description of a log or a manifest whose logical records are the structure `content`."""
    block = Struct(
        "LogBlock",
        Field(
            "records", Repeated(physical_record(content), least=HEADER), "while there is room for a header"
        ),
        Field("trailer", BytesType(), "zeros, if there is no room for a header"),
        doc="32 KiB; the last block may be shorter.",
        source="log::kBlockSize",
    )
    return Struct(
        "LogFile", Field("blocks", Repeated(block, every=BLOCK)), doc="Blocks.", source="log::Reader"
    )


def records_of(content: Struct, window: Window, focus: Focus) -> list[Node]:
    """Explain a range of a log or a manifest. A record of several fragments is assembled in a separate address space."""
    return list(_Records(content, window, focus).nodes())


class _Records:
    def __init__(self, content: Struct, window: Window, focus: Focus) -> None:
        self.content, self.record = content, physical_record(content)
        self.base, self.focus = window.offset, focus
        self.data = window.data.tobytes()
        self.explainer = Explainer(self.data, self.base, focus)
        self.chain: list[Node] = []
        """Physical records of an incomplete logical record."""

    def nodes(self) -> Iterator[Node]:
        at, end, shown = 0, len(self.data), 0
        while at < end:
            block_end = min(at + BLOCK - (self.base + at) % BLOCK, end)
            if (self.base + at) % BLOCK > BLOCK - HEADER:
                yield from self._chained()
                yield self.explainer.padding(
                    at, block_end, "padding: no room for a header in the block of 32 KiB"
                )
                at = block_end
                continue
            if not any(self.data[at + 4 : at + HEADER]) or shown >= self.focus.items:
                yield from self._chained()
                yield from self.explainer.rest(at, block_end, "not recognised")
                at = block_end
                continue
            node = self.explainer.node(self.record, at, block_end, {}, RECORD.name)
            shown += 1
            kind = next((child.value for child in node.children if child.name == "type"), None)
            fragment = not node.broken and kind in (FIRST, MIDDLE, LAST)
            if kind == FIRST or not fragment:
                yield from self._chained()
            if fragment:
                self.chain.append(node)
                if kind == LAST:
                    yield from self._gathered()
            else:
                yield node
            at = node.end - self.base
        yield from self._chained()

    def _chained(self) -> Iterator[Node]:
        """Return the fragments of an incomplete record."""
        yield from self.chain
        self.chain = []

    def _gathered(self) -> Iterator[Node]:
        chain, self.chain = self.chain, []
        if chain[0].children[2].value != FIRST:
            yield from chain
            return
        pieces = [fragment.children[-1] for fragment in chain]
        node = Node(
            "LogicalRecord", chain[0].start, chain[-1].end, "struct", None,
            f"{len(chain)} physical records", "A record of several fragments: their payloads, one after the other.",
            "LogicalRecord", "log::Reader::ReadRecord",
        )  # fmt: skip
        node.children = chain
        data = b"".join(
            self.data[fragment.start - self.base : fragment.end - self.base] for fragment in pieces
        )
        places = tuple((fragment.start, fragment.end) for fragment in pieces)
        node.space = self.explainer.space(node, data, "gathered", self.content, gathered=places)
        yield node


# Tables

WHOLE_ENTRY = Struct(
    "WholeBlockEntry",
    *ENTRY.fields,
    Field("key_delta", BytesType("non_shared"), "the rest of the key; sequence and type are its last eight bytes"),
    Field("value", BytesType("value_length"), "the value; in an index the handle of a block"),
    doc="An entry of a block.",
    source="BlockBuilder::Add",
)  # fmt: skip


def _block(name: str, doc: str, *, leads: str = "", rows: bool = False) -> Struct:
    """Return the description of an uncompressed block of entries. With `leads`, its values are handles of blocks of that kind."""
    plain = WHOLE_ENTRY["value"]
    entry = Struct(
        f"{name}Entry",
        *WHOLE_ENTRY.fields[:-1],
        Field(plain.name, plain.type, "the handle of a block", holds=_HANDLE, points=stored_block(leads))
        if leads
        else Field(plain.name, plain.type, "the value"),
        doc="A key and a value.",
        source=WHOLE_ENTRY.source,
    )
    return Struct(
        name,
        Field(
            "entries",
            Repeated(entry),
            "in the order of the keys",
            size=f"{LEFT} - {RESTART_SIZE} * num_restarts - {RESTART_SIZE}",
            rows=rows,
        ),
        Field(
            "restarts",
            Repeated(RESTART),
            "positions of entries that share no bytes with the previous key",
            size=f"{LEFT} - {RESTART_SIZE}",
        ),
        Field("num_restarts", U32LE, "number of restart points"),
        doc=doc,
        source="BlockBuilder",
    )


def _unpack(stored: bytes, scope: Scope, limit: int) -> bytes:
    try:
        return expand(np.frombuffer(stored, np.uint8), scope["type"], limit).tobytes()
    except CompressionError as error:
        raise DescriptionError(str(error)) from None


_FILTERS = 10_000
"""Filters of one table that are shown one by one; further ones are not."""
_HANDLE = Content(BLOCK_HANDLE)
DATA_BLOCK = _block("DataBlock", "Keys and values, in the order of the keys.", rows=True)
INDEX_BLOCK = _block(
    "IndexBlock",
    "For each data block its handle, and a key that is not before its last one.",
    leads="Data",
)
METAINDEX_BLOCK = _block("MetaindexBlock", "Names and handles of further blocks.", leads="Filter")
FILTER_BLOCK = Struct(
    "FilterBlock",
    Field(
        "filters",
        BytesType(),
        "Bloom filters, one after the other; the last byte of each is its number of probes",
        size="array_offset",
    ),
    Field("offsets", Repeated(U32LE), "where each filter starts", size=f"{LEFT} - {FILTER_END.head_size}"),
    *FILTER_END.fields,
    doc="A Bloom filter for each 2 KiB of the file, of the keys of the data blocks that start there.",
    source="FilterBlockBuilder",
)


def _stored(name: str, content: Struct) -> Struct:
    """Return the description of a stored block with its trailer."""
    return Struct(
        name,
        Field(
            "contents",
            BytesType(),
            "the block, compressed or not",
            size=f"{LEFT} - {TRAILER.head_size}",
            holds=Content(content, f"type == {NONE}", f"type != {NONE}", _unpack),
            rows=True,
        ),
        Field("type", TRAILER["type"].type, TRAILER["type"].doc),
        Field("crc", U32LE, TRAILER["crc"].doc, checksum=(stored_crc, "contents")),
        doc=content.doc,
        source="TableBuilder::WriteRawBlock",
    )


STORED = {
    index.DATA: _stored("StoredDataBlock", DATA_BLOCK),
    index.INDEX: _stored("StoredIndexBlock", INDEX_BLOCK),
    index.METAINDEX: _stored("StoredMetaindexBlock", METAINDEX_BLOCK),
    index.FILTER: _stored("StoredFilterBlock", FILTER_BLOCK),
}
TABLE = Struct(
    "Table",
    Field("blocks", BytesType(), "blocks, adjacent; the footer and the index give their positions", size=f"{LEFT} - {index.FOOTER_SIZE}"),
    Field("footer", index.FOOTER, "where the index is"),
    doc="A table.",
    source="TableBuilder",
)  # fmt: skip


def table_of(window: Window, blocks: Blocks | None, focus: Focus) -> Sequence[Node]:
    """Explain a range of a table: a block, good or damaged, or the footer."""
    data, base = window.data.tobytes(), window.offset
    explainer, size = Explainer(data, base, focus), len(data)
    kind = None if blocks is None else _kind_of(blocks, base, size)
    if kind is not None:
        nodes = explainer.all(STORED[kind], 0, size)
        _annotate(nodes[0], kind, data, base)
        return nodes
    if base + size == window.size and size >= index.FOOTER_SIZE and data.endswith(index.FOOTER["magic"].only):
        # Bytes before the block that belong to no other are shown before it.
        return [
            *explainer.rest(0, size - index.FOOTER_SIZE, "of no block"),
            *explainer.all(index.FOOTER, size - index.FOOTER_SIZE, size),
        ]
    return explainer.rest(0, size, "of no known block")


def _kind_of(blocks: Blocks, place: int, size: int) -> int | None:
    """Return the kind of block at `place`, or None."""
    i = blocks.at(place)
    if i < len(blocks.offset) and blocks.offset[i] == place and blocks.ends[i] == place + size:
        return int(blocks.kind[i])
    length, kind = blocks.wrong.get(place, (-1, index.DATA))
    return kind if length + TRAILER.head_size == size else None


def _annotate(block: Node, kind: int, data: bytes, base: int) -> None:
    """Add what only the whole block determines: the keys of its entries, or the range of each filter."""
    contents = block.children[0]
    space = contents.space
    inner = space.nodes[0] if space is not None else contents.children[0] if contents.children else None
    if inner is None:
        return
    plain, start = (data, base) if space is None else (space.data, 0)
    first = inner.children[0]
    if kind == index.FILTER:
        _add_filters(inner, plain, start)
    elif first.name == "entries" and first.children:
        _add_keys(first, plain, start, internal=kind != index.METAINDEX)


def _add_keys(entries: Node, plain: bytes, start: int, *, internal: bool) -> None:
    """Add the full key of each entry, from what it shares with the one before."""
    shown = {
        shown_entry.start: shown_entry for shown_entry in entries.children if shown_entry.kind != SKIPPED
    }
    last = max(shown, default=start)
    kind = DATA_BLOCK["entries"].type
    assert isinstance(kind, Repeated)
    at, end, key = entries.start, entries.end, b""
    while at <= last and at < end:
        try:
            entry, stop = kind.item.unpack(plain, at - start, end - start, {})
        except DescriptionError:
            return
        if entry["shared"] > len(key):
            return
        key = key[: entry["shared"]] + entry["key_delta"]
        if at in shown:
            shown[at].meaning = key_of(key) if internal else key.decode("utf-8", "replace")
        at = start + stop


def key_of(key: bytes) -> str:
    """Format an internal key for display."""
    if len(key) < KEY_TRAILER:
        return readable(key)
    tag = int.from_bytes(key[-KEY_TRAILER:], "little")
    return f"{readable(key[:-KEY_TRAILER])}, {tag_of(tag)}"


def _add_filters(block: Node, plain: bytes, start: int) -> None:
    """Add each filter as a field, if the offsets are in order."""
    if len(block.children) < 4:
        return
    filters, offsets, _, lg = block.children[:4]
    stored = plain[offsets.start - start : offsets.end - start]
    begins = np.frombuffer(stored[: len(stored) // 4 * 4], "<u4").tolist()
    ends = [*begins[1:], filters.end - filters.start]
    size = filters.end - filters.start
    if (
        not begins
        or len(begins) > _FILTERS
        or begins[0] != 0
        or any(a > b for a, b in zip(begins, ends, strict=True))
        or max(ends) > size
    ):
        return
    for i, (low, high) in enumerate(zip(begins, ends, strict=True)):
        part = plain[filters.start - start + low : filters.start - start + high]
        of = f"of the data blocks that start in bytes {i << lg.value} to {((i + 1) << lg.value) - 1}"
        text = f"{of}: {8 * (len(part) - 1)} bits, {part[-1]} probes" if part else f"{of}: no keys"
        filters.children.append(
            Node(f"[{i}]", filters.start + low, filters.start + high, "bytes", part, text, type="filter")
        )
