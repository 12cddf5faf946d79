"""Read the logs of a directory from a zxid on: what a server regards as the end of a log, and what ends its start.

Source: `persistence/FileTxnLog.java` (`FileTxnIterator`), `persistence/Util.readTxnBytes`, `SerializeUtils.deserializeTxn` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from logwright.codec.fault import UnreadableError
from logwright.codec.frames.scanner import BAD_CHECKSUM, BAD_LENGTH, BAD_MARK, NEED, TORN, ZERO
from logwright.codec.kernels.intrinsics import load_i32be
from logwright.codec.store.overlay import Overlay
from logwright.codec.window import Frames, Window
from logwright.codec.zookeeper.formats.txnlog.layout import HEADER_SIZE, LENGTH, LOWEST, MAGIC
from logwright.codec.zookeeper.formats.txnlog.scan import BODY, SCANNER, why_stopped
from logwright.codec.zookeeper.jute import NULL
from logwright.codec.zookeeper.startup.archive import END_OF_FILE, SOUND, UNREASONABLE, UNSUPPORTED, read_txns
from logwright.codec.zookeeper.startup.exceptions import EndOfFile, IOFailure, NullPointer, Thrown
from logwright.codec.zookeeper.startup.nulls import BYTES
from logwright.codec.zookeeper.startup.settings import ServerSettings
from logwright.codec.zookeeper.store.files import DataFile, base, logs, logs_from

WINDOW = 4 << 20


@dataclass(frozen=True, slots=True)
class Records:
    """Consecutive transactions of one log."""

    window: Window
    frames: Frames


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a log ends for a server although something follows, and why. It continues with the next log."""

    file: DataFile
    position: int
    why: str


class FileTxnLog:
    """The logs of a directory."""

    def __init__(self, disk: Overlay, settings: ServerSettings) -> None:
        self.disk, self.settings = disk, settings
        self.deleted: list[str] = []
        """Empty logs that reading has removed."""

    def files(self) -> list[DataFile]:
        """Return the logs that this version recognises."""
        return [file for file in logs(self.disk) if self.settings.takes(file)]

    def last_logged_zxid(self) -> int:
        """`getLastLoggedZxid`: -1 if there is no log. Raises `Thrown` other than `IOFailure`."""
        numbered = [file for file in self.files() if file.zxid >= 0]
        if not numbered:
            return -1
        try:
            for _ in self.read(numbered[-1].zxid):
                pass
        except IOFailure:
            pass
        return numbered[-1].zxid

    def read(self, zxid: int) -> Iterator[Records | Stop]:
        """Yield all transactions from the first one with this or a larger zxid. Raises `Thrown` where the server's iterator does, after
        the transactions before it."""
        files = logs_from(self.files(), zxid)
        forwarding = True
        for i, file in enumerate(files):
            for records in self._file(file, last=i == len(files) - 1):
                if forwarding and isinstance(records, Records):
                    later = np.flatnonzero(records.frames.header["zxid"] >= zxid)
                    if not len(later):
                        continue
                    forwarding = False
                    records = Records(records.window, records.frames.pick(slice(int(later[0]), None)))
                yield records

    def _file(self, file: DataFile, *, last: bool) -> Iterator[Records | Stop]:
        if not file.size and last and self.settings.deletes_empty_tail:
            self.disk.delete(file.name)
            self.deleted.append(file.name)
            return
        header = self._read(file, 0, HEADER_SIZE)
        if len(header) < HEADER_SIZE:
            raise EndOfFile()
        if header[:4] != MAGIC:
            stored, expected = (int.from_bytes(magic, "big", signed=True) for magic in (header[:4], MAGIC))
            raise IOFailure(
                f"Transaction log: {base(file.name)} has invalid magic number {stored} != {expected}"
            )
        at = HEADER_SIZE
        size = WINDOW
        while True:
            data = np.frombuffer(self._read(file, at, size), np.uint8)
            # The file may have become shorter since it was listed.
            total = file.size if len(data) >= min(size, file.size - at) else at + len(data)
            window = Window(data, at, total)
            frames, stop, why, need = self._scan(window)
            good, failure = self._deserialize(window, frames)
            if len(good):
                yield Records(window, good)
            if failure is not None:
                place = at + int(frames.start[len(good)])
                if isinstance(failure, EndOfFile):
                    yield Stop(file, place, "the transaction ends early")
                    return
                raise failure
            at += stop
            size = max(WINDOW, need)
            if why == NEED:
                continue
            if why == BAD_LENGTH:
                length = load_i32be(window.data, stop + LENGTH)
                if length == NULL:
                    raise NullPointer(BYTES)
                raise IOFailure(f"Unreasonable length = {length}")
            if why == BAD_CHECKSUM:
                raise IOFailure("CRC check failed")
            if at < total and (why != ZERO or self._more(file, at)):
                yield Stop(file, at, _MESSAGES[why])
            return

    def _more(self, file: DataFile, at: int) -> bool:
        """Return whether anything but zeros follows."""
        while at < file.size:
            data = self._read(file, at, WINDOW)
            if not data or data.strip(b"\0"):
                return bool(data)
            at += len(data)
        return False

    def _read(self, file: DataFile, offset: int, length: int) -> bytes:
        try:
            return self.disk.read(file.name, offset, length)
        except UnreadableError:
            raise IOFailure("Input/output error") from None

    def _scan(self, window: Window) -> tuple[Frames, int, int, int]:
        """Return the whole records of a window, by their lengths and checksums; where the scan stopped, why, and the bytes needed."""
        limit = self.settings.limit
        scanned = SCANNER.frames(window, 0)
        frames = Frames(scanned.start, scanned.end, scanned.head, scanned.stop)
        large = np.flatnonzero(scanned.head["length"] > limit)
        if len(large):
            n = int(large[0])
            return frames.pick(slice(0, n)), int(scanned.start[n]), BAD_LENGTH, 0
        return frames, scanned.stop, why_stopped(window.data, scanned, limit), scanned.need

    def _deserialize(self, window: Window, frames: Frames) -> tuple[Frames, Thrown | None]:
        """Return the readable records, and the exception of the next one."""
        good, status, value = read_txns(
            window.data,
            frames.start + BODY,
            frames.end - 1,
            self.settings.recipes,
            LOWEST,
            self.settings.limit,
            int(self.settings.close_session_txn),
        )
        failure: Thrown | None = None
        if status == END_OF_FILE:
            failure = EndOfFile()
        elif status == UNREASONABLE:
            failure = IOFailure(f"Unreasonable length = {value}")
        elif status == UNSUPPORTED:
            failure = IOFailure(f"{self.settings.unsupported}{value}")
        else:
            assert status == SOUND
        return frames if good == len(frames) else frames.pick(slice(0, good)), failure


_MESSAGES = {
    TORN: "the file ends in a transaction",
    ZERO: "a length of 0, which marks the end of the transactions",
    BAD_MARK: "Last transaction was partial.",
}
