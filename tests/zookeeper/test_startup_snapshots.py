"""Which snapshot a ZooKeeper server loads, and how it reads it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from memory_directory import MemoryDirectory
from zookeeper_crafted import FRESH, ROOT, buf, i4, i8, sealed_sections, snapshot
from zookeeper_nodes import node_at
from zookeeper_startup import data_directory, server, start

from logwright.codec.fault import UnreadableError
from logwright.codec.kernels.compress import compress
from logwright.codec.option import Options
from logwright.codec.store.overlay import Overlay
from logwright.codec.zookeeper.startup.exceptions import Thrown
from logwright.codec.zookeeper.startup.file_snap import FileSnap, Loaded
from logwright.codec.zookeeper.startup.settings import OPTIONS, ServerSettings
from logwright.codec.zookeeper.startup.start import STARTUP
from logwright.codec.zookeeper.startup.stream import Stream

TREE_END = 0x19B
"""Where its tree ends, and its first seal is; the end mark is before."""
SEAL = 13


def load(files: dict[str, bytes], version: str = "3.9.5", **options: Any) -> Loaded:
    return FileSnap(
        Overlay(data_directory(files)), ServerSettings(STARTUP.version_of(version), Options(OPTIONS, options))
    ).deserialize()


def refused(files: dict[str, bytes], version: str = "3.9.5", **options: Any) -> str:
    """Return the error for the only snapshot."""
    disk = Overlay(data_directory(files))
    loaded = []
    reader = FileSnap(disk, ServerSettings(STARTUP.version_of(version), Options(OPTIONS, options)))
    original = Loaded.__init__

    def kept(self: Loaded, **args: Any) -> None:
        original(self, **args)
        loaded.append(self)

    Loaded.__init__ = kept  # type: ignore[method-assign]
    try:
        with pytest.raises(Thrown) as caught:
            reader.deserialize()
    finally:
        Loaded.__init__ = original  # type: ignore[method-assign]
    assert str(caught.value) == "java.io.IOException: Not able to find valid snapshots in version-2"
    ((_, failure),) = loaded[0].rejected
    return str(failure)


DIGEST = i8(0) + i4(2) + i8(0)


def test_snapshots_we_write_load_like_a_servers() -> None:
    assert sealed_sections(FRESH[:TREE_END], DIGEST, i8(0)) == FRESH
    assert load({"snapshot.0": snapshot(ROOT)}).file is not None


# Streams


def stream(data: bytes, compression: str, limit: int = 1 << 30) -> Stream:
    return Stream.of(np.frombuffer(data, np.uint8), compression, limit)


def test_gzip_snapshot_may_have_several_members_and_trailing_bytes() -> None:
    result = stream(gzip.compress(FRESH, mtime=0), "gz")
    assert result.data.tobytes() == FRESH
    assert str(result.end) == "java.io.EOFException"
    # Concatenated members are one stream; trailing garbage is ignored.
    assert (
        stream(gzip.compress(FRESH[:99], mtime=0) + gzip.compress(FRESH[99:], mtime=0), "gz").data.tobytes()
        == FRESH
    )
    assert stream(gzip.compress(FRESH, mtime=0) + b"more", "gz").data.tobytes() == FRESH
    assert str(stream(gzip.compress(FRESH, mtime=0) + b"more", "gz").end) == "java.io.EOFException"


def test_gzip_header_fields_are_accepted() -> None:
    body = gzip.compress(FRESH, mtime=0)[10:]
    fields = b"\x04\x00abcd" + b"name\0" + b"a comment\0"
    head = b"\x1f\x8b\x08\x1e" + bytes(6) + fields
    complete = head + (zlib.crc32(head) & 0xFFFF).to_bytes(2, "little")
    assert stream(complete + body, "gz").data.tobytes() == FRESH
    for size in range(2, len(complete)):
        with pytest.raises(Thrown, match="EOFException"):
            stream(complete[:size], "gz")
    for data, message in [
        (head + b"??" + body, "ZipException: Corrupt GZIP header"),
        (b"PK" + complete[2:] + body, "ZipException: Not in GZIP format"),
        (complete[:2] + b"\x07" + complete[3:] + body, "ZipException: Unsupported compression method"),
        (b"", "EOFException"),
    ]:
        with pytest.raises(Thrown, match=message):
            stream(data, "gz")


def test_damaged_gzip_fails_as_in_java() -> None:
    data = gzip.compress(FRESH * 40, mtime=0)
    for size in range(12, len(data) - 8, 7):
        result = stream(data[:size], "gz")
        assert (FRESH * 40).startswith(result.data.tobytes())
        assert str(result.end) == "java.io.EOFException: Unexpected end of ZLIB input stream"
    assert str(stream(data[:-1], "gz").end) == "java.io.EOFException"
    assert stream(data[:-1], "gz").data.tobytes() == FRESH * 40
    assert (
        str(stream(data[:-5] + b"?" + data[-4:], "gz").end)
        == "java.util.zip.ZipException: Corrupt GZIP trailer"
    )
    stored = gzip.compress(FRESH, 0, mtime=0)
    result = stream(stored[:11] + b"?" + stored[12:], "gz")
    assert str(result.end) == "java.util.zip.ZipException: invalid stored block lengths"
    # Bytes before the damage can be read.
    second = zlib.compressobj(9, zlib.DEFLATED, -15)
    begun = second.compress(FRESH) + second.flush(zlib.Z_FULL_FLUSH)
    result = stream(stored[:10] + begun + b"\x07", "gz")
    assert result.data.tobytes() == FRESH
    assert str(result.end) == "java.util.zip.ZipException: invalid block type"


def test_snappy_snapshot_may_have_several_streams_but_no_damage() -> None:
    data = compress("snappy", FRESH * 200)
    assert stream(data, "snappy").data.tobytes() == FRESH * 200
    # Another stream may follow.
    assert stream(data + data, "snappy").data.tobytes() == FRESH * 400
    with pytest.raises(Thrown, match="EOFException"):
        stream(data[:15], "snappy")
    for cut, message in [
        (data[:-3], "failed to read chunk"),
        (data + b"\x82SNA", "Insufficient header size"),
        (data + b"abc", "EOF"),
    ]:
        assert message in str(stream(cut, "snappy").end)
    result = stream(data[:20] + b"\xff\xff\xff\xff\xff" + data[25:], "snappy")
    assert not len(result.data)
    assert "FAILED_TO_UNCOMPRESS" in str(result.end)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (-5, "[INVALID_CHUNK_SIZE] chunkSize is too big or negative : -5"),
        ((512 << 20) + 1, "[FAILED_TO_UNCOMPRESS] Received chunkSize 536,870,913 is greater than max configured chunk size 536,870,912"),
    ],
)  # fmt: skip
def test_oversized_snappy_chunk_crashes_a_server(size: int, words: str) -> None:
    """An Error is not an IOException: no older snapshot is tried."""
    data = compress("snappy", FRESH)
    broken = data[:16] + size.to_bytes(4, "big", signed=True) + data[20:]
    opened = start(data_directory({"snapshot.0": FRESH, "snapshot.5.snappy": broken}))
    assert opened.verdict.error_class == "org.xerial.snappy.SnappyError"
    assert opened.verdict.error == words
    just = data[:16] + (512 << 20).to_bytes(4, "big") + data[20:]
    assert start(data_directory({"snapshot.0": FRESH, "snapshot.5.snappy": just})).verdict.opens


@pytest.mark.parametrize("compression", ["gz", "snappy"])
def test_decompression_bombs_are_bounded(compression: str) -> None:
    pack: Callable[[bytes], bytes] = (
        gzip.compress if compression == "gz" else lambda data: compress("snappy", data)
    )
    result = stream(pack(bytes(1 << 20)) + pack(bytes(99)), compression, 1 << 16)
    assert len(result.data) <= 1 << 16
    assert str(result.end) == "java.lang.OutOfMemoryError: Java heap space"
    # Earlier damage is met first.
    name = f"snapshot.5.{compression}"
    files = {name: pack(bytes(1 << 20)), "snapshot.0": FRESH}
    assert load(files, **{"max.decompressed.bytes": 1 << 16}).file is not None
    large = FRESH[:TREE_END]
    with pytest.raises(Thrown, match="OutOfMemoryError"):
        load(files | {name: pack(large + bytes(1 << 20))}, **{"max.decompressed.bytes": TREE_END})


# Which one


def test_newest_readable_snapshot_is_loaded() -> None:
    def names(loaded: Loaded) -> tuple[str | None, list[str]]:
        return loaded.file and loaded.file.name, [name for name, _ in loaded.rejected]

    flipped = FRESH[:99] + b"?" + FRESH[100:]
    assert names(load({"snapshot.0": FRESH, "snapshot.5": FRESH})) == ("snapshot.5", [])
    assert names(load({"snapshot.0": FRESH, "snapshot.5": flipped})) == ("snapshot.0", ["snapshot.5"])
    # What does not look whole is not tried.
    assert names(load({"snapshot.0": FRESH, "snapshot.5": FRESH[:-1]})) == ("snapshot.0", [])
    assert names(load({"snapshot.0": FRESH, "snapshot.xyz": FRESH, "snapshot.-1": FRESH})) == (
        "snapshot.0",
        [],
    )
    assert names(load({"snapshot.3.tmp": FRESH})) == ("snapshot.3.tmp", [])
    assert names(load({"log.1": FRESH})) == (None, [])
    assert names(load({"snapshot.7.gz": gzip.compress(FRESH, mtime=0), "snapshot.0": FRESH})) == (
        "snapshot.7.gz",
        [],
    )
    # Before 3.6 none could be compressed, and a name had two parts.
    packed = {"snapshot.7.gz": gzip.compress(FRESH, mtime=0), "snapshot.3.tmp": FRESH, "snapshot.0": FRESH}
    assert names(load(packed, "3.5.10")) == ("snapshot.0", [])
    assert names(load({"snapshot.7.gz": FRESH, "snapshot.0": FRESH})) == ("snapshot.0", [])
    many = {f"snapshot.{i:x}": flipped for i in range(1, 101)}
    with pytest.raises(Thrown, match="Not able to find valid snapshots"):
        load(many | {"snapshot.0": FRESH})
    del many["snapshot.64"]
    assert names(load(many | {"snapshot.0": FRESH}))[0] == "snapshot.0"


def test_unreadable_snapshot_is_skipped_for_an_older_one() -> None:
    class Broken(MemoryDirectory):
        def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
            if name == "snapshot.5" and (length is None or offset == 0):
                raise UnreadableError.of(offset, 1, "bad sector", name)
            return super().read(name, offset, length)

    opened = start(Broken({"snapshot.5": FRESH, "snapshot.0": FRESH}))
    assert opened.verdict.serves["snapshot"] == "snapshot.0"
    assert opened.verdict.warnings[0].endswith("snapshot.5: java.io.IOException: Input/output error")


# Sections


@pytest.mark.parametrize("version", ["3.4.14", "3.5.10", "3.6.4", "3.9.5"])
def test_snapshot_forms_by_version(version: str) -> None:
    for sections in [(), (DIGEST,), (DIGEST, i8(0))]:
        loaded = load({"snapshot.0": snapshot(ROOT, sections=sections)}, version)
        assert loaded.file is not None
        # What follows the first seal is no business of older versions.
        broken = snapshot(ROOT, sections=sections)
        if sections:
            broken = broken[: -SEAL - 1] + b"?" + broken[-SEAL:]
            good = version < "3.6" or (version < "3.9" and len(sections) == 2)
            if good:
                assert load({"snapshot.0": broken}, version).file is not None
            else:
                assert refused({"snapshot.0": broken}, version) == "java.io.IOException: CRC corruption"


def test_other_bytes_in_place_of_a_digest() -> None:
    only_zxid = snapshot(ROOT, sections=(i8(0),))
    assert load({"snapshot.0": only_zxid}, **{"digest.enabled": False}).file is not None
    assert "Unreasonable length" in refused({"snapshot.0": only_zxid})
    # Digests before version 2 were strings: no release wrote them.
    old = snapshot(ROOT, sections=(i8(3) + i4(1) + buf(b"ff"), i8(0)))
    assert load({"snapshot.0": old}).digest_zxid == 3
    with pytest.raises(Thrown, match='NumberFormatException: For input string: "xyz" under radix 16'):
        load({"snapshot.0": snapshot(ROOT, sections=(i8(3) + i4(1) + buf(b"xyz"), i8(0)))})


def test_digest_is_compared_unless_older_than_the_name() -> None:
    result = snapshot(ROOT, sections=(i8(7) + i4(2) + i8(99), i8(7)))
    assert load({"snapshot.8": result}).digest_zxid is None
    assert load({"snapshot.6": result}).digest_zxid == 7
    # Without digests its bytes are taken for a zxid and a seal.
    assert refused({"snapshot.6": result}, **{"digest.enabled": False}).startswith("java.io.")
    opened = start(data_directory({"snapshot.6": result}))
    assert "is not covering the snapshot digest zxid 0x7" in opened.verdict.warnings[0]
    opened = start(data_directory({"snapshot.7": result}))
    assert "Digests are not matching" in opened.verdict.warnings[0]
    assert "from zxid 0x7 on (one transaction)" in opened.verdict.warnings[0]


@pytest.mark.parametrize("size", [3, 4, 15, 16, 19, 30, 0x3B, 0x80, TREE_END - 1, TREE_END, TREE_END + 5])
def test_snapshot_truncated_before_its_end(size: int) -> None:
    result = FRESH[:size] + buf(b"/")
    message = refused(
        {"snapshot.0": result + bytes(max(0, 5 - size)) + buf(b"/") if len(result) < 10 else result}
    )
    assert message.startswith(("java.io.EOFException", "java.io.IOException"))


def test_string_of_a_checksum_mark_is_ignored() -> None:
    assert load({"snapshot.0": FRESH[: TREE_END + 10] + buf(b"/")}).file is not None


def test_wrong_magic_rejects_the_snapshot() -> None:
    assert refused({"snapshot.0": b"ZKLG" + FRESH[4:]}) == (
        "java.io.IOException: mismatching magic headers 1514884167 !=  1514885966"
    )


# Content


def test_nodes_a_server_rejects() -> None:
    orphan = snapshot(ROOT, (b"/a/b", -1, 0))
    assert refused({"snapshot.0": orphan}) == (
        "java.io.IOException: Invalid Datatree, unable to find parent /a of path /a/b"
    )
    stranger = snapshot(ROOT, (b"/a", -1, -(1 << 56) | 3 << 40))
    with pytest.raises(
        Thrown, match=r"IllegalArgumentException: Invalid ephemeralOwner. \[ff00030000000000\]"
    ):
        load({"snapshot.0": stranger, "snapshot.-5": FRESH}, extendedTypesEnabled=True)
    assert load({"snapshot.0": stranger}).tree is not None
    # The first one that is wrong decides.
    both = [ROOT, (b"/x/y", -1, 0), (b"/a", -1, -(1 << 56) | 3 << 40)]
    assert "Invalid Datatree" in refused({"snapshot.0": snapshot(*both)}, extendedTypesEnabled=True)
    with pytest.raises(Thrown, match="Invalid ephemeralOwner"):
        load({"snapshot.0": snapshot(ROOT, both[2], both[1])}, extendedTypesEnabled=True)
    null = snapshot(ROOT, (None, -1, 0))
    for version in ("3.9.5", "3.4.14"):
        with pytest.raises(Thrown) as caught:
            load({"snapshot.0": null}, version)
        assert str(caught.value) == "java.lang.NullPointerException"


def test_path_without_a_slash_is_the_root() -> None:
    odd = {"snapshot.5": snapshot(ROOT, (b"/a", -1, 0), (b"abc", -1, 0)), "snapshot.3": snapshot(ROOT)}
    opened = start(data_directory(odd))
    assert opened.verdict.serves["snapshot"] == "snapshot.5"
    assert [
        warning
        for warning in opened.verdict.warnings
        if warning.startswith("the node 'abc', whose path has no slash, is the root")
    ]
    # The last one counts.
    early = start(data_directory({"snapshot.5": snapshot((b"abc", -1, 0), ROOT, (b"/a", -1, 0))}))
    assert not [warning for warning in early.verdict.warnings if "slash" in warning]
    assert len(server(early).tree) == len(server(opened).tree) == 2


def test_quota_of_the_root_ends_the_start() -> None:
    below = b"/zookeeper/quota"
    nodes = [ROOT, (b"/zookeeper", -1, 0), (below, -1, 0), (below + b"/zookeeper_limits", -1, 0)]
    with pytest.raises(Thrown, match="IllegalArgumentException: Invalid path: "):
        load({"snapshot.5": snapshot(*nodes), "snapshot.0": FRESH})


def test_later_of_two_nodes_with_one_path_counts() -> None:
    loaded = load({"snapshot.0": snapshot(ROOT, (b"/a", -1, 0), (b"/a", -1, 5))})
    assert loaded.tree is not None
    node = node_at(loaded.tree, b"/a")
    assert node is not None
    assert node.stat["owner"] == 5
    assert len(loaded.tree) == 2


def acl(number: int, scheme: bytes | None, name: bytes | None) -> bytes:
    return i8(number) + i4(1) + i4(31) + buf(scheme) + buf(name)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            i4(1) + i8(1) + i4(-1),
            "RuntimeException: Incorrent format of InputArchive when deserialize DataTree - missing acls",
        ),
        (
            i4(1) + acl(1, None, b"x"),
            'NullPointerException: Cannot invoke "String.hashCode()" because "this.scheme" is null',
        ),
        (i4(2) + acl(1, b"ip", b"x") + acl(2, b"x", None), 'NullPointerException: .*"this.id" is null'),
    ],
)
def test_invalid_acl_tables_end_the_start(table: bytes, message: str) -> None:
    with pytest.raises(Thrown, match=message.replace("(", r"\(").replace(")", r"\)")):
        load({"snapshot.5": snapshot(ROOT, acls=table), "snapshot.0": FRESH})


def test_what_a_rejected_snapshot_leaves_behind() -> None:
    sessions = i4(2) + i8(7) + i4(4000) + i8(8) + i4(5000)
    rejected = snapshot(ROOT, sessions=sessions, acls=i4(1) + acl(41, b"ip", b"x"))[:-6] + b"?" + buf(b"/")
    older = snapshot(ROOT, (b"/e", 2, 7), sessions=i4(1) + i8(8) + i4(1), acls=i4(1) + acl(2, b"ip", b"y"))
    loaded = load({"snapshot.5": rejected, "snapshot.0": older})
    assert [name for name, _ in loaded.rejected] == ["snapshot.5"]
    assert loaded.tree is not None
    assert loaded.tree.session_timeouts == {7: 4000, 8: 1}
    assert loaded.acl_index == 41
    # So the node of session 7 is not deleted.
    opened = start(data_directory({"snapshot.5": rejected, "snapshot.0": older}))
    assert opened.verdict.rows == 2
    assert start(data_directory({"snapshot.0": older})).verdict.rows == 1


def test_snapshot_with_truncated_sessions_is_refused() -> None:
    cut = FRESH[:16] + i4(1000) + i8(7) + i4(5) + buf(b"/")
    assert refused({"snapshot.0": cut}) == "java.io.EOFException"
    assert load({"snapshot.0": snapshot(ROOT, sessions=i4(-5))}).sessions == {}


@pytest.mark.parametrize("name", ["snapshot.0.gz", "snapshot.0.snappy"])
def test_damage_in_a_compressed_snapshot_is_met_while_reading(name: str) -> None:
    pack: Callable[[bytes], bytes] = (
        gzip.compress if name.endswith("gz") else lambda data: compress("snappy", data)
    )
    assert load({name: pack(FRESH)}).file is not None
    for cut in (40, 70):
        assert refused({name: pack(FRESH)[:cut]}).startswith(("java.io.EOFException", "java.io.IOException"))
    # A section that is missing is no damage, a stream that ends within one is: but its end is that of a file, for a server.
    assert load({name: pack(snapshot(ROOT))}).file is not None
    if name.endswith("gz"):
        assert load({name: pack(snapshot(ROOT))[:-8]}).file is not None
        trailer = pack(snapshot(ROOT))
        assert "Corrupt GZIP trailer" in refused({name: trailer[:-1] + b"?"})
