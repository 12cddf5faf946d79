"""Four rows of the store in memory, and the ids of those that a filter selects."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from fake_store import ROWS

from logwright.readers.filter import understand

ROW = {"place": 1, "even": True, "directory": "box", "words": ["a"], "position": 0}
BATCH = pa.RecordBatch.from_pylist(
    [
        {**ROW, "id": 1, "time": 1000, "text": b"a"},
        {**ROW, "id": 2, "time": 2000, "text": b"", "place": 7, "even": False},
        {**ROW, "id": 3, "time": None, "text": None, "place": None, "even": None, "directory": None},
        {**ROW, "id": 4, "time": 4000, "text": b"\xff", "directory": "crate"},
    ],
    schema=ROWS.schema(ROWS.names(detail=True)),
)


def ids(condition: Any) -> list[int]:
    matcher = understand(condition, ROWS)
    assert matcher is not None
    return matcher.apply(BATCH).column("id").to_pylist()
