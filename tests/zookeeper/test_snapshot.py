"""Every golden snapshot, sound and damaged: round trips, and comparison with the description and the real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from zookeeper_tools import as_formatted, formatted

from logwright.codec.fault import Kind, Severity
from logwright.corpora import cases
from logwright.readers.stream import Mode
from logwright.roundtrip import laws
from logwright.roundtrip.specimen import Specimen

CASES = cases.cases("zookeeper")
HOME = CASES["fresh"].path.parent
FILES = sorted(
    path for case in CASES.values() for path in case.path.rglob("snapshot.*") if "tools" not in path.parts
)
PLAIN = [path for path in FILES if path.suffix not in (".gz", ".snappy")]


def _id(path: Path) -> str:
    return "/".join(part for part in path.relative_to(HOME).parts if part != "version-2")


def _case(path: Path) -> cases.Case:
    return CASES[path.relative_to(HOME).parts[0]]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _base(path: Path) -> bytes:
    """Return the undamaged snapshot of the same name."""
    name = {".gz": "snap_gz", ".snappy": "snap_snappy"}.get(path.suffix, "dmg_base")
    return (CASES[name].path / "version-2" / path.name).read_bytes()


DAMAGED = [
    path
    for path in FILES
    if _case(path).name.startswith(("dmg_snap", "dmg_gz"))
    and path.suffix != ".tmp"
    and path.read_bytes() != _base(path)
]
TRUNCATED = [path for path in DAMAGED if _case(path).name.startswith("dmg_snap_trunc_seal")]
SOUND = [path for path in FILES if path not in DAMAGED or path in TRUNCATED]


def _once(paths: list[Path]) -> list[Path]:
    """Skip repeated content: most cases share the snapshots of one server."""
    return list({path.read_bytes(): path for path in reversed(paths)}.values())[::-1]


ONCE = _once(SOUND)
PLAIN = _once(PLAIN)


def test_golden_snapshots_exist() -> None:
    assert len(FILES) > 120
    assert len(DAMAGED) > 15
    assert {Specimen.of(path).codec.name for path in FILES} == {"zookeeper.snapshot"}


@pytest.mark.alike
@pytest.mark.parametrize("path", FILES, ids=_id)
def test_golden_snapshots_decode_and_encode_to_the_same_bytes(path: Path) -> None:
    verdict = laws.decode_encode(path)
    assert verdict, verdict
    assert verdict.checked == path.stat().st_size


@pytest.mark.parametrize("path", ONCE, ids=_id)
def test_sound_snapshots_have_no_faults(path: Path) -> None:
    report = Specimen.of(path).read(mode=Mode.FAILFAST).report
    assert report.errors == 0
    if _case(path).name != "syn_acl_dangling" or path.name != "snapshot.16":
        assert not report.faults
    verdict = laws.encode_without_payloads(path)
    assert verdict, verdict


@pytest.mark.parametrize("path", [path for path in ONCE if path in PLAIN], ids=_id)
def test_kernels_read_what_the_description_says(path: Path) -> None:
    verdict = laws.kernel_equals_description(path)
    assert verdict, verdict
    assert verdict.checked > 5


@pytest.mark.alike
@pytest.mark.parametrize("path", PLAIN, ids=_id)
def test_splits_give_each_row_once(path: Path) -> None:
    size = path.stat().st_size
    verdict = laws.any_split(path, sizes=[1, 200, max(1, size // 3)])
    assert verdict, verdict


@pytest.mark.nightly
@pytest.mark.parametrize("path", PLAIN, ids=_id)
def test_splits_of_any_size(path: Path) -> None:
    verdict = laws.any_split(path, sizes=range(1, path.stat().st_size + 1))
    assert verdict, verdict


# The server's own output


RESTORED = [
    name
    for name, case in CASES.items()
    if (case.path / "restore.jsonl").exists()
    and any(line["kind"] == "persisted" for line in _lines(case.path / "restore.jsonl"))
]


def test_nodes_equal_the_servers() -> None:
    """Nodes that no later transaction touched are stored as the server has them in memory."""
    counts = {name: _same_nodes(name) for name in RESTORED}
    assert sum(counts.values()) > 300
    assert len([count for count in counts.values() if count]) > 20


def _same_nodes(name: str) -> int:
    lines = _lines(CASES[name].path / "restore.jsonl")
    server = {line["path"] or "/": line for line in lines if line["kind"] == "persisted"}
    lists = {line["id"]: line["acl"] for line in lines if line["kind"] == "acl_cache"}
    compared = 0
    newest = max(
        (path for path in FILES if _case(path).name == name),
        key=lambda path: int(path.name.split(".")[1], 16),
    )
    for row in Specimen.of(newest).read().table.to_pylist():
        value = server.get(row["path"])
        if value is None or row["path"].startswith("/zookeeper"):
            continue
        if (row["mzxid"], row["pzxid"], row["aversion"]) != (
            value["mzxid"],
            value["pzxid"],
            value["aversion"],
        ):
            continue
        compared += 1
        assert row["czxid"] == value["czxid"]
        assert (row["ctime_ms"], row["mtime_ms"]) == (value["ctime"], value["mtime"])
        assert (row["version"], row["stored_cversion"]) == (value["version"], value["cversion"])
        owner = int(value["ephemeralOwner"], 16)
        if row["kind"] == "ephemeral":
            assert row["ephemeral_owner"] == owner - (owner >> 63 << 64)
        elif row["kind"] == "ttl":
            assert row["ttl"] == owner & (1 << 40) - 1
            assert owner >> 40 == 0xFF0000
        else:
            assert owner == {"persistent": 0, "container": 1 << 63}[row["kind"]]
        if "data_hex" in value:
            assert row["data"] == (None if value["data_hex"] is None else bytes.fromhex(value["data_hex"]))
        else:
            assert row["data_length"] == value["data_len"]
        if value["acl_id"] in lists:
            assert row["acl"] == lists[value["acl_id"]]
    return compared


def test_nodes_equal_snapshot_formatters() -> None:
    """Output of the real SnapshotFormatter for every golden snapshot it could read completely."""
    compared = 0
    for path in SOUND:
        for end, lengths in (("-d", False), ("", True)):
            message = path.parent.parent / "tools" / f"{path.name}.SnapshotFormatter{end}.txt"
            if not message.exists() or "--- exit 0 ---" not in message.read_text():
                continue
            rows = Specimen.of(path).read().table.to_pylist()
            assert as_formatted(rows, lengths=lengths) == formatted(message.read_text()), path
            compared += len(rows)
    assert compared > 600


def test_digest_equals_the_servers() -> None:
    """For snapshots written without concurrent transactions."""
    compared = 0
    for path in ONCE:
        name = _case(path).name
        if name.startswith("syn_") or name == "dmg_snap_tmp":
            continue
        specimen = Specimen.of(path)
        rows, _, file = specimen.tables()
        facts = file.to_pylist()[0]
        if not facts["digest_zxid"] or facts["digest_zxid"] != facts["zxid"]:
            continue
        compared += 1
        # Equal to the file, except for one that has to be recompressed.
        second = (
            specimen.with_bytes(specimen.encode(rows, None, file.drop_columns(["digest"]))).read("file").table
        )
        assert second["digest"].to_pylist() == [facts["digest"]]
    assert compared > 15


def test_snapshot_of_a_new_server() -> None:
    """Without rows the result equals the snapshot a current server writes at its first start."""
    path = CASES["fresh"].path / "version-2" / "snapshot.0"
    none = pa.table({"path": pa.array([], pa.string())})
    assert Specimen.of(b"", "zookeeper.snapshot", "snapshot.0").encode(none) == path.read_bytes()


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 478),
        ({"serializeLastProcessedZxid.enabled": "false"}, 457),
        ({"digest.enabled": "false"}, 445),
        ({"digest.enabled": "false", "serializeLastProcessedZxid.enabled": "false"}, 424),
    ],
)
def test_digest_and_zxid_are_left_out_of_a_snapshot_by_option(options: dict[str, str], size: int) -> None:
    none = pa.table({"path": pa.array([], pa.string())})
    specimen = Specimen.of(b"", "zookeeper.snapshot", "snapshot.0", **options)
    encoded = specimen.encode(none)
    assert len(encoded) == size
    assert not specimen.with_bytes(encoded).read(mode=Mode.FAILFAST).report.faults


def test_session_and_acl_tables_agree_with_header_and_nodes() -> None:
    path = next(file for file in FILES if _case(file).name == "sessions" and file.name != "snapshot.0")
    specimen = Specimen.of(path)
    sessions = specimen.read("sessions").table.to_pylist()
    facts = specimen.read("file").table.to_pylist()[0]
    assert sessions == facts["sessions"]
    assert len(sessions) >= 2
    path = next(file for file in FILES if _case(file).name == "acls" and file.name != "snapshot.0")
    specimen = Specimen.of(path)
    acls = specimen.read("acls").table.to_pylist()
    assert len(acls) > 10
    rows = specimen.read().table.to_pylist()
    by_id = {acl["acl_id"]: acl["acl"] for acl in acls}
    assert all(row["acl"] == by_id[row["acl_id"]] for row in rows if row["acl_id"] > 0)


# Damage


@pytest.mark.parametrize("path", DAMAGED, ids=_id)
def test_damaged_golden_snapshots_are_reported_and_refused_by_failfast(path: Path) -> None:
    specimen = Specimen.of(path)
    report = specimen.read().report
    if path in TRUNCATED:
        assert not report.faults
        return
    assert report.errors
    with pytest.raises(ValueError, match=r"zookeeper\.snapshot"):
        specimen.read(mode=Mode.FAILFAST)


def _read(case: str, name: str = "snapshot.16") -> tuple[pa.Table, list[Any]]:
    result = Specimen.of(CASES[case].path / "version-2" / name).read()
    return result.table, result.report.faults


BASE = set(_read("dmg_base")[0]["path"].to_pylist())


@pytest.mark.parametrize(
    ("case", "rows", "kinds"),
    [
        ("dmg_snap_aclvec_null", 14, {Kind.CHECKSUM, Kind.PAYLOAD}),
        ("dmg_snap_endmark", 15, {Kind.PAYLOAD}),
        ("dmg_snap_flip_data", 15, {Kind.CHECKSUM}),
        ("dmg_snap_flip_digest", 15, {Kind.CHECKSUM}),
        ("dmg_snap_flip_path", 15, {Kind.CHECKSUM}),
        ("dmg_snap_flip_version", 15, {Kind.CHECKSUM}),
        ("dmg_snap_path_null", 14, {Kind.CHECKSUM, Kind.LENGTH}),
        ("dmg_snap_trunc", 7, {Kind.TRUNCATED}),
        ("dmg_snap_trunc_tree_end", 15, {Kind.TRUNCATED}),
        ("dmg_snap_zero_len", 0, {Kind.TRUNCATED}),
    ],
)
def test_readable_nodes_of_damaged_snapshots(case: str, rows: int, kinds: set[Kind]) -> None:
    table, faults = _read(case)
    assert len(table) == rows
    assert {fault.kind for fault in faults if fault.severity is Severity.ERROR} == kinds
    if case != "dmg_snap_flip_path":
        assert set(table["path"].to_pylist()) <= BASE


def test_wrong_checksum_marks_rows_as_suspect() -> None:
    _, (fault,) = _read("dmg_snap_flip_data")
    assert (fault.offset, fault.length) == (0, 1642)
    assert "all rows are suspect" in fault.detail
    _, (fault,) = _read("dmg_snap_flip_digest")
    assert (fault.offset, fault.length) == (1642, 33)
    assert "so are the rows" in fault.detail


def test_failfast_returns_no_row_before_checking() -> None:
    """FAILFAST returns no row of a file whose first checksum is wrong."""
    specimen = Specimen.of(CASES["dmg_snap_flip_data"].path / "version-2" / "snapshot.16")
    with pytest.raises(ValueError, match="all rows are suspect"):
        specimen.read(mode=Mode.FAILFAST, window=4096)
