"""Build the files of a bookie, or single ones, from the descriptions of their structures.

The bookie was killed: it has two journal, two ledger and two index directories. Its journals have versions 4 to 6. Its entry logs have
ledgers maps or none, one was compacted, and a compaction was interrupted. Entries after lastMark are only in the journals. Digests, locations
and padding are computed here, without logwright's reader, writer or replay.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c

from logwright.codec.bookkeeper.formats.entrylog.layout import HEADER as LOG_HEADER
from logwright.codec.bookkeeper.formats.entrylog.layout import HEADER_SIZE, MARKER
from logwright.codec.bookkeeper.formats.entrylog.ledgersmap import map_bytes
from logwright.codec.bookkeeper.formats.index import INDEX
from logwright.codec.bookkeeper.formats.journal import (
    EXPLICIT_LAC,
    FENCE,
    MASTER_KEY,
    PADDING,
    PADDING_MASK,
    RECORD,
)
from logwright.codec.bookkeeper.formats.journal import HEADER as JOURNAL_HEADER
from logwright.codec.bookkeeper.formats.smallfiles import MARK
from logwright.codec.bookkeeper.store.tree import index_path
from logwright.corpora.rng import Rng, text

PASSWORD = "swordfish"
"""The password of ledgers with HMAC digests. The others have an empty one."""
_TYPES = ("CRC32C", "CRC32", "HMAC", "DUMMY")
_IDS = (0, 1, 0x102, 3, (1 << 33) + 4, 5)
"""The first ledger of each client. The next one has `_NEXT` more."""
_NEXT = 0x200
_STRIPED = 4
"""The client whose entries are striped: this bookie has every third one."""
_ALIGNMENT, _BLOCK = 512, 4096
_OLD = 3
"""The client of an old release: it sends no explicit last-add-confirmed, and its index files have version 0."""
_JOURNALS, _LEDGERS, _INDEXES = ("journal-0", "journal-1"), ("ledger-0", "ledger-1"), ("index-0", "index-1")
_FIRST_JOURNAL = 0x18BCFE56800
_LOG_SHARE, _FILES = 150, 4
"""Bytes of an entry, and the number of files in a directory, on average."""
_PAGE = 8192


@dataclass
class Ledger:
    """A ledger while its client writes it. `lac`: the explicit last-add-confirmed. It is fenced after `fence` more entries."""

    id: int
    client: int
    fence: int
    entry: int = 0
    length: int = 0
    fenced: bool = False
    lac: int = -1
    keyed: bool = False

    @property
    def type(self) -> str:
        return _TYPES[self.client % len(_TYPES)]

    @property
    def password(self) -> bytes:
        return PASSWORD.encode() if self.type == "HMAC" else b""

    @property
    def key(self) -> bytes:
        return hashlib.sha1(b"ledger" + self.password).digest()

    def digest(self, *parts: bytes) -> bytes:
        data = b"".join(parts)
        if self.type == "HMAC":
            return hmac.digest(hashlib.sha1(b"mac" + self.password).digest(), data, "sha1")
        sums = {"CRC32C": (crc32c, 4), "CRC32": (zlib.crc32, 8)}
        return sums[self.type][0](data).to_bytes(sums[self.type][1], "big") if self.type in sums else b""


@dataclass(frozen=True)
class Entry:
    """An entry: its row, and its bytes from the ledger id on."""

    row: dict[str, Any]
    content: bytes

    @property
    def id(self) -> tuple[int, int]:
        return self.row["ledger_id"], self.row["entry_id"]

    @property
    def frame(self) -> bytes:
        return len(self.content).to_bytes(4, "big") + self.content


def _numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "big", signed=True) for value in values)


class Clients:
    """Generates the entries of several ledgers at a time."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._words = text(rng, 1 << 12)
        self.ledgers: list[Ledger] = []
        self._current = [self._open(client, identity) for client, identity in enumerate(_IDS)]

    def _open(self, client: int, identity: int) -> Ledger:
        ledger = Ledger(identity, client, self._rng.between(8, 60))
        self.ledgers.append(ledger)
        return ledger

    def next(self) -> tuple[Ledger, Entry]:
        """Return the next entry. A ledger that was fenced is followed by a new one."""
        client = self._rng.below(len(self._current))
        ledger = self._current[client]
        if ledger.fenced:
            ledger = self._current[client] = self._open(client, ledger.id + _NEXT)
        at = self._rng.below(len(self._words) >> 1)
        payload = self._words[at : at + self._rng.below(160)] if self._rng.below(10) else b""
        ledger.length += len(payload)
        lac = ledger.entry - 1 if self._rng.below(3) else max(-1, ledger.entry - self._rng.between(1, 5))
        head = _numbers(ledger.id, ledger.entry, lac, ledger.length)
        row = {
            "ledger_id": ledger.id, "entry_id": ledger.entry, "last_add_confirmed": lac, "length": ledger.length, "payload": payload,
        }  # fmt: skip
        entry = Entry(row, head + ledger.digest(head, payload) + payload)
        ledger.entry += 3 if client == _STRIPED else 1
        if client == _STRIPED:
            # The entries on other bookies count for the length too.
            ledger.length += self._rng.below(300)
        ledger.fence -= 1
        return ledger, entry


@dataclass
class Journal:
    """The journals of one directory, the last one open. `rows` are the records, by file."""

    rng: Rng
    limit: int
    versions: tuple[int, ...] = (4, 5, 6)
    files: list[tuple[int, bytearray]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def version(self) -> int:
        return self.versions[min(len(self.files), len(self.versions)) - 1]

    @property
    def end(self) -> tuple[int, int]:
        """The id of the last file, and the position of its end."""
        number, data = self.files[-1]
        return number, len(data)

    def add(self, ledger: Ledger, entry: Entry) -> None:
        """Write an entry, after the master key if it is the first record of its ledger, and occasionally records of other kinds."""
        if not self.files or len(self.files[-1][1]) > self.limit:
            self.roll()
        if not ledger.keyed:
            ledger.keyed = True
            self._meta(ledger, MASTER_KEY, "master_key", ledger.key)
        self.files[-1][1].extend(entry.frame)
        self.rows.append({**entry.row, "kind": "entry"})
        if self.version >= 6 and ledger.client != _OLD and not self.rng.below(6):
            ledger.lac = max(ledger.lac, entry.id[1])
            lac = _numbers(ledger.id, ledger.lac)
            self._meta(ledger, EXPLICIT_LAC, "explicit_lac", lac + ledger.digest(lac))
        if ledger.fence <= 0 and not ledger.fenced:
            ledger.fenced = True
            self._meta(ledger, FENCE, "fence", None)
        if self.rng.below(3):
            self.flush()

    def _meta(self, ledger: Ledger, code: int, kind: str, data: bytes | None) -> None:
        body = b"" if data is None else len(data).to_bytes(4, "big") + data
        self.files[-1][1].extend(RECORD.pack({"ledger_id": ledger.id, "entry_id": code, "body": body}))
        self.rows.append({"ledger_id": ledger.id, "kind": kind})

    def flush(self) -> None:
        """End a flush group."""
        data = self.files[-1][1]
        left = -len(data) % _ALIGNMENT
        if self.version > 4 and left:
            size = left if left >= 8 else left + _ALIGNMENT
            data.extend(PADDING.pack({"length": PADDING_MASK, "pad_length": size - 8}).ljust(size, b"\0"))

    def roll(self) -> None:
        """Finish the last file, which keeps its preallocated zeros, and begin the next one."""
        if self.files:
            self.flush()
            data = self.files[-1][1]
            data.extend(bytes(-len(data) % _BLOCK + _BLOCK))
        number = self.files[-1][0] + 1 if self.files else _FIRST_JOURNAL
        self.files.append((number, bytearray()))
        head = JOURNAL_HEADER.pack({"version": self.version})
        self.files[-1][1].extend(head.ljust(512 if self.version > 4 else 8, b"\0"))


def close_log(data: bytearray, sizes: dict[int, int]) -> None:
    """Append the ledgers map, and write its position into the header."""
    at = len(data)
    data += map_bytes(sizes)
    head = LOG_HEADER.pack({"ledgers_map_offset": at, "ledgers_count": len(sizes)})
    data[: len(head)] = head


def log_head(version: int = 1) -> bytearray:
    return bytearray(LOG_HEADER.pack({"version": version}).ljust(HEADER_SIZE, b"\0"))


def direct_log(entries: list[Entry], rng: Rng) -> bytes:
    """Return an entry log of the direct-I/O writer: aligned flushes with fillers, and preallocated zeros at its end."""
    data = log_head()
    data += MARKER.pack({"entry_size": _BLOCK - HEADER_SIZE - 4, "ledger_id": -1})
    data += bytes(_BLOCK - len(data))
    sizes: dict[int, int] = {}
    for entry in entries:
        data += entry.frame
        sizes[entry.id[0]] = sizes.get(entry.id[0], 0) + len(entry.frame)
        if not rng.below(20):
            data += b"\xf0" * (-len(data) % _BLOCK)
    data += b"\xf0" * (-len(data) % _BLOCK)
    if sizes:
        close_log(data, sizes)
        data += b"\xf0" * (-len(data) % _BLOCK)
    return bytes(data) + bytes(_BLOCK)


class EntryLogs:
    """The entry logs of a bookie, in turn in its directories, and the location of each entry."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.data: list[bytearray] = []
        self.entries: list[list[Entry]] = []
        self.locations: dict[tuple[int, int], int] = {}

    def add(self, entry: Entry) -> None:
        if not self.data or len(self.data[-1]) > self.limit:
            self._finish()
            # The first log is of an old release.
            self.data.append(log_head(0 if not self.data else 1))
            self.entries.append([])
        self.locations[entry.id] = len(self.data) - 1 << 32 | len(self.data[-1]) + 4
        self.data[-1] += entry.frame
        self.entries[-1].append(entry)

    def _finish(self) -> None:
        """Append the ledgers map. The first log cannot have one; the third one was open when the bookie was killed."""
        number = len(self.data) - 1
        if number >= 0 and number not in (0, 2):
            close_log(self.data[number], self.sizes(number))

    def sizes(self, number: int) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for entry in self.entries[number]:
            sizes[entry.id[0]] = sizes.get(entry.id[0], 0) + len(entry.frame)
        return sizes

    def compact(self, number: int) -> None:
        """Copy the live entries of a log into a new one, by ledger and entry."""
        live = {entry.id: entry for entry in self.entries[number] if self.locations[entry.id] >> 32 == number}
        self._finish()
        self.data.append(log_head())
        self.entries.append([])
        for _, entry in sorted(live.items()):
            self.locations[entry.id] = len(self.data) - 1 << 32 | len(self.data[-1]) + 4
            self.data[-1] += entry.frame
            self.entries[-1].append(entry)
        self._finish()

    def file(self, number: int) -> str:
        return f"{_LEDGERS[number % len(_LEDGERS)]}/current/{number:x}.log"


class Script:
    """A bookie with `rows` entries."""

    def __init__(self, rng: Rng, rows: int) -> None:
        self.clients = Clients(rng)
        size = rows * _LOG_SHARE // _FILES
        self.journals = [Journal(rng, size // 2) for _ in _JOURNALS]
        self.logs = EntryLogs(HEADER_SIZE + size * 3 // 4)
        self.entries: dict[tuple[int, int], Entry] = {}
        self.files: dict[str, bytes] = {}
        self.place: dict[tuple[int, int], str] = {}
        """The file with the copy of each entry that counts."""
        marked = rows * 4 // 5
        for number in range(rows):
            if number == marked:
                self._checkpoint()
            ledger, entry = self.clients.next()
            self.entries[entry.id] = entry
            journal = self.journals[ledger.id % 2]
            journal.add(ledger, entry)
            self.place[entry.id] = f"{_JOURNALS[ledger.id % 2]}/current/{journal.end[0]:x}.txn"
            if number < marked:
                self.logs.add(entry)
                if not rng.below(16):
                    self.logs.add(entry)
        for name, journal in zip(_JOURNALS, self.journals, strict=True):
            if not journal.files:
                journal.roll()
            journal.flush()
            for identity, data in journal.files:
                self.files[f"{name}/current/{identity:x}.txn"] = bytes(data) + bytes(-len(data) % _BLOCK)
        self._put_small()

    def _checkpoint(self) -> None:
        """Write entry logs and the index of all entries so far, and lastMark."""
        logs = self.logs
        compacted = 1 if len(logs.data) > 3 else -1
        if compacted >= 0:
            logs.compact(compacted)
        for number, data in enumerate(logs.data):
            if number != compacted:
                self.files[logs.file(number)] = bytes(data)
        for identity, location in logs.locations.items():
            self.place[identity] = logs.file(location >> 32)
        last = len(logs.data)
        if last:
            # The next log is preallocated, and a compaction into the one after it was interrupted.
            self.files[logs.file(last)] = b""
            partial = log_head() + b"".join(entry.frame for entry in logs.entries[0][:2])
            self.files[f"{logs.file(last + 1)}.compacting"] = bytes(partial)
            for name in _LEDGERS:
                self.files[f"{name}/current/lastId"] = b"%x\n" % (last + 1)
        for ledger in self.clients.ledgers:
            if ledger.keyed:
                name = _INDEXES[ledger.id % len(_INDEXES)]
                self.files[f"{name}/current/{index_path(ledger.id)}"] = self._index(ledger)
        for number, journal in enumerate(self.journals):
            if journal.files:
                journal_id, offset = journal.end
                for name in _LEDGERS:
                    mark = MARK.pack({"journal_id": journal_id, "offset": offset})
                    self.files[f"{name}/current/lastMark.{number}"] = mark

    def _index(self, ledger: Ledger) -> bytes:
        """Return the index of a ledger."""
        lac = b"" if ledger.lac < 0 else _numbers(ledger.id, ledger.lac)
        lac += ledger.digest(lac) if lac else b""
        version = int(ledger.client != _OLD)
        places = {entry: at for (owner, entry), at in self.logs.locations.items() if owner == ledger.id}
        slots = -(-(max(places) + 1) * 8 // _PAGE) * _PAGE // 8
        used = 4 + 4 + 4 + len(ledger.key) + 4 + (4 + len(lac) if version else 0)
        return INDEX.pack(
            {
                "version": version, "master_key_length": len(ledger.key), "master_key": ledger.key, "state_bits": int(ledger.fenced),
                "explicit_lac": {"data_length": len(lac), "data": lac} if version else None, "padding": bytes(HEADER_SIZE - used),
                "locations": [{"location": places.get(entry, 0)} for entry in range(slots)], "rest": b"",
            }
        )  # fmt: skip

    def _put_small(self) -> None:
        ledgers, indexes = (
            "\t".join([str(len(names)), *(f"/data/{name}" for name in names)])
            for names in (_LEDGERS, _INDEXES)
        )
        fields = {
            "bookieHost": "10.0.0.1:3181", "journalDir": ",".join(f"/data/{name}" for name in _JOURNALS), "ledgerDirs": ledgers,
            "instanceId": "3a5b6c1e-0000-4000-8000-1234567890ab", "indexDirs": indexes,
        }  # fmt: skip
        lines = [f'{name}: "{value}"\n'.replace("\t", "\\t") for name, value in fields.items()]
        for name in (*_JOURNALS, *_LEDGERS, *_INDEXES):
            self.files[f"{name}/current/VERSION"] = "".join(["5\n", *lines]).encode()
        for name in _LEDGERS:
            self.files[f"{name}/current/BOOKIE_STATUS"] = b"1,READ_WRITE,1700000000000,false\n"
            self.files[f"{name}/current/DIRTY"] = b""

    # The expected rows

    def entry_rows(self) -> list[dict[str, Any]]:
        return [entry.row for _, entry in sorted(self.entries.items())]

    def journal_rows(self) -> list[dict[str, Any]]:
        return [row for journal in self.journals for row in journal.rows]

    def ledger_rows(self) -> Iterator[dict[str, Any]]:
        for ledger in sorted(self.clients.ledgers, key=lambda ledger: ledger.id):
            entries = [entry for identity, entry in sorted(self.entries.items()) if identity[0] == ledger.id]
            if not entries:
                continue
            first, last = entries[0].id[1], entries[-1].id[1]
            indexed = f"{_INDEXES[ledger.id % 2]}/current/{index_path(ledger.id)}" in self.files
            files = {self.place[entry.id] for entry in entries}
            yield {
                "ledger_id": ledger.id, "first_entry_id": first, "last_entry_id": last, "entries": len(entries),
                "gaps": last - first + 1 - len(entries), "bytes": sum(len(entry.row["payload"]) for entry in entries),
                "last_add_confirmed": max(ledger.lac, *(entry.row["last_add_confirmed"] for entry in entries)),
                "fenced": ledger.fenced, "master_key": True, "indexed": indexed, "files": sorted(files, key=_file_order),
            }  # fmt: skip


def _file_order(name: str) -> tuple[bool, int, str]:
    """Return a sort key: entry logs before journals, each by id."""
    base = name.rpartition("/")[2]
    return base.endswith(".txn"), 0 if base.endswith(".txn") else int(base.partition(".")[0], 16), name
