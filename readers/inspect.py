"""Describe files and directories from their headers, without decompressing or verifying checksums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.base import Codec
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import Fault, UnreadableError
from logwright.codec.frames.walk import Hole, Stretch, Walk
from logwright.codec.layout import Container
from logwright.codec.plural import count
from logwright.codec.store.listing import Entry, Listing, export
from logwright.readers.listing import Directory
from logwright.readers.report_data import alive
from logwright.readers.source import Source
from logwright.readers.stream import named
from logwright.readers.target import DirectoryTarget, FileTarget, Target
from logwright.readers.task import codec_options

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}
_UNKNOWN = float(1 << 62)
"""Larger bounds mean unknown."""
_KINDS = 16
"""Columns with at most this number of different values are counted by value."""


def inspect(target: Target) -> dict[str, Any]:
    """Describe a target: kind, codec, sizes, ranges of ids and times, compression; of a directory its files and facts."""
    return _directory(target) if isinstance(target, DirectoryTarget) else _file(target)


def _directory(target: DirectoryTarget) -> dict[str, Any]:
    layout, listing = target.layout, _Listening(target.directory)
    # The plan is made again to learn which files could not be read for it.
    plan = layout.plan(listing, target.layout_options)
    facts = layout.facts(listing, plan)
    return {
        "path": target.path,
        "kind": "directory",
        "codec": layout.name,
        "title": layout.title,
        "live": target.live,
        "bytes": sum(file.size for file in plan.files),
        "facts": {**plan.facts, **facts},
        "files": [
            {"name": f.name, "size": f.size, "role": str(f.role), "codec": f.codec, "note": f.note}
            for f in plan.files
        ],
        "faults": [
            {"file": name, **fault.to_dict()}
            for name, fault in (
                *plan.faults,
                *(() if target.live else plan.missing),
                *listing.faults.items(),
            )
        ],
        "notes": list(target.directory.notes()),
        "views": list(layout.views),
    }


def several(path: str, targets: Sequence[DirectoryTarget], container: Container | None) -> dict[str, Any]:
    """Summarise the directories in a container or a folder, by names and sizes of files alone."""
    names = sorted({target.layout.name for target in targets})
    return {
        "path": path,
        "kind": "directories",
        "codec": ", ".join(names) if container is None else container.name,
        "title": count(len(targets), "directory") if container is None else container.title,
        "live": alive([target.live for target in targets]),
        "bytes": sum(file.size for target in targets for file in target.plan.files),
        "directories": [
            {
                "path": target.path,
                "codec": target.layout.name,
                "bytes": sum(file.size for file in target.plan.files),
                "facts": dict(target.plan.facts),
            }
            for target in targets
        ],
    }


class _Listening:
    """A listing that records what the disk cannot read, since callers continue without it. Implements `codec.store.listing.Listing`."""

    def __init__(self, directory: Directory) -> None:
        self._directory, self.name = directory, directory.name
        self.faults: dict[str, Fault] = {}
        """The first fault of each file."""

    def entries(self) -> Sequence[Entry]:
        return self._directory.entries()

    def parent(self) -> Listing | None:
        return self._directory.parent()

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        try:
            return self._directory.read(name, offset, length)
        except UnreadableError as error:
            self.faults.setdefault(name, error.fault(""))
            raise

    def export(self, folder: str) -> AbstractContextManager[str]:
        return export(self._directory, folder)


def _file(target: FileTarget) -> dict[str, Any]:
    source = target.open()
    try:
        with named(source):
            facts = _walk(source, target)
    finally:
        if target.source is None:
            source.close()
    return {
        "path": target.path,
        "kind": "file",
        "codec": target.codec.name,
        "title": target.codec.title,
        "bytes": source.size,
        **facts,
        "views": list(target.codec.tables),
    }


def _walk(source: Source, target: FileTarget) -> dict[str, Any]:
    codec = target.codec
    context = codec.context(target.name, codec_options(codec, target.options), **target.hints)
    pruning = [column for column in codec.tables["rows"].columns if column.prunes]
    ranges = {column.name: _Range(column.type) for column in pruning}
    table = codec.tables["frames"]
    # If the bounds of a column are unknown, other header columns may still have them: base_timestamp and max_timestamp.
    about = {
        name: column
        for name in table.names()
        for column in pruning
        if pa.types.is_integer(table[name].type) and name.endswith(f"_{column.name}")
    }
    header_ranges = {column.name: _Range(column.type) for column in about.values()}
    counts: dict[str, Counter[Any]] = {
        name: Counter() for name in table.names() if pa.types.is_string(table[name].type)
    }
    frames, faults, facts = 0, [], {}
    for step in Walk(source, codec, context, check=False):
        if isinstance(step, Hole):
            faults.append(step.fault.to_dict())
            continue
        faults += [fault.to_dict() for fault in step.faults]
        frames += len(step.frames)
        if not len(step.frames):
            continue
        if codec.single_frame:
            facts = _single_row(codec, step, context)
        for name, column_range in ranges.items():
            column_range.add(*codec.frame_bounds(step.frames, name))
        for decoded in codec.decode(step.window, step.frames, "frames", [*counts, *about], context):
            for name, counter in counts.items():
                if len(counter) <= _KINDS:
                    counted: Any = pc.value_counts(decoded.batch.column(name))
                    for pair in counted.to_pylist():
                        counter[pair["values"]] += pair["counts"]
            for name, column in about.items():
                values = decoded.batch.column(name).drop_null().to_numpy(zero_copy_only=False)
                header_ranges[column.name].add(values, values)
    ranges = {
        name: column_range if column_range.known else header_ranges.get(name, column_range)
        for name, column_range in ranges.items()
    }
    return {
        **({"facts": facts} if facts else {}),
        "frames": frames,
        "ranges": {name: column_range.ends() for name, column_range in ranges.items() if column_range.known},
        "counts": {
            name: dict(values.most_common()) for name, values in counts.items() if 0 < len(values) <= _KINDS
        },
        "faults": faults,
    }


def _single_row(codec: Codec, stretch: Stretch, context: Any) -> dict[str, Any]:
    """Return the content of a small file that is a single row."""
    columns = codec.tables["rows"].names()
    rows = [
        row
        for decoded in codec.decode(stretch.window, stretch.frames, "rows", columns, context)
        for row in decoded.batch.to_pylist()
    ]
    return rows[0] if len(rows) == 1 else {}


class _Range:
    """The smallest and largest value of a column. Upstream's "none" (-1) is not a time."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.low: Any = None
        self.high: Any = None

    @property
    def known(self) -> bool:
        return self.low is not None and self.high is not None

    def add(self, low: Any, high: Any) -> None:
        self.low = self._one(self.low, low, min)
        self.high = self._one(self.high, high, max)

    def _one(self, known: Any, values: Any, choose: Any) -> Any:
        if values is None:
            return known
        if (values := np.asarray(values)).ndim != 1:
            return known  # bounds that can only be compared, like the keys of a LevelDB block
        if values.dtype == np.int64:
            values = values[abs(values.astype(float)) < _UNKNOWN]
        if pa.types.is_timestamp(self.kind):
            values = values[values != -1]
        if not len(values):
            return known
        best = (
            choose(values.tolist()) if values.dtype == object else choose(values.min(), values.max()).item()
        )
        return best if known is None else choose(known, best)

    def ends(self) -> list[Any]:
        return [self._shown(self.low), self._shown(self.high)]

    def _shown(self, value: Any) -> Any:
        if value is None or not pa.types.is_timestamp(self.kind) or self.kind.unit not in _UNITS:
            return value
        try:
            return _EPOCH + timedelta(**{_UNITS[self.kind.unit]: value})
        except OverflowError:
            return value
