"""Keep what a broker leaves of a partition when it starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logwright.codec.engine.repair import Kept, OutputFile, Removed, RepairPlan
from logwright.codec.fault import DamageError
from logwright.codec.kafka.names import parse_segment
from logwright.codec.kafka.repair.examine import Examined, examine
from logwright.codec.kafka.repair.runs import Copies, joined, lost
from logwright.codec.kafka.startup.start import Started, start_broker
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan, Role

_ORDER = (".log", ".timeindex", ".txnindex", ".index", ".snapshot")


class SystemPlan(RepairPlan):
    """Strategy system."""

    def __init__(self, listing: Listing, plan: Plan, options: Options) -> None:
        super().__init__(listing)
        self.plan, self.options = plan, options
        self._started: Started = start_broker(
            listing, options, version=options["version"], clean=options["clean"]
        )
        verdict = self._started.verdict
        if not verdict.opens:
            raise DamageError(
                f"the broker does not open the partition: {verdict.error}",
                path=listing.name,
                advice="Strategy salvage keeps every sound batch, and leaves what a broker opens",
            )
        self.cut = self._cut()
        first, last = verdict.serves.get("first"), verdict.serves.get("last")
        self.rows = verdict.rows or 0
        self.ids = {} if first is None else {"first_offset": first, "last_offset": last}
        self.notes += verdict.warnings
        if verdict.error:
            self.notes.append(f"Consumers stop at offset {verdict.serves.get('stops_at')}: {verdict.error}")

    def outputs(self) -> Iterator[OutputFile]:
        after = self._started.after
        for entry in sorted(after.entries(), key=lambda entry: _place(entry.name)):
            origin = after.origin(entry.name)
            like = entry.name if entry.name in self.sizes else None if origin is None else origin[0]
            if origin is not None:
                yield OutputFile(entry.name, [Kept(*origin)], like)
            else:
                yield OutputFile(entry.name, [after.read(entry.name)], like)

    def _cut(self) -> list[Removed]:
        """What of the logs is not there any more."""
        after = self._started.after
        kept: dict[str, list[tuple[int, int]]] = {}
        for entry in after.entries():
            origin = after.origin(entry.name)
            if origin is not None:
                kept.setdefault(origin[0], []).append(origin[1:])
        out: list[Removed] = []
        for file in self.plan.files:
            if file.role is not Role.PRIMARY:
                continue
            holes = _holes(sorted(kept.get(file.name, [])), file.size)
            if holes:
                found = examine(self.listing, 0, file, self.options)
                out += [self._lost(found, start, stop) for start, stop in holes]
        return out

    def _lost(self, found: Examined, start: int, stop: int) -> Removed:
        rows: int | None = 0
        what = dict[str, Any]()
        reader = Copies([self.listing])
        for one in found.cut:
            if start <= one.offset < stop and one.rows_lost != 0:
                rows = None if rows is None or one.rows_lost is None else rows + one.rows_lost
                what = joined(what, one.lost)
        for run in [*found.good, *found.odd]:
            if run.stop <= start or run.begin >= stop:
                continue
            for some in reader.batches(run):
                inside = (some.at + run.begin >= start) & (some.at + run.begin < stop)
                more, said = lost(self.listing, some.frames.header[inside])
                rows = None if rows is None else rows + more
                what = joined(what, said)
        return Removed(
            found.file.name, start, stop - start, "the broker cuts it off or deletes it", 0, rows, what
        )


def _holes(kept: list[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    out, at = [], 0
    for start, stop in kept:
        if start > at:
            out.append((at, start))
        at = max(at, stop)
    if at < size:
        out.append((at, size))
    return out


def _place(name: str) -> tuple[int, int, int, str]:
    found = parse_segment(name)
    return (-1, 0, 0, name) if found is None else (0, found.base_offset, _ORDER.index(found.suffix), name)
