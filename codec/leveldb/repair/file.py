"""Repair a single file of a database. Files that depend on it, above all the manifest, stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from logwright.codec.engine.repair import Removed, Strategy
from logwright.codec.fault import DamageError, Kind, Severity
from logwright.codec.frames.walk import Hole, ListedFile, Walk
from logwright.codec.leveldb.comparators import comparator_of
from logwright.codec.leveldb.formats.manifest import codec as manifest
from logwright.codec.leveldb.names import number_in
from logwright.codec.leveldb.repair import logs
from logwright.codec.leveldb.repair.table_blocks import Table
from logwright.codec.leveldb.repair.tables import Tables
from logwright.codec.leveldb.store.guess_comparator import UNKNOWN, guess
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing, PlannedFile

Pieces = tuple[Iterator[Extent], Sequence[Removed]]


def repair_log(
    listing: Listing, file: PlannedFile, strategy: Strategy, options: Options, *, correct: bool = True
) -> Pieces:
    """See `codec.capability.RepairFile`."""
    surveyed = logs.survey_log(listing, file.name, number_in(file.name), file.size, options)
    prefix = strategy is Strategy.PREFIX
    if prefix and surveyed.first is not None:
        surveyed = surveyed.up_to_damage()
    return logs.pieces(listing, surveyed, options, prefix=prefix), surveyed.cut


def repair_manifest(
    listing: Listing, file: PlannedFile, strategy: Strategy, options: Options, *, correct: bool = True
) -> Pieces:
    """Repair a manifest like a log. The caller must judge what its lost edits mean."""
    name, size = file.name, file.size
    walk = partial(Walk, ListedFile(listing, name, size), manifest.CODEC)
    faults = [step.fault for step in walk(manifest.CODEC.context(name, options)) if isinstance(step, Hole)]
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


def repair_table(
    listing: Listing, file: PlannedFile, strategy: Strategy, options: Options, *, correct: bool = True
) -> Pieces:
    """See `codec.capability.RepairFile`. The comparator is guessed from the keys. It is unknown if the keys of most blocks are in no
    known order, or those of any block under a sound index."""
    name, size = file.name, file.size
    named = guess(listing, [(name, size)])
    reader = Tables(listing, options, comparator_of(None if named == UNKNOWN else named))
    surveyed = reader.survey(name, number_in(name), size, None, None)
    wrong = sum(fault.kind is Kind.ORDER for fault in surveyed.check.faults)
    if wrong and (surveyed.check.blocks.sound or 2 * wrong > len(surveyed.blocks or [])):
        reader = Tables(listing, options, comparator_of(UNKNOWN))
        surveyed = reader.survey(name, number_in(name), size, None, None)
    reader.settle([surveyed])
    cut = list(surveyed.cut)
    if strategy is Strategy.PREFIX and surveyed.blocks is not None and surveyed.lost:
        cut = _before(surveyed, size)
    if surveyed.smallest is None and not surveyed.sound:
        raise DamageError("no block of the table is left", path=file.name)
    if surveyed.sound:
        return iter([Copy(name, 0, size)]), cut
    return iter(reader.pieces(surveyed)[0]), cut


def _before(surveyed: Table, size: int) -> list[Removed]:
    """Keep only the blocks before the first one that has lost entries."""
    first = next(cut for cut in surveyed.cut if cut.rows_lost != 0)
    surveyed.blocks = [block for block in surveyed.blocks or [] if block.start < first.offset]
    return [first.to_end(size)]
