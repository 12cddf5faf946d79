"""Where the blocks of a table lie: footer, index and metaindex, read before anything else.

Where the index is sound, it is believed. Where it or the footer is damaged, what can still be read of them says where to look,
and what else there is is found by checksum (`rescan`).
Source: `table/format.cc` and `table/table.cc` of LevelDB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from logwright.codec.base import Bytes
from logwright.codec.compress import CompressionError
from logwright.codec.describe import Bytes as BytesType
from logwright.codec.describe import Field, Struct
from logwright.codec.fault import Fault, Kind
from logwright.codec.leveldb.block import (
    SOUND,
    TRAILER_SIZE,
    block_crc,
    entries,
    expand,
)
from logwright.codec.leveldb.filter import META_PREFIX
from logwright.codec.leveldb.rescan import MAGIC, Read, find, is_filter

NAME = "leveldb.table"
Int64s = npt.NDArray[np.int64]

HANDLES_SIZE = 40
_LARGEST = (1 << 64) - 1
FOOTER = Struct(
    "Footer",
    Field(
        "handles",
        BytesType(HANDLES_SIZE),
        "handles of the metaindex and of the index, and padding that may be anything",
    ),
    Field("magic", BytesType(len(MAGIC)), "57 fb 80 8b 24 75 47 db"),
    doc="The last 48 bytes of a table. No checksum covers them.",
    source="Footer",
)
FOOTER_SIZE = FOOTER.head_size

DATA, FILTER, METAINDEX, INDEX = range(4)
KIND_NAMES = ("data", "filter", "metaindex", "index")


@dataclass(slots=True)
class Blocks:
    """What is known of the blocks of a table, in the order of the file."""

    offset: Int64s
    size: Int64s
    """Without the trailer."""
    kind: Int64s
    entry: Int64s
    """The number of the block's entry in the index; -1 where it has none."""
    keys: list[bytes]
    """The keys of the index."""
    values: list[bytes]
    """Its values: handles."""
    sound: bool
    """Whether the index is."""
    stop: int
    """Where blocks have to end: the footer, or the end of the file."""
    faults: list[Fault]
    """What is wrong with the footer."""
    wrong: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Blocks that are named somewhere, but whose checksum is wrong: size and kind, by offset."""
    ends: Int64s = field(init=False)
    breaks: Int64s = field(init=False)
    """The blocks that do not start where the one before ends."""

    def __post_init__(self) -> None:
        self.ends = self.offset + self.size + TRAILER_SIZE
        self.breaks = np.flatnonzero(self.offset[1:] != self.ends[:-1]) + 1

    def at(self, place: int) -> int:
        """The first block at or behind a byte of the file."""
        return int(np.searchsorted(self.offset, place))

    def next(self, place: int) -> int:
        """Where the first block at or behind a byte starts, or else the footer."""
        i = self.at(place)
        return int(self.offset[i]) if i < len(self.offset) else self.stop


def handles(data: bytes) -> list[tuple[int, int]]:
    """The block handles that bytes start with, two at most."""
    found: list[int] = []
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(number & _LARGEST)
            number = shift = 0
            if len(found) == 4:
                break
        elif shift == 70:
            break
    return list(zip(found[::2], found[1::2], strict=False))


@dataclass(slots=True)
class _Look:
    """Looks at the blocks of one file. `checked` are those whose checksum was found right or wrong."""

    read: Read
    size: int
    limit: int
    checked: dict[tuple[int, int], bool] = field(default_factory=dict)

    def fits(self, offset: int, size: int) -> bool:
        return offset <= self.size - TRAILER_SIZE - size

    def block(self, offset: int, size: int) -> tuple[Bytes, int, bool] | None:
        """Contents, type, and whether the checksum is right, of what may be a block; None where the file has no such bytes."""
        if not self.fits(offset, size):
            return None
        data = self.read(offset, size + TRAILER_SIZE)
        if len(data) < size + TRAILER_SIZE:
            return None
        sound = block_crc(data, 0, size) == int.from_bytes(data[size + 1 :].tobytes(), "little")
        self.checked[offset, size] = sound
        return data[:size], int(data[size]), sound

    def sound(self, offset: int, size: int) -> bool:
        if (offset, size) not in self.checked:
            self.block(offset, size)
        return self.checked.get((offset, size), False)

    def pairs(self, offset: int, size: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        """The entries of a block, as far as they can be read, and whether it is sound."""
        found = self.block(offset, size)
        if found is None:
            return [], False
        try:
            plain = expand(found[0], found[1], self.limit)
        except CompressionError:
            return [], False
        read, status = entries(plain, self.limit)
        return read, found[2] and status == SOUND


def survey(read: Read, size: int, limit: int) -> Blocks:
    """What there is to know of a table of `size` bytes; `limit` is what a block may take decompressed."""
    look = _Look(read, size, limit)
    tail = read(size - FOOTER_SIZE, FOOTER_SIZE).tobytes() if size >= FOOTER_SIZE else b""
    places = handles(tail[:HANDLES_SIZE])
    faults = _footer_faults(size, tail, places)
    index, sound = look.pairs(*places[1]) if len(places) == 2 else ([], False)
    listed = [handles(value)[:1] for _, value in index]
    # No checksum covers the footer: what it says is the index has to look like one, and to lie right before it.
    whole = sound
    sound = sound and _is_index(listed, places[1][0]) and sum(places[1]) + TRAILER_SIZE >= size - FOOTER_SIZE
    if whole and not sound and tail.endswith(MAGIC):
        text = "bad block handle in the index, whose checksum is right: blocks are found by theirs"
        faults.append(
            Fault(NAME, *places[1], Kind.LENGTH, text, system="LevelDB ends with the status Corruption")
        )
    if not sound and not tail.endswith(MAGIC):
        places, listed, index = [], [], []
    meta, meta_sound = look.pairs(*places[0]) if places else ([], False)
    kinds: dict[tuple[int, int], int] = {}
    entry: dict[tuple[int, int], int] = {}
    for i, one in enumerate(listed):
        for place in one:
            kinds.setdefault(place, DATA)
            entry.setdefault(place, i)
    stop = size
    if tail.endswith(MAGIC):
        stop = size - FOOTER_SIZE
    elif sound:
        # Part of the footer is there, or all but its last bytes.
        stop = places[1][0] + places[1][1] + TRAILER_SIZE
    for key, value in meta:
        for place in handles(value)[:1] if key.startswith(META_PREFIX.encode()) else ():
            kinds.setdefault(place, FILTER)
    if places:
        kinds.setdefault(places[0], METAINDEX)
    if len(places) == 2:
        kinds[places[1]] = INDEX
    if not sound:
        return _rescued(look, stop, kinds, entry, index, faults)
    return _blocks(look, stop, kinds, entry, index, True, faults, gaps=not meta_sound)


def _footer_faults(size: int, tail: bytes, places: list[tuple[int, int]]) -> list[Fault]:
    system = "LevelDB reads nothing of the table, and RepairDB moves it to lost/"
    if not tail:
        text = f"file is too short to be an sstable: {size} bytes, where a footer alone has {FOOTER_SIZE}"
        return [Fault(NAME, 0, size, Kind.TRUNCATED, text, system=system)]
    at = size - FOOTER_SIZE
    if not tail.endswith(MAGIC):
        found = tail[HANDLES_SIZE:].hex(" ")
        text = f"not an sstable (bad magic number): {MAGIC.hex(' ')} is expected, {found} found"
        return [Fault(NAME, at + HANDLES_SIZE, len(MAGIC), Kind.MAGIC, text, system=system)]
    if len(places) < 2:
        return [Fault(NAME, at, HANDLES_SIZE, Kind.LENGTH, "bad block handle in the footer", system=system)]
    return []


def _rescued(
    look: _Look,
    stop: int,
    kinds: dict[tuple[int, int], int],
    entry: dict[tuple[int, int], int],
    index: list[tuple[bytes, bytes]],
    faults: list[Fault],
) -> Blocks:
    """Without a sound index: of the blocks that it names those whose checksum is right, and between them what is found."""
    there = sorted(place for place in kinds if look.sound(*place))
    known = {
        place: INDEX if sum(place) + TRAILER_SIZE == stop < look.size else _kind(look, *place, there)
        for place in there
    }
    told = _blocks(look, stop, known, entry, index, False, faults, gaps=True)
    told.wrong = {
        place[0]: (place[1], kind) for place, kind in kinds.items() if look.checked.get(place) is False
    }
    # An index may be among them that no footer led to.
    for i in np.flatnonzero(told.kind == INDEX).tolist():
        place = int(told.offset[i]), int(told.size[i])
        pairs, sound = look.pairs(*place)
        if sound and place not in known:
            listed = {one[0]: n for n, (_, value) in enumerate(pairs) if (one := handles(value)[:1])}
            told.entry = np.array(
                [listed.get((int(o), int(s)), -1) for o, s in zip(told.offset, told.size, strict=True)],
                np.int64,
            )
            told.keys, told.values = [key for key, _ in pairs], [value for _, value in pairs]
    return told


def _blocks(
    look: _Look,
    stop: int,
    kinds: dict[tuple[int, int], int],
    entry: dict[tuple[int, int], int],
    index: list[tuple[bytes, bytes]],
    sound: bool,
    faults: list[Fault],
    gaps: bool,
) -> Blocks:
    """These blocks in order, without those that are not within the file or overlap; with `gaps` what is found between them too.

    A sound index names all data blocks, so what is found then is none.
    """
    chosen: list[tuple[int, int, int, int]] = []
    at = 0
    for place in sorted(kinds):
        offset, size = place
        if offset >= at and offset + size + TRAILER_SIZE <= stop:
            chosen.append((offset, size, kinds[place], entry.get(place, -1)))
            at = offset + size + TRAILER_SIZE
    if gaps:
        more: list[tuple[int, int, int, int]] = []
        at = 0
        for offset, size, *_ in [*chosen, (stop, 0)]:
            for low, length in find(look.read, at, offset, look.size, look.limit) if offset > at else ():
                kind = _kind(look, low, length, [one[:2] for one in (*chosen, *more)])
                if not sound or kind != DATA:
                    more.append((low, length, kind, -1))
            at = offset + size + TRAILER_SIZE
        chosen = sorted([*chosen, *more])
    columns: Any = np.array(chosen, np.int64).reshape(-1, 4).T
    offset_, size_, kind_, entry_ = (np.ascontiguousarray(one) for one in columns)
    keys, values = [key for key, _ in index], [value for _, value in index]
    return Blocks(offset_, size_, kind_, entry_, keys, values, sound, stop, faults)


def _kind(look: _Look, offset: int, size: int, known: Sequence[tuple[int, int]]) -> int:
    """What a block is that was found by its checksum: the index's values are handles of the blocks before it, the metaindex's keys
    are names."""
    found = look.block(offset, size)
    assert found is not None
    if found[1] == 0 and is_filter(found[0]):
        return FILTER
    pairs, _ = look.pairs(offset, size)
    if not pairs or all(key.startswith(META_PREFIX.encode()) for key, _ in pairs):
        return METAINDEX
    listed = [handles(value)[:1] for _, value in pairs]
    named = {place for one in listed for place in one}
    return INDEX if _is_index(listed, offset) and named.intersection(known) else DATA


def _is_index(listed: list[list[tuple[int, int]]], offset: int) -> bool:
    """Whether what the entries of a block list may be the handles of the blocks before it."""
    return all(listed) and all(one[0][0] + one[0][1] < offset for one in listed)
