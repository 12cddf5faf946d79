"""The journal of an append: its format, and the state of a directory after the commit.

An append to a directory writes its files to a sub-directory that the system ignores, `<directory>/<staging>/<token>/`. Writing
`commit.json` there, with fsync, is the commit; then the files are renamed into the directory one by one, in order. A reader in between
overlays the renames that are still missing, so the append is complete for it from the commit on; the next writer finishes it. If the system
was started in between and changed the directory, the remaining renames must not happen: the state is `CHANGED`, and readers show the
directory as it is.

    {"journal": 2,
     "renames": [["staged name", "final name"], ...],      in order; staged names may be in folders ("task-3/0.log")
     "sizes": {"final name": bytes, ...},                  of the new files
     "fingerprint": {"name": bytes, ...},                  files of the directory before
     "removes": ["name", ...],                             removed before the renames; optional
     "roots": {"root": "/its/directory"},                  further roots; optional
     "barrier": "name",                                    see below; optional
     "transaction": {"app": "...", "version": 7}}          the writer's name of this append, see below; optional

A name may be both removed and renamed to: the old file is removed before the first rename, and the new one follows in its turn. So a repair
removes what was derived from a damaged file before it replaces that file.

Names are those of the store's tree (`codec.store.roots`): a file in a sub-folder has its path, and a file of a further root starts with the
name of the root. Files for a root are staged inside it, so that the rename stays on one file system, beside a file that names the commit
record. One record commits all roots:

    {"link": 1, "of": "<directory>/<staging>/<token>"}                    `<further root>/<staging>/<token>/link.json`

With several roots no order of renames is safe, since old files of one root could meet new files of another. The barrier, an empty file with
which the system refuses to start, is in the directory from before the first step until after the last. Readers ignore it.

A writer that may repeat a write, because it does not know whether it succeeded, names its writes by an application and an increasing
version. The last version of each application is recorded, so that a repetition is recognised:

    {"transactions": 1, "apps": {"...": {"version": 7, "by": "..."}}}      `<directory>/<staging>/transactions.json`

These are pure functions over names and sizes, without I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from logwright.codec.store.roots import Roots

COMMIT = "commit.json"
"""Name of the commit record in `<directory>/<staging>/<token>/`."""

LINK = "link.json"
"""Name of the file in a staging folder of a further root that names the commit record."""
VERSION = 2
"""Version of the commit record. Version 1 had no folders in names."""
_VERSION = 1
"""Version of the other files."""
TRANSACTIONS = "transactions.json"
"""Name of the record of transactions in `<directory>/<staging>/`."""
MAX_BYTES = 64 << 20
"""Limit of the size of a commit record: a hundred thousand files at several hundred bytes."""


class State(Enum):
    """Progress of a committed append."""

    PENDING = "pending"  # some renames or removals remain
    DONE = "done"  # only the staging folder remains
    CHANGED = "changed"  # the system changed the directory meanwhile, so the rest must not be done


class JournalError(ValueError):
    """An invalid commit record."""


@dataclass(frozen=True)
class Txn:
    """The identity of one write: application and version (`txnAppId` and `txnVersion` of Delta). `by` distinguishes writers with the same
    application: a restarted stream counts from 0 again."""

    app: str
    version: int
    by: str | None = None


@dataclass(frozen=True)
class Journal:
    """A committed append."""

    renames: tuple[tuple[str, str], ...]
    sizes: Mapping[str, int]
    fingerprint: Mapping[str, int]
    removes: tuple[str, ...] = field(default=())
    txn: Txn | None = None
    roots: Mapping[str, str] = field(default_factory=dict)
    barrier: str | None = None

    def to_json(self) -> str:
        record: dict[str, Any] = {
            "journal": VERSION,
            "renames": [list(pair) for pair in self.renames],
            "sizes": dict(self.sizes),
            "fingerprint": dict(self.fingerprint),
            "removes": list(self.removes),
        }
        if self.roots:
            record["roots"] = dict(self.roots)
        if self.barrier is not None:
            record["barrier"] = self.barrier
        if self.txn is not None:
            record["transaction"] = {"app": self.txn.app, "version": self.txn.version, "by": self.txn.by}
        return json.dumps(record, indent=1)

    @property
    def sources(self) -> Iterable[str]:
        """Names of the staged files."""
        return [source for source, _ in self.renames]

    @property
    def targets(self) -> Iterable[str]:
        """Names of all files in the record."""
        barrier = () if self.barrier is None else (self.barrier,)
        return {*self.sizes, *self.fingerprint, *self.removes, *barrier}

    def left(self, staged: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
        """Return the remaining renames in order. `staged` has the names and sizes of the files in the staging folder."""
        return tuple((source, target) for source, target in self.renames if source in staged)

    def state(self, present: Mapping[str, int], staged: Mapping[str, int]) -> State:
        """Return the state, given the sizes of existing files by name: `present` of `targets`, `staged` of `sources`."""
        left = {target: source for source, target in self.left(staged)}
        for target, source in left.items():
            if staged[source] != self.sizes[target]:
                return State.CHANGED  # not the committed file
        expected = dict(self.fingerprint)
        for target in self.sizes:
            if target not in left:
                expected[target] = self.sizes[target]
        going = {name for name in self.removes if name in left or name not in self.sizes}
        for name, size in expected.items():
            if present.get(name) != size and not (name in going and name not in present):
                return State.CHANGED
        if any(target in present and target not in self.fingerprint for target in left):
            return State.CHANGED
        return State.PENDING if left or any(name in present for name in going) else State.DONE

    def overlay(self, present: Mapping[str, int], staged: Mapping[str, int]) -> dict[str, str | None]:
        """Return the differences between the committed state and the directory: for each name the staged file, or None if it is removed.
        Empty if the append is finished or cannot be finished."""
        if self.state(present, staged) is State.CHANGED:
            return {}
        gone = [name for name in self.removes if name in present and name not in self.sizes]
        if self.barrier is not None and self.barrier in present:
            gone.append(self.barrier)
        out: dict[str, str | None] = dict.fromkeys(gone)
        out.update({target: source for source, target in self.left(staged)})
        return out


def sizes_of(names: Iterable[str], roots: Roots, size: Callable[[str], int | None]) -> dict[str, int]:
    """Return the sizes of the files that exist; `size` is called with each path."""
    sizes = {name: size(roots.at(name)) for name in names}
    return {name: known for name, known in sizes.items() if known is not None}


def link_json(of: str) -> str:
    """Return the text of a file that names the commit record."""
    return json.dumps({"link": _VERSION, "of": of})


def parse_link(text: str | bytes) -> str:
    """Return the staging folder of the commit record. Raises `JournalError`."""
    data = _json(text)
    of = data.get("of") if isinstance(data, dict) and data.get("link") == _VERSION else None
    if not isinstance(of, str) or not _absolute(of):
        raise JournalError(f'expected "link": {_VERSION} and an absolute path')
    return of


def _json(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JournalError(f"not JSON: {error}") from None


def parse(text: str | bytes) -> Journal:
    """Parse a commit record. Raises `JournalError`, since a file may hold anything."""
    data = _json(text)
    if not isinstance(data, dict) or data.get("journal") != VERSION:
        raise JournalError(f'expected "journal": {VERSION}')
    roots = data.get("roots", {})
    if not isinstance(roots, dict) or not all(_plain(a) and _absolute(b) for a, b in roots.items()):
        raise JournalError("roots: expected absolute paths by name")
    renames = data.get("renames")
    if not isinstance(renames, list) or not all(map(_pair, renames)):
        raise JournalError("renames: expected pairs of a staged name and a file name")
    removes = data.get("removes", [])
    if not isinstance(removes, list) or not all(map(_named, removes)):
        raise JournalError("removes: expected a list of file names")
    barrier = data.get("barrier")
    if barrier is not None and not _plain(barrier):
        raise JournalError("barrier: expected a plain file name")
    journal = Journal(
        renames=tuple((pair[0], pair[1]) for pair in renames),
        sizes=_sizes(data.get("sizes"), "sizes"),
        fingerprint=_sizes(data.get("fingerprint"), "fingerprint"),
        removes=tuple(removes),
        txn=None if data.get("transaction") is None else _txn(data["transaction"]),
        roots=roots,
        barrier=barrier,
    )
    if {target for _, target in journal.renames} != set(journal.sizes):
        raise JournalError("sizes: expected one for each renamed file")
    return journal


def _txn(data: Any) -> Txn:
    known: dict[str, Any] = data if isinstance(data, dict) else {}
    app: Any = known.get("app")
    version: Any = known.get("version")
    by: Any = known.get("by")
    valid_version = isinstance(version, int) and not isinstance(version, bool)
    if (
        not isinstance(app, str)
        or not valid_version
        or version < 0
        or not (by is None or isinstance(by, str))
    ):
        raise JournalError(f"transaction: expected an app and a version, found {data!r}")
    return Txn(app, version, by)


def parse_transactions(text: str | bytes) -> dict[str, Txn]:
    """Return the last transaction of each application. Raises `JournalError`."""
    data = _json(text)
    apps = data.get("apps") if isinstance(data, dict) and data.get("transactions") == _VERSION else None
    if not isinstance(apps, dict):
        raise JournalError(f'expected "transactions": {_VERSION}')
    return {
        app: _txn({**known, "app": app} if isinstance(known, dict) else known) for app, known in apps.items()
    }


def transactions_json(last: Mapping[str, Txn]) -> str:
    """Return the record of the last transaction of each application."""
    apps = {app: {"version": txn.version, "by": txn.by} for app, txn in sorted(last.items())}
    return json.dumps({"transactions": _VERSION, "apps": apps}, indent=1)


def _plain(name: Any) -> bool:
    """Return whether a name cannot leave its directory."""
    return isinstance(name, str) and name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _named(name: Any) -> bool:
    """Return whether a path cannot leave its directory."""
    return isinstance(name, str) and all(map(_plain, name.split("/")))


def _absolute(path: Any) -> bool:
    return isinstance(path, str) and path.startswith("/") and "\0" not in path


def _pair(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(map(_named, pair))


def _sizes(data: Any, label: str) -> dict[str, int]:
    if not isinstance(data, dict):
        raise JournalError(f"{label}: expected sizes by file name")
    for name, size in data.items():
        if not _named(name) or not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise JournalError(f"{label}: expected sizes by file name, found {name!r}: {size!r}")
    return data
