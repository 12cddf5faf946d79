"""A store of two roots with sub-folders, modelled on RocketMQ's: a commit log of messages, and an index of each queue.

commitlog/<physical offset>               messages, then zeros up to the size of a file; may be a separate root
consumequeue/<topic>/<queue>/<offset>     one entry per message, replaced by each append
checkpoint                                end of the log, replaced by each append

"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest
from fake_store import know

from logwright.codec import registry
from logwright.codec.base import Match
from logwright.codec.layout import Layout
from logwright.codec.option import Option, Options, parse_text
from logwright.codec.sorting import framed, read_framed
from logwright.codec.store.build import Piece, Placement, Stage, Summary
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role, folders_of
from logwright.codec.store.roots import Root
from logwright.codec.store.view import Part, View
from logwright.codec.window import Window, Zeros
from logwright.readers import listing
from logwright.roundtrip.sample import DirectorySample

LOG, QUEUE = "rocketmq.commitlog", "rocketmq.consumequeue"
FILE_SIZE = 1 << 10
LOG_PATH = Option("storePathCommitLog", None, "Commit log directory, if not commitlog/.", parse_text)
ROWS = pa.schema([("topic", pa.string()), ("queue_id", pa.int32()), ("body", pa.binary())])
STAGED = "commitlog/rows"


def number(offset: int) -> str:
    return f"{offset:020d}"


class Builder:
    """Write a file of the log for each batch of rows, and the queues and the checkpoint at the end."""

    def __init__(self, before: Listing | None, staged: bool) -> None:
        self.staged, self.rows = staged, 0
        self.end = 0 if before is None else int(before.read("checkpoint"))
        self.queues: dict[str, bytearray] = {}
        self.changed: set[str] = set()
        for entry in () if before is None else before.entries():
            if entry.name.startswith("consumequeue/"):
                self.queues[entry.name] = bytearray(before.read(entry.name))

    def add(self, rows: pa.RecordBatch) -> Iterator[Piece]:
        rows = rows.select(ROWS.names).cast(ROWS)
        self.rows += rows.num_rows
        if self.staged:
            yield Piece(STAGED, framed(rows))
            return
        codec, name = registry.get(LOG), number(self.end)
        queues = [
            f"consumequeue/{row['topic']}/{row['queue_id']}/{number(0)}"
            for row in rows.select(["topic", "queue_id"]).to_pylist()
        ]
        offsets = []
        for queue in queues:
            content = self.queues.setdefault(queue, bytearray())
            offsets.append(len(content) // 20)
            content += bytes(20)
        table = pa.Table.from_batches([rows]).append_column("queue_offset", pa.array(offsets, pa.int64()))
        context = codec.context(name, Options(codec.options))
        data = b"".join(bytes(chunk) for chunk in codec.encode(table, None, None, context))
        frames = codec.scan(Window(np.frombuffer(data, np.uint8).copy(), 0, len(data)), 0, context)
        for queue, offset, start, end in zip(queues, offsets, frames.start, frames.end, strict=True):
            unit = int(self.end + start).to_bytes(8, "big") + int(end - start).to_bytes(4, "big") + bytes(8)
            self.queues[queue][20 * offset : 20 * offset + 20] = unit
            self.changed.add(queue)
        # As RocketMQ does: the file is created with its full size, then messages are written into it.
        yield Piece(f"commitlog/{name}", Zeros(FILE_SIZE))
        yield Piece(f"commitlog/{name}", data, done=True, offset=0)
        self.end += FILE_SIZE

    def finish(self) -> Iterator[Piece]:
        if self.staged:
            if self.rows:
                yield Piece(STAGED, b"", done=True)
            return
        for queue in sorted(self.changed):
            yield Piece(queue, bytes(self.queues[queue]), done=True)
        yield Piece("checkpoint", str(self.end).encode(), done=True)

    def summary(self) -> Summary:
        return Summary(self.rows)


class QueueStore(Layout):
    name = "test.queues"
    title = "A store of queues"
    views: Mapping[str, View] = {
        "messages": View("messages", LOG, "rows", "All messages."),
        "units": View("units", QUEUE, "rows", "The entries of all queues."),
    }
    default_view = "messages"
    options = read_options = (LOG_PATH,)
    folders = ("commitlog", "consumequeue/*/*")
    root_options = (LOG_PATH.name,)
    barrier = "stopped"
    inner_staging = ".logwright-queues"

    def roots(self, options: Options) -> Sequence[Root]:
        path = options[LOG_PATH.name]
        return () if path is None else (Root("commitlog", path, "commitlog"),)

    def recognise(self, listing: Listing) -> Match:
        names = {entry.name for entry in listing.entries()}
        return Match.SURE if "checkpoint" in names and "consumequeue" in folders_of(listing) else Match.NO

    def plan(self, listing: Listing, options: Options) -> Plan:
        files = []
        for entry in listing.entries():
            first = entry.name.partition("/")[0]
            if first == "commitlog":
                files.append(PlannedFile(entry.name, entry.size, Role.PRIMARY, LOG))
            elif first == "consumequeue":
                files.append(PlannedFile(entry.name, entry.size, Role.DERIVED, QUEUE))
            else:
                role = Role.METADATA if first == "checkpoint" else Role.FOREIGN
                files.append(PlannedFile(entry.name, entry.size, role))
        return Plan(tuple(sorted(files, key=lambda file: file.name)))

    def parts(self, listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part]:
        codec = self.views[view].codec
        return [Part(file.name, codec, "rows", file.hints) for file in plan.files if file.codec == codec]

    def order(self, names: Iterable[str]) -> Sequence[str]:
        return sorted(names, key=lambda name: (not name.startswith("commitlog"), name == "checkpoint", name))

    def builder(
        self,
        listing: Listing | None,
        name: str,
        options: Options,
        *,
        staged: bool = False,
        extra: Stage | None = None,
    ) -> Builder:
        return Builder(None if staged else listing, staged)

    def assemble(
        self,
        listing: Listing | None,
        name: str,
        parts: Sequence[tuple[Stage, Summary]],
        extra: Stage,
        options: Options,
    ) -> Placement:
        builder = Builder(listing, False)
        names: dict[str, None] = {}

        def pieces() -> Iterator[Piece]:
            for stage, summary in parts:
                for batch in read_framed(stage, STAGED, ROWS) if summary.rows else ():
                    yield from builder.add(batch)
            yield from builder.finish()

        for piece in pieces():
            extra.take([piece])
            names[piece.name] = None
        return Placement(tuple((extra, path, path) for path in self.order(names)), builder.summary())


LAYOUT = QueueStore()


def messages(first: int, count: int) -> list[dict[str, object]]:
    return [
        {"topic": f"T{n % 2}", "queue_id": n % 3, "body": b"message %d" % n}
        for n in range(first, first + count)
    ]


BOX = DirectorySample("test.queues", "store", messages(0, 4), messages(4, 4), "body")
TWO_ROOTS = DirectorySample(
    "test.queues", "store", messages(0, 2), messages(2, 2), "body", roots=(LOG_PATH.name,)
)


@pytest.fixture
def queue_store(monkeypatch: pytest.MonkeyPatch) -> QueueStore:
    """Make the registry know the layout."""
    codecs, layouts = registry._all()
    staging = frozenset(layout.inner_staging for layout in (*layouts.values(), LAYOUT))
    know(monkeypatch, codecs, {**layouts, LAYOUT.name: LAYOUT})
    monkeypatch.setattr(listing, "_staging_names", lambda: staging)
    return LAYOUT
