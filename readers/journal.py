"""The journal of an append: its format, and what a directory looks like once it is committed.

An append to a directory makes its files in a sub-directory that the system ignores, `<directory>/<staging>/<token>/`.
Writing `commit.json` there, with fsync, is the commit; then the files are renamed into the directory one by one, in order.
Whoever looks in between sees some of them renamed: readers overlay the rest, so that the append is there as a whole from
its commit on, and the next writer finishes it. Should the system have been started in between and have changed the
directory, then the renames that are left must not happen any more: the state is `CHANGED`, and readers show the directory
as it is.

    {"journal": 2,
     "renames": [["staged name", "final name"], ...],      in order; staged names may lie in folders ("task-3/0.log")
     "sizes": {"final name": bytes, ...},                  of the new files
     "fingerprint": {"name": bytes, ...},                  the directory's files before
     "removes": ["name", ...],                             to be removed before the renames; may be absent
     "roots": {"root": "/its/directory"},                  the further roots; may be absent
     "barrier": "name",                                    see below; may be absent
     "transaction": {"app": "...", "version": 7}}          what the writer calls this append, see below; may be absent

A name may be among both: the old file goes before the first rename, the new one comes in its turn. So a repair takes away what was
derived from a damaged file before it puts another file in its place.

Names are those of the store's tree (`codec.store.roots`): a file of a sub-folder has its path, one of a further root the name of the root
before it. What is staged for a root is staged in it, so that it gets its name by a rename on one file system, beside a file that says where
the record is. One record commits all roots:

    {"link": 1, "of": "<directory>/<staging>/<token>"}                    `<further root>/<staging>/<token>/link.json`

No order of renames makes sense of old files in one root and new files in another. So the barrier, an empty file with which the system
refuses to start, stands in the directory from before the first step until after the last one. Readers don't see it.

A writer that may write the same rows once more, since it does not know whether it was done, names what it writes: an application
and a version that grows. Beside the staging places lies what was written last of each application, so that a repetition is known:

    {"transactions": 1, "apps": {"...": {"version": 7, "by": "..."}}}      `<directory>/<staging>/transactions.json`

Pure functions over names and sizes: no I/O here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from logwright.codec.store.roots import Roots

COMMIT = "commit.json"
"""The name of the commit record in `<directory>/<staging>/<token>/`."""

LINK = "link.json"
"""The name of the file that says where the commit record of a staging place in a further root is."""
VERSION = 2
"""Of the commit record. In version 1 a name had no folders."""
_VERSION = 1
"""Of the other files."""
TRANSACTIONS = "transactions.json"
"""The name of the record of the transactions in `<directory>/<staging>/`."""
MAX_BYTES = 64 << 20
"""A commit record is never larger: a hundred bytes a file, and a directory of a hundred thousand files."""


class State(Enum):
    """How far a committed append got."""

    PENDING = "pending"  # some renames or removals are left to do
    DONE = "done"  # nothing is left but the staging place itself
    CHANGED = "changed"  # the system changed the directory in between: what is left can't be done any more


class JournalError(ValueError):
    """A commit record that can't be understood."""


@dataclass(frozen=True)
class Txn:
    """What a writer calls one of its writes (`txnAppId` and `txnVersion` of Delta). `by` tells writers of one name apart: a stream
    that begins anew counts from 0 again."""

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
        """The names of the staged files."""
        return [source for source, _ in self.renames]

    @property
    def targets(self) -> Iterable[str]:
        """The names of all files that the record speaks of."""
        barrier = () if self.barrier is None else (self.barrier,)
        return {*self.sizes, *self.fingerprint, *self.removes, *barrier}

    def left(self, staged: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
        """The renames still to be done, in order: `staged` holds the names and sizes of the files in the staging place."""
        return tuple((source, target) for source, target in self.renames if source in staged)

    def state(self, present: Mapping[str, int], staged: Mapping[str, int]) -> State:
        """From the sizes of the files there are, by name: of `targets` in the store, of `sources` in the staging place."""
        left = {target: source for source, target in self.left(staged)}
        for target, source in left.items():
            if staged[source] != self.sizes[target]:
                return State.CHANGED  # not what was committed
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
        """What the directory holds in truth, where that differs from what is in it: the staged name that stands for a name,
        or None for a name that is gone. Empty when the append is done or can't be finished any more."""
        if self.state(present, staged) is State.CHANGED:
            return {}
        gone = [name for name in self.removes if name in present and name not in self.sizes]
        if self.barrier is not None and self.barrier in present:
            gone.append(self.barrier)
        out: dict[str, str | None] = dict.fromkeys(gone)
        out.update({target: source for source, target in self.left(staged)})
        return out


def sizes_of(names: Iterable[str], roots: Roots, size: Callable[[str], int | None]) -> dict[str, int]:
    """Return the sizes of those files that are there; `size` is asked for each path."""
    found = {name: size(roots.at(name)) for name in names}
    return {name: known for name, known in found.items() if known is not None}


def link_json(of: str) -> str:
    """Return the text of a file that says where the commit record is."""
    return json.dumps({"link": _VERSION, "of": of})


def parse_link(text: str | bytes) -> str:
    """Return where the commit record is. Raises `JournalError`."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JournalError(f"not JSON: {error}") from None
    of = data.get("of") if isinstance(data, dict) and data.get("link") == _VERSION else None
    if not isinstance(of, str) or not _absolute(of):
        raise JournalError(f'a record with "link": {_VERSION} and an absolute path is needed')
    return of


def parse(text: str | bytes) -> Journal:
    """Read a commit record. Raises `JournalError`: the file comes from a disk, it may hold anything."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JournalError(f"not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("journal") != VERSION:
        raise JournalError(f'a record with "journal": {VERSION} is needed')
    roots = data.get("roots", {})
    if not isinstance(roots, dict) or not all(_plain(a) and _absolute(b) for a, b in roots.items()):
        raise JournalError("roots: absolute paths by name are needed")
    renames = data.get("renames")
    if not isinstance(renames, list) or not all(map(_pair, renames)):
        raise JournalError("renames: pairs of a staged name and a file name are needed")
    removes = data.get("removes", [])
    if not isinstance(removes, list) or not all(map(_named, removes)):
        raise JournalError("removes: a list of file names is needed")
    barrier = data.get("barrier")
    if barrier is not None and not _plain(barrier):
        raise JournalError("barrier: a plain file name is needed")
    journal = Journal(
        renames=tuple((one[0], one[1]) for one in renames),
        sizes=_sizes(data.get("sizes"), "sizes"),
        fingerprint=_sizes(data.get("fingerprint"), "fingerprint"),
        removes=tuple(removes),
        txn=None if data.get("transaction") is None else _txn(data["transaction"]),
        roots=roots,
        barrier=barrier,
    )
    if {target for _, target in journal.renames} != set(journal.sizes):
        raise JournalError("sizes: one for each renamed file is needed")
    return journal


def _txn(data: Any) -> Txn:
    known: dict[str, Any] = data if isinstance(data, dict) else {}
    app: Any = known.get("app")
    version: Any = known.get("version")
    by: Any = known.get("by")
    whole = isinstance(version, int) and not isinstance(version, bool)
    if not isinstance(app, str) or not whole or version < 0 or not (by is None or isinstance(by, str)):
        raise JournalError(f"transaction: an app and a version are needed, found {data!r}")
    return Txn(app, version, by)


def parse_transactions(text: str | bytes) -> dict[str, Txn]:
    """The last transaction of each application. Raises `JournalError`."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JournalError(f"not JSON: {error}") from None
    apps = data.get("apps") if isinstance(data, dict) and data.get("transactions") == _VERSION else None
    if not isinstance(apps, dict):
        raise JournalError(f'a record with "transactions": {_VERSION} is needed')
    return {
        app: _txn({**known, "app": app} if isinstance(known, dict) else known) for app, known in apps.items()
    }


def transactions_json(last: Mapping[str, Txn]) -> str:
    """The record of the last transaction of each application."""
    apps = {app: {"version": txn.version, "by": txn.by} for app, txn in sorted(last.items())}
    return json.dumps({"transactions": _VERSION, "apps": apps}, indent=1)


def _plain(name: Any) -> bool:
    """A file name that can't leave its directory."""
    return isinstance(name, str) and name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _named(name: Any) -> bool:
    """A path that can't leave its directory."""
    return isinstance(name, str) and all(map(_plain, name.split("/")))


def _absolute(path: Any) -> bool:
    return isinstance(path, str) and path.startswith("/") and "\0" not in path


def _pair(one: Any) -> bool:
    return isinstance(one, list) and len(one) == 2 and all(map(_named, one))


def _sizes(data: Any, what: str) -> dict[str, int]:
    if not isinstance(data, dict):
        raise JournalError(f"{what}: sizes by file name are needed")
    for name, size in data.items():
        if not _named(name) or not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise JournalError(f"{what}: sizes by file name are needed, found {name!r}: {size!r}")
    return data
