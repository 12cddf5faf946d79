"""Paths as a server decodes them: bytes that are not UTF-8 become U+FFFD, so two stored forms may be one node.

Bytes are decoded as Java's class does. Transactions and records whose paths decode differently are appended with the decoded paths. Source:
`BinaryInputArchive.readString` of ZooKeeper; `String(byte[], Charset)` of Java 11 to 21.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.arrays import Int32s, Int64s
from logwright.codec.java import java_string
from logwright.codec.kernels.intrinsics import is_ascii, load_i32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.window import Bytes
from logwright.codec.zookeeper.formats.snapshot.layout import FIXED, LENGTH
from logwright.codec.zookeeper.formats.txnlog import bodies as measured
from logwright.codec.zookeeper.formats.txnlog import layout
from logwright.codec.zookeeper.formats.txnlog.bodies import measure_body
from logwright.codec.zookeeper.formats.txnlog.scan import TYPE
from logwright.codec.zookeeper.jute import BAD_TEXT, text_kind

_HIGHEST_SUB = layout.LOWEST + len(layout.SUB_RECIPE_ARRAY)


def as_java(text: bytes) -> bytes:
    """Return the UTF-8 of what Java decodes."""
    return java_string(text).encode()


@kernel("const u1[], i8, i8")
def is_utf8(buf: Bytes, at: int, size: int) -> bool:
    """Return whether Java decodes these bytes and encodes them to the same bytes."""
    # Nearly all text is ASCII.
    return size <= 0 or is_ascii(buf, at, size) or text_kind(buf, at, at + size) != BAD_TEXT


# Snapshots


@kernel("const u1[], const i8[], const i4[], u1[]")
def strange_nodes(buf: Bytes, starts: Int64s, paths: Int32s, out: Bytes) -> int:
    """Find the node records whose path decodes differently. Return their number."""
    n = 0
    for i in range(len(starts)):
        out[i] = not is_utf8(buf, starts[i] + LENGTH, paths[i])
        n += out[i]
    return n


def nodes_as_read(buf: Bytes, starts: Int64s, paths: Int32s, data: Int32s) -> tuple[Bytes, Int64s, Int32s]:
    """Return node records with decoded paths: bytes, where the records start in them, and the lengths of the paths."""
    strange = np.empty(len(starts), np.uint8)
    if not strange_nodes(buf, starts, paths, strange):
        return buf, starts, paths
    more, starts, paths = bytearray(), starts.copy(), paths.copy()
    for i in np.flatnonzero(strange).tolist():
        start = int(starts[i]) + LENGTH
        rest = start + int(paths[i])
        end = rest + LENGTH + max(int(data[i]), 0) + FIXED
        starts[i] = len(buf) + len(more)
        path = as_java(buf[start:rest].tobytes())
        paths[i] = len(path)
        more += len(path).to_bytes(LENGTH, "big") + path + buf[rest:end].tobytes()
    return _appended(buf, more), starts, paths


# Logs


@kernel("const u1[], i8, const i8[,], i8, i8[,]")
def strange_multi(buf: Bytes, end: int, bodies: Int64s, i: int, part: Int64s) -> int:
    at = bodies[measured.LIST_AT, i] + 4
    for _ in range(bodies[measured.LIST_COUNT, i]):
        if end - at < layout.SUB_DATA_AT + 4:
            return 0
        kind = load_i32be(buf, at)
        start = at + layout.SUB_DATA_AT + 4
        at = start + load_i32be(buf, start - 4)
        fields = layout.SUB_RECIPE_ARRAY[kind - layout.LOWEST] if layout.LOWEST <= kind < _HIGHEST_SUB else 0
        if at < start or at > end or fields == 0:
            return 0
        if measure_body(buf, kind, fields, start, at, part, 0) != measured.SOUND:
            return 0
        if not is_utf8(buf, part[measured.PATH_AT, 0], max(part[measured.PATH_LENGTH, 0], 0)):
            return 1
    return 0


@kernel("const u1[], const i8[], const i8[,], const i8[,], i8[,], u1[]")
def strange_txns(buf: Bytes, ends: Int64s, heads: Int64s, bodies: Int64s, part: Int64s, out: Bytes) -> int:
    """Find the transactions with a path that decodes differently. Return their number."""
    n = 0
    for i in range(len(ends)):
        kind = heads[i, TYPE]
        out[i] = 0
        if kind == layout.MULTI:
            if ends[i] - bodies[measured.LIST_AT, i] >= 4:
                out[i] = strange_multi(buf, ends[i], bodies, i, part)
        elif bodies[measured.STATUS, i] != measured.SOUND:
            continue
        elif kind == layout.CLOSE_SESSION:
            at = bodies[measured.LIST_AT, i] + 4
            for _ in range(
                bodies[measured.LIST_COUNT, i] if bodies[measured.FIELDS, i] & layout.PATHS else 0
            ):
                size = max(load_i32be(buf, at), 0)
                if not is_utf8(buf, at + 4, size):
                    out[i] = 1
                at += 4 + size
        elif not is_utf8(buf, bodies[measured.PATH_AT, i], max(bodies[measured.PATH_LENGTH, i], 0)):
            out[i] = 1
        n += out[i]
    return n


def txns_as_read(buf: Bytes, ends: Int64s, heads: Int64s, bodies: Int64s) -> tuple[Bytes, Int64s, Int64s]:
    """Return transactions with decoded paths: bytes, where the payloads end in them, and the measured bodies."""
    # Sound bodies marked as plain were checked completely. Of other multis, the parts before the unsound one are applied.
    if bodies[measured.PLAIN].all() and (bodies[measured.STATUS] == measured.SOUND).all():
        return buf, ends, bodies
    strange = np.empty(len(ends), np.uint8)
    part = np.empty((measured.MEASURES, 1), np.int64)
    if not strange_txns(buf, ends, heads, bodies, part, strange):
        return buf, ends, bodies
    more, ends, bodies = bytearray(), ends.copy(), bodies.copy()
    for i in np.flatnonzero(strange).tolist():
        place = len(buf) + len(more)
        kind = int(heads[i, TYPE])
        if kind in (layout.MULTI, layout.CLOSE_SESSION):
            start, count = int(bodies[measured.LIST_AT, i]), int(bodies[measured.LIST_COUNT, i])
            bodies[measured.LIST_AT, i] = place
            reader = _parts if kind == layout.MULTI else _strings
            more += reader(buf[start : int(ends[i])].tobytes(), count)
            ends[i] = len(buf) + len(more)
        else:
            start, size = int(bodies[measured.PATH_AT, i]), int(bodies[measured.PATH_LENGTH, i])
            path = as_java(buf[start : start + size].tobytes())
            bodies[measured.PATH_AT, i], bodies[measured.PATH_LENGTH, i] = place, len(path)
            more += path
    return _appended(buf, more), ends, bodies


def _parts(data: bytes, count: int) -> bytes:
    """Convert the parts of a multi, each of which begins with its path. From an unreadable one on they stay unchanged."""
    out, at = bytearray(data[:4]), 4
    for _ in range(count):
        start = at + layout.SUB_DATA_AT + 4
        stop = start + _number(data, start - 4)
        if start > len(data) or stop < start or stop > len(data) or stop - start < 4:
            break
        after = start + 4 + max(_number(data, start), 0)
        if _number(data, at) == layout.ERROR or after > stop or _number(data, start) < 0:
            content = data[start:stop]
        else:
            path = as_java(data[start + 4 : after])
            content = len(path).to_bytes(4, "big") + path + data[after:stop]
        out += data[at : start - 4] + len(content).to_bytes(4, "big") + content
        at = stop
    return bytes(out) + data[at:]


def _strings(data: bytes, count: int) -> bytes:
    out, at = bytearray(data[:4]), 4
    for _ in range(count):
        size = _number(data, at)
        text = as_java(data[at + 4 : at + 4 + max(size, 0)])
        out += (data[at : at + 4] if size < 0 else len(text).to_bytes(4, "big")) + text
        at += 4 + max(size, 0)
    return bytes(out) + data[at:]


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big", signed=True)


def _appended(buf: Bytes, more: bytearray) -> Bytes:
    return np.concatenate((buf, np.frombuffer(more, np.uint8)))
