"""The codec `zookeeper.txnlog`: golden files, multis and recognition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from zookeeper_logs import (
    CASES,
    FILES,
    body_payload,
    faults_of,
    file_id,
    golden_log,
    log_of,
    payload_of,
    record_of,
    specimen_of,
    with_damage,
)
from zookeeper_tools import as_logged, logged

from logwright.codec import registry
from logwright.codec.base import Match
from logwright.codec.fault import Severity, UsageError
from logwright.codec.window import Window
from logwright.codec.zookeeper.formats.txnlog import layout as txns
from logwright.codec.zookeeper.formats.txnlog.codec import CODEC
from logwright.codec.zookeeper.formats.txnlog.layout import FILE_HEADER
from logwright.readers.stream import Mode
from logwright.roundtrip import laws
from logwright.roundtrip.specimen import Specimen

# Golden files


def test_golden_logs_exist() -> None:
    assert len(FILES) > 140


@pytest.mark.alike
@pytest.mark.parametrize("multi", ["nested", "exploded"])
@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_golden_logs_decode_and_encode_to_the_same_bytes(path: Path, multi: str) -> None:
    verdict = laws.decode_encode(path, multi=multi)
    assert verdict, verdict


def test_kernels_equal_the_description() -> None:
    for path in FILES:
        # The damaged ones are much the same, and have frames less.
        if path.stat().st_size > 16 and not file_id(path).startswith(("dmg_", "snap_", "fuzzy")):
            verdict = laws.kernel_equals_description(path)
            assert verdict, verdict


def test_rows_equal_txn_log_toolkits() -> None:
    """The real TxnLogToolkit prints one line per transaction."""
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
def test_damage_is_reported_with_the_zxids_it_loses(case: str) -> None:
    kind, offset, length, rows, zxids, word = DAMAGE[case]
    (fault,) = faults_of(golden_log(case))
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
    (fault,) = faults_of(golden_log(case))
    assert (fault.offset, fault.length, fault.severity) == (offset, length, Severity.WARNING)
    assert golden_log(case).read().report.errors == 0


@pytest.mark.parametrize("case", ["dmg_base", "dmg_trunc_tail_boundary", "dmg_trunc_tail_16", "dmg_chopped"])
def test_sound_variants_have_no_faults(case: str) -> None:
    assert faults_of(golden_log(case)) == []


def test_unusual_header_fields_are_notes() -> None:
    first, second = faults_of(golden_log("dmg_log_hdr_fields"))
    assert "version is 9" in first.detail
    assert "dbid is 1234605616436508552" in second.detail
    file = golden_log("dmg_log_hdr_fields").read("file").table.to_pylist()[0]
    assert (file["version"], file["dbid"], file["file"]) == (9, 0x1122334455667788, 0x17)
    assert golden_log("dmg_log_magic").read("file").table["version"].to_pylist() == [None]


def test_zxids_out_of_order_are_reported() -> None:
    (gap,) = faults_of(golden_log("syn_zxid_gap", "log.1"))
    assert (gap.kind, gap.rows_lost, dict(gap.lost)) == ("bad order", 6, {"first_zxid": 3, "last_zxid": 8})
    (second,) = faults_of(golden_log("syn_zxid_repeat", "log.1"))
    assert "is repeated" in second.detail
    assert faults_of(golden_log("syn_epoch_jump", "log.1")) == []
    (lower,) = faults_of(specimen_of(log_of(payload_of(1 << 32 | 1), payload_of(5)), "log.100000001"))
    assert "lower" in lower.detail
    many = log_of(*(payload_of(2 * n + 1) for n in range(80)))
    faults = faults_of(specimen_of(many))
    assert len(faults) == 65
    assert "15 more places" in faults[-1].detail
    (named,) = faults_of(specimen_of(log_of(payload_of(9)), "log.8"))
    assert "named after zxid 0x8" in named.detail


def test_unsupported_transaction_types_are_faults() -> None:
    for case in ("syn_bad_type", "toplevel_check"):
        (fault,) = faults_of(golden_log(case, "log.1"))
        assert fault.detail == "Unsupported Txn with type=13"
        assert fault.rows_lost == 1


def test_fields_that_older_versions_lack_are_null() -> None:
    rows = golden_log("syn_create_v0", "log.1").read(columns="*").table.to_pylist()
    assert {row["parent_cversion"] for row in rows if row["type"] == "create"} == {None}
    closed = golden_log("closesession_nobody", "log.1").read(columns="*").table.to_pylist()
    sessions = [row for row in closed if row["type"] == "closeSession"]
    assert {row["paths_to_delete"] is None for row in sessions} == {True}
    assert all(row["tree_digest"] for row in sessions)


def test_acl_ids_that_are_not_utf8_are_kept_raw() -> None:
    rows = golden_log("acls", "log.1").read(columns="*").table.to_pylist()
    odd = [row for row in rows if row["acl_raw"] is not None]
    assert any(entry["id"] == "u\ufffd\ufffdx" for row in odd for entry in row["acl"])
    assert any(entry["id"] == b"u\xed\xa0\xbd\xed\xb8\x80x" for row in odd for entry in row["acl_raw"])


# Multis


def test_exploded_multi_rows_equal_the_nested_ones() -> None:
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


def test_sub_transaction_of_an_unknown_type_is_only_written_from_its_frame() -> None:
    body = {"txns": [{"type": 99, "data": b"xyz"}, {"type": txns.ERROR, "data": {"err": -2}}]}
    specimen = specimen_of(log_of(payload_of(1, txns.MULTI, body)))
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
    empty = payload_of(1, txns.MULTI, {"txns": []})[:-4]
    return empty + count.to_bytes(4, "big", signed=True) + b"".join(subs)


def _sub(kind: int, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return kind.to_bytes(4, "big", signed=True) + size.to_bytes(4, "big", signed=True) + body


BAD = [
    _multi(1), _multi(2, _sub(-1, bytes(4))), _multi(2, _sub(2, b"\0\0\0\x10" + b"/" * 16)),
    _multi(1 << 30), _multi(1, _sub(-1, bytes(5))), _multi(1, _sub(-1, b"", -1)),
    _multi(1, _sub(-1, bytes(4), 9)), _multi(1, _sub(1, b"\0\0\0\1/")), _multi(0)[:-2], payload_of(1)[:-2], payload_of(1)[:20],
    body_payload(txns.DELETE, b"\0\0"), body_payload(txns.DELETE, b"\0\0\0\5/"), body_payload(txns.DELETE, b"\xff\xff\xff\xfe"),
    body_payload(txns.SET_DATA, b"\0\0\0\0" + b"\xff\xff\xff\xfe"), body_payload(txns.SET_DATA, b"\0\0\0\0" + b"\0\0\0\7"),
    body_payload(txns.SET_ACL, b"\0\0\0\0" + b"\0\0\0\7"), body_payload(txns.CREATE, b"\0\0\0\0" * 3), body_payload(txns.CREATE_TTL, bytes(16)),
    body_payload(txns.CREATE_TTL, bytes(12)),
]  # fmt: skip


@pytest.mark.parametrize("kind", [99, -99])
def test_unknown_type_with_a_valid_checksum_is_unsupported(kind: int) -> None:
    specimen = specimen_of(log_of(body_payload(kind, b""), payload_of(2)))
    result = specimen.read()
    assert result.table["zxid"].to_pylist() == [2]
    assert [(fault.kind, fault.severity) for fault in result.report.faults if fault.length] == [
        ("unsupported", Severity.WARNING)
    ]
    assert specimen.encode(*specimen.tables()) == specimen.all_bytes()


@pytest.mark.parametrize("payload", BAD, ids=range(len(BAD)))
def test_undecodable_bodies_are_faults_and_round_trip(payload: bytes) -> None:
    specimen = specimen_of(log_of(payload, payload_of(2)))
    result = specimen.read()
    assert result.table["zxid"].to_pylist() == [2]
    assert [fault.kind for fault in result.report.faults if fault.severity is Severity.ERROR] == [
        "bad payload"
    ]
    assert specimen.encode(*specimen.tables()) == specimen.all_bytes()
    # With other rows in its place, it is not written from what is stored.
    rows, frames, file = specimen.tables()
    assert len(specimen.encode(rows.slice(0, 0), frames, file)) == 16 + len(record_of(payload))


ODD = [
    _multi(-1), _multi(-7), payload_of(1, rest=b"12345"), payload_of(1, digest={"version": 2, "tree_digest": 1}, rest=b"x"),
    body_payload(txns.CLOSE_SESSION, b"\xff\xff\xff\xff"), body_payload(txns.CLOSE_SESSION, b"\xff\xff\xff\xf0"),
    body_payload(txns.CLOSE_SESSION, b"\0\0"), body_payload(txns.CLOSE_SESSION, b"\0\0\0\1\0\0\0\1\xff"),
    body_payload(txns.CLOSE_SESSION, b"\0\0\0\1\0\0\0\7x"),
    body_payload(txns.CLOSE_SESSION, b"\0\0\0\2" + bytes(19)), body_payload(txns.CLOSE_SESSION, b"\7\0\0\2"),
    body_payload(txns.CREATE, b"\0\0\0\1/" + b"\xff\xff\xff\xff" * 2 + b"\7" + bytes(4)),
    body_payload(txns.DELETE, b"\0\0\0\1\xff"), body_payload(txns.DELETE, "\0\0\0\4\U0001f600".encode()),
    body_payload(txns.SET_ACL, b"\xff\xff\xff\xff" + b"\xff\xff\xff\xf0" + bytes(4)),
    body_payload(txns.SET_ACL, b"\0\0\0\0" + b"\0\0\0\1" + bytes(4) + b"\0\0\0\1\xff" + b"\0\0\0\1a" + bytes(4)),
]  # fmt: skip


@pytest.mark.parametrize("payload", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("multi", ["nested", "exploded"])
def test_unusual_forms_round_trip_unless_their_rows_change(payload: bytes, multi: str) -> None:
    specimen = specimen_of(log_of(payload), multi=multi)
    assert specimen.read().report.faults_total == 0
    assert specimen.read().table.num_rows == 1
    rows, frames, file = specimen.tables()
    assert frames["payload"].to_pylist() == [None, payload]
    assert specimen.encode(rows, frames, file) == specimen.all_bytes()
    # Where the rows say something else, that is written.
    other = rows.set_column(rows.schema.get_field_index("cxid"), "cxid", pa.array([77], pa.int32()))
    changed = specimen.with_bytes(specimen.encode(other, frames, file))
    assert changed.read().table["cxid"].to_pylist() == [77]


# Recognition


def test_log_is_recognised_by_its_name_and_its_header() -> None:
    head = FILE_HEADER.pack({})
    assert CODEC.recognise("log.1", head) is Match.SURE
    assert CODEC.recognise("log.1.fixed", b"") is Match.NAME
    assert CODEC.recognise("x", head) is Match.MAYBE
    assert CODEC.recognise("snapshot.1", head) is Match.MAYBE
    assert CODEC.recognise("1.log", b"ZKSN") is Match.NO
    format_name = registry.detect("log.1", head)
    assert format_name is not None
    assert format_name.name == "zookeeper.txnlog"


def test_frame_bounds_of_zxid_and_time_are_exact() -> None:
    specimen = specimen_of(log_of(payload_of(1), payload_of(2)))
    data = np.frombuffer(specimen.all_bytes(), np.uint8)
    frames = CODEC.scan(Window(data, 0, len(data)), 0, specimen.context())
    low, high = CODEC.frame_bounds(frames, "zxid")
    assert low.tolist()[1:] == high.tolist()[1:] == [1, 2]
    assert CODEC.frame_bounds(frames, "time")[0].tolist()[1:] == [1700000000001, 1700000000002]
    assert CODEC.frame_bounds(frames, "path") == (None, None)


def test_fields_are_changed_by_name() -> None:
    header, item = FILE_HEADER.pack({}), record_of(payload_of(1))
    assert "paths_to_delete" in CODEC.field_names()
    assert CODEC.edit(header, ("version",), lambda old, kind: kind.pack(3, {}), reseal=False)[7] == 3
    changed = CODEC.edit(item, ("payload", "zxid"), lambda old, kind: kind.pack(9, {}), reseal=True)
    assert specimen_of(FILE_HEADER.pack({}) + changed, "log.9").read().table["zxid"].to_pylist() == [9]


def test_frames_table_lists_the_header_and_the_transactions() -> None:
    specimen = specimen_of(log_of(payload_of(1, digest={"version": 2, "tree_digest": 3}), payload_of(2)))
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


def test_damaged_records_are_rows_with_their_bytes_in_permissive_mode() -> None:
    data = log_of(payload_of(1), payload_of(2), payload_of(3))
    broken = with_damage(data, 16 + 49 + 20, b"\xff")
    rows = specimen_of(broken).read(mode=Mode.PERMISSIVE).table.to_pylist()
    assert [row["zxid"] for row in rows] == [1, None, 3]
    assert rows[1]["_corrupt_record"] == broken[65:114]


def test_digest_of_version_0_is_written_again() -> None:
    """Readers do not check the version."""
    digest = (0).to_bytes(4, "big") + (77).to_bytes(8, "big")
    specimen = specimen_of(log_of(payload_of(1) + digest, payload_of(2)))
    assert specimen.read(columns="digest_version").table.to_pylist() == [
        {"digest_version": 0},
        {"digest_version": None},
    ]
    assert laws.decode_encode(specimen)
    assert laws.encode_without_payloads(specimen)


@pytest.mark.parametrize("body", [b"\0\0\0\1\xff\xff\xff\0x", b"\0\0\x50\5\0\0\0\2" + bytes(2) + b"\7" * 6])
def test_paths_of_a_closed_session_with_a_length_that_no_server_reads_are_damage(body: bytes) -> None:
    """The count may be too large, too: a server reads paths up to that length, and does not start."""
    specimen = specimen_of(log_of(body_payload(txns.CLOSE_SESSION, body)))
    assert [fault.detail for fault in faults_of(specimen)] == ["Unreasonable length in the transaction"]
    assert laws.kernel_equals_description(specimen)
    assert laws.decode_encode(specimen)
