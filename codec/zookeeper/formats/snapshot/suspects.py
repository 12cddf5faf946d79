"""Find the flipped bit of a snapshot, by its seals and a second proof.

A seal is an Adler-32 of all bytes before it, and pairs of wrong bits change it as a single one elsewhere does. So a bit is corrected only if
something else was wrong with it and is right without it: the digest of the tree, the structure of the file, a constant of its header, or the
two zxids at its end, which are equal. A seal that is itself damaged is proved by the next one, which covers it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from logwright.codec.base import Codec
from logwright.codec.engine.correct import Correction, PatchedFile
from logwright.codec.fault import Kind, Severity
from logwright.codec.frames.walk import Hole, Stretch, Walk
from logwright.codec.java import int64
from logwright.codec.zookeeper.formats.bitflip import flips_in_data
from logwright.codec.zookeeper.formats.snapshot.frames import SnapshotContext
from logwright.codec.zookeeper.formats.snapshot.layout import NODE_MIN
from logwright.codec.zookeeper.formats.snapshot.sections import (
    DBID,
    END_MARK,
    LARGEST_ENDING,
    VERSION,
    Ending,
    Read,
    Shape,
    flips_of_endings,
)
from logwright.codec.zookeeper.formats.snapshot.tables import NODE_FRAME
from logwright.codec.zookeeper.state.digest import VERSION as DIGEST_VERSION
from logwright.codec.zookeeper.state.digest import node_digests

Flip = tuple[int, int]
"""A byte of the file, and a bit of it."""
_TRIES = 16
"""The number of bits that are tried by reading the snapshot with them flipped."""
_WORK = 8
"""Digests of nodes with a flipped bit may read this many times the bytes of the file."""


@dataclass
class SnapshotFacts:
    """The parts of a snapshot that may prove a bit: each is compared with the same snapshot without it."""

    sound: bool
    """Whether its structure is."""
    sealed: bool
    dangling: bool
    """Whether a node has an ACL number that the table lacks."""
    late: frozenset[tuple[int, str]]
    """The places of later nodes whose ACL number the table may lack, and the text about them."""
    header: bool
    """Whether version and number of the database are those that every server writes."""
    total: int
    """The digest of the nodes."""
    digest: int | None
    """The stored one of the tree, None without."""
    zxids: tuple[int, ...]
    """Those of the digest and of the last section."""
    damage: int
    """Where the structure is damaged first."""

    @property
    def digest_right(self) -> bool:
        return self.digest is not None and self.digest == int64(self.total)

    @property
    def complete(self) -> bool:
        """Whether nothing is wrong with it, whatever the digest says."""
        return self.sound and self.sealed and self.header

    def proves(self, stored: SnapshotFacts) -> tuple[str, ...]:
        """Return the evidence that a bit was flipped in the stored snapshot and is not in this one."""
        if not self.complete:
            return ()
        proofs = ["its structure"] if not (stored.sound and stored.header) else []
        # Another time of creation does not prove the ACL of a node.
        linked = stored.dangling and not self.dangling and self.late == stored.late
        proofs += ["the ACL table"] if linked else []
        proofs += ["the digest of the tree"] if self.digest_right and not stored.digest_right else []
        equal = len(self.zxids) == 2 and self.zxids[0] == self.zxids[1]
        proofs += ["the last zxid"] if equal and stored.zxids != self.zxids else []
        # A digest of an earlier or later state of the tree proves nothing, but one of this state must be right.
        if self.digest is not None and not self.digest_right and stored.sound:
            return ()
        return ("Adler-32", *proofs) if proofs else ()


def flip_of(
    codec: Codec, read: Read, size: int, context: SnapshotContext
) -> tuple[Flip, tuple[str, ...]] | None:
    """Return the only flipped bit of an uncompressed snapshot that more than its seals prove, and the proofs."""
    shape = context.shape
    if shape is None or context.compression != "none" or size < LARGEST_ENDING:
        return None
    if shape.sealed:
        return None
    context = replace(context, shape=None, read=None)
    if shape.ending is None:
        near = list(flips_of_endings(read(size - LARGEST_ENDING, LARGEST_ENDING).tobytes(), size))
        if not near:
            return None
    else:
        near = list(_of_seals(shape, shape.ending))
    facts = facts_of(codec, read, size, context)
    if shape.ending is not None:
        covered = _by_sums(shape)
        if facts.sound and facts.digest is not None and len(covered) > _TRIES:
            covered = list(_by_digest(codec, read, size, context, facts, covered))
        near += sorted(covered, key=lambda flip: abs(flip[0] - facts.damage))
    proved = []
    for place, bit in dict.fromkeys(near[:_TRIES]):
        stored = int(read(place, 1)[0])
        patched = PatchedFile(read, size, Correction(place, bit, stored, 0, size, ()))
        proofs = facts_of(codec, patched.pread, size, context).proves(facts)
        if not proofs and _is_of_seal(shape, place, facts):
            # A seal is proved by the sections that it and the next one cover, if both are right.
            sealed = Shape.of(patched.pread, size).sealed
            proofs = ("Adler-32", "the sections around the seal") if sealed else ()
        if proofs:
            proved.append(((place, bit), proofs))
    # A bit that is far from damage to the structure cannot correct that damage.
    return proved[0] if len(proved) == 1 and (len(near) <= _TRIES or not facts.sound) else None


def facts_of(codec: Codec, read: Read, size: int, context: SnapshotContext) -> SnapshotFacts:
    """Read a snapshot from end to end."""
    context = replace(context)
    facts = SnapshotFacts(True, False, False, frozenset(), False, 0, None, (), 0)
    damage: int | None = None
    for step in Walk(PatchedFile(read, size), codec, context):
        if isinstance(step, Hole):
            damage = step.fault.offset if damage is None else damage
            continue
        wrong = [fault for fault in step.faults if fault.severity is not Severity.INFO]
        facts.dangling |= any(fault.kind is Kind.LINK for fault in wrong)
        facts.late |= {
            (fault.offset, fault.detail)
            for fault in step.faults
            if fault.kind is Kind.LINK and fault.severity is Severity.INFO
        }
        places = [fault.offset for fault in wrong if fault.kind not in (Kind.CHECKSUM, Kind.LINK)]
        damage = min(places) if places and damage is None else damage
        facts.total += _digest(step)
    shape = context.shape
    assert shape is not None
    facts.sound, facts.damage = damage is None, damage or 0
    facts.header = shape.header == {"version": VERSION, "dbid": DBID}
    if shape.ending is not None:
        facts.sealed, facts.zxids = shape.sealed, shape.ending.zxids(read)
        stored = shape.ending.facts(read)
        if stored.get("digest_version") == DIGEST_VERSION:
            facts.digest = stored["digest"]
    return facts


def _digest(stretch: Stretch) -> int:
    """Return the digest of the nodes of a scan."""
    nodes = stretch.frames.pick(stretch.frames.header["kind"] == NODE_FRAME)
    if not len(nodes):
        return 0
    paths, data = (np.ascontiguousarray(nodes.header[name]) for name in ("path", "data"))
    starts = np.ascontiguousarray(nodes.start)
    return int(node_digests(stretch.window.data, starts, paths, data, np.empty(len(nodes), np.int64)))


def _of_seals(shape: Shape, ending: Ending) -> Iterator[Flip]:
    """Yield the bits of the seals that alone are wrong in them."""
    last = ending.seals[-1]
    change = last.mark[0] ^ END_MARK[4]
    if change and change & change - 1 == 0:
        yield last.stop - 1, change.bit_length() - 1
    for mismatch in shape.wrong():
        change = mismatch.seal.stored ^ mismatch.computed
        if change and change & change - 1 == 0:
            bit = change.bit_length() - 1
            yield mismatch.seal.at + 7 - bit // 8, bit % 8


def _by_sums(shape: Shape) -> list[Flip]:
    """Return the bits before the first wrong seal that change it to its stored value."""
    wrong = next(iter(shape.wrong()), None)
    if wrong is None or wrong.itself:
        return []
    length = wrong.seal.at - wrong.start
    # One byte in 65,521 may be the flipped one: only these are read.
    places = flips_in_data(
        lambda at: int(shape.read(wrong.start + at, 1)[0]), length, wrong.seal.stored, wrong.computed
    )
    return [
        (wrong.start + at, (before ^ int(shape.read(wrong.start + at, 1)[0])).bit_length() - 1)
        for at, before in places
    ]


def _by_digest(
    codec: Codec, read: Read, size: int, context: SnapshotContext, stored: SnapshotFacts, flips: list[Flip]
) -> Iterator[Flip]:
    """Yield those of the bits without which the digest of the tree is right. They are ordered."""
    flips = sorted(flips)
    work = _WORK * size
    assert stored.digest is not None
    for step in Walk(PatchedFile(read, size), codec, replace(context)):
        if isinstance(step, Hole):
            continue
        base, frames = step.window.offset, step.frames
        low, high = (bisect_left(flips, (base + at, 0)) for at in (0, frames.stop))
        for place, bit in flips[low:high]:
            i = int(np.searchsorted(frames.start, place - base, "right")) - 1
            if i < 0 or place - base >= int(frames.end[i]) or frames.header["kind"][i] != NODE_FRAME:
                continue
            start, end = int(frames.start[i]), int(frames.end[i])
            work -= 2 * (end - start)
            if work < 0 or end - start < NODE_MIN:
                return
            node = step.window.data[start:end].copy()
            part = replace(
                frames.pick(slice(i, i + 1)), start=np.zeros(1, np.int64), end=np.array([end - start])
            )
            before = _digest(Stretch(replace(step.window, data=node), part))
            node[place - base - start] ^= 1 << bit
            after = _digest(Stretch(replace(step.window, data=node), part))
            if int64(stored.total - before + after) == stored.digest:
                yield place, bit


def _is_of_seal(shape: Shape, place: int, facts: SnapshotFacts) -> bool:
    """Return whether a byte is in a seal that is the only damage: with another value of it the next seal is right, or it is the last seal, and
    the zxid before it is that of the digest."""
    if shape.ending is None:
        return False
    equal = facts.digest_right and len(facts.zxids) == 2 and facts.zxids[0] == facts.zxids[1]
    return any(
        (wrong.itself or (equal and wrong.seal.name == "last_processed" and wrong.start == wrong.seal.start))
        and wrong.seal.at <= place < wrong.seal.stop
        for wrong in shape.wrong()
    )
