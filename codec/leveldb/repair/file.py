"""Repair one file of a database alone. Other files that depend on it, above all the manifest, stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from logwright.codec.engine.repair import Removed, Strategy
from logwright.codec.fault import DamageError, Kind, Severity
from logwright.codec.frames.walk import Hole, ListedFile, Walk
from logwright.codec.leveldb.comparators import comparator_of
from logwright.codec.leveldb.formats.manifest import codec as manifest
from logwright.codec.leveldb.names import parse
from logwright.codec.leveldb.repair import logs
from logwright.codec.leveldb.repair.tables import Table, Tables
from logwright.codec.leveldb.store.guess_comparator import UNKNOWN, guess
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing, PlannedFile

Pieces = tuple[Iterator[Extent], Sequence[Removed]]


def repair_log(listing: Listing, file: PlannedFile, strategy: Strategy, options: Options) -> Pieces:
    """See `codec.capability.RepairFile`."""
    found = logs.examine(listing, file.name, _number(file.name), file.size, options)
    prefix = strategy is Strategy.PREFIX
    if prefix and found.first is not None:
        found = found.up_to_damage()
    return logs.pieces(listing, found, options, prefix=prefix), found.cut


def repair_manifest(listing: Listing, file: PlannedFile, strategy: Strategy, options: Options) -> Pieces:
    """As of a log; what is lost of the edits behind the damage is for the reader to judge."""
    name, size = file.name, file.size
    walk = partial(Walk, ListedFile(listing, name, size), manifest.CODEC)
    faults = [one.fault for one in walk(manifest.CODEC.context(name, options)) if isinstance(one, Hole)]
    cut = [
        replace(Removed.damaged(name, fault), rows_lost=None, lost={})
        for fault in faults
        if fault.severity is not Severity.INFO
    ]
    if not cut:
        return iter([Copy(name, 0, size)]), cut
    first = cut[0].offset
    if strategy is Strategy.PREFIX:
        return iter([Copy(name, 0, first)]), [cut[0].to_end(size)]
    return logs.rewritten(walk(manifest.CODEC.context(name, options)), name, first), cut


def repair_table(listing: Listing, file: PlannedFile, strategy: Strategy, options: Options) -> Pieces:
    """See `codec.capability.RepairFile`. The comparator is the one that the keys follow. Where the keys of most blocks are in no known order,
    or those of any with a sound index, it is another one."""
    name, size = file.name, file.size
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
        raise DamageError("no block of the table is left", path=file.name)
    if found.sound:
        return iter([Copy(name, 0, size)]), cut
    return iter(reader.pieces(found)[0]), cut


def _before(found: Table, size: int) -> list[Removed]:
    """Leave only the blocks before the first one that has lost entries."""
    first = next(cut for cut in found.cut if cut.rows_lost != 0)
    found.blocks = [block for block in found.blocks or [] if block.start < first.offset]
    return [first.to_end(size)]


def _number(name: str) -> int:
    found = parse(name)
    return 0 if found is None else found.number
