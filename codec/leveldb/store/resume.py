"""The state that an append to a database starts from.

Existing files are never appended to: LevelDB itself loses what follows a torn record (google/leveldb issue 1287).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from logwright.codec import plural
from logwright.codec.fault import UsageError
from logwright.codec.frames.walk import ListedFile
from logwright.codec.leveldb.comparators import NAMES
from logwright.codec.leveldb.formats.log.codec import Operations
from logwright.codec.leveldb.formats.log.layout import MESSAGES, SOUND, STATUS
from logwright.codec.leveldb.formats.records.codec import Payloads
from logwright.codec.leveldb.formats.records.log_reader import Dropped, read_records
from logwright.codec.leveldb.keys import BYTEWISE, MAX_SEQUENCE
from logwright.codec.leveldb.names import FileType, log_name, named_files, old_table_name, table_name
from logwright.codec.leveldb.store.sorted_run import ROWS
from logwright.codec.leveldb.store.version import Version, read_descriptor
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing

_REPAIR = "Repair it first, or write to a new directory. `logwright verify` shows the damage"


@dataclass(frozen=True)
class Resumed:
    """A sound database. `next_number` is above the number of every file in the directory; `logs` are the logs that have operations."""

    listing: Listing
    version: Version
    next_number: int
    logs: Sequence[str]
    last_sequence: int
    comparator: str = BYTEWISE


def resume(listing: Listing, options: Options) -> Resumed:
    """Return the state of a database before an append, with its own comparator unless `options` name one. Raises `UsageError` if LevelDB
    would not open it or would lose data."""
    recorded = read_descriptor(listing).version.comparator
    comparator = recorded if recorded in NAMES and not options.given("comparator") else options["comparator"]
    descriptor = read_descriptor(listing, comparator=comparator)
    if descriptor.error is not None:
        raise UsageError(f"LevelDB does not open the database: {descriptor.error}", advice=_REPAIR)
    version = descriptor.version
    names = {entry.name: entry.size for entry in listing.entries()}
    files = {number: file for number, (_, file) in version.files.items()}
    for number, file in files.items():
        name = table_name(number) if table_name(number) in names else old_table_name(number)
        if names.get(name) != file.size:
            problem = "is missing" if name not in names else f"has {names[name]} bytes, not {file.size}"
            raise UsageError(f"{table_name(number)}, a table of the database, {problem}", advice=_REPAIR)
    live = sorted(
        named.number
        for entry, named in named_files(listing, FileType.LOG)
        if entry.name == log_name(named.number)
        and (named.number >= (version.log_number or 0) or named.number == version.prev_log_number)
    )
    logs, last = [], version.last_sequence or 0
    for number in live:
        rows = 0
        for batch in log_rows(listing, log_name(number)):
            rows += batch.num_rows
            last = max(last, int(np.asarray(batch.column("sequence")).max()))
        if rows:
            logs.append(log_name(number))
    highest = max((named.number for _, named in named_files(listing)), default=0)
    if last >= MAX_SEQUENCE:
        raise UsageError(f"the database has used up its sequence numbers: the last one is {last}")
    return Resumed(listing, version, max(version.next_file_number or 0, highest + 1), logs, last, comparator)


def log_rows(listing: Listing, name: str) -> Iterator[pa.RecordBatch]:
    """Yield the operations of a log as rows (`ROWS`), in order. Raises `UsageError` if LevelDB would drop any.

    A torn end is not an error: LevelDB silently ignores it.
    """
    size = next(entry.size for entry in listing.entries() if entry.name == name)
    for event in read_records(ListedFile(listing, name, size).pread, size):
        if isinstance(event, Dropped):
            raise UsageError(
                f"{name} is damaged at byte {event.position}: {event.reason}, {plural.count(event.bytes, 'byte')} would be lost",
                advice=_REPAIR,
            )
        operations = Operations.of(Payloads.of(event.window, event.frames))
        bad = np.flatnonzero(operations.measured[:, STATUS] != SOUND)
        if len(bad):
            at = event.window.offset + int(event.frames.start[bad[0]])
            text = MESSAGES[int(operations.measured[bad[0], STATUS])]
            raise UsageError(f"{name} is damaged: the batch at byte {at}: {text}", advice=_REPAIR)
        if operations.rows:
            arrays = [operations.column(field.name).cast(field.type) for field in ROWS]
            yield pa.RecordBatch.from_arrays(arrays, schema=ROWS)
