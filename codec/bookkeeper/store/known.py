"""The ledgers that a bookie knows, and contexts for reading its files with them.

A record of a journal without a matching CRC may be garbage. It is an entry if its ledger is in the index, or if a journal of the bookie has
the ledger's master key: the bookie writes it before the first entry, perhaps to an earlier journal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from logwright.codec.bookkeeper.formats import journal
from logwright.codec.bookkeeper.formats.index import HEADER_SIZE, FileInfo
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.store import rocks
from logwright.codec.bookkeeper.store.tree import DB, LEDGERS, Tree
from logwright.codec.frames.codec import FramedCodec
from logwright.codec.frames.scanner import MAIN
from logwright.codec.frames.walk import ListedFile, Walk, good_frames
from logwright.codec.option import Options


class KnownLedgers:
    """The ledgers with an index or a master key. Journals are read at the first question that the index files do not answer.

    `keys` are the master keys of the ledgers outside of index files, if they were read already.
    """

    def __init__(self, keys: Mapping[int, frozenset[bytes]], bookie: Tree | None = None) -> None:
        self._keys, self._bookie = dict(keys), bookie
        self._index_files = {} if bookie is None else bookie.index_files
        self._listing = None if bookie is None else bookie.listing

    def __contains__(self, ledger: object) -> bool:
        return ledger in self._index_files or ledger in self._all()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownLedgers) and self._all() == other._all()

    def __reduce__(self) -> tuple[Any, ...]:
        return KnownLedgers, ({**dict.fromkeys(self._index_files, frozenset()), **self._all()},)

    def master_keys(self, ledger: int) -> frozenset[bytes]:
        """Return the master keys of a ledger in its index and in the journals; more than one if one of them is damaged."""
        keys = self._all().get(ledger, frozenset())
        if self._listing is None or ledger not in self._index_files:
            return keys
        head = self._listing.read(self._index_files[ledger], 0, HEADER_SIZE)
        return keys | ({FileInfo.of(head).master_key} - {b""})

    def _all(self) -> dict[int, frozenset[bytes]]:
        bookie, self._bookie = self._bookie, None
        if bookie is not None:
            for ledger, key in (*_in_database(bookie), *_in_journals(bookie)):
                self._keys[ledger] = self._keys.get(ledger, frozenset()) | {key}
        return self._keys


def known_ledgers(bookie: Tree) -> KnownLedgers:
    """Return the ledgers that a bookie knows."""
    return KnownLedgers({}, bookie)


def _in_database(bookie: Tree) -> Iterator[tuple[int, bytes]]:
    if bookie.storage != DB or not rocks.available():
        return
    with contextlib.suppress(JavaError):
        for place in bookie.indexes:
            for ledger, data in rocks.read_ledgers(bookie.listing, f"{place.prefix}{LEDGERS}/").items():
                yield ledger, data.key


def _in_journals(bookie: Tree) -> Iterator[tuple[int, bytes]]:
    for place in bookie.journals:
        for _, name in bookie.journal_files(place):
            context = journal.CODEC.context(name.rpartition("/")[2], Options(journal.CODEC.options))
            file = ListedFile(bookie.listing, name, bookie.sizes[name])
            for window, frames in good_frames(Walk(file, journal.CODEC, context, check=False)):
                head = frames.header
                keys = (head["frame_kind"] == MAIN) & (head["entry_id"] == journal.MASTER_KEY)
                for i in np.flatnonzero(keys).tolist():
                    record = window.data[int(frames.start[i]) : int(frames.end[i])].tobytes()
                    yield int(head["ledger_id"][i]), record[journal.IDS + 4 :]


def context_of(codec: FramedCodec, name: str, options: Options, known: KnownLedgers) -> Any:
    """Return the context for reading an entry log or a journal of a bookie."""
    values = options.to_dict()
    own = {option.name: values[option.name] for option in codec.options if option.name in values}
    return codec.context(name.rpartition("/")[2], Options(codec.options, own), ledgers=known)
