"""Recipes of RocketMQ stores and commit logs: small ones with every kind of message, and large plain ones.

All are rows that the library's own writers write. The expected physical offsets are computed here, from the sizes of the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import registry
from logwright.codec.option import Option
from logwright.codec.rocketmq.formats.commitlog.layout import LEAST_BLANK
from logwright.codec.rocketmq.formats.commitlog.rows import NAME as LOG
from logwright.codec.rocketmq.formats.commitlog.rows import ROWS
from logwright.corpora.bulk import cut, numbered
from logwright.corpora.recipe import Generator, Made, Order, Recipe, settings
from logwright.corpora.rng import Rng, text

_LAYOUT = "rocketmq.store"
_PIECE = 1 << 14
_TOPICS, _QUEUES = 4, 4
_TIME = 1_700_000_000_000
"""Store time of the first message."""
_FILE_SIZE = "mappedFileSizeCommitLog"
OPTIONS = (Option("body.bytes", 200, "Average size of a body in bytes", low=0, high=1 << 20),)
_LEFT_OUT = ("offsets", "batch_topics")
"""The recipes choose them."""
_GIVEN = (
    "topic", "queue_id", "queue_offset", "born_timestamp", "store_timestamp", "tags", "keys", "properties", "body",
)  # fmt: skip
_DETAILS = ("flag", "sys_flag", "reconsume_times", "prepared_transaction_offset", "born_host", "store_host")
_SCHEMA = ROWS.schema((*_GIVEN, *_DETAILS))
_EXPECTED = ROWS.schema((*_GIVEN[:3], "physical_offset", *_GIVEN[3:]))
Batches = Callable[[], Iterator[pa.RecordBatch]]


class Offsets:
    """Assigns physical offsets to messages by their sizes."""

    def __init__(self, file_size: int | None) -> None:
        self._at, self._size = 0, file_size

    def add(self, rows: pa.RecordBatch) -> pa.Array:
        out = np.empty(rows.num_rows, np.int64)
        for i, size in enumerate(_sizes(rows).tolist()):
            if self._size is not None and size + LEAST_BLANK > self._size - self._at % self._size:
                self._at += -self._at % self._size or self._size
            out[i] = self._at
            self._at += size
        return pa.array(out)


def _sizes(rows: pa.RecordBatch) -> Any:
    compute: Any = pa.compute

    def length(column: pa.Array) -> Any:
        return np.asarray(compute.binary_length(column).fill_null(0), np.int64)

    flags = np.asarray(rows["sys_flag"], np.int64)
    topic = length(rows["topic"])
    properties = rows["properties"]
    entries = np.asarray(properties.value_lengths().fill_null(0), np.int64)
    flat = properties.flatten()
    ends = np.r_[0, np.cumsum(length(flat.field(0)) + length(flat.field(1)) + 2)]
    last = np.cumsum(entries)
    size = 91 + topic + (topic > 127) + length(rows["body"]) + ends[last] - ends[last - entries]
    return size + 12 * ((flags & 0x10) >> 4) + 12 * ((flags & 0x20) >> 5)


def _made(view: str, batches: Batches, size: int | None, **options: Any) -> Made:
    """Return the output of a recipe. `size` is that of a commit log file; None: there is one file without an end."""

    def expected() -> Iterator[pa.RecordBatch]:
        offsets = Offsets(size)
        for rows in batches():
            columns = {name: rows[name] for name in _EXPECTED.names if name != "physical_offset"}
            columns["physical_offset"] = offsets.add(rows)
            yield pa.RecordBatch.from_arrays([columns[name] for name in _EXPECTED.names], schema=_EXPECTED)

    return Made({view: expected}, batches=batches, options=options)


# Large and plain


def _plain_rows(order: Order) -> Iterator[pa.RecordBatch]:
    size = order.options["body.bytes"]
    pool = np.frombuffer(text(order.rng("pool"), (1 << 16) + 2 * size), np.uint8)
    digits = len(str(max(order.rows - 1, 0)))
    for start in range(0, order.rows, _PIECE):
        count = min(_PIECE, order.rows - start)
        number = np.arange(start, start + count)
        sizes = size // 2 + order.rng("size").numbers(start, count, size + 1)
        body = cut(pool, order.rng("place").numbers(start, count, 1 << 16), sizes)
        keys = numbered(b"key-", number, digits).cast(pa.string())
        tags = numbered(b"Tag", number % 10, 1).cast(pa.string())
        names = pa.array(["TAGS", "KEYS"] * count)
        values = pa.concat_arrays([tags, keys]).take(pa.array(np.arange(2 * count).reshape(2, -1).T.ravel()))
        fields = list(_SCHEMA.field("properties").type.value_type)
        properties = pa.ListArray.from_arrays(
            pa.array(2 * np.arange(count + 1), pa.int32()),
            pa.StructArray.from_arrays([names, values], fields=fields),
        )
        times = pa.array(_TIME + number // 10).cast(_SCHEMA.field("store_timestamp").type)
        zeros = pa.array(np.zeros(count, np.int64))
        columns = {
            "topic": numbered(b"Topic", number % _TOPICS, 1).cast(pa.string()), "queue_id": pa.array(number // _TOPICS % _QUEUES),
            "queue_offset": pa.array(number // (_TOPICS * _QUEUES)), "born_timestamp": times, "store_timestamp": times, "tags": tags,
            "keys": keys, "properties": properties, "body": pa.compute.if_else(pa.array(sizes > 0), body, None),
            "born_host": pa.array(["10.0.0.1:50001"] * count), "store_host": pa.array(["10.0.0.2:10911"] * count),
        }  # fmt: skip
        arrays = [columns.get(name, zeros).cast(_SCHEMA.field(name).type) for name in _SCHEMA.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _plain(view: str) -> Callable[[Order], Made]:
    def make(order: Order) -> Made:
        options = order.given(OPTIONS)
        size = options.get(_FILE_SIZE) if view == "rows" else options.setdefault(_FILE_SIZE, 1 << 26)
        return _made(view, lambda: _plain_rows(order), size, **options)

    return make


# Every kind of message


def _mixed_rows(order: Order) -> Iterator[pa.RecordBatch]:
    rng, next_offsets = order.rng("mixed"), dict[tuple[str, int], int]()
    for start in range(0, order.rows, _PIECE):
        rows = [
            _mixed_row(rng, number, next_offsets) for number in range(start, min(order.rows, start + _PIECE))
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def _mixed_row(rng: Rng, number: int, next_offsets: dict[tuple[str, int], int]) -> dict[str, Any]:
    topic = rng.choice(["orders", "orders", "payments", "%RETRY%billing", "SCHEDULE_TOPIC_XXXX", "t" * 200])
    queue = topic, rng.below(3)
    stored = _TIME + 700 * number
    properties: dict[str, str] = {}
    if rng.below(4):
        properties["UNIQ_KEY"] = f"{number:032X}"
    if topic.startswith("SCHEDULE"):
        properties |= {"DELAY": str(queue[1] + 1), "REAL_TOPIC": "orders", "REAL_QID": "0"}
    if rng.below(3):
        properties["TAGS"] = rng.choice(["paid", "shipped", "标签"])
    if rng.below(3):
        properties["KEYS"] = " ".join(f"key-{rng.below(50)}" for _ in range(rng.between(1, 3)))
    flags = rng.choice([0, 0, 0, 0x4, 0x8, 0xC, 0x10, 0x30])
    offset = 0
    if flags not in (0x4, 0xC):
        offset = next_offsets.get(queue, 0)
        next_offsets[queue] = offset + 1
    return {
        "topic": topic, "queue_id": queue[1], "queue_offset": offset, "born_timestamp": stored - rng.below(500), "store_timestamp": stored,
        "tags": properties.get("TAGS"), "keys": properties.get("KEYS"),
        "properties": [{"key": key, "value": value} for key, value in properties.items()],
        "body": text(rng, rng.between(1, 400)) if rng.below(8) else None, "flag": rng.below(3), "sys_flag": flags,
        "reconsume_times": rng.below(2), "prepared_transaction_offset": 64 if flags == 0x8 else 0,
        "born_host": "[2001:db8::1]:50001" if flags & 0x10 else "10.0.0.1:50001",
        "store_host": "[2001:db8::2]:10911" if flags & 0x20 else "10.0.0.2:10911",
    }  # fmt: skip


def _mixed(view: str) -> Callable[[Order], Made]:
    def make(order: Order) -> Made:
        small = {
            _FILE_SIZE: 1 << 14, "mappedFileSizeConsumeQueue": 1000, "maxHashSlotNum": 50, "maxIndexNum": 200,
        }  # fmt: skip
        options = small if view == "messages" else {}
        return _made(view, lambda: _mixed_rows(order), options.get(_FILE_SIZE), **options)

    return make


_PLAIN_DOC = "any number of messages, in bulk: four topics with four queues each, words as bodies, any settings of the writer"
_MIXED_DOC = (
    "several files of delayed, retried and transactional messages, long topics, IPv6 hosts, empty bodies, messages with and without "
    "keys and tags"
)


def generators() -> tuple[Generator, ...]:
    """Return the generators. Created on demand, since the options are the writers' own."""
    out = []
    for codec, view in ((registry.get_layout(_LAYOUT), "messages"), (registry.get(LOG), "rows")):
        plain = settings(codec.options, (*_LEFT_OUT, "max.decompressed.bytes"), OPTIONS)
        recipes = Recipe("plain", _PLAIN_DOC, _plain(view), plain), Recipe("mixed", _MIXED_DOC, _mixed(view))
        out.append(Generator(codec.name, recipes))
    return tuple(out)
