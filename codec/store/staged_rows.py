"""Stage the rows of parallel tasks, for layouts whose files depend on the position of each row among those of all tasks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from logwright.codec.layout import Layout
from logwright.codec.option import Options
from logwright.codec.sorting import framed, read_framed
from logwright.codec.store.build import Builder, Parts, Piece, Placement, Stage, Summary
from logwright.codec.store.listing import Listing


class RowStager:
    """A builder that stages the rows of one task in a file of this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows = 0
        self.schema: pa.Schema | None = None

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        self.rows += rows.num_rows
        self.schema = self.schema or rows.schema
        yield Piece(self.name, framed(rows))

    def finish(self) -> Iterator[Piece]:
        if self.rows:
            yield Piece(self.name, b"", done=True)

    def summary(self) -> Summary:
        schema = None if self.schema is None else self.schema.serialize().to_pybytes()
        return Summary(self.rows, facts={"schema": schema})


class RowLayout(Layout):
    """A layout with one builder, to which `assemble` passes the staged rows of all tasks."""

    staged_file = "rows"
    """The file in which a task stages its rows."""

    @abstractmethod
    def row_builder(self, listing: Listing | None, name: str, options: Options) -> Builder: ...

    def builder(
        self, listing: Listing | None, name: str, options: Options, *, staged: bool = False, extra: Stage | None = None
    ) -> Builder:  # fmt: skip
        return RowStager(self.staged_file) if staged else self.row_builder(listing, name, options)

    def assemble(
        self, listing: Listing | None, name: str, parts: Parts, extra: Stage, options: Options
    ) -> Placement:
        builder = self.row_builder(listing, name, options)
        names: dict[str, None] = {}

        def pieces() -> Iterator[Piece]:
            for stage, summary in parts:
                if summary.rows:
                    schema = pa.ipc.read_schema(pa.py_buffer(summary.facts["schema"]))
                    for batch in read_framed(stage, self.staged_file, schema):
                        yield from builder.add(batch)
            yield from builder.finish()

        for piece in pieces():
            extra.take([piece])
            names[piece.name] = None
        return Placement(tuple((extra, name, name) for name in self.order(names)), builder.summary())
