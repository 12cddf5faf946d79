"""Repair a database: which parts of its tables and logs to keep, and the manifest that names them.

Salvage keeps every sound block and batch. Levels and sequence numbers stay as recorded in the manifest. Prefix goes back to an earlier
state: logs end at their first damage, and a table with lost entries is removed together with everything newer. It refuses if there is no
such state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa

from logwright.codec.deferred import compute as pc
from logwright.codec.engine.repair import OutputFile, Removed, Repairer, RepairPlan, Strategy
from logwright.codec.engine.startup import SystemRepair
from logwright.codec.fault import DamageError, UsageError
from logwright.codec.leveldb.comparators import Comparator, comparator_of
from logwright.codec.leveldb.derive import current, snapshot
from logwright.codec.leveldb.formats.manifest.layout import LEVELS
from logwright.codec.leveldb.formats.records.codec import MAX_RECORD
from logwright.codec.leveldb.formats.table.tables import MAX_DECOMPRESSED
from logwright.codec.leveldb.keys import MAX_SEQUENCE, key_range, readable, user_key
from logwright.codec.leveldb.names import (
    CURRENT,
    log_name,
    manifest_name,
    number_in,
    old_table_name,
    table_name,
)
from logwright.codec.leveldb.repair import logs
from logwright.codec.leveldb.repair.levels import APART, NEWER, OLDER, TANGLED, Span, assign_levels
from logwright.codec.leveldb.repair.logs import Log
from logwright.codec.leveldb.repair.survey import NOT_NAMED, Survey, survey_database
from logwright.codec.leveldb.repair.table_blocks import Table
from logwright.codec.leveldb.startup import start
from logwright.codec.leveldb.store.contents import KINDS
from logwright.codec.leveldb.store.db import LAYOUT
from logwright.codec.leveldb.store.missing import describe, loss_of, max_missing_entries
from logwright.codec.leveldb.store.version import FileMetaData
from logwright.codec.option import Option, Options, Verb, parse_choice, parse_text, used_by
from logwright.codec.store.build import Summary
from logwright.codec.store.extents import Extent
from logwright.codec.store.listing import Listing, Plan

_COMPARATOR = Option(
    "comparator",
    None,
    "Name of the comparator, if no manifest records it; default: the known one that the tables' keys are ordered by",
    parse_text,
)
_OLDER = "Get may return older values than an iterator until a full compaction (CompactRange without bounds)."
_FRAMEWISE = (str(Strategy.SALVAGE), str(Strategy.PREFIX))
_OWN = (
    Option(
        "bloom_bits_per_key",
        None,
        "Bits per key for the filter of a rewritten table, 0 for none; default: as in its old filter",
        low=0,
        high=1 << 10,
    ),
    *used_by(
        (),
        Option(
            "orphans",
            "leave",
            "Tables that an undamaged manifest does not name: drop them as LevelDB would, or adopt them, which may bring deleted keys back",
            parse_choice,
            ("leave", "adopt"),
        ),
        strategies=_FRAMEWISE,
    ),
    *used_by(
        {Verb.REPAIR},
        Option(
            "version",
            None,
            "Strategy system: the simulated version of LevelDB; default: the newest",
            parse_text,
        ),
        strategies=(str(Strategy.SYSTEM),),
    ),
    *used_by((), MAX_DECOMPRESSED, MAX_RECORD, strategies=_FRAMEWISE),
)
_NAMES = {option.name for option in _OWN}
REPAIR_OPTIONS = (_COMPARATOR, *_OWN, *(option for option in start.OPTIONS if option.name not in _NAMES))


class DatabaseRepair(RepairPlan, Repairer):
    """Keeps parts of tables and logs, and builds the manifest from them."""

    one_copy = "a LevelDB database has no replicas, but {} paths were given", "Repair them one at a time"
    surveyed: Survey

    def __init__(self, copies: Sequence[Listing], plans: Sequence[Plan], options: Options) -> None:
        RepairPlan.__init__(self, copies[0])
        Repairer.__init__(self, copies, plans, options)
        self.prefix = self.always = self.keeps_unused = False
        """`always`: write a manifest in any case. `keeps_unused`: keep files that are not in use."""
        self.levels: dict[int, int] = {}
        self.numbers: dict[int, int] = {}
        """New numbers of tables that cannot keep theirs."""

    @classmethod
    def as_system(cls, listing: Listing, plan: Plan, options: Options) -> RepairPlan:
        comparator = plan.facts["comparator"]
        if not comparator_of(comparator).known:
            raise UsageError(
                f"unknown comparator {comparator}: what LevelDB would write from the logs cannot be computed",
                advice="Use strategy salvage or prefix, which need no order",
            )
        known = (_COMPARATOR, *start.OPTIONS)
        settings = Options(known, {"comparator": comparator, **options.passed(known)})
        started = start.STARTUP.run(listing, plan, settings, version=options["version"], clean=None)
        return SystemRepair(started, LAYOUT.order)

    def survey(self) -> None:
        self.surveyed = survey_database(self.listing, self.options, adopt=self.options["orphans"] == "adopt")

    def reorder(self) -> None:
        """Number logs in the order of their sequence numbers, not below the first number that LevelDB reads."""
        surveyed = self.surveyed
        surveyed.logs.sort(key=lambda log: log.number)
        first = surveyed.state.version.log_number or 0
        filled = sorted((log for log in surveyed.logs if log.rows), key=lambda log: (log.low, log.number))
        numbers = [log.number for log in filled]
        if numbers == sorted(set(numbers)) and all(map(surveyed.state.live, numbers)):
            return
        taken = {log.number for log in surveyed.logs if not log.rows}
        free = [number for number in sorted({first, *numbers} - taken) if surveyed.state.live(number)]
        if len(free) < len(filled):
            free = [*range(surveyed.highest + 1, surveyed.highest + 1 + len(filled))]
            surveyed.highest = free[-1]
        for log, number in zip(filled, free[-len(filled) :], strict=True):
            log.number = number
        surveyed.logs.sort(key=lambda log: log.number)

    # Choosing what to keep

    def go_back(self) -> RepairPlan:
        """Keep only what is older than the first lost entry."""
        self.prefix = True
        surveyed = self.surveyed
        losses = [table for table in surveyed.tables if table.lost]
        lows = [_oldest(table.low, table.known) for table in losses]
        lows += [_oldest(MAX_SEQUENCE, known) for _, known in surveyed.missing if not surveyed.replaced]
        if lows:
            self._before(min(lows), {table.number for table in losses})
        for i, log in enumerate(surveyed.logs):
            if log.first is not None:
                surveyed.logs[i] = log.up_to_damage()
                self._drop_logs(surveyed.logs[i + 1 :], "after the first damage")
                del surveyed.logs[i + 1 :]
                break
        return self.salvage()

    def _before(self, sequence: int, lossy: set[int]) -> None:
        surveyed = self.surveyed
        kept: list[Table] = []
        for table in surveyed.tables:
            incomplete = table.number in lossy
            if not incomplete and table.high < sequence:
                kept.append(table)
            elif incomplete or table.low >= sequence:
                why = "it has lost entries" if incomplete else "it is newer than the first lost entry"
                ends = (None if key is None else user_key(key) for key in (table.smallest, table.largest))
                lost = {"file": table.number, **key_range(*ends)}
                self.cut.append(Removed(table.file, 0, table.size, why, 0, table.rows or None, lost))
            else:
                self._refuse(f"{table.file} has entries from before and after the first lost one")
        if not kept and any(table.rows for table in surveyed.tables):
            self._refuse("no table is older than the first lost entry")
        surveyed.tables = kept
        self._drop_logs(surveyed.logs, "after the first lost entry")
        surveyed.logs = []
        surveyed.missing = []
        last = max((table.high for table in kept), default=0)
        surveyed.state.version.last_sequence = min(
            surveyed.state.version.last_sequence or last, max(last, sequence - 1)
        )

    def _refuse(self, why: str) -> None:
        raise DamageError(
            f"there is no state from before the damage: {why}",
            path=self.surveyed.listing.name,
            advice="Strategy salvage keeps every undamaged block of the tables and every undamaged batch of the logs",
        )

    def _drop_logs(self, dropped: Sequence[Log], why: str) -> None:
        for log in dropped:
            if log.size:
                lost = {"file": log.number}
                if log.rows:
                    lost |= {"first_sequence": log.low, "last_sequence": log.high}
                self.cut.append(Removed(log.file, 0, log.size, why, 0, log.rows, lost))

    def salvage(self) -> RepairPlan:
        """Keep all sound parts, and choose levels and numbers."""
        surveyed = self.surveyed
        if surveyed.replaced:
            names = _names([table_name(known.number) for _, known in surveyed.missing])
            self.notes.append(
                f"{names}, named by the manifest before its damage, not found: most likely replaced by a compaction, whose output "
                "is adopted."
            )
            surveyed.missing = []
        self.cut += self._lost_tables()
        for log in surveyed.logs:
            self.cut += log.cut
        self.cut += surveyed.state.cut
        self._note_older_entries()
        surveyed.tables = [table for table in surveyed.tables if table.smallest is not None]
        self._assign_levels()
        self._add_notes()
        kept = [table for table in surveyed.files if table.rows]
        self.rows = sum(table.rows for table in kept)
        if kept:
            low, high = min(table.low for table in kept), max(table.high for table in kept)
            self.ids = {"first_sequence": low, "last_sequence": high}
        return self

    def _lost_tables(self) -> Iterator[Removed]:
        """Return what is lost of the tables, and note those that are missing or have no readable entry."""
        surveyed = self.surveyed
        unread = [table for table in surveyed.tables if table.lost_whole]
        gone = [known for _, known in surveyed.missing] + [table.known for table in unread if table.known]
        entries = self._entries_of(gone)
        for table in surveyed.tables:
            known = table.known
            if known is None or table.level is None or not table.lost_whole:
                yield from table.cut
                continue
            why = describe(known, table.level, entries, len(gone), missing=False)
            self.notes.append(f"lost: {why}.")
            for cut in table.cut:
                yield replace(cut, lost=dict(loss_of(known, entries))) if cut.lost else cut
        for level, known in surveyed.missing:
            why = describe(known, level, entries, len(gone))
            self.notes.append(f"lost: {why}.")
            yield Removed(table_name(known.number), 0, 0, why, 0, None, dict(loss_of(known, entries)))

    def _entries_of(self, gone: Sequence[FileMetaData]) -> int | None:
        """Return the largest number of entries that these tables can have had."""
        surveyed = self.surveyed
        live = surveyed.state.version.files
        last = max([surveyed.state.version.last_sequence or 0, *(log.high for log in surveyed.logs)])
        tables = [table.check for table in surveyed.tables if table.number in live]
        return max_missing_entries(last, gone, tables, sum(log.rows for log in surveyed.logs))

    def _assign_levels(self) -> None:
        """Choose a level for each table, and numbers that are ordered by age in level 0."""
        surveyed = self.surveyed
        self.levels = {table.number: table.level for table in surveyed.tables if table.level is not None}
        if not surveyed.order.known:
            for table in surveyed.tables:
                self.levels.setdefault(table.number, 0)
            return
        if (
            len(self.levels) == len(surveyed.tables)
            and (surveyed.state.sound or not surveyed.adopted)
            and self._disjoint()
            and all(map(self._covered, surveyed.tables))
        ):
            return
        spans = {
            table.number: _span(table, surveyed.order, table.level if self._covered(table) else None)
            for table in surveyed.tables
        }
        compare = _Compare({table.number: table for table in surveyed.tables}, surveyed)
        placed = assign_levels(list(spans.values()), compare)
        self.levels = placed.levels
        self._number(placed.level_0, spans)
        if placed.tangled:
            names = ", ".join(
                table_name(self.numbers.get(number, number)) for number in sorted(placed.tangled)
            )
            self.notes.append(
                f"{names}: each has newer entries than another one for some keys, so they are placed in level 0."
            )
            self.before_you_start.append(_OLDER)

    def _covered(self, table: Table) -> bool:
        """Return whether the keys of a table are within those of its entry in the manifest, if it has one, and its size is right. They are
        not if tables were exchanged or copied, so the level and the number of the entry are those of another table."""
        known, order = table.known, self.surveyed.order.order
        if known is None or table.smallest is None or table.largest is None:
            return True
        if table.sound and not table.unsupported and table.size != known.size:
            return False
        return bool(
            order(known.smallest) <= order(table.smallest) and order(table.largest) <= order(known.largest)
        )

    def _disjoint(self) -> bool:
        """Return whether no tables of a level below 0 overlap."""
        order = self.surveyed.order.order
        for level in range(1, LEVELS):
            spans = sorted(
                (order(table.smallest), order(table.largest))
                for table in self.surveyed.tables
                if self.levels[table.number] == level and table.smallest and table.largest
            )
            if any(a[1] >= b[0] for a, b in pairwise(spans)):
                return False
        return True

    def _number(self, level_0: Sequence[int], spans: dict[int, Span]) -> None:
        """Give new numbers to overlapping tables of level 0 whose numbers are not in the order of their age."""
        for i, number in enumerate(level_0):
            if any(other > number and spans[other].overlaps(spans[number]) for other in level_0[:i]):
                for late in level_0[i:]:
                    self.surveyed.highest += 1
                    self.numbers[late] = self.surveyed.highest
                return

    # Notes

    def _add_notes(self) -> None:
        surveyed = self.surveyed
        for name, why in surveyed.left:
            self.notes.append(f"{name} is not in the result: {why}.")
        if not surveyed.state.sound:
            manifest = surveyed.state.manifest or "no manifest"
            state = f"{manifest} is incomplete" if surveyed.state.manifest else "No manifest is left"
            self.notes.append(f"{state}: tables that may be in use are kept.")
            if surveyed.adopted:
                names = _names(table.file for table in surveyed.adopted)
                self.notes.append(
                    f"{names}: assumed to be in use. If LevelDB had already replaced some of them by a compaction without "
                    "removing them, deleted keys are back."
                )
        elif others := [table.file for table in surveyed.adopted if table.file not in surveyed.newer]:
            names = _names(others)
            self.notes.append(
                f"{names}: adopted although the manifest does not name them. Deleted keys may be back."
            )
        orphans = [name for name, why in surveyed.left if why == NOT_NAMED]
        if orphans and surveyed.missing:
            self.notes.append(
                f"{_names(orphans)} may have older versions of lost entries: orphans=adopt keeps them, and may bring deleted keys back."
            )
        self._note_older_logs()
        for name, kind in surveyed.misnamed.items():
            self.notes.append(f"{name} is {KINDS[kind]} by its content.")
        for name in surveyed.newer:
            if surveyed.state.manifest is None or name in surveyed.misnamed:
                continue
            self.notes.append(
                f"{name} is newer than the manifest, which does not use it: it is kept. If tables that the manifest names are older than "
                "it, deleted keys may be back."
            )
        first = surveyed.state.version.log_number
        if first and not any(surveyed.state.live(log.number) for log in surveyed.logs):
            self.notes.append(
                f"{log_name(first)}, the current log by the manifest, is missing: the last writes may be lost."
            )
        for log in surveyed.logs:
            if log.file != log_name(log.number):
                why = "LevelDB would not have found it"
                if log.file in surveyed.misnamed:
                    why = "it has the writes after those of the tables"
                elif log.file == log_name(number_in(log.file)):
                    why = "LevelDB reads logs in the order of their numbers, from the first one in the manifest on"
                self.notes.append(f"{log.file} is renamed to {log_name(log.number)}: {why}.")
        for file, number in surveyed.renamed.items():
            self.notes.append(
                f"{file} is {table_name(number)}, which the manifest names: it has the same size and the same keys."
            )
        for table in surveyed.tables:
            if table.unsupported:
                self.notes.append(
                    f"{table.file} has blocks or entries of an unknown type: it is copied unchanged."
                )

    def _note_older_logs(self) -> None:
        """Note logs that do not have the newest entries, though LevelDB searches them first."""
        surveyed = self.surveyed
        highest = max((table.high for table in surveyed.tables), default=-1)
        older = [log_name(log.number) for log in surveyed.logs if log.rows and log.low <= highest]
        if older:
            self.notes.append(f"{_names(older)}: its writes are not newer than all tables.")
            self.before_you_start.append(_OLDER)

    def _note_older_entries(self) -> None:
        """Note where older entries become visible because newer ones are lost."""
        surveyed = self.surveyed
        for table in surveyed.tables:
            for low, high in table.lost:
                self._older(table.file, table.number, table.level, low, high)
        for level, known in surveyed.missing:
            self._older(
                table_name(known.number),
                known.number,
                level,
                user_key(known.smallest),
                user_key(known.largest),
            )
        lost = [log.file for log in surveyed.logs if any(cut.rows_lost != 0 for cut in log.cut)]
        rows = any(table.rows for table in surveyed.tables) or any(log.rows for log in surveyed.logs)
        if lost and rows:
            self.notes.append(
                f"{_names(lost)}: for keys written or deleted by the lost part, older entries become visible if there are any."
            )

    def _older(
        self, file: str, number: int, level: int | None, low: bytes | None, high: bytes | None
    ) -> None:
        if not self.surveyed.order.known:
            return
        user = self.surveyed.order.user
        behind = [
            table.file
            for table in self.surveyed.tables
            if table.number != number
            and table.smallest is not None
            and table.largest is not None
            and (high is None or user(user_key(table.smallest)) <= user(high))
            and (low is None or user(user_key(table.largest)) >= user(low))
            and (
                table.level is None
                or level is None
                or table.level > level
                or (table.level == level == 0 and table.number < number)
            )
        ]
        if behind:
            start = "the first key" if low is None else readable(low)
            end = "the last key" if high is None else readable(high)
            self.notes.append(
                f"{file} has lost entries with keys {start}..{end}: older values, and keys deleted by them, may become visible again in "
                f"{_names(behind)}."
            )

    # Output

    def outputs(self) -> Iterator[OutputFile]:
        surveyed = self.surveyed
        yield from map(self.unchanged, surveyed.others)
        metas: list[list[FileMetaData]] = [[] for _ in range(LEVELS)]
        written: set[str] = set()
        for table in surveyed.tables:
            pieces, meta = surveyed.reader.pieces(table)
            number = self.numbers.get(table.number, table.number)
            level = self.levels[table.number]
            metas[level].append(self._meta(table, level, replace(meta, number=number)))
            yield OutputFile(name := _table_file(table, number), pieces, table.file)
            written.add(name)
        for log in surveyed.logs:
            yield OutputFile(name := log_name(log.number), list(self.log_pieces(log)), log.file)
            written.add(name)
        for file in self._metadata(metas):
            yield file
            written.add(file.name)
        if self.keeps_unused:
            unused = {name for name, _ in surveyed.left} - written
            yield from (self.unchanged(name) for name in self.sizes if name in unused)

    def log_pieces(self, log: Log) -> Iterator[Extent]:
        return logs.pieces(self.surveyed.listing, log, self.options, prefix=self.prefix)

    def _meta(self, table: Table, level: int, meta: FileMetaData) -> FileMetaData:
        """Return the entry of the manifest, if it is right."""
        known = table.known
        if known is None or level != table.level or (known.number, known.size) != (meta.number, meta.size):
            return meta
        if not self.surveyed.order.known:
            return known
        return known if table.sound and self._covered(table) else meta

    def _metadata(self, metas: list[list[FileMetaData]]) -> Iterator[OutputFile]:
        surveyed, version = self.surveyed, self.surveyed.state.version
        last = self._last_sequence()
        numbers = [table.number for files in metas for table in files] + [log.number for log in surveyed.logs]
        following = version.next_file_number or 0
        files = {table.number: (level, table) for level, tables in enumerate(metas) for table in tables}
        same = (
            surveyed.state.sound
            and files == version.files
            and last == version.last_sequence
            and following > max(numbers, default=0)
            and not self.always
        )
        old = surveyed.state.manifest
        if same and old is not None and old not in surveyed.misnamed:
            yield self.unchanged(old)
            yield self.rewritten(CURRENT, f"{old}\n".encode(errors="surrogateescape"))
            return
        number = max(surveyed.highest + 1, following)
        first = version.log_number
        if first is None or not surveyed.logs:
            # A log that the manifest names and that is not there would be reported as missing.
            first = min((log.number for log in surveyed.logs), default=0)
        data = snapshot(
            metas,
            log_number=first,
            prev_log_number=version.prev_log_number or 0,
            next_file_number=number + 1,
            last_sequence=last,
            compact_pointers=version.compact_pointers if surveyed.state.sound else None,
            comparator=surveyed.comparator,
        )
        yield OutputFile(manifest_name(number), [data], old)
        yield self.rewritten(CURRENT, current(number))

    def _last_sequence(self) -> int:
        """Return the last sequence number of the manifest, or a larger one of a table. LevelDB hides entries beyond it, and counts those
        of the logs itself."""
        surveyed = self.surveyed
        known = surveyed.state.version.last_sequence
        tables = max((table.high for table in surveyed.tables), default=0)
        in_logs = max((log.high for log in surveyed.logs), default=0)
        if known is not None and (tables <= known or (surveyed.state.sound and tables <= in_logs)):
            return known
        if surveyed.state.sound:
            self.notes.append(
                f"The last sequence number is now {max(tables, 0)}: entries above {known} were hidden before."
            )
        return max(known or 0, tables, 0)

    def summary(self) -> Summary:
        self.notes += self.surveyed.reader.notes
        return super().summary()


def _table_file(table: Table, number: int) -> str:
    if number == table.number and table.file in (table_name(number), old_table_name(number)):
        return table.file
    return table_name(number)


def _oldest(low: int, known: FileMetaData | None) -> int:
    """Return the smallest sequence number that a table can have, as far as is known."""
    for key in (known.smallest, known.largest) if known is not None else ():
        if len(key) >= 8:
            low = min(low, int.from_bytes(key[-8:], "little") >> 8)
    return low


def _span(table: Table, order: Comparator, level: int | None) -> Span:
    smallest, largest = table.smallest, table.largest
    assert smallest is not None
    assert largest is not None
    first, last = (order.user(user_key(key)) for key in (smallest, largest))
    return Span(table.number, first, last, table.low, table.high, level)


def _names(names: Iterator[str] | Sequence[str]) -> str:
    several = list(names)
    more = f" and {len(several) - 5} more" if len(several) > 5 else ""
    return ", ".join(several[:5]) + more


class _Compare:
    """Compares tables key by key: see `levels.Compare`."""

    def __init__(self, tables: dict[int, Table], surveyed: Survey) -> None:
        self._tables, self._surveyed = tables, surveyed
        self._kept: dict[int, pa.Table] = {}

    def __call__(self, a: Span, b: Span) -> int:
        both = self._versions(a.number).join(
            self._versions(b.number), "key", join_type="inner", right_suffix="_b"
        )
        if not both.num_rows:
            return APART
        newer = pc.all(pc.greater_equal(both["low"], both["high_b"])).as_py()
        older = pc.all(pc.less_equal(both["high"], both["low_b"])).as_py()
        if newer and older:
            return APART
        return NEWER if newer else OLDER if older else TANGLED

    def _versions(self, number: int) -> pa.Table:
        """Return the keys of a table, each with its smallest and its largest sequence number."""
        if number not in self._kept:
            if len(self._kept) >= 16:
                self._kept.pop(next(iter(self._kept)))
            self._kept[number] = self._surveyed.reader.versions(self._tables[number])
        return self._kept[number]
