"""`repair` and `rebuild` on partitions of real brokers: in place equals out of place, and a second run changes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from kafka_golden import CASES

import logwright as lw
from logwright.cli import main

SOME = (
    "dmg_flip_payload", "dmg_batch_removed", "dmg_index_garbage_old", "dmg_garbage_tail_100", "dmg_txn_marker_type",
    "dmg_epoch_garbage", "v2_compacted_zstd",
)  # fmt: skip


def files(path: Path) -> dict[str, bytes]:
    return {
        str(child.relative_to(path)): child.read_bytes()
        for child in sorted(path.rglob("*"))
        if child.is_file()
    }


@pytest.mark.alike
@pytest.mark.parametrize("name", SOME)
def test_in_place_equals_out_of_place_and_is_idempotent(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    shutil.copytree(case.data, tmp_path / "logs")
    partition = tmp_path / "logs" / case.partition.name
    before, beside = files(tmp_path / "logs"), tmp_path / "out" / partition.name
    report = lw.repair(partition, beside)
    json.dumps(report.to_dict())
    assert files(tmp_path / "logs") == before
    assert lw.verify(beside).ok
    rows = lw.scan(beside).to_table().num_rows
    assert report["rows"] == rows
    lw.repair(partition, in_place=True, backup=tmp_path / "backup")
    assert files(partition) == files(beside)
    around = {path: data for path, data in before.items() if not path.startswith(f"{partition.name}/")}
    assert {path: data for path, data in files(tmp_path / "logs").items() if path in around} == around
    second_report = lw.repair(partition, in_place=True, backup=tmp_path / "again")
    assert not second_report.incomplete
    assert not (tmp_path / "again").exists()
    saved = files(tmp_path / "backup") if (tmp_path / "backup").exists() else {}
    gone = {path: data for path, data in before.items() if files(tmp_path / "logs").get(path) != data}
    assert {path.partition("/")[2]: data for path, data in gone.items()}.items() <= saved.items()


def test_text_of_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "fixed"
    with pytest.raises(SystemExit) as ended:
        main(["repair", str(CASES["dmg_flip_payload"].partition), "--no-correct", "--out", str(out)])
    assert ended.value.code == 3
    output = capsys.readouterr().out
    assert "removed: 125 bytes (1 range; 2 records lost)" in output
    assert "name the directory dmg_flip_payload-0" in output
    assert output.splitlines()[-1].strip() == f"logwright verify {out}"


@pytest.mark.parametrize("name", ["v0_lz4", "v1_append_time_lz4", "v1_gzip", "mixed_v0_v1_v2"])
def test_a_wrapper_that_occurs_twice_is_kept_once(name: str, tmp_path: Path) -> None:
    source = CASES[name].partition
    frames = lw.read(source, view="batches", columns=["records_count", "magic"]).to_pylist()
    at = max(i for i, frame in enumerate(frames) if frame["magic"] < 2 and frame["records_count"] > 1)
    lw.damage(source, out=tmp_path / "bad", op=f"duplicate:frame={at}")
    report = lw.repair(tmp_path / "bad" / source.name, tmp_path / "out" / source.name)
    assert not [cut for cut in report.cut if cut["rows_lost"]]
    assert lw.diff(source, tmp_path / "out" / source.name).equal
    log = "00000000000000000000.log"
    assert (tmp_path / "out" / source.name / log).read_bytes() == (source / log).read_bytes()


@pytest.mark.parametrize(("name", "bit"), [("v0_mixed_09", 1), ("v0_gzip", 2), ("v1_gzip", 40)])
def test_the_offset_of_a_wrapper_is_restored(name: str, bit: int, tmp_path: Path) -> None:
    """No checksum covers it. The messages of magic 0 prove it, in magic 1 the batches around it."""
    source = CASES[name].partition
    log = "00000000000000000000.log"
    frames = lw.read(source, view="batches", columns=["position", "records_count", "compression"]).to_pylist()
    (at, *_) = [f["position"] for f in frames if f["compression"] != "none" and f["records_count"] > 3]
    copy = shutil.copytree(source, tmp_path / source.name)
    data = bytearray((source / log).read_bytes())
    data[at + 7 - bit // 8] ^= 1 << bit % 8
    (copy / log).write_bytes(data)
    assert not lw.verify(copy).ok
    lw.repair(copy, tmp_path / "out" / source.name)
    assert (tmp_path / "out" / source.name / log).read_bytes() == (source / log).read_bytes()


def test_note_on_a_moved_wrapper_has_the_stored_offsets(tmp_path: Path) -> None:
    """A wrapper stores its last offset, a batch of magic 2 its first one."""
    source = CASES["v1_gzip"].partition
    log = "00000000000000000000.log"
    frames = lw.read(source, view="batches", columns=["position", "records_count", "last_offset"]).to_pylist()
    frame = next(frame for frame in frames[1:] if frame["records_count"] > 3)
    copy = shutil.copytree(source, tmp_path / source.name)
    data = bytearray((source / log).read_bytes())
    damaged = frame["last_offset"] ^ 3 << 40
    data[frame["position"] : frame["position"] + 8] = damaged.to_bytes(8, "big")
    (copy / log).write_bytes(data)
    report = lw.repair(copy, tmp_path / "out" / source.name)
    assert (tmp_path / "out" / source.name / log).read_bytes() == (source / log).read_bytes()
    change = f"at byte {frame['position']} is changed from {damaged} to {frame['last_offset']}: "
    (note,) = [note for note in report.notes if change in note]
    assert ": offset of the " in note
