"""The start of a bookie: checks of its directories, its storage, and the replay of its journals.

Source: `EmbeddedServer`, `BookieImpl`, `HandleFactoryImpl` of BookKeeper.
"""

from __future__ import annotations

import contextlib

from logwright.codec.bookkeeper.formats.journal import (
    EXPLICIT_LAC,
    FENCE,
    FIRST_VERSIONS,
    MASTER_KEY,
    NEW_HEADER,
)
from logwright.codec.bookkeeper.startup import cookie, errors, journal
from logwright.codec.bookkeeper.startup.errors import JavaError, io_error, unchecked
from logwright.codec.bookkeeper.startup.storage import DbStorage, InterleavedStorage, Storage, mark_dirty
from logwright.codec.bookkeeper.store.tree import (
    BOOKIE_ID,
    DB,
    INSTANCE,
    LAST_MARK,
    SORTED,
    VERSION,
    Place,
    Tree,
    is_before,
)
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Zeros

_PREALLOCATED = 16 << 20
_LEAST_ENTRY = 24
_BACKUPS = 5
"""The default of `journalMaxBackups`."""


class Bookie:
    """A bookie that starts on an overlay of its directories."""

    storage: Storage

    def __init__(self, overlay: Overlay, tree: Tree, options: Options) -> None:
        self.overlay, self.tree, self.options = overlay, tree, options
        self._keys: dict[int, bytes] = {}
        self._handles: dict[int, bytes] = {}
        self.skipped = 0
        """The number of records of ledgers without a master key."""
        self.unknown = 0
        """The number of records of an unknown kind."""
        self.replayed = 0
        self._rotated: list[tuple[int, int]] = []
        """The marks when an entry log was rotated for the last time, which starts a checkpoint."""

    def start(self) -> None:
        """Start the bookie. Raises `JavaError`."""
        self.check_directories()
        mark_dirty(self.overlay, self.tree)
        if self.tree.storage == DB:
            self.storage = DbStorage(self.overlay, self.tree, self.options)
        else:
            self.storage = InterleavedStorage(
                self.overlay, self.tree, self.options, sorted_=self.tree.storage == SORTED
            )
        marks = [self.tree.mark(number) for number in range(len(self.tree.journals))]
        for number in range(len(marks)):
            self._replay(number, marks)
        # `SortedLedgerStorage.start` flushes a second time. Errors are logged only.
        for _ in range(2 if self.tree.storage == SORTED else 1):
            with contextlib.suppress(JavaError):
                self.storage.flush()
                self._checkpoint(marks)
                break
        self.storage.close_logs()

    def check_directories(self) -> None:
        """Check the layout and the cookies of the directories. Raises `JavaError`."""
        if any(place.flat for place in self.tree.places.values()):
            raise io_error("Directory layout version is less than 3, upgrade needed")
        tree = self.tree
        kinds = (tree.journals, tree.ledgers, tree.indexes if tree.has_index_dirs else [])
        places = {place.prefix: place for kind in kinds for place in kind}
        contents = [(place.name, self._content(f"{prefix}{VERSION}")) for prefix, place in places.items()]
        empty = not any(tree.files(place) for place in places.values()) and not tree.index_files
        journals, ledgers, indexes = ([place.name for place in kind] for kind in kinds)
        identity = cookie.Identity(self.options[BOOKIE_ID.name], self.options[INSTANCE.name])
        cookie.check(contents, (journals, ledgers, indexes), identity, empty)

    def _content(self, name: str) -> bytes | None:
        """Return the content of a file, which the bookie reads into a string that it doubles as it grows. Raises `JavaError`."""
        if name not in self.overlay:
            return None
        errors.allocate(2 * self.overlay.size(name), self.options["Xmx"])
        return self.overlay.read(name)

    # Journals

    def _ids(self, place: Place) -> list[tuple[int, str]]:
        """Return the ids and names of the journals of a directory."""
        ids = []
        for file in self.tree.files(place):
            if file.endswith(".txn"):
                text = file.split(".")[0]
                try:
                    ids.append((int(text, 16), f"{place.prefix}{file}"))
                except ValueError:
                    raise unchecked(
                        "java.lang.NumberFormatException", f'For input string: "{text}" under radix 16'
                    ) from None
        return sorted(ids)

    def _replay(self, number: int, marks: list[tuple[int, int]]) -> None:
        """Replay the journals of a directory, and advance its mark."""
        place = self.tree.journals[number]
        marked, offset = marks[number]
        ids = self._ids(place)
        chosen = [(identity, name) for identity, name in ids if identity >= marked]
        if marked > 0 and (not chosen or chosen[0][0] != marked):
            raise io_error(f"Recovery log {marked} is missing at {place.prefix.rstrip('/')}")
        for identity, name in chosen:
            reader = journal.Reader(self.overlay, name, self.overlay.size(name))
            position = offset if identity == marked else 0
            rotations = self.storage.rotations
            stop = journal.scan(
                reader,
                position,
                lambda version, at, body, name=name: self._process(version, at, body, name),  # type: ignore[misc]
                self.options["Xmx"],
                skip_invalid=self.options["skipReplayJournalInvalidRecord"],
            )
            if self.storage.rotations > rotations:
                self._rotated = list(marks)
            marks[number] = (identity, stop)
        self._newest = max((identity for identity, _ in ids), default=-1)
        if self._newest >= 0:
            name = f"{place.prefix}{self._newest + 1:x}.txn"
            self.overlay.assemble(name, [NEW_HEADER, Zeros(_PREALLOCATED - len(NEW_HEADER))])

    def _process(self, version: int, at: int, body: bytes, name: str) -> None:
        if len(body) < 16:
            raise unchecked(errors.UNDERFLOW)
        ledger = int.from_bytes(body[:8], "big", signed=True)
        entry = int.from_bytes(body[8:16], "big", signed=True)
        try:
            if entry == MASTER_KEY:
                self._require(version, FIRST_VERSIONS[entry], "journalKey ")
                key = _array(body)
                self._keys[ledger] = key
                self._handle(ledger, key)
            elif entry == FENCE:
                self._require(version, FIRST_VERSIONS[entry], "fenceKey ")
                self._handle(ledger, self._key(ledger))
                self.storage.fence(ledger)
            elif entry == EXPLICIT_LAC:
                self._require(version, FIRST_VERSIONS[entry], "explicitLAC ")
                self._allocate(body)
                buffer = _array(body)
                self._handle(ledger, self._key(ledger))
                self.storage.set_explicit_lac(ledger, buffer)
            elif entry < 0:
                self.unknown += 1
            else:
                self._handle(ledger, self._key(ledger))
                self._add(ledger, entry, body, Copy(name, at, at + 4 + len(body)))
        except JavaError as error:
            if error.name.endswith("NoLedgerException"):
                self.skipped += 1
            elif "BookieException$" in error.name:
                raise io_error("", error) from None
            else:
                raise

    def _allocate(self, body: bytes) -> None:
        """Raise the error of the buffer that is allocated before the array is read."""
        length = int.from_bytes(body[16:20], "big", signed=True)
        if length < 0:
            raise unchecked(errors.ILLEGAL_ARGUMENT, f"initialCapacity : {length} (expected: >= 0)")
        errors.allocate(length, self.options["Xmx"])

    def _require(self, version: int, least: int, record: str) -> None:
        if version < least:
            raise io_error(
                f"Invalid journal. Contains {record} but layout version ({version}) is too old to hold this"
            )

    def _key(self, ledger: int) -> bytes:
        return self._keys[ledger] if ledger in self._keys else self.storage.master_key(ledger) or b""

    def _handle(self, ledger: int, key: bytes) -> None:
        if ledger not in self._handles:
            self.storage.set_master_key(ledger, key)
            self._handles[ledger] = key
        if self._handles[ledger] != key:
            raise JavaError(f"{errors.BOOKIE}BookieException$BookieUnauthorizedAccessException")

    def _add(self, ledger: int, entry: int, body: bytes, frame: Copy) -> None:
        if len(body) < _LEAST_ENTRY:
            raise unchecked(
                "java.lang.IndexOutOfBoundsException",
                f"index: 16, length: 8 (expected: range(0, {len(body)}))",
            )
        if ledger < 0:
            raise unchecked(errors.ILLEGAL_ARGUMENT, "Keys and values must be >= 0")
        self.storage.add(ledger, entry, frame)
        self.replayed += 1

    def _checkpoint(self, marks: list[tuple[int, int]]) -> None:
        """Write the marks up to which the journals are replayed. A mark never moves back."""
        for number, (identity, offset) in enumerate(marks):
            if is_before((identity, offset), self.tree.mark(number)):
                continue
            name = f"{LAST_MARK}.{number}" if len(marks) > 1 else LAST_MARK
            data = (identity & (1 << 64) - 1).to_bytes(8, "big") + (offset & (1 << 64) - 1).to_bytes(8, "big")
            for place in self.tree.ledgers:
                self.overlay.put(f"{place.prefix}{name}", data)
        single = self.tree.storage == DB and len(self.tree.ledgers) == 1
        self._delete_journals(marks if single else self._rotated)

    def _delete_journals(self, marks: list[tuple[int, int]]) -> None:
        """Delete the journals before the marks, except the newest of them. `DbLedgerStorage` does so with one ledger directory only."""
        for place, (marked, _) in zip(self.tree.journals, marks, strict=False):
            before = [identity for identity, _ in self._ids(place) if identity < marked]
            for identity in before[:-_BACKUPS]:
                self.overlay.delete(f"{place.prefix}{identity & (1 << 64) - 1:x}.txn")


def _array(body: bytes) -> bytes:
    """Return the length-prefixed array that follows the ids of a record."""
    if len(body) < 20:
        raise unchecked(errors.UNDERFLOW)
    length = int.from_bytes(body[16:20], "big", signed=True)
    if length < 0:
        raise unchecked("java.lang.NegativeArraySizeException", str(length))
    if 20 + length > len(body):
        raise unchecked(errors.UNDERFLOW)
    return body[20 : 20 + length]
