"""Facts for `inspect` from the index and the headers of the journals of a bookie. No entry is decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from logwright.codec.bookkeeper.formats import journal
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.startup.index_file import IndexFile
from logwright.codec.bookkeeper.store import rocks, tree
from logwright.codec.frames.walk import frames_of
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan, Role
from logwright.codec.store.overlay import Overlay


def facts(listing: Listing, plan: Plan) -> Mapping[str, Any]:
    """See `codec.layout.Layout.facts`."""
    fenced = sorted({*_in_index(listing, plan), *_in_journals(listing, plan)})
    return {"fenced_ledgers": [{"ledger_id": ledger} for ledger in fenced]}


def _in_index(listing: Listing, plan: Plan) -> Iterator[int]:
    if plan.facts["storage"] == tree.DB:
        for folder in plan.facts["index_directories"] if rocks.available() else ():
            with suppress(JavaError):
                ledgers = rocks.read_ledgers(listing, f"{folder}/{tree.LEDGERS}/")
                yield from (ledger for ledger, data in ledgers.items() if data.fenced)
        return
    overlay = Overlay(listing)
    for file in plan.files:
        if file.codec == tree.INDEX:
            with suppress(JavaError):
                if IndexFile(overlay, file.name, None, 8192, 1 << 20).fenced():
                    yield file.hints["number"]


def _in_journals(listing: Listing, plan: Plan) -> Iterator[int]:
    bookie = tree.Tree(listing, Options(tree.READ_OPTIONS))
    replayed = {name for i in range(len(bookie.journals)) for name, _ in bookie.marked(i)}
    files = [file for file in plan.files if file.role is Role.PRIMARY and file.name in replayed]
    for _, windows in frames_of(listing, files, journal.CODEC, check=False):
        for _, frames in windows:
            fences = frames.header["entry_id"] == journal.FENCE
            yield from frames.header["ledger_id"][fences].astype(np.int64).tolist()
