"""The layout `bookkeeper.bookie`: the journal, ledger and index directories of a bookie.

Source: `BookieImpl`, `LedgerDirsManager`, `DefaultEntryLogger`, `IndexPersistenceMgr` of BookKeeper.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from logwright.codec.base import Match
from logwright.codec.bookkeeper.formats import digest
from logwright.codec.bookkeeper.startup import cookie
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.bookkeeper.store import builder, facts, rocks, tree, views
from logwright.codec.bookkeeper.store.known import KnownLedgers, known_ledgers
from logwright.codec.bookkeeper.store.missing import missing_entries
from logwright.codec.bookkeeper.store.tree import Place, Tree
from logwright.codec.bookkeeper.store.views import parts
from logwright.codec.fault import Fault, Kind, LogwrightError, Severity
from logwright.codec.option import STARTS, Options, used_by
from logwright.codec.plural import count
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role, folders_of
from logwright.codec.store.staged_rows import RowLayout

NAME = "bookkeeper.bookie"
_PROBES = (
    tree.VERSION, tree.LAST_MARK, f"{tree.LAST_MARK}.0", tree.LAST_ID,
)  # fmt: skip
_COOKIE = re.compile(rb"\s*\d+\s*(\n|$)")
_PROBED = 32
_MOST_JOURNALS = 100
"""A larger gap in the ids of journals is not reported as missing files."""
_ROLES = (Role.PRIMARY, Role.DERIVED, Role.METADATA, Role.LEFTOVER, Role.FOREIGN)
_COMPACTION = re.compile(r"[0-9a-f]{1,8}\.log(\.compacting|\.[0-9a-f]{1,8}\.compacted)")
_NO_START = "the bookie does not start"
ADVICE = (
    "If the ledgers are replicated, remove this bookie from the cluster and let autorecovery copy its entries: bookkeeper shell recover.",
    "Copy the directories before a bookie is started on them: garbage collection deletes entry logs without an index.",
)


class Bookie(RowLayout):
    """The directories of one bookie."""

    name = NAME
    title = "BookKeeper bookie: journals, entry logs and an index of the entries of ledgers"
    views = views.VIEWS
    default_view = "entries"
    options = builder.OPTIONS
    read_options = (*tree.READ_OPTIONS, *digest.OPTIONS, *used_by(STARTS, *tree.SETTINGS))
    folders = tree.FOLDERS
    root_options = tuple(option.name for option in tree.ROOTS)
    nouns = ("entry", "log")
    rows_noun = "record"
    advice = ADVICE

    def recognise(self, listing: Listing) -> Match:
        """Recognise a directory by the files in its folder `current`, or in the `current` folders of its subdirectories."""
        folders = [name for name in folders_of(listing) if not name.startswith(".")]
        inner = [name for name in (entry.name for entry in listing.entries()) if "/" in name]
        if any(tree.is_bookie_file(name) for name in inner):
            return Match.SURE
        if tree.CURRENT in folders and _is_directory(listing, f"{tree.CURRENT}/"):
            return Match.SURE
        if any(_is_directory(listing, f"{name}/{tree.CURRENT}/") for name in folders[:_PROBED]):
            return Match.SURE
        kinds = {kind for kind in ("journal", "ledger") for name in folders if name.startswith(kind)}
        return Match.NAME if len(kinds) == 2 else Match.NO

    roots = staticmethod(tree.roots)

    # Reading

    parts = staticmethod(parts)
    facts = staticmethod(facts.facts)

    def plan(self, listing: Listing, options: Options) -> Plan:
        """Plan entry logs and journals as primary files, by id, and index files as derived ones."""
        bookie = Tree(listing, options)
        places = {place.prefix: place for place in bookie.places.values()}
        ledgers = known_ledgers(bookie)
        files = [_planned(bookie, places, ledgers, entry.name, entry.size) for entry in listing.entries()]
        logs = {name: i for i, (_, name) in enumerate(bookie.logs)}
        order = {**logs, **{name: len(logs) + i for i, name in enumerate(bookie.all_journals)}}
        files.sort(key=lambda file: (_ROLES.index(file.role), order.get(file.name, 0), file.name))
        faults = (*_partial(bookie), *_name_faults(bookie))
        missing = (
            *_missing_directories(bookie),
            *_missing_cookies(bookie),
            *_missing_journals(bookie),
            *missing_entries(bookie, options),
        )
        return Plan(tuple(files), faults, _facts(bookie), missing)

    # Writing

    def order(self, names: Iterable[str]) -> Sequence[str]:
        """Entry logs come before the index, which comes before journals; lastMark and VERSION are last.

        Of a RocksDB database the file that names the others comes last.
        """
        return sorted(names, key=lambda name: (_commit_rank(name), name))

    row_builder = builder.BookieBuilder


def _is_directory(listing: Listing, prefix: str) -> bool:
    """Return whether a folder `current` has one of a bookie's small files."""
    for name in _PROBES:
        try:
            head = listing.read(f"{prefix}{name}", 0, 64)
        except (LogwrightError, KeyError, OSError):
            continue
        if name != tree.VERSION or _COOKIE.match(head):
            return True
    return False


def _commit_rank(name: str) -> int:
    base = name.rpartition("/")[2]
    if base == tree.VERSION:
        return 6
    if tree.mark_index(base) is not None:
        return 5
    if base.endswith(".txn"):
        return 4
    if base == rocks.CURRENT:
        return 3
    is_index = base.endswith(".idx") or f"/{tree.LOCATIONS}/" in name or f"/{tree.LEDGERS}/" in name
    return 2 if is_index else 1 if base == tree.LAST_ID else 0


def _planned(
    bookie: Tree, places: dict[str, Place], ledgers: KnownLedgers, name: str, size: int
) -> PlannedFile:
    prefix = next((prefix for prefix in places if name.startswith(prefix)), "")
    if not prefix:
        return PlannedFile(name, size, Role.FOREIGN)
    place, inner = places[prefix], name[len(prefix) :]
    for number, codec, owners in (
        (tree.log_id(inner), tree.ENTRY_LOG, bookie.ledgers),
        (tree.journal_id(inner), tree.JOURNAL, bookie.journals),
    ):
        if number is not None and place in owners:
            hints = {"number": number, "ledgers": ledgers.in_file(name)}
            return PlannedFile(name, size, Role.PRIMARY, codec, hints)
    if tree.ledger_of(inner) is not None and place in bookie.indexes:
        return PlannedFile(name, size, Role.DERIVED, tree.INDEX, {"number": tree.ledger_of(inner)})
    if inner.startswith((f"{tree.LOCATIONS}/", f"{tree.LEDGERS}/", "metadata-cache/")):
        role = Role.METADATA if inner.startswith(tree.LEDGERS) else Role.DERIVED
        return PlannedFile(name, size, role, note="RocksDB")
    if tree.mark_index(inner) is not None or inner in (tree.VERSION, tree.LAST_ID, tree.DIRTY, tree.STATUS):
        kind = tree.LAST_MARK if inner.startswith(tree.LAST_MARK) else inner
        return PlannedFile(name, size, Role.METADATA, tree.METADATA[kind])
    if _COMPACTION.fullmatch(inner):
        return PlannedFile(
            name, size, Role.LEFTOVER, tree.ENTRY_LOG, note="of a compaction that was interrupted"
        )
    if inner.endswith(".idx.rloc"):
        return PlannedFile(name, size, Role.LEFTOVER, note="of an interrupted move of an index file")
    return PlannedFile(name, size, Role.FOREIGN)


def _facts(bookie: Tree) -> dict[str, Any]:
    return {
        "storage": bookie.storage,
        "journal_directories": tuple(place.prefix.rstrip("/") for place in bookie.journals),
        "ledger_directories": tuple(place.prefix.rstrip("/") for place in bookie.ledgers),
        "index_directories": tuple(place.prefix.rstrip("/") for place in bookie.indexes),
        "entry_logs": len(bookie.logs),
        "entry_log_bytes": sum(bookie.sizes[name] for _, name in bookie.logs),
        "journals": len(bookie.all_journals),
        "ledgers": len(bookie.index_files) if bookie.storage != tree.DB else None,
        "last_marks": [
            {"directory": place.prefix.rstrip("/"), "journal": f"{mark[0]:x}.txn", "offset": mark[1]}
            for i, place in enumerate(bookie.journals)
            if (mark := bookie.mark(i)) != (0, 0)
        ],
        "dirty": any(f"{place.prefix}{tree.DIRTY}" in bookie.sizes for place in bookie.ledgers),
    }


def _name_faults(bookie: Tree) -> Iterator[tuple[str, Fault]]:
    """Yield faults of names that a bookie cannot use."""
    for place in bookie.places.values():
        for file in bookie.files(place):
            name = f"{place.prefix}{file}"
            if file.endswith(".txn") and tree.journal_id(file) is None:
                yield name, _fault("the name is not a hexadecimal number", _NO_START)
            elif re.fullmatch("[0-9a-fA-F]{9,}\\.log", file) and int(file[:-4], 16) >= 1 << 32:
                yield name, _fault("the id has more than 32 bits", _NO_START)
            elif file.endswith(".log") and tree.log_id(file) is None and place in bookie.ledgers:
                text = "the name is not that of an entry log: a hexadecimal number below 80000000 in lower case, without zeros in front"
                yield name, _fault(text, "the bookie never reads it", Severity.WARNING)
    for name in bookie.sizes:
        prefix = next((place.prefix for place in bookie.indexes if name.startswith(place.prefix)), None)
        if prefix is not None and name.endswith(".idx") and tree.ledger_of(name[len(prefix) :]) is None:
            text = "the index file is not at the place that its name requires"
            yield name, _fault(text, "the bookie does not find the ledger")


def _fault(text: str, system: str, severity: Severity = Severity.ERROR) -> Fault:
    return Fault(NAME, 0, 0, Kind.LINK, text, severity, system)


def single_directory(bookie: Tree) -> tuple[str, str]:
    """Return what is missing, and what to do, if only one of the directories of a bookie is opened; else empty strings."""
    if list(bookie.places) != [""] or (bookie.journals and bookie.ledgers):
        return "", ""
    kind, rest, option = "ledger", "journal", tree.JOURNALS
    if not bookie.ledgers:
        kind, rest, option = "index" if bookie.index_files else "journal", "ledger", tree.LEDGER_DIRS
    return (
        f"this is the {kind} directory of a bookie without its {rest} directories",
        f"pass the directory that holds all of them, or bk_server.conf, or name them with the option {option.name}",
    )


def _partial(bookie: Tree) -> Iterator[tuple[str, Fault]]:
    text, advice = single_directory(bookie)
    if text:
        yield "", _fault(f"{text}: {advice}", "", Severity.INFO)


def _missing_directories(bookie: Tree) -> Iterator[tuple[str, Fault]]:
    """Yield a fault for each directory without a file that options name, or a cookie, if it names all others as they are called."""
    used = {name.partition("/")[0] for name in bookie.sizes}
    for root in tree.roots(bookie.options) if bookie.cookies else ():
        if root.name not in used and root.name != bookie.own_root:
            text = f"the directory {root.path} is missing or empty"
            yield "", _fault(text, _NO_START)
    present = {place.name for key, place in bookie.places.items() if key in used}
    reported: set[str] = set()
    for data in bookie.cookies.values() if "" not in bookie.places else ():
        try:
            stored = cookie.Cookie.parse(data)
        except JavaError:
            continue
        named = {name for kind in tree.folders_named_by(stored) for name in kind}
        if present <= named:
            for name in sorted(named - present - reported):
                text = f"VERSION names the directory {name}, which is missing or empty"
                yield "", _fault(text, _NO_START)
            reported |= named


def _missing_cookies(bookie: Tree) -> Iterator[tuple[str, Fault]]:
    """Yield a fault for each directory with files but without a cookie, if others have one."""
    for place in bookie.places.values() if bookie.cookies else ():
        if bookie.files(place) and f"{place.prefix}{tree.VERSION}" not in bookie.sizes:
            fault = _fault(f"{place.prefix}{tree.VERSION} is missing", f"{_NO_START}: InvalidCookieException")
            yield "", replace(fault, rows_lost=0)


def _missing_journals(bookie: Tree) -> Iterator[tuple[str, Fault]]:
    """Yield faults of journals that are missing: the marked one, and those between two others."""
    for number, place in enumerate(bookie.journals):
        identity, _ = bookie.mark(number)
        journals = bookie.journal_files(place)
        ids = [journal for journal, _ in journals]
        if identity > 0 and identity not in ids:
            text = f"lastMark names journal {identity:x}.txn, which is missing"
            system = (
                f"{_NO_START}: IOException: Recovery log {identity} is missing at {place.prefix.rstrip('/')}"
            )
            yield "", _fault(text, system)
        for (before, _), (after, name) in itertools.pairwise(journals):
            if after > before + 1 and after > identity:
                lost = after - before - 1
                text = f"{count(lost, 'journal')} {'is' if lost == 1 else 'are'} missing between {before:x}.txn and this one"
                system = "the bookie starts without their entries"
                severity = Severity.ERROR
                if lost > _MOST_JOURNALS:
                    text = f"the ids of {before:x}.txn and this journal are not consecutive; releases up to 4.2 take them from the clock"
                    system, severity = "", Severity.INFO
                yield name, _fault(text, system, severity)


LAYOUT = Bookie()
