"""Find the files of a bookie in its directories, and define the settings that concern them.

A bookie has journal, ledger and index directories, each with a folder `current`. A file is named by its directory and its path in that:
`ledger/current/0.log`. The store's own directory either holds these directories or is one of them (`current/0.log`).

Source: `ServerConfiguration`, `LedgerDirsManager`, `IndexPersistenceMgr.getLedgerName` of BookKeeper.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from logwright.codec.bookkeeper.formats.index import HEADER_SIZE
from logwright.codec.bookkeeper.startup import cookie
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.fault import LogwrightError
from logwright.codec.option import Option, Options, parse_bool, parse_choice, parse_text
from logwright.codec.store.listing import Listing, further_roots_of
from logwright.codec.store.roots import Root

CURRENT = "current"
FOLDERS = (f"*/{CURRENT}", f"*/{CURRENT}/*/*", CURRENT, f"{CURRENT}/*/*")
ENTRY_LOG, JOURNAL, INDEX = "bookkeeper.entrylog", "bookkeeper.journal", "bookkeeper.index"
VERSION, LAST_ID, LAST_MARK, DIRTY, STATUS = "VERSION", "lastId", "lastMark", "DIRTY", "BOOKIE_STATUS"
LOCATIONS, LEDGERS = "locations", "ledgers"
INTERLEAVED, SORTED, DB = "InterleavedLedgerStorage", "SortedLedgerStorage", "DbLedgerStorage"
METADATA: Mapping[str, str] = {
    VERSION: "bookkeeper.cookie", LAST_ID: "bookkeeper.lastid", LAST_MARK: "bookkeeper.lastmark", STATUS: "bookkeeper.bookiestatus",
    DIRTY: "bookkeeper.dirty",
}  # fmt: skip
"""Codecs of small files."""
_LOG = re.compile(r"([0-9a-f]{1,8})\.log")
_JOURNAL = re.compile(r"([0-9a-fA-F]{1,16})\.txn")
_MARK = re.compile(r"lastMark(?:\.(\d+))?")
_INDEX = re.compile(r"[0-9a-f]{1,2}/[0-9a-f]{1,2}/([0-9a-f]{1,16})\.idx")


def parse_directories(value: object) -> str:
    """Parse a comma-separated list of directories. Raises `ValueError`."""
    text = parse_text(value)
    if not all(path.strip() for path in text.split(",")):
        raise ValueError("expected directories, separated by commas")
    return text


def parse_storage(value: object) -> str:
    """Parse the name of a storage class, with or without its package."""
    return parse_text(value).rpartition(".")[2]


JOURNALS = Option(
    "journalDirectories", None, "Journal directories, comma-separated, in the configured order", parse_directories,
)  # fmt: skip
LEDGER_DIRS = Option(
    "ledgerDirectories", None, "Ledger directories, comma-separated, in the configured order", parse_directories,
)  # fmt: skip
INDEX_DIRS = Option(
    "indexDirectories", None, "Index directories, comma-separated, if they are not the ledger directories", parse_directories,
)  # fmt: skip
STORAGE = Option(
    "ledgerStorageClass", None, "Storage class; by default detected from the files, else SortedLedgerStorage", parse_storage,
    choices=(INTERLEAVED, SORTED, DB),
)  # fmt: skip
PAGE_SIZE = Option("pageSize", 8192, "Size of a page of index files in bytes", low=8, high=1 << 20)
LOG_SIZE = Option(
    "logSizeLimit", 1 << 30, "Size in bytes at which an entry log is rolled", low=1024, high=1 << 30
)
SKIP_INVALID = Option(
    "skipReplayJournalInvalidRecord", False, "Skip the rest of a journal after an invalid record", parse_bool
)
INSTANCE = Option("instanceId", None, "The cluster's instance id; by default that of the cookies", parse_text)
BOOKIE_ID = Option("bookieId", None, "The bookie's id; by default that of the cookies", parse_text)
HEAP = Option(
    "Xmx", 600 << 20, "Heap of the bookie in bytes: larger records cannot be allocated", low=1 << 20
)
READER = Option(
    "reader", "client", "client: only entries that a client reads, with the right digest; bookie: all entries that the bookie sends",
    parse_choice, choices=("client", "bookie"),
)  # fmt: skip
ROOTS = (JOURNALS, LEDGER_DIRS, INDEX_DIRS)
_ROOT_NAMES = ("journal", "ledger", "index")
SETTINGS = (PAGE_SIZE, LOG_SIZE, SKIP_INVALID, INSTANCE, BOOKIE_ID, HEAP, READER)
READ_OPTIONS = (*ROOTS, STORAGE)
OPTIONS = (*READ_OPTIONS, *SETTINGS)


def roots(options: Options) -> Sequence[Root]:
    """Return the directories that options name. One of them may be the store's own. Without these options, the store has folders with the
    names of these directories, which cookies contain too, or, if two of them are the same, with the names of the roots."""
    return _roots([_paths(options, option) for option in ROOTS])


def _roots(kinds: Sequence[Sequence[str]]) -> list[Root]:
    """Return the directories with these paths: of journals, of ledgers and of indexes."""
    names: dict[str, str] = {}
    for kind, paths in zip(_ROOT_NAMES, kinds, strict=True):
        for i, path in enumerate(paths):
            names.setdefault(path, f"{kind}-{i}" if i else kind)
    alike = len(set(map(_folder_name, names))) < len(names)
    return [
        Root(name, path, name if alike else _folder_name(path), may_be_own=True, may_be_absent=True)
        for path, name in names.items()
    ]


def folders_named_by(stored: cookie.Cookie) -> list[list[str]]:
    """Return the folders, in a store without further roots, of the directories that a cookie names: of journals, of ledgers, of indexes."""
    kinds = [
        [path.rstrip("/") for path in paths]
        for paths in (
            cookie.journal_paths(stored),
            cookie.directories(stored.ledgers),
            cookie.directories(stored.indexes or ""),
        )
    ]
    folders = {root.path: root.otherwise for root in _roots(kinds)}
    return [[folders[path] for path in kind] for kind in kinds]


def own_root(options: Options, name: str, further: Collection[str] = ()) -> str | None:
    """Return the root that is the store's own directory, by the name of this: the first ledger directory rather than another one, and not
    one of the `further` roots."""
    return next(
        (
            root
            for option in (LEDGER_DIRS, JOURNALS, INDEX_DIRS)
            for root, path in root_keys(options, option)
            if _folder_name(path) == name and root not in further
        ),
        None,
    )


def _folder_name(path: str) -> str:
    return path.rpartition("/")[2]


def root_keys(options: Options, option: Option) -> list[tuple[str, str]]:
    """Return the directories that one option names: the name of the root, and the path."""
    names = {root.path: root.name for root in roots(options)}
    return [(names[path], path) for path in _paths(options, option)]


def _paths(options: Options, option: Option) -> list[str]:
    value = options[option.name]
    return [path.strip().rstrip("/") or "/" for path in value.split(",")] if value else []


def log_id(name: str) -> int | None:
    """Return the id of an entry log by its file name without folders; None for a name that a bookie cannot open."""
    match = _LOG.fullmatch(name)
    if match is None or (match[1] != "0" and match[1][0] == "0"):
        return None
    number = int(match[1], 16)
    return number if number < 1 << 31 else None  # A location has no room for a larger one.


def journal_id(name: str) -> int | None:
    match = _JOURNAL.fullmatch(name)
    return int(match[1], 16) if match else None


def mark_index(name: str) -> int | None:
    """Return the number of the journal directory of a lastMark file."""
    match = _MARK.fullmatch(name)
    return int(match[1] or 0) if match else None


def index_path(ledger: int) -> str:
    """Return the path of a ledger's index file in `current`."""
    return f"{ledger >> 8 & 0xFF:x}/{ledger & 0xFF:x}/{ledger & (1 << 64) - 1:x}.idx"


def ledger_of(path: str) -> int | None:
    """Return the ledger of an index file by its path in `current`; None for a path that a bookie does not read."""
    match = _INDEX.fullmatch(path)
    if match is None:
        return None
    ledger = int(match[1], 16)
    ledger -= (ledger >> 63) << 64
    return ledger if index_path(ledger) == path else None


@dataclass(frozen=True)
class Place:
    """A directory of the bookie: the last part of its path, and the start of the names of its files.

    The prefix is `ledger/current/`, without `current` for layouts before 3.
    """

    name: str
    prefix: str

    @property
    def flat(self) -> bool:
        return CURRENT not in self.prefix.split("/")


class Tree:
    """The directories of a bookie by kind, in the configured order, and their files."""

    def __init__(self, listing: Listing, options: Options) -> None:
        self.listing, self.options = listing, options
        self.sizes = {entry.name: entry.size for entry in listing.entries()}
        self.places = self._places()

    def _places(self) -> dict[str, Place]:
        out: dict[str, Place] = {}
        for name in self.sizes:
            parts = name.split("/")
            if parts[0] == CURRENT and len(parts) > 1:
                out[""] = Place(self.listing.name, f"{CURRENT}/")
            elif len(parts) > 2 and parts[1] == CURRENT:
                out[parts[0]] = Place(parts[0], f"{parts[0]}/{CURRENT}/")
            elif len(parts) == 2 and parts[0] not in out and _is_data(parts[1]):
                out[parts[0]] = Place(parts[0], f"{parts[0]}/")
        for root in roots(self.options):
            if root.name == self.own_root:
                continue
            prefix = out[root.name].prefix if root.name in out else f"{root.name}/{CURRENT}/"
            out[root.name] = Place(_folder_name(root.path), prefix)
        return out

    @cached_property
    def own_root(self) -> str | None:
        """The name of the root that is the store's own directory, if options name it."""
        folders = {name.partition("/")[0] for name in self.sizes}
        further = {*folders, *further_roots_of(self.listing)}
        return own_root(self.options, self.listing.name, further) if CURRENT in folders else None

    def files(self, place: Place) -> list[str]:
        """Return the names of the files directly in a directory, without its prefix."""
        return self._direct.get(place.prefix, [])

    @cached_property
    def _direct(self) -> dict[str, list[str]]:
        out: dict[str, list[str]] = {}
        for name in sorted(self.sizes):
            folder, _, base = name.rpartition("/")
            out.setdefault(f"{folder}/", []).append(base)
        return out

    def _below(self, place: Place, folder: str) -> bool:
        return f"{place.prefix}{folder}/" in self._direct

    # Kinds

    @cached_property
    def cookies(self) -> dict[str, bytes]:
        """The contents of VERSION by directory."""
        contents = {}
        for key, place in self.places.items():
            name = f"{place.prefix}{VERSION}"
            if name in self.sizes:
                try:
                    contents[key] = self.listing.read(name, 0, 1 << 16)
                except LogwrightError:
                    contents[key] = b""
        return contents

    @cached_property
    def _kinds(self) -> tuple[list[Place], list[Place], list[Place]]:
        """The journal, ledger and index directories: from the options, else from a cookie, else by their files."""
        named = self._named_by_options() or self._named_by_cookie()
        by_content = self._by_content()
        named_roots = roots(self.options)
        out = []
        for i, kind in enumerate(_ROOT_NAMES):
            if named is not None and named[i]:
                out.append([self.places[key] for key in named[i]])
            else:
                free = [
                    self.places[key] for key in by_content[i]
                    if key not in {root.name for root in named_roots if not root.name.startswith(kind)}
                ]  # fmt: skip
                out.append(free)
        journals, ledgers, indexes = out
        return journals, ledgers, indexes if named is None or named[2] else []

    def _named_by_options(self) -> list[list[str]] | None:
        """Return the directories that options name. The store's own directory replaces the path that is not a further root."""
        if not any(self.options[option.name] for option in ROOTS):
            return None
        out = [
            ["" if key == self.own_root else key for key, _ in root_keys(self.options, option)]
            for option in ROOTS
        ]
        if "" in self.places and not any("" in keys for keys in out):
            out[1] = ["", *out[1]]
        return out

    def _named_by_cookie(self) -> list[list[str]] | None:
        """Return the directories of the first cookie whose directories exist. An empty one, which a listing does not show, may be missing if
        the cookie names all others. If the store's own directory is one of them, one of each kind must exist."""
        keys = {place.name: key for key, place in self.places.items()}
        for data in self.cookies.values():
            try:
                stored = cookie.Cookie.parse(data)
            except JavaError:
                continue
            names = folders_named_by(stored)
            named = {name for kind in names for name in kind}
            if not names[0] or not names[1] or any(len(set(kind)) != len(kind) for kind in names):
                continue
            if named <= keys.keys() or (
                keys.keys() <= named
                and ("" not in self.places or all(keys.keys() & kind for kind in names if kind))
            ):
                for name in named - keys.keys():
                    self.places[name] = Place(name, f"{name}/{CURRENT}/")
                    keys[name] = name
                return [[keys[name] for name in kind] for kind in names]
        return None

    def _by_content(self) -> list[list[str]]:
        journals, ledgers, indexes = [], [], []
        for key, place in sorted(self.places.items(), key=lambda item: _natural(item[0])):
            files = self.files(place)
            has_logs = any(log_id(file) is not None or mark_index(file) is not None for file in files)
            has_index = self._has_index(place) or self._below(place, LOCATIONS) or self._below(place, LEDGERS)
            if any(file.endswith(".txn") for file in files):
                journals.append(key)
            if has_logs or LAST_ID in files or DIRTY in files or (has_index and "index" not in place.name):
                ledgers.append(key)
            elif has_index:
                indexes.append(key)
            elif key not in journals:
                (
                    journals if "journal" in place.name else indexes if "index" in place.name else ledgers
                ).append(key)
        return [journals, ledgers, indexes]

    def _has_index(self, place: Place) -> bool:
        return any(name.endswith(".idx") and name.startswith(place.prefix) for name in self.sizes)

    @property
    def journals(self) -> list[Place]:
        return self._kinds[0]

    @property
    def ledgers(self) -> list[Place]:
        return self._kinds[1]

    @property
    def indexes(self) -> list[Place]:
        """The index directories. Without any, the ledger directories hold the index."""
        return self._kinds[2] or self._kinds[1]

    @property
    def has_index_dirs(self) -> bool:
        return bool(self._kinds[2])

    # Files

    @cached_property
    def logs(self) -> list[tuple[int, str]]:
        """The entry logs by id and directory: id and name."""
        logs = [
            (identity, i, f"{place.prefix}{file}")
            for i, place in enumerate(self.ledgers)
            for file in self.files(place)
            if (identity := log_id(file)) is not None
        ]
        return [(identity, name) for identity, _, name in sorted(logs)]

    def log_of(self, ledger: int, number: int) -> str:
        """Return the entry log of this id in which a bookie looks for entries of a ledger; "" if no directory has it."""
        places = (
            [self.ledgers[ledger % len(self.ledgers)]]
            if self.storage == DB and self.ledgers
            else self.ledgers
        )
        names = (f"{place.prefix}{number:x}.log" for place in places)
        return next((name for name in names if name in self.sizes), "")

    def journal_files(self, place: Place) -> list[tuple[int, str]]:
        """Return the journals of a directory by id."""
        journals = [(journal_id(file), f"{place.prefix}{file}") for file in self.files(place)]
        return sorted((identity, name) for identity, name in journals if identity is not None)

    @cached_property
    def index_page(self) -> int | None:
        """The page size of the index files: that of the options; None if no index file has complete pages of this size."""
        page: int = self.options[PAGE_SIZE.name]
        sizes = [self.sizes[name] - HEADER_SIZE for name in self.index_files.values()]
        paged = [size for size in sizes if size > 0]
        return page if not paged or any(size % page == 0 for size in paged) else None

    @cached_property
    def index_files(self) -> dict[int, str]:
        """The index file of each ledger. The first directory with one wins."""
        out: dict[int, str] = {}
        for place in self.indexes:
            for name in self.sizes:
                if name.startswith(place.prefix):
                    ledger = ledger_of(name[len(place.prefix) :])
                    if ledger is not None:
                        out.setdefault(ledger, name)
        return dict(sorted(out.items()))

    @cached_property
    def storage(self) -> str:
        """The storage class: from the options, else by the index."""
        chosen: str | None = self.options[STORAGE.name]
        if chosen:
            return chosen
        databases = (self._below(place, folder) for place in self.indexes for folder in (LOCATIONS, LEDGERS))
        return DB if any(databases) else SORTED

    def mark(self, number: int) -> tuple[int, int]:
        """Return the lastMark of a journal directory: journal id and offset. The greatest over all ledger directories counts."""
        name = f"{LAST_MARK}.{number}" if len(self.journals) > 1 else LAST_MARK
        best = (0, 0)
        for place in self.ledgers:
            if self.sizes.get(f"{place.prefix}{name}", 0) >= 16:
                journal, offset = struct.unpack(">2q", self.listing.read(f"{place.prefix}{name}", 0, 16))
                if is_before(best, (journal, offset)):
                    best = journal, offset
        return best

    def marked(self, number: int) -> list[tuple[str, int]]:
        """Return the journals of a directory that a bookie replays, each with the position where it starts. 0 is the first record."""
        identity, offset = self.mark(number)
        return [
            (name, max(offset, 0) if journal == identity else 0)
            for journal, name in self.journal_files(self.journals[number])
            if journal >= identity
        ]

    @cached_property
    def replayed(self) -> dict[str, int]:
        """The journals of all directories that a bookie replays, and the positions (`marked`)."""
        return {name: at for i in range(len(self.journals)) for name, at in self.marked(i)}

    @property
    def all_journals(self) -> list[str]:
        return [name for place in self.journals for _, name in self.journal_files(place)]


def is_before(mark: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return whether a bookie takes one mark to be before another. It subtracts their numbers, which may overflow."""
    difference = mark[0] - other[0] or mark[1] - other[1]
    return difference % (1 << 64) >= 1 << 63


def is_bookie_file(name: str) -> bool:
    """Return whether a name in the tree is that of an entry log, a journal or a small file of a bookie."""
    folder, _, base = name.rpartition("/")
    if folder.rpartition("/")[2] != CURRENT:
        return False
    return _is_data(base) or mark_index(base) is not None or base == LAST_ID


def _is_data(name: str) -> bool:
    return name.endswith((".txn", ".idx")) or log_id(name) is not None


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key in which numbers in a name count as numbers."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
