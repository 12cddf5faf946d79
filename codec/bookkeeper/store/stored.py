"""The undamaged entries in the entry logs and journals of a bookie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.bookkeeper.formats import journal
from logwright.codec.bookkeeper.formats.entrylog import codec as entrylog
from logwright.codec.bookkeeper.store.known import KnownLedgers, context_of, known_ledgers
from logwright.codec.bookkeeper.store.tree import Tree
from logwright.codec.frames.codec import FramedCodec, Part
from logwright.codec.frames.walk import ListedFile, Walk, good_frames
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing
from logwright.codec.table import Column, Table

ENTRIES = Table(
    "entries",
    (
        Column("ledger_id", pa.int64(), "the ledger", nullable=False, prunes=True),
        Column("entry_id", pa.int64(), "the entry", nullable=False),
        Column("last_add_confirmed", pa.int64(), "the highest entry known to be acknowledged when this one was sent"),
        Column("length", pa.int64(), "bytes of all payloads of the ledger up to this one"),
        Column("payload", pa.binary(), "the payload"),
        Column("digest_type", pa.string(), "CRC32C, CRC32, HMAC or DUMMY; null if unknown: then payload starts with the digest", detail=True),
        Column("digest", pa.binary(), "the client's digest; null if unknown", detail=True),
        Column("file", pa.string(), "the entry log or journal", nullable=False, detail=True),
        Column("position", pa.int64(), "byte of the file at which the entry's size field starts", nullable=False, detail=True),
    ),
    "One row per entry, by ledger and entry.",
    key=("ledger_id", "entry_id"),
)  # fmt: skip


@dataclass(frozen=True)
class StoredEntries:
    """Undamaged entries of one file: their ids, and their frames, each with the four bytes of its size."""

    ledger: Int64s
    entry: Int64s
    start: Int64s


def entries_of(
    listing: Listing, name: str, size: int, codec: FramedCodec, options: Options, known: KnownLedgers
) -> Iterator[StoredEntries]:
    """Yield the undamaged entries of an entry log or a journal in order. Records of other kinds have negative entry ids."""
    context = context_of(codec, name, options, known)
    for window, frames in good_frames(Walk(ListedFile(listing, name, size), codec, context)):
        part = Part.main(window, frames)
        refused = [i for i, _ in codec.refused(part, context)]
        if refused:
            part = part.pick(np.delete(np.arange(len(part)), refused))
        if len(part):
            ledger, entry = (part.head[field].astype(np.int64) for field in ("ledger_id", "entry_id"))
            yield StoredEntries(ledger, entry, part.start + window.offset)


def files_of(tree: Tree) -> Iterator[tuple[str, FramedCodec, int]]:
    """Yield the entry logs and then the journals of a bookie, with the position from which the bookie replays a journal (-1: never)."""
    for _, name in tree.logs:
        yield name, entrylog.CODEC, -1
    for name in tree.all_journals:
        yield name, journal.CODEC, tree.replayed.get(name, -1)


def stored_entries(listing: Listing, tree: Tree, options: Options) -> tuple[Int64s, Bools]:
    """Return the distinct undamaged entries (ledger, entry) in order, and which of them the bookie replays from its journals."""
    blocks, replayed = [np.empty((0, 2), np.int64)], [np.empty(0, np.bool_)]
    known = known_ledgers(tree)
    for name, codec, position in files_of(tree):
        for stored in entries_of(listing, name, tree.sizes[name], codec, options, known):
            mask = stored.entry >= 0
            blocks.append(np.stack((stored.ledger[mask], stored.entry[mask]), axis=1))
            replayed.append((stored.start[mask] >= position) & (position >= 0))
    ids, flags = np.concatenate(blocks), np.concatenate(replayed)
    order = np.lexsort((~flags, ids[:, 1], ids[:, 0]))
    ids, flags = ids[order], flags[order]
    first = np.ones(len(ids), np.bool_)
    first[1:] = (ids[1:] != ids[:-1]).any(axis=1)
    return ids[first], flags[first]
