"""What an append to a database goes on from.

Nothing is added to a file that is there: LevelDB itself loses what comes behind a torn record (google/leveldb issue 1287).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from logwright.codec.columns import numbers
from logwright.codec.fault import UsageError
from logwright.codec.leveldb.comparators import NAMES
from logwright.codec.leveldb.formats.log.codec import Operations
from logwright.codec.leveldb.formats.log.layout import MESSAGES, SOUND, STATUS
from logwright.codec.leveldb.formats.records.codec import Payloads, binary
from logwright.codec.leveldb.formats.records.replay import Dropped, replay
from logwright.codec.leveldb.keys import BYTEWISE, DELETION, MAX_SEQUENCE
from logwright.codec.leveldb.names import FileType, log_name, old_table_name, parse, table_name
from logwright.codec.leveldb.store.descriptor import read_descriptor
from logwright.codec.leveldb.store.run import ROWS
from logwright.codec.leveldb.store.version import Version
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing
from logwright.codec.window import Bytes

_REPAIR = "Repair it first, or write to a new directory. `logwright verify` shows what is wrong"


@dataclass(frozen=True)
class Resumed:
    """A sound database. `next_number` is above the number of every file in the directory; `logs` are those with operations."""

    listing: Listing
    version: Version
    next_number: int
    logs: Sequence[str]
    last_sequence: int
    comparator: str = BYTEWISE


def resume(listing: Listing, options: Options) -> Resumed:
    """The state of a database that is added to, with its own comparator unless `options` name one. Raises `UsageError` where LevelDB
    would not open it, or would lose something."""
    named = read_descriptor(listing).version.comparator
    comparator = named if named in NAMES and not options.given("comparator") else options["comparator"]
    found = read_descriptor(listing, comparator=comparator)
    if found.error is not None:
        raise UsageError(f"LevelDB does not open the database: {found.error}", advice=_REPAIR)
    version = found.version
    names = {entry.name: entry.size for entry in listing.entries()}
    files = {number: one for number, (_, one) in version.files.items()}
    for number, one in files.items():
        name = table_name(number) if table_name(number) in names else old_table_name(number)
        if names.get(name) != one.size:
            what = "is missing" if name not in names else f"has {names[name]} bytes, not {one.size}"
            raise UsageError(f"{table_name(number)}, a table of the database, {what}", advice=_REPAIR)
    parsed = {name: kind for name in names if (kind := parse(name)) is not None}
    live = sorted(
        kind.number
        for name, kind in parsed.items()
        if kind.type is FileType.LOG
        and name == log_name(kind.number)
        and (kind.number >= (version.log_number or 0) or kind.number == version.prev_log_number)
    )
    logs, last = [], version.last_sequence or 0
    for number in live:
        rows = 0
        for batch in logged(listing, log_name(number)):
            rows += batch.num_rows
            last = max(last, int(np.asarray(batch.column("sequence")).max()))
        if rows:
            logs.append(log_name(number))
    highest = max((kind.number for kind in parsed.values()), default=0)
    if last >= MAX_SEQUENCE:
        raise UsageError(f"the sequence numbers of the database are used up: the last one is {last}")
    return Resumed(listing, version, max(version.next_file_number or 0, highest + 1), logs, last, comparator)


def logged(listing: Listing, name: str) -> Iterator[pa.RecordBatch]:
    """The operations of a log as rows (`run.ROWS`), in order. Raises `UsageError` where LevelDB would drop any.

    A torn end is none: LevelDB passes over it in silence.
    """
    size = next(entry.size for entry in listing.entries() if entry.name == name)

    def read(offset: int, length: int) -> Bytes:
        return np.frombuffer(listing.read(name, offset, length), np.uint8)

    for found in replay(read, size):
        if isinstance(found, Dropped):
            raise UsageError(
                f"{name} is damaged at byte {found.position}: {found.reason}, {found.bytes} bytes would be lost",
                advice=_REPAIR,
            )
        made = Operations.of(Payloads.of(found.window, found.frames))
        bad = np.flatnonzero(made.measured[:, STATUS] != SOUND)
        if len(bad):
            at = found.window.offset + int(found.frames.start[bad[0]])
            text = MESSAGES[int(made.measured[bad[0], STATUS])]
            raise UsageError(f"{name} is damaged: the batch at byte {at}: {text}", advice=_REPAIR)
        if made.rows:
            key, value = (
                binary(made.key_ends, made.keys),
                binary(made.value_ends, made.values, made.kinds == DELETION),
            )
            arrays = [
                key.cast(pa.large_binary()),
                value.cast(pa.large_binary()),
                numbers(pa.int64(), made.sequences),
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=ROWS)
