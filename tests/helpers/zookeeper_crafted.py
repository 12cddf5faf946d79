"""Logs and snapshots crafted byte by byte: data that no server writes, but every server reads in a defined way."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from memory_directory import MemoryDirectory
from zookeeper_startup import data_directory, memory_of

from logwright.codec.zookeeper.names import log_name

Body = tuple[int, bytes]


def i4(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def i8(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def buf(data: bytes | None) -> bytes:
    """A buffer or string."""
    return i4(-1) if data is None else i4(len(data)) + data


def acl(*entries: tuple[int, bytes | None, bytes | None]) -> bytes:
    return i4(len(entries)) + b"".join(i4(perms) + buf(scheme) + buf(id_) for perms, scheme, id_ in entries)


OPEN = acl((31, b"world", b"anyone"))


def record(
    zxid: int, kind: int, body: bytes, *, client: int = 77, time: int = 1000, checksum: int | None = None
) -> bytes:
    payload = i8(client) + i4(1) + i8(zxid) + i8(time) + i4(kind) + body
    return sealed(payload, checksum)


def sealed(payload: bytes, checksum: int | None = None) -> bytes:
    return i8(zlib.adler32(payload) if checksum is None else checksum) + buf(payload) + b"B"


HEADER = b"ZKLG" + i4(2) + i8(0)


def log(*records: bytes) -> bytes:
    return HEADER + b"".join(records)


def create(path: bytes | None, acls: bytes = OPEN, data: bytes | None = b"x", *, ephemeral: int = 0) -> bytes:
    return buf(path) + buf(data) + acls + bytes([ephemeral]) + i4(-1)


def set_data(path: bytes | None, data: bytes | None, version: int = 1) -> bytes:
    return buf(path) + buf(data) + i4(version)


def ttl(path: bytes | None, milliseconds: int) -> bytes:
    return buf(path) + buf(b"") + OPEN + i4(1) + i8(milliseconds)


def multi(*parts: tuple[int, bytes | None]) -> bytes:
    return i4(len(parts)) + b"".join(i4(kind) + buf(body) for kind, body in parts)


FRESH = memory_of("fresh").files["snapshot.0"]
ROOT = (b"", -1, 0)


def sealed_sections(*parts: bytes) -> bytes:
    """Pack sections, each followed by a seal."""
    data = b""
    for part in parts:
        data += part
        data += i8(zlib.adler32(data)) + buf(b"/")
    return data


def snapshot(
    *nodes: tuple[bytes | None, int, int],
    sessions: bytes = i4(0),
    acls: bytes = i4(0),
    sections: tuple[bytes, ...] = (),
    czxids: Mapping[bytes | None, int] | None = None,
) -> bytes:
    """Pack a snapshot of nodes (path, ACL, owner). `czxids` are theirs, 0 by default."""
    tree = b"".join(
        buf(path) + buf(b"") + i8(acl) + i8((czxids or {}).get(path, 0)) + bytes(36) + i8(owner) + bytes(8)
        for path, acl, owner in nodes
    )
    return sealed_sections(FRESH[:16] + sessions + acls + tree + buf(b"/"), *sections)


def directory(*bodies: Body | bytes, first: int = 1) -> MemoryDirectory:
    """Return a fresh server's snapshot and a log of these transactions: (type, body), or complete records."""
    records = [body if isinstance(body, bytes) else record(first + i, *body) for i, body in enumerate(bodies)]
    return data_directory({"snapshot.0": FRESH, log_name(first): log(*records)})


def quota(*bodies: Body) -> tuple[Body, ...]:
    """Create a node with limits, then apply these transactions."""
    below = b"/zookeeper/quota/a"
    return (
        (1, create(b"/a")),
        (1, create(below)),
        (1, create(below + b"/zookeeper_limits", data=b"count=5,bytes=-1")),
        *bodies,
    )


def _behind(first: int, second: int) -> tuple[bytes, ...]:
    """A node that survives the deletion of its parent and is created again by another session."""
    return (
        record(1, 1, create(b"/a"), client=first),
        record(2, 1, create(b"/a/b", ephemeral=int(first > 0)), client=first),
        record(3, 2, buf(b"/a")),
        record(4, 1, create(b"/a")),
        record(5, 1, create(b"/a/c")),
        record(6, 1, create(b"/a/b", data=b"new", ephemeral=int(second > 0)), client=second),
    )


_STATS = b"/zookeeper/quota/a/zookeeper_stats"
_FF = -(1 << 56)
CRAFTED: dict[str, MemoryDirectory] = {
    "create: null path": directory((1, create(None))),
    "create: no slash": directory((1, create(b"abc"))),
    "create: no slash, beyond ASCII": directory((1, create("aß数😀".encode()))),
    "create: empty path": directory((1, create(b""))),
    "delete: null path": directory((2, buf(None))),
    "setData: null path": directory((5, set_data(None, b""))),
    "setData: empty path": directory((5, set_data(b"", b"q"))),
    "setACL: null path": directory((7, buf(None) + OPEN + i4(0))),
    "closeSession: null path": directory((-11, i4(1) + buf(None))),
    "closeSession: no slash": directory((-11, i4(1) + buf(b"abc"))),
    "closeSession: negative count": directory((-11, i4(-5))),
    "multi: null": directory((14, i4(-1))),
    "multi: part without bytes": directory((14, multi((1, None)))),
    "multi: failed, part without bytes": directory((14, multi((1, None), (-1, i4(-2))))),
    "multi: check of null": directory((14, multi((13, buf(None) + i4(1))))),
    "multi: create of null": directory((14, multi((1, create(None))))),
    "multi: setACL": directory((14, multi((1, create(b"/a")), (7, buf(b"/a") + OPEN + i4(3)), (1, create(b"/b"))))),
    "multi: short part": directory((14, multi((1, create(b"/a")), (1, create(b"/c")[:-3]), (1, create(b"/b"))))),
    "multi: more in a part": directory((14, multi((1, create(b"/a") + b"zzz"), (1, create(b"/b"))))),
    "multi: unknown part": directory((14, multi((1, create(b"/a")), (99, b""), (1, create(b"/b"))))),
    "multi: length in a part": directory((14, multi((1, create(b"/a")), (2, i4(1 << 28)), (1, create(b"/b"))))),
    "acl: null id": directory((1, create(b"/a", acl((31, b"world", None))))),
    "acl: null scheme": directory((1, create(b"/a", acl((31, None, b"x"))))),
    "acl: null scheme, no parent": directory((1, create(b"/no/a", acl((31, None, b"x"))))),
    "acl: null": directory((1, create(b"/a", i4(-1)))),
    "acl: empty": directory((1, create(b"/a", i4(0)))),
    "acl: negative count": directory((1, create(b"/a", i4(-7)))),
    "setACL: null names": directory((1, create(b"/a")), (7, buf(b"/a") + acl((31, None, None)) + i4(3))),
    "ttl: 0": directory((21, ttl(b"/a", 0))),
    "ttl: null path": directory((21, ttl(None, 5))),
    "ttl: too long, no slash": directory((21, ttl(b"a", 1 << 40))),
    "container": directory((19, buf(b"/a") + buf(b"") + OPEN + i4(1))),
    "owner: unknown kind": directory(record(1, 1, create(b"/a", ephemeral=1), client=_FF + (1 << 41))),
    "owner: unknown kind, exists": directory(record(1, 1, create(b"/zookeeper", ephemeral=1), client=_FF + (1 << 41))),
    "owner: like a TTL": directory(record(1, 1, create(b"/a", ephemeral=1), client=_FF + 12)),
    "owner: like a container": directory(record(1, 1, create(b"/a", ephemeral=1), client=-(1 << 63))),
    "quota: beside": directory(
        (1, create(b"/zookeeper/quotax")), (1, create(b"/zookeeper/quotax/zookeeper_limits")), (1, create(b"/x")), (1, create(b"/x/y"))
    ),
    "quota": directory(
        *quota(
            (1, create(_STATS, data=b"count=0,bytes=0")), (1, create(b"/a/b", data=b"12345")), (5, set_data(b"/a/b", b"1")),
            (2, buf(b"/a/b")), (1, create(b"/ab")),
        )
    ),
    "quota: no stats": directory(*quota((1, create(b"/a/b", data=b"12345")))),
    "quota: bad stats": directory(*quota((1, create(_STATS)), (5, set_data(_STATS, b"gibberish")), (1, create(b"/a/b")))),
    "quota: null stats": directory(*quota((1, create(_STATS)), (5, set_data(_STATS, None)), (1, create(b"/a/b")))),
    "quota: no more limits": directory(
        *quota((1, create(_STATS)), (2, buf(b"/zookeeper/quota/a/zookeeper_limits")), (1, create(b"/a/b", data=b"12345")))
    ),
    "a deleted node's children": directory(
        (1, create(b"/a")), (1, create(b"/a/b")), (2, buf(b"/a")), (1, create(b"/a")), (1, create(b"/a/b")), (1, create(b"/a/c"))
    ),
    "the root": directory((5, set_data(b"/", b"R", 4)), (7, buf(b"/") + i4(0) + i4(9))),
    "no /zookeeper": directory((2, buf(b"/zookeeper")), (1, create(b"/zookeeper"))),
    "a negative zxid": directory(record(-5, 1, create(b"/a")), record(1, 1, create(b"/b"))),
    "create V0": directory((1, create(b"/a")[:-4]), (1, create(b"/b")[:-2]), (1, create(b"/c")[:-5]), (1, create(b"/d"))),
    "create V0, a digest": directory((1, create(b"/a")[:-4] + i4(2) + i8(99))),
    "create2 is never V0": directory((15, create(b"/a")[:-4]), (1, create(b"/b"))),
    "check alone": directory((13, buf(b"/a") + i4(0))),
    "errors": directory((-1, i4(-101)), (-1, b""), (1, create(b"/b"))),
    "a session closed with another's path": directory(
        (-10, i4(3000)), (1, create(b"/e", ephemeral=7)), (-11, i4(1) + buf(b"/zookeeper/quota")),
        record(4, -10, i4(99), client=5),
    ),
    "a node of two sessions": directory(
        (1, create(b"/e", ephemeral=1)), (-11, b""), (1, create(b"/e", ephemeral=1)), (-10, i4(5)),
        record(5, 1, create(b"/e", ephemeral=1), client=8), (-11, i4(0)),
    ),
    "a rejected snapshot's node, its session closed": data_directory(
        {
            "snapshot.5": snapshot(ROOT, (b"/a", -1, 99), (b"/b", -1, 0))[:-6] + b"?" + buf(b"/"),
            "snapshot.3": snapshot(ROOT, (b"/a", -1, 0), (b"/b", -1, 0)),
            "log.4": log(record(4, -10, i4(9)), record(5, -11, i4(1) + buf(b"/b"), client=99), record(6, 1, create(b"/c"))),
        }
    ),
    "multi: create2": directory((14, multi((1, create(b"/a")), (15, create(b"/b")), (1, create(b"/c"))))),
    "the root deleted": directory((1, create(b"/a")), (2, buf(b"/")), (1, create(b"/b")), (5, set_data(b"/", b"r"))),
    "the root deleted as a container": directory((1, create(b"/a")), (20, buf(b"/")), (1, create(b"/b"))),
    "the root deleted by a multi": directory((14, multi((1, create(b"/a")), (2, buf(b"/")), (1, create(b"/b"))))),
    "the root deleted with a session": directory((-10, i4(9)), (-11, i4(1) + buf(b"/")), (1, create(b"/b"))),
    "the root created": directory((1, create(b"/")), (15, create(b"/")), (1, create(b"/", ephemeral=1)), (1, create(b"/b"))),
    "delete: empty path": directory((1, create(b"/a")), (2, buf(b""))),
    "setACL: empty path": directory((7, buf(b"") + acl((1, b"world", b"anyone")) + i4(3)), (1, create(b"/b"))),
    "slashes": directory(
        (1, create(b"/a")), (1, create(b"/a/")), (5, set_data(b"/a/", b"s")),
        (2, buf(b"/a/")),
    ),
    "left behind, its owner's session closed": directory(*_behind(5, 8), record(7, -11, b"", client=5)),
    "left behind, a dead owner": directory(*_behind(5, 8), record(7, -10, i4(99), client=8)),
    "left behind, replaced by a node of nobody": directory(*_behind(5, 0), record(7, 1, create(b"/a/d"), client=5)),
    "left behind, replaced, its path named": directory(
        *_behind(5, 8),
        record(7, -11, i4(1) + buf(b"/a/b"), client=5), record(8, -11, b"", client=8),
    ),
    "left behind, replaced by one of the same session": directory(
        *_behind(5, 5),
        record(7, 2, buf(b"/a/b")), record(8, 1, create(b"/a/b")), record(9, -11, b"", client=5),
    ),
    "left behind, replaced and deleted": directory(*_behind(5, 8), record(7, 2, buf(b"/a/b")), record(8, 1, create(b"/a/b"))),
    "paths that are no UTF-8": directory(
        (1, create(b"/\xff")), (5, set_data(b"/\xfe", b"fe")), (1, create(b"/\xef\xbf\xbd")), (1, create(b"/\xff/\xc3\xa9")),
        (1, create(b"/a")),
        (1, create(b"/a/\xed\xa0\x80")), (5, set_data(b"/a/\xef\xbf\xbd", b"one")), (1, create(b"/a/\xf0\x9f\x98")),
        (1, create(b"/a/\xe2\x82")), (1, create(b"/a/\xc0\xaf")), (1, create(b"/a/\xf5\x80\x80\x80")), (1, create(b"/a/\xf4\x90\x80\x80")),
        (1, create(b"/a/\xe0\x80\x80x")), (1, create(b"/a/\xf0\x80\x80\x80y")), (1, create(b"/a/\xf0\x9f\x98z")), (2, buf(b"/a/\xc1")),
        (7, buf(b"/\xfd") + acl((1, b"world", b"anyone")) + i4(3)), (1, create(b"/a/\xe9t\xe9")), (2, buf(b"/a/\xe8t\xea")),
    ),
    "paths that are no UTF-8 in a multi": directory(
        (14, multi((1, create(b"/\xff")), (5, set_data(b"/\xfe", b"fe")), (1, create(b"/a")), (2, buf(b"/\xf8")), (13, buf(b"/\xff") + i4(1)))),
        (14, multi((1, create(b"/\xff")), (1, create(b"/b")), (1, create(b"/c")[:-3]))),
    ),
    "paths that are no UTF-8 in a closeSession": directory(
        (1, create(b"/a")), (1, create(b"/\xff")), (-11, i4(2) + buf(b"/\xfe") + buf(b"/a"))
    ),
    "paths that are no UTF-8 in a snapshot": data_directory(
        {
            "snapshot.3": snapshot(ROOT, (b"/\xff", -1, 0), (b"/\xfe/one", -1, 0), (b"/\xfe", -1, 0), (b"/\xef\xbf\xbd/two", -1, 0)),
            "log.4": log(record(4, 1, create(b"/\xff/three")), record(5, 5, set_data(b"/\xef\xbf\xbd", b"4"))),
        }
    ),
    "paths without a slash in a snapshot": data_directory(
        {
            "snapshot.5": snapshot((b"early", -1, 0), ROOT, (b"/app", -1, 0), (b"abc", -1, 7), (b"abc/x", -1, 0)),
            "snapshot.3": snapshot(ROOT),
            "log.6": log(record(6, 1, create(b"/app/b")), record(7, 1, create(b"/c"))),
        }
    ),
    "a payload without a header": directory((1, create(b"/a")), sealed(bytes(31)), (1, create(b"/b"))),
}  # fmt: skip
