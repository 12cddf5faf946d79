"""The layout `zookeeper.datadir`: the folder `version-2` of a server's data directory, and the tree that its clients see.

The logs may have their own directory (option `dataLogDir`). Source: `FileTxnSnapLog`, `FileSnap`, `FileTxnLog`, `Util` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from logwright.codec.base import Match
from logwright.codec.fault import Fault, Kind, LogwrightError, Severity, UsageError
from logwright.codec.layout import Layout
from logwright.codec.option import STARTS, Options, used_by
from logwright.codec.single_frame import ParseError
from logwright.codec.store.build import Builder, Placement, Stage, Summary
from logwright.codec.store.listing import Entry, Listing, Plan, PlannedFile, Role
from logwright.codec.store.roots import Root
from logwright.codec.zookeeper import names
from logwright.codec.zookeeper.check.datadir import ADVICE
from logwright.codec.zookeeper.formats.epochs import parse_number
from logwright.codec.zookeeper.formats.snapshot.tables import COMPRESSION
from logwright.codec.zookeeper.formats.version1 import VERSION_1, is_old_file, refused
from logwright.codec.zookeeper.names import LOG, MYID, SNAPSHOT, TEMP, VERSION_DIR, FileName, zxid_text
from logwright.codec.zookeeper.startup import settings
from logwright.codec.zookeeper.store import views
from logwright.codec.zookeeper.store.assemble import place
from logwright.codec.zookeeper.store.builder import OPTIONS, TAKES, DirectoryBuilder
from logwright.codec.zookeeper.store.facts import facts
from logwright.codec.zookeeper.store.files import (
    APART,
    DATA_LOG_DIR,
    base,
    candidates,
    content_of,
    folder,
    logs,
    snapshots,
)
from logwright.codec.zookeeper.store.resume import resume
from logwright.codec.zookeeper.store.views import ALONE, VIEWS, parts

NAME = "zookeeper.datadir"
_CODECS = {LOG: "zookeeper.txnlog", SNAPSHOT: "zookeeper.snapshot"}
_EPOCHS = {names.ACCEPTED_EPOCH: "zookeeper.accepted_epoch", names.CURRENT_EPOCH: "zookeeper.current_epoch"}
_UPDATING_EPOCH = "updatingEpoch"
"""Left by a server of 3.4 that was stopped while it wrote currentEpoch (`QuorumPeer.UPDATING_EPOCH_FILENAME`)."""
_LARGEST = 4096
"""The size limit of a file with one number."""
_LOOKED_AT = 8
"""Number of logs that are opened to recognise a directory, if no name identifies it."""

READ_OPTIONS = (APART, *views.OPTIONS, *used_by(STARTS, *settings.OPTIONS))


class DataDir(Layout):
    """A data directory. A server accepts only names that begin with `log.` and `snapshot.`, and no sub-folders."""

    name = NAME
    title = "ZooKeeper data directory: snapshots of a tree, and logs of its transactions"
    views = VIEWS
    default_view = "tree"
    printed = names.PRINTED
    options = OPTIONS
    read_options = READ_OPTIONS
    data_folder = VERSION_DIR
    root_options = (DATA_LOG_DIR,)
    barrier = names.log_name(
        0
    )  # among the snapshots: the server does not start (SnapDirContentCheckException)
    alone = ALONE
    nouns = ("record", "file")
    advice = ADVICE

    def recognise(self, listing: Listing) -> Match:
        parsed = [(entry, names.parse(entry.name)) for entry in listing.entries()]
        ours = [(entry, named) for entry, named in parsed if named is not None]
        if listing.name == VERSION_1:
            return Match.NAME if ours else Match.NO
        if listing.name == VERSION_DIR:
            return Match.NAME if ours else Match.MAYBE
        # Rotated logs of other programs are called log.1, log.2 too, so their content decides.
        looked = [file for file in ours if file[1].kind == SNAPSHOT][:_LOOKED_AT]
        looked += [file for file in ours if file[1].kind == LOG][:_LOOKED_AT]
        return Match.NAME if any(_is_ours(listing, *file) for file in looked) else Match.NO

    def parent_files(self, options: Options) -> Mapping[str, bytes]:
        number = options[names.MYID]
        return {} if number is None else {names.MYID: str(number).encode()}

    def roots(self, options: Options) -> Sequence[Root]:
        path = options[DATA_LOG_DIR]
        return () if path is None else (Root(DATA_LOG_DIR, path),)

    # Reading

    def plan(self, listing: Listing, options: Options) -> Plan:
        """Return the plan. Snapshots and logs are primary, each in the order of their zxids, even if a server does not need them now."""
        if _is_old(listing):
            raise refused("this directory")
        return _Planner(listing, options).plan()

    parts = staticmethod(parts)
    facts = staticmethod(facts)

    # Writing

    takes = TAKES

    def order(self, names: Iterable[str]) -> Sequence[str]:
        """Epochs come first, the accepted one never below the other; a log comes after the snapshot that it follows."""
        return sorted(names, key=_written)

    def builder(
        self,
        listing: Listing | None,
        name: str,
        options: Options,
        *,
        staged: bool = False,
        extra: Stage | None = None,
    ) -> Builder:
        if listing is not None and options[DATA_LOG_DIR] is not None:
            _refuse_misplaced(listing)
        resumed = None if listing is None or staged else resume(listing)
        return DirectoryBuilder(options, resumed, extra, staged=staged)

    def assemble(
        self,
        listing: Listing | None,
        name: str,
        parts: Sequence[tuple[Stage, Summary]],
        extra: Stage,
        options: Options,
    ) -> Placement:
        return place(None if listing is None else resume(listing), parts, extra, options, self.order)


def _refuse_misplaced(listing: Listing) -> None:
    """Refuse to add to a log that a server would not read because it is in the wrong directory."""
    for entry in listing.entries():
        named = names.parse(base(entry.name))
        if named is not None and (named.kind == LOG) is not bool(folder(entry.name)):
            where = "logs" if folder(entry.name) else "snapshots"
            raise UsageError(
                f"{base(entry.name)} is in the directory of the {where}: a server does not start",
                advice=f"Move it away first, or leave {DATA_LOG_DIR} out",
            )


_KINDS = (names.ACCEPTED_EPOCH, names.CURRENT_EPOCH, SNAPSHOT, LOG)


def _written(name: str) -> tuple[int, int, str]:
    named = names.parse(base(name))
    kind = base(name) if named is None else named.kind
    place = _KINDS.index(kind) if kind in _KINDS else -1
    return (place, 0 if named is None else named.zxid, name)


def _is_ours(listing: Listing, entry: Entry, named: FileName) -> bool:
    if named.kind == SNAPSHOT and (named.compression or named.rest):
        return True  # no other system has such names
    try:
        if content_of(listing, entry.name) in ((LOG, ""), (SNAPSHOT, "")):
            return True
        head = listing.read(entry.name, 0, _LARGEST)
        return not folder(entry.name) and is_old_file(head, named)
    except LogwrightError:
        return named.kind == SNAPSHOT


def _is_old(listing: Listing) -> bool:
    """Return whether a server of 3.0 or older wrote the directory: all its logs and snapshots are in that format."""
    if listing.name == VERSION_DIR:
        return False
    parsed = [(entry.name, names.parse(entry.name)) for entry in listing.entries()]
    ours = [(name, named) for name, named in parsed if named is not None and named.zxid >= 0]
    try:
        return bool(ours) and all(
            is_old_file(listing.read(name, 0, _LARGEST), named) for name, named in ours[:_LOOKED_AT]
        )
    except LogwrightError:
        return False


class _Planner:
    """Make the plan of one directory."""

    def __init__(self, listing: Listing, options: Options) -> None:
        self.listing = listing
        self.entries = listing.entries()
        self.separate_logs = options[DATA_LOG_DIR] is not None
        self.snapshots, self.logs = snapshots(listing), logs(listing)
        self.candidates = candidates(listing)
        self.faults: list[tuple[str, Fault]] = []

    def _fault(
        self,
        name: str,
        text: str,
        kind: Kind = Kind.LINK,
        severity: Severity = Severity.ERROR,
        system: str = "",
    ) -> None:
        self.faults.append((name, Fault(NAME, 0, 0, kind, text, severity, system)))

    def plan(self) -> Plan:
        planned = sorted((self._planned(entry) for entry in self.entries), key=self._rank)
        self._missing_files()
        return Plan(tuple(planned), tuple(self.faults), self._facts())

    def _rank(self, file: PlannedFile) -> tuple[int, int, str]:
        named = names.parse(base(file.name))
        if named is None or file.role in (Role.LEFTOVER, Role.FOREIGN):
            return (2 if file.role is Role.METADATA else 3, 0, file.name)
        return (0 if named.kind == SNAPSHOT else 1, named.zxid, file.name)

    def _planned(self, entry: Entry) -> PlannedFile:
        name = base(entry.name)
        named = names.parse(name)
        if named is not None:
            return self._data(entry, named)
        kind = name.partition(".")[0]
        if kind in _CODECS and "." in name:
            # A server writes no such name, so what it holds may be missing elsewhere.
            severity = Severity.INFO if content_of(self.listing, entry.name) is None else Severity.WARNING
            note = "no zxid in its name: a server never reads it"
            return self._leftover(entry, _CODECS[kind], note, severity=severity)
        if folder(entry.name):
            return PlannedFile(entry.name, entry.size, Role.FOREIGN, note="not ZooKeeper's, ignored by it")
        if name in _EPOCHS:
            return PlannedFile(entry.name, entry.size, Role.METADATA, _EPOCHS[name])
        if name == _UPDATING_EPOCH:
            note = "a server of 3.4 was stopped while it wrote currentEpoch"
            return PlannedFile(entry.name, entry.size, Role.METADATA, note=note)
        if name.removesuffix(TEMP) in _EPOCHS:
            note = "of an epoch that was being written"
            return self._leftover(entry, _EPOCHS[name.removesuffix(TEMP)], note)
        return PlannedFile(entry.name, entry.size, Role.FOREIGN, note="not ZooKeeper's, ignored by it")

    def _leftover(
        self,
        entry: Entry,
        codec: str,
        note: str,
        kind: Kind = Kind.LINK,
        severity: Severity = Severity.INFO,
        system: str = "",
    ) -> PlannedFile:
        """Report a file that a server does not read."""
        self._fault(entry.name, note, kind, severity, system)
        return PlannedFile(entry.name, entry.size, Role.LEFTOVER, codec, note=note)

    def _data(self, entry: Entry, named: FileName) -> PlannedFile:
        codec, of_logs = _CODECS[named.kind], folder(entry.name)
        if (of_logs or self.separate_logs) and named.kind == (SNAPSHOT if of_logs else LOG):
            error = "LogDirContentCheckException" if of_logs else "SnapDirContentCheckException"
            note = f"a {named.kind} in the directory of the {'logs' if of_logs else 'snapshots'}"
            # An error of the directory, since no view reads this file.
            self._fault("", f"{base(entry.name)} is {note}", system=f"the server does not start: {error}")
            return PlannedFile(entry.name, entry.size, Role.LEFTOVER, codec, note=note)
        if named.zxid < 0:
            note = f"a server never reads it: its zxid is {named.zxid}"
            return self._leftover(entry, codec, note, Kind.ORDER, Severity.WARNING)
        note = ""
        odd = named.rest if named.compression == "" else named.rest.rpartition(".")[0]
        if odd:
            note = f"a server treats it as a {named.kind} of zxid {zxid_text(named.zxid)}, although the name continues with {odd!r}"
            self._fault(entry.name, note, severity=Severity.WARNING)
        self._content(entry, named)
        return PlannedFile(entry.name, entry.size, Role.PRIMARY, codec, note=note)

    def _content(self, entry: Entry, named: FileName) -> None:
        """Report a file with the content of another kind than its name says."""
        content = content_of(self.listing, entry.name)
        if content is None or content == (named.kind, "" if named.kind == LOG else named.compression):
            return
        kind, suffix = content
        text = f"it has the content of a {kind}"
        if kind == named.kind:
            text = (
                f"its content is {COMPRESSION[suffix] if suffix else 'not compressed'}, contrary to its name"
            )
        self._fault(entry.name, f"{text}: the file was renamed, copied or exchanged", Kind.MAGIC)

    def _missing_files(self) -> None:
        """Report problems of the directory as a whole, by its file names."""
        if self.candidates:
            return
        if self.logs:
            text = "there are logs, and no snapshot that a server would try"
            if not self.separate_logs and not self.snapshots:
                text += f"; if the snapshots are elsewhere, name that directory, and pass this one as {DATA_LOG_DIR}"
            system = (
                "the server does not start: IOException: No snapshot found, but there are log entries. Something is broken! "
                "(before 3.5.3 it starts from an empty tree)"
            )
            self._fault("", text, severity=Severity.WARNING, system=system)
        elif self.snapshots:
            text = "there is no log, and no snapshot that a server would try"
            self._fault("", text, severity=Severity.WARNING, system="the server starts with an empty tree")

    # Facts

    def _facts(self) -> dict[str, Any]:
        newest = self.candidates[0] if self.candidates else None
        return {
            "snapshots": len(self.snapshots),
            "snapshot_bytes": sum(snapshot.size for snapshot in self.snapshots),
            "newest_snapshot": None if newest is None else newest.name,
            "snapshot_zxid": None if newest is None else zxid_text(newest.zxid),
            "logs": len(self.logs),
            "log_bytes": sum(log.size for log in self.logs),
            "accepted_epoch": self._number(self.listing, names.ACCEPTED_EPOCH),
            "current_epoch": self._number(self.listing, names.CURRENT_EPOCH),
            "myid": self._myid(),
        }

    def _number(self, listing: Listing, name: str) -> int | None:
        entry = next((entry for entry in listing.entries() if entry.name == name), None)
        if entry is None:
            return None
        try:
            return parse_number(listing.read(name, 0, _LARGEST))
        except (ParseError, LogwrightError):
            return None

    def _myid(self) -> int | None:
        try:
            above = self.listing.parent() if self.listing.name == VERSION_DIR else None
            return None if above is None else self._number(above, MYID)
        except LogwrightError:
            return None


LAYOUT = DataDir()
