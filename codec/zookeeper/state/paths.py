"""Columns of stored paths (the root is the empty one): which paths are valid, how they are sorted, and which is whose parent."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.columns import contents, numbers
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError
from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.kernels.intrinsics import load_i16be, load_i32be, load_i64be, load_u8
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.layout import SLASH
from logwright.codec.zookeeper.jute import flat

MISSING, TWICE = -2, -3
_AHEAD = 32
_LOWEST = 1
"""Replaces the slash when paths are sorted: lower than every character of a path, and different from the terminating 0."""
_SIGN = -(1 << 63)
_SHORT, _ROOM = 32, 256
_LONGEST_DOTS = 2
"""Names of up to this number of dots, the empty name included, are not valid."""


# Kernels


@kernel("const u1[], i8, i8, i8")
def shared(buf: Bytes, first: int, two: int, length: int) -> int:
    """Return the length of the common prefix, at most `length`."""
    k = 0
    while length - k >= 8 and load_i64be(buf, first + k) == load_i64be(buf, two + k):
        k += 8
    if length - k >= 4 and load_i32be(buf, first + k) == load_i32be(buf, two + k):
        k += 4
    if length - k >= 2 and load_i16be(buf, first + k) == load_i16be(buf, two + k):
        k += 2
    if length - k >= 1 and load_u8(buf, first + k) == load_u8(buf, two + k):
        k += 1
    return k


@kernel("const u1[], i8, i8")
def forbidden(buf: Bytes, at: int, end: int) -> int:
    """Return whether a character of two or three bytes is not allowed in a path: U+0080 to U+009F, U+D800 to U+F8FF, U+FFF0 to U+FFFF."""
    first = load_u8(buf, at)
    if first == 0xC2:
        return 1 if at + 1 < end and load_u8(buf, at + 1) < 0xA0 else 0
    if first < 0xED or first > 0xEF or end - at < 3:
        return 0
    code = (first & 0x0F) << 12 | (load_u8(buf, at + 1) & 0x3F) << 6 | (load_u8(buf, at + 2) & 0x3F)
    return 1 if 0xD800 <= code <= 0xF8FF or code >= 0xFFF0 else 0


@kernel("const u1[], i8, i8, i8")
def bad_names(buf: Bytes, slash: int, at: int, end: int) -> int:
    """Return whether the rest of a path after the slash at `slash` is invalid: an empty name, "." or "..", a control character or
    another `forbidden` one. The bytes before `at` were checked before."""
    # If the start of a name was checked, only names of dots remain to be excluded. A character may have begun before `at`.
    k = max(slash + 1, at - 2)
    if k - slash - 1 <= _LONGEST_DOTS:
        k = slash + 1
    name = k - slash - 1
    dots = 0
    while k < end:
        byte = load_u8(buf, k)
        k += 1
        if byte == SLASH:
            if name == 0 or (dots == name and name <= _LONGEST_DOTS):
                return 1
            name = 0
            dots = 0
            continue
        if byte < 0x20 or byte == 0x7F or (byte >= 0x80 and forbidden(buf, k - 1, end)):
            return 1
        name += 1
        dots += byte == 0x2E
    return 1 if dots == name and name <= _LONGEST_DOTS else 0


@kernel("const u1[], const i4[]")
def first_bad(paths: Bytes, ends: Int32s) -> int:
    """Return the index of the first invalid path (`PathUtils.validatePath`): it does not begin with a slash, ends with one, or has
    `bad_names`. The number of paths if all are valid."""
    for i in range(len(ends) - 1):
        at = ends[i]
        end = ends[i + 1]
        if at < end and (load_u8(paths, at) != SLASH or bad_names(paths, at, at, end)):
            return i
    return len(ends) - 1


@kernel("const u1[], const i4[], i8[], i8[], i8[]")
def parents(paths: Bytes, ends: Int32s, stack: Int64s, out: Int64s, missing: Int64s) -> tuple[int, int, int]:
    """Find the row of each node's parent in a tree in pre-order (each node followed by its descendants); -1 for the root.

    The row is `MISSING` if the parent does not come before it in that order; `missing` then gets the length of the nearest ancestor's path.
    `TWICE`: the path is that of the previous node. `stack` is large enough. Return (number of missing parents, 1 if the paths are
    `ascending`, `first_bad`). One pass serves all three, because the common prefix of neighbours is computed once.
    """
    depth = 0
    lost = 0
    rising = 1
    bad = len(out)
    cut_before = 0
    for i in range(len(out)):
        start = ends[i]
        size = ends[i + 1] - start
        missing[i] = 0
        if size == 0:
            out[i] = -1 if i == 0 else TWICE
            lost += i != 0
            rising &= i == 0
            depth = 1
            stack[0] = i
            cut_before = 0
            continue
        # The length of the prefix shared with the previous path, the last slash in it, and the last slash of all.
        k = 0
        if i > 0:
            before = ends[i - 1]
            k = shared(paths, before, start, min(start - before, size))
            rising &= follows(paths, before, start, size, k, SLASH)
        slash = cut_before
        if slash >= k:
            slash = max(k - 1, 0)
            while slash > 0 and load_u8(paths, start + slash) != SLASH:
                slash -= 1
        cut = size - 1
        while cut >= k and load_u8(paths, start + cut) != SLASH:
            cut -= 1
        if cut < k:
            cut = slash
        if bad > i and (
            load_u8(paths, start) != SLASH or bad_names(paths, start + slash, start + k, start + size)
        ):
            bad = i
        cut_before = cut
        top = 0
        length = -1
        while depth > 0:
            top = stack[depth - 1]
            length = ends[top + 1] - ends[top]
            if length <= k and (length == size or load_u8(paths, start + length) == SLASH):
                break
            depth -= 1
        if depth == 0:
            out[i] = MISSING
            lost += 1
        elif length == size:
            out[i] = TWICE
            lost += 1
            continue
        elif length == cut:
            out[i] = top
        else:
            out[i] = MISSING
            missing[i] = length
            lost += 1
        stack[depth] = i
        depth += 1
    return lost, rising, bad


@kernel("const u1[], i8, i8, i8, i8, i8")
def follows(paths: Bytes, first: int, two: int, size: int, k: int, lowest: int) -> int:
    """Return whether the path at `two`, of `size` bytes, sorts after the one at `one`, with which it shares `k` bytes. `lowest` sorts
    before all other bytes."""
    if k == min(two - first, size):
        return 1 if size > two - first else 0
    before = load_u8(paths, first + k)
    byte = load_u8(paths, two + k)
    return 0 if byte == lowest or (before != lowest and before > byte) else 1


@kernel("const u1[], const i4[], i8")
def ascending(paths: Bytes, ends: Int32s, lowest: int) -> int:
    """Return whether the paths ascend by bytes, of which `lowest` sorts first. With a slash, a node is followed by its descendants."""
    for i in range(1, len(ends) - 1):
        previous = ends[i - 1]
        two = ends[i]
        size = ends[i + 1] - two
        if not follows(
            paths, previous, two, size, shared(paths, previous, two, min(two - previous, size)), lowest
        ):
            return 0
    return 1


@kernel("const u1[], const i4[], i8[], i8[]")
def repeated(paths: Bytes, ends: Int32s, places: Int64s, hashes: Int64s) -> int:
    """Return the index of the first repeated path; the number of paths if all differ. `places` are zeros, a power of two and more
    than twice as many; `hashes` has room for some numbers."""
    mask = len(places) - 1
    count = len(ends) - 1
    seen = 0
    for i in range(count):
        if i % _AHEAD == 0:
            # Places are read in groups, so that their cache misses overlap.
            for k in range(min(_AHEAD, count - i)):
                hashes[k] = crc32_raw(0, paths, ends[i + k], ends[i + k + 1])
                seen ^= places[hashes[k] & mask]
            hashes[_AHEAD] = seen
        start = ends[i]
        size = ends[i + 1] - start
        slot = hashes[i % _AHEAD]
        at = slot & mask
        while places[at]:
            if places[at] >> 31 == slot:
                other = (places[at] & 0x7FFFFFFF) - 1
                if ends[other + 1] - ends[other] == size and shared(paths, ends[other], start, size) == size:
                    return i
            at = (at + 1) & mask
        places[at] = slot << 31 | (i + 1)
    return count


@kernel("i8[], i8[], i8[], i8[], i8, i8, i8[]")
def sort_words(
    order: Int64s, other: Int64s, keys: Int64s, more: Int64s, low: int, high: int, counts: Int64s
) -> None:
    """Sort `keys[low:high]`, and `order[low:high]` with them, by radix, from the last byte that differs to the first. `other` and `more`
    have room for as many."""
    if high - low <= _SHORT:
        for i in range(low + 1, high):
            key = keys[i]
            row = order[i]
            k = i
            while k > low and keys[k - 1] > key:
                keys[k] = keys[k - 1]
                order[k] = order[k - 1]
                k -= 1
            keys[k] = key
            order[k] = row
        return
    differ = 0
    for i in range(low + 1, high):
        differ |= keys[i] ^ keys[low]
    for byte in range(8):
        shift = 8 * byte
        if not (differ >> shift) & 0xFF:
            continue
        flip = 0x80 if byte == 7 else 0
        for i in range(256):
            counts[i] = 0
        for i in range(low, high):
            counts[((keys[i] >> shift) & 0xFF) ^ flip] += 1
        place = low
        for i in range(256):
            count = counts[i]
            counts[i] = place
            place += count
        for i in range(low, high):
            digit = ((keys[i] >> shift) & 0xFF) ^ flip
            place = counts[digit]
            counts[digit] = place + 1
            more[place] = keys[i]
            other[place] = order[i]
        for i in range(low, high):
            keys[i] = more[i]
            order[i] = other[i]


@kernel("const u1[], const i4[], i8[], i8[], i8[], i8[], i8[], i8[,]")
def sort_paths(
    paths: Bytes,
    ends: Int32s,
    order: Int64s,
    other: Int64s,
    keys: Int64s,
    more: Int64s,
    counts: Int64s,
    left: Int64s,
) -> None:
    """Sort rows (`order`) by their bytes, none of which is 0: by the first eight bytes, then equal ones by the next eight. Eight more
    bytes follow the last path. `left` has room for half as many ranges, the other arrays for as many numbers."""
    depth = 0
    if len(order) > 1:
        left[0, 0] = 0
        left[0, 1] = len(order)
        left[0, 2] = 0
        depth = 1
    while depth > 0:
        depth -= 1
        low = left[depth, 0]
        high = left[depth, 1]
        skip = left[depth, 2]
        for i in range(low, high):
            row = order[i]
            size = ends[row + 1] - ends[row] - skip
            # A shorter path is padded with zeros. Numbers are signed.
            key = 0
            if size > 0:
                key = load_i64be(paths, ends[row] + skip)
                if size < 8:
                    key = key >> (64 - 8 * size) << (64 - 8 * size)
            keys[i] = key ^ _SIGN
        sort_words(order, other, keys, more, low, high, counts)
        at = low
        while at < high:
            stop = at + 1
            while stop < high and keys[stop] == keys[at]:
                stop += 1
            # Paths that end in these bytes are equal.
            if stop - at > 1 and keys[at] & 0xFF:
                left[depth, 0] = at
                left[depth, 1] = stop
                left[depth, 2] = skip + 8
                depth += 1
            at = stop


# Columns of paths


@dataclass(frozen=True)
class Family:
    """Paths of a tree: the row of each one's parent (see the kernel `parents`), the known prefix of `MISSING` ones, and the numbers of
    these and of repeated neighbours."""

    paths: pa.Array
    parents: Int64s
    short: Int64s
    lost: int
    ascending: bool
    """Return whether the rows are in the order of `order`."""
    bad: int
    """The index of the first invalid path; the number of paths if all are valid."""

    @classmethod
    def of(cls, paths: pa.Array) -> Family:
        data, ends, _ = flat(paths)
        out, missing = np.empty(len(paths), np.int64), np.empty(len(paths), np.int64)
        # As many ancestors as the longest path can have: a name and its slash are at least two bytes.
        stack = np.empty(int(np.diff(ends).max(initial=0)) // 2 + 2, np.int64)
        lost, rising, bad = parents(data, np.ascontiguousarray(ends), stack, out, missing)
        return cls(paths, out, missing, int(lost), bool(rising), int(bad))

    def validate(self) -> None:
        """Raises `UsageError` for an invalid path."""
        if self.bad < len(self.paths):
            raise _refused(self.paths, self.bad, 0)

    def order(self) -> Int64s | None:
        """Return the rows in pre-order, children by name; None if they are in a pre-order already, with all parents."""
        if not self.lost:
            return None
        data, ends, _ = flat(self.paths)
        # As `_key` orders them. A word may be read at the last byte.
        low = np.zeros(len(data) + 8, np.uint8)
        np.copyto(low[:-8], np.where(data == SLASH, np.uint8(_LOWEST), data))
        rows = len(self.paths)
        order, other = np.arange(rows), np.empty(rows, np.int64)
        keys, more = np.empty(rows, np.int64), np.empty(rows, np.int64)
        sort_paths(
            low,
            np.ascontiguousarray(ends),
            order,
            other,
            keys,
            more,
            np.empty(_ROOM, np.int64),
            np.empty((rows // 2 + 1, 3), np.int64),
        )
        return order

    def merged(self, others: Sequence[bytes]) -> Int64s:
        """Return the order of these paths, which are `ascending`, merged with other ones."""
        rows = len(self.paths)
        keys = [_key(other) for other in others]
        place = sorted(range(len(keys)), key=keys.__getitem__)
        where = [
            bisect.bisect(range(rows), keys[i], key=lambda row: _key(self.paths[row].as_py())) for i in place
        ]
        order: Int64s = np.insert(np.arange(rows), where, rows + np.array(place))
        return order

    def twice(self) -> int | None:
        """Return a row whose path occurred before, or None."""
        if self.ascending:
            return None
        data, ends, _ = flat(self.paths)
        room = np.zeros(1 << (2 * len(self.paths) + 1).bit_length(), np.int64)
        row = int(repeated(data, np.ascontiguousarray(ends), room, np.empty(_AHEAD + 1, np.int64)))
        return None if row == len(self.paths) else row

    def missing(self, more: Iterable[bytes] = ()) -> list[bytes]:
        """Return the paths of the parents, and of `more` nodes, that are missing here. The paths are in pre-order."""
        data, ends, _ = flat(self.paths)
        created: set[bytes] = set()
        for i in np.flatnonzero(self.parents == MISSING).tolist() if self.lost else ():
            path = data[int(ends[i]) : int(ends[i + 1])].tobytes()
            cut = path.rfind(b"/")
            while cut > int(self.short[i]) or (cut >= 0 and not self.short[i] and path):
                path = path[:cut]
                if path in created:
                    break  # so are its ancestors
                created.add(path)
                cut = path.rfind(b"/")
        if not len(self.paths) or len(self.paths[0].as_py()):
            created.add(b"")
        parents = [path for path in more if path not in created]
        known = self.paths.take(numbers(pa.int64(), places(self.paths, [*parents, *created])))
        return sorted((created | set(parents)) - set(known.to_pylist()))


def _key(path: bytes) -> bytes:
    """With the slash before all other bytes, a node is followed by its descendants."""
    return path.replace(b"/", b"\0")


def validate(paths: pa.Array, first: int = 0) -> None:
    """Raises `UsageError` for an invalid path. `first` is the number of the first row."""
    data, ends, _ = flat(paths)
    bad = int(first_bad(data, np.ascontiguousarray(ends)))
    if bad < len(paths):
        raise _refused(paths, bad, first)


def _refused(paths: pa.Array, bad: int, first: int) -> UsageError:
    return UsageError(
        f"zookeeper.snapshot: row {first + bad}: {paths[bad].as_py().decode('utf-8', 'replace')!r} is not a valid node path",
        advice="A path begins with a slash and does not end with one; it has no empty name, '.' or '..', and no control, "
        "private or supplementary character",
    )


def places(paths: pa.Array, chosen: Sequence[bytes]) -> Int64s:
    """Return the rows whose path is one of these."""
    _, ends, _ = flat(paths)
    # Few paths have the length of one of these.
    near = np.flatnonzero(np.isin(np.diff(ends), [len(path) for path in chosen]))
    matches = pc.is_in(paths.take(numbers(pa.int64(), near)), value_set=contents(pa.binary(), chosen))
    rows: Int64s = near[np.asarray(matches)]
    return rows
