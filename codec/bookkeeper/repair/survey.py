"""Survey the files of a bookie: undamaged entries and records, and the damaged ranges between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.bookkeeper.formats import digest, journal
from logwright.codec.bookkeeper.formats.entries import entry_range
from logwright.codec.bookkeeper.formats.entrylog import codec as entrylog
from logwright.codec.bookkeeper.formats.entrylog.layout import HEADER_SIZE
from logwright.codec.bookkeeper.repair.databases import Databases, databases_of
from logwright.codec.bookkeeper.startup import journal as system_journal
from logwright.codec.bookkeeper.startup.errors import JavaError, io_error
from logwright.codec.bookkeeper.startup.index_file import opened
from logwright.codec.bookkeeper.store import rocks, tree
from logwright.codec.bookkeeper.store.keys import MasterKeys
from logwright.codec.bookkeeper.store.known import KnownLedgers, context_of, known_ledgers
from logwright.codec.bookkeeper.store.tree import Tree
from logwright.codec.columns import fixed_at
from logwright.codec.engine.repair import Removed
from logwright.codec.fault import Severity
from logwright.codec.frames.codec import FramedCodec, Part
from logwright.codec.frames.scanner import HEADER
from logwright.codec.frames.walk import Hole, ListedFile, Walk
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing
from logwright.codec.store.overlay import Overlay


@dataclass
class SurveyedFile:
    """An entry log or a journal.

    `ledger`, `entry`, `start`, `end` and `length` describe its undamaged entries and records, in order. `bad` are the damaged
    ranges, in order.
    """

    name: str
    size: int
    ledger: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    entry: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    start: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    end: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    length: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    bad: list[tuple[int, int]] = field(default_factory=list)
    removed: list[Removed] = field(default_factory=list)
    header: bool = False
    """Whether the header of the file is undamaged."""
    boundaries: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    """The ends of all undamaged frames, also of the header and of paddings."""

    @property
    def shift(self) -> int:
        """How far a repair moves the entries of an entry log, to make room for a header of which bytes are missing."""
        return max(HEADER_SIZE - int(self.start[0]), 0) if len(self.start) else 0

    def is_mark(self, offset: int) -> bool:
        """Return whether a bookie may have written this offset to lastMark: of a record, of the end, or of a zero length that it has read."""
        ends = self.boundaries
        return offset <= 0 or offset in ends or bool(len(ends) and offset == ends[-1] + 4)

    def end_at(self, stop: int) -> None:
        """Drop the entries and ranges after this position."""
        kept = self.end <= stop
        lost = [
            int(np.count_nonzero(self.entry[~kept] >= 0)),
            *(removed.rows_lost for removed in self.removed),
        ]
        rows = None if None in lost else sum(filter(None, lost))
        self.ledger, self.entry, self.start, self.end, self.length = (
            values[kept] for values in (self.ledger, self.entry, self.start, self.end, self.length)
        )
        self.bad = [(stop, self.size)]
        why = "it follows the first damage of the file, or of an earlier journal"
        self.removed = [Removed(self.name, stop, self.size - stop, why, rows_lost=rows)]


def survey_file(
    listing: Listing,
    name: str,
    size: int,
    codec: FramedCodec,
    options: Options,
    known: KnownLedgers,
    copy: int,
) -> SurveyedFile:
    """Read an entry log or a journal."""
    out = SurveyedFile(name, size)
    context = context_of(codec, name, options, known)
    blocks: list[tuple[Int64s, ...]] = []
    ends: list[Int64s] = []
    for item in Walk(ListedFile(listing, name, size), codec, context):
        if isinstance(item, Hole):
            fault = item.fault
            if fault.severity is not Severity.INFO:
                out.bad.append((fault.offset, fault.offset + fault.length))
                out.removed.append(Removed.damaged(name, item.fault_if_removed(codec, context), copy))
            continue
        window, frames = item.window, item.frames
        for fault in item.faults:
            if fault.severity is Severity.ERROR:
                out.bad.append((fault.offset, fault.offset + fault.length))
                out.removed.append(Removed.damaged(name, fault, copy))
        ends.append(frames.end + window.offset)
        out.header = out.header or bool((frames.header["frame_kind"] == HEADER).any())
        part = Part.main(window, frames)
        wrong = codec.refused(part, context)
        for i, fault in wrong:
            ledger, entry = part.head["ledger_id"][i], part.head["entry_id"][i]
            lost = entry_range(ledger, entry, entry)
            start = int(part.start[i]) + window.offset
            out.bad.append((start, int(part.end[i]) + window.offset))
            out.removed.append(
                Removed(name, start, fault.length, f"{fault.kind}: {fault.detail}", copy, 1, lost)
            )
        if wrong:
            part = part.pick(np.delete(np.arange(len(part)), [i for i, _ in wrong]))
        if len(part):
            blocks.append(_columns(part))
    if blocks:
        out.ledger, out.entry, out.start, out.end, out.length = (
            np.concatenate([block[i] for block in blocks]) for i in range(5)
        )
    if ends:
        out.boundaries = np.concatenate(ends)
    out.bad.sort()
    return out


def _columns(part: Part) -> tuple[Int64s, ...]:
    ids = [part.head[name].astype(np.int64) for name in ("ledger_id", "entry_id")]
    at = np.minimum(part.start + 28, len(part.data) - 8)
    length = fixed_at(part.data, at, ">i8").astype(np.int64)
    return ids[0], ids[1], part.start + part.offset, part.end + part.offset, length


@dataclass
class LedgerState:
    """The state of a ledger by its index and the journals. `headed`: its index file has a readable header; `header_key` and `header_lac`:
    the master key and the explicit last-add-confirmed in it, which those of a journal replace in `key` and `lac`."""

    key: bytes | None = None
    fenced: bool = False
    lac: bytes | None = None
    headed: bool = False
    header_key: bytes = b""
    header_lac: bytes | None = None


class Survey:
    """The files of one bookie."""

    def __init__(self, listing: Listing, options: Options, copy: int) -> None:
        self.listing, self.copy = listing, copy
        self.tree = Tree(listing, options.only(tree.OPTIONS))
        own = options.only(digest.OPTIONS)
        sizes, known_by_bookie = self.tree.sizes, known_ledgers(self.tree)
        self.logs = [
            (number, survey_file(listing, name, sizes[name], entrylog.CODEC, own, known_by_bookie, copy))
            for number, name in self.tree.logs
        ]
        self.journals = [
            [
                (number, survey_file(listing, name, sizes[name], journal.CODEC, own, known_by_bookie, copy))
                for number, name in self.tree.journal_files(place)
            ]
            for place in self.tree.journals
        ]
        self.passwords = own["passwd"]
        self.ledgers: dict[int, LedgerState] = {}
        self.index: dict[int, tuple[Int64s, Int64s]] = {}
        """The entries and locations in the index file of each ledger."""
        self.databases: list[Databases] = []
        """The databases of DbLedgerStorage. The list is empty without the package rocksdict."""
        self._read_index()
        self._read_records()
        known = {ledger: known_by_bookie.master_keys(ledger) for ledger in self.ledgers}
        self.keys = MasterKeys(known, self.passwords)
        for ledger, state in self.ledgers.items():
            state.key = self.keys.right(ledger) or state.key

    def _read_index(self) -> None:
        if self.tree.storage == tree.DB:
            self.databases = databases_of(self.listing, self.tree) if rocks.available() else []
            for database in self.databases:
                for ledger, data in database.ledgers.items():
                    self.ledgers[ledger] = LedgerState(data.key or None, data.fenced, data.lac, headed=True)
                    if ledger in database.locations:
                        self.index[ledger] = database.locations[ledger]
            return
        overlay = Overlay(self.listing)
        for ledger, name in self.tree.index_files.items():
            file, error = opened(overlay, name)
            state = self.ledgers[ledger] = LedgerState()
            if error is None:
                state.key, state.fenced, state.headed = file.key, file.fenced(), True
                state.lac = state.header_lac = file.lac
                state.header_key = file.key or b""
            if not file.readable:
                continue
            stored = file.stored()
            entries = np.flatnonzero(stored)
            self.index[ledger] = entries, stored[entries]

    def _read_records(self) -> None:
        """Collect master keys, fences and explicit last-add-confirmed of the journals. The first key of a ledger counts."""
        keyed: set[int] = set()
        for files in self.journals:
            for _, file in files:
                for i in np.flatnonzero(file.entry < 0).tolist():
                    ledger, kind = int(file.ledger[i]), int(file.entry[i])
                    state = self.ledgers.setdefault(ledger, LedgerState())
                    if kind == journal.FENCE:
                        state.fenced = True
                        continue
                    at = int(file.start[i]) + 24
                    data = self.listing.read(file.name, at, int(file.end[i]) - at)
                    if kind == journal.MASTER_KEY and ledger not in keyed:
                        keyed.add(ledger)
                        state.key = data
                    elif kind == journal.EXPLICIT_LAC and self.is_lac(ledger, data):
                        state.lac = data

    def is_lac(self, ledger: int, data: bytes) -> bool:
        """Return whether an explicit last-add-confirmed has the right digest, as far as that can be checked."""
        password = None if self.passwords is None else self.passwords.of(ledger)
        return digest.lac_matches(ledger, data, len(data) - digest.LAC_SIZE, password)

    def end_at_damage(self) -> None:
        """Let each entry log, and the journals of each directory, end before their first damage."""
        for _, file in self.logs:
            if file.bad:
                file.end_at(file.bad[0][0])
        for files in self.journals:
            damaged = False
            for _, file in files:
                if damaged or file.bad:
                    file.end_at(0 if damaged else file.bad[0][0])
                    damaged = True

    def entries(self) -> Iterator[tuple[SurveyedFile, Int64s]]:
        """Yield the files, entry logs first, each with the indices of its entries."""
        for _, file in self.logs:
            yield file, np.arange(len(file.entry))
        for files in self.journals:
            for _, file in files:
                yield file, np.flatnonzero(file.entry >= 0)

    def replays(self, file: SurveyedFile, position: int, heap: int) -> bool:
        """Return whether a bookie that starts at a position reads all undamaged records of a journal without an error."""
        starts: list[int] = []

        def process(version: int, at: int, body: bytes) -> None:
            needed = journal.FIRST_VERSIONS.get(int.from_bytes(body[8:16], "big", signed=True), 0)
            if version < needed:
                raise io_error("the version of the journal is too old for this record")
            starts.append(at)

        reader = system_journal.Reader(self.listing, file.name, file.size)
        try:
            system_journal.scan(reader, position, process, heap, skip_invalid=False)
        except JavaError:
            return False
        good = file.start[file.start >= position]
        return bool(starts == good.tolist())


def filler(size: int) -> bytes:
    """Return bytes that every reader of entry logs skips: a frame of ledger -1, or bytes 0xF0 if there is no room for one."""
    if size < 12:
        return b"\xf0" * size
    return (size - 4).to_bytes(4, "big") + b"\xff" * 8 + bytes(size - 12)
