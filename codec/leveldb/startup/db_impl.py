"""Opening a database: `DBImpl::Recover`, `RecoverLogFile`, `WriteLevel0Table` and `RemoveObsoleteFiles`, and `DB::Open` around them.

Source: `db/db_impl.cc` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from logwright.codec.arrays import Int64s
from logwright.codec.fault import UnreadableError
from logwright.codec.frames.walk import ListedFile
from logwright.codec.leveldb.comparators import comparator_of
from logwright.codec.leveldb.formats.log.layout import MESSAGES, SOUND, TOO_HIGH, TOO_SMALL
from logwright.codec.leveldb.formats.records.codec import Payloads
from logwright.codec.leveldb.formats.records.layout import BATCH_HEADER, BLOCK
from logwright.codec.leveldb.formats.records.log_reader import Delivered, read_records
from logwright.codec.leveldb.formats.table.write import TableBuilder, TableSettings
from logwright.codec.leveldb.names import (
    CURRENT,
    INFO_LOG,
    LOCK,
    OLD_INFO_LOG,
    FileType,
    log_name,
    named_files,
    table_name,
)
from logwright.codec.leveldb.startup.memtable import Applied, MemTable, batch_bounds, take
from logwright.codec.leveldb.startup.status import Corruption, InvalidArgument, NotFound, Status
from logwright.codec.leveldb.startup.version_set import VersionSet, unreadable
from logwright.codec.leveldb.store.version import FileMetaData
from logwright.codec.option import Options
from logwright.codec.store.overlay import Overlay

Sequences = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class FromLog:
    """A table written from a log: its log, its size, and for each entry the byte of the log where its record starts."""

    log: int
    size: int
    position: Int64s


class _LogReporter:
    """Collects what a log reader drops. With paranoid checks the first report becomes the `status` of the opening."""

    def __init__(self, shown: str, paranoid: bool, info_log: list[str]) -> None:
        self.shown, self.paranoid, self.info_log = shown, paranoid, info_log
        self.status: Status | None = None

    def corruption(self, size: int, status: Status) -> None:
        prefix = "" if self.paranoid else "(ignoring error) "
        self.info_log.append(f"{prefix}{self.shown}: dropping {size} bytes; {status}")
        if self.paranoid:
            self.status = self.status or status


class DBImpl:
    """A database opened on an overlay. `comparator` is the one of the opener. `empty_keys` as in `version_edit.parse`."""

    def __init__(self, disk: Overlay, options: Options, comparator: str, *, empty_keys: bool = False) -> None:
        self.disk, self.options = disk, options
        self.name = disk.name
        self.paranoid = options["paranoid_checks"]
        writing = ("block_size", "block_restart_interval", "compression", "bloom_bits_per_key")
        self.settings = TableSettings(comparator=comparator, **{name: options[name] for name in writing})
        self.order = comparator_of(comparator)
        self.versions = VersionSet(disk, options, comparator, empty_keys=empty_keys)
        self.info_log: list[str] = []
        """Lines written to LOG for dropped data and ignored errors."""
        self.tables_from_logs: dict[int, FromLog] = {}
        """Tables written from logs, by number."""
        self.mem: tuple[bytes, FromLog] | None = None
        """The memtable kept with `reuse_logs`, as a table that is in no file."""
        self.silent = False
        """Whether LevelDB silently stopped before the end of a log, or silently created a database in place of an existing one."""
        self.overwritten: list[str] = []
        """Tables in use that were overwritten because the manifest handed out their numbers a second time."""
        self._new: list[FileMetaData] = []
        self._logfile: int | None = None

    def open(self) -> None:
        """`DB::Open`. Raises `Status`."""
        disk, versions = self.disk, self.versions
        disk.rename(INFO_LOG, OLD_INFO_LOG)
        if LOCK not in disk:
            disk.put(LOCK, b"")
        try:
            save_manifest = self.recover()
            if self._logfile is None:
                self._logfile = versions.new_file_number()
                disk.put(log_name(self._logfile), b"")
            if save_manifest:
                versions.log_and_apply(self._logfile, self._new)
            self.remove_obsolete_files()
        finally:
            disk.put(
                INFO_LOG, "".join(f"{line}\n" for line in self.info_log).encode(errors="surrogateescape")
            )

    def recover(self) -> bool:
        """`DBImpl::Recover`. Returns whether the manifest must be written. Raises `Status`."""
        disk, versions = self.disk, self.versions
        if CURRENT not in disk:
            if not self.options["create_if_missing"]:
                raise InvalidArgument(self.name, "does not exist (create_if_missing is false)")
            versions.new_db()
            self.silent = True
        elif self.options["error_if_exists"]:
            raise InvalidArgument(self.name, "exists (error_if_exists is true)")
        save_manifest = versions.recover()
        expected, logs = versions.live, []
        for _, named in named_files(disk):
            # LevelDB accepts a file of any type with that number.
            expected.discard(named.number)
            if named.type is FileType.LOG and (
                named.number >= versions.log_number or named.number == versions.prev_log_number
            ):
                logs.append(named.number)
        if expected:
            first = table_name(min(expected))
            raise Corruption(f"{len(expected)} missing files; e.g.", f"{self.name}/{first}")
        largest = 0
        for i, number in enumerate(sorted(logs)):
            saved, sequence = self.recover_log_file(number, last_log=i == len(logs) - 1)
            save_manifest |= saved
            largest = max(largest, sequence)
            # The manifest may not record this number.
            versions.mark_file_number_used(number)
        versions.last_sequence = max(versions.last_sequence, largest)
        return save_manifest

    def recover_log_file(self, number: int, *, last_log: bool) -> tuple[bool, int]:
        """`DBImpl::RecoverLogFile`. Returns whether tables were written from the log, and its largest sequence number. Raises `Status`."""
        name = log_name(number)
        if name not in self.disk:
            self._ignore(NotFound(f"{self.name}/{name}", "No such file or directory"))
            return False, 0
        memory: MemTable | None = None
        compactions, largest = 0, 0
        for applied, sequences in self._batches(number):
            largest = max(largest, int(sequences.max(initial=0)))
            first, row = 0, 0
            while first < len(applied.counts):
                memory = memory or MemTable(self.order)
                counts = np.ascontiguousarray(applied.counts[first:])
                limit = self.options["write_buffer_size"]
                full = int(take(counts, row, applied.key_sizes, applied.value_sizes, limit, memory.state))
                stop = row + int(counts[: full + 1].sum())
                memory.add(applied.rows.slice(row, stop - row))
                first, row = first + full + 1, stop
                if full < len(counts):
                    compactions += 1
                    self.write_level0_table(memory, number)
                    memory = None
        if self.options["reuse_logs"] and last_log and compactions == 0:
            self._logfile = number
            built = None if memory is None else self._built(memory, number)
            self.mem = None if built is None else built[1:]
            return False, largest
        if memory is not None:
            self.write_level0_table(memory, number)
        return compactions > 0 or memory is not None, largest

    def _batches(self, number: int) -> Iterator[tuple[Applied, Sequences]]:
        """Return the batches that reach the memtable, each with the last sequence LevelDB computes for it. Raises `Status`."""
        name = log_name(number)
        reporter = _LogReporter(f"{self.name}/{name}", self.paranoid, self.info_log)
        file = ListedFile(self.disk, name, self.disk.size(name))
        end = 0
        try:
            for event in read_records(file.pread, file.size):
                if isinstance(event, Delivered):
                    self.silent |= int(event.frames.start[0]) + event.window.offset != end
                    end = int(event.frames.end[-1]) + event.window.offset
                if not isinstance(event, Delivered):
                    reporter.corruption(event.bytes, Corruption(event.reason))
                elif reporter.status is not None:
                    break
                else:
                    yield from self._delivered(event, reporter)
        except UnreadableError:
            # The reader drops what the disk cannot read, and takes it for the end of the file.
            reporter.corruption(BLOCK, unreadable(self.disk, name))
        self.silent |= end != self.disk.size(name)
        if reporter.status is not None:
            raise reporter.status

    def _delivered(
        self, records_read: Delivered, reporter: _LogReporter
    ) -> Iterator[tuple[Applied, Sequences]]:
        """Return the batches among these records, up to the first one that ends the opening."""
        sizes, start = records_read.frames.header["size"], records_read.frames.start
        records = Payloads.of(records_read.window, records_read.frames)
        at = 0
        for stop in [*np.flatnonzero(sizes < BATCH_HEADER).tolist(), len(start)]:
            if at < stop:
                part = Payloads(records.data, records.start[at:stop], records.end[at:stop])
                applied = Applied.of(part, start[at:stop] + records_read.window.offset)
                sequences = batch_bounds(part.data, part.start)
                for i in np.flatnonzero((applied.status != SOUND) & (applied.status != TOO_HIGH)).tolist():
                    malformed = Corruption(MESSAGES[applied.status[i]])
                    if self.paranoid:
                        yield applied.first(i), sequences[:i]
                        raise malformed
                    # The operations before the malformed one are kept.
                    self._ignore(malformed)
                yield applied, sequences
            if stop < len(start):
                reporter.corruption(int(sizes[stop]), Corruption(MESSAGES[TOO_SMALL]))
            if reporter.status is not None:
                return
            at = stop + 1

    def _ignore(self, status: Status) -> None:
        """`DBImpl::MaybeIgnoreError`."""
        if self.paranoid:
            raise status
        self.info_log.append(f"Ignoring error {status}")

    def write_level0_table(self, memory: MemTable, log: int) -> None:
        """`DBImpl::WriteLevel0Table`. An empty memtable writes no table but uses up a number."""
        number = self.versions.new_file_number()
        built = self._built(memory, log)
        if table_name(number) in self.disk and number in self.versions.live:
            self.overwritten.append(table_name(number))
        self.disk.delete(table_name(number))
        if built is None:
            return
        builder, table, origin = built
        assert builder.smallest is not None
        assert builder.largest is not None
        self.disk.put(table_name(number), table)
        self._new.append(FileMetaData(number, len(table), builder.smallest, builder.largest))
        self.tables_from_logs[number] = origin

    def _built(self, memory: MemTable, log: int) -> tuple[TableBuilder, bytes, FromLog] | None:
        rows = memory.sorted()
        if rows is None:
            return None
        builder = TableBuilder(self.settings)
        data, _ = builder.add(rows)
        data += builder.finish()
        return builder, data, FromLog(log, len(data), np.asarray(rows.column("position")))

    def remove_obsolete_files(self) -> None:
        """`DBImpl::RemoveObsoleteFiles`."""
        disk, versions, live = self.disk, self.versions, self.versions.live
        for entry, named in named_files(disk):
            number = named.number
            match named.type:
                case FileType.LOG:
                    keep = number >= versions.log_number or number == versions.prev_log_number
                case FileType.DESCRIPTOR:
                    keep = number >= versions.manifest_file_number
                case FileType.TABLE | FileType.TEMP:
                    keep = number in live
                case _:
                    keep = True
            if not keep:
                disk.delete(entry.name)
