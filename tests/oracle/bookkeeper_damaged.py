"""Random bookies with random damage, and both answers to what a bookie does with them: ours and the real bookie's."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from golden_bookies import LAYOUT, SETTINGS, case

import logwright as lw
from logwright.codec.bookkeeper.formats.digest import HEADER, SIZES, digest_of, parse_digest_type
from logwright.codec.bookkeeper.formats.entrylog.ledgersmap import read_map
from logwright.codec.bookkeeper.startup.client import LedgerRead
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.startup.start import ServedBookie
from logwright.codec.option import Options
from logwright.readers.listing import open_listing, open_store
from logwright.roundtrip.oracles import bookkeeper as oracle

GOLDEN = (
    "dmg_base", "dmg_jbase", "meta_records", "meta_records_killed", "killed_flushed", "killed_torn_log", "killed_unflushed", "journals_two",
    "two_dirs_index_dir", "rolled_sorted", "log_per_ledger", "gaps_and_order", "journal_v4", "journal_rolled", "digests", "index_pages",
)  # fmt: skip
GOLDEN_DB = ("db_small", "db_killed", "db_two_dirs", "db_compacted")
VARIANTS = 10
"""The number of consecutive seeds that damage the same bookie."""
INTERLEAVED, SORTED, DB = "InterleavedLedgerStorage", "SortedLedgerStorage", "DbLedgerStorage"
CLASSES = {
    INTERLEAVED: f"org.apache.bookkeeper.bookie.{INTERLEAVED}",
    SORTED: f"org.apache.bookkeeper.bookie.{SORTED}",
    DB: "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
}
_FOLDERS = dict.fromkeys((".log", ".txn", "lastMark", "lastMark.0", "lastId", "VERSION"), ("/current",)) | {
    ".idx": ("",)
}
_RECORD = [
    "ledger_id",
    "entry_id",
    "last_add_confirmed",
    "length",
    "payload",
    "kind",
    "data",
    "digest_type",
    "digest",
]
_ROOTS = ("journalDirectories", "ledgerDirectories", "indexDirectories")
_LARGEST_OFFSET = (1 << 44) - 4096
_LARGE_LAC = 1 << 25
"""Hexadecimal digits of an explicit LAC that may not fit into a Java heap several times."""
Files = dict[str, bytes]


@dataclass(frozen=True)
class Bookie:
    """The files of a bookie, its settings, and its ledgers as a client knows them."""

    files: Files
    config: dict[str, Any]
    ledgers: tuple[oracle.Ledger, ...]
    instance: str
    damage: tuple[str, ...] = ()

    def place(self, home: Path) -> Path:
        """Write the files below `home`."""
        for name, data in self.files.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for folder in self.folders():
            (home / folder).mkdir(parents=True, exist_ok=True)
        return home

    def folders(self) -> list[str]:
        """Return the folders `current` of all directories."""
        kinds = (
            self.config.get(kind, default)
            for kind, default in zip(_ROOTS, ("journal", "ledger", ""), strict=True)
        )
        return [f"{name}/current/" for names in kinds for name in names.split(",") if name]

    @property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {name: self.config[name] for name in SETTINGS if name in self.config}
        kinds = {ledger.digest for ledger in self.ledgers}
        if len(kinds) == 1:
            options["digestType"] = next(iter(kinds))
        passwords = {ledger.ledger_id: ledger.password for ledger in self.ledgers}
        return {**options, "passwd": passwords, "instanceId": self.instance, "bookieId": oracle.BOOKIE_ID}


def files_of(home: Path) -> Files:
    return {
        str(path.relative_to(home)): path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()
    }


# Bookies


def rows(chance: random.Random) -> tuple[list[dict[str, Any]], list[oracle.Ledger]]:
    """Return random entries, and their ledgers. The entries of a ledger may have gaps; ledgers are interleaved."""
    ids = chance.sample([0, 1, 2, 7, 255, 256, 65535, 1 << 31, 1 << 40], chance.randrange(1, 5))
    digest = chance.choice(["CRC32C", "CRC32", "MAC", "DUMMY"])
    password = chance.randbytes(chance.choice([0, 2, 5]))
    following, out = dict.fromkeys(ids, 0), []
    longest = chance.choice([0, 10, 100, 900])
    for _ in range(chance.randrange(1, 60)):
        ledger = chance.choice(ids)
        payload = chance.randbytes(chance.randrange(longest + 1))
        out.append({"ledger_id": ledger, "entry_id": following[ledger], "payload": payload})
        following[ledger] += chance.choice([1, 1, 1, 1, 3])
    return out, [oracle.Ledger(i, digest, password, range(following[i] + 2)) for i in ids]


def write(home: Path, chance: random.Random, storage: str) -> Bookie:
    """Write a random bookie. Half of them are written by two calls, and half of them have several directories of a kind."""
    entries, ledgers = rows(chance)
    config: dict[str, Any] = {
        "ledgerStorageClass": CLASSES[storage], "logSizeLimit": chance.choice([2000, 5000, 1 << 20]),
        "pageSize": chance.choice([512, 8192]),
    }  # fmt: skip
    options: dict[str, Any] = {
        **{name: config[name] for name in SETTINGS}, "passwd": ledgers[0].password, "digestType": ledgers[0].digest,
        "instanceId": oracle.INSTANCE,
    }  # fmt: skip
    target, roots = home, {}
    if chance.random() < 0.5:
        roots = _roots(chance, storage)
        config |= {kind: ",".join(names) for kind, names in roots.items()}
        options |= {kind: ",".join(f"{home}/{name}" for name in names) for kind, names in roots.items()}
        target = home / roots["ledgerDirectories"][0]
    if chance.random() < 0.7:
        options["journalWriteData"] = True
    split = chance.choice([len(entries), len(entries) // 2]) or len(entries)
    lw.write(entries[:split], target, "bookkeeper.bookie", **options)
    if entries[split:]:
        lw.write(entries[split:], target, "bookkeeper.bookie", mode="append", **options)
    if chance.random() < 0.5:
        known = {"passwd": ledgers[0].password, "digestType": ledgers[0].digest}
        _divide_journals(home, chance, roots.get("journalDirectories", ["journal"]), known)
    for cookie in home.glob("*/current/VERSION"):
        cookie.write_text(cookie.read_text().replace(f"{home}/", ""))
    return Bookie(files_of(home), config, tuple(ledgers), oracle.INSTANCE)


def _roots(chance: random.Random, storage: str) -> dict[str, list[str]]:
    """Return the names of one to three journal and ledger directories, and those of index directories in some cases."""
    ledgers = chance.choice([1, 2, 3])
    indexes = chance.choice([0, 0, ledgers if storage == DB else chance.choice([1, 2])])
    counts = dict(zip(_ROOTS, (chance.choice([1, 2, 3]), ledgers, indexes), strict=True))
    return {
        kind: [f"{kind.removesuffix('Directories')}-{i}" for i in range(count)] for kind, count in counts.items() if count
    }  # fmt: skip


def _divide_journals(home: Path, chance: random.Random, names: list[str], known: dict[str, Any]) -> None:
    """Divide the records of the journals over all journal directories by ledger, and there over one or two journals of any version.

    The marks are before all records, or after some of them.
    """
    journals = sorted(home.glob("*/current/*.txn"), key=lambda path: int(path.stem, 16))
    records = [row for path in journals for row in lw.read(path, columns=_RECORD, **known).to_pylist()]
    first = int(journals[0].stem, 16)
    for path in (*journals, *home.glob("*/current/lastMark*")):
        path.unlink()
    for number, name in enumerate(names):
        own = [row for row in records if row["ledger_id"] % len(names) == number]
        at = chance.randrange(len(own) + 1)
        marks = [(0, 0)]
        for identity, part in enumerate((own[:at], own[at:]), first):
            if part:
                path = home / name / "current" / f"{identity:x}.txn"
                lw.write(
                    part, path, "bookkeeper.journal", journalFormatVersionToWrite=chance.choice([4, 5, 6])
                )
                marks += [(identity, 0), (identity, path.stat().st_size)]
        journal, offset = chance.choice(marks)
        file = f"lastMark.{number}" if len(names) > 1 else "lastMark"
        for folder in home.glob("ledger*/current"):
            if journal and chance.random() < 0.8:
                (folder / file).write_bytes(journal.to_bytes(8, "big") + offset.to_bytes(8, "big"))


def generated(home: Path, chance: random.Random) -> Bookie:
    """Generate a bookie that was killed, with two journal, ledger and index directories."""
    corpus = lw.generate(
        "bookkeeper.bookie",
        home,
        rows=chance.choice([20, 100, 300]),
        seed=chance.randrange(1 << 30),
        recipe="mixed",
    )
    options = dict(corpus.manifest["read_options"])
    for cookie in home.glob("*/current/VERSION"):
        text = cookie.read_text().replace("/data/", "").replace("10.0.0.1:3181", oracle.BOOKIE_ID)
        cookie.write_text(text.replace("3a5b6c1e-0000-4000-8000-1234567890ab", oracle.INSTANCE))
    digests = {
        row["ledger_id"]: row["digest_type"].replace("HMAC", "MAC")
        for row in lw.read(home, columns=["ledger_id", "digest_type"], **options).to_pylist()
    }
    ledgers = tuple(
        oracle.Ledger(ledger, digest, options["passwd"].get(str(ledger), "").encode(), range(90))
        for ledger, digest in digests.items()
    )
    config = {"ledgerStorageClass": CLASSES[chance.choice([INTERLEAVED, SORTED])]}
    config |= {kind: ",".join(f"{kind.removesuffix('Directories')}-{i}" for i in range(2)) for kind in _ROOTS}
    return Bookie(files_of(home), config, ledgers, oracle.INSTANCE)


def golden(name: str) -> Bookie:
    known = case(name)
    files = {
        path: data for path, data in files_of(known.path).items()
        if "/current/" in path and not path.endswith(("/LOCK", "/LOG"))
    }  # fmt: skip
    ledgers = tuple(
        oracle.Ledger(line["ledger"], line["digest"], bytes.fromhex(line["password_hex"]), range(line.get("entries_added", 60) + 30))
        for line in known.info["ledgers"]
    )  # fmt: skip
    cookie = next(data for path, data in files.items() if path.endswith("/VERSION")).decode()
    # A smaller buffer than the default flushes the header of a log that is still empty.
    config = {key: value for key, value in known.info["config"].items() if key != "writeBufferSizeBytes"}
    return Bookie(files, config, ledgers, cookie.partition('instanceId: "')[2].partition('"')[0])


@lru_cache(maxsize=4)
def intact(seed: int, db: bool = False) -> Bookie:
    chance = random.Random(f"bookie {seed}")
    if chance.random() < 0.35:
        return golden(chance.choice(GOLDEN_DB if db else GOLDEN))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "bookie")
        if not db and chance.random() < 0.25:
            return generated(home, chance)
        return write(home, chance, DB if db else chance.choice([INTERLEAVED, SORTED]))


# Damage


@dataclass
class Damager:
    """Changes the files of a bookie at random, and describes what it did."""

    files: Files
    chance: random.Random
    done: list[str] = field(default_factory=list)

    def run(self) -> None:
        kinds: list[Callable[[], None]] = [self.log] * 4 + [self.journal] * 5 + [self.index] * 4
        kinds += [self.mark] * 2 + [self.small, self.whole_file, self.whole_file]
        self.chance.choice(kinds)()

    def _of(self, suffix: str) -> str | None:
        # The texts of RocksDB's errors depend on its version.
        names = [
            name for name in self.files
            if name.endswith(suffix) and self.files[name] and name.rpartition("/")[0].endswith(_FOLDERS[suffix])
        ]  # fmt: skip
        return self.chance.choice(names) if names else None

    def _put(self, name: str, at: int, data: bytes) -> None:
        old = self.files[name]
        self.files[name] = old[:at] + data + old[at + len(data) :]
        self.done.append(f"{name}: {data[:40].hex()} at {at}")

    def _bytes(self, name: str, at: int) -> None:
        """Change bytes at a position: flip a bit, put zeros or noise, cut the file, insert or drop bytes."""
        data, chance = self.files[name], self.chance
        at = min(at, len(data) - 1)
        length = min(chance.choice([1, 4, 8, 20, 512]), len(data) - at)
        kind = chance.choice(["flip", "flip", "flip", "zero", "noise", "cut", "insert", "drop"])
        if kind == "flip":
            self._put(name, at, bytes([data[at] ^ 1 << chance.randrange(8)]))
        elif kind == "zero":
            self._put(name, at, bytes(length))
        elif kind == "noise":
            self._put(name, at, chance.randbytes(length))
        else:
            rest = {"cut": b"", "insert": chance.randbytes(length) + data[at:], "drop": data[at + length :]}
            self.files[name] = data[:at] + rest[kind]
            self.done.append(f"{name}: {kind} at {at}, {length} bytes")

    def _number(self, name: str, at: int, width: int) -> None:
        """Set a number to one that is special, or near the old one."""
        old = int.from_bytes(self.files[name][at : at + width], "big", signed=True)
        bits = 8 * width
        values = [0, 1, -1, 7, 15, 16, 20, 24, 100, (1 << bits - 1) - 1, -(1 << bits - 1), -0x100]
        values += [old + 1, old - 1, old + 4, old - 4, old ^ 1 << self.chance.randrange(bits - 1)] * 3
        value = (self.chance.choice(values) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        self._put(name, at, value.to_bytes(width, "big", signed=True))

    def _frames(self, name: str, start: int) -> list[int]:
        """Return the positions of the frames of a log or journal."""
        data, at, out = self.files[name], start, []
        while at + 4 <= len(data):
            size = int.from_bytes(data[at : at + 4], "big", signed=True)
            padding = size == -0x100
            if padding:
                size = 4 + int.from_bytes(data[at + 4 : at + 8], "big", signed=True)
            if size <= 0:
                break
            out.append(at)
            at += 4 + size
        return out

    def _frame(self, name: str, start: int, numbers: list[tuple[int, int]]) -> None:
        """Change a frame: a number of its header, or bytes anywhere in it."""
        frames = self._frames(name, start)
        if not frames or self.chance.random() < 0.1:
            self._bytes(name, self.chance.randrange(len(self.files[name])))
            return
        at = self.chance.choice([frames[-1], self.chance.choice(frames)])
        if self.chance.random() < 0.5:
            offset, width = self.chance.choice(numbers)
            if at + offset + width <= len(self.files[name]):
                self._number(name, at + offset, width)
        else:
            self._bytes(name, at + self.chance.randrange(70))

    def log(self) -> None:
        name = self._of(".log")
        if name is None:
            return
        if self.chance.random() < 0.1:
            self._number(name, self.chance.choice([0, 4, 12]), 4)
            return
        self._frame(name, 1024, [(0, 4), (4, 8), (12, 8), (20, 8), (28, 8), (36, 4)])

    def journal(self) -> None:
        name = self._of(".txn")
        if name is None:
            return
        if self.chance.random() < 0.1:
            self._number(name, self.chance.choice([0, 4]), 4)
            return
        version = int.from_bytes(self.files[name][4:8], "big")
        numbers = [(0, 4), (0, 4), (4, 8), (12, 8), (20, 8), (20, 4), (28, 8), (4, 4)]
        self._frame(name, 512 if version >= 5 else 8, numbers)

    def index(self) -> None:
        name = self._of(".idx")
        if name is None:
            return
        data = self.files[name]
        used = [at for at in range(1024, len(data) - 7, 8) if data[at : at + 8] != bytes(8)]
        if used and self.chance.random() < 0.5:
            at = self.chance.choice([used[-1], self.chance.choice(used)])
            self.chance.choice([self._location, self._bytes])(name, at)
        elif self.chance.random() < 0.6:
            key = int.from_bytes(data[8:12], "big")
            at = self.chance.choice([0, 4, 8, 12 + key, 16 + key, 20 + key, 28 + key])
            self.chance.choice([self._bytes, lambda name, at: self._number(name, at, 4)])(name, at)
        else:
            self._bytes(
                name, self.chance.choice([self.chance.randrange(60), self.chance.randrange(len(data))])
            )

    def _location(self, name: str, at: int) -> None:
        """Change the location of an entry: its log, its position, or all of it to that of another."""
        kind = self.chance.randrange(4)
        data = self.files[name]
        if kind == 0:
            self._number(name, at, 4)
        elif kind == 1:
            self._number(name, at + 4, 4)
        elif kind == 2:
            other = 1024 + 8 * self.chance.randrange((len(data) - 1024) // 8)
            self._put(name, at, data[other : other + 8])
        else:
            self._put(name, at, bytes(8))

    def mark(self) -> None:
        """Set lastMark to another position, most often to that of a record, or to another journal."""
        name = self._of("lastMark") or self._of("lastMark.0")
        if name is None or len(self.files[name]) < 16:
            return
        identity = int.from_bytes(self.files[name][:8], "big")
        journal = next((file for file in self.files if file.endswith(f"/{identity:x}.txn")), None)
        places = [0, 512] + (self._frames(journal, 512) if journal else [])
        if self.chance.random() < 0.7:
            self._put(
                name, 8, self.chance.choice([*places, self.chance.choice(places) + 3]).to_bytes(8, "big")
            )
        elif self.chance.random() < 0.5:
            self._number(name, self.chance.choice([0, 8]), 8)
        else:
            self._bytes(name, self.chance.randrange(16))

    def small(self) -> None:
        name = self._of(self.chance.choice(["lastId", "VERSION"]))
        if name is not None:
            self._bytes(name, self.chance.randrange(len(self.files[name])))

    def whole_file(self) -> None:
        """Remove, empty, swap, copy or rename files."""
        suffix = self.chance.choice([".log", ".log", ".txn", ".txn", ".idx", "lastMark", "lastId", "VERSION"])
        name = self._of(suffix)
        if name is None:
            return
        folder, _, base = name.rpartition("/")
        others = [file for file in self.files if file.endswith(suffix) and file != name and suffix[0] == "."]
        kind = self.chance.choice(["remove", "remove", "empty", "swap", "swap", "copy", "next"])
        if kind == "remove":
            del self.files[name]
        elif kind == "empty":
            self.files[name] = b""
        elif kind == "swap" and others:
            other = self.chance.choice(others)
            self.files[name], self.files[other] = self.files[other], self.files[name]
            base = other
        elif kind == "copy" and others:
            base = self.chance.choice(others)
            self.files[base] = self.files[name]
        elif kind == "next" and suffix in (".log", ".txn"):
            base = f"{int(base.partition('.')[0], 16) + self.chance.choice([1, 2, -1]) & 0xFFFFFFFFFFF:x}{suffix}"
            self.files[f"{folder}/{base}"] = self.files[name]
        else:
            return
        self.done.append(f"{kind} {name} {base}")


def bookie_of(seed: int, db: bool = False) -> Bookie:
    """Return a damaged random bookie. Consecutive seeds damage the same bookie in different ways."""
    undamaged, chance = intact(seed // VARIANTS, db), random.Random(f"damage {seed}")
    damager = Damager(dict(undamaged.files), chance)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        damager.run()
    return replace(undamaged, files=damager.files, damage=tuple(damager.done))


# Answers


def ours(bookie: Bookie, **more: Any) -> dict[str, Any]:
    """Return the outcome of the simulated start, in the form of `theirs`. `more`: options."""
    with tempfile.TemporaryDirectory() as folder:
        home = bookie.place(Path(folder, "bookie"))
        options = Options(LAYOUT.read_options, {**bookie.options, **more})
        directory = open_store(open_listing(str(home)), LAYOUT, options)
        startup = LAYOUT.capabilities.predict
        assert startup is not None
        started = startup.run(directory, LAYOUT.plan(directory, options), options, version=None, clean=None)
        verdict = started.verdict
        if not verdict.opens:
            return {"error": ": ".join(text for text in (verdict.error_class, verdict.error) if text)}
        served = started.served
        assert isinstance(served, ServedBookie)
        listed = {ledger.ledger_id for ledger in bookie.ledgers}
        # DbLedgerStorage lists neither ledgers nor entries: only those that the request names are compared.
        names_all = DB not in bookie.config.get("ledgerStorageClass", "")
        ledgers = {
            read.ledger: _our_ledger(served, read, read.ledger in listed)
            for read in served.ledgers
            if names_all or read.ledger in listed
        }
        folders = tuple(bookie.folders())
        files = {
            entry.name: served.overlay.read(entry.name)
            for entry in served.overlay.entries()
            if entry.name.startswith(folders)
        }
        return {"ledgers": ledgers, "files": _left(bookie, files)}


def _our_ledger(served: ServedBookie, read: LedgerRead, listed: bool) -> dict[str, Any]:
    storage, ledger = served.bookie.storage, read.ledger
    out: dict[str, Any] = {}
    for name in ("fenced", "master_key", "explicit_lac"):
        try:
            if name == "fenced" and read.first is not None:
                raise read.first
            value = getattr(storage, name)(ledger)
            # A large buffer is held by its length only; it is all zeros.
            out[name] = bytes(value).ljust(len(value), b"\0").hex() if isinstance(value, bytes) else value
        except JavaError as error:
            out[name] = tuple(error.chain())
    entries, locations = storage.entries(ledger)
    places = dict(zip(entries.tolist(), locations.tolist(), strict=True))
    out["served"] = {entry: storage.read(ledger, entry, places[entry]) for entry in read.served}
    out["refused"] = {entry: tuple(error.chain()) for entry, error in read.refused.items()}
    if listed:
        out["client"] = read.error or (read.read, read.failed)
    return out


def theirs(bookie: Bookie, predicted: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the real bookie and a client do. They are also asked for the entries of the predicted answer."""
    asked = []
    for ledger in bookie.ledgers:
        answer = predicted.get("ledgers", {}).get(ledger.ledger_id, {})
        entries = sorted({*ledger.entries, *answer.get("served", ()), *answer.get("refused", ())})
        asked.append(replace(ledger, entries=entries))
    # A bookie that has failed still checks its disks, and creates directories that are missing.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = bookie.place(Path(folder, "bookie"))
        started = oracle.start(home, bookie.config, bookie.instance)
        if not started.started:
            return {"error": ": ".join(text.removesuffix(": ") for text in started.exception)}
        ledgers = oracle.read(asked)
        oracle.stop()
        files = _left(bookie, files_of(home))
    return {"ledgers": {ledger: _their_ledger(served) for ledger, served in ledgers.items()}, "files": files}


def _left(bookie: Bookie, files: Files) -> Files:
    """Return the files that a bookie leaves when it is stopped.

    Left out are the files of RocksDB, the mark of an unclean stop, and new journals, whose version and size are settings. The bookie writes
    new logs and index files to a directory that it chooses at random, so they are named without it. With a log for each ledger, new logs
    differ.
    """
    new_logs = any(name.endswith(".log") and name not in bookie.files for name in files)
    if "entryLogPerLedgerEnabled" in bookie.config and new_logs:
        return {}
    out = {}
    for name, data in files.items():
        folder, _, base = name.rpartition("/")
        if f"/{folder}/".endswith(("/ledgers/", "/locations/", "/metadata-cache/")) or base == "DIRTY":
            continue
        if name not in bookie.files and base.endswith((".txn", ".log", ".idx")):
            if not base.endswith(".txn"):
                out[base] = _with_sorted_map(data) if base.endswith(".log") else data
        else:
            out[name] = data
    return out


def _with_sorted_map(data: bytes) -> bytes:
    """Return an entry log with the ledgers of its map in order. Of ledgers with one hash, the first that the bookie adds to its table
    comes first, and not always the one whose entry comes first in the file."""
    stored = read_map(lambda at, size: np.frombuffer(data, np.uint8)[at : at + size], len(data))
    if stored is None or stored.error or not stored.sizes:
        return data
    pairs = np.array(sorted(stored.sizes.items()), ">i8").tobytes()
    return data[: stored.offset] + pairs + data[stored.end :]


def _their_ledger(served: oracle.LedgerServed) -> dict[str, Any]:
    out = {
        "fenced": served.fenced, "master_key": served.master_key, "explicit_lac": served.explicit_lac, "served": served.served,
        "refused": served.refused,
    }  # fmt: skip
    if served.error or served.read is not None:
        out["client"] = served.error or (served.read, served.failed)
    return out


def undefined(bookie: Bookie, answer: dict[str, Any]) -> str:
    """Return why the outcome depends on more than the files; "" if it does not."""
    marks = (data for name, data in bookie.files.items() if name.rpartition("/")[2].startswith("lastMark"))
    if any(int.from_bytes(data[8:16], "big", signed=True) > _LARGEST_OFFSET for data in marks):
        return "ext4 refuses this offset in a journal, and other file systems accept it"
    lacs = [str(ledger["explicit_lac"]) for ledger in answer.get("ledgers", {}).values()]
    if any("OutOfMemoryError" in lac or len(lac) > _LARGE_LAC for lac in lacs):
        return "how many copies of a large buffer fit into a Java heap depends on the JVM"
    kinds = {ledger.digest for ledger in bookie.ledgers}
    if len(kinds) > 1 and any(_all_damaged(ledger, answer) for ledger in bookie.ledgers):
        return "the digest type of a ledger without an undamaged entry is only in its metadata"
    refused = [error for ledger in answer.get("ledgers", {}).values() for error in ledger["refused"].values()]
    if DB in bookie.config.get("ledgerStorageClass", "") and any(
        "OutOfMemoryError" in error[0] for error in refused
    ):
        # The read of the entry before it, which reads ahead, throws the error too. The next one gets the entry from a cache.
        return "whether an entry before one of impossible size is served depends on what was read before"
    if any("Negative position" in text for error in refused for text in error):
        # The first read throws an exception. The next one by the same thread gets what is left in the thread's buffer.
        return "what is read before the start of a log depends on what the thread has read before"
    return ""


def needs_heap(bookie: Bookie, answer: dict[str, Any]) -> bool:
    """Return whether the outcome is another one with a quarter of the heap. How much of a heap is free depends on the JVM."""
    return ours(bookie, Xmx=150 << 20) != answer


def _all_damaged(ledger: oracle.Ledger, answer: dict[str, Any]) -> bool:
    """Return whether the bookie serves entries of a ledger, and none of them has the right digest."""
    served = answer.get("ledgers", {}).get(ledger.ledger_id, {}).get("served", {}).values()
    size = SIZES[parse_digest_type(ledger.digest)]
    return bool(served) and not any(
        content[HEADER : HEADER + size]
        == digest_of(content[:HEADER] + content[HEADER + size :], size, ledger.password)
        for content in served
    )


def differences(ours: dict[str, Any], theirs: dict[str, Any], path: str = "") -> Iterator[str]:
    """Describe how two answers differ."""
    for name in sorted(ours.keys() | theirs.keys(), key=str):
        left, right = ours.get(name), theirs.get(name)
        if isinstance(left, dict) and isinstance(right, dict):
            yield from differences(left, right, f"{path}{name} ")
        elif left != right:
            yield f"{path}{name}: {str(left)[:200]} instead of {str(right)[:200]}"
