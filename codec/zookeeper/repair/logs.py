"""Repair logs: good records stay unchanged, damaged ones are corrected if that is certain, and the rest is removed."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Self

import numpy as np

from logwright.codec.arrays import Bools, Int64s
from logwright.codec.engine.repair import Removed
from logwright.codec.fault import Fault, Severity
from logwright.codec.frames.walk import Hole, ListedFile, Stretch, Walk
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing
from logwright.codec.window import Frames, Window
from logwright.codec.zookeeper import names
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.formats.txnlog.bodies import SOUND, STATUS, UNSUPPORTED, Bodies
from logwright.codec.zookeeper.formats.txnlog.layout import CHECK, FILE_HEADER, HEADER_SIZE, PAYLOAD
from logwright.codec.zookeeper.formats.txnlog.rows import WORDS
from logwright.codec.zookeeper.formats.txnlog.scan import BODY, TXN_FRAME
from logwright.codec.zookeeper.formats.txnlog.tables import LIMITS as TXNLOG_LIMITS
from logwright.codec.zookeeper.repair.fix_records import FIRST, UNIMPLEMENTED, error_record, fix_record
from logwright.codec.zookeeper.store.files import base

LIMITS = TXNLOG_LIMITS
_MOST = 16 << 20
"""Bytes of a damaged region that are searched for correctable records."""
_TIME = PAYLOAD.offset("time")
Part = tuple[Int64s, Int64s, Int64s]
"""The starts, ends and zxids of some records of a file."""


@dataclass
class Log:
    """A log of the survey: its good and corrected records, in the order of the file."""

    file: str
    size: int
    named: int
    """The zxid in its name."""
    start: Int64s
    end: Int64s
    zxid: Int64s
    replacements: dict[int, bytes] = field(default_factory=dict)
    """New bytes of records that differ from the file, by their start."""
    cut: list[Removed] = field(default_factory=list)
    header: bytes | None = None
    """The file header, if it must be rewritten; empty if there is neither a header nor a record."""
    largest: int = 0
    """Size of the largest payload, if a server with the default limits refuses it."""
    doubtful: set[int] = field(default_factory=set)
    """The starts of records whose correction a digest has to confirm."""
    wrong: Removed | None = None
    """The first damage that is more than a torn tail."""
    renamed: str | None = None
    """Its name in the result, if its own is not that of its first record."""

    @classmethod
    def of(cls, file: str, size: int, named: int, parts: Sequence[Part] = ()) -> Self:
        """Return a log without damage that has these records."""
        none = np.empty(0, np.int64)
        start, end, zxid = (np.concatenate([none, *(part[k] for part in parts)]) for k in range(3))
        return cls(file, size, named, start, end, zxid)

    @property
    def sound(self) -> bool:
        """Whether it stays unchanged."""
        return not self.cut

    @property
    def name(self) -> str:
        """Its name in the result."""
        return self.renamed or self.file

    @property
    def first(self) -> int:
        """The zxid of its first record, or of its name if it has none."""
        return int(self.zxid[0]) if len(self.zxid) else self.named

    @property
    def damage(self) -> int:
        """The first damaged byte; the size of the file if it is undamaged."""
        return min((removed.offset for removed in self.cut), default=self.size)

    @property
    def in_doubt(self) -> Bools:
        """Return a mask of the records."""
        return np.isin(self.start, np.array(sorted(self.doubtful), np.int64))

    def certain(self, borne_out: Container[int] = ()) -> Log:
        """Return the log without one-bit corrections, except those of the given zxids, which a digest confirms."""
        gone = self.in_doubt
        gone[gone] = [zxid not in borne_out for zxid in self.zxid[gone].tolist()]
        if not gone.any():
            return self
        lost = dict(zip(self.start[gone].tolist(), self.zxid[gone].tolist(), strict=True))
        out = self.drop(gone)
        out.cut = [_lost(removed, lost.get(removed.offset)) for removed in self.cut]
        return out

    def drop(self, which: Bools) -> Log:
        """Return the log without some of the records."""
        keep = ~which
        gone = set(self.start[which].tolist())
        replacements = {at: data for at, data in self.replacements.items() if at not in gone}
        start, end, zxid = self.start[keep], self.end[keep], self.zxid[keep]
        return replace(self, start=start, end=end, zxid=zxid, replacements=replacements)

    def with_cut(self, *cut: Removed) -> Log:
        """Return the log with more removals."""
        return replace(self, cut=sorted([*self.cut, *cut], key=lambda removed: removed.offset))

    def with_records(self, zxid: Int64s, records: Sequence[bytes]) -> Log:
        """Return the log with records of another file at its end."""
        end = max([self.size, *self.end.tolist()]) + np.cumsum([len(record) for record in records])
        start = end - [len(record) for record in records]
        out = replace(self, header=self.header if self.header != b"" else FILE_HEADER.pack({}))
        out.replacements = self.replacements | dict(zip(start.tolist(), records, strict=True))
        both = ((self.start, start), (self.end, end), (self.zxid, zxid))
        out.start, out.end, out.zxid = (np.concatenate(values) for values in both)
        return out


def _lost(cut: Removed, zxid: int | None) -> Removed:
    if zxid is None:
        return cut
    why = f"{cut.why.partition(';')[0]}: more than one bit may be wrong"
    return replace(cut, why=why, rows_lost=1, lost={"first_zxid": zxid, "last_zxid": zxid})


def survey(listing: Listing, file: str, size: int, options: Options, *, correct: bool = True) -> Log:
    """Read a log from end to end. `correct`: whether single flipped bits are corrected."""
    return _LogSurvey(listing, file, size, options, correct=correct).run()


class _LogSurvey:
    def __init__(self, listing: Listing, file: str, size: int, options: Options, *, correct: bool) -> None:
        self.correct = correct
        self.read = ListedFile(listing, file, size)
        own = Options(txnlog.CODEC.options, options.passed(LIMITS))
        self.context = txnlog.CODEC.context(base(file), own)
        named = names.parse(base(file))
        self.named = None if named is None else named.zxid
        self.log = Log.of(file, size, self.named or 0)
        self.parts: list[Part] = []
        self.last: int | None = None

    def run(self) -> Log:
        log = self.log
        for step in Walk(self.read, txnlog.CODEC, self.context):
            if isinstance(step, Stretch):
                self._records(step.window, step.frames)
            elif step.fault.severity is not Severity.INFO:
                before = len(log.cut)
                self._hole(step)
                if step.fault.severity is Severity.ERROR:
                    log.wrong = log.wrong or log.cut[before]
        read = Log.of(log.file, log.size, log.named, self.parts)
        log.cut.sort(key=lambda removed: removed.offset)
        if not self.parts and log.cut and log.cut[0].offset == 0:
            log.header = b""
        return replace(log, start=read.start, end=read.end, zxid=read.zxid)

    def _records(self, window: Window, frames: Frames) -> None:
        frames = frames.pick(frames.header["kind"] == TXN_FRAME)
        if not len(frames):
            return
        bodies, _ = Bodies.of(window.data, frames.start + BODY, frames.end - 1)
        bad = (bodies.measures[STATUS] != SOUND) | (frames.header["zxid"] < FIRST)
        for i in np.flatnonzero(bad).tolist():
            bad[i] = not self._replaced(window, frames, i, int(bodies.measures[STATUS, i]))
        frames = frames.pick(~bad)
        if not len(frames):
            return
        zxid = np.ascontiguousarray(frames.header["zxid"])
        self.parts.append((frames.start + window.offset, frames.end + window.offset, zxid))
        self.last = int(zxid[-1])
        size = int(frames.header["length"].max())
        if size > self.context.limit:
            self.log.largest = max(self.log.largest, size)

    def _replaced(self, window: Window, frames: Frames, i: int, status: int) -> bool:
        """Return whether a record with a right checksum, which no server reads or writes, is replaced by one that changes nothing."""
        start, end = int(frames.start[i]), int(frames.end[i])
        head = frames.header[i]
        zxid, kind = int(head["zxid"]), int(head["type"])
        file, at, length = self.log.file, window.offset + start, end - start
        if zxid < FIRST:
            # The snapshot before it would have a name that no server accepts (`Long.parseLong` of 16 digits).
            why = f"its checksum is right, but no server gives the zxid {names.zxid_text(zxid)}: zxids count up from 1"
            self._cut(Removed(file, at, length, why, 0, 1))
            return False
        if status == UNSUPPORTED and kind == CHECK:
            session_id, cxid, time = (int(head[name]) for name in ("session_id", "cxid", "time"))
            self.log.replacements[at] = error_record(session_id, cxid, zxid, time, UNIMPLEMENTED)
            why = (
                "a check outside of a multi, which no server reads (Unsupported Txn with type=13): replaced by an error, which "
                "changes nothing either"
            )
            self._cut(Removed(file, at, length, why, 0, 0))
            return True
        problem = f"Unsupported Txn with type={kind}" if status == UNSUPPORTED else WORDS[status][0]
        lost = {"first_zxid": zxid, "last_zxid": zxid}
        self._cut(Removed(file, at, length, f"its checksum is right, but {problem}", 0, 1, lost))
        return False

    def _cut(self, cut: Removed) -> None:
        self.log.cut.append(cut)
        self.log.wrong = self.log.wrong or cut

    def _hole(self, hole: Hole) -> None:
        log, fault = self.log, hole.fault_if_removed(txnlog.CODEC, self.context)
        at, stop = fault.offset, fault.offset + fault.length
        problem = f"{fault.kind}: {fault.detail}"
        if at == 0 and stop >= HEADER_SIZE:
            log.header = FILE_HEADER.pack({})
            log.cut.append(Removed(log.file, 0, HEADER_SIZE, f"{problem}: rewritten", 0, 0))
            at = HEADER_SIZE
        data = self.read(at, min(stop - at, _MOST))
        place = 0
        while place < len(data):
            record = fix_record(data, place, len(data), self.last, self.named)
            if record is None or (record.bits == 1 and not self.correct):
                break
            offset = at + record.start
            log.replacements[offset] = record.record
            if record.doubt:
                log.doubtful.add(offset)
            start, end, zxid = np.array([[offset], [at + record.stop], [record.zxid]], np.int64)
            self.parts.append((start, end, zxid))
            self.last = record.zxid
            why = record.why if place else f"{problem}; {record.why}"
            log.cut.append(Removed(log.file, offset, record.stop - record.start, why, 0, 0))
            place = record.stop
        if at + place < stop or not fault.length:
            self._lost(fault, at + place, stop, fixed=bool(place))

    def _lost(self, fault: Fault, at: int, stop: int, *, fixed: bool) -> None:
        """Record what remains of a damaged region."""
        why = f"{fault.kind}: {fault.detail}"
        rows, lost = fault.rows_lost, dict(fault.lost)
        if fixed and self.last is not None:
            why = f"more unreadable bytes follow ({why})"
            last = lost.get("last_zxid", 0)
            rows = last - self.last if last > self.last else None
            lost = {"first_zxid": self.last + 1} | ({"last_zxid": last} if rows is not None else {})
        if not (fault.offset == 0 and stop == HEADER_SIZE):
            self.log.cut.append(Removed(self.log.file, at, stop - at, why, 0, rows, lost))


# Writing


def pieces(log: Log, fills: dict[int, Iterator[bytes]] | None = None) -> Iterator[Extent]:
    """Yield the extents of the repaired log: its records, and the bytes of `fills` before the record of that number."""
    yield Copy(log.file, 0, HEADER_SIZE) if log.header is None else log.header
    edges = _runs(log, fills or {})
    for low, high in pairwise(edges):
        if fills and low in fills:
            yield from fills[low]
        at = int(log.start[low])
        yield log.replacements.get(at) or Copy(log.file, at, int(log.end[high - 1]))


def _runs(log: Log, fills: dict[int, Iterator[bytes]]) -> list[int]:
    """Return where runs of adjacent records begin, and the number of records at the end."""
    count = len(log.start)
    if not count:
        return []
    starts = np.ones(count, np.bool_)
    starts[1:] = log.start[1:] != log.end[:-1]
    replaced = np.isin(log.start, np.array(sorted(log.replacements), np.int64))
    starts |= replaced
    starts[1:] |= replaced[:-1]
    starts[[place for place in fills if place < count]] = True
    return [*np.flatnonzero(starts).tolist(), count]


def time_of(listing: Listing, log: Log, record: int) -> int:
    """Return the time of a record."""
    data = log.replacements.get(int(log.start[record]))
    if data is None:
        data = listing.read(log.file, int(log.start[record]), BODY + _TIME + 8)
    return int.from_bytes(data[BODY + _TIME : BODY + _TIME + 8], "big", signed=True)


def zxids(log_list: Sequence[Log]) -> Int64s:
    """Return the zxids of all records, in the order in which a server reads them."""
    return np.concatenate([np.empty(0, np.int64), *(log.zxid for log in log_list)])
