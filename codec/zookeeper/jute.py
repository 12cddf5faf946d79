"""Jute, the encoding of everything that ZooKeeper stores: big-endian fields in sequence, without tags.

This module has the types of the description language, the records that several files share, and the kernels for variable parts. Strings are
not quite UTF-8: the writer encodes each UTF-16 unit by itself, so a character above U+FFFF takes six bytes, and the reader is Java's UTF-8
decoder, which decodes these to two U+FFFD. Source: `BinaryInputArchive`, `BinaryOutputArchive` of ZooKeeper's jute module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.columns import binary, contents, counts_of, list_of, numbers
from logwright.codec.describe import I32BE, I64BE, Bit, Field, Flags, Int, Repeated, Scope, Struct, Type
from logwright.codec.describe import Bytes as BytesType
from logwright.codec.java import java_string
from logwright.codec.kernels.intrinsics import copy, is_ascii, load_i32be, load_u8, store_32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.names import zxid_text

MAX_BUFFER = 0xFFFFF
"""The default of `jute.maxbuffer`. A length may be that value plus `jute.maxbuffer.extrasize`, which has the same default."""
NULL = -1
"""The length or count of a null value."""


# Types


BUFFER = BytesType(I32BE, null=NULL, strict=True)
USTRING = BytesType(I32BE, null=NULL, strict=True, text=True)
"""A length of 32 bits, -1 for null, and bytes. Other negative lengths are errors."""


def vector(element: Type) -> Repeated:
    """A count of 32 bits and that number of items; -1 for null. Other negative counts are read as no items."""
    return Repeated(element, I32BE, null=NULL)


BOOLEAN = Int(1, signed=False, values={0: "false", 1: "true"})
"""A reader treats any other byte as true."""

I64MS = Int(8, unit="ms")
"""Milliseconds since 1970."""

ID = Struct(
    "Id",
    Field("scheme", USTRING, "how clients authenticate: world, digest, ip, sasl, x509"),
    Field("id", USTRING, "the client, in the form of the scheme"),
    source="org.apache.zookeeper.data.Id",
)
PERMS = Flags(I32BE, (Bit("READ", 0), Bit("WRITE", 1), Bit("CREATE", 2), Bit("DELETE", 3), Bit("ADMIN", 4)))
ACL = Struct(
    "ACL",
    Field("perms", PERMS, "the permissions"),
    Field("id", ID, "to whom"),
    source="org.apache.zookeeper.data.ACL",
)


def in_hex(number: int, scope: Scope) -> str:
    """The readable form of ids and zxids."""
    return zxid_text(number)


def owner_in_hex(number: int, scope: Scope) -> str:
    """The readable form of the owner of a node; none if it has no owner."""
    return zxid_text(number) if number else ""


STAT_PERSISTED = Struct(
    "StatPersisted",
    Field("czxid", I64BE, "zxid of the transaction that created the node", says=in_hex),
    Field("mzxid", I64BE, "zxid of the last change of its data", says=in_hex),
    Field("ctime", I64MS, "when it was created"),
    Field("mtime", I64MS, "when its data was changed last"),
    Field("version", I32BE, "changes of its data"),
    Field("cversion", I32BE, "changes of its children, as it is stored: creations count once, deletions not"),
    Field("aversion", I32BE, "changes of its ACL"),
    Field(
        "ephemeral_owner",
        I64BE,
        "the session of an ephemeral node; or the kind of node and its TTL",
        says=owner_in_hex,
    ),
    Field("pzxid", I64BE, "zxid of the last change of its children", says=in_hex),
    source="org.apache.zookeeper.data.StatPersisted",
)
ACL_MIN = ACL.min_size
"""Size of the shortest entry of a list."""

# Columns

ACL_TYPE = pa.list_(
    pa.struct([pa.field("perms", pa.int32()), pa.field("scheme", pa.string()), pa.field("id", pa.string())])
)
ACL_RAW_TYPE = pa.list_(
    pa.struct([pa.field("perms", pa.int32()), pa.field("scheme", pa.binary()), pa.field("id", pa.binary())])
)


def stored_strings(values: pa.Array) -> pa.Array:
    """Return a string column as jute stores it, as a binary one; bytes are unchanged."""
    if pa.types.is_binary(values.type):
        return values
    plain = values.cast(pa.string()).cast(pa.binary())
    offsets = np.frombuffer(plain.buffers()[1], np.int32)[plain.offset : plain.offset + len(plain) + 1]
    data = plain.buffers()[2]
    if data is None or not len(plain):
        return plain
    if np.frombuffer(data, np.uint8)[int(offsets[0]) : int(offsets[-1])].max(initial=0) < 0xF0:
        return plain
    return contents(
        pa.binary(), [None if text is None else jute_string(text.decode()) for text in plain.to_pylist()]
    )


def jute_string(text: str) -> bytes:
    """`BinaryOutputArchive.stringToByteBuffer`: each UTF-16 unit in one to three bytes."""
    units = text.encode("utf-16-be", "surrogatepass")
    pairs = (
        [units[i : i + 2].decode("utf-16-be", "surrogatepass") for i in range(0, len(units), 2)]
        if any(char > "\uffff" for char in text)
        else text
    )
    return "".join(pairs).encode("utf-8", "surrogatepass")


def acl_lists(buf: Bytes, at: Int64s, counts: Int64s) -> pa.Array:
    """Return the ACL lists at the positions `at`, of `counts` entries (-1 for null), in raw form."""
    sizes = np.maximum(counts, 0)
    total = int(sizes.sum())
    perms = np.empty(total, np.int64)
    starts, lengths = np.empty(2 * total, np.int64), np.empty(2 * total, np.int64)
    acl_entries(buf, at, sizes, perms, starts, lengths)
    names = (binary(buf, starts[k::2].copy(), lengths[k::2].copy()) for k in range(2))
    return acl_column(ACL_RAW_TYPE, [numbers(pa.int32(), perms), *names], counts)


def acl_column(kind: pa.DataType, fields: Sequence[pa.Array], counts: Int64s) -> pa.Array:
    """Return lists of ACLs from the columns of their entries. `kind` is `ACL_TYPE` or `ACL_RAW_TYPE`."""
    return list_of(pa.StructArray.from_arrays(list(fields), fields=list(kind.value_type)), counts)


def raw_lists(lists: pa.Array | pa.ChunkedArray, raw: pa.Array | None) -> pa.Array:
    """Convert ACLs as text to the raw type; a raw value takes precedence."""
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    entries = lists.flatten()
    names = [field.name for field in entries.type]
    perms, *strings = (entries.flatten()[names.index(name)] for name in ("perms", "scheme", "id"))
    fields = [perms.cast(pa.int32()), *map(stored_strings, strings)]
    out = acl_column(ACL_RAW_TYPE, fields, counts_of(lists))
    if raw is None or raw.null_count == len(raw):
        return out
    both = pa.concat_arrays([out, raw])
    places = np.where(np.asarray(raw.is_valid()), np.arange(len(raw)) + len(out), np.arange(len(out)))
    return both.take(numbers(pa.int64(), places))


def flat(column: pa.Array) -> tuple[Bytes, npt.NDArray[Any], Bytes]:
    """Return a binary column for kernels: its bytes, where each value ends (with the first start; 64-bit for a large one), and 1 where
    it is not null."""
    rows = len(column)
    buffers = column.buffers()
    valid = np.ones(rows, np.uint8)
    if column.null_count:
        bits = np.frombuffer(buffers[0], np.uint8)
        valid = np.unpackbits(bits, bitorder="little")[column.offset : column.offset + rows]
    kind = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    ends: npt.NDArray[Any] = np.zeros(1, kind)
    if rows:
        ends = np.frombuffer(buffers[1], kind)[column.offset : column.offset + rows + 1]
    empty = buffers[2] is None or not buffers[2].size
    return np.zeros(0, np.uint8) if empty else np.frombuffer(buffers[2], np.uint8), ends, valid


def validity(array: pa.Array) -> Bytes:
    """Return 1 where a value is not null."""
    if not array.null_count:
        return np.ones(len(array), np.uint8)
    if array.null_count == len(array):
        return np.zeros(len(array), np.uint8)
    return np.asarray(array.is_valid()).astype(np.uint8)


class Strings(NamedTuple):
    """A binary column for kernels: value `i` is `data[ends[i] : ends[i + 1]]`, or null if `valid[i]` is 0."""

    data: Annotated[Bytes, "const u1[]"]
    ends: Annotated[Int32s, "const i4[]"]
    valid: Annotated[Bytes, "const u1[]"]

    @classmethod
    def of(cls, column: pa.Array) -> Strings:
        """Return the values of a binary or string column."""
        return cls(*map(_constant, flat(column)))

    @property
    def sizes(self) -> Int64s:
        """Bytes that each value takes with its length."""
        sizes = np.diff(self.ends).astype(np.int64)
        # A null value may still have bytes in the column.
        if not self.valid.all():
            sizes *= self.valid
        sizes += 4
        return sizes


def _constant(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return values as a kernel takes them in a tuple."""
    flags = values.flags
    if flags.writeable or not flags.aligned:
        values = values.view() if flags.aligned else values.copy()
        values.flags.writeable = False
    return values


ACL_LIST = vector(ACL)


def list_entries(content: bytes) -> list[dict[str, Any]]:
    """Return an encoded ACL as rows have it, in the raw type."""
    entries, _ = ACL_LIST.unpack(content, 0, len(content), {})
    return [{"perms": entry["perms"], **entry["id"]} for entry in entries or []]


def text_entries(acl: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return an ACL of the raw type as text."""
    return [
        {"perms": entry["perms"]}
        | {name: None if entry[name] is None else java_string(entry[name]) for name in ("scheme", "id")}
        for entry in acl
    ]


# Kernels

PLAIN_TEXT, WIDE_TEXT, BAD_TEXT = range(3)
"""Kinds of text: UTF-8 as jute's writer makes it; UTF-8 with four-byte characters, which it never makes; not UTF-8."""


@kernel("const u1[], i8, i8")
def skip_bytes(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """Skip a buffer or ustring at `at`: (length or -1 for null, where it ends); (length, -1) if it does not fit before `end`."""
    if end - at < 4:
        return 0, -1
    length = load_i32be(buf, at)
    if length == NULL:
        return NULL, at + 4
    if length < 0 or length > end - at - 4:
        return length, -1
    return length, at + 4 + length


@kernel("const u1[], i8, i8")
def text_kind(buf: Bytes, at: int, end: int) -> int:
    """Return the kind of text of the bytes: `PLAIN_TEXT`, `WIDE_TEXT` or `BAD_TEXT`."""
    kind = PLAIN_TEXT
    while at < end:
        first = load_u8(buf, at)
        at += 1
        if first < 0x80:
            continue
        low = 0x80
        high = 0xBF
        if first < 0xC2 or first > 0xF4:
            return BAD_TEXT
        if first < 0xE0:
            more = 1
        elif first < 0xF0:
            more = 2
            if first == 0xE0:
                low = 0xA0
            elif first == 0xED:
                high = 0x9F
        else:
            more = 3
            kind = WIDE_TEXT
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                high = 0x8F
        if end - at < more:
            return BAD_TEXT
        for i in range(more):
            byte = load_u8(buf, at + i)
            if byte < low or byte > high:
                return BAD_TEXT
            low = 0x80
            high = 0xBF
        at += more
    return kind


@kernel("const u1[], i8, i8")
def is_plain(buf: Bytes, at: int, end: int) -> bool:
    """Return whether the bytes are empty or text as jute's writer makes it."""
    # Nearly all text is ASCII.
    return end <= at or is_ascii(buf, at, end - at) or text_kind(buf, at, end) == PLAIN_TEXT


@kernel("const u1[], i8, i8")
def skip_acl(buf: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Skip an ACL vector at `at`: (entries or -1 for null, where it ends, 1 if its text is encoded to the same bytes); the end is -1 if
    it does not fit before `end`."""
    if end - at < 4:
        return 0, -1, 0
    count = load_i32be(buf, at)
    at += 4
    if count < 0:
        return (NULL, at, 1) if count == NULL else (0, at, 0)
    if count > (end - at) // ACL_MIN:
        return count, -1, 0
    plain = 1
    for _ in range(count):
        at += 4  # perms
        for _ in range(2):
            if end < at:
                return count, -1, 0
            length, stop = skip_bytes(buf, at, end)
            if stop < 0:
                return count, -1, 0
            if length > 0 and not is_plain(buf, at + 4, stop):
                plain = 0
            at = stop
    return count, at, plain


@kernel("const u1[], const i8[], const i8[], i8[], i8[], i8[]")
def acl_entries(
    buf: Bytes, at: Int64s, counts: Int64s, perms: Int64s, starts: Int64s, lengths: Int64s
) -> int:
    """Read the entries of ACL vectors that were skipped before and start at `at` (their count): `perms` of each, and two strings each in
    `starts` and `lengths` (-1 for null). Return the number of entries."""
    n = 0
    for i in range(len(at)):
        pos = at[i] + 4
        for _ in range(counts[i]):
            perms[n] = load_i32be(buf, pos)
            pos += 4
            for k in range(2):
                lengths[2 * n + k] = load_i32be(buf, pos)
                pos += 4
                starts[2 * n + k] = pos
                pos += max(lengths[2 * n + k], 0)
            n += 1
    return n


@kernel("const u1[], const i8[], const i8[], i8[], i8[]")
def string_entries(buf: Bytes, at: Int64s, counts: Int64s, starts: Int64s, lengths: Int64s) -> int:
    """As above for vectors of ustrings."""
    n = 0
    for i in range(len(at)):
        pos = at[i] + 4
        for _ in range(counts[i]):
            lengths[n] = load_i32be(buf, pos)
            pos += 4
            starts[n] = pos
            pos += max(lengths[n], 0)
            n += 1
    return n


@kernel("u1[], i8, Strings, i8")
def put_bytes(out: Bytes, at: int, strings: Strings, i: int) -> int:
    """Write value `i` of an Arrow column as a buffer or ustring. Return where it ends."""
    if not strings.valid[i]:
        return store_32be(out, at, NULL)
    length = strings.ends[i + 1] - strings.ends[i]
    at = store_32be(out, at, length)
    copy(out, at, strings.data, strings.ends[i], length)
    return int(at + length)
