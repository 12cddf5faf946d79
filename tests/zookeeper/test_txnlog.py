"""The codec `zookeeper.txnlog`: golden files, rows, and damage with the records after it."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zookeeper_tools import as_logged, logged

from logwright.codec import registry
from logwright.codec.base import Match
from logwright.codec.fault import Fault, Severity, UsageError
from logwright.codec.option import Options
from logwright.codec.window import Window
from logwright.codec.zookeeper.formats.txnlog import layout as txns
from logwright.codec.zookeeper.formats.txnlog import scan as records
from logwright.codec.zookeeper.formats.txnlog.codec import CODEC
from logwright.codec.zookeeper.formats.txnlog.layout import FILE_HEADER, PAYLOAD, RECORD
from logwright.codec.zookeeper.formats.txnlog.rows import ROWS
from logwright.corpora import cases
from logwright.readers.stream import Mode
from logwright.roundtrip import laws
from logwright.roundtrip.specimen import Specimen

CASES = cases.cases("zookeeper")
FILES = [
    path for case in CASES.values() for path in sorted(case.path.rglob("log.*")) if "tools" not in path.parts
]


def _id(path: Path) -> str:
    return "/".join(path.parts[-3:])


def _log(case: str, name: str = "log.17") -> Specimen:
    return Specimen.of(CASES[case].path / "version-2" / name)


def _of(data: bytes, name: str = "log.1", **options: Any) -> Specimen:
    return Specimen.of(data, CODEC, name, **options)


def _faults(specimen: Specimen) -> list[Fault]:
    """Without the zeros that are allocated ahead."""
    return [fault for fault in specimen.read().report.faults if fault.severity is not Severity.INFO]


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    names = [name for name in ROWS.names(detail=True) if any(name in row for row in rows)]
    return pa.Table.from_pylist(rows, ROWS.schema(names))


def _made(*payloads: bytes) -> bytes:
    return FILE_HEADER.pack({}) + b"".join(_record(payload) for payload in payloads)


def _record(payload: bytes) -> bytes:
    import zlib

    return zlib.adler32(payload).to_bytes(8, "big") + len(payload).to_bytes(4, "big") + payload + b"B"


def _payload(zxid: int, kind: int = txns.ERROR, body: Any = None, **more: Any) -> bytes:
    body = {"err": -101} if body is None else body
    return PAYLOAD.pack(
        {
            "client_id": 7,
            "cxid": 1,
            "zxid": zxid,
            "time": 1700000000000 + zxid,
            "type": kind,
            "body": body,
            **more,
        }
    )


# Golden files


def test_golden_logs_exist() -> None:
    assert len(FILES) > 140


@pytest.mark.parametrize("multi", ["nested", "exploded"])
@pytest.mark.parametrize("path", FILES, ids=_id)
def test_golden_logs_decode_and_encode_to_the_same_bytes(path: Path, multi: str) -> None:
    verdict = laws.decode_encode(path, multi=multi)
    assert verdict, verdict


def test_kernels_equal_the_description() -> None:
    for path in FILES:
        # The damaged ones are much the same, and have frames less.
        if path.stat().st_size > 16 and not _id(path).startswith(("dmg_", "snap_", "fuzzy")):
            verdict = laws.kernel_equals_description(path)
            assert verdict, verdict


def test_any_split_gives_the_same_rows() -> None:
    for name in ("basic", "multi", "upgrade_chain"):
        verdict = laws.any_split(CASES[name].path / "version-2/log.1", sizes=[1, 100, 4096])
        assert verdict, verdict


def test_rows_equal_txn_log_toolkits() -> None:
    """The real TxnLogToolkit prints a line a transaction."""
    compared = 0
    for path in FILES:
        message = path.parent.parent / "tools" / f"{path.name}.TxnLogToolkit.txt"
        text = message.read_text(errors="replace") if message.exists() else ""
        if "exit 0" not in text or "EOF reached after" not in text:
            continue
        read = Specimen.of(path).read()
        if read.report.errors:
            continue  # the toolkit prints damaged records, too
        actual, expected = as_logged(read.table.to_pylist()), logged(text)
        assert actual == expected, path
        assert int(text.split("EOF reached after ")[1].split()[0]) >= len(actual)
        compared += len(actual)
    assert compared > 700


DAMAGE = {
    "dmg_flip_body": ("checksum mismatch", 506, 116, 1, (27, 27), "CRC check failed"),
    "dmg_flip_crc": ("checksum mismatch", 506, 116, 1, (27, 27), "CRC check failed"),
    "dmg_flip_eor": ("bad magic or version", 506, 116, 1, (27, 27), "stops reading"),
    "dmg_len_huge": ("bad length", 506, 116, 1, (27, 27), "Unreasonable length = 4194304"),
    "dmg_len_minus1": ("bad length", 506, 116, 1, (27, 27), "NullPointerException"),
    "dmg_len_past_eof": ("bad length", 506, 116, 1, (27, 27), "stops reading"),
    "dmg_len_plus": ("bad length", 506, 116, 1, (27, 27), "stops reading"),
    "dmg_len_zero": ("bad length", 506, 116, 1, (27, 27), "stops reading"),
    "dmg_log_magic": (
        "bad magic or version",
        0,
        16,
        0,
        None,
        "invalid magic number 1514884423 != 1514884167",
    ),
    "dmg_pad_garbage_near": ("bad length", 1299, 4861, None, (34, None), "Unreasonable length = 1397969747"),
    "dmg_trunc_tail_hdr": ("truncated", 0, 7, None, (23, None), "EOFException"),
}
"""Kind, place, size, rows and zxids lost, and a word of what a server does."""


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_reported(case: str) -> None:
    kind, offset, length, rows, zxids, word = DAMAGE[case]
    (fault,) = _faults(_log(case))
    lost = () if zxids is None else (fault.lost.get("first_zxid"), fault.lost.get("last_zxid"))
    assert (fault.kind, fault.offset, fault.length, fault.rows_lost) == (kind, offset, length, rows)
    assert lost == (zxids or ())
    assert word in fault.system
    assert fault.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("case", "offset", "length"),
    [
        ("dmg_trunc_tail_midbody", 1065, 64), ("dmg_trunc_tail_midcrc", 1065, 5), ("dmg_trunc_tail_midlen", 1065, 10),
        ("dmg_trunc_tail_noeor", 1065, 116), ("dmg_torn_zero_tail", 1065, 5095), ("dmg_pad_garbage_far", 1299, 4861),
        ("dmg_trunc_tail_0", 0, 0),
    ],
)  # fmt: skip
def test_damage_a_server_skips_is_not_an_error(case: str, offset: int, length: int) -> None:
    (fault,) = _faults(_log(case))
    assert (fault.offset, fault.length, fault.severity) == (offset, length, Severity.WARNING)
    assert _log(case).read().report.errors == 0


@pytest.mark.parametrize("case", ["dmg_base", "dmg_trunc_tail_boundary", "dmg_trunc_tail_16", "dmg_chopped"])
def test_sound_variants_have_no_faults(case: str) -> None:
    assert _faults(_log(case)) == []


def test_unusual_header_fields_are_notes() -> None:
    first, second = _faults(_log("dmg_log_hdr_fields"))
    assert "version is 9" in first.detail
    assert "dbid is 1234605616436508552" in second.detail
    file = _log("dmg_log_hdr_fields").read("file").table.to_pylist()[0]
    assert (file["version"], file["dbid"], file["file"]) == (9, 0x1122334455667788, 0x17)
    assert _log("dmg_log_magic").read("file").table["version"].to_pylist() == [None]


def test_zxids_out_of_order_are_reported() -> None:
    (gap,) = _faults(_log("syn_zxid_gap", "log.1"))
    assert (gap.kind, gap.rows_lost, dict(gap.lost)) == ("bad order", 6, {"first_zxid": 3, "last_zxid": 8})
    (second,) = _faults(_log("syn_zxid_repeat", "log.1"))
    assert "comes again" in second.detail
    assert _faults(_log("syn_epoch_jump", "log.1")) == []
    (lower,) = _faults(_of(_made(_payload(1 << 32 | 1), _payload(5)), "log.100000001"))
    assert "lower" in lower.detail
    many = _made(*(_payload(2 * n + 1) for n in range(80)))
    faults = _faults(_of(many))
    assert len(faults) == 65
    assert "15 more places" in faults[-1].detail
    (named,) = _faults(_of(_made(_payload(9)), "log.8"))
    assert "named after zxid 0x8" in named.detail


def test_unsupported_types() -> None:
    for case in ("syn_bad_type", "toplevel_check"):
        (fault,) = _faults(_log(case, "log.1"))
        assert fault.detail == "Unsupported Txn with type=13"
        assert fault.rows_lost == 1


def test_transactions_of_older_versions() -> None:
    rows = _log("syn_create_v0", "log.1").read(columns="*").table.to_pylist()
    assert {row["parent_cversion"] for row in rows if row["type"] == "create"} == {None}
    closed = _log("closesession_nobody", "log.1").read(columns="*").table.to_pylist()
    sessions = [row for row in closed if row["type"] == "closeSession"]
    assert {row["paths_to_delete"] is None for row in sessions} == {True}
    assert all(row["tree_digest"] for row in sessions)


def test_text_that_is_not_utf8() -> None:
    rows = _log("acls", "log.1").read(columns="*").table.to_pylist()
    odd = [row for row in rows if row["acl_raw"] is not None]
    assert any(entry["id"] == "u\ufffd\ufffdx" for row in odd for entry in row["acl"])
    assert any(entry["id"] == b"u\xed\xa0\xbd\xed\xb8\x80x" for row in odd for entry in row["acl_raw"])


# Multis


def test_multi_rows_nested_and_exploded() -> None:
    path = CASES["multi"].path / "version-2/log.1"
    nested = Specimen.of(path).read(columns="*").table.to_pylist()
    exploded = Specimen.of(path, multi="exploded").read(columns="*").table.to_pylist()
    flat = []
    for row in nested:
        assert row["sub"] is None
        if row["txns"]:
            flat += [
                {**row, **dict.fromkeys(("txns",)), **item, "sub": i} for i, item in enumerate(row["txns"])
            ]
        else:
            flat.append(row)
    assert [row for row in exploded] == flat  # noqa: C416
    empty = [row for row in exploded if row["type"] == "multi"]
    assert [row["txns"] for row in empty] == [[]]
    # Either form of the rows alone gives the same bytes, as far as transactions go.
    end = int(Specimen.of(path).read("frames").table["position"].to_numpy()[-1])
    data = path.read_bytes()
    for multi in ("nested", "exploded"):
        specimen = Specimen.of(path, multi=multi)
        encoded = specimen.encode(specimen.read(columns="*").table)
        assert encoded[:end] == data[:end]
        assert len(encoded) < len(data)


def test_sub_transaction_of_an_unknown_type() -> None:
    body = {"txns": [{"type": 99, "data": b"xyz"}, {"type": txns.ERROR, "data": {"err": -2}}]}
    specimen = _of(_made(_payload(1, txns.MULTI, body)))
    (row,) = specimen.read().table.to_pylist()
    assert [entry["type"] for entry in row["txns"]] == ["unknown 99", "error"]
    assert specimen.encode(*specimen.tables()) == specimen.all_bytes()
    with pytest.raises(UsageError, match="'unknown 99', which is not written in a multi"):
        specimen.encode(specimen.read().table)
    rows, frames, file = specimen.tables()
    other = rows.set_column(rows.schema.get_field_index("cxid"), "cxid", pa.array([77], pa.int32()))
    with pytest.raises(UsageError, match="'unknown 99', which is not written in a multi"):
        specimen.encode(other, frames, file)


def _multi(count: int, *subs: bytes) -> bytes:
    empty = _payload(1, txns.MULTI, {"txns": []})[:-4]
    return empty + count.to_bytes(4, "big", signed=True) + b"".join(subs)


def _sub(kind: int, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return kind.to_bytes(4, "big", signed=True) + size.to_bytes(4, "big", signed=True) + body


def _body(kind: int, body: bytes) -> bytes:
    complete = _payload(1)[:-4]
    return complete[:28] + kind.to_bytes(4, "big", signed=True) + body


BAD = [
    _multi(1), _multi(2, _sub(-1, bytes(4))), _multi(2, _sub(2, b"\0\0\0\x10" + b"/" * 16)),
    _multi(1 << 30), _multi(1, _sub(-1, bytes(5))), _multi(1, _sub(-1, b"", -1)),
    _multi(1, _sub(-1, bytes(4), 9)), _multi(1, _sub(1, b"\0\0\0\1/")), _multi(0)[:-2], _payload(1)[:-2], _payload(1)[:20],
    _body(txns.DELETE, b"\0\0"), _body(txns.DELETE, b"\0\0\0\5/"), _body(txns.DELETE, b"\xff\xff\xff\xfe"),
    _body(txns.SET_DATA, b"\0\0\0\0" + b"\xff\xff\xff\xfe"), _body(txns.SET_DATA, b"\0\0\0\0" + b"\0\0\0\7"),
    _body(txns.SET_ACL, b"\0\0\0\0" + b"\0\0\0\7"), _body(txns.CREATE, b"\0\0\0\0" * 3), _body(txns.CREATE_TTL, bytes(16)),
    _body(txns.CREATE_TTL, bytes(12)),
]  # fmt: skip


@pytest.mark.parametrize("kind", [99, -99])
def test_unknown_type_with_a_valid_checksum_is_unsupported(kind: int) -> None:
    specimen = _of(_made(_body(kind, b""), _payload(2)))
    result = specimen.read()
    assert result.table["zxid"].to_pylist() == [2]
    assert [(fault.kind, fault.severity) for fault in result.report.faults if fault.length] == [
        ("unsupported", Severity.WARNING)
    ]
    assert specimen.encode(*specimen.tables()) == specimen.all_bytes()


@pytest.mark.parametrize("payload", BAD, ids=range(len(BAD)))
def test_undecodable_bodies(payload: bytes) -> None:
    specimen = _of(_made(payload, _payload(2)))
    result = specimen.read()
    assert result.table["zxid"].to_pylist() == [2]
    assert [fault.kind for fault in result.report.faults if fault.severity is Severity.ERROR] == [
        "bad payload"
    ]
    assert specimen.encode(*specimen.tables()) == specimen.all_bytes()
    # With other rows in its place, it is not written from what is stored.
    rows, frames, file = specimen.tables()
    assert len(specimen.encode(rows.slice(0, 0), frames, file)) == 16 + len(_record(payload))


ODD = [
    _multi(-1), _multi(-7), _payload(1, rest=b"12345"), _payload(1, digest={"version": 2, "tree_digest": 1}, rest=b"x"),
    _body(txns.CLOSE_SESSION, b"\xff\xff\xff\xff"), _body(txns.CLOSE_SESSION, b"\xff\xff\xff\xf0"),
    _body(txns.CLOSE_SESSION, b"\0\0"), _body(txns.CLOSE_SESSION, b"\0\0\0\1\0\0\0\1\xff"),
    _body(txns.CLOSE_SESSION, b"\0\0\0\1\0\0\0\7x"), _body(txns.CLOSE_SESSION, b"\0\0\0\1\xff\xff\xff\0x"),
    _body(txns.CLOSE_SESSION, b"\0\0\0\2" + bytes(19)), _body(txns.CLOSE_SESSION, b"\7\0\0\2"),
    _body(txns.CREATE, b"\0\0\0\1/" + b"\xff\xff\xff\xff" * 2 + b"\7" + bytes(4)),
    _body(txns.DELETE, b"\0\0\0\1\xff"), _body(txns.DELETE, "\0\0\0\4\U0001f600".encode()),
    _body(txns.SET_ACL, b"\xff\xff\xff\xff" + b"\xff\xff\xff\xf0" + bytes(4)),
    _body(txns.SET_ACL, b"\0\0\0\0" + b"\0\0\0\1" + bytes(4) + b"\0\0\0\1\xff" + b"\0\0\0\1a" + bytes(4)),
]  # fmt: skip


@pytest.mark.parametrize("payload", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("multi", ["nested", "exploded"])
def test_unusual_forms_round_trip(payload: bytes, multi: str) -> None:
    specimen = _of(_made(payload), multi=multi)
    assert specimen.read().report.faults_total == 0
    assert specimen.read().table.num_rows == 1
    rows, frames, file = specimen.tables()
    assert frames["payload"].to_pylist() == [None, payload]
    assert specimen.encode(rows, frames, file) == specimen.all_bytes()
    # Where the rows say something else, that is written.
    other = rows.set_column(rows.schema.get_field_index("cxid"), "cxid", pa.array([77], pa.int32()))
    changed = specimen.with_bytes(specimen.encode(other, frames, file))
    assert changed.read().table["cxid"].to_pylist() == [77]


# Past damage


def _with_damage(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def test_log_embedded_in_a_nodes_data() -> None:
    inner = _made(*(_payload(zxid) for zxid in range(3, 9)))
    body = {"path": b"/log", "data": inner, "acl": None, "ephemeral": 0, "parent_cversion": 1}
    before, outer, after = _payload(1), _payload(2, txns.CREATE, body), _payload(3)
    data = _made(before, outer, after)
    start, end = 16 + len(_record(before)), 16 + len(_record(before)) + len(_record(outer))
    flips = {
        "body": (end - 3, b"\xff"), "checksum": (start + 7, b"\0"), "high": (start, b"\1"), "length": (start + 10, b"\x07"),
        "huge": (start + 8, b"\x7f"), "mark": (end - 1, b"C"), "zero": (start + 8, bytes(4)),
    }  # fmt: skip
    for name, (at, new) in flips.items():
        specimen = _of(_with_damage(data, at, new))
        result = specimen.read()
        assert result.table["zxid"].to_pylist() == [1, 3], name
        (fault,) = result.report.faults
        assert (fault.offset, fault.length) == (start, end - start), name
        assert dict(fault.lost) == {"first_zxid": 2, "last_zxid": 2}


def test_record_after_damage_must_follow_in_order() -> None:
    """Both the length and the data are damaged: what is in it is known by its zxids, or by where it leads."""
    inner = _made(*(_payload(zxid) for zxid in range(700, 706)))
    body = {"path": b"/log", "data": inner, "acl": None, "ephemeral": 0, "parent_cversion": 1}
    before, outer, after = _payload(1), _payload(2, txns.CREATE, body), _payload(3)
    data = _made(before, outer, after)
    start = 16 + len(_record(before))
    broken = _with_damage(_with_damage(data, start + 10, b"\xff"), start + 20, b"\xff")
    assert _of(broken).read().table["zxid"].to_pylist() == [1, 3]
    # The first one is damaged: the file's name says what may follow.
    first = _made(outer, after)
    broken = _with_damage(_with_damage(first, 16 + 10, b"\xff"), 16 + 20, b"\xff")
    assert _of(broken, "log.2").read().table["zxid"].to_pylist() == [3]
    # Without a name, what leads to the end of the log is taken.
    assert _of(broken, "memory").read().table["zxid"].to_pylist() == [3]
    # A record with a zxid out of order, at the end.
    odd = _made(_payload(1), _payload(2), _payload(90))
    assert _of(_with_damage(odd, 16 + 49 + 20, b"\xff")).read().table["zxid"].to_pylist() == [1, 90]
    padded = _with_damage(odd, 16 + 49 + 20, b"\xff") + bytes(40)
    assert _of(padded).read().table["zxid"].to_pylist() == [1, 90]
    jump = _made(_payload(1), _payload(2), _payload(5 << 32 | 1), _payload(5 << 32 | 2))
    specimen = _of(_with_damage(jump, 16 + 49 + 20, b"\xff"))
    assert specimen.read().table["zxid"].to_pylist() == [1, 5 << 32 | 1, 5 << 32 | 2]
    (fault,) = specimen.read().report.faults
    assert (fault.rows_lost, dict(fault.lost)) == (None, {"first_zxid": 2})
    late = _made(_payload(1), _payload(2), _payload(5 << 32 | 2))
    (fault,) = _of(_with_damage(late, 16 + 49 + 20, b"\xff")).read().report.faults
    assert dict(fault.lost) == {"first_zxid": 2, "last_zxid": 5 << 32 | 1}


def test_lost_zxid_range_at_the_start_and_the_end() -> None:
    data = _made(_payload(5), _payload(6), _payload(7))
    broken = _with_damage(data, 16 + 20, b"\xff")
    assert dict(_of(broken, "log.5").read().report.faults[0].lost) == {"first_zxid": 5, "last_zxid": 5}
    assert dict(_of(broken, "memory").read().report.faults[0].lost) == {"last_zxid": 5}
    last = _with_damage(data, len(data) - 10, b"\x77")
    assert dict(_of(last, "log.5").read().report.faults[0].lost) == {"first_zxid": 7}
    # The second of two that are the same is damaged, and what follows is no more than that.
    second = _made(_payload(5), _payload(5), _payload(5))
    (fault,) = _faults(_of(_with_damage(second, 16 + 49 + 20, b"\xff"), "log.5"))
    assert (fault.rows_lost, dict(fault.lost)) == (None, {})
    wrong = _with_damage(_made(_payload(5), _payload(6)), 0, b"X")
    (fault,) = _faults(_of(wrong, "log.5"))
    assert (fault.rows_lost, dict(fault.lost)) == (0, {})


def test_false_headers_take_linear_time() -> None:
    """Each claims much of the file, and has its mark: sums are not made again and again."""
    size = 1 << 18
    data = bytearray(b"B" * size)
    data[:16] = FILE_HEADER.pack({})
    head = bytes(4) + b"\1\1\1\1" + (size // 2).to_bytes(4, "big") + bytes(28) + (1).to_bytes(4, "big")
    for at in range(16, size // 2 - 80, 64):
        data[at : at + len(head)] = head
    specimen = _of(bytes(data))
    assert specimen.read().table.num_rows == 0
    good = bytes(data) + _record(_payload(4))
    assert _of(good).read().table["zxid"].to_pylist() == [4]


def test_bytes_that_look_like_a_record() -> None:
    """Bytes behind damage that look like the head of a record: of no known type, with a zxid below 0, without a mark."""
    item = _record(_payload(1))
    unknown, negative, no_mark = bytearray(item), bytearray(_record(_payload(-5))), bytearray(item)
    unknown[40:44] = (22).to_bytes(4, "big")
    no_mark[-1] = 0x43
    for between in (unknown, negative, no_mark):
        data = _made(_payload(1)) + b"\xff" * 20 + bytes(between) + _record(_payload(2))
        assert _of(data).read().table["zxid"].to_pylist() == [1, 2]


def test_small_windows() -> None:
    body = {"path": b"/a", "data": bytes(range(256)) * 80, "acl": None, "ephemeral": 0, "parent_cversion": 1}
    data = _made(*(_payload(zxid, txns.CREATE, body) for zxid in range(1, 9)))
    start = 16 + 2 * len(_record(_payload(1, txns.CREATE, body)))
    for broken in (data, _with_damage(data, start + 50, b"\xff"), _with_damage(data, start + 8, b"\0\xff")):
        specimen = _of(broken + bytes(20_000))
        expected = specimen.read().table
        assert specimen.read(window=4096).table.equals(expected)
        assert expected.num_rows == (8 if broken is data else 7)


def test_resync_keeps_a_possible_start_at_the_window_end() -> None:
    context = CODEC.context("log.1", Options(CODEC.options))
    data = np.frombuffer(b"\1" * 100 + _record(_payload(1))[:30], np.uint8)
    place, need = CODEC.resync(Window(data, 16, 1000), 0, context)
    assert need == records.LEAST
    assert place <= 100 < place + need
    place, keep = CODEC.resync(Window(data[:105], 16, 1000), 0, context)
    assert (105 - keep if place < 0 else place) <= 100


def test_transaction_above_jute_maxbuffer() -> None:
    body = {"path": b"/a", "data": bytes(3000), "acl": None, "ephemeral": 0, "parent_cversion": 1}
    data = _made(_payload(1), _payload(2, txns.CREATE, body), _payload(3))
    small: dict[str, Any] = {"jute.maxbuffer": 1000, "jute.maxbuffer.extrasize": 1024}
    specimen = _of(data, **small)
    assert specimen.read().table.num_rows == 3
    (fault,) = specimen.read().report.faults
    assert "Unreasonable length = " in fault.detail
    assert fault.severity is Severity.WARNING
    assert _of(data).read().report.faults == []
    assert _of(data, **dict[str, Any]({"jute.maxbuffer": 2000})).read().report.faults == []
    # It must be whole to be taken.
    for at, new in ((16 + 49 + 40, b"\xff"), (len(data) - 50, b"C")):
        (fault,) = _of(_with_damage(data, at, new), **small).read().report.faults
        assert fault.detail.startswith("Unreasonable length")


def test_record_without_a_mark_or_a_checksum() -> None:
    data = _made(_payload(1), _payload(2), _payload(3))
    both = _with_damage(_with_damage(data, 16 + 49 + 20, b"\xff"), 16 + 2 * 49 - 1, b"C")
    (fault,) = _of(both).read().report.faults
    assert "and its checksum is wrong" in fault.detail
    short = _made(b"tiny", _payload(1))
    (fault,) = _of(_with_damage(short, 16 + 16, b"C")).read().report.faults
    assert "its checksum is right" in fault.detail
    # The last record says that it is longer than the file.
    (fault,) = _of(_with_damage(data, len(data) - 39, b"\x01")).read().report.faults
    assert "its checksum is that of 36 bytes" in fault.detail


def test_growing_log_of_a_running_server() -> None:
    data = _made(_payload(1), _payload(2))[:-5]
    context = CODEC.context("log.1", Options(CODEC.options), live=True)
    frames = CODEC.scan(Window(np.frombuffer(data, np.uint8), 0, len(data)), 0, context)
    assert frames.damage is not None
    assert frames.damage.severity is Severity.INFO
    with pytest.raises(UsageError, match="no hint 'nothing'"):
        CODEC.context("log.1", Options(CODEC.options), nothing=1)


def test_scanning_without_checksums() -> None:
    data = np.frombuffer(_with_damage(_made(_payload(1), _payload(5)), 40, b"\xff"), np.uint8)
    context = CODEC.context("log.1", Options(CODEC.options))
    assert len(CODEC.scan(Window(data, 0, len(data)), 0, context, check=False)) == 3
    many = np.frombuffer(_made(*(_payload(n + 1) for n in range(100))), np.uint8)
    part = CODEC.scan(Window(many[:10], 0, len(many)), 0, context)
    assert (len(part), part.need) == (0, 16)
    part = CODEC.scan(Window(many[:20], 0, len(many)), 0, context)
    assert (len(part), part.need) == (1, records.BODY)
    part = CODEC.scan(Window(many[:50], 0, len(many)), 0, context)
    assert (len(part), part.need) == (1, 49)


def test_many_records_of_minimal_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from logwright.codec.frames import scanner
    from logwright.codec.zookeeper.formats.txnlog import codec as txnlog

    monkeypatch.setattr(scanner, "_ROOM", 7)
    monkeypatch.setattr(txnlog, "PORTION", 200)
    data = _made(*(_payload(n + 1) for n in range(100)))
    specimen = _of(data)
    assert specimen.read().table["zxid"].to_pylist() == list(range(1, 101))
    assert specimen.encode(*specimen.tables()) == data


# Recognition


def test_logs_are_recognised() -> None:
    head = FILE_HEADER.pack({})
    assert CODEC.recognise("log.1", head) is Match.SURE
    assert CODEC.recognise("log.1.fixed", b"") is Match.NAME
    assert CODEC.recognise("x", head) is Match.MAYBE
    assert CODEC.recognise("snapshot.1", head) is Match.MAYBE
    assert CODEC.recognise("1.log", b"ZKSN") is Match.NO
    format_name = registry.detect("log.1", head)
    assert format_name is not None
    assert format_name.name == "zookeeper.txnlog"


def test_column_bounds() -> None:
    specimen = _of(_made(_payload(1), _payload(2)))
    data = np.frombuffer(specimen.all_bytes(), np.uint8)
    frames = CODEC.scan(Window(data, 0, len(data)), 0, specimen.context())
    low, high = CODEC.frame_bounds(frames, "zxid")
    assert low.tolist()[1:] == high.tolist()[1:] == [1, 2]
    assert CODEC.frame_bounds(frames, "time")[0].tolist()[1:] == [1700000000001, 1700000000002]
    assert CODEC.frame_bounds(frames, "path") == (None, None)


def test_fields_are_changed_by_name() -> None:
    header, item = FILE_HEADER.pack({}), _record(_payload(1))
    assert "paths_to_delete" in CODEC.field_names()
    assert CODEC.edit(header, ("version",), lambda old, kind: kind.pack(3, {}), reseal=False)[7] == 3
    changed = CODEC.edit(item, ("payload", "zxid"), lambda old, kind: kind.pack(9, {}), reseal=True)
    assert _of(FILE_HEADER.pack({}) + changed, "log.9").read().table["zxid"].to_pylist() == [9]


def test_no_columns_and_the_frames_table() -> None:
    specimen = _of(_made(_payload(1, digest={"version": 2, "tree_digest": 3}), _payload(2)))
    frames = specimen.read("frames").table.to_pylist()
    assert [row["kind"] for row in frames] == ["header", "transaction", "transaction"]
    assert [row["type"] for row in frames] == [None, "error", "error"]
    assert [row["tree_digest"] for row in frames] == [None, 3, None]
    data = np.frombuffer(specimen.all_bytes(), np.uint8)
    window = Window(data, 0, len(data))
    scan = CODEC.scan(window, 0, specimen.context())
    for table, count in (("rows", 2), ("frames", 3)):
        (decoded,) = CODEC.decode(window, scan, table, [], specimen.context())
        assert decoded.batch.num_rows == count


def test_corrupt_rows_have_their_bytes() -> None:
    data = _made(_payload(1), _payload(2), _payload(3))
    broken = _with_damage(data, 16 + 49 + 20, b"\xff")
    rows = _of(broken).read(mode=Mode.PERMISSIVE).table.to_pylist()
    assert [row["zxid"] for row in rows] == [1, None, 3]
    assert rows[1]["_corrupt_record"] == broken[65:114]


# Writing


_EMPTY = _of(b"")


def test_rows_alone_make_a_log() -> None:
    result = _EMPTY.with_bytes(
        _EMPTY.encode(pa.table({"type": ["error", "delete"], "path": [None, "/a"], "err": [-4, None]}))
    )
    rows = result.read(columns="*").table.to_pylist()
    assert [(row["zxid"], row["session_id"], row["cxid"], row["type"]) for row in rows] == [
        (1, 0, 0, "error"), (2, 0, 0, "delete"),
    ]  # fmt: skip
    assert abs(rows[0]["time_ms"] / 1000 - datetime.datetime.now().timestamp()) < 60
    assert rows[0]["tree_digest"] is None
    named = _of(b"", "log.20")
    second = named.with_bytes(named.encode(pa.table({"type": ["error"], "err": [1]})))
    assert second.read().table["zxid"].to_pylist() == [0x20]
    assert _EMPTY.encode(pa.table({"type": pa.array([], pa.string())})) == FILE_HEADER.pack({})


def test_preallocated_zeros() -> None:
    rows = pa.table({"type": ["error"], "err": [1]})
    assert len(_of(b"", preAllocSize=4).encode(rows)) == 16 + 4096
    assert len(_of(b"", preAllocSize=1).encode(rows.slice(0, 0))) == 16 + 1024
    large = pa.table({"type": ["setData"], "path": ["/"], "data": [bytes(3000)], "version": [1]})
    assert len(_of(b"", preAllocSize=1).encode(large)) == 16 + 3 * 1024


def test_times_of_any_type_and_null() -> None:
    moment = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    for column, expected in (
        (pa.array([moment, None], pa.timestamp("us", tz="UTC")), [1767312000000, -1]),
        (pa.array([5, None]), [5, -1]),
    ):
        rows = pa.table({"type": ["error", "error"], "err": [1, 2], "time": column})
        table = _EMPTY.with_bytes(_EMPTY.encode(rows)).read(columns="time_ms,time").table
        assert table["time_ms"].to_pylist() == expected
        assert table["time"].null_count == 1
    raw = pa.table({"type": ["error"], "err": [1], "time_ms": [1 << 62]})
    assert _EMPTY.with_bytes(_EMPTY.encode(raw)).read(columns="time_ms").table["time_ms"].to_pylist() == [
        1 << 62
    ]


def test_binary_text_and_other_integer_widths() -> None:
    rows = pa.table(
        {
            "type": pa.array(["setData", "setData"], pa.large_string()),
            "path": pa.array([b"/\xed\xa0\xbd", b"/b"], pa.large_binary()),
            "data": pa.array([b"x", None], pa.large_binary()),
            "version": pa.array([1, 2], pa.int64()),
        }
    )
    actual = _EMPTY.with_bytes(_EMPTY.encode(rows)).read(columns="path,path_raw,data").table.to_pylist()
    assert actual[0] == {"path": "/\ufffd", "path_raw": b"/\xed\xa0\xbd", "data": b"x"}
    assert actual[1] == {"path": "/b", "path_raw": None, "data": None}


def test_raw_columns_are_used_if_they_agree() -> None:
    acl = [{"perms": 1, "scheme": "\ufffd", "id": None}]
    raw = [{"perms": 1, "scheme": b"\xff", "id": None}]
    rows: list[dict[str, Any]] = [
        {"type": "setACL", "path": "/\ufffd", "path_raw": b"/\xff", "acl": acl, "acl_raw": raw, "version": 1},
        {"type": "setACL", "path": "/a", "path_raw": b"/\xff", "acl": [], "acl_raw": raw, "version": 1},
        {"type": "setACL", "path": None, "path_raw": b"/\xff", "acl": None, "acl_raw": None, "version": 1},
    ]
    table = _table([{"zxid": 1 + n, **row} for n, row in enumerate(rows)])
    actual = _EMPTY.with_bytes(_EMPTY.encode(table)).read(columns="*").table.to_pylist()
    assert [row["path_raw"] for row in actual] == [b"/\xff", None, None]
    assert [row["acl_raw"] for row in actual] == [raw, None, None]
    assert [row["acl"] for row in actual] == [acl, [], None]


def test_digests_come_from_frames_if_rows_have_none() -> None:
    data = _made(_payload(1, digest={"version": 2, "tree_digest": 3}), _payload(2), _payload(3, rest=b"x"))
    specimen = _of(data)
    rows, frames, file = specimen.tables()
    assert specimen.encode(rows.drop_columns(["digest_version", "tree_digest"]), frames, file) == data
    few = frames.drop_columns(["digest_version", "tree_digest", "payload", "raw"])
    encoded = specimen.encode(rows.drop_columns(["digest_version", "tree_digest"]), few, None)
    assert (
        specimen.with_bytes(encoded).read(columns="tree_digest").table["tree_digest"].to_pylist()
        == [None] * 3
    )


def test_dropped_frames() -> None:
    data = _made(_payload(1), _payload(2, rest=b"x"), _payload(3))
    specimen = _of(data)
    rows, frames, file = specimen.tables()
    subset = rows.filter(pa.array([True, False, True]))
    kept = specimen.with_bytes(specimen.encode(subset, frames, file))
    assert kept.read().table["zxid"].to_pylist() == [1, 3]
    assert specimen.encode(rows.slice(0, 0), frames, file) == FILE_HEADER.pack({})


def test_unusual_header_is_kept() -> None:
    data = FILE_HEADER.pack({"version": 9, "dbid": 7}) + _record(_payload(1))
    specimen = _of(data)
    rows, frames, file = specimen.tables()
    assert specimen.encode(rows, frames) == specimen.encode(rows, frames, file) == data
    assert specimen.encode(rows, None, file) == data
    assert specimen.encode(rows.slice(0, 0), frames.slice(0, 0), file) == b""
    assert specimen.read("frames", columns="position,size").table["size"].to_pylist() == [16, 49]


def test_stored_payloads_are_used_for_unchanged_rows() -> None:
    data = _made(_payload(1, rest=b"x"), _body(99, b"?"))
    specimen = _of(data)
    rows, frames, file = specimen.tables()
    # Without a column of which there is nothing, the same is said.
    assert specimen.encode(rows.drop_columns(["ttl"]), frames, file) == data
    assert specimen.encode(rows.drop_columns(["err"]), frames, file) != data
    # A row for what could not be understood is written in its place.
    second = rows.set_column(rows.schema.get_field_index("position"), "position", frames["position"].slice(2))
    result = specimen.with_bytes(specimen.encode(second, frames, file))
    assert result.read().table["zxid"].to_pylist() == [1]
    assert result.read().report.errors == 0
    odd = rows.set_column(rows.schema.get_field_index("ephemeral"), "ephemeral", pa.array(["?"]))
    with pytest.raises(UsageError, match="column 'ephemeral' is not bool"):
        specimen.encode(odd, frames, file)


def test_rows_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from logwright.codec.zookeeper.formats.txnlog import write as txnlog_encode

    monkeypatch.setattr(txnlog_encode, "MOST", 100)
    with pytest.raises(UsageError, match="larger than 100 bytes"):
        _EMPTY.encode(pa.table({"type": ["setData"], "data": [bytes(100)]}))


def test_invalid_rows_are_refused() -> None:
    specimen = _of(_made(_payload(1), _payload(2)))
    rows, frames, file = specimen.tables()
    with pytest.raises(UsageError, match="rows have no positions"):
        specimen.encode(rows.drop_columns(["position"]), frames, file)
    with pytest.raises(UsageError, match="row 0 belongs to no frame"):
        specimen.encode(rows, frames.slice(0, 1), file)
    with pytest.raises(UsageError, match="row 0 belongs to no frame"):
        specimen.encode(rows, frames.slice(2), file)
    with pytest.raises(UsageError, match="needs a column 'kind'"):
        specimen.encode(rows, frames.drop_columns(["kind"]), file)
    with pytest.raises(UsageError, match="needs a column 'type'"):
        _EMPTY.encode(pa.table({"path": ["/"]}))
    with pytest.raises(UsageError, match="row 1 is of type 'check', which is not written on its own"):
        _EMPTY.encode(pa.table({"type": ["delete", "check"], "path": ["/", "/"]}))
    with pytest.raises(UsageError, match="row 0 is of type None"):
        _EMPTY.encode(pa.table({"type": pa.array([None], pa.string())}))
    with pytest.raises(UsageError, match="null in column 'zxid'"):
        _EMPTY.encode(pa.table({"type": ["error"], "zxid": pa.array([None], pa.int64())}))
    with pytest.raises(UsageError, match="column 'path' is not"):
        _EMPTY.encode(pa.table({"type": ["delete"], "path": [[1]]}))
    with pytest.raises(UsageError, match="column 'acl' is not"):
        _EMPTY.encode(pa.table({"type": ["setACL"], "acl": [7]}))
    with pytest.raises(UsageError, match="column 'txns' is int64"):
        _EMPTY.encode(pa.table({"type": ["multi"], "txns": [7]}))
    with pytest.raises(UsageError, match="a transaction of a multi is null"):
        _EMPTY.encode(pa.table({"type": ["multi"], "txns": [[None, {"type": "error"}]]}))


def test_multis_are_written_from_rows() -> None:
    columns: list[dict[str, Any]] = [
        {},
        {"txns": pa.nulls(2)},
        {"txns": pa.array([None, None], ROWS["txns"].type)},
    ]
    for column in columns:
        encoded = _EMPTY.encode(pa.table({"type": ["multi", "error"], **column}))
        assert _EMPTY.with_bytes(encoded).read().table["txns"].to_pylist() == [[], None]
    rows = pa.table(
        {
            "type": ["error", "delete", "error", "error", "delete", "error"],
            "sub": pa.array([0, 1, 0, None, 0, 1], pa.int32()),
            "path": [None, "/a", None, None, "/b", None],
            "err": [1, None, 2, 3, None, 4],
        }
    )
    actual = _EMPTY.with_bytes(_EMPTY.encode(rows)).read().table.to_pylist()
    assert [(row["zxid"], row["type"]) for row in actual] == [
        (1, "multi"),
        (2, "multi"),
        (3, "error"),
        (4, "multi"),
    ]
    assert [len(row["txns"]) if row["txns"] else 0 for row in actual] == [2, 1, 0, 2]


_TEXT = st.none() | st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=4)
_I32, _I64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
_DATA = st.none() | st.binary(max_size=6)
_ACL = st.none() | st.lists(st.fixed_dictionaries({"perms": _I32, "scheme": _TEXT, "id": _TEXT}), max_size=2)
_FIELDS: dict[str, Any] = {
    "path": _TEXT, "data": _DATA, "acl": _ACL, "ephemeral": st.booleans(), "parent_cversion": _I32, "version": _I32,
    "err": _I32, "ttl": _I64, "time_out": _I32, "paths_to_delete": st.none() | st.lists(_TEXT.filter(bool), max_size=3),
}  # fmt: skip


def _bodies(known: dict[int, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from(sorted(kind for kind in known if kind != txns.MULTI)).flatmap(
        lambda kind: st.fixed_dictionaries(
            {
                "type": st.just(txns.TYPE_NAMES[kind]),
                **{field.name: _FIELDS[field.name] for field in known[kind].fields},
            }
        )
    )


_MULTIS = st.lists(_bodies(txns.SUB_BODIES), max_size=3).map(lambda subs: {"type": "multi", "txns": subs})
_ROWS = st.lists(
    st.tuples(
        _bodies(txns.BODIES) | _MULTIS,
        st.fixed_dictionaries(
            {
                "zxid": _I64, "time_ms": _I64, "session_id": _I64, "cxid": _I32,
                "tree_digest": st.none() | _I64, "digest_version": st.just(2),
            }
        ),
    ),
    max_size=6,
).map(lambda pairs: [{**head, **body} for body, head in pairs])  # fmt: skip


def _whole(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As they come back: without a digest its version is null; the body of a closed session was not there, or is."""
    schema = ROWS.schema([name for name in ROWS.names(detail=True) if name not in _PLACES])
    result = [
        {**row, "digest_version": None if row["tree_digest"] is None else row["digest_version"]}
        for row in rows
    ]
    complete: list[dict[str, Any]] = pa.Table.from_pylist(result, schema).to_pylist()
    return complete


_PLACES = ("position", "file", "time", "path_raw", "acl_raw")


@given(_ROWS)
def test_any_rows_round_trip(rows: list[dict[str, Any]]) -> None:
    data = _EMPTY.encode(_table(rows) if rows else pa.table({"type": pa.array([], pa.string())}))
    result = _EMPTY.with_bytes(data)
    names = [name for name in ROWS.names(detail=True) if name not in _PLACES]
    reread = result.read(columns=",".join(names))
    assert reread.table.to_pylist() == _whole(rows)
    assert result.read("frames").table.num_rows == len(rows) + 1
    # Nothing is stored: all comes from rows, in either form.
    for multi in ("nested", "exploded"):
        item = _of(data, multi=multi)
        tables = item.tables()
        assert tables[1]["payload"].null_count == len(rows) + 1
        assert item.encode(*tables) == data
        assert item.encode(tables[0]) == data


@given(_ROWS)
def test_any_transaction_packs_as_described(rows: list[dict[str, Any]]) -> None:
    if rows:
        data = _EMPTY.encode(_table(rows))
        verdict = laws.kernel_equals_description(data, CODEC, name="log.1")
        assert verdict, verdict
        # And back: the description writes the same bytes.
        at = 16
        while at < len(data):
            value, end = RECORD.unpack(data, at, at + 13 + int.from_bytes(data[at + 8 : at + 12], "big"))
            assert RECORD.pack({**value, "checksum": None}) == data[at:end]
            at = end
