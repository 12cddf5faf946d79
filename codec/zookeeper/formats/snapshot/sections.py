"""The sections of a snapshot around its nodes: header, sessions, ACL table; end mark, digest, last processed zxid, and the seals.

A seal is the Adler-32 of all bytes before it, earlier seals included, and the string "/". Nothing in the file says which sections follow
the first seal; their length shows it. Source: `FileSnap`, `SerializeUtils`, `DataTree.serializeZxidDigest` of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from logwright.codec.describe import (
    I32BE,
    I64BE,
    DescriptionError,
    Field,
    Nothing,
    Repeated,
    Struct,
    Switch,
    Until,
    dtype_of,
)
from logwright.codec.describe import Bytes as BytesType
from logwright.codec.expression import LEFT
from logwright.codec.kernels.adler32 import adler32_of
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.acl import ACLS, AclTable
from logwright.codec.zookeeper.formats.snapshot.layout import NODE
from logwright.codec.zookeeper.jute import USTRING, in_hex

MAGIC = b"ZKSN"
VERSION, DBID = 2, -1

HEADER = Struct(
    "FileHeader",
    Field("magic", BytesType(4), "ZKSN", default=MAGIC, only=MAGIC),
    Field("version", I32BE, "2; ignored by readers", default=VERSION),
    Field("dbid", I64BE, "-1; ignored by readers", default=DBID),
    source="org.apache.zookeeper.server.persistence.FileHeader",
)
SESSION = Struct(
    "session",
    Field("id", I64BE, "session id", says=in_hex),
    Field("timeout", I32BE, "milliseconds"),
    source="org.apache.zookeeper.server.util.SerializeUtils.serializeSnapshot",
)
SESSIONS = Struct(
    "sessions",
    Field("sessions", Repeated(SESSION, I32BE)),
    doc="The open sessions.",
    source="org.apache.zookeeper.server.util.SerializeUtils.serializeSnapshot",
)
_SEAL = (
    Field("checksum", I64BE, "Adler-32 of all bytes before it"),
    Field("mark", USTRING, '"/"', default=b"/"),
)
END = Struct(
    "end",
    Field("path", USTRING, '"/", which is not the path of a node: the end of the tree', default=b"/"),
    *_SEAL,
    doc="The end of the tree and its seal.",
    source="org.apache.zookeeper.server.persistence.SnapStream.sealStream",
)
DIGEST = Struct(
    "digest",
    Field("zxid", I64BE, "the last transaction in the tree when the snapshot was finished"),
    Field("digest_version", I32BE, "2"),
    Field("digest", I64BE, "digest of the tree after it"),
    *_SEAL,
    doc="The digest of the tree and its seal. Since 3.6.",
    source="org.apache.zookeeper.server.DataTree.serializeZxidDigest",
)
LAST_PROCESSED = Struct(
    "last_processed",
    Field("last_processed_zxid", I64BE, "the last transaction in the tree when this was written"),
    *_SEAL,
    doc="The last processed zxid and its seal. Since 3.9.",
    source="org.apache.zookeeper.server.DataTree.serializeLastProcessedZxid",
)

END_MARK = USTRING.pack(b"/", {})
SEAL_SIZE = 8 + len(END_MARK)
HEADER_SIZE = HEADER.head_size
END_SIZE = len(END_MARK) + SEAL_SIZE
DIGEST_SIZE = DIGEST.offset("checksum") + SEAL_SIZE
LAST_SIZE = LAST_PROCESSED.offset("checksum") + SEAL_SIZE


def _section(struct: Struct, size: int) -> Switch:
    """A section that is present if there are at least this many bytes for it."""
    return Switch(f"{LEFT} >= {size}", {1: struct, 0: Nothing()})


SNAPSHOT = Struct(
    "snapshot",
    Field("header", HEADER),
    Field("sessions", SESSIONS),
    Field("acls", ACLS),
    Field(
        "nodes",
        Repeated(NODE, least=NODE.min_size, until=Until(1, I32BE, doc='a path of one character, "/"')),
        "the tree",
        rows=True,
    ),
    Field("end", END),
    Field("digest", _section(DIGEST, DIGEST_SIZE), "since 3.6"),
    Field("last_processed", _section(LAST_PROCESSED, LAST_SIZE), "since 3.9"),
    Field("rest", BytesType(), "ignored by readers; usually empty", default=b""),
    doc="A plain snapshot. A compressed one holds these bytes.",
    source="org.apache.zookeeper.server.persistence.FileSnap",
)
FORMS = ((True, True), (True, False), (False, True), (False, False))
"""Which of digest and last processed zxid follow the first seal, the most likely combination first."""
LARGEST_ENDING = END_SIZE + DIGEST_SIZE + LAST_SIZE
SESSION_DTYPE = dtype_of(SESSION)
_SESSION_MIN = SESSION.min_size

Read = Callable[[int, int], Bytes]
"""Read a number of bytes from an offset on; fewer at the end of the file."""
_STEP = 2 << 20
_FIRST = 1 << 16
_LIMIT = 256 << 20
"""A larger session table or ACL table is regarded as damage."""


@dataclass(frozen=True, slots=True)
class Seal:
    """A seal: the section it follows, the position of its checksum, the checksum and its string."""

    name: str
    start: int
    at: int
    stored: int
    mark: bytes

    @property
    def stop(self) -> int:
        return self.at + SEAL_SIZE


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong seal: its correct value, and the position from which on the bytes before it are damaged. `itself`: only the seal is
    damaged."""

    seal: Seal
    computed: int
    start: int
    itself: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """The sections after the nodes: the positions of end mark, digest and last processed zxid; None for a missing one."""

    end: int
    digest: int | None
    last: int | None
    seals: tuple[Seal, ...]

    @classmethod
    def at(cls, tail: bytes, offset: int, end: int, form: tuple[bool, bool], *, exact: bool) -> Ending | None:
        """Return the ending of this form whose end mark is at `end`, if the bytes look like it. `tail` starts at `offset`. Of the string
        of the last seal only the length is checked. `exact`: the ending must extend to the end of the bytes."""
        at, size = end - offset, size_of(form)
        if at + size > len(tail) or (exact and at + size != len(tail)):
            return None
        if any(tail[at + place :][: len(constant)] != constant for place, constant in _constants(form)):
            return None
        places: dict[str, int] = {}
        seals = []
        for name, head in _heads(form):
            places[name] = offset + at
            checksum = at + head
            seal = tail[checksum : checksum + SEAL_SIZE]
            seals.append(
                Seal(name, offset + at, offset + checksum, int.from_bytes(seal[:8], "big"), seal[12:])
            )
            at = checksum + SEAL_SIZE
        return cls(end, places.get("digest"), places.get("last_processed"), tuple(seals))

    @property
    def stop(self) -> int:
        return self.seals[-1].stop

    def facts(self, read: Read) -> dict[str, int]:
        """Return the fields of the sections after the first seal."""
        facts: dict[str, int] = {}
        if self.digest is not None:
            stored, _ = DIGEST.unpack(read(self.digest, DIGEST_SIZE).tobytes())
            facts["digest_zxid"] = stored["zxid"]
            facts |= {name: stored[name] for name in ("digest_version", "digest")}
        if self.last is not None:
            stored, _ = LAST_PROCESSED.unpack(read(self.last, LAST_SIZE).tobytes())
            facts["last_processed_zxid"] = stored["last_processed_zxid"]
        return facts

    def zxids(self, read: Read) -> tuple[int, ...]:
        """Return the last transactions in the tree, by these sections."""
        facts = self.facts(read)
        return tuple(facts[name] for name in ("digest_zxid", "last_processed_zxid") if name in facts)


def size_of(form: tuple[bool, bool]) -> int:
    return END_SIZE + form[0] * DIGEST_SIZE + form[1] * LAST_SIZE


def _heads(form: tuple[bool, bool]) -> Iterator[tuple[str, int]]:
    """Yield the names of the sections of an ending, and their sizes without their seals."""
    yield "end", END_SIZE - SEAL_SIZE
    if form[0]:
        yield "digest", DIGEST_SIZE - SEAL_SIZE
    if form[1]:
        yield "last_processed", LAST_SIZE - SEAL_SIZE


def _constants(form: tuple[bool, bool]) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes that are the same in all endings of a form, and their positions relative to the end mark. Of the string of the last
    seal it is only the length."""
    yield 0, END_MARK
    at, stop = 0, size_of(form)
    for _, head in _heads(form):
        seal = at + head
        at = seal + SEAL_SIZE
        yield seal, bytes(4)
        yield seal + 8, END_MARK[: 4 if at == stop else None]


def flips_of_endings(tail: bytes, size: int) -> Iterator[tuple[int, int]]:
    """Yield the bits, as byte and bit, without which a file of this size would end like a snapshot. It ends in `tail`."""
    for form in FORMS:
        first = len(tail) - size_of(form)
        if first < 0:
            continue  # the file became shorter meanwhile
        wrong = [
            (first + at + i, tail[first + at + i] ^ byte)
            for at, constant in _constants(form)
            for i, byte in enumerate(constant)
            if tail[first + at + i] != byte
        ]
        if len(wrong) == 1 and wrong[0][1].bit_count() == 1:
            place, change = wrong[0]
            yield size - len(tail) + place, change.bit_length() - 1


def endings(tail: bytes, offset: int) -> list[Ending]:
    """Return the endings that the last bytes of a file, from `offset` on, may be; the most likely first."""
    places = [(offset + len(tail) - size_of(form), form) for form in FORMS]
    possible = (Ending.at(tail, offset, at, form, exact=True) for at, form in places if at >= offset)
    return [ending for ending in possible if ending is not None]


def ending_behind(tail: bytes, offset: int) -> Ending | None:
    """Return the ending whose end mark is at `offset`, as far as the bytes after it look like one."""
    for form in FORMS:
        ending = Ending.at(tail, offset, offset, form, exact=False)
        if ending is not None and ending.seals[-1].mark == END_MARK[4:]:
            return ending
    return Ending.at(tail, offset, offset, (False, False), exact=False)


@dataclass
class Shape:
    """The parts of a snapshot that are known before its nodes are read.

    `nodes` is the position of the root, None if the sections before it cannot be read. `ending` is missing (None) if the file does not end
    like a snapshot.
    """

    size: int
    read: Read
    header: dict[str, int] | None = None
    sessions: npt.NDArray[Any] | None = None
    """An array of `SESSION_DTYPE`."""
    acls_at: int | None = None
    acls: AclTable = field(default_factory=AclTable.empty)
    nodes: int | None = None
    ending: Ending | None = None
    sums: dict[int, int] = field(default_factory=dict)
    """The computed checksum of the bytes before each seal, by the seal's position."""
    behind: Ending | None = None
    """An ending that was found before the end of a file that has none."""
    summed: tuple[int, int] = 0, 1
    """The position up to which bytes were summed while they were read, and their checksum."""

    @classmethod
    def of(cls, read: Read, size: int) -> Shape:
        shape = cls(size, read)
        shape._head()
        low = max(0, size - LARGEST_ENDING)
        candidates = endings(read(low, size - low).tobytes(), low)
        # A zxid can look like an end mark. The seals decide.
        if len(candidates) > 1:
            candidates.sort(key=lambda ending: shape.sums_of(ending)[0] != ending.seals[0].stored)
        shape.ending = candidates[0] if candidates else None
        return shape

    @property
    def found_ending(self) -> Ending | None:
        """The ending, which may be before the end of the file."""
        return self.ending or self.behind

    @property
    def seals(self) -> tuple[Seal, ...]:
        """The seals of that ending."""
        return () if self.found_ending is None else self.found_ending.seals

    def computed(self, seal: Seal) -> int:
        """Return the checksum of all bytes before one of these seals."""
        assert self.found_ending is not None
        return self.sums_of(self.found_ending)[self.seals.index(seal)]

    @property
    def sealed(self) -> bool:
        """Whether all seals are right, including the string of the last one."""
        ending = self.ending
        return ending is not None and not list(self.wrong()) and ending.seals[-1].mark == END_MARK[4:]

    @property
    def end(self) -> int:
        """Where the tree ends; the end of the file if that is not known."""
        return self.size if self.ending is None else self.ending.end

    def _head(self) -> None:
        data = self.read(0, min(self.size, _FIRST))
        if len(data) < HEADER_SIZE:
            return
        header, _ = HEADER.unpack(data[:HEADER_SIZE].tobytes())
        if header["magic"] == MAGIC:
            self.header = {"version": header["version"], "dbid": header["dbid"]}
        if len(data) < HEADER_SIZE + 4:
            return
        count = max(int.from_bytes(data[HEADER_SIZE : HEADER_SIZE + 4].tobytes(), "big", signed=True), 0)
        at = HEADER_SIZE + 4 + count * _SESSION_MIN
        if at > self.size or at > _LIMIT:
            return
        stored = self.read(HEADER_SIZE + 4, count * _SESSION_MIN)
        if len(stored) < count * _SESSION_MIN:
            return  # the file became shorter meanwhile
        self.sessions = stored.view(SESSION_DTYPE)
        self.acls_at = at
        length = _FIRST
        while True:
            data = self.read(at, min(length, self.size - at))
            self.acls, stop, complete = AclTable.parse(data, 0, len(data))
            if complete:
                self.nodes = at + stop
            if complete or len(data) < length or len(data) - stop > _STEP or length > _LIMIT:
                return
            length *= 2

    def sums_of(self, ending: Ending) -> list[int]:
        """Return the checksums of all bytes before each seal. Bytes that were not summed while reading (`add`) are read once for it."""
        ends = [seal.at for seal in ending.seals]
        missing = [at for at in ends if at not in self.sums]
        if missing:
            begun = self.summed if self.summed[0] <= missing[0] else (0, 1)
            self.sums |= dict(zip(missing, running(self.read, missing, *begun), strict=True))
        return [self.sums[at] for at in ends]

    def add(self, data: Bytes, offset: int) -> None:
        """Add bytes at `offset` to the sum, if they continue those summed before, so that they need not be read again."""
        at, value = self.summed
        stop = 0 if self.ending is None else self.ending.seals[0].at
        if offset <= at < min(stop, offset + len(data)):
            more = data[at - offset : stop - offset]
            self.summed = at + len(more), adler32_of(more, value)

    def wrong(self) -> Iterator[Wrong]:
        """Return the wrong seals.

        Each one is compared with the stored value of the one before, so that damage is located between two seals. If the next seal is right
        when only the checksum of this one is corrected, this seal alone is damaged.
        """
        ending = self.ending
        assert ending is not None
        value, first = self.sums_of(ending)[0], 0
        for seal, following in zip(ending.seals, [*ending.seals[1:], None], strict=True):
            if value == seal.stored:
                value = self._behind(seal, seal.stored, following)
            elif following is not None and self._behind(seal, value, following, value) == following.stored:
                yield Wrong(seal, value, seal.at, itself=True)
                value = following.stored
            else:
                yield Wrong(seal, value, first)
                value = self._behind(seal, seal.stored, following)
            first = seal.stop

    def _behind(self, seal: Seal, value: int, following: Seal | None, stored: int | None = None) -> int:
        """Return the checksum up to the next seal, from the value before this one. `stored`: assume that this seal has that value."""
        if following is None:
            return 0
        data = self.read(seal.at, following.at - seal.at).tobytes()
        if stored is not None:
            data = I64BE.pack(stored, {}) + data[8:]
        return adler32_of(data, value)


def running(read: Read, places: list[int], at: int = 0, value: int = 1) -> list[int]:
    """Return the Adler-32 of all bytes up to each of these positions, in order. `value` is the checksum of the bytes up to `at`."""
    out = []
    for place in places:
        while at < place:
            data = read(at, min(_STEP, place - at))
            if not len(data):
                break
            value = adler32_of(data, value)
            at += len(data)
        out.append(value)
    return out


def struct_of(frame: bytes) -> Struct:
    """Return the kind of a frame from its bytes: a section or a node."""
    if frame[: len(MAGIC)] == MAGIC and len(frame) == HEADER_SIZE:
        return HEADER
    if frame[: len(END_MARK)] == END_MARK:
        return END
    for struct in (NODE, SESSIONS, ACLS):
        try:
            if struct.unpack(frame)[1] == len(frame):
                return struct
        except DescriptionError:
            continue
    return DIGEST if len(frame) == DIGEST_SIZE else LAST_PROCESSED
