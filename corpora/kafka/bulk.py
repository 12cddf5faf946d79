"""Generate millions of rows in seconds, as complete columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.kafka.formats.log.tables import ROWS
from logwright.codec.kafka.names import parse_directory
from logwright.codec.option import Option
from logwright.corpora.bulk import cut, numbered
from logwright.corpora.recipe import Order
from logwright.corpora.rng import text

START_MS = 1_700_000_000_000
"""The time of the first record: 2023-11-14 22:13:20 UTC."""
OPTIONS = (
    Option("value.bytes", 100, "Bytes of a value on average", low=0, high=1 << 20),
    Option("key.count", 1000, "Different keys", low=1, high=1_000_000),
)
_PIECE = 1 << 16


def rows(order: Order) -> Iterator[pa.RecordBatch]:
    """Return users, words and increasing times. Each row depends only on the seed and its number."""
    size, keys = order.options["value.bytes"], order.options["key.count"]
    pool = np.frombuffer(text(order.rng("pool"), (1 << 16) + 2 * size), np.uint8)
    of_key, of_size, of_place, of_time = (order.rng(stream) for stream in ("key", "size", "place", "time"))
    for start in range(0, order.rows, _PIECE):
        count = min(_PIECE, order.rows - start)
        sizes = size // 2 + of_size.numbers(start, count, size + 1)
        times = START_MS + 10 * np.arange(start, start + count) + of_time.numbers(start, count, 10)
        yield pa.RecordBatch.from_arrays(
            [
                numbered(b"user-", of_key.numbers(start, count, keys), len(str(keys - 1))),
                cut(pool, of_place.numbers(start, count, 1 << 16), sizes),
                pa.array(times, ROWS["timestamp"].type),
            ],
            names=["key", "value", "timestamp"],
        )


def expected(order: Order, name: str, first_offset: int = 0) -> Callable[[], Iterator[pa.RecordBatch]]:
    """Return the expected rows. `name` is the name of the partition's directory."""
    topic, partition = parse_directory(name) or (None, None)
    schema = ROWS.schema()

    def batches() -> Iterator[pa.RecordBatch]:
        at = first_offset
        for piece in rows(order):
            count = piece.num_rows
            columns: dict[str, Any] = {
                "topic": pa.repeat(pa.scalar(topic, pa.string()), count),
                "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
                "offset": pa.array(np.arange(at, at + count)),
                "timestampType": pa.repeat(pa.scalar(0, pa.int32()), count),
                "headers": pa.array([[]], schema.field("headers").type).take(
                    pa.array(np.zeros(count, np.int64))
                ),
            }
            yield pa.RecordBatch.from_arrays(
                [columns[column] if column in columns else piece.column(column) for column in schema.names],
                schema=schema,
            )
            at += count

    return batches
