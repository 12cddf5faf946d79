"""The paths of a tree, as they are stored (the root is the empty one), as columns: which a node can have, in which order they are, which
is whose parent."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.columns import contents, numbers
from logwright.codec.fault import UsageError
from logwright.codec.kernels.crc32 import crc32_raw
from logwright.codec.kernels.intrinsics import load_i16be, load_i32be, load_i64be, load_u8
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.acl import flat
from logwright.codec.zookeeper.formats.snapshot.layout import SLASH, Int32s
from logwright.codec.zookeeper.jute import Int64s

MISSING, TWICE = -2, -3
_AHEAD = 32
_LOWEST = 1
"""What stands for a slash where paths are sorted: lower than all that can be in a path, and not the 0 behind its end."""
_SIGN = -(1 << 63)
_SHORT, _ROOM = 32, 256
_LONGEST_DOTS = 2
"""Names of dots alone of so many characters, or of none, are no names."""


# Kernels


@kernel("const u1[], i8, i8, i8")
def same(buf: Bytes, one: int, two: int, length: int) -> int:
    """Whether so many bytes are the same in two places."""
    return 1 if shared(buf, one, two, length) == length else 0


@kernel("const u1[], i8, i8, i8")
def shared(buf: Bytes, one: int, two: int, length: int) -> int:
    """How many of the first `length` bytes are the same in two places."""
    k = 0
    while length - k >= 8 and load_i64be(buf, one + k) == load_i64be(buf, two + k):
        k += 8
    if length - k >= 4 and load_i32be(buf, one + k) == load_i32be(buf, two + k):
        k += 4
    if length - k >= 2 and load_i16be(buf, one + k) == load_i16be(buf, two + k):
        k += 2
    if length - k >= 1 and load_u8(buf, one + k) == load_u8(buf, two + k):
        k += 1
    return k


@kernel("const u1[], i8, i8")
def forbidden(buf: Bytes, at: int, end: int) -> int:
    """Whether a character of two or three bytes is none for a path: U+0080 to U+009F, U+D800 to U+F8FF, U+FFF0 to U+FFFF."""
    first = load_u8(buf, at)
    if first == 0xC2:
        return 1 if at + 1 < end and load_u8(buf, at + 1) < 0xA0 else 0
    if first < 0xED or first > 0xEF or end - at < 3:
        return 0
    code = (first & 0x0F) << 12 | (load_u8(buf, at + 1) & 0x3F) << 6 | (load_u8(buf, at + 2) & 0x3F)
    return 1 if 0xD800 <= code <= 0xF8FF or code >= 0xFFF0 else 0


@kernel("const u1[], i8, i8, i8")
def bad_names(buf: Bytes, slash: int, at: int, end: int) -> int:
    """Whether something behind the slash at `slash` is no name of a node, or no character of one: empty, "." or "..", a control
    character or another that is `forbidden`. What is before `at` was looked at before."""
    # Where the head of a name is known, it is enough to know that it is no name of dots; a character may have begun before `at`.
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
    """The first path that no node can have (`PathUtils.validatePath`): it does not begin with a slash or ends with one, or has `bad_names`.
    The number of paths where there is none."""
    for i in range(len(ends) - 1):
        at = ends[i]
        end = ends[i + 1]
        if at < end and (load_u8(paths, at) != SLASH or bad_names(paths, at, at, end)):
            return i
    return len(ends) - 1


@kernel("const u1[], const i4[], i8[], i8[], i8[]")
def parents(paths: Bytes, ends: Int32s, stack: Int64s, out: Int64s, missing: Int64s) -> tuple[int, int, int]:
    """The row of each node's parent in a tree in pre-order (each node followed by all that is below it); -1 for the root.

    `MISSING` where the parent does not come before it in that order, then `missing` tells how many bytes of the path the nearest
    ancestor has. `TWICE`: the path is that of the node before. `stack` has room. Returns (the number of parents missing, 1 where the
    paths are `ascending`, `first_bad`), in one go: what two paths that follow one another share is looked at once.
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
        # How much of it the path before has too, the last slash in that, and the last of all.
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
def follows(paths: Bytes, one: int, two: int, size: int, k: int, lowest: int) -> int:
    """Whether the path at `two`, of `size` bytes, comes behind the one before it, at `one`, whose first `k` bytes it has too, as bytes, of
    which `lowest` comes before all others."""
    if k == min(two - one, size):
        return 1 if size > two - one else 0
    before = load_u8(paths, one + k)
    byte = load_u8(paths, two + k)
    return 0 if byte == lowest or (before != lowest and before > byte) else 1


@kernel("const u1[], const i4[], i8")
def ascending(paths: Bytes, ends: Int32s, lowest: int) -> int:
    """Whether each path comes behind the one before, as bytes, of which `lowest` comes before all others: with a slash a node is followed
    by what is below it."""
    for i in range(1, len(ends) - 1):
        one = ends[i - 1]
        two = ends[i]
        size = ends[i + 1] - two
        if not follows(paths, one, two, size, shared(paths, one, two, min(two - one, size)), lowest):
            return 0
    return 1


@kernel("const u1[], const i4[], i8[], i8[]")
def repeated(paths: Bytes, ends: Int32s, places: Int64s, hashes: Int64s) -> int:
    """The first path that comes twice; the number of paths where there is none. `places`, all 0, are a power of two, and more than twice
    as many; in `hashes` there is room for some numbers."""
    mask = len(places) - 1
    count = len(ends) - 1
    seen = 0
    for i in range(count):
        if i % _AHEAD == 0:
            # Places are asked for together: one after the other each would be waited for.
            for k in range(min(_AHEAD, count - i)):
                hashes[k] = crc32_raw(0, paths, ends[i + k], ends[i + k + 1])
                seen ^= places[hashes[k] & mask]
            hashes[_AHEAD] = seen
        start = ends[i]
        size = ends[i + 1] - start
        found = hashes[i % _AHEAD]
        at = found & mask
        while places[at]:
            if places[at] >> 31 == found:
                other = (places[at] & 0x7FFFFFFF) - 1
                if ends[other + 1] - ends[other] == size and same(paths, ends[other], start, size):
                    return i
            at = (at + 1) & mask
        places[at] = found << 31 | (i + 1)
    return count


@kernel("i8[], i8[], i8[], i8[], i8, i8, i8[]")
def sort_words(
    order: Int64s, other: Int64s, keys: Int64s, more: Int64s, low: int, high: int, counts: Int64s
) -> None:
    """Sort `keys[low:high]`, and `order[low:high]` with them, by radix: from the last byte that is not the same in all to the first.
    In `other` and `more` there is room for as many."""
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
    left: npt.NDArray[np.int64],
) -> None:
    """Sort rows (`order`) by their bytes, none of which is 0: eight at a time, then those that are the same so far by the next eight. Behind
    the last path there are eight more bytes. `left` has room for half as many stretches, the rest for as many numbers."""
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
            # Of a path that is shorter the rest is zeros; numbers are signed.
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
            # Those that end in these bytes are the same.
            if stop - at > 1 and keys[at] & 0xFF:
                left[depth, 0] = at
                left[depth, 1] = stop
                left[depth, 2] = skip + 8
                depth += 1
            at = stop


# Columns of paths


@dataclass(frozen=True)
class Family:
    """Some paths and how they belong together: the row of each one's parent (see the kernel `parents`), of those that are `MISSING` how
    much of the path there is, and how many there are of these and of paths that come twice in a row."""

    paths: pa.Array
    parents: Int64s
    short: Int64s
    lost: int
    ascending: bool
    """Whether they are in the order of `order`."""
    bad: int
    """The first that no node can have; the number of paths where there is none."""

    @classmethod
    def of(cls, paths: pa.Array) -> Family:
        data, ends, _ = flat(paths)
        out, missing = np.empty(len(paths), np.int64), np.empty(len(paths), np.int64)
        # As many ancestors as the longest path can have: a name and its slash are two bytes.
        stack = np.empty(int(np.diff(ends).max(initial=0)) // 2 + 2, np.int64)
        lost, rising, bad = parents(data, np.ascontiguousarray(ends), stack, out, missing)
        return cls(paths, out, missing, int(lost), bool(rising), int(bad))

    def validate(self) -> None:
        """Raises `UsageError` for a path that no node can have."""
        if self.bad < len(self.paths):
            raise _refused(self.paths, self.bad, 0)

    def order(self) -> Int64s | None:
        """The rows in pre-order, children by name; None where they are in a pre-order already, with all parents."""
        if not self.lost:
            return None
        data, ends, _ = flat(self.paths)
        # As `_key` has them; a word may be read at the last byte.
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
        """The order of these, which are `ascending`, and of others behind them."""
        rows = len(self.paths)
        keys = [_key(one) for one in others]
        place = sorted(range(len(keys)), key=keys.__getitem__)
        where = [
            bisect.bisect(range(rows), keys[i], key=lambda row: _key(self.paths[row].as_py())) for i in place
        ]
        order: Int64s = np.insert(np.arange(rows), where, rows + np.array(place))
        return order

    def twice(self) -> int | None:
        """A row whose path was there before; None where there is none."""
        if self.ascending:
            return None
        data, ends, _ = flat(self.paths)
        room = np.zeros(1 << (2 * len(self.paths) + 1).bit_length(), np.int64)
        row = int(repeated(data, np.ascontiguousarray(ends), room, np.empty(_AHEAD + 1, np.int64)))
        return None if row == len(self.paths) else row

    def missing(self, more: Iterable[bytes] = ()) -> list[bytes]:
        """The paths of parents, and of `more` nodes, that are not among these, which are in pre-order."""
        data, ends, _ = flat(self.paths)
        made: set[bytes] = set()
        for i in np.flatnonzero(self.parents == MISSING).tolist() if self.lost else ():
            path = data[int(ends[i]) : int(ends[i + 1])].tobytes()
            cut = path.rfind(b"/")
            while cut > int(self.short[i]) or (cut >= 0 and not self.short[i] and path):
                path = path[:cut]
                if path in made:
                    break  # and so are those above it
                made.add(path)
                cut = path.rfind(b"/")
        if not len(self.paths) or len(self.paths[0].as_py()):
            made.add(b"")
        wanted = [one for one in more if one not in made]
        found = self.paths.take(numbers(pa.int64(), places(self.paths, [*wanted, *made])))
        return sorted((made | set(wanted)) - set(found.to_pylist()))


def _key(path: bytes) -> bytes:
    """With a slash before all else: what is below a node follows it."""
    return path.replace(b"/", b"\0")


def validate(paths: pa.Array, first: int = 0) -> None:
    """Raises `UsageError` for a path that no node can have; `first` is the number of the first row."""
    data, ends, _ = flat(paths)
    bad = int(first_bad(data, np.ascontiguousarray(ends)))
    if bad < len(paths):
        raise _refused(paths, bad, first)


def _refused(paths: pa.Array, bad: int, first: int) -> UsageError:
    return UsageError(
        f"zookeeper.snapshot: row {first + bad}: {paths[bad].as_py().decode('utf-8', 'replace')!r} is no path of a node",
        advice="A path begins with a slash and does not end with one; in it there is no empty name, '.' or '..', and no control, "
        "private or supplementary character",
    )


def places(paths: pa.Array, some: Sequence[bytes]) -> Int64s:
    """The rows whose path is one of these."""
    _, ends, _ = flat(paths)
    # Few paths are as long as one of these.
    near = np.flatnonzero(np.isin(np.diff(ends), [len(one) for one in some]))
    found = pc.is_in(paths.take(numbers(pa.int64(), near)), value_set=contents(pa.binary(), some))
    rows: Int64s = near[np.asarray(found)]
    return rows
