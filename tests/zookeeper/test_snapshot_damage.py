"""Damaged snapshots: faults have positions, later nodes are found, and nothing is invented."""

from __future__ import annotations

import gzip
import time
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from logwright.codec import registry
from logwright.codec.base import Match
from logwright.codec.describe import I32BE, I64BE
from logwright.codec.fault import DamageError, Kind, Severity, UsageError
from logwright.codec.option import Options
from logwright.codec.window import Window
from logwright.codec.zookeeper.formats.snapshot import acl, sections
from logwright.codec.zookeeper.formats.snapshot import layout as node
from logwright.codec.zookeeper.formats.snapshot.sections import DIGEST, HEADER, LAST_PROCESSED, SESSIONS
from logwright.codec.zookeeper.state import digest
from logwright.corpora import cases
from logwright.readers.stream import Mode
from logwright.roundtrip import laws
from logwright.roundtrip.specimen import Read, Specimen

WORLD = [{"perms": 31, "id": {"scheme": b"world", "id": b"anyone"}}]
STAT = {
    "czxid": 3, "mzxid": 3, "ctime": 1000, "mtime": 1000, "version": 0,
    "cversion": 0, "aversion": 0, "ephemeral_owner": 0, "pzxid": 3,
}  # fmt: skip


def packed_node(path: str, data: bytes | None = b"x", number: int = 1, **stat: int) -> bytes:
    return node.NODE.pack({"path": path.encode(), "data": data, "acl": number, "stat": {**STAT, **stat}})


def many(count: int, size: int = 10) -> list[bytes]:
    return [packed_node("", b""), *(packed_node(f"/n{i}", b"d" * size) for i in range(count))]


def head(sessions: int = 0, lists: int = 1) -> bytes:
    return (
        HEADER.pack({})
        + SESSIONS.pack({"sessions": [{"id": i, "timeout": 5} for i in range(sessions)]})
        + acl.ACLS.pack({"entries": [{"id": i + 1, "acl": WORLD} for i in range(lists)]})
    )


def sealed(body: bytes, form: tuple[bool, bool] = (True, True)) -> bytes:
    """Append the end mark and all checksums."""
    body += sections.END_MARK
    for there, target in (
        (True, b""),
        (form[0], DIGEST.pack({"zxid": 3, "digest_version": 2, "digest": 5, "checksum": 0})),
        (form[1], LAST_PROCESSED.pack({"last_processed_zxid": 3, "checksum": 0})),
    ):
        if there:
            body += target[: -sections.SEAL_SIZE]
            body += I64BE.pack(zlib.adler32(body), {}) + sections.END_MARK
    return body


def snapshot(*nodes: bytes, **options: Any) -> bytes:
    return sealed(head(**options) + b"".join(nodes))


def specimen(data: bytes, name: str = "snapshot.3") -> Specimen:
    return Specimen.of(data, "zookeeper.snapshot", name)


def read(data: bytes, name: str = "snapshot.3", **options: Any) -> Read:
    return specimen(data, name).read(**options)


def paths(actual: Read) -> list[str]:
    listed: list[str] = actual.table["path"].to_pylist()
    return listed


def errors(actual: Read) -> set[Kind]:
    return {fault.kind for fault in actual.report.faults if fault.severity is Severity.ERROR}


SOUND = snapshot(*many(6), sessions=2)


def test_undamaged_snapshot_has_no_faults() -> None:
    result = read(SOUND, mode=Mode.FAILFAST)
    assert paths(result) == ["/", *(f"/n{i}" for i in range(6))]
    assert not result.report.faults
    assert laws.kernel_equals_description(specimen(SOUND))


@pytest.mark.extended
def test_every_bit_flip_is_reported() -> None:
    """Only the damaged node or the one before it is lost; if the header is damaged, all nodes are found."""
    starts = specimen(SOUND).read("frames").table.to_pylist()
    for at in range(0, len(SOUND), 2):
        damaged = bytearray(SOUND)
        damaged[at] ^= 1 << at // 2 % 8
        kind = next(f["kind"] for f in reversed(starts) if f["position"] <= at)
        result = read(bytes(damaged), columns="path")
        assert result.report.errors, at
        with pytest.raises(DamageError):
            read(bytes(damaged), columns="path", mode=Mode.FAILFAST)
        if kind not in ("sessions", "acls"):
            assert len(paths(result)) >= 5, at
        verdict = laws.decode_encode(specimen(bytes(damaged))) if at % 5 == 0 else True
        assert verdict, verdict


@pytest.mark.parametrize("at", [0, 3, 15, 16, 18, 40, 46, 59, 60, 130, 400])
def test_truncated_snapshot_is_reported(at: int) -> None:
    table = read(SOUND[:at])
    assert Kind.TRUNCATED in errors(table) or at in (18, 40, 46, 59)
    assert errors(table)
    assert laws.decode_encode(specimen(SOUND[:at]))


@pytest.mark.extended
def test_snapshot_truncated_anywhere_round_trips() -> None:
    for at in range(0, len(SOUND), 7):
        verdict = laws.decode_encode(specimen(SOUND[:at]))
        assert verdict, verdict


@pytest.mark.parametrize("version", [0, 3])
def test_digest_of_another_version_is_kept_with_its_tree(version: int) -> None:
    """A version of 0, as zeroed bytes have it, is a value. A digest that is recomputed has the current version."""
    data = bytearray(SOUND)
    place = len(SOUND) - sections.LAST_SIZE - sections.DIGEST_SIZE + DIGEST.offset("digest_version")
    data[place : place + 4] = version.to_bytes(4, "big")
    damaged = specimen(bytes(data))
    verdict = laws.decode_encode(damaged)
    assert verdict, verdict
    rows, frames, file = damaged.tables()
    assert file["digest_version"].to_pylist() == [version]
    changed = specimen(damaged.encode(rows.slice(0, len(rows) - 1), frames, file)).tables()[2]
    assert changed["digest_version"].to_pylist() == [2]


@pytest.mark.parametrize("more", [b"\0" * 5000, b"x" * 30, b"\0" * 3 + b"z" * 200])
def test_bytes_after_the_end_are_kept(more: bytes) -> None:
    result = read(SOUND + more)
    assert len(result.table) == 7
    assert errors(result) == {Kind.TRUNCATED}
    assert result.report.faults[-1].length == len(more)
    assert laws.decode_encode(specimen(SOUND + more))


@pytest.mark.parametrize("form", sections.FORMS)
def test_zxid_equal_to_an_end_mark(form: tuple[bool, bool]) -> None:
    """The checksums decide which reading is right."""
    body = head() + b"".join(many(2)) + sections.END_MARK
    body += I64BE.pack(zlib.adler32(body), {}) + sections.END_MARK
    body += I64BE.pack(0x7F_000001_2F, {})
    body += I64BE.pack(zlib.adler32(body), {}) + sections.END_MARK
    reread = read(body, mode=Mode.FAILFAST)
    assert len(reread.table) == 3
    (file,) = specimen(body).read("file").table.to_pylist()
    assert file["last_processed_zxid"] == 0x7F_000001_2F
    # Both readings with wrong seals: the likelier one is taken.
    damaged = bytearray(body)
    damaged[5] ^= 1
    assert len(read(bytes(damaged)).table) == 3
    result = sealed(head() + b"".join(many(2)), form)
    assert not read(result).report.faults


# The seals


def test_damaged_checksum_mark_is_reported_at_its_seal() -> None:
    damaged = bytearray(SOUND)
    seal = len(SOUND) - 54 - 13
    damaged[seal + 7] ^= 4
    (fault,) = read(bytes(damaged)).report.faults
    assert (fault.offset, fault.kind) == (seal, Kind.CHECKSUM)
    assert "the seal itself is damaged" in fault.detail
    assert laws.decode_encode(specimen(bytes(damaged)))
    damaged = bytearray(SOUND)
    damaged[-6] ^= 4
    (fault,) = read(bytes(damaged)).report.faults
    assert fault.offset == len(SOUND) - 21


def test_end_mark_without_a_checksum() -> None:
    damaged = bytearray(SOUND)
    damaged[len(SOUND) - 54 - 13] ^= 4
    result = read(bytes(damaged))
    assert len(result.table) == 7
    assert errors(result) == {Kind.TRUNCATED, Kind.PAYLOAD}
    assert laws.decode_encode(specimen(bytes(damaged)))


def test_changed_rows_of_a_damaged_file_get_new_checksums() -> None:
    damaged = bytearray(SOUND)
    damaged[SOUND.index(b"dddd")] ^= 1
    it = specimen(bytes(damaged))
    rows, frames, file = it.tables()
    assert it.encode(rows, frames, file) == bytes(damaged)
    data = [b"fresh"] * len(rows)
    changed = rows.set_column(rows.schema.get_field_index("data"), "data", pa.array(data, pa.binary()))
    result = it.with_bytes(it.encode(changed, frames, file)).read(mode=Mode.FAILFAST)
    assert not result.report.faults
    assert set(result.table["data"].to_pylist()) == {b"fresh"}


# Before the nodes


def test_nodes_after_an_impossible_session_count_are_read() -> None:
    damaged = SOUND[:16] + I32BE.pack(1 << 29, {}) + SOUND[20:]
    result = read(damaged)
    assert errors(result) == {Kind.CHECKSUM, Kind.LENGTH}
    # All but the root, which says nothing of itself.
    assert paths(result) == [f"/n{i}" for i in range(6)]
    assert result.table["acl"].to_pylist()[0] is None
    assert laws.decode_encode(specimen(damaged))


def test_negative_counts_are_damage() -> None:
    """A server reads them as zero."""
    body = HEADER.pack({}) + I32BE.pack(-7, {}) + acl.ACLS.pack({"entries": [{"id": 1, "acl": []}]})
    data = sealed(body[:-4] + I32BE.pack(-5, {}) + b"".join(many(1)))
    result = read(data, mode=Mode.FAILFAST)
    assert result.table["acl"].to_pylist()[1] == []
    assert laws.decode_encode(specimen(data))


def test_many_sessions_and_acl_lists() -> None:
    """More than the first read covers."""
    data = snapshot(*many(3), sessions=9000, lists=4000)
    result = read(data, mode=Mode.FAILFAST, window=4096)
    assert len(result.table) == 4
    it = specimen(data)
    assert len(it.read("sessions").table) == 9000
    assert len(it.read("acls").table) == 4000
    assert laws.decode_encode(it)


def test_nodes_are_read_after_a_damaged_acl_table() -> None:
    complete = snapshot(*many(3), lists=5000)
    at = complete.index(b"anyone", 100_000)
    damaged = complete[: at - 4] + b"\x7f\0\0\0" + complete[at:]
    result = read(damaged)
    assert len(result.table) == 3
    assert Kind.PAYLOAD in errors(result)
    assert result.table["acl"].to_pylist()[0] is not None
    assert laws.decode_encode(specimen(damaged))


def test_last_of_two_acls_with_one_number_counts() -> None:
    body = HEADER.pack({}) + SESSIONS.pack({"sessions": []})
    body += acl.ACLS.pack({"entries": [{"id": 1, "acl": WORLD}, {"id": 1, "acl": [*WORLD, *WORLD]}]})
    data = sealed(body + b"".join(many(1)))
    result = read(data, mode=Mode.FAILFAST)
    assert [len(row) for row in result.table["acl"].to_pylist()] == [2, 2]
    assert len(specimen(data).read("acls").table) == 2
    assert laws.decode_encode(specimen(data))


# Nodes


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (b"\xff\xff\xff\xff" + packed_node("/z")[4:], Kind.LENGTH),
        (packed_node("/z").replace(b"/z", b"zz"), Kind.LENGTH),
        (packed_node("/z/"), Kind.LENGTH),
        (packed_node("/z").replace(b"/z\0\0\0\1", b"/z\xff\0\0\1"), Kind.LENGTH),
        (packed_node("/z").replace(b"/z\0\0\0\1", b"/z\x6f\0\0\1"), Kind.LENGTH),
        (I32BE.pack(1, {}) + b"/" + b"junk" * 30, Kind.LENGTH),
        (packed_node("/z", number=77, ctime=-5)[:-3], Kind.PAYLOAD),
        (b"\0" * 90, Kind.PAYLOAD),
    ],
)
def test_bytes_that_are_not_a_node(bad: bytes, kind: Kind) -> None:
    nodes = many(6)
    data = snapshot(*nodes[:3], bad, *nodes[3:])
    result = read(data)
    assert paths(result) == ["/", *(f"/n{i}" for i in range(6))]
    assert errors(result) == {kind}
    assert result.report.faults[-1].length == len(bad)
    for window in (4096, 1 << 20):
        assert paths(read(data, window=window)) == paths(result)
    assert laws.decode_encode(specimen(data))
    assert laws.any_split(specimen(data), sizes=[1, 100, 300])


@pytest.mark.alike
@pytest.mark.parametrize("size", [0, 1, 3000, 4090, 5000, 70_000])
def test_unlikely_nodes_are_read(size: int) -> None:
    """If another node or the end follows, whatever it claims, and at any window position."""
    odd = {"number": 99, "ctime": -1, "mzxid": 1}
    nodes = [
        packed_node("", b"", -1),
        packed_node("/a", b"x" * size, **odd),
        packed_node("/b", **odd),
        packed_node("/m"),
        packed_node("", b""),
        packed_node("/c", b"y" * size, **odd),
    ]
    data = snapshot(*nodes)
    for window in (4096, 1 << 20):
        result = read(data, window=window)
        assert paths(result) == ["/", "/a", "/b", "/m", "/", "/c"]
        assert not result.report.errors
    (fault,) = read(data).report.faults
    assert "ACL 99 of the node is not in the ACL table (used by 2 later nodes too)" in fault.detail
    assert laws.decode_encode(specimen(data))
    assert laws.any_split(specimen(data), sizes=[1, 100, 5000])


def test_unlikely_node_at_the_end() -> None:
    """Without an end mark nothing confirms it."""
    data = head() + b"".join(many(2)) + packed_node("/odd", number=99) + b"\0\0"
    table = read(data)
    assert paths(table) == ["/", "/n0", "/n1"]
    assert errors(table) == {Kind.TRUNCATED}
    body = sealed(head() + b"".join(many(2)) + packed_node("/odd", number=99) + b"\0\0\0")
    assert Kind.LENGTH in errors(read(body)) or Kind.PAYLOAD in errors(read(body))


def test_many_missing_acl_lists_are_summarised() -> None:
    data = snapshot(packed_node("", b""), *(packed_node(f"/n{i}", number=100 + i) for i in range(30)))
    result = read(data)
    assert len(result.table) == 31
    assert len(result.report.faults) == 20
    assert result.report.errors == 0


def test_many_damaged_places_take_linear_time() -> None:
    """Takes linear time."""
    data = bytearray(snapshot(*many(20_000)))
    step = 5 * len(packed_node("/n10000", b"d" * 10))
    for at in range(3000, len(data) - 3000, step):
        data[at] ^= 0x80
    started = time.perf_counter()
    result = read(bytes(data), columns="path")
    assert len(result.table) > 12_000
    assert time.perf_counter() - started < 60


def test_false_node_starts_take_linear_time() -> None:
    """Paths that claim the rest of the file."""
    junk = (I32BE.pack(1 << 20, {}) + b"/aaa") * 40_000
    data = head() + b"".join(many(2)) + b"\xff" + junk
    started = time.perf_counter()
    result = read(data)
    assert len(result.table) == 3
    assert time.perf_counter() - started < 60


# Compressed


def _snappy(data: bytes) -> bytes:
    it = specimen(b"", "snapshot.3.snappy")
    rows, _, _ = specimen(data).tables()
    return it.encode(rows)


def test_nodes_around_a_damaged_snappy_chunk_are_read() -> None:
    """Nodes of the chunks before and after it are found, but no node that reaches into it."""
    rng = np.random.default_rng(3)
    nodes = [packed_node("", b""), *(packed_node(f"/n{i:03}", rng.bytes(900)) for i in range(150))]
    packed = bytearray(_snappy(snapshot(*nodes)))
    sound = read(bytes(packed), "snapshot.3.snappy", mode=Mode.FAILFAST)
    assert len(sound.table) == 154
    every = {row["path"]: row["data"] for row in sound.table.to_pylist()}
    second = 16 + 4 + int.from_bytes(packed[16:20], "big")
    packed[second + 4] ^= 0x40
    # The length the chunk claims: it is not needed.
    assert read(bytes(packed), "snapshot.3.snappy").table == sound.table
    packed[second + 7] = 0x03
    result = read(bytes(packed), "snapshot.3.snappy")
    rows = {row["path"]: row["data"] for row in result.table.to_pylist()}
    assert all(every[path] == data for path, data in rows.items())
    assert 90 < len(rows) < 125
    assert {"/n000", "/n149"} <= set(rows)
    assert errors(result) == {Kind.PAYLOAD, Kind.CHECKSUM}
    assert laws.decode_encode(specimen(bytes(packed), "snapshot.3.snappy"))


def test_node_across_a_damaged_snappy_chunk() -> None:
    nodes = [
        packed_node("", b""),
        packed_node("/a", b"1"),
        packed_node("/big", bytes(range(256)) * 400),
        packed_node("/z", b"2"),
    ]
    packed = bytearray(_snappy(snapshot(*nodes)))
    second = 16 + 4 + int.from_bytes(packed[16:20], "big")
    packed[second + 4 : second + 7] = b"\xff\xff\xff"
    table = read(bytes(packed), "snapshot.3.snappy")
    assert "/big" not in paths(table)
    assert {"/a", "/z"} <= set(paths(table))


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("snapshot.3.gz", SOUND, Kind.MAGIC),
        ("snapshot.3.snappy", SOUND, Kind.MAGIC),
        ("snapshot.3.gz", b"", Kind.TRUNCATED),
        ("snapshot.3.snappy", b"\x82SNA", Kind.TRUNCATED),
        ("snapshot.3.gz", b"\x1f\x8b\x08\x08" + b"\0" * 40, Kind.PAYLOAD),
        ("snapshot.3.snappy", b"\x82SNAPPY\0" + b"\xff" * 12, Kind.PAYLOAD),
        ("snapshot.3.gz", gzip.compress(b"", mtime=0), Kind.PAYLOAD),
    ],
)
def test_undecodable_compressed_file_is_reported(name: str, data: bytes, kind: Kind) -> None:
    result = read(data, name)
    assert not len(result.table)
    assert kind in errors(result)
    assert laws.decode_encode(specimen(data, name))


def test_decompression_bomb_is_bounded() -> None:
    data = gzip.compress(SOUND, mtime=0)
    it = Specimen.of(data, "zookeeper.snapshot", "snapshot.3.gz", **{"max.decompressed.bytes": 200})
    assert errors(it.read()) == {Kind.LENGTH}


def test_snapshot_of_several_gzip_members_is_read() -> None:
    data = gzip.compress(SOUND[:300], mtime=0) + gzip.compress(SOUND[300:], mtime=0)
    assert len(read(data, "snapshot.3.gz", mode=Mode.FAILFAST).table) == 7


# Kernels, and the rest of the codec


def test_digest_kernel_equals_the_description() -> None:
    """CRC-32 in the kernel as in zlib."""
    data = np.frombuffer(bytes(range(256)) * 3, np.uint8)
    for end in (0, 1, 7, 8, 9, 15, 16, 100, 768):
        value = digest.crc32_raw.py_func(0xFFFFFFFF, data, 0, end) ^ 0xFFFFFFFF
        assert value == zlib.crc32(data[:end].tobytes())
        assert digest.crc32_raw(0xFFFFFFFF, data, 0, end) ^ 0xFFFFFFFF == value
    with pytest.raises(IndexError):
        digest.crc32_raw.py_func(0, data, 0, 1000)


def test_snapshots_are_recognised_by_name_and_magic() -> None:
    codec = registry.get("zookeeper.snapshot")
    assert codec.recognise("snapshot.1f", SOUND) is Match.SURE
    assert codec.recognise("snapshot.1f", b"") is Match.NAME
    assert codec.recognise("snapshot.1f.gz", b"\x1f\x8b") is Match.SURE
    assert codec.recognise("snapshot.zz", SOUND) is Match.MAYBE
    assert codec.recognise("log.1f", b"ZKLG") is Match.NO
    it = Specimen.of(SOUND, "zookeeper.snapshot", "whatever")
    assert it.read("file").table["zxid"].to_pylist() == [None]


def test_node_between_damaged_nodes_is_found() -> None:
    nodes = many(6)
    bad = b"\xff" * 40
    table = read(snapshot(*nodes[:3], bad, nodes[3], bad, *nodes[4:]))
    assert paths(table) == ["/", *(f"/n{i}" for i in range(6))]


@pytest.mark.alike
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("tail", [b"", b"\0" * 9])
def test_any_window_size_gives_the_same_rows(check: bool, tail: bytes) -> None:
    """A window of any size gives its nodes, or the number of bytes needed."""
    odd = packed_node("/odd", number=99)
    data = np.frombuffer(
        snapshot(packed_node("", b""), odd, packed_node("/b", b"y" * 9), odd, sessions=1) + tail, np.uint8
    )
    it = specimen(data.tobytes())

    def scanned(size: int) -> Any:
        context = it.context()
        it.codec.prepare(lambda offset, length: data[offset : offset + length], len(data), context)  # type: ignore[attr-defined]
        return it.codec.scan(Window(data[:size], 0, len(data)), 0, context, check=check)

    complete = scanned(len(data))
    starts = complete.start.tolist()
    for size in range(1, len(data)):
        actual = scanned(size)
        assert actual.damage is None or size >= complete.stop
        assert actual.start.tolist() == starts[: len(actual)]
        assert actual.need > size - actual.stop or actual.stop == size or actual.damage is not None
        if not check and len(actual) < len(starts):
            # These bytes hold the whole frame, or not even its lengths; an end mark needs the sections after it.
            expected = [
                int(complete.end[len(actual)]) - actual.stop,
                min(sections.LARGEST_ENDING, len(data) - actual.stop),
            ]
            assert actual.need in expected or size - actual.stop < 30


def test_acl_table_truncated_within_a_list() -> None:
    body = HEADER.pack({}) + SESSIONS.pack({"sessions": []})
    table = acl.ACLS.pack({"entries": [{"id": i, "acl": WORLD * 5} for i in (1, 2)]})
    assert errors(read(body + table[:-14])) == {Kind.TRUNCATED, Kind.PAYLOAD}


def test_null_scheme_or_id_in_an_acl() -> None:
    """No server writes it; the stored bytes round-trip."""
    body = HEADER.pack({}) + SESSIONS.pack({"sessions": []})
    lists = [[{"perms": 3, "id": {"scheme": None, "id": None}}], []]
    body += acl.ACLS.pack({"entries": [{"id": i + 1, "acl": each} for i, each in enumerate(lists)]})
    data = sealed(body + packed_node("", b"") + packed_node("/a") + packed_node("/b", number=2))
    result = read(data, mode=Mode.FAILFAST)
    assert result.table["acl"].to_pylist()[1:] == [[{"perms": 3, "scheme": None, "id": None}], []]
    assert laws.decode_encode(specimen(data))
    it = specimen(data)
    assert it.with_bytes(it.encode(result.table)).read().table["acl"].to_pylist()[1] == [
        {"perms": 3, "scheme": None, "id": None}
    ]


def test_sections_read_by_window_and_from_a_start() -> None:
    data = snapshot(*many(300))
    it = specimen(data)
    frames = it.read("frames", columns="payload, checksum, kind", window=4096).table
    assert frames["payload"].null_count == len(frames)
    assert frames["checksum"].null_count == len(frames) - 3
    last = int(it.read("frames").table["position"].to_pylist()[-1])
    assert not len(it.read("sessions", start=last).table)
    assert not len(it.read("acls", start=last).table)


def test_windows_of_a_compressed_snapshot() -> None:
    rng = np.random.default_rng(1)
    data = gzip.compress(snapshot(packed_node("", b""), packed_node("/a", rng.bytes(20_000))), mtime=0)
    it = specimen(data, "snapshot.3.gz")
    assert len(it.read(window=4096, mode=Mode.FAILFAST).table) == 2
    assert laws.any_split(it, sizes=[1, 5000])
    context = it.context()
    described = it.codec.describe_file(
        Window(np.zeros(0, np.uint8), 0, 9), 9, 0, b"x", 0, context
    ).to_pylist()[0]
    assert (described["size"], described["sessions"], described["compression"]) == (9, None, "gzip")
    window = Window(np.frombuffer(data, np.uint8), 0, len(data))
    behind = it.codec.scan(window, 5, context)
    assert (len(behind), behind.need, behind.damage) == (0, 0, None)
    assert not list(it.codec.decode(window, behind, "rows", ("path",), context))
    assert it.codec.resync(window, 5, context) == (-1, 0)


def test_tables_without_optional_columns_are_encoded() -> None:
    """A frames table without kinds and a file table without sessions and ACL lists."""
    it = specimen(SOUND)
    rows, frames, file = it.tables()
    table = it.with_bytes(it.encode(rows, frames.select(["position"]), file)).read(mode=Mode.FAILFAST)
    assert sorted(paths(table)) == sorted(paths(it.read()))
    bare = it.encode(
        rows,
        None,
        file.set_column(file.schema.get_field_index("acls"), "acls", pa.nulls(1, file["acls"].type)),
    )
    assert it.with_bytes(bare).read(mode=Mode.FAILFAST).table["acl"].to_pylist() == rows["acl"].to_pylist()


def test_file_shorter_than_listed() -> None:
    data = np.zeros(10, np.uint8)
    assert sections.running(lambda offset, length: data[offset : offset + length], [5, 99]) == [
        zlib.adler32(bytes(5)),
        zlib.adler32(bytes(10)),
    ]


def test_compressed_content_without_a_name() -> None:
    """The compression is given as an option."""
    packed = gzip.compress(SOUND, mtime=0)
    it = Specimen.of(packed, "zookeeper.snapshot", "whatever", **{"snapshot.compression.method": "gz"})
    assert len(it.read(mode=Mode.FAILFAST).table) == 7
    with pytest.raises(UsageError, match="no hint 'odd'"):
        it.codec.context("snapshot.1", Options(it.codec.options), directory="d", odd=1)


def test_sessions_and_acls_of_a_compressed_file() -> None:
    it = specimen(gzip.compress(SOUND, mtime=0), "snapshot.3.gz")
    for table in ("sessions", "acls"):
        assert it.read(table).table == specimen(SOUND).read(table).table
    (file,) = it.read("file").table.to_pylist()
    assert (file["compression"], file["digest"], len(file["sessions"])) == ("gzip", 5, 2)


def test_file_truncated_while_being_read() -> None:
    """It shrinks between two reads."""
    data = np.frombuffer(snapshot(*many(2), sessions=9), np.uint8)

    def read_less(offset: int, length: int) -> Any:
        return data[:60][offset : offset + length]

    shape = sections.Shape.of(read_less, len(data))
    assert (shape.sessions, shape.nodes, shape.ending) == (None, None, None)


def test_no_columns_and_single_fields() -> None:
    it = specimen(SOUND)
    context = it.context()
    window = Window(np.frombuffer(SOUND, np.uint8), 0, len(SOUND))
    frames = it.codec.scan(window, 0, context)
    for table, rows in (("rows", 7), ("frames", len(frames))):
        (result,) = it.codec.decode(window, frames, table, (), context)
        assert result.batch.num_rows == rows
    assert it.codec.frame_bounds(frames, "czxid") == (None, None)
    assert "czxid" in it.codec.field_names()  # type: ignore[attr-defined]
    for frame in it.read("frames").table.to_pylist():
        raw = SOUND[frame["position"] : frame["position"] + frame["size"]]
        named = sections.struct_of(raw).name
        names = {"FileHeader": "header", "acls": "acls", "sessions": "sessions"}
        assert names.get(named, named) == frame["kind"]
    changed = it.codec.edit(packed_node("/a"), ("data",), lambda old, kind: b"\0\0\0\2yy", reseal=False)  # type: ignore[attr-defined]
    assert b"yy" in changed


def test_frames_of_another_codec_are_refused() -> None:
    it = specimen(SOUND)
    rows, frames, file = it.tables()
    odd = frames.set_column(
        frames.schema.get_field_index("kind"), "kind", pa.array(["node"] * 7 + ["odd"] * (len(frames) - 7))
    )
    with pytest.raises(UsageError, match="no frames of kind 'odd'"):
        it.encode(rows, odd, file)


def test_options_add_and_remove_optional_sections() -> None:
    """Added to a file without them, and removed from a file with them."""
    data = sealed(head() + b"".join(many(2)), (False, False))
    rows, _, file = specimen(data).tables()
    with_both = Specimen.of(
        b"",
        "zookeeper.snapshot",
        "snapshot.3",
        **{"digest.enabled": True, "serializeLastProcessedZxid.enabled": True},
    )
    (result,) = with_both.with_bytes(with_both.encode(rows, None, file)).read("file").table.to_pylist()
    assert (result["digest_zxid"], result["last_processed_zxid"]) == (3, 3)
    rows, _, file = specimen(SOUND).tables()
    neither = Specimen.of(
        b"",
        "zookeeper.snapshot",
        "snapshot.3",
        **{"digest.enabled": False, "serializeLastProcessedZxid.enabled": False},
    )
    (result,) = neither.with_bytes(neither.encode(rows, None, file)).read("file").table.to_pylist()
    assert (result["digest_zxid"], result["last_processed_zxid"]) == (None, None)
    assert Options(it_options()).given("zxid") is False


def it_options() -> tuple[Any, ...]:
    return registry.get("zookeeper.snapshot").options


def test_damage_cases_exist() -> None:
    assert len(cases.cases("zookeeper")) == 95


@pytest.mark.parametrize(
    ("name", "more"), [("snapshot.42.gz", b"0123456789"), ("snapshot.42.snappy", b"012")]
)
def test_bytes_after_a_compressed_tree_are_a_warning(name: str, more: bytes) -> None:
    """Java ignores them. With Snappy, four bytes or more would be a chunk."""
    case = "snap_gz" if name.endswith("gz") else "snap_snappy"
    intact = (cases.cases("zookeeper")[case].path / "version-2" / name).read_bytes()
    assert read(intact, name).report.faults == []
    (fault,) = read(intact + more, name).report.faults
    assert (fault.kind, fault.severity) == (Kind.PADDING, Severity.WARNING)
    assert (fault.offset, fault.length) == (len(intact), len(more))


def test_second_gzip_member_is_part_of_the_tree() -> None:
    data = snapshot(*many(3))
    two = gzip.compress(data[:100]) + gzip.compress(data[100:])
    assert read(two, "snapshot.3.gz").report.faults == []
    (fault,) = read(two + b"/", "snapshot.3.gz").report.faults
    assert (fault.offset, fault.length) == (len(two), 1)
