"""The layout `rocketmq.store`: a broker's store directory.

Source: `DefaultMessageStore`, `StorePathConfigHelper` of RocketMQ.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from logwright.codec.base import Match
from logwright.codec.fault import Fault, Kind, LogwrightError, Severity
from logwright.codec.java import integer
from logwright.codec.option import STARTS, Options, used_by
from logwright.codec.rocketmq.check.store import ADVICE
from logwright.codec.rocketmq.formats.commitlog.codec import BODY_LIMIT, FILE_SIZE
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC as COMMIT_LOG
from logwright.codec.rocketmq.formats.page import TIMER_LOG_FLUSHED as FLUSHED
from logwright.codec.rocketmq.formats.timer import LOG as TIMER_LOG
from logwright.codec.rocketmq.formats.timer import WHEEL_SIZE
from logwright.codec.rocketmq.store import builder, facts, tree, views
from logwright.codec.rocketmq.store.log import UNITS, renamed
from logwright.codec.rocketmq.store.views import parts
from logwright.codec.store.build import Builder
from logwright.codec.store.listing import Entry, Listing, Plan, PlannedFile, Role, folders_of
from logwright.codec.store.staged_rows import RowLayout

NAME = "rocketmq.store"
_DERIVED = {
    tree.QUEUE: "rocketmq.consumequeue",
    tree.BATCH: "rocketmq.batchconsumequeue",
    tree.EXT: "rocketmq.consumequeue_ext",
    tree.INDEX: "rocketmq.indexfile",
}
_QUEUES = (_DERIVED[tree.QUEUE], _DERIVED[tree.BATCH])
_MAPPED = {
    "rocketmq.commitlog": FILE_SIZE,
    _DERIVED[tree.QUEUE]: tree.QUEUE_SIZE,
    _DERIVED[tree.BATCH]: tree.BATCH_SIZE,
    _DERIVED[tree.EXT]: tree.EXT_SIZE,
    TIMER_LOG.name: tree.TIMER_SIZE,
}
"""The kinds of files that a broker maps completely: all have the size that the option configures."""
_METADATA = {
    tree.CHECKPOINT: "rocketmq.checkpoint",
    tree.ABORT: "rocketmq.abort",
    f"{tree.ABORT}.bak": "rocketmq.abort",
    tree.LOCK: None,
    tree.TOPICS_FILE: "rocketmq.topics",
    f"{tree.TOPICS_FILE}.bak": "rocketmq.topics",
    tree.OFFSETS_FILE: "rocketmq.consumer_offsets",
    f"{tree.OFFSETS_FILE}.bak": "rocketmq.consumer_offsets",
    tree.DELAYS_FILE: "rocketmq.delay_offsets",
    f"{tree.DELAYS_FILE}.bak": "rocketmq.delay_offsets",
    tree.TIMER_CHECK: "rocketmq.timercheck",
    tree.WHEEL: "rocketmq.timerwheel",
}
_ROLES = (Role.PRIMARY, Role.DERIVED, Role.METADATA, Role.LEFTOVER, Role.FOREIGN)
_OWN = {tree.CHECKPOINT, tree.LOCK, f"{tree.ABORT}.bak"}
_FOLDERS = {pattern.partition("/")[0] for pattern in tree.FOLDERS}
_MOST_QUEUES = 32
_AGREE = 2
"""Number of units that prove what a single damaged one does not."""
_RESTORED = 2
"""Number of timer log files from which a broker restores the wheel."""
_BLOCK_UNITS = 8192
"""Number of units of a queue file that are read at once, to find the last one."""
READ_OPTIONS = (
    *tree.ROOTS, *tree.GEOMETRY, BODY_LIMIT, *views.OPTIONS, *used_by(STARTS, *tree.SETTINGS),
)  # fmt: skip


class Store(RowLayout):
    """A store. The commit log may be in one or several other directories."""

    name = NAME
    title = "RocketMQ store: a commit log of messages, with consume queues and an index"
    views = views.VIEWS
    default_view = "messages"
    options = builder.OPTIONS
    read_options = READ_OPTIONS
    folders = tree.FOLDERS
    root_options = tuple(option.name for option in tree.ROOTS)
    barrier = tree.BARRIER
    nouns = ("message", "file")
    staged_file = f"{tree.LOG}/rows"
    advice = ADVICE

    def recognise(self, listing: Listing) -> Match:
        names = [entry.name for entry in listing.entries()]
        logs = [name for name in names if tree.is_log(name) and tree.base_of(name) is not None]
        if any(
            COMMIT_LOG.recognise(_file_name(name), listing.read(name, 0, 64)) is Match.SURE
            for name in logs[:3]
        ):
            return Match.SURE
        if logs or any(tree.first(name) == tree.QUEUE and tree.queue_of(name) for name in names):
            return Match.NAME
        folders = set(folders_of(listing))
        known = tree.CHECKPOINT in names and folders & _FOLDERS
        if len(_OWN & set(names)) > 1 or known or (tree.QUEUE in folders and len(folders & _FOLDERS) > 1):
            return Match.NAME
        only = tree.LOG in folders and folders <= _FOLDERS and not set(names) - _METADATA.keys()
        return Match.MAYBE if only else Match.NO

    roots = staticmethod(tree.roots)

    # Reading

    parts = staticmethod(parts)
    facts = staticmethod(facts.facts)

    def plan(self, listing: Listing, options: Options) -> Plan:
        """Plan the commit log as primary files, in numerical order, and queues and index as derived ones."""
        copies = tree.copies(listing)
        slots, _ = tree.index_geometry(listing, options)
        files = [
            PlannedFile(
                entry.name,
                entry.size,
                Role.LEFTOVER,
                note=f"a file of the same offset is {copies[entry.name]}",
            )
            if entry.name in copies
            else self._planned(entry, slots)
            for entry in listing.entries()
        ]
        files.sort(
            key=lambda file: (
                _ROLES.index(file.role),
                tree.start_of(file.name) if tree.is_log(file.name) else 0,
                file.name,
            )
        )
        logs = [Entry(file.name, file.size) for file in files if file.role is Role.PRIMARY]
        last, elsewhere = _last_with_messages(listing, logs), renamed(listing, logs)
        for i, file in enumerate(files[: len(logs)]):
            hints = {**file.hints, "followed": i < last, "renamed": file.name in elsewhere}
            if i + 1 < len(logs):
                # Displaced messages of other files are not read twice.
                hints["claims"] = file.hints["number"], files[i + 1].hints["number"]
            files[i] = replace(file, hints=hints)
        missing = (*_gaps(logs), *(_beyond_log(listing, files, logs) if logs else _without_log(files)))
        timer = [Entry(file.name, file.size) for file in files if file.codec == TIMER_LOG.name]
        faults = (
            *_in_rocksdb(listing),
            *_sizes(files, options),
            *_bad_names(files),
            *_copied(copies),
            *_gaps(timer, "timer log", "it does not deliver the timer messages"),
            *_wheel_size(files),
            *_without_wheel(files, timer),
            *_beyond_timer_log(listing, timer),
        )
        return Plan(tuple(files), faults, self._facts(files, logs), missing)

    def _planned(self, entry: Entry, slots: int) -> PlannedFile:
        name, folder = entry.name, tree.first(entry.name)
        base = tree.base_of(name)
        if name == tree.BARRIER:
            return PlannedFile(
                name, entry.size, Role.LEFTOVER, note="left by an interrupted write; a broker does not start"
            )
        if tree.is_log(name) and base is not None:
            hints = {"number": base, "hides": False}
            return PlannedFile(name, entry.size, Role.PRIMARY, "rocketmq.commitlog", hints)
        if folder == tree.INDEX and base is not None:
            return PlannedFile(name, entry.size, Role.DERIVED, _DERIVED[folder], {"slots": slots})
        if folder in _DERIVED and base is not None and tree.queue_of(name) is not None:
            return PlannedFile(name, entry.size, Role.DERIVED, _DERIVED[folder])
        if folder == tree.TIMER and base is not None:
            return PlannedFile(name, entry.size, Role.METADATA, TIMER_LOG.name)
        if name in _METADATA:
            return PlannedFile(name, entry.size, Role.METADATA, _METADATA[name])
        if folder == tree.CONFIG:
            return PlannedFile(name, entry.size, Role.METADATA)
        return PlannedFile(name, entry.size, Role.FOREIGN)

    def _facts(self, files: Sequence[PlannedFile], logs: Sequence[Entry]) -> dict[str, Any]:
        queues = {tree.queue_of(file.name) for file in files if file.codec in _QUEUES}
        names = {file.name for file in files}
        return {
            "commit_logs": len(logs),
            "commit_log_bytes": sum(entry.size for entry in logs),
            "first_physical_offset": tree.base_of(logs[0].name) if logs else None,
            "topics": len({queue[0] for queue in queues if queue}),
            "queues": len(queues),
            "index_files": sum(file.codec == _DERIVED[tree.INDEX] for file in files),
            "abort": tree.ABORT in names,
        }

    # Writing

    def locks(self) -> Sequence[str]:
        return (tree.LOCK,)

    def order(self, names: Iterable[str]) -> Sequence[str]:
        """Queues and index come before the commit log, because a broker removes units past the end of the log. The checkpoint is last."""
        return sorted(names, key=lambda name: (name == tree.CHECKPOINT, tree.is_log(name), name))

    def row_builder(self, listing: Listing | None, name: str, options: Options) -> Builder:
        return builder.StoreBuilder(listing, options)


def _in_rocksdb(listing: Listing) -> Iterator[tuple[str, Fault]]:
    """Yield a note about consume queues that are not read."""
    if tree.has_rocksdb_queues(listing):
        text = "the consume queues are in RocksDB: they are neither checked nor rebuilt"
        yield tree.QUEUE, Fault(NAME, 0, 0, Kind.LINK, text, Severity.INFO)


def _file_name(name: str) -> str:
    return name.rpartition("/")[2]


def _last_with_messages(listing: Listing, logs: Sequence[Entry]) -> int:
    """Return the index of the last file that begins with a message or a blank record; 0 without one."""
    for i in reversed(range(1, len(logs))):
        with contextlib.suppress(LogwrightError):
            if COMMIT_LOG.known(listing.read(logs[i].name, 0, 8)):
                return i
    return 0


def _gaps(
    logs: Sequence[Entry], noun: str = "commit log", lost: str = "consumers skip these messages"
) -> Iterator[tuple[str, Fault]]:
    """Yield faults of missing files between two others. `noun`: what the files are. `lost`: what follows for a broker."""
    size = tree.size_of(logs) or 0
    for before, after in pairwise(logs):
        end, start = tree.start_of(before.name) + size, tree.start_of(after.name)
        if size and start > end:
            text = f"the {noun} has a gap from {end} to {start}: a file is missing"
            system = f"a broker loads the store; {lost}"
            yield after.name, Fault(NAME, 0, 0, Kind.LINK, text, Severity.ERROR, system)


def _copied(copies: Mapping[str, str]) -> Iterator[tuple[str, Fault]]:
    """Yield faults of files whose offset another one has too."""
    for name, read in copies.items():
        text = f"{name} is the file of the same offset, and is not read; a repair takes from it what is missing here"
        system = "a broker loads both, and consumers get the messages of the first one"
        yield read, Fault(NAME, 0, 0, Kind.ORDER, text, Severity.ERROR, system)


def _without_log(files: Sequence[PlannedFile]) -> Iterator[tuple[str, Fault]]:
    """Yield the fault of a commit log without files, if there are consume queues. A broker never deletes the last file of its log."""
    text = "the commit log has no file, but consume queues point into it; if it is in other directories, pass storePathCommitLog"
    system = "a broker deletes the consume queues"
    if any(file.size and file.codec in _QUEUES for file in files):
        yield tree.LOG, Fault(NAME, 0, 0, Kind.LINK, text, Severity.ERROR, system)


def _beyond_log(
    listing: Listing, files: Sequence[PlannedFile], logs: Sequence[Entry]
) -> Iterator[tuple[str, Fault]]:
    """Yield the fault of missing files after the last one, if units of consume queues point there. Of many queues some are looked at."""
    end = tree.start_of(logs[-1].name) + (tree.size_of(logs) or 0)
    last = {tree.queue_of(file.name): file for file in files if file.codec in _QUEUES}
    beyond: list[int] = []
    for file in list(last.values())[:: max(-(-len(last) // _MOST_QUEUES), 1)]:
        with contextlib.suppress(LogwrightError):
            beyond += [phy for phy in _last_units(listing, file) if phy >= end]
    if len(beyond) >= _AGREE:
        text = f"consume queues have messages from physical offset {min(beyond)} on, where the commit log ends at {end}: files are missing"
        system = "a broker removes the units of these messages"
        yield tree.LOG, Fault(NAME, 0, 0, Kind.LINK, text, Severity.ERROR, system)


def _last_units(listing: Listing, file: PlannedFile) -> list[int]:
    """Return the physical offsets in the last two units of a file. Zeros follow them.

    A binary search finds the last block that begins with a unit, which is read together with the unit before it, and another one the last
    unit there.
    """
    width = UNITS[tree.first(file.name)].itemsize
    block = width * _BLOCK_UNITS
    blocks = bisect_left(
        range(-(-file.size // block)), True, key=lambda i: not any(listing.read(file.name, i * block, width))
    )
    start = max((blocks - 1) * block - width, 0)
    data = listing.read(file.name, start, blocks * block - start)
    count = bisect_left(
        range(len(data) // width), True, key=lambda i: not any(data[i * width : (i + 1) * width])
    )
    return [
        int.from_bytes(data[i * width : i * width + 8], "big", signed=True)
        for i in range(max(count - 2, 0), count)
    ]


def _sizes(files: Sequence[PlannedFile], options: Options) -> Iterator[tuple[str, Fault]]:
    """Yield faults of files of a different size than configured, or than most of their kind. A broker does not load a store with them."""
    kinds: dict[str, list[Entry]] = {}
    for file in files:
        if file.codec in _MAPPED:
            kinds.setdefault(file.codec, []).append(Entry(file.name, file.size))
    for codec, entries in kinds.items():
        yield from _sizes_of_kind(entries, options[_MAPPED[codec].name])


def _sizes_of_kind(entries: Sequence[Entry], configured: int | None) -> Iterator[tuple[str, Fault]]:
    timer = tree.first(entries[0].name) == tree.TIMER
    usual = configured or (tree.timer_size(entries) if timer else tree.size_of(entries) or 0)
    names_of_last = {tree.mapped_queue(entry.name): entry.name for entry in entries}
    for entry in entries:
        if entry.size == usual and usual:
            continue
        last = not entry.size and entry.name == names_of_last[tree.mapped_queue(entry.name)]
        system = (
            "a broker before 5.1.3 does not load the store, others delete the file"
            if last
            else "a broker does not load the store"
        )
        others = " like the other files" if any(other.size == usual for other in entries) else ""
        others = " as configured" if configured else others
        text = f"the file has {entry.size} bytes, expected {usual}{others}"
        kind = Kind.TRUNCATED if entry.size < usual else Kind.LENGTH
        severity = Severity.WARNING if last else Severity.ERROR
        yield entry.name, Fault(NAME, 0, 0, kind, text, severity, system)


def _wheel_size(files: Sequence[PlannedFile]) -> Iterator[tuple[str, Fault]]:
    """Yield the fault of a timer wheel of another size. An empty one is as good as none."""
    for file in files:
        if file.name == tree.WHEEL and file.size not in (0, WHEEL_SIZE):
            text = f"the file has {file.size} bytes, expected {WHEEL_SIZE}"
            kind = Kind.TRUNCATED if file.size < WHEEL_SIZE else Kind.LENGTH
            system = "a broker does not start, unless timerWheelEnable is false"
            yield file.name, Fault(NAME, 0, 0, kind, text, Severity.ERROR, system)


def _without_wheel(files: Sequence[PlannedFile], timer: Sequence[Entry]) -> Iterator[tuple[str, Fault]]:
    """Yield the faults of a missing timer wheel or timercheck, if there is a timer log."""
    sizes = {file.name: file.size for file in files}
    lost = Severity.ERROR if len(timer) > _RESTORED else Severity.WARNING
    restored = "a broker only restores the slots of the units in the last two files of the timer log"
    delivered = "a broker delivers the messages of the timer queue again"
    for name, severity, system in (
        (tree.WHEEL, lost, restored),
        (tree.TIMER_CHECK, Severity.WARNING, delivered),
    ):
        if any(entry.size for entry in timer) and not sizes.get(name):
            text = f"the file is {'empty' if name in sizes else 'missing'}, but the timer log has units"
            yield name, Fault(NAME, 0, 0, Kind.LINK, text, severity, system)


def _beyond_timer_log(listing: Listing, timer: Sequence[Entry]) -> Iterator[tuple[str, Fault]]:
    """Yield the fault of missing files at the end of the timer log, if it was flushed beyond its end."""
    flushed = int.from_bytes(tree.content(listing, tree.TIMER_CHECK, FLUSHED, 8), "big", signed=True)
    end = max((entry.size + tree.start_of(entry.name) for entry in timer), default=0)
    if flushed > end:
        text = f"the timer log ends at {end}, but timercheck says that it was flushed up to {flushed}: files are missing"
        system = "a broker does not deliver some of the messages whose units are there"
        yield tree.TIMER, Fault(NAME, 0, 0, Kind.LINK, text, Severity.ERROR, system)


def _bad_names(files: Sequence[PlannedFile]) -> Iterator[tuple[str, Fault]]:
    """Yield faults of file names that a broker does not expect."""
    for file in files:
        queue = tree.first(file.name) in (tree.QUEUE, tree.BATCH, tree.EXT) and tree.queue_of(file.name)
        timer = tree.first(file.name) == tree.TIMER
        if not (queue or timer or tree.is_log(file.name)):
            continue
        if file.role is Role.FOREIGN:
            text, system = "the name is not that of a store file", _loaded(file.name)
            yield file.name, Fault(NAME, 0, 0, Kind.LINK, text, Severity.ERROR, system)
        elif len(_file_name(file.name)) != 20:
            text = "the name is not padded to 20 digits; files are loaded in alphabetical order"
            system = f"a broker may truncate the {'queue' if queue else 'log'}"
            yield file.name, Fault(NAME, 0, 0, Kind.ORDER, text, Severity.WARNING, system)
        elif (unit := UNITS.get(tree.first(file.name))) and tree.start_of(file.name) % unit.itemsize:
            text = f"the number of the name is not a multiple of the {unit.itemsize} bytes of a unit"
            system = "consumers get messages of this queue under other queue offsets, or not at all"
            yield file.name, Fault(NAME, 0, 0, Kind.ORDER, text, Severity.ERROR, system)


def _loaded(name: str) -> str:
    """Return how a broker loads a file whose name is not as usual."""
    try:
        number = integer(_file_name(name), 64)
    except ValueError:
        return "a broker does not load the store"
    return f"a broker loads it as the file of offset {number}"


LAYOUT = Store()
