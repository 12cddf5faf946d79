"""ZooKeeper on the command line: zxids as its own tools print them, parts of a tree, and other names."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from zookeeper_startup import GOLDEN

import logwright as lw
from logwright.cli import main
from logwright.formats.text import to_lines

BASE = GOLDEN / "dmg_base"


def run(*words: object) -> int:
    try:
        main([str(word) for word in words])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_zxids_print_in_hexadecimal(capsys: pytest.CaptureFixture[str]) -> None:
    columns = "zxid,session_id,cxid"
    assert run("dump", BASE, "--view", "txns", "--format", "text", "--limit", 2, "--columns", columns) == 0
    first = lw.read(BASE, view="txns", limit=2, columns=columns).to_pylist()
    message = [
        f"zxid={row['zxid']:#x}  session_id={row['session_id']:#x}  cxid={row['cxid']}" for row in first
    ]
    assert capsys.readouterr().out.splitlines() == message


def test_session_ids_print_unsigned() -> None:
    batch = pa.record_batch({"id": [-2, None], "count": [-2, 3]})
    assert to_lines(batch, {"id"}) == "id=0xfffffffffffffffe  count=-2\ncount=3\n"


@pytest.mark.parametrize("text", ["0xb", "b", "0XB", 11, "00b"])
def test_zxids_are_accepted_with_and_without_0x(text: object) -> None:
    table = lw.read(BASE, view="txns", filter=[("zxid", "==", text)], columns="zxid")
    assert table.column("zxid").to_pylist() == [11]
    tree = lw.read(BASE, at_zxid=text)
    assert max(tree.column("mzxid").to_pylist()) <= 11
    assert tree.equals(lw.read(BASE, at_zxid=11))


def test_explain_finds_a_row_by_its_column() -> None:
    explanation = lw.explain(BASE, where="zxid=0xd")
    (row,) = lw.read(BASE, view="txns", filter="zxid = 0xd", columns="position").to_pylist()
    assert explanation.path.endswith("log.b")
    assert explanation.pieces[0].start == row["position"]
    assert lw.explain(BASE, where="path=/app").path.endswith("snapshot.16")
    with pytest.raises(lw.UsageError, match="no column 'zxxid'"):
        lw.explain(BASE, where="zxxid=1")


@pytest.mark.parametrize("options", [{"at_zxid": "0x12"}, {"path_prefix": "/zookeeper"}], ids=str)
def test_convert_writes_a_part_of_the_tree(tmp_path: Path, options: dict[str, str]) -> None:
    done = lw.convert(BASE, tmp_path / "zk", **options)
    columns = "path,data,acl,czxid,mzxid,ctime,mtime,version,stored_cversion,aversion,pzxid"
    table = lw.read(BASE, columns=columns, **options)
    assert done["rows"] == table.num_rows
    actual = {row["path"]: row for row in lw.read(tmp_path / "zk", columns=columns).to_pylist()}
    for row in table.to_pylist():
        assert actual[row["path"]] == row
    assert "/app/d2-0" in lw.read(BASE, columns="path").column(0).to_pylist()
    assert "/app/d2-0" not in actual


@pytest.mark.parametrize(
    ("source", "target", "head"),
    [
        (BASE / "version-2/snapshot.16", "snapshot.16.gz", b"\x1f\x8b"),
        (BASE / "version-2/snapshot.16", "snapshot.16.snappy", b"\x82SNAPPY\x00"),
        (GOLDEN / "snap_gz/version-2/snapshot.42.gz", "snapshot.42", b"ZKSN"),
        (GOLDEN / "snap_gz/version-2/snapshot.42.gz", "snapshot.42.snappy", b"\x82SNAPPY\x00"),
        (GOLDEN / "snap_gz/version-2/snapshot.42.gz", "snapshot.42.gz", b"\x1f\x8b"),
        (GOLDEN / "snap_gz/version-2/snapshot.42.gz", "whatever", b"\x1f\x8b"),
    ],
)
def test_snapshot_compression_follows_the_file_name(
    tmp_path: Path, source: Path, target: str, head: bytes
) -> None:
    """A server decides by the name: another compression under it would be a damaged file."""
    out = tmp_path / target
    lw.convert(source, out, codec="zookeeper.snapshot")
    assert out.read_bytes().startswith(head)
    plain = source.read_bytes() if source.suffix != ".gz" else gzip.decompress(source.read_bytes())
    if target == "snapshot.42":
        assert out.read_bytes() == plain
    if target != "whatever":
        assert lw.read(out, columns="*").equals(lw.read(source, columns="*"))
