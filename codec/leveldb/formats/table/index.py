"""Find the blocks of a table from footer, index and metaindex, before anything else is read.

A sound index is trusted. If it or the footer is damaged, the readable parts of them give candidates, and the rest is found by checksum
(`resync`). Source: `table/format.cc` and `table/table.cc` of LevelDB.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.describe import Bytes as BytesType
from logwright.codec.describe import Content, Field, Points, Struct
from logwright.codec.fault import Fault, Kind
from logwright.codec.kernels.compress import CompressionError
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.formats.table import layout
from logwright.codec.leveldb.formats.table.compression import ANOTHER_PROGRAM, UnknownTypeError, expand
from logwright.codec.leveldb.formats.table.filter import META_PREFIX
from logwright.codec.leveldb.formats.table.layout import Slices, entries, handles_of, is_sealed
from logwright.codec.leveldb.formats.table.restarts import PointFault, hiding_fault
from logwright.codec.leveldb.formats.table.resync import MAGIC, WINDOW, Read, find, is_filter
from logwright.codec.leveldb.keys import SEEK_TAG
from logwright.codec.leveldb.store.relatives import MAGIC_SIZE, MAGICS
from logwright.codec.window import Bytes

NAME = "leveldb.table"

HANDLES_SIZE = 40
_LARGEST = (1 << 64) - 1


def stored_block(kind: str) -> Points:
    """Return the target of a handle."""
    return Points(f"Stored{kind}Block", "offset", f"size + {layout.TRAILER_SIZE}")


HANDLES = Struct(
    "FooterHandles",
    Field(
        "metaindex_handle",
        layout.BLOCK_HANDLE,
        "position of the metaindex block",
        points=stored_block("Metaindex"),
    ),
    Field("index_handle", layout.BLOCK_HANDLE, "position of the index block", points=stored_block("Index")),
    Field("padding", BytesType(), "may be anything"),
    doc="The first 40 bytes of the footer.",
    source="Footer",
)
FOOTER = Struct(
    "Footer",
    Field(
        "handles",
        BytesType(HANDLES_SIZE),
        "handles of the metaindex and of the index, and padding that may be anything",
        holds=Content(HANDLES),
    ),
    Field("magic", BytesType(len(MAGIC)), "57 fb 80 8b 24 75 47 db", only=MAGIC),
    doc="The last 48 bytes of a table. No checksum covers them.",
    source="Footer",
)
FOOTER_SIZE = FOOTER.head_size

DATA, FILTER, METAINDEX, INDEX = range(4)
KIND_NAMES = ("data", "filter", "metaindex", "index")


@kernel("const i8[], const i8[], i8[], i8[]", brief=True)
def edges(offsets: Int64s, sizes: Int64s, ends: Int64s, breaks: Int64s) -> int:
    """Compute where blocks end. Returns the number of blocks that do not start where the previous one ends, which are written to
    `breaks`."""
    count = 0
    for i in range(len(offsets)):
        if i and offsets[i] != ends[i - 1]:
            breaks[count] = i
            count += 1
        ends[i] = offsets[i] + sizes[i] + layout.TRAILER_SIZE
    return count


@kernel("const i8[], const i8[], i8", brief=True)
def are_before(offsets: Int64s, sizes: Int64s, place: int) -> bool:
    """Return whether handles may be those of the index at `place`: of blocks before it."""
    good = True
    for i in range(len(offsets)):
        good = good and 0 <= offsets[i] < place and sizes[i] < place and offsets[i] + sizes[i] < place
    return good


IN_ORDER, OVERLAPPING, UNORDERED = range(3)


@kernel("const i8[,], i8", brief=True)
def placed(known: Int64s, stop: int) -> int:
    """Return whether blocks (rows of offset, size and more) are in order, overlap each other or `stop`, or are unordered."""
    overlapping = False
    for i in range(len(known)):
        end = known[i, 0] + known[i, 1] + layout.TRAILER_SIZE
        if i + 1 < len(known) and known[i + 1, 0] <= known[i, 0]:
            return UNORDERED
        if end > stop or (i + 1 < len(known) and known[i + 1, 0] < end):
            overlapping = True
    return OVERLAPPING if overlapping else IN_ORDER


@dataclass(slots=True)
class Blocks:
    """The known blocks of a table, in file order."""

    offset: Int64s
    size: Int64s
    """Without the trailer."""
    kind: Int64s
    entry: Int64s
    """The number of the block's index entry, or -1."""
    keys: Sequence[bytes]
    """The keys of the index."""
    sound: bool
    """Whether the index is sound."""
    stop: int
    """The limit of blocks: the footer, or the end of the file."""
    faults: list[Fault]
    """Faults of the footer."""
    unsupported: str = ""
    """Why no block can be found although nothing is damaged: the index is of an unknown type."""
    wrong: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Blocks that are named somewhere but have a wrong checksum: size and kind, by offset."""
    ends: Int64s = field(init=False)
    breaks: Int64s = field(init=False)
    """The blocks that do not start where the previous one ends."""

    def __post_init__(self) -> None:
        self.ends, breaks = np.empty(len(self.offset), np.int64), np.empty(len(self.offset), np.int64)
        self.breaks = breaks[: edges(self.offset, self.size, self.ends, breaks)]

    @property
    def memory(self) -> int:
        """Approximate size in memory, in bytes."""
        keys = self.keys.data.nbytes + self.keys.ends.nbytes if isinstance(self.keys, Slices) else 0
        return keys + sum(
            column.nbytes for column in (self.offset, self.size, self.kind, self.entry, self.ends)
        )

    def at(self, place: int) -> int:
        """Return the first block at or after a byte of the file."""
        return int(np.searchsorted(self.offset, place))

    def next(self, place: int) -> int:
        """Return where the first block at or after a byte starts, or the footer."""
        i = self.at(place)
        return int(self.offset[i]) if i < len(self.offset) else self.stop


def handles(data: bytes) -> list[tuple[int, int]]:
    """Return the block handles at the start of `data`, at most two."""
    numbers: list[int] = []
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number & _LARGEST)
            number = shift = 0
            if len(numbers) == 4:
                break
        elif shift == 70:
            break
    return list(zip(numbers[::2], numbers[1::2], strict=False))


def flip_of_footer(read: Read, size: int) -> tuple[int, int] | None:
    """Return the only bit of the footer, as (byte of the file, bit), without which it is exactly what LevelDB writes: the handles of
    the metaindex and of the index, which end where the next one and the footer start and have right checksums, then zeros and the magic.
    None if there is no such bit, or the footer is right."""
    start = size - FOOTER_SIZE
    stored = read(start, FOOTER_SIZE).tobytes() if start >= 0 else b""
    if len(stored) < FOOTER_SIZE or _is_written(read, stored, start):
        return None
    number = int.from_bytes(stored, "little")
    flips = [
        (start + bit // 8, bit % 8)
        for bit in range(8 * FOOTER_SIZE)
        if _is_written(read, (number ^ 1 << bit).to_bytes(FOOTER_SIZE, "little"), start)
    ]
    return flips[0] if len(flips) == 1 else None


def _is_written(read: Read, footer: bytes, start: int) -> bool:
    """Return whether LevelDB would write this footer at `start`."""
    places = handles(footer[:HANDLES_SIZE])
    if len(places) < 2 or not footer.endswith(MAGIC):
        return False
    packed = b"".join(layout.handle(offset, size) for offset, size in places)
    ends = [offset + size + layout.TRAILER_SIZE for offset, size in places]
    if footer[:HANDLES_SIZE] != packed.ljust(HANDLES_SIZE, b"\0") or ends != [places[1][0], start]:
        return False
    return all(contents(read, offset, size) is not None for offset, size in places)


_LARGE = 64 << 10
_LEAST = 2 * layout.RESTART_SIZE
"""The size of an empty block: one restart point, and their number."""


@dataclass(slots=True)
class _BlockReader:
    """Reads the blocks of a file. `checked` are those with a verified checksum, right or wrong; `hidden` is why a block is not read from
    its first entry."""

    source: Read
    size: int
    limit: int
    window: tuple[int, Bytes] = field(default_factory=lambda: (0, layout.NOTHING.data))
    """Offset and bytes of the last large read, which has the blocks that were found in it."""
    checked: dict[tuple[int, int], bool] = field(default_factory=dict)
    hidden: dict[tuple[int, int], PointFault] = field(default_factory=dict)
    unknown: dict[tuple[int, int], int] = field(default_factory=dict)
    """The unsupported types of blocks with right checksums."""

    def read(self, offset: int, length: int) -> Bytes:
        """See `Read`."""
        start, data = self.window
        if start <= offset and offset + length <= start + len(data):
            return data[offset - start : offset - start + length]
        data = self.source(offset, length)
        if length >= _LARGE:
            self.window = offset, data
        return data

    def digest(self) -> bytes:
        """Return a cryptographic hash of the file."""
        hashed = hashlib.blake2b(self.size.to_bytes(8, "little"))
        for offset in range(0, self.size, WINDOW):
            hashed.update(self.read(offset, min(WINDOW, self.size - offset)).data)
        return hashed.digest()

    def fits(self, offset: int, size: int) -> bool:
        return offset <= self.size - layout.TRAILER_SIZE - size

    def block(self, offset: int, size: int) -> tuple[Bytes, int, bool] | None:
        """Return contents, type and whether the checksum is right of a candidate block, or None if the file has no such bytes."""
        if not self.fits(offset, size):
            return None
        data = self.read(offset, size + layout.TRAILER_SIZE)
        if len(data) < size + layout.TRAILER_SIZE:
            return None
        self.checked[offset, size] = sound = is_sealed(data)
        return data[:size], int(data[size]), sound

    def sound(self, offset: int, size: int) -> bool:
        if (offset, size) not in self.checked:
            self.block(offset, size)
        return self.checked.get((offset, size), False)

    def entries(self, offset: int, size: int) -> tuple[Slices, Slices, bool]:
        """Return keys and values of a block, as far as they can be read, and whether it is sound."""
        block = self.block(offset, size)
        if block is None:
            return layout.NOTHING, layout.NOTHING, False
        try:
            plain = expand(block[0], block[1], self.limit)
        except UnknownTypeError:
            if block[2]:
                self.unknown[offset, size] = block[1]
            return layout.NOTHING, layout.NOTHING, False
        except CompressionError:
            return layout.NOTHING, layout.NOTHING, False
        keys, values, status = entries(plain, self.limit)
        why = hiding_fault(plain)
        if why is not None:
            self.hidden[offset, size] = why
        return keys, values, block[2] and status == layout.SOUND and why is None


def contents(read: Read, offset: int, size: int) -> Bytes | None:
    """Return a block with its trailer, or None if its checksum is wrong."""
    data = read(offset, size + layout.TRAILER_SIZE)
    return data if len(data) == size + layout.TRAILER_SIZE and is_sealed(data) else None


class Searches:
    """The last results of searching damaged tables, by the hash of the file. An operation surveys a table several times, and searches it
    once. `limit` bounds the memory in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit, self._memory = limit, 0
        self._results: dict[tuple[bytes, int], Blocks] = {}
        self._lock = threading.Lock()

    def get(self, key: tuple[bytes, int]) -> Blocks | None:
        return self._results.get(key)

    def put(self, key: tuple[bytes, int], blocks: Blocks) -> None:
        with self._lock:
            if key not in self._results:
                self._results[key] = blocks
                self._memory += blocks.memory
            while self._memory > self._limit:
                self._memory -= self._results.pop(next(iter(self._results))).memory


_SEARCHES = Searches(16 << 20)


def survey(read: Read, size: int, limit: int) -> Blocks:
    """Return the blocks of a table of `size` bytes. `limit` is the maximum size of a decompressed block."""
    reader = _BlockReader(read, size, limit)
    tail = read(size - FOOTER_SIZE, FOOTER_SIZE).tobytes() if size >= FOOTER_SIZE else b""
    places = handles(tail[:HANDLES_SIZE])
    faults = _footer_faults(size, tail, places)
    keys, values, complete = (
        reader.entries(*places[1]) if len(places) == 2 else (layout.NOTHING, layout.NOTHING, False)
    )
    offsets, sizes = handles_of(values)
    magic = tail.endswith(MAGIC)
    other = MAGICS.get(tail[-MAGIC_SIZE:])
    if other is not None:
        return _unsupported(size, f"a table of {other}, which is not supported")
    kind = reader.unknown.get(places[1]) if len(places) == 2 else None
    if magic and kind is not None and sum(places[1]) + layout.TRAILER_SIZE >= size - FOOTER_SIZE:
        return _unsupported(size, f"bad block type ({kind}) of the index: {ANOTHER_PROGRAM}")
    # No checksum covers the footer. Its index must look like one and be adjacent to it.
    sound = complete and bool(are_before(offsets, sizes, places[1][0]))
    if sound:
        end = sum(places[1]) + layout.TRAILER_SIZE
        # If the end of the file is there twice, both footers are right.
        sound = end >= size - FOOTER_SIZE or (magic and read(end, FOOTER_SIZE).tobytes() == tail)
    if complete and not sound and magic:
        text = (
            "bad block handle in the index, whose checksum is right: blocks are found by their own checksums"
        )
        system = "LevelDB ends with the status Corruption"
        faults.append(Fault(NAME, *places[1], Kind.LENGTH, text, system=system))
    if magic and not complete and len(places) == 2 and reader.checked.get(places[1]):
        text = "the index cannot be read to its end, although its checksum is right: blocks are found by their own checksums"
        system = "LevelDB ends with the status Corruption"
        if places[1] in reader.hidden:
            text = f"in the index, whose checksum is right: {reader.hidden[places[1]].text}; blocks are found by their own checksums"
            system = "LevelDB returns nothing from blocks that this part of the index names"
        faults.append(Fault(NAME, *places[1], Kind.LENGTH, text, system=system))
    if not sound and not magic:
        places, keys = [], layout.NOTHING
        offsets = sizes = np.empty(0, np.int64)
    others = {places[1]: INDEX} if len(places) == 2 else {}
    names, values, meta_sound = (
        reader.entries(*places[0]) if places else (layout.NOTHING, layout.NOTHING, False)
    )
    for name, offset, length in zip(names, *(column.tolist() for column in handles_of(values)), strict=True):
        if name.startswith(META_PREFIX.encode()) and offset >= 0:
            others.setdefault((offset, length), FILTER)
    if places:
        others.setdefault(places[0], METAINDEX)
    stop = size - FOOTER_SIZE if magic else size
    if sound and not magic:
        # The footer is truncated, or its last bytes are damaged.
        stop = sum(places[1]) + layout.TRAILER_SIZE
    behind = [(*place, kind, -1) for place, kind in others.items() if reader.fits(*place)] if sound else []
    count = len(offsets)
    known = np.empty((count + len(behind), 4), np.int64)
    known[:count, 0], known[:count, 1], known[:count, 2] = offsets, sizes, DATA
    known[:count, 3] = np.arange(count)
    if not sound:
        key = reader.digest(), limit
        blocks = _SEARCHES.get(key)
        if blocks is None:
            blocks = _with_handle_faults(_rescued(reader, stop, known, others, keys, faults), size, places)
            _SEARCHES.put(key, blocks)
        return blocks
    if behind:
        known[count:] = sorted(behind)
    return _with_handle_faults(
        _blocks(reader, stop, known, keys, True, faults, gaps=not meta_sound), size, places
    )


def _unsupported(size: int, why: str) -> Blocks:
    """Return the blocks of a table in which none can be found although nothing is damaged."""
    nothing = np.empty(0, np.int64)
    return Blocks(nothing, nothing, nothing, nothing, layout.NOTHING, False, size, [], why)


def _with_handle_faults(blocks: Blocks, size: int, places: list[tuple[int, int]]) -> Blocks:
    """Add a fault for each handle of the footer that leads into other blocks or nowhere. Damaged targets are reported by the walk."""
    system = ("LevelDB uses no filter", "LevelDB reads nothing of the table")
    for (offset, length), name, words in zip(places, ("metaindex", "index"), system, strict=False):
        i = int(np.searchsorted(blocks.offset, offset, "right")) - 1
        inside = i >= 0 and offset < int(blocks.ends[i])
        there = inside and (int(blocks.offset[i]), int(blocks.size[i])) == (offset, length)
        if not there and (inside or offset >= blocks.stop):
            text = (
                f"the footer has the {name} block at byte {offset} with {length} bytes, but no block is there"
            )
            blocks.faults.append(
                Fault(NAME, size - FOOTER_SIZE, HANDLES_SIZE, Kind.LENGTH, text, system=words, rows_lost=0)
            )
    return blocks


def _footer_faults(size: int, tail: bytes, places: list[tuple[int, int]]) -> list[Fault]:
    system = "LevelDB reads nothing of the table, and RepairDB moves it to lost/"
    if not tail:
        text = f"file is too short to be an sstable: {size} bytes, but the footer alone has {FOOTER_SIZE}"
        return [Fault(NAME, 0, size, Kind.TRUNCATED, text, system=system)]
    at = size - FOOTER_SIZE
    if not tail.endswith(MAGIC):
        magic = tail[HANDLES_SIZE:].hex(" ")
        text = f"not an sstable (bad magic number): expected {MAGIC.hex(' ')}, found {magic}"
        return [Fault(NAME, at + HANDLES_SIZE, len(MAGIC), Kind.MAGIC, text, system=system)]
    if len(places) < 2:
        return [Fault(NAME, at, HANDLES_SIZE, Kind.LENGTH, "bad block handle in the footer", system=system)]
    return []


def _rescued(
    reader: _BlockReader,
    stop: int,
    data: Int64s,
    other: dict[tuple[int, int], int],
    keys: Sequence[bytes],
    faults: list[Fault],
) -> Blocks:
    """Find blocks without a sound index: those that it names and whose checksum is right, and those found between them."""
    kinds = {(offset, size): (DATA, n) for offset, size, _, n in reversed(data.tolist()) if offset >= 0}
    kinds |= {place: (kind, -1) for place, kind in other.items() if place not in kinds or kind == INDEX}
    there = {place for place in kinds if reader.sound(*place)}
    known = []
    for place in there:
        last = sum(place) + layout.TRAILER_SIZE == stop < reader.size
        known.append((*place, INDEX if last else _kind(reader, *place, there), kinds[place][1]))
    blocks = _blocks(reader, stop, np.array(known, np.int64).reshape(-1, 4), keys, False, faults, gaps=True)
    blocks.wrong = {
        place[0]: (place[1], kind) for place, (kind, _) in kinds.items() if reader.checked.get(place) is False
    }
    # There may be an index that no footer leads to.
    for i in np.flatnonzero(blocks.kind == INDEX).tolist():
        place = int(blocks.offset[i]), int(blocks.size[i])
        keys_found, values, sound = reader.entries(*place)
        if sound and place not in there:
            offsets, sizes = handles_of(values)
            listed = {
                block_handle: n
                for n, block_handle in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True))
            }
            pairs = zip(blocks.offset.tolist(), blocks.size.tolist(), strict=True)
            blocks.entry = np.array([listed.get(block_handle, -1) for block_handle in pairs], np.int64)
            blocks.keys = keys_found
    return blocks


def _blocks(
    reader: _BlockReader,
    stop: int,
    known: Int64s,
    keys: Sequence[bytes],
    sound: bool,
    faults: list[Fault],
    gaps: bool,
) -> Blocks:
    """Return these blocks (rows of offset, size, kind and entry) in order, without those that overlap or are outside the file. With
    `gaps`, search between them too.

    A sound index names all data blocks, so a block found then is not one of them.
    """
    order = placed(known, stop)
    if order == UNORDERED:
        # A block named both as the index and as something else is the index.
        first = np.where(known[:, 2] == INDEX, -1, known[:, 2])
        known = known[np.lexsort((first, known[:, 1], known[:, 0]))]
    if order != IN_ORDER:
        known = _disjoint(known, stop)
    if gaps:
        known = _filled(reader, stop, known, sound)
    offsets, sizes, kinds, numbers = np.ascontiguousarray(known.T)
    return Blocks(offsets, sizes, kinds, numbers, keys, sound, stop, faults)


def _disjoint(known: Int64s, stop: int) -> Int64s:
    """Return the blocks within the file, the first one of any that overlap."""
    chosen = []
    at = 0
    for i, (offset, size, _, _) in enumerate(known.tolist()):
        if offset >= at and offset + size + layout.TRAILER_SIZE <= stop:
            chosen.append(i)
            at = offset + size + layout.TRAILER_SIZE
    return known[chosen]


def _filled(reader: _BlockReader, stop: int, known: Int64s, sound: bool) -> Int64s:
    """Add the blocks found between them by checksum."""
    there = {(offset, size) for offset, size, _, _ in known.tolist()}
    more: list[tuple[int, int, int, int]] = []
    at = 0
    for offset, size, _, _ in [*known.tolist(), [stop, 0, 0, 0]]:
        for low, length in find(reader.read, at, offset, reader.size, reader.limit) if offset > at else ():
            kind = _kind(reader, low, length, there)
            if not sound or kind != DATA:
                more.append((low, length, kind, -1))
                there.add((low, length))
        at = offset + size + layout.TRAILER_SIZE
    known = np.concatenate((known, np.array(more, np.int64).reshape(-1, 4)))
    return known[np.argsort(known[:, 0], kind="stable")]


def _kind(reader: _BlockReader, offset: int, size: int, known: set[tuple[int, int]]) -> int:
    """Return the kind of a block found by checksum: the values of an index are handles of the blocks before it, the keys of a metaindex
    are names."""
    block = reader.block(offset, size)
    assert block is not None
    if block[1] == 0 and is_filter(block[0]):
        return FILTER
    keys, values, _ = reader.entries(offset, size)
    if all(key.startswith(META_PREFIX.encode()) for key in keys):
        return METAINDEX
    # The footer directly follows the index. The blocks it names may be damaged or moved.
    if reader.read(offset + size + layout.TRAILER_SIZE, FOOTER_SIZE).tobytes().endswith(MAGIC):
        return INDEX
    offsets, sizes = handles_of(values)
    named = zip(offsets.tolist(), sizes.tolist(), strict=True)
    if are_before(offsets, sizes, offset) and any(named_handle in known for named_handle in named):
        return INDEX
    # LevelDB gives no entry such a key, and no block is smaller than an empty one.
    named_blocks = (offsets >= 0) & (sizes >= _LEAST)
    return INDEX if keys[len(keys) - 1].endswith(SEEK_TAG) and bool(named_blocks.all()) else DATA
