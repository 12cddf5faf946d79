"""Repair a database: which parts of its tables and logs are kept, and the manifest that names them.

Salvage keeps every sound block and every sound batch; levels and sequence numbers stay as the manifest has them. Prefix goes back to
a state that the database once had: logs end at their first damage, and a table that has lost entries goes, with everything that is
newer. Where that leaves no such state, it refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.engine.repair import OutputFile, Removed, Repairer, RepairPlan, Strategy
from logwright.codec.engine.startup import SystemRepair
from logwright.codec.fault import DamageError, UsageError
from logwright.codec.leveldb.comparators import Comparator, comparator_of
from logwright.codec.leveldb.derive import current, snapshot
from logwright.codec.leveldb.formats.manifest.layout import LEVELS
from logwright.codec.leveldb.formats.records.codec import MAX_RECORD
from logwright.codec.leveldb.formats.table.entries import user_key
from logwright.codec.leveldb.formats.table.tables import MAX_DECOMPRESSED
from logwright.codec.leveldb.keys import MAX_SEQUENCE, readable
from logwright.codec.leveldb.names import CURRENT, log_name, manifest_name, old_table_name, table_name
from logwright.codec.leveldb.repair import logs
from logwright.codec.leveldb.repair.examine import Found, examine
from logwright.codec.leveldb.repair.levels import APART, NEWER, OLDER, TANGLED, Span, place
from logwright.codec.leveldb.repair.logs import Log
from logwright.codec.leveldb.repair.tables import Table
from logwright.codec.leveldb.startup import start
from logwright.codec.leveldb.store.db import LAYOUT
from logwright.codec.leveldb.store.missing import describe, entries_at_most, lost_with
from logwright.codec.leveldb.store.version import FileMetaData
from logwright.codec.option import Option, Options, Verb, parse_choice, parse_text, used_by
from logwright.codec.store.build import Summary
from logwright.codec.store.extents import Extent
from logwright.codec.store.listing import Listing, Plan

_COMPARATOR = Option(
    "comparator",
    None,
    "The comparator's name, where no manifest says it; by default the known one that the keys of the tables follow",
    parse_text,
)
_FRAMEWISE = (str(Strategy.SALVAGE), str(Strategy.PREFIX))
_OWN = (
    Option(
        "bloom_bits_per_key",
        None,
        "Bits per key of the filter of a table that is written anew; by default as its old filter was made, 0 is none",
        low=0,
        high=1 << 10,
    ),
    *used_by(
        (),
        Option(
            "orphans",
            "leave",
            "Tables that a sound manifest does not name: left out as LevelDB would delete them, or adopted, which may bring deleted keys back",
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
            "Strategy system: the version of LevelDB that is simulated; by default the newest",
            parse_text,
        ),
        strategies=(str(Strategy.SYSTEM),),
    ),
    *used_by((), MAX_DECOMPRESSED, MAX_RECORD, strategies=_FRAMEWISE),
)
_NAMES = {option.name for option in _OWN}
REPAIR_OPTIONS = (_COMPARATOR, *_OWN, *(option for option in start.OPTIONS if option.name not in _NAMES))


class DatabaseRepair(RepairPlan, Repairer):
    """Tables and logs are kept in parts; the manifest is made from what is kept."""

    one_copy = "a LevelDB database has no replicas, {} paths are named", "Repair them one by one"
    found: Found

    def __init__(self, copies: Sequence[Listing], plans: Sequence[Plan], options: Options) -> None:
        RepairPlan.__init__(self, copies[0])
        Repairer.__init__(self, copies, plans, options)
        self.prefix = self.always = self.keeps_unused = False
        """`always`: a manifest is made in any case. `keeps_unused`: files that are not in use stay."""
        self.levels: dict[int, int] = {}
        self.numbers: dict[int, int] = {}
        """New numbers of tables that can't keep theirs."""

    @classmethod
    def as_system(cls, listing: Listing, plan: Plan, options: Options) -> RepairPlan:
        comparator = plan.facts["comparator"]
        if not comparator_of(comparator).known:
            raise UsageError(
                f"the order of comparator {comparator} is not known: what LevelDB would write of the logs cannot be computed",
                advice="Use strategy salvage or prefix, which need no order",
            )
        known = (_COMPARATOR, *start.OPTIONS)
        given = {option.name: options[option.name] for option in known if options.given(option.name)}
        settings = Options(known, {"comparator": comparator, **given})
        started = start.STARTUP.run(listing, plan, settings, version=options["version"], clean=None)
        return SystemRepair(started, LAYOUT.order)

    def survey(self) -> None:
        self.found = examine(self.listing, self.options, adopt=self.options["orphans"] == "adopt")

    def reorder(self) -> None:
        self.found.logs.sort(key=lambda log: log.number)

    # What stays

    def go_back(self) -> RepairPlan:
        """Keep only what is older than the first entry that is lost."""
        self.prefix = True
        found = self.found
        losses = [one for one in found.tables if one.lost]
        lows = [_oldest(one.low, one.known) for one in losses]
        lows += [_oldest(MAX_SEQUENCE, known) for _, known in found.missing if not found.replaced]
        if lows:
            self._before(min(lows), {one.number for one in losses})
        for i, log in enumerate(found.logs):
            if log.first is not None:
                found.logs[i] = log.up_to_damage()
                self._drop_logs(found.logs[i + 1 :], "behind the first damage")
                del found.logs[i + 1 :]
                break
        return self.salvage()

    def _before(self, sequence: int, lossy: set[int]) -> None:
        found = self.found
        kept: list[Table] = []
        for one in found.tables:
            if one.number not in lossy and one.high < sequence:
                kept.append(one)
            elif one.number in lossy or one.low >= sequence:
                why = (
                    "it has lost entries"
                    if one.number in lossy
                    else "it is newer than the first entry that is lost"
                )
                self.cut.append(Removed(one.file, 0, one.size, why, 0, one.rows or None, _range(one)))
            else:
                self._refuse(f"{one.file} has entries from before and from behind the first one that is lost")
        if not kept and any(one.rows for one in found.tables):
            self._refuse("no table is older than the first entry that is lost")
        found.tables = kept
        self._drop_logs(found.logs, "behind the first entry that is lost")
        found.logs = []
        found.missing = []
        last = max((one.high for one in kept), default=0)
        found.state.version.last_sequence = min(
            found.state.version.last_sequence or last, max(last, sequence - 1)
        )

    def _refuse(self, why: str) -> None:
        raise DamageError(
            f"there is no state from before the damage: {why}",
            path=self.found.listing.name,
            advice="Strategy salvage keeps every sound block of the tables, and every sound batch of the logs",
        )

    def _drop_logs(self, some: Sequence[Log], why: str) -> None:
        for log in some:
            if log.size:
                lost = {"file": log.number}
                if log.rows:
                    lost |= {"first_sequence": log.low, "last_sequence": log.high}
                self.cut.append(Removed(log.file, 0, log.size, why, 0, log.rows, lost))

    def salvage(self) -> RepairPlan:
        """Decide where everything goes."""
        found = self.found
        for one in found.tables:
            self.cut += one.cut
        for log in found.logs:
            self.cut += log.cut
        if found.replaced:
            names = _names([table_name(known.number) for _, known in found.missing])
            self.notes.append(
                f"{names}, of which the manifest tells before its damage, not there: replaced by a compaction, most likely, whose tables "
                "are adopted."
            )
            found.missing = []
        entries = self._missing_entries()
        for level, known in found.missing:
            why = describe(known, level, entries, len(found.missing))
            self.cut.append(
                Removed(table_name(known.number), 0, 0, why, 0, None, dict(lost_with(known, entries)))
            )
            self.notes.append(f"lost: {why}.")
        self.cut += found.state.cut
        self._say_what_may_be_back()
        found.tables = [one for one in found.tables if one.smallest is not None]
        self._place()
        self._say()
        kept = [one for one in found.files if one.rows]
        self.rows = sum(one.rows for one in kept)
        if kept:
            low, high = min(one.low for one in kept), max(one.high for one in kept)
            self.ids = {"first_sequence": low, "last_sequence": high}
        return self

    def _missing_entries(self) -> int | None:
        """The largest number of entries that the missing tables had."""
        found = self.found
        live = found.state.version.files
        last = max([found.state.version.last_sequence or 0, *(log.high for log in found.logs)])
        tables = [one.check for one in found.tables if one.number in live]
        missing = [known for _, known in found.missing]
        return entries_at_most(last, missing, tables, sum(log.rows for log in found.logs))

    def _place(self) -> None:
        """A level for each table, and numbers that are in order of age in level 0."""
        found = self.found
        self.levels = {one.number: one.level for one in found.tables if one.level is not None}
        if not found.order.known:
            for one in found.tables:
                self.levels.setdefault(one.number, 0)
            return
        if (
            len(self.levels) == len(found.tables)
            and (found.state.sound or not found.adopted)
            and self._disjoint()
        ):
            return
        spans = {one.number: _span(one, found.order) for one in found.tables}
        compare = _Compare({one.number: one for one in found.tables}, found)
        placed = place(list(spans.values()), compare)
        self.levels = placed.levels
        self._number(placed.level_0, spans)
        if placed.tangled:
            names = ", ".join(
                table_name(self.numbers.get(number, number)) for number in sorted(placed.tangled)
            )
            self.notes.append(
                f"{names}: each has newer entries than another one for some keys, they are in level 0."
            )
            self.before_you_start.append(
                "Get may give older values than an iterator until everything is compacted once (CompactRange without bounds)."
            )

    def _disjoint(self) -> bool:
        """Whether no tables of a level from 1 on overlap."""
        order = self.found.order.order
        for level in range(1, LEVELS):
            spans = sorted(
                (order(one.smallest), order(one.largest))
                for one in self.found.tables
                if self.levels[one.number] == level and one.smallest and one.largest
            )
            if any(a[1] >= b[0] for a, b in pairwise(spans)):
                return False
        return True

    def _number(self, level_0: Sequence[int], spans: dict[int, Span]) -> None:
        """Tables of level 0 have numbers in the order of their age where they overlap: those that have not get new ones."""
        for i, number in enumerate(level_0):
            if any(other > number and spans[other].overlaps(spans[number]) for other in level_0[:i]):
                for late in level_0[i:]:
                    self.found.highest += 1
                    self.numbers[late] = self.found.highest
                return

    # What is said

    def _say(self) -> None:
        found = self.found
        for name, why in found.left:
            self.notes.append(f"{name} is not in the result: {why}.")
        if not found.state.sound:
            what = found.state.manifest or "no manifest"
            said = f"{what} tells not all that there was" if found.state.manifest else "No manifest is left"
            self.notes.append(
                f"{said}: tables of which it is not known whether they are in use are taken to be."
            )
            if found.adopted:
                names = _names(one.file for one in found.adopted)
                self.notes.append(
                    f"{names}: in use as far as can be told. Should LevelDB have replaced something of that by a compaction, and not have "
                    "removed it, keys deleted before are back."
                )
        elif found.adopted:
            names = _names(one.file for one in found.adopted)
            self.notes.append(
                f"{names}: adopted, though the manifest does not name them. Deleted keys may be back."
            )
        first = found.state.version.log_number
        if first and not any(found.state.live(log.number) for log in found.logs):
            self.notes.append(
                f"{log_name(first)}, which the manifest has as the log in use, is not there: what was written last may be lost."
            )
        for log in found.logs:
            if log.file != log_name(log.number):
                self.notes.append(
                    f"{log.file} is called {log_name(log.number)} now: LevelDB would not have found it."
                )
        for one in found.tables:
            if one.opaque:
                self.notes.append(
                    f"{one.file} has blocks or entries of a type that is not known here: it is copied untouched."
                )

    def _say_what_may_be_back(self) -> None:
        """Where something is lost, what is older is seen again."""
        found = self.found
        for one in found.tables:
            for low, high in one.lost:
                self._older(one.file, one.number, one.level, low, high)
        for level, known in found.missing:
            self._older(
                table_name(known.number),
                known.number,
                level,
                user_key(known.smallest),
                user_key(known.largest),
            )
        lost = [log.file for log in found.logs if any(cut.rows_lost != 0 for cut in log.cut)]
        rows = any(one.rows for one in found.tables) or any(log.rows for log in found.logs)
        if lost and rows:
            self.notes.append(
                f"{_names(lost)}: of keys that were written or deleted by what is lost, older entries show if there are any."
            )

    def _older(
        self, file: str, number: int, level: int | None, low: bytes | None, high: bytes | None
    ) -> None:
        if not self.found.order.known:
            return
        user = self.found.order.user
        behind = [
            one.file
            for one in self.found.tables
            if one.number != number
            and one.smallest is not None
            and one.largest is not None
            and (high is None or user(user_key(one.smallest)) <= user(high))
            and (low is None or user(user_key(one.largest)) >= user(low))
            and (
                one.level is None
                or level is None
                or one.level > level
                or (one.level == level == 0 and one.number < number)
            )
        ]
        if behind:
            start = "the first one" if low is None else readable(low)
            end = "the last one" if high is None else readable(high)
            self.notes.append(
                f"{file} has lost entries of keys from {start} to {end}: older values of them, and keys deleted by them, may be seen again in "
                f"{_names(behind)}."
            )

    # The files

    def outputs(self) -> Iterator[OutputFile]:
        found = self.found
        yield from map(self.unchanged, found.others)
        metas: list[list[FileMetaData]] = [[] for _ in range(LEVELS)]
        made: set[str] = set()
        for one in found.tables:
            pieces, meta = found.reader.pieces(one)
            number = self.numbers.get(one.number, one.number)
            level = self.levels[one.number]
            metas[level].append(self._meta(one, level, replace(meta, number=number)))
            yield OutputFile(name := _table_file(one, number), pieces, one.file)
            made.add(name)
        for log in found.logs:
            yield OutputFile(name := log_name(log.number), list(self.log_pieces(log)), log.file)
            made.add(name)
        for file in self._metadata(metas):
            yield file
            made.add(file.name)
        if self.keeps_unused:
            unused = {name for name, _ in found.left} - made
            yield from (self.unchanged(name) for name in self.sizes if name in unused)

    def log_pieces(self, log: Log) -> Iterator[Extent]:
        return logs.pieces(self.found.listing, log, self.options, prefix=self.prefix)

    def _meta(self, one: Table, level: int, meta: FileMetaData) -> FileMetaData:
        """What the manifest says already, where that is right."""
        known = one.known
        if known is None or level != one.level or (known.number, known.size) != (meta.number, meta.size):
            return meta
        if not self.found.order.known:
            return known
        order = self.found.order.order
        wide = order(known.smallest) <= order(meta.smallest) and order(known.largest) >= order(meta.largest)
        return known if wide and one.sound else meta

    def _metadata(self, metas: list[list[FileMetaData]]) -> Iterator[OutputFile]:
        found, version = self.found, self.found.state.version
        last = self._last_sequence()
        numbers = [one.number for files in metas for one in files] + [log.number for log in found.logs]
        following = version.next_file_number or 0
        files = {one.number: (level, one) for level, some in enumerate(metas) for one in some}
        same = (
            found.state.sound
            and files == version.files
            and last == version.last_sequence
            and following > max(numbers, default=0)
            and not self.always
        )
        old = found.state.manifest
        if same and old is not None:
            yield self.unchanged(old)
            yield self.made(CURRENT, f"{old}\n".encode(errors="surrogateescape"))
            return
        number = max(found.highest + 1, following)
        first = version.log_number
        if first is None:
            first = min((log.number for log in found.logs), default=0)
        data = snapshot(
            metas,
            log_number=first,
            prev_log_number=version.prev_log_number or 0,
            next_file_number=number + 1,
            last_sequence=last,
            compact_pointers=version.compact_pointers if found.state.sound else None,
            comparator=found.comparator,
        )
        yield OutputFile(manifest_name(number), [data], old)
        yield self.made(CURRENT, current(number))

    def _last_sequence(self) -> int:
        """That of the manifest, or more where a table has more: LevelDB shows nothing beyond, and adds those of the logs itself."""
        found = self.found
        known = found.state.version.last_sequence
        tables = max((one.high for one in found.tables), default=0)
        in_logs = max((log.high for log in found.logs), default=0)
        if known is not None and (tables <= known or (found.state.sound and tables <= in_logs)):
            return known
        if found.state.sound:
            self.notes.append(
                f"The last sequence number is {max(tables, 0)} now: entries beyond {known} were not seen before."
            )
        return max(known or 0, tables, 0)

    def summary(self) -> Summary:
        self.notes += self.found.reader.notes
        return super().summary()


def _table_file(one: Table, number: int) -> str:
    if number == one.number and one.file in (table_name(number), old_table_name(number)):
        return one.file
    return table_name(number)


def _oldest(low: int, known: FileMetaData | None) -> int:
    """The smallest sequence number of a table, as far as is known."""
    for key in (known.smallest, known.largest) if known is not None else ():
        if len(key) >= 8:
            low = min(low, int.from_bytes(key[-8:], "little") >> 8)
    return low


def _range(one: Table) -> dict[str, object]:
    lost: dict[str, object] = {"file": one.number}
    for name, key in (("smallest", one.smallest), ("largest", one.largest)):
        if key is not None:
            lost[name] = readable(user_key(key))
    return lost


def _span(one: Table, order: Comparator) -> Span:
    smallest, largest = one.smallest, one.largest
    assert smallest is not None
    assert largest is not None
    first, last = (order.user(user_key(key)) for key in (smallest, largest))
    return Span(one.number, first, last, one.low, one.high, one.level)


def _names(names: Iterator[str] | Sequence[str]) -> str:
    several = list(names)
    more = f" and {len(several) - 5} more" if len(several) > 5 else ""
    return ", ".join(several[:5]) + more


class _Compare:
    """Compares tables key by key: see `levels.Compare`."""

    def __init__(self, tables: dict[int, Table], found: Found) -> None:
        self._tables, self._found = tables, found
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
        """The keys of a table, each with the smallest and the largest of its sequence numbers."""
        if number not in self._kept:
            if len(self._kept) >= 16:
                self._kept.pop(next(iter(self._kept)))
            self._kept[number] = self._found.reader.versions(self._tables[number])
        return self._kept[number]
