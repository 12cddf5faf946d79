"""Stored records of nodes and transactions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from zookeeper_datadir import GOLDEN, copy

import logwright as lw
from logwright.codec.columns import slices


def test_adjacent_slices_share_memory() -> None:
    data = np.arange(20, dtype=np.uint8)
    starts = np.array([2, 5, 5, 9])
    ends = np.array([5, 5, 9, 20])
    actual = slices(data, starts, ends)
    assert actual.to_pylist() == [bytes(data[a:b]) for a, b in zip(starts, ends, strict=True)]
    assert actual.buffers()[2].address == data.ctypes.data + 2


def test_separate_slices_are_copied() -> None:
    data = np.arange(20, dtype=np.uint8)
    assert slices(data, np.array([1, 8]), np.array([3, 9])).to_pylist() == [b"\1\2", b"\x08"]
    assert slices(data, np.array([], np.int64), np.array([], np.int64)).to_pylist() == []


@pytest.mark.parametrize("case", ["basic", "multi", "v3414", "fuzzy"])
def test_records_of_a_log_are_its_stored_bytes(case: str) -> None:
    for log in (GOLDEN / case / "version-2").glob("log.*"):
        rows = lw.read(log, view="records")
        data = log.read_bytes()
        stored = b"".join(rows.column("record").to_pylist())
        assert data[16 : 16 + len(stored)] == stored
        assert not data[16 + len(stored) :].strip(b"\0")
        assert rows.column("zxid").equals(lw.read(log, columns=["zxid"]).column("zxid"))


@pytest.mark.parametrize("case", ["basic", "acls", "snap_gz", "snap_snappy"])
def test_records_of_a_snapshot_are_its_stored_nodes(case: str) -> None:
    for snapshot in (GOLDEN / case / "version-2").glob("snapshot.*"):
        rows = lw.read(snapshot, view="records").to_pylist()
        nodes = lw.read(snapshot, columns=["path", "data", "acl_id"]).to_pylist()
        assert [(row["data_size"], row["acl_id"]) for row in rows] == [
            (-1 if node["data"] is None else len(node["data"]), node["acl_id"]) for node in nodes
        ]
        for stored, node in zip(rows, nodes, strict=True):
            path = b"" if node["path"] == "/" else node["path"].encode()
            assert stored["path_size"] == len(path)
            assert stored["record"][4 : 4 + len(path)] == path
            assert len(stored["record"]) == 76 + len(path) + max(stored["data_size"], 0)


def test_stored_records_with_other_columns_and_damage(tmp_path: Path) -> None:
    home = copy("dmg_flip_body", tmp_path)
    with pytest.warns(lw.DamageWarning, match="DAMAGED"):
        rows = lw.read(home / "log.17", view="records", columns=["zxid"], mode="DROPMALFORMED")
    assert rows.num_rows == 10
    with pytest.raises(lw.DamageError):
        lw.read(home / "log.17", view="records")
    bad = GOLDEN / "dmg_gz_trunc/version-2/snapshot.42.gz"
    scan = lw.scan(bad, view="records", columns=["acl_id"], mode="DROPMALFORMED")
    assert 0 < scan.to_table().num_rows < 61
    assert any("the stream is cut off" in fault.detail for _, fault in scan.report.faults)


def test_stored_records_of_several_directories() -> None:
    cases = [GOLDEN / "basic", GOLDEN / "multi"]
    rows = lw.read(cases, columns=["path"]).column(0).to_pylist()
    assert rows == [path for case in cases for path in lw.read(case, columns=["path"]).column(0).to_pylist()]
