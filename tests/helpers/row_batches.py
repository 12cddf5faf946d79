"""Rows divided into record batches at random."""

from __future__ import annotations

import itertools

import pyarrow as pa
from hypothesis import strategies as st


@st.composite
def chunked(draw: st.DrawFn, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The same rows in batches, some of them empty."""
    cuts = sorted(draw(st.lists(st.integers(0, rows.num_rows), max_size=5)))
    edges = [0, *cuts, rows.num_rows]
    return [rows.slice(start, stop - start) for start, stop in itertools.pairwise(edges)]
