"""One file of a database mended alone: what belongs to it besides, its manifest above all, is not touched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from logwright.codec.engine.repair import Kept, Removed, Strategy
from logwright.codec.fault import DamageError, Kind, Severity
from logwright.codec.frames.walk import Hole, ListedFile, Walk
from logwright.codec.leveldb.comparators import comparator_of
from logwright.codec.leveldb.formats.manifest import codec as manifest
from logwright.codec.leveldb.formats.records.codec import Payloads
from logwright.codec.leveldb.formats.records.layout import room_for, write_records
from logwright.codec.leveldb.names import parse
from logwright.codec.leveldb.repair import logs
from logwright.codec.leveldb.repair.tables import Table, Tables
from logwright.codec.leveldb.store.guess_comparator import UNKNOWN, guess
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing

Pieces = tuple[Iterator[Kept | bytes], Sequence[Removed]]


def mend_log(listing: Listing, name: str, strategy: Strategy, options: Options) -> Pieces:
    """See `codec.capability.RepairFile`."""
    found = logs.examine(listing, name, _number(name), _size(listing, name), options)
    prefix = strategy is Strategy.PREFIX
    if prefix and found.first is not None:
        found = found.up_to_damage()
    return logs.pieces(listing, found, options, prefix=prefix), found.cut


def mend_manifest(listing: Listing, name: str, strategy: Strategy, options: Options) -> Pieces:
    """As of a log; what is lost of the edits behind the damage is for the reader to judge."""
    cut: list[Removed] = []
    size = _size(listing, name)
    read = ListedFile(listing, name, size)
    for one in Walk(read, manifest.CODEC, manifest.CODEC.context(name, options)):
        if isinstance(one, Hole) and one.fault.severity is not Severity.INFO:
            fault = one.fault
            cut.append(Removed(name, fault.offset, fault.length, f"{fault.kind}: {fault.detail}"))
    if not cut:
        return iter([Kept(name, 0, size)]), cut
    first = cut[0].offset
    if strategy is Strategy.PREFIX:
        return iter([Kept(name, 0, first)]), [_all_behind(name, size, cut[0])]
    return _records(read, first, options), cut


def _records(read: ListedFile, first: int, options: Options) -> Iterator[Kept | bytes]:
    yield Kept(read.name, 0, first)
    at = first
    for one in Walk(read, manifest.CODEC, manifest.CODEC.context(read.name, options)):
        if isinstance(one, Hole):
            continue
        frames = one.frames.pick(one.frames.start + one.window.offset >= first)
        if len(frames):
            payloads = Payloads.of(one.window, frames, joined=True)
            stops = np.concatenate((payloads.start[:1], payloads.end))
            out = np.empty(room_for(len(payloads.data), len(frames)), np.uint8)
            size = int(write_records(payloads.data, stops, at, out))
            yield out[:size].tobytes()
            at += size


def mend_table(listing: Listing, name: str, strategy: Strategy, options: Options) -> Pieces:
    """See `codec.capability.RepairFile`. The comparator is the one that the keys follow. Where the keys of most blocks are in no known order,
    or those of any with a sound index, it is another one."""
    size = _size(listing, name)
    named = guess(listing, [(name, size)])
    reader = Tables(listing, options, comparator_of(None if named == UNKNOWN else named))
    found = reader.examine(name, _number(name), size, None, None)
    wrong = sum(fault.kind is Kind.ORDER for fault in found.check.faults)
    if wrong and (found.check.blocks.sound or 2 * wrong > len(found.blocks or [])):
        reader = Tables(listing, options, comparator_of(UNKNOWN))
        found = reader.examine(name, _number(name), size, None, None)
    cut = list(found.cut)
    if strategy is Strategy.PREFIX and found.blocks is not None and found.lost:
        cut = _before(found, size)
    if found.smallest is None and not found.sound:
        raise DamageError("no block of the table is left", path=name)
    if found.sound:
        return iter([Kept(name, 0, size)]), cut
    return iter(reader.pieces(found)[0]), cut


def _before(found: Table, size: int) -> list[Removed]:
    """Leave only the blocks before the first one that has lost entries."""
    first = next(cut for cut in found.cut if cut.rows_lost != 0)
    found.blocks = [block for block in found.blocks or [] if block.start < first.offset]
    return [_all_behind(found.file, size, first)]


def _all_behind(name: str, size: int, first: Removed) -> Removed:
    return Removed(name, first.offset, size - first.offset, f"{first.why}; all behind it is cut too")


def _size(listing: Listing, name: str) -> int:
    return next(entry.size for entry in listing.entries() if entry.name == name)


def _number(name: str) -> int:
    found = parse(name)
    return 0 if found is None else found.number
