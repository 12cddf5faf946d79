"""Remove entries from a bookie, or redact their payloads. All other entries keep their bytes and their positions in entry logs.

In an entry log, a filler replaces a removed entry and pads a redacted one. In a journal, later records move up, and lastMark is adjusted.
Ledgers maps and the index are updated. The digest of a redacted entry is recomputed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.bookkeeper.formats import digest
from logwright.codec.bookkeeper.formats.digest import HEADER, HMAC, Passwords
from logwright.codec.bookkeeper.formats.entries import entry_range
from logwright.codec.bookkeeper.formats.entrylog.codec import CODEC as LOG
from logwright.codec.bookkeeper.formats.entrylog.layout import BLOCK, FILL
from logwright.codec.bookkeeper.formats.entrylog.layout import HEADER as LOG_HEADER
from logwright.codec.bookkeeper.formats.entrylog.ledgersmap import ledger_sizes, map_bytes, read_map
from logwright.codec.bookkeeper.formats.journal import CODEC as JOURNAL
from logwright.codec.bookkeeper.formats.smallfiles import MARK_SIZE
from logwright.codec.bookkeeper.repair.databases import database_files, databases_of
from logwright.codec.bookkeeper.repair.survey import filler
from logwright.codec.bookkeeper.startup.entry_logger import location_of
from logwright.codec.bookkeeper.startup.index_file import START
from logwright.codec.bookkeeper.store import rocks, tree
from logwright.codec.bookkeeper.store.known import context_of, known_ledgers
from logwright.codec.bookkeeper.store.layout import LAYOUT
from logwright.codec.bookkeeper.store.tree import Tree
from logwright.codec.engine.repair import Change, OutputFile, Removed, RepairPlan
from logwright.codec.fault import UsageError
from logwright.codec.frames.codec import Part
from logwright.codec.frames.walk import ListedFile, Walk, good_frames
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent, cut
from logwright.codec.store.listing import Listing, Plan, PlannedFile
from logwright.codec.window import Zeros

Replacement = tuple[int, int, bytes]
"""Start and end of a frame, and the new frame; empty if it is removed."""


class BookieEdit(RepairPlan):
    """An edited bookie. See `codec.capability.Edit`."""

    def __init__(self, listing: Listing, plan: Plan, change: Change, options: Options) -> None:
        super().__init__(listing)
        self._plan, self._change, self._options = plan, change, options
        self._tree = Tree(listing, options.only(tree.OPTIONS))
        self._known = known_ledgers(self._tree)
        self._passwords: Passwords | None = options[digest.PASSWORD.name]
        self._logs: list[Int64s] = []
        """Ledger, entry, location, and whether it is kept, of all entries in entry logs."""
        self._replayed: list[Int64s] = []
        """Ledger and entry of the entries that a bookie replays from its journals."""
        self._counted: set[tuple[int, int]] = set()
        """The entries that are counted as changed: an entry may have several copies."""
        self._removed: set[str] = set()
        """The files of databases that are made again."""

    def outputs(self) -> Iterator[OutputFile]:
        changed: dict[str, Sequence[Extent]] = {}
        for file in self._plan.files:
            if file.codec == tree.ENTRY_LOG:
                changed |= self._edited_log(file)
        shifts: dict[str, list[Replacement]] = {}
        for number in range(len(self._tree.journals)):
            marked = dict(self._tree.marked(number))
            for _, name in self._tree.journal_files(self._tree.journals[number]):
                shifts[name] = self._edited_journal(name, marked.get(name, -1))
                if shifts[name]:
                    changed[name] = self._spliced(name, [*shifts[name]], padded=True)
            changed |= self._moved_marks(number, shifts)
        changed |= self._edited_index()
        kept = np.concatenate([np.empty((0, 4), np.int64), *self._logs])
        kept = np.concatenate([kept[kept[:, 3] == 1][:, :2], *self._replayed])
        self.rows = len(np.unique(kept, axis=0))
        if changed:
            self.before_you_start.append(
                "edit all bookies of the ledgers' ensembles: clients and autorecovery read any copy of an entry"
            )
        for name in LAYOUT.order({*self.sizes, *changed} - (self._removed - changed.keys())):
            pieces = changed.get(name)
            yield (
                self.unchanged(name)
                if pieces is None
                else OutputFile(name, pieces, name if name in self.sizes else None)
            )

    # Frames

    def _parts(self, name: str, codec: Any) -> Iterator[tuple[Part, pa.RecordBatch, Int64s]]:
        """Yield the entries of a file, with the columns that the change reads, and the sizes of their digests."""
        context = context_of(codec, name, self._options, self._known)
        for window, frames in good_frames(
            Walk(ListedFile(self.listing, name, self.sizes[name]), codec, context)
        ):
            part = Part.main(window, frames)
            sizes = codec.digest_sizes(part, context)
            entry = part.head["entry_id"].astype(np.int64) >= 0
            if not entry.any():
                continue
            part = part.pick(entry)
            own = [column for column in self._change.columns if column != "file"]
            rows = codec.batch(part, own or ["position"], context)
            if "file" in self._change.columns:
                rows = rows.append_column("file", pa.repeat(name, len(part)))
            yield part, rows, sizes[entry]

    def _changes(
        self, name: str, part: Part, rows: pa.RecordBatch, sizes: Int64s
    ) -> tuple[list[Replacement], Bools]:
        """Return the changed frames of a part, and which of its entries are dropped."""
        drop = self._change.drops(rows)
        redact = self._change.redacts(rows) & ~drop
        out = []
        for i in (drop | redact).nonzero()[0].tolist():
            start, stop = int(part.start[i]) + part.offset, int(part.end[i]) + part.offset
            new = b""
            if redact[i]:
                content = part.data[int(part.start[i]) + 4 : int(part.end[i])].tobytes()
                new = self._redacted(name, start, content, int(sizes[i]))
            out.append((start, stop, new))
            ids = int(part.head["ledger_id"][i]), int(part.head["entry_id"][i])
            count = int(ids not in self._counted)
            self._counted.add(ids)
            lost = entry_range(*ids, ids[1])
            self.cut.append(
                Removed.edited(name, start, stop, count * int(drop[i]), count * int(redact[i]), lost)
            )
        return out, drop

    def _redacted(self, name: str, start: int, content: bytes, size: int) -> bytes:
        """Return the frame of an entry with another payload."""
        ledger = int.from_bytes(content[:8], "big")
        payload = self._change.values["payload"] or b""
        if size < 0:
            raise UsageError(
                f"the digest of the entry at byte {start} of {name} is unknown, so its payload is too",
                advice="Pass digestType, or the password of the ledger",
            )
        if len(payload) > len(content) - HEADER - size:
            raise UsageError(
                f"the entry at byte {start} of {name} has no room for the new payload",
                advice="Set a payload that is not longer than the stored one, or drop the entry",
            )
        data = content[:HEADER] + payload
        password = None if self._passwords is None else self._passwords.of(ledger)
        keys = self._known.master_keys(ledger) if size == HMAC and password is not None else frozenset()
        if keys and digest.master_key(password or b"") not in keys:
            text = (
                f"the password of ledger {ledger} is wrong: the bookie has another master key of the ledger"
            )
            raise UsageError(text, advice="Pass the right password, or drop the entry")
        if size == HMAC and password is None:
            text = f"the HMAC of the entry at byte {start} of {name} needs the password of ledger {ledger}"
            raise UsageError(text, advice="Pass the option passwd, or drop the entry")
        entry = content[:HEADER] + digest.digest_of(data, size, password) + payload
        return len(entry).to_bytes(4, "big") + entry

    def _spliced(self, name: str, changes: Sequence[Replacement], *, padded: bool) -> list[Extent]:
        """Return a file with changed frames. `padded`: zeros at its end keep its size."""
        out: list[Extent] = []
        at = gone = 0
        for start, stop, new in changes:
            out += [Copy(name, at, start), new]
            gone += stop - start - len(new)
            at = stop
        out.append(Copy(name, at, self.sizes[name]))
        return [*(piece for piece in out if len(piece)), *([Zeros(gone)] if padded and gone else [])]

    # Entry logs

    def _edited_log(self, file: PlannedFile) -> dict[str, Sequence[Extent]]:
        """Return a log with its changed entries and its ledgers map, if any entry is changed."""
        changes: list[Replacement] = []
        ledgers, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        number = tree.log_id(file.name.rpartition("/")[2])
        for part, rows, digests in self._parts(file.name, LOG):
            replaced, dropped = self._changes(file.name, part, rows, digests)
            size = part.end - part.start
            at = np.searchsorted(part.start + part.offset, [start for start, _, _ in replaced])
            size[at] = [len(new) for _, _, new in replaced]
            ledger, entry = (part.head[field].astype(np.int64) for field in ("ledger_id", "entry_id"))
            ledgers.append(ledger[~dropped])
            sizes.append(size[~dropped])
            if number is not None:
                place = location_of(number, 0) + part.start + part.offset + 4
                self._logs.append(np.stack((ledger, entry, place, ~dropped), axis=1))
            changes += [(start, stop, new + filler(stop - start - len(new))) for start, stop, new in replaced]
        if not changes:
            return {}
        pieces = self._spliced(file.name, changes, padded=False)
        return {file.name: self._with_map(file.name, pieces, np.concatenate(ledgers), np.concatenate(sizes))}

    def _with_map(self, name: str, pieces: list[Extent], ledgers: Int64s, sizes: Int64s) -> Sequence[Extent]:
        """Return a log with a ledgers map of its entries, if it has a map."""
        file = ListedFile(self.listing, name, self.sizes[name])
        old = read_map(file.pread, file.size)
        if old is None or not old.offset or old.error:
            return pieces
        in_file = ledger_sizes(ledgers, sizes)
        place = old.offset if in_file else 0
        head = LOG_HEADER.pack(
            {"version": old.version, "ledgers_map_offset": place, "ledgers_count": len(in_file)}
        )
        new_map = map_bytes(in_file)
        tail: list[Extent] = [new_map]
        if rocks.is_direct_log(self.listing, name, self.sizes[name]):
            end = old.offset + len(new_map)
            tail += [bytes((FILL,)) * (-end % BLOCK), Zeros(self.sizes[name] - end - -end % BLOCK)]
        body = [*_cut(pieces, len(head), old.offset)]
        return [piece for piece in (head, *body, *tail) if len(piece)]

    # Journals

    def _edited_journal(self, name: str, replayed: int) -> list[Replacement]:
        """Return the changed entries. The bookie replays a journal from the byte `replayed` on; -1: not at all."""
        changes: list[Replacement] = []
        for part, rows, digests in self._parts(name, JOURNAL):
            replaced, dropped = self._changes(name, part, rows, digests)
            changes += replaced
            kept = ~dropped & (replayed >= 0) & (part.start + part.offset >= replayed)
            ids = [part.head[field].astype(np.int64)[kept] for field in ("ledger_id", "entry_id")]
            self._replayed.append(np.stack(ids, axis=1))
        return changes

    def _moved_marks(self, number: int, shifts: dict[str, list[Replacement]]) -> dict[str, Sequence[Extent]]:
        """Return the lastMark files of a journal directory whose journal is shorter before the mark."""
        names = dict(self._tree.journal_files(self._tree.journals[number]))
        suffix = f".{number}" if len(self._tree.journals) > 1 else ""
        out: dict[str, Sequence[Extent]] = {}
        for place in self._tree.ledgers:
            path = f"{place.prefix}{tree.LAST_MARK}{suffix}"
            if self.sizes.get(path, 0) < MARK_SIZE:
                continue
            data = self.listing.read(path, 0, MARK_SIZE)
            journal, offset = (int.from_bytes(data[at : at + 8], "big", signed=True) for at in (0, 8))
            gone = sum(
                stop - start - len(new)
                for start, stop, new in shifts.get(names.get(journal, ""), ())
                if start < offset
            )
            if gone:
                mark = data[:8] + (offset - gone).to_bytes(8, "big")
                out[path] = [mark, Copy(path, MARK_SIZE, self.sizes[path])]
        return out

    # The index

    def _edited_index(self) -> dict[str, Sequence[Extent]]:
        """Return the index files of ledgers with removed entries. The location becomes that of another copy, or 0."""
        rows = np.concatenate([np.empty((0, 4), np.int64), *self._logs])
        dropped = rows[rows[:, 3] == 0]
        if not len(dropped):
            return {}
        if self._tree.storage == tree.DB:
            return self._edited_databases(rows)
        out: dict[str, Sequence[Extent]] = {}
        for ledger in np.unique(dropped[:, 0]).tolist():
            name = self._tree.index_files.get(ledger)
            if name is None:
                continue
            kept, gone = _by_fate(rows[rows[:, 0] == ledger])
            data = self.listing.read(name, START, self.sizes[name] - START)
            slots = np.frombuffer(data[: len(data) // 8 * 8], ">i8").copy()
            for slot in np.flatnonzero(np.isin(slots, list(gone))).tolist():
                slots[slot] = kept.get(gone[int(slots[slot])], 0)
            out[name] = [Copy(name, 0, START), slots.tobytes() + data[len(slots) * 8 :]]
        return out

    def _edited_databases(self, rows: Int64s) -> dict[str, Sequence[Extent]]:
        """Return the RocksDB databases with locations of removed entries, made again without these."""
        out: dict[str, Sequence[Extent]] = {}
        if not rocks.available():
            self.before_you_start.append(
                "The RocksDB index still lists the removed entries: the package rocksdict is not installed. Rebuild it: logwright rebuild."
            )
            return out
        for databases in databases_of(self.listing, self._tree):
            changed = False
            for ledger, (entries, locations) in databases.locations.items():
                kept, gone = _by_fate(rows[rows[:, 0] == ledger])
                for i in np.flatnonzero(np.isin(locations, list(gone))).tolist():
                    changed, locations[i] = True, kept.get(int(entries[i]), 0)
                listed = locations != 0
                databases.locations[ledger] = entries[listed], locations[listed]
            if changed:
                folder = databases.folder(tree.LOCATIONS)
                self._removed |= {name for name in self.sizes if name.startswith(folder)}
                out |= database_files(folder, rocks.written_locations(databases.locations))
        return out


def _by_fate(rows: Int64s) -> tuple[dict[int, int], dict[int, int]]:
    """Return the location of each entry of a ledger that is kept, and the entry at each location that is not."""
    kept = {int(entry): int(place) for _, entry, place, keep in rows if keep}
    return kept, {int(place): int(entry) for _, entry, place, keep in rows if not keep}


def _cut(pieces: Sequence[Extent], start: int, stop: int) -> Iterator[Extent]:
    """Yield the bytes `[start, stop)` of a file that consists of pieces."""
    at = 0
    for piece in pieces:
        yield cut(piece, max(start - at, 0), max(stop - at, 0))
        at += len(piece)
