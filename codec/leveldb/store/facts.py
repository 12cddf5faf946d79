"""Facts for `inspect`, from the headers of blocks and batches alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from logwright.codec.engine.fold import run
from logwright.codec.frames.walk import frames_of
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.records.layout import BATCH_HEADER
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.formats.table.index import DATA, FILTER
from logwright.codec.leveldb.formats.table.rows import compressions
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role
from logwright.codec.window import Frames, Window


def facts(listing: Listing, plan: Plan) -> Mapping[str, Any]:
    """See `codec.layout.Layout.facts`."""
    fold = DatabaseFacts()
    for codec in (log.CODEC, table.CODEC):
        files = [
            file
            for file in plan.files
            if file.role is Role.PRIMARY and file.size and file.codec == codec.name
        ]
        run(frames_of(listing, files, codec, check=codec is log.CODEC), fold)
    return fold.finish()


class DatabaseFacts:
    """Fold the headers of batches and blocks into facts."""

    def __init__(self) -> None:
        self.blocks = self.filters = self.batches = self.operations = 0
        self.compressions: Counter[str] = Counter()
        self.sequences: list[int] = []
        """The smallest and the largest sequence number of the logs; empty without a batch."""
        self._add: Callable[[Window, Frames], None] = self._batches

    def begin(self, file: PlannedFile) -> None:
        self._add = self._batches if file.codec == log.CODEC.name else self._blocks

    def add(self, window: Window, frames: Frames) -> None:
        self._add(window, frames)

    def _blocks(self, window: Window, frames: Frames) -> None:
        data = frames.header["kind"] == DATA
        self.blocks += int(data.sum())
        self.filters += int((frames.header["kind"] == FILTER).sum())
        self.compressions.update(compressions(window, frames.pick(data)))

    def _batches(self, window: Window, frames: Frames) -> None:
        head = frames.header[frames.header["size"] >= BATCH_HEADER]
        self.batches += len(head)
        if len(head):
            self.operations += int(np.maximum(head["count"], 0).sum())
            first, last = int(head["sequence"].min()), int((head["sequence"] + head["count"]).max()) - 1
            self.sequences = [min([first, *self.sequences[:1]]), max([last, *self.sequences[1:]])]

    def finish(self) -> dict[str, Any]:
        return {
            "blocks": self.blocks,
            "compression": dict(self.compressions),
            "tables_with_filter": self.filters,
            "log_batches": self.batches,
            "log_operations": self.operations,
            "log_sequences": self.sequences or None,
        }
