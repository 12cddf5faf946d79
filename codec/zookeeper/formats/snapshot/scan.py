"""Scan an uncompressed snapshot: its sections, nodes and damage.

A server takes a snapshot completely or not at all. If anything is wrong with one, it takes the next older one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec import plural
from logwright.codec.arrays import Bools, Int64s
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.window import Frames, Window
from logwright.codec.zookeeper.formats.snapshot import layout, tables
from logwright.codec.zookeeper.formats.snapshot.layout import hop
from logwright.codec.zookeeper.formats.snapshot.sections import (
    DIGEST_SIZE,
    END_SIZE,
    HEADER_SIZE,
    LARGEST_ENDING,
    LAST_SIZE,
    Shape,
    ending_behind,
)
from logwright.codec.zookeeper.jute import STAT_PERSISTED

_MOST = 20
"""Number of unknown ACL numbers that are reported per window."""

NEXT = "the server loads the next older snapshot"
_DANGLING = "each read of the node ends with MarshallingError"
_LATE = ": the node was made or changed while the snapshot was written, after the zxid in its name"
_REPLAYED = "the server has the list as soon as it has replayed the logs"
_ZXIDS = tuple(STAT_PERSISTED.offset(name) for name in ("czxid", "mzxid", "pzxid"))


def sections_of(shape: Shape) -> dict[int, tuple[int, int]]:
    """The sections that could be read: kind and end by position."""
    out: dict[int, tuple[int, int]] = {}
    if shape.header is not None:
        out[0] = tables.HEADER_FRAME, HEADER_SIZE
    if shape.sessions is not None and shape.acls_at is not None:
        out[HEADER_SIZE] = tables.SESSIONS_FRAME, shape.acls_at
        if shape.nodes is not None:
            out[shape.acls_at] = tables.ACLS_FRAME, shape.nodes
    for seal in shape.seals:
        out[seal.start] = tables.SEAL_FRAMES[seal.name], seal.stop
    return out


class Scan:
    """One scan of an uncompressed file. `zxid` is that of its name, None without one. `seals`: verify the seals."""

    def __init__(
        self,
        window: Window,
        at: int,
        shape: Shape,
        check: bool,
        zxid: int | None = None,
        *,
        seals: bool = True,
    ) -> None:
        self.window, self.at, self.shape, self.check = window, at, shape, check
        self.zxid, self.seals = zxid, seals and check
        self.sections = sections_of(shape)
        self.nodes: list[tuple[Int64s, Int64s, npt.NDArray[Any]]] = []
        self.faults: list[Fault] = []

    def run(self) -> Frames:
        if self.seals and not self.window.offset + self.at:
            self.faults += seal_faults(self.shape)
        need, damage = self._run()
        frames = frames_of([], self.at)
        if len(self.nodes) == 1:
            frames.start, frames.end, frames.header = self.nodes[0]
        elif self.nodes:
            frames.start = np.concatenate([part[0] for part in self.nodes])
            frames.end = np.concatenate([part[1] for part in self.nodes])
            # Without the dtype NumPy converts the numbers to this machine's byte order.
            frames.header = np.concatenate([part[2] for part in self.nodes], dtype=layout.HEAD)
        frames.stop, frames.need, frames.damage, frames.faults = self.at, need, damage, self.faults
        return frames

    def _run(self) -> tuple[int, Fault | None]:
        window, shape = self.window, self.shape
        size = len(window.data)
        while True:
            place = window.offset + self.at
            if place >= window.size and window.size:
                return 0, self._unfinished(place)
            section = self.sections.get(place)
            if section is not None:
                kind, stop = section
                if stop - window.offset > size:
                    return stop - place, None
                self.nodes.append((np.array([self.at]), np.array([stop - window.offset]), head_of(kind)))
                self.at = stop - window.offset
                continue
            bad = self._head_damage(place)
            if bad is not None:
                return 0, bad
            ending = shape.found_ending
            if ending is not None and place >= ending.end:
                return 0, self._leftover(place)
            status, need = self._hop()
            place = window.offset + self.at
            if status == layout.NEED:
                return need, None
            if status == layout.END and shape.ending is None:
                need, damage = self._meet_end(place)
                if need or damage is not None:
                    return need, damage
            elif status != layout.END and status:
                return 0, self._damage(place, status)

    def _hop(self) -> tuple[int, int]:
        window, shape = self.window, self.shape
        room = (len(window.data) - self.at) // layout.NODE_MIN + 1
        starts, acls = np.empty(room, np.int64), np.empty(room, np.int64)
        paths, data = np.empty(room, np.int32), np.empty(room, np.int32)
        first = -1 if shape.nodes is None else shape.nodes - window.offset
        ids = shape.acls.known_ids
        count, stop, status, need = hop(
            window.data,
            self.at,
            shape.end - window.offset,
            first,
            int(self.check),
            ids,
            int(shape.nodes is not None),
            int(shape.ending is None),
            starts,
            paths,
            data,
            acls,
        )
        if count:
            head = np.empty(count, layout.HEAD)
            head["kind"] = tables.NODE_FRAME
            head["path"], head["data"], head["acl"] = paths[:count], data[:count], acls[:count]
            starts = starts[:count].copy()
            ends = np.append(starts[1:], stop)
            self.nodes.append((starts, ends, head))
            if self.check:
                self._dangling(starts, ends, acls[:count])
        self.at = int(stop)
        return int(status), int(need)

    def _dangling(self, starts: Int64s, ends: Int64s, acls: Int64s) -> None:
        """Report each ACL number that the table lacks once."""
        if self.shape.nodes is None:
            return  # the table is damaged, so missing lists are expected
        places = self.shape.acls.places(acls)
        if (places >= 0).all():
            return
        missing = np.flatnonzero(places < 0)
        late = self._late(ends[missing])
        for numbers, severity, why, system in (
            (missing[~late], Severity.WARNING, "", _DANGLING),
            (missing[late], Severity.INFO, _LATE, _REPLAYED),
        ):
            ids, first, count = np.unique(acls[numbers], return_index=True, return_counts=True)
            for k in np.argsort(first)[:_MOST].tolist():
                i = int(numbers[first[k]])
                at, length = self.window.offset + int(starts[i]), int(ends[i] - starts[i])
                text = f"ACL {int(ids[k])} of the node is not in the ACL table"
                if count[k] > 1:
                    text += f" (used by {plural.count(int(count[k]) - 1, 'later node')} too)"
                self.faults.append(Fault(tables.NAME, at, length, Kind.LINK, text + why, severity, system))

    def _late(self, ends: Int64s) -> Bools:
        """Report nodes before that position that were created or changed while the snapshot was written, after the zxid in its name."""
        out = np.zeros(len(ends), np.bool_)
        if self.zxid is not None:
            for offset in _ZXIDS:
                stored = self.window.data[(ends - layout.STAT + offset)[:, None] + np.arange(8)]
                out |= stored.view(">i8")[:, 0] > self.zxid
        return out

    def _meet_end(self, place: int) -> tuple[int, Fault | None]:
        """Handle an end mark in a file that does not end like a snapshot."""
        window = self.window
        length = min(LARGEST_ENDING, window.size - place)
        if len(window.data) - self.at < length:
            return length, None
        ending = ending_behind(window.data[self.at : self.at + length].tobytes(), place)
        if ending is None:
            if length < END_SIZE:
                text = (
                    f"the tree ends here, and its seal does not follow: {plural.count(length, 'byte')} left"
                )
                return 0, Fault(tables.NAME, place, length, Kind.TRUNCATED, text, system=NEXT)
            text = "the tree ends here, and no seal follows"
            return 0, Fault(tables.NAME, place, END_SIZE, Kind.PAYLOAD, text, system=NEXT)
        self.shape.behind = ending
        self.sections = sections_of(self.shape)
        return 0, None

    def _head_damage(self, place: int) -> Fault | None:
        """Return the fault at a section before the nodes."""
        shape, left = self.shape, self.window.size - place
        if place == 0 and shape.header is None:
            if left < HEADER_SIZE:
                text = f"{plural.count(left, 'byte')}, too few for the header of {HEADER_SIZE}"
                return Fault(tables.NAME, 0, left, Kind.TRUNCATED, text, system=NEXT)
            text = "the file does not begin with ZKSN: mismatching magic headers"
            return Fault(tables.NAME, 0, HEADER_SIZE, Kind.MAGIC, text, system=NEXT)
        if place == HEADER_SIZE and shape.sessions is None:
            text = "the number of sessions is impossible: the file is too short for it"
            return Fault(tables.NAME, place, min(left, layout.LENGTH), Kind.LENGTH, text, system=NEXT)
        if place == shape.acls_at and shape.nodes is None:
            text = f"only {len(shape.acls.ids)} lists of the ACL table can be read"
            return Fault(tables.NAME, place, min(left, layout.LENGTH), Kind.PAYLOAD, text, system=NEXT)
        return None

    def _damage(self, place: int, status: int) -> Fault:
        left = self.window.size - place
        kind = {
            layout.BAD_PATH: Kind.LENGTH,
            layout.BAD_DATA: Kind.LENGTH,
            layout.TOO_LONG: Kind.LENGTH,
            layout.UNLIKELY: Kind.PAYLOAD,
            layout.CUT: Kind.TRUNCATED,
        }[status]
        return Fault(
            tables.NAME, place, min(left, layout.NODE_MIN), kind, layout.MESSAGES[status], system=NEXT
        )

    def _unfinished(self, place: int) -> Fault | None:
        """Handle the end of the file. It is sound if an ending was found."""
        if self.shape.found_ending is not None:
            return None
        return Fault(tables.NAME, place, 0, Kind.TRUNCATED, "the file ends within its tree", system=NEXT)

    def _leftover(self, place: int) -> Fault:
        left = self.window.size - place
        system = "the server requires a seal at the end of the file: it loads the next older snapshot"
        text, kind = f"{plural.count(left, 'byte')} after the last section", Kind.PADDING
        if left < DIGEST_SIZE + LAST_SIZE:
            text = f"the file ends within a section, after {plural.count(left, 'byte')} of it"
            kind = Kind.TRUNCATED
        return Fault(tables.NAME, place, left, kind, text, Severity.WARNING, system)


def seal_faults(shape: Shape) -> list[Fault]:
    """Return the faults that the seals of the file show."""
    size = shape.size
    if not size:
        return []
    if shape.ending is None:
        text = "the file does not end with a seal: no checksum covers its nodes, so all rows are suspect"
        system = f"the server does not consider it: {NEXT}"
        return [Fault(tables.NAME, 0, size, Kind.TRUNCATED, text, system=system)]
    faults = []
    for mismatch in shape.wrong():
        seal = mismatch.seal
        text = f"checksum mismatch: the seal at byte {seal.at} stores {seal.stored:#010x}, computed {mismatch.computed:#010x}"
        if mismatch.itself:
            text += ": the seal itself is damaged, because the next one is right"
        elif mismatch.start:
            text += ": the seal before it is right, and so are the rows"
        else:
            text += ": all rows are suspect"
        length = seal.stop - mismatch.start
        faults.append(
            Fault(tables.NAME, mismatch.start, length, Kind.CHECKSUM, text, system=f"CRC corruption: {NEXT}")
        )
    last = shape.ending.seals[-1]
    if last.mark != b"/":
        text = f"the file ends with {last.mark.decode('latin-1')!a}, not with '/'"
        system = f"the server does not consider it: {NEXT}"
        faults.append(Fault(tables.NAME, last.stop - 1, 1, Kind.PAYLOAD, text, system=system))
    return faults


def outside(fault: Fault, size: int) -> Fault:
    """Convert a fault within a compressed file to one of the file."""
    text = f"{fault.detail} (byte {fault.offset} of what is decompressed)"
    return Fault(tables.NAME, 0, size, fault.kind, text, fault.severity, fault.system)


def head_of(kind: int) -> npt.NDArray[Any]:
    head = np.zeros(1, layout.HEAD)
    head["kind"] = kind
    return head


def frames_of(bounds: list[tuple[int, int, int]], stop: int) -> Frames:
    """Return frames given as (kind, start, end)."""
    head = np.zeros(len(bounds), layout.HEAD)
    head["kind"] = [bound[0] for bound in bounds]
    start = np.array([bound[1] for bound in bounds], np.int64)
    return Frames(start, np.array([bound[2] for bound in bounds], np.int64), head, stop)
