"""The ledgers that a bookie knows, and contexts for reading its files with them.

A record of a journal without a matching CRC may be garbage. It is an entry if its ledger is in the index, or if a journal of the bookie has
the ledger's master key: the bookie writes it before the first entry, perhaps to an earlier journal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from logwright.codec.bookkeeper.formats import journal
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.store import rocks
from logwright.codec.bookkeeper.store.tree import DB, LEDGERS, Tree
from logwright.codec.frames.codec import FramedCodec
from logwright.codec.frames.scanner import MAIN
from logwright.codec.frames.walk import ListedFile, Walk, good_frames
from logwright.codec.option import Options


class KnownLedgers:
    """The ledgers with an index or a master key. Journals are read at the first question about a ledger without an index file."""

    def __init__(self, ledgers: Iterable[int], bookie: Tree | None = None) -> None:
        self._ledgers, self._bookie = frozenset(ledgers), bookie

    def __contains__(self, ledger: object) -> bool:
        return ledger in self._ledgers or ledger in self._all()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownLedgers) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def __reduce__(self) -> tuple[Any, ...]:
        return KnownLedgers, (self._all(),)

    def _all(self) -> frozenset[int]:
        bookie, self._bookie = self._bookie, None
        if bookie is not None:
            self._ledgers = self._ledgers.union(_in_database(bookie), _with_master_key(bookie))
        return self._ledgers


def known_ledgers(bookie: Tree) -> KnownLedgers:
    """Return the ledgers that a bookie knows."""
    return KnownLedgers(bookie.index_files, bookie)


def _in_database(bookie: Tree) -> Iterable[int]:
    if bookie.storage != DB or not rocks.available():
        return ()
    try:
        return {
            ledger
            for place in bookie.indexes
            for ledger in rocks.read_ledgers(bookie.listing, f"{place.prefix}{LEDGERS}/")
        }
    except JavaError:
        return ()


def _with_master_key(bookie: Tree) -> Iterable[int]:
    ledgers = set()
    for place in bookie.journals:
        for _, name in bookie.journal_files(place):
            context = journal.CODEC.context(name.rpartition("/")[2], Options(journal.CODEC.options))
            walk = Walk(
                ListedFile(bookie.listing, name, bookie.sizes[name]), journal.CODEC, context, check=False
            )
            for _, frames in good_frames(walk):
                head = frames.header
                keys = (head["frame_kind"] == MAIN) & (head["entry_id"] == journal.MASTER_KEY)
                ledgers.update(head["ledger_id"][np.flatnonzero(keys)].tolist())
    return ledgers


def context_of(codec: FramedCodec, name: str, options: Options, known: KnownLedgers) -> Any:
    """Return the context for reading an entry log or a journal of a bookie."""
    given = options.to_dict()
    values = {option.name: given[option.name] for option in codec.options if option.name in given}
    hints = {"ledgers": known} if codec is journal.CODEC else {}
    return codec.context(name.rpartition("/")[2], Options(codec.options, values), **hints)
