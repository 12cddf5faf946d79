"""Segment files that were renamed, exchanged, copied over one another or joined: their batches keep their offsets."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_golden import CASES
from kafka_log import batch
from kafka_repairs import ID, OPTIONS, check_broker_accepts, partition_directory, read_partition, repair

import logwright as lw
from logwright.codec.kafka.formats import partition_metadata
from logwright.codec.kafka.formats.log.layout import LENGTH_END
from logwright.codec.kafka.names import METADATA_FILE, segment_name

Files = dict[str, bytes]
SEGMENT = (".log", ".index", ".timeindex", ".txnindex")


def log(base: int) -> str:
    return segment_name(base, ".log")


def exchanged(first: int, second: int) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        files[log(first)], files[log(second)] = files[log(second)], files[log(first)]

    return change


def renamed(base: int, to: int) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        for suffix in SEGMENT:
            if segment_name(base, suffix) in files:
                files[segment_name(to, suffix)] = files.pop(segment_name(base, suffix))

    return change


def joined(base: int, to: int) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        files[log(to)] += files.pop(log(base))

    return change


def reversed_names(files: Files) -> None:
    names = sorted(name for name in files if name.endswith(".log"))
    files.update(zip(names, [files[name] for name in reversed(names)], strict=True))


def batches_of(data: bytes) -> list[bytes]:
    out, at = [], 0
    while at < len(data):
        size = LENGTH_END + int.from_bytes(data[at + 8 : at + LENGTH_END], "big")
        out.append(data[at : at + size])
        at += size
    return out


def values(directory: Any, tmp_path: Path) -> dict[int, bytes]:
    path = tmp_path / directory.name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for name, data in directory.files.items():
        (path / name).write_bytes(data)
    rows = lw.read(path, columns=["offset", "value"])
    return dict(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("dmg_base", exchanged(0, 30)),
        ("dmg_base", reversed_names),
        ("dmg_base", renamed(0, 1 << 31)),
        ("dmg_base", renamed(30, 30 + (1 << 31))),
        ("dmg_base", renamed(86, 86 + (1 << 31))),
        ("dmg_base", renamed(58, 10**18)),
        ("dmg_base", renamed(30, 33)),
        ("dmg_base", renamed(86, 87)),
        ("dmg_base", joined(0, 86)),
        ("dmg_base", joined(58, 0)),
        ("dmg_base", joined(86, 30)),
        # Segments of one batch each.
        ("dmg_tbase", exchanged(0, 22)),
        ("dmg_tbase", renamed(0, 1 << 31)),
        ("dmg_tbase", renamed(22, 22 + (1 << 31))),
        ("dmg_tbase", joined(0, 23)),
        # Offsets have gaps.
        ("v2_compacted_producers", exchanged(0, 42)),
        ("v2_compacted_producers", exchanged(0, 76)),
        ("v0_rolled", reversed_names),
        ("v1_rolled", exchanged(0, 45)),
    ],
)
def test_batches_keep_their_offsets_whatever_the_name_of_their_file(
    tmp_path: Path, case: str, change: Callable[[Files], None]
) -> None:
    undamaged = read_partition(CASES[case].partition)
    damaged = read_partition(CASES[case].partition)
    for directory in (undamaged, damaged):
        directory.files.setdefault(METADATA_FILE, partition_metadata.pack(ID))
    change(damaged.files)
    repaired, plan = repair(damaged, **OPTIONS)
    assert values(repaired, tmp_path) == values(undamaged, tmp_path)
    assert plan.summary().ids == repair(undamaged, **OPTIONS)[1].summary().ids
    check_broker_accepts(repaired)
    # A broker that continues after an empty segment under a wrong name would skip offsets.
    assert max(int(name[:20]) for name in repaired.files if name.endswith(".log")) <= 130


def test_file_under_a_wrong_name_is_renamed() -> None:
    damaged = read_partition(CASES["dmg_base"].partition)
    renamed(30, 30 + (1 << 31))(damaged.files)
    repaired, plan = repair(damaged, **OPTIONS)
    assert repaired.files == repair(read_partition(CASES["dmg_base"].partition), **OPTIONS)[0].files
    assert (
        f"{log(30 + (1 << 31))} is renamed to {log(30)}: its batches are those of that segment." in plan.notes
    )


@pytest.mark.parametrize("to", [4, 8, 32])
def test_offset_is_not_corrected_to_a_name_that_other_batches_contradict(tmp_path: Path, to: int) -> None:
    """The first batch is alone, before damage, and its offset differs from the name by one bit."""
    batches = [batch(offset) for offset in range(6)]
    broken = bytearray(batches[1])
    broken[-1] ^= 3
    data = batches[0] + bytes(broken) + b"".join(batches[2:])
    repaired, plan = repair(partition_directory({log(to): data}), **OPTIONS)
    assert sorted(values(repaired, tmp_path)) == [0, 2, 3, 4, 5]
    assert not any("is changed from" in note for note in plan.notes)


def test_single_batches_exchanged_between_segments_are_moved_back(tmp_path: Path) -> None:
    """The file of the segment that has the offsets of a batch has something else at its place, or ends before it."""
    before = read_partition(CASES["dmg_base"].partition)
    names = sorted(name for name in before.files if name.endswith(".log"))
    batches = {name: batches_of(before.files[name]) for name in names}
    expected = values(before, tmp_path)
    rng = random.Random(5)
    for _ in range(40):
        first, second = rng.sample([name for name in names if batches[name]], 2)
        i, j = rng.randrange(len(batches[first])), rng.randrange(len(batches[second]))
        parts = {name: list(batches[name]) for name in (first, second)}
        parts[first][i], parts[second][j] = parts[second][j], parts[first][i]
        files = {**before.files, **{name: b"".join(part) for name, part in parts.items()}}
        repaired, plan = repair(partition_directory(files, before.name), **OPTIONS)
        assert values(repaired, tmp_path) == expected, (first, i, second, j)
        assert not [cut for cut in plan.cut if cut.rows_lost], (first, i, second, j)


def test_batches_that_are_there_twice_are_not_moved_again() -> None:
    damaged = read_partition(CASES["dmg_base"].partition)
    damaged.files[log(500)] = damaged.files[log(30)]
    repaired, plan = repair(damaged, **OPTIONS)
    assert repaired.files == repair(read_partition(CASES["dmg_base"].partition), **OPTIONS)[0].files
    assert {cut.rows_lost for cut in plan.cut} == {0}


@pytest.mark.parametrize("name", ["30.log", "backup.log", "30.old.log"])
def test_log_under_a_name_that_is_not_a_segments_is_read_where_its_batches_are_missing(name: str) -> None:
    undamaged = repair(read_partition(CASES["dmg_base"].partition), **OPTIONS)[0].files
    damaged = read_partition(CASES["dmg_base"].partition)
    damaged.files[name] = damaged.files.pop(log(30))
    repaired, plan = repair(damaged, **OPTIONS)
    repaired.files.pop("30.old.log", None)
    assert repaired.files == undamaged
    assert any(
        note.startswith(f"{name}: the batches with offsets 30 to 57 are in no other file")
        for note in plan.notes
    )
    # Nothing is taken from a log with other batches at the same offsets.
    damaged.files[name] = damaged.files[name] + damaged.files[log(58)][:-1]
    damaged.files[log(58)] = read_partition(CASES["v2_rolled"].partition).files[log(67)]
    assert log(30) not in repair(damaged, **OPTIONS)[0].files


def test_segment_of_another_partition_is_not_mixed_in() -> None:
    """Its offsets are those of other batches."""
    damaged = read_partition(CASES["dmg_base"].partition)
    damaged.files[log(0)] = read_partition(CASES["v2_rolled"].partition).files[log(43)]
    repaired, plan = repair(damaged, **OPTIONS)
    assert repaired.files[log(0)] == b""
    for base in (30, 58, 86):
        assert repaired.files[log(base)] == damaged.files[log(base)]
    assert sum(cut.rows_lost or 0 for cut in plan.cut) == 24


def test_offset_is_not_corrected_by_the_name_of_the_file_alone(tmp_path: Path) -> None:
    """A file of one batch under the name of a neighbour looks like one with a flipped bit in base_offset."""
    rows = [{"key": b"k", "value": b"%d" % number} for number in range(4)]
    lw.write(rows, tmp_path / "orders-0", "kafka.partition", segment_bytes=70, batch_size=1)
    names = [log(number) for number in range(4)]
    data = [(tmp_path / "orders-0" / name).read_bytes() for name in names]
    for name, content in zip(names, [data[2], data[3], data[0], data[1]], strict=True):
        (tmp_path / "orders-0" / name).write_bytes(content)
    lw.repair(tmp_path / "orders-0", tmp_path / "repaired")
    assert lw.read(tmp_path / "repaired")["value"].to_pylist() == [row["value"] for row in rows]


def test_row_below_the_base_offset_of_its_file_is_not_skipped_silently(tmp_path: Path) -> None:
    path = tmp_path / "dmg_base-0"
    shutil.copytree(CASES["dmg_base"].partition, path)
    for suffix in (*SEGMENT, ".snapshot"):
        if (path / segment_name(86, suffix)).exists():
            (path / segment_name(86, suffix)).rename(path / segment_name(87, suffix))
    text = "offsets 86 to 89 begin below 87, the base offset in the file's name"
    with pytest.raises(lw.DamageError, match=text):
        lw.read(path)
    assert text in [fault.detail for name, fault in lw.verify(path).faults if name == log(87)]
    assert lw.read(path, mode="AS_SYSTEM").equals(lw.read(CASES["dmg_base"].partition, mode="AS_SYSTEM"))
