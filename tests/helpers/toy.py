"""A layout of no real system, to test writers against the protocol alone.

A directory of segments `00000.seg`: the number of the first row as 8 bytes, then rows of 8 bytes, `rows.per.segment` to each.
`count` holds the number of rows as text and is replaced by each append.

"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from logwright.codec.base import Match
from logwright.codec.fault import UsageError
from logwright.codec.layout import Layout
from logwright.codec.option import Option, Options
from logwright.codec.store.build import Piece, Placement, Stage, Summary
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role
from logwright.codec.store.view import Part, View
from logwright.codec.table import Column, Table

TABLE = Table("rows", (Column("value", pa.int64(), "A number."),))


class ToyBuilder:
    def __init__(self, first: int, segment: int, per: int, staged: bool) -> None:
        self.first, self.next, self.segment, self.per, self.staged = first, first, segment, per, staged
        self.held: list[int] = []

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        if "value" not in rows.schema.names:
            raise UsageError("there is no column 'value'")
        for value in rows.column("value").to_pylist():
            if value is None:
                raise UsageError("column 'value' has a null")
            self.held.append(value)
            if len(self.held) == self.per:
                yield from self._flush()

    def finish(self) -> Iterator[Piece]:
        yield from self._flush()
        if not self.staged:
            yield Piece("count", str(self.next).encode(), done=True)

    def summary(self) -> Summary:
        return Summary(
            self.next - self.first,
            {"first": self.first, "last": self.next - 1},
            ("toys break",),
            ("wind it up",),
        )

    def _flush(self) -> Iterator[Piece]:
        if self.held:
            name = f"{self.segment:05}.seg"
            yield Piece(name, self.next.to_bytes(8, "big"))
            yield Piece(name, b"".join(v.to_bytes(8, "big", signed=True) for v in self.held), done=True)
            self.segment += 1
            self.next += len(self.held)
            self.held = []


class ToyLayout(Layout):
    name = "toy.box"
    title = "A toy box"
    views: Mapping[str, View] = {"rows": View("rows", "toy.box", "rows", "the numbers", TABLE)}
    default_view = "rows"
    options = (Option("rows.per.segment", 3, "Rows in a segment.", low=1),)
    inner_staging = ".logwright-toy"

    def recognise(self, listing: Listing) -> Match:
        return Match.SURE if any(entry.name == "count" for entry in listing.entries()) else Match.NO

    def plan(self, listing: Listing, options: Options) -> Plan:
        files = []
        for entry in listing.entries():
            ours = entry.name == "count" or entry.name.endswith(".seg")
            files.append(PlannedFile(entry.name, entry.size, Role.PRIMARY if ours else Role.FOREIGN))
        return Plan(tuple(files))

    def parts(self, listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part]:
        return ()

    def locks(self) -> Sequence[str]:
        return ("../.running",)

    def staging(self, name: str, token: str) -> str:
        return f"{name}.{token}-gone"

    def order(self, names: Iterable[str]) -> Sequence[str]:
        return sorted(names)

    def builder(
        self,
        listing: Listing | None,
        name: str,
        options: Options,
        *,
        staged: bool = False,
        extra: Stage | None = None,
    ) -> ToyBuilder:
        if listing is None or staged:
            return ToyBuilder(0, 0, options["rows.per.segment"], staged)
        segments = sum(entry.name.endswith(".seg") for entry in listing.entries())
        return ToyBuilder(int(listing.read("count")), segments, options["rows.per.segment"], staged)

    def assemble(
        self,
        listing: Listing | None,
        name: str,
        parts: Sequence[tuple[Stage, Summary]],
        extra: Stage,
        options: Options,
    ) -> Placement:
        first = 0 if listing is None else int(listing.read("count"))
        segment = 0 if listing is None else sum(e.name.endswith(".seg") for e in listing.entries())
        start, renames = first, []
        for stage, _ in parts:
            for entry in stage.entries():
                stage.patch(entry.name, 0, first.to_bytes(8, "big"))
                renames.append((stage, entry.name, f"{segment:05}.seg"))
                first += entry.size // 8 - 1
                segment += 1
        extra.append("count", str(first).encode())
        renames.append((extra, "count", "count"))
        return Placement(tuple(renames), Summary(first - start, {"first": start, "last": first - 1}))


def rows(files: Mapping[str, bytes | None]) -> list[int]:
    """Return the rows of a toy store from its files. Check that it is complete."""
    values: list[int] = []
    for name in sorted(files):
        data = files[name]
        if name.endswith(".seg"):
            assert data is not None
            assert int.from_bytes(data[:8], "big") == len(values), f"{name} begins at the wrong row"
            values += [int.from_bytes(data[i : i + 8], "big", signed=True) for i in range(8, len(data), 8)]
        else:
            assert name == "count", f"{name} is left behind"
    assert int(files["count"] or b"") == len(values)
    return values


def numbers(*values: Any) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.int64())})
