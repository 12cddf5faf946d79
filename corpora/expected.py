"""The rows that a reader must return, as JSON lines in the form of `logwright dump --format jsonl`, for comparison with its output.

Of damaged files these are the rows of all frames that no operation touched. More rows may be read, from frames that were changed outside of
their checksums or resealed.

Bytes are a string if they are valid UTF-8, else `{"$hex": ...}`. Times are integers in milliseconds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec import registry
from logwright.codec.arrays import Int64s
from logwright.codec.frames.walk import Stretch, Walk
from logwright.codec.window import Frames
from logwright.corpora.damage_image import Image
from logwright.readers import stream
from logwright.readers.difference import plain
from logwright.readers.plan import reading
from logwright.readers.target import Target
from logwright.readers.task import Task, Work

_SAFE = np.ones(256, np.bool_)
_SAFE[:32] = _SAFE[127:] = False
_SAFE[[ord('"'), ord("\\")]] = False


def lines(batch: pa.RecordBatch) -> bytes:
    """Return one line per row."""
    if not batch.num_rows:
        return b""
    pieces: list[Any] = []
    for i, name in enumerate(batch.schema.names):
        pieces += [("{" if i == 0 else ",") + json.dumps(name) + ":", _json(batch.column(i))]
    pieces.append("}\n")
    parts = [pa.scalar(piece) if isinstance(piece, str) else piece for piece in pieces]
    joined: Any = pc.binary_join_element_wise(*parts, pa.scalar(""))
    offsets = np.frombuffer(joined.buffers()[1], np.int32, len(joined) + 1, 4 * joined.offset)
    return bytes(joined.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])))


def _json(column: Any) -> Any:
    """Return the JSON text of each value."""
    kind = column.type
    if column.null_count == len(column):
        return pa.scalar("null")
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
        kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pc.fill_null(column.cast(pa.string()), "null")
    if pa.types.is_list(kind) and not len(column.flatten()) and not column.null_count:
        return pa.scalar("[]")
    if (pa.types.is_binary(kind) or pa.types.is_string(kind)) and _plain(column):
        quote = pa.scalar('"')
        quoted = pc.binary_join_element_wise(quote, column.cast(pa.string()), quote, pa.scalar(""))
        return pc.fill_null(quoted, "null")
    return pa.array([json.dumps(plain(value), ensure_ascii=False) for value in column.to_pylist()])


def _plain(column: Any) -> bool:
    """Return whether no value needs escaping."""
    data = column.buffers()[2]
    return data is None or bool(_SAFE[np.frombuffer(data, np.uint8)].all())


@dataclass
class Rows:
    """The number of rows, and the SHA-256 of their form in `logwright dump --format jsonl`."""

    rows: int = 0
    frames: int = 0
    frames_touched: int = 0
    files: dict[str, int] = field(default_factory=dict)
    digest: Any = field(default_factory=hashlib.sha256)

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "sha256": self.digest.hexdigest(),
            "frames": self.frames,
            "frames_touched": self.frames_touched,
            "files": self.files,
        }


class Untouched:
    """The ranges of the original files that the damaged files still contain."""

    def __init__(self, images: Iterable[Image]) -> None:
        runs: dict[str, list[tuple[int, int]]] = {}
        for image in images:
            for origin, start, stop in image.untouched():
                runs.setdefault(origin, []).append((start, stop))
        self._runs = {name: np.array(sorted(spans), np.int64) for name, spans in runs.items()}

    def holds(self, name: str, starts: Int64s, ends: Int64s) -> Any:
        """Return which frames `[starts, ends)` of an original file are untouched."""
        runs = self._runs.get(name)
        if runs is None:
            return np.zeros(len(starts), np.bool_)
        at = np.searchsorted(runs[:, 0], starts, "right") - 1
        return (at >= 0) & (runs[at, 1] >= ends)


def expected(
    targets: Sequence[Target], untouched: Untouched, named: Callable[[str], str], folder: str | None = None
) -> Rows:
    """Return the untouched rows of the original `targets` in the default view. `named` maps paths to the names in `untouched`.
    `folder`: the name of the folder in which the damaged files are read."""
    out = Rows()
    for target in targets:
        plan = reading([target])
        columns = plan.table.select(None)
        for task in _files(plan.tasks, columns):
            if folder is not None:
                task = replace(task, hints={**task.hints, "directory": folder})
            _file(task, columns, untouched, named(task.real), out)
    return out


def _files(works: Sequence[Work], columns: Sequence[str]) -> Iterator[Task]:
    """Yield the files of a view. If its rows are merged from frames, yield each file once with the rows of its codec."""
    seen = set()
    for task in (file for work in works for file in work.files):
        tables = registry.get(task.codec).tables
        if set(columns) <= set(tables[task.table].names(detail=True)):
            yield task
        elif task.real not in seen:
            seen.add(task.real)
            yield replace(task, table="rows", start=0, stop=None)


def _file(task: Task, columns: Sequence[str], untouched: Untouched, name: str, out: Rows) -> None:
    codec = registry.get(task.codec)
    context = task.context(codec)
    table = codec.tables[task.table]
    if not set(columns) <= set(table.names(detail=True)):
        columns = table.select(None)
    before = out.rows
    with task.open() as source, stream.named(source):
        for stretch in Walk(source, codec, context, start=task.start, stop=task.stop):
            if not isinstance(stretch, Stretch) or not len(stretch.frames):
                continue
            frames: Frames = stretch.frames
            offset = stretch.window.offset
            same = untouched.holds(name, frames.start + offset, frames.end + offset)
            out.frames += int(same.sum())
            out.frames_touched += int((~same).sum())
            frames = frames.pick(same)
            if not len(frames):
                continue
            for decoded in codec.decode(stretch.window, frames, task.table, columns, context):
                out.rows += decoded.batch.num_rows
                out.digest.update(lines(decoded.batch))
    out.files[name] = out.files.get(name, 0) + out.rows - before
