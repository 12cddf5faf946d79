"""Writing nodes: from the columns of rows to what is stored, and the sections around them.

What rows leave out is what a server would have made: see `tree` for parents and counters. Source: as `snapshot`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.base import Bytes
from logwright.codec.columns import numbers
from logwright.codec.describe import I32BE
from logwright.codec.fault import UsageError
from logwright.codec.intrinsics import load_i64be, load_u8
from logwright.codec.kernel import kernel
from logwright.codec.memory import keep_memory
from logwright.codec.option import Option, parse_bool, parse_choice, parse_hexadecimal
from logwright.codec.table import Column
from logwright.codec.zookeeper.acl import OPEN, AclTable, flat, packed, table_bytes, texts
from logwright.codec.zookeeper.columns import KINDS, NODE_COLUMNS, TTL_MAX, stored_owners
from logwright.codec.zookeeper.digest import node_digests
from logwright.codec.zookeeper.jute import ACL_RAW_TYPE, Int64s, stored_strings
from logwright.codec.zookeeper.names import GZIP, SNAPPY
from logwright.codec.zookeeper.node import FIXED, LENGTH, OPEN_ACL, SLASH, Int32s, pack
from logwright.codec.zookeeper.sections import SESSION_DTYPE

DIGEST_ENABLED = Option(
    "digest.enabled", True, "Whether the digest of the tree is written (3.6 on)", parse_bool
)
LAST_PROCESSED_ENABLED = Option(
    "serializeLastProcessedZxid.enabled",
    True,
    "Whether the last processed zxid is written (3.9 on)",
    parse_bool,
)
METHOD = Option(
    "snapshot.compression.method",
    None,
    "gz or snappy; none where nothing is said, by the file's name or here",
    parse_choice,
    choices=("", "none", GZIP, SNAPPY),
)
ZXID = Option(
    "zxid",
    None,
    "The last transaction in the tree; the one in the file's name, or the highest in the rows, where it is not given",
    parse_hexadecimal,
    low=0,
    high=(1 << 63) - 1,
)
SESSION_TIMEOUT = Option(
    "session.timeout",
    30000,
    "Milliseconds of the sessions that are made for owners of ephemeral nodes",
    low=1,
    high=(1 << 31) - 1,
)
OPTIONS = (DIGEST_ENABLED, LAST_PROCESSED_ENABLED, METHOD, ZXID, SESSION_TIMEOUT)

_CHUNK_BYTES = 1 << 20
"""So many bytes of paths and data are written at a time, or one node if that is larger: what was just written is read again for its
checksums."""
_FEW = 1 << 22
_KEEP = np.iinfo(np.int64).min
"""No number of a list is this one."""
STATS = ("czxid", "mzxid", "ctime", "mtime", "version", "cversion", "aversion", "owner", "pzxid")
_COLUMNS: Mapping[str, Column] = {
    one.name: one for one in (*NODE_COLUMNS, Column("cversion", pa.int32(), "as a client sees it"))
}


def sessions_bytes(sessions: Sequence[Mapping[str, int]]) -> bytes:
    """The session table."""
    made = np.zeros(len(sessions), SESSION_DTYPE)
    for i, one in enumerate(sessions):
        made[i] = one["session_id"], one["timeout"]
    return I32BE.pack(len(sessions), {}) + made.tobytes()


def acls_bytes(acls: pa.Array) -> bytes:
    """The ACL table, from the column of the file table."""
    ids, lists = table_of(acls)
    return table_bytes(ids.tolist(), packed(lists).to_pylist())


def table_of(acls: pa.Array) -> tuple[Int64s, pa.Array]:
    """Numbers and lists of that column, which has one row."""
    entries = acls.flatten()
    number, lists = entries.flatten()
    return np.asarray(number.fill_null(0)).astype(np.int64), lists.cast(ACL_RAW_TYPE)


@dataclass
class Nodes:
    """Nodes as they are stored, in the order in which they are written."""

    paths: pa.Array
    data: pa.Array | pa.ChunkedArray
    acls: Int64s
    stats: dict[str, Int64s]
    table: AclLists = field(repr=False)

    def __len__(self) -> int:
        return len(self.acls)

    def take(self, order: Int64s) -> Nodes:
        places = numbers(pa.int64(), order)
        stats = {name: values[order] for name, values in self.stats.items()}
        return Nodes(self.paths.take(places), self.data.take(places), self.acls[order], stats, self.table)

    def chunks(self, first: int, stop: int) -> Iterator[tuple[Bytes, Int64s, Int32s, Int32s]]:
        """The bytes of nodes `first` to `stop` in pieces; of each where the nodes start, and the lengths of paths and data."""
        keep_memory()
        paths, path_ends, _ = flat(self.paths)
        before = 0
        for piece in self.data.chunks if isinstance(self.data, pa.ChunkedArray) else [self.data]:
            low, high = max(first, before), min(stop, before + len(piece))
            if low < high:
                yield from self._chunks(low, high, before, piece, paths, path_ends)
            before += len(piece)

    def _chunks(
        self, first: int, stop: int, before: int, piece: pa.Array, paths: Bytes, path_ends: Int32s
    ) -> Iterator[tuple[Bytes, Int64s, Int32s, Int32s]]:
        """Of nodes whose data is in one piece, the first of which is node `before`."""
        data, data_ends, valid = flat(piece)
        sizes = np.cumsum(
            np.diff(path_ends[first : stop + 1].astype(np.int64))
            + np.diff(data_ends[first - before : stop - before + 1].astype(np.int64))
        )
        at = first
        while at < stop:
            below = int(sizes[at - first - 1]) if at > first else 0
            end = first + int(np.searchsorted(sizes, below + _CHUNK_BYTES, "right"))
            end = min(max(at + 1, end), stop)
            size = int(sizes[end - first - 1]) - below + (end - at) * (2 * LENGTH + FIXED)
            out, stops = np.empty(size, np.uint8), np.empty(end - at, np.int64)
            ends = data_ends[at - before : end - before + 1]
            there = valid[at - before : end - before]
            pack(
                paths,
                path_ends[at : end + 1],
                data,
                ends,
                there,
                self.acls[at:end],
                *(self.stats[name][at:end] for name in STATS),  # type: ignore[call-arg, arg-type]
                out,
                stops,
            )
            used = int(stops[-1])
            starts = np.concatenate((np.zeros(1, np.int64), stops[:-1]))
            lengths = np.where(there == 1, np.diff(ends), -1).astype(np.int32)
            yield out[:used], starts, np.diff(path_ends[at : end + 1]).astype(np.int32), lengths
            at = end

    def known_digest(self) -> int | None:
        return None

    def digest(self) -> int:
        """Of all of them, as the tree of a server."""
        total = 0
        for data, starts, paths, lengths in self.chunks(0, len(self)):
            total += int(node_digests(data, starts, paths, lengths, np.empty(len(starts), np.int64)))
        return total


def _few(values: Int64s) -> tuple[Int64s, Int64s]:
    """`np.unique` with its inverse, for small numbers: without sorting."""
    there = np.zeros(int(values.max(initial=0)) + 1, np.bool_)
    there[values] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[values]


@kernel("const u1[], const i4[], const u1[], i8[], i8[]")
def runs(data: Bytes, ends: Int32s, valid: Bytes, out: Int64s, first: Int64s) -> int:
    """For each value the number of its run: of values one after the other that are the same, or null; and the first value of each run.
    Returns how many there are."""
    run = -1
    for i in range(len(out)):
        one = ends[i - 1] if i else 0
        two = ends[i]
        size = ends[i + 1] - two
        again = i > 0 and valid[i] == valid[i - 1] and (not valid[i] or two - one == size)
        if again and valid[i]:
            k = 0
            while again and size - k >= 8:
                again = load_i64be(data, one + k) == load_i64be(data, two + k)
                k += 8
            while again and k < size:
                again = load_u8(data, one + k) == load_u8(data, two + k)
                k += 1
        if not again:
            run += 1
            first[run] = i
        out[i] = run
    return run + 1


def _coded(lists: pa.Array) -> tuple[Int64s, list[bytes]]:
    """A binary column as numbers (-1: null) of the values in it, in the order in which they come up. Often many rows have the same."""
    data, ends, valid = flat(lists)
    numbered, first = np.empty(len(lists), np.int64), np.empty(len(lists), np.int64)
    count = runs(data, ends, valid, numbered, first)
    coded = lists.take(numbers(pa.int64(), first[:count])).dictionary_encode()
    codes = np.asarray(coded.indices.fill_null(-1)).astype(np.int64)
    return codes[numbered], coded.dictionary.to_pylist()


class AclLists:
    """The ACL table being written: what the file had, and lists that rows bring."""

    def __init__(self, given: AclTable | None) -> None:
        self.given = given or AclTable.empty()
        self.ids: list[int] = self.given.ids.tolist()
        self.lists: list[bytes] = packed(self.given.lists).to_pylist()
        ordered = self.given.raw.slice(0, len(self.given.known_ids))
        self._by_list: dict[bytes, int] = {}
        for number, one in zip(self.given.known_ids.tolist(), packed(ordered).to_pylist(), strict=True):
            self._by_list.setdefault(one, number)
        self.open = packed(pa.array([OPEN], ACL_RAW_TYPE))[0].as_py()
        self.added = False
        self._next = max([0, *self.ids]) + 1

    def number(self, one: bytes) -> int:
        """The number of a list, a new one if there is none."""
        if one == self.open:
            return OPEN_ACL
        found = self._by_list.get(one)
        if found is None:
            found = self._next
            self._next += 1
            self._by_list[one] = found
            self.ids.append(found)
            self.lists.append(one)
            self.added = True
        return found

    def numbers(self, acl: pa.Array, given: Int64s, has: npt.NDArray[np.bool_]) -> Int64s:
        """The number of each row's list (a binary column of packed ones): the one that the row says where that has this list,
        or where the row has no list; null without a number is -1."""
        out = np.where(has, given, OPEN_ACL)
        if acl.null_count == len(acl):
            return out
        codes, lists = _coded(acl)
        if not has.any():
            return np.array([*(self.number(one) for one in lists), OPEN_ACL], np.int64)[codes]
        # As it is stored, and as its text would be stored.
        raw = packed(self.given.raw).to_pylist()
        text = packed(raw_lists(self.given.text[0], None)).to_pylist()
        places = np.where(has, self.given.places(given), -1)
        # One number for what a row says: its list (in the order in which they come up), and the one that its number stands for.
        width = len(raw) + 1
        both = (codes + 1) * width + places + 1
        said, which = np.unique(both, return_inverse=True) if len(lists) * width > _FEW else _few(both)
        wanted = np.full(len(said), _KEEP)
        for k, one in enumerate(said.tolist()):
            code, place = one // width - 1, one % width - 1
            if code >= 0 and not (place >= 0 and lists[code] in (raw[place], text[place])):
                wanted[k] = self.number(lists[code])
        chosen = wanted[which]
        return np.where(chosen == _KEEP, out, chosen)

    def table(self) -> bytes:
        return table_bytes(self.ids, self.lists)


def raw_lists(lists: pa.Array, raw: pa.Array | None) -> pa.Array:
    """ACLs as text in the raw type; where there is a raw one, that."""
    plain = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    entries = plain.flatten()
    ends = np.zeros(len(plain) + 1, np.int32)
    np.cumsum(np.asarray(plain.value_lengths().fill_null(0)), out=ends[1:])
    parts = entries.flatten()
    fields = [entries.type.field(i).name for i in range(entries.type.num_fields)]
    by_name = dict(zip(fields, parts, strict=True))
    made = pa.StructArray.from_arrays(
        [
            by_name["perms"].cast(pa.int32()),
            stored_strings(by_name["scheme"]),
            stored_strings(by_name["id"]),
        ],
        fields=list(ACL_RAW_TYPE.value_type),
    )
    out = pa.ListArray.from_arrays(
        numbers(pa.int32(), ends), made, mask=plain.is_null() if plain.null_count else None
    )
    if raw is None or raw.null_count == len(raw):
        return out
    both = pa.concat_arrays([out, raw])
    places = np.where(np.asarray(raw.is_valid()), np.arange(len(raw)) + len(out), np.arange(len(out)))
    return both.take(numbers(pa.int64(), places))


@dataclass(frozen=True)
class Given:
    """The columns of rows, each in its type or None where it is not there. `first` is the number of the first row, for words."""

    rows: pa.Table
    first: int = 0

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def column(self, name: str, kind: pa.DataType | None = None) -> pa.Array | None:
        if name not in self.rows.column_names:
            return None
        found = self.rows.column(name)
        wanted = kind or _COLUMNS[name].type
        try:
            one = found.cast(wanted).combine_chunks()
        except pa.ArrowException as error:
            raise UsageError(f"zookeeper.snapshot: column {name!r} is not {wanted}: {error}") from None
        return None if one.null_count == len(one) and len(one) else one

    def numbers(self, name: str, default: Any) -> Int64s:
        """Of 64 bits; `default` is a number, or one a row, for what is null or not there."""
        found = self.column(name)
        if found is None:
            return np.broadcast_to(np.asarray(default, np.int64), len(self)).copy()
        if not found.null_count:
            return np.asarray(found.cast(pa.int64()))
        values = np.asarray(
            found.fill_null(0).cast(pa.int64()) if not pa.types.is_timestamp(found.type) else _ms(found)
        )
        null = np.asarray(found.is_null())
        return np.where(null, default, values).astype(np.int64)

    def times(self, name: str, default: Any) -> Int64s:
        """Milliseconds: as they are stored where the row says so and it does not contradict the time."""
        return self.numbers(name, self.numbers(f"{name}_ms", default))

    def data(self) -> pa.Array | None:
        """Of more than 2 GB too."""
        return self.column("data", pa.large_binary())

    def data_pieces(self) -> pa.Array | pa.ChunkedArray | None:
        """The same as it comes, without a copy."""
        if "data" not in self.rows.column_names or not pa.types.is_binary(
            self.rows.schema.field("data").type
        ):
            return self.data()
        found = self.rows.column("data")
        return None if found.null_count == len(found) and len(found) else found.cast(pa.large_binary())

    def paths(self) -> pa.Array:
        """As they are stored: the root is the empty one."""
        if "path" not in self.rows.column_names:
            raise UsageError("zookeeper.snapshot needs a column 'path'")
        found = self.column("path")
        if found is None or found.null_count:
            row = 0 if found is None else int(np.flatnonzero(np.asarray(found.is_null()))[0])
            raise UsageError(f"zookeeper.snapshot: the path of row {self.first + row} is null")
        stored = stored_strings(found)
        data, ends, _ = flat(stored)
        roots = np.diff(ends) == 1
        if roots.any():
            roots[roots] = data[ends[:-1][roots]] == SLASH
        if roots.any():
            empty = pa.concat_arrays([stored, pa.array([b""], pa.binary())])
            stored = empty.take(numbers(pa.int64(), np.where(roots, len(stored), np.arange(len(stored)))))
        raw = self.column("path_raw")
        if raw is None:
            return stored
        # A raw path counts as long as the text is that of it.
        same = np.asarray(pc.fill_null(pc.equal(texts(raw)[0], found), False))
        both = pa.concat_arrays([stored, raw])
        return both.take(
            numbers(pa.int64(), np.where(same, np.arange(len(raw)) + len(raw), np.arange(len(raw))))
        )

    def acls(self) -> pa.Array:
        """Packed lists, null where there is none."""
        found = self.column("acl")
        if found is None:
            return pa.nulls(len(self), pa.binary())
        raw = self.column("acl_raw")
        if raw is not None:
            entries = raw.flatten().flatten()
            text = pa.StructArray.from_arrays(
                [entries[0], texts(entries[1])[0], texts(entries[2])[0]],
                fields=list(_COLUMNS["acl"].type.value_type),
            )
            shown = packed(raw_lists(pa.ListArray.from_arrays(_ends(raw), text), None))
            same = np.asarray(pc.equal(shown, packed(raw_lists(found, None))).fill_null(False))
            same &= np.asarray(raw.is_valid())
            raw = raw.take(numbers(pa.int64(), np.arange(len(raw)), ~same))
        return packed(raw_lists(found, raw))

    def owners(self) -> Int64s:
        kinds = self.column("kind")
        ttl = None if self.column("ttl") is None else self.numbers("ttl", 0)
        owners = self.numbers("ephemeral_owner", 0)
        codes = None
        if kinds is not None:
            found = pc.index_in(kinds, pa.array(KINDS))
            codes = np.asarray(found.fill_null(-1)).astype(np.int64)
            if (codes < 0).any():
                row = int(np.flatnonzero(codes < 0)[0])
                if kinds[row].is_valid:
                    raise UsageError(
                        f"zookeeper.snapshot: the kind of row {self.first + row}, {kinds[row].as_py()!r}, is none of {', '.join(KINDS)}"
                    )
                guessed = np.where(owners != 0, 1, 0)
                codes = np.where(codes < 0, guessed if ttl is None else np.where(ttl > 0, 3, guessed), codes)
            if ttl is None and (codes == 3).any():
                raise UsageError("zookeeper.snapshot: a ttl node needs a column 'ttl'")
        if ttl is not None and ((ttl < 0) | (ttl > TTL_MAX)).any():
            row = int(np.flatnonzero((ttl < 0) | (ttl > TTL_MAX))[0])
            raise UsageError(
                f"zookeeper.snapshot: the ttl of row {self.first + row}, {ttl[row]}, is not from 0 to {TTL_MAX} ms"
            )
        return stored_owners(owners, codes, ttl)


def _ends(lists: pa.Array) -> pa.Array:
    ends = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(np.asarray(lists.value_lengths().fill_null(0)), out=ends[1:])
    return numbers(pa.int32(), ends)


def _ms(times: pa.Array) -> pa.Array:
    return times.cast(pa.int64()).fill_null(0)
