"""The golden damaged partitions, created from their bases by operations, are equal in every byte of every file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kafka_golden import CASES

import logwright as lw
from logwright.corpora.cases import Case
from logwright.corpora.damage import Input
from logwright.corpora.damage_apply import Surgeon
from logwright.corpora.damage_ops import parse

A = "file=00000000000000000086.log"
"""The active segment: batches at 0, 209, 327 (gzip) and 452."""
OLD = "file=00000000000000000030"
FIRST = "file=00000000000000000000"
B = f"{A},frame=2"
LAST = "file=00000000000000000040.snapshot"
MARKER = "file=00000000000000000023.log,frame=-1"
EPOCHS = "file=leader-epoch-checkpoint"


def hex_of(case: str, name: str, start: int, stop: int | None = None) -> str:
    """Return these bytes of a case: random garbage."""
    return (CASES[case].partition / name).read_bytes()[start:stop].hex()


def moved(old: int, new: int) -> list[str]:
    return [
        f"rename:file={old:020}.{kind},to={new:020}.{kind}" for kind in ("log", "index", "timeindex")
    ]  # fmt: skip


ACTIVE, MIDDLE = "00000000000000000086", "00000000000000000030"

MADE: dict[str, list[str]] = {
    "batch_removed": [f"drop:{OLD}.log,frame=1"],
    "batch_swapped": [f"reorder:{FIRST}.log,frames=10..11"],
    "batch_twice": ["duplicate:file=last,frame=2"],
    "derived_all_missing": [
        "remove:file=*.index", "remove:file=*.timeindex", "remove:file=*.snapshot", f"remove:{EPOCHS}"
    ],
    "epoch_alpha": [f"insert:{EPOCHS},at=-1,text=x"],
    "epoch_blank_line": [f'insert:{EPOCHS},at=end,text="\\n"'],
    "epoch_count": [f"write:{EPOCHS},at=2,text=3"],
    "epoch_count_low": [f"write:{EPOCHS},at=2,text=1"],
    "epoch_empty": [f"cut:{EPOCHS},at=0"],
    "epoch_garbage": [f"cut:{EPOCHS},at=0", f"insert:{EPOCHS},at=0,hex=00010267617262616765"],
    "epoch_missing": [f"remove:{EPOCHS}"],
    "epoch_no_newline": [f"truncate:{EPOCHS},at=-1"],
    "epoch_version": [f"flip:{EPOCHS},at=0"],
    "fix_attr_high": [f"set:{B},field=attributes,hex={hex_of('dmg_fix_attr_high', ACTIVE + '.log', 348, 350)},reseal"],
    "fix_codec5": [f"set:{B},field=attributes.compression,value=5,reseal"],
    "fix_codec_lz4": [f"set:{B},field=attributes.compression,value=3,reseal"],
    "fix_count_minus": [f"set:{B},field=records_count,value=0,reseal"],
    "fix_count_plus": [f"set:{B},field=records_count,add=1,reseal"],
    "fix_garbage": [f"write:{B},field=records,at=0,hex={hex_of('dmg_fix_garbage', ACTIVE + '.log', 388, 452)},reseal"],
    "fix_lastdelta": [f"set:{B},field=last_offset_delta,add=2,reseal"],
    "fix_magic5": [f"set:{B},field=magic,value=5,reseal"],
    "flip_and_index_missing": [f"flip:{OLD}.log,at=175,bit=1", f"remove:{OLD}.index"],
    "flip_attr": [f"flip:{B},field=attributes,at=-1,bit=1"],
    "flip_attr_high": [f"flip:{B},field=attributes,bit=6"],
    "flip_attr_txn": [f"set:{B},field=attributes.is_transactional,value=1"],
    "flip_count": [f"set:{B},field=records_count,add=8"],
    "flip_crc": [f"flip:{B},field=crc,bit=7"],
    "flip_epoch": [f"set:{B},field=partition_leader_epoch,add=1"],
    "flip_epoch_high": [f"set:{B},field=partition_leader_epoch,add=0x1000000"],
    "flip_first_batch": ["flip:at=64,bit=7"],
    "flip_last_batch": ["flip:frame=-1,at=68"],
    "flip_lastdelta": [f"flip:{B},field=last_offset_delta,at=-1,bit=2"],
    "flip_len_huge": [f"set:{B},field=batch_length,add=16m"],
    "flip_len_neg": [f"flip:{B},field=batch_length,bit=7"],
    "flip_len_plus": [f"set:{B},field=batch_length,add=2"],
    "flip_magic_0": [f"set:{B},field=magic,value=0"],
    "flip_magic_3": [f"set:{B},field=magic,value=3"],
    "flip_magic_neg": [f"set:{B},field=magic,value=-126"],
    "flip_maxts": [f"flip:{B},field=max_timestamp,mask=0x40,at=5"],
    "flip_offset_back": [f"flip:{B},field=base_offset,at=-1,bit=4"],
    "flip_offset_bit0": [f"flip:{B},field=base_offset,at=-1"],
    "flip_offset_neg": [f"flip:{B},field=base_offset,bit=7"],
    "flip_offset_plus": [f"set:{B},field=base_offset,add=0x10000000000"],
    "flip_old_first": [f"flip:{FIRST}.log,frame=0,field=crc,at=1,bit=7"],
    "flip_old_len": [f"flip:{FIRST}.log,frame=10,field=batch_length,at=2"],
    "flip_old_payload": [f"flip:{OLD}.log,frame=1,at=67,bit=3"],
    "flip_payload": [f"flip:{B},at=66,bit=1"],
    "flip_pid": [f"flip:{B},field=producer_id,at=5"],
    "flip_two": [f"flip:{FIRST}.log,at=1577,bit=7", "flip:at=391,bit=1"],
    "foreign_file": [
        f"create:file=README,hex={hex_of('dmg_foreign_file', 'README', 0)}",
        'create:file=leader-epoch-checkpoint.tmp,text="0\\n"',
    ],
    "garbage_mid": [f"insert:{B},at=0,hex={hex_of('dmg_garbage_mid', ACTIVE + '.log', 327, 367)}"],
    "garbage_tail_10": [f"insert:at=end,hex={hex_of('dmg_garbage_tail_10', ACTIVE + '.log', 660)}"],
    "garbage_tail_100": [f"insert:at=end,hex={hex_of('dmg_garbage_tail_100', ACTIVE + '.log', 660)}"],
    "index_all_missing": ["remove:file=*.index", "remove:file=*.timeindex"],
    "index_empty_old": [f"cut:{OLD}.index,at=0"],
    "index_garbage_old": [f"write:{OLD}.index,at=0,hex={hex_of('dmg_index_garbage_old', MIDDLE + '.index', 0)}"],
    "index_missing_active": [f"remove:file={ACTIVE}.index"],
    "index_missing_old": [f"remove:{OLD}.index"],
    "index_odd_active": [f"cut:file={ACTIVE}.index,at=-3"],
    "index_odd_length": [f"insert:{OLD}.index,at=end,hex=010203"],
    "index_other_segment": [f"remove:{OLD}.index", f"copy:{FIRST}.index,to={MIDDLE}.index"],
    "index_padded": [
        f"insert:file={ACTIVE}.index,at=end,zeros=4088",
        f"zero:file={ACTIVE}.timeindex,frame=-1",
        f"insert:file={ACTIVE}.timeindex,at=end,zeros=4068",
    ],
    "index_pos_shift": [f"set:{OLD}.index,frame={i},field=position,add=1" for i in range(4)],
    "index_stale": ["cut:frame=1"],
    "left_deleted": [f"copy:{FIRST}.{suffix},to={'0' * 20}.{suffix}.deleted" for suffix in ("index", "log")],
    "left_split": [f"copy:{OLD}.log,to={MIDDLE}.log.cleaned", f"copy:{A},to={ACTIVE}.log.swap"],
    "left_swap_indexes": [
        f"rename:{FIRST}.{suffix},to={'0' * 20}.{suffix}.swap" for suffix in ("index", "timeindex")
    ],
    "len_13": [f"set:{B},field=batch_length,value=13"],
    "len_30": [f"set:{B},field=batch_length,value=30"],
    "len_zero": [f"zero:{B},field=batch_length"],
    "offset_overflow": ["set:frame=-1,field=base_offset,value=2147483734"],
    "orphan_index": [f"remove:{OLD}.log"],
    "pm_empty": ["cut:file=partition.metadata,at=0"],
    "pm_missing": ["remove:file=partition.metadata"],
    "pm_zero_id": [f"write:file=partition.metadata,at=21,text={'A' * 22}"],
    "seg_alpha": [f"copy:{FIRST}.log,to=foo.log"],
    "seg_duplicate": [f"copy:{OLD}.log,to={31:020}.log"],
    "seg_missing_first": [f"remove:{FIRST}.{suffix}" for suffix in ("log", "index", "timeindex")],
    "seg_missing_last": [f"remove:file={ACTIVE}.{suffix}" for suffix in ("log", "index", "timeindex")],
    "seg_missing_mid": [f"remove:{OLD}.{suffix}" for suffix in ("log", "index", "timeindex")],
    "seg_overlap": [f"copy:{FIRST}.log,to={24:020}.log", f"drop:file={24:020}.log,frames=0..9"],
    "seg_unpadded": [f"copy:{FIRST}.log,to=5.log"],
    "seg_wrong_base_high": moved(30, 32),
    "seg_wrong_base_low": moved(30, 29),
    "timeindex_empty": [f"cut:{OLD}.timeindex,at=0"],
    "timeindex_missing": [f"remove:{OLD}.timeindex"],
    "timeindex_missing_active": [f"remove:file={ACTIVE}.timeindex"],
    "timeindex_odd": [f"insert:{OLD}.timeindex,at=end,text=abcde"],
    "timeindex_unsorted": [f"reorder:{FIRST}.timeindex,frames=0..-1"],
    "torn_append": ["cut:frame=-1,at=40"],
    "trunc_body": ["cut:at=586"],
    "trunc_boundary": ["cut:frame=3"],
    "trunc_hdr_17": ["cut:frame=3,at=17"],
    "trunc_hdr_18": ["cut:frame=3,at=18"],
    "trunc_hdr_5": ["cut:frame=3,at=5"],
    "trunc_hdr_60": ["cut:frame=3,at=60"],
    "trunc_hdr_61": ["cut:frame=3,at=61"],
    "trunc_last_byte": ["cut:at=-1"],
    "trunc_old_boundary": [f"cut:{OLD}.log,frame=-1"],
    "trunc_old_to_zero": [f"cut:{OLD}.log,at=0"],
    "trunc_to_zero": ["cut:at=0"],
    "trunc_two": ["cut:frame=2,at=70"],
    "txn_index_all_missing": ["remove:file=*.txnindex"],
    "txn_index_below_base": [f"set:file={23:020}.txnindex,frame=0,field=last_offset,value=-5"],
    "txn_index_missing": [f"remove:file={1:020}.txnindex"],
    "txn_index_partial": [f"insert:file={23:020}.txnindex,at=end,zeros=10"],
    "txn_index_version": [f"set:file={1:020}.txnindex,frame=0,field=version,value=1"],
    "txn_index_version_hi": [f"set:file={1:020}.txnindex,frame=0,field=version,value=256"],
    "txn_marker_crc": [f"flip:{MARKER},field=crc,at=1,bit=7"],
    "txn_marker_key_short": [
        f"set:{MARKER},record=0,field=key,hex=0000,reseal", f"zero:{MARKER},record=0,field=value,reseal"
    ],
    "txn_marker_lost": [f"drop:{MARKER}"],
    "txn_marker_type": [
        f"set:{MARKER},record=0,field=key.type,value=9,reseal",
        f"set:{MARKER},record=0,field=value.coordinator_epoch,value=0,reseal",
    ],
    "txn_no_index": [f"remove:file=*.{suffix}" for suffix in ("index", "timeindex", "txnindex", "snapshot")],
    "txn_no_snap_txnindex": ["remove:file=*.snapshot", "remove:file=*.txnindex"],
    "txn_snapshot_crc": [f"flip:{LAST},field=crc,at=2,bit=5"],
    "txn_snapshot_empty": [f"cut:{LAST},at=0"],
    "txn_snapshot_extra": [f"insert:{LAST},at=end,zeros=8"],
    "txn_snapshot_last_missing": [f"remove:{LAST}"],
    "txn_snapshot_missing": ["remove:file=*.snapshot"],
    "txn_snapshot_stray": [f"copy:{LAST},to={5000:020}.snapshot"],
    "txn_snapshot_trunc": [f"cut:{LAST},at=-20"],
    "txn_snapshot_version": [f"set:{LAST},field=version,value=2"],
    "zero_batch": [f"zero:{B}"],
    "zero_last_batch_tail": ["zero:frame=3,at=104,length=104"],
    "zero_old_page": [f"zero:{OLD}.log,at=131,length=256"],
    "zero_old_tail": [f"insert:{OLD}.log,at=end,zeros=64"],
    "zero_tail_100": ["insert:at=end,zeros=100"],
    "zero_tail_12": ["insert:at=end,zeros=12"],
    "zero_tail_17": ["insert:at=end,zeros=17"],
    "zero_tail_18": ["insert:at=end,zeros=18"],
    "zero_tail_4096": ["insert:at=end,zeros=4k"],
}  # fmt: skip
"""Operations by case, without `dmg_`. The other cases differ in random bytes or in text that has no simpler form."""


def files(path: Path) -> dict[str, bytes]:
    return {child.name: child.read_bytes() for child in sorted(path.iterdir()) if child.is_file()}


@pytest.mark.parametrize("name", MADE)
def test_golden_damage_is_created_by_operations(name: str) -> None:
    case = CASES[f"dmg_{name}"]
    with Input(str(base_of(case)), None) as source:
        tree = source.tree()
        surgeon = Surgeon(tree)
        done = [effect for op in MADE[name] for effect in surgeon.run(parse(op))]
        images = {
            image_name: image.pread(0, image.size).tobytes() for image_name, image in tree.images.items()
        }
        assert images == files(case.partition)
        # Replay the recorded operations.
        tree = source.tree()
        surgeon = Surgeon(tree, seed=1)
        replayed = [effect for op in done for effect in surgeon.run(parse(json.loads(json.dumps(op))))]
        assert replayed == done
        assert {
            image_name: image.pread(0, image.size).tobytes() for image_name, image in tree.images.items()
        } == images


def base_of(case: Case) -> Path:
    assert case.base is not None
    return CASES[case.base].partition


@pytest.mark.alike
@pytest.mark.parametrize(
    "name", ["flip_payload", "fix_count_plus", "seg_missing_mid", "left_swap_indexes", "txn_marker_type"]
)
def test_recorded_operations_recreate_golden_damage(name: str, tmp_path: Path) -> None:
    case = CASES[f"dmg_{name}"]
    base = base_of(case)
    before = files(base)
    damaged = lw.damage(base, tmp_path / "out", MADE[name])
    assert files(Path(damaged.path)) == files(case.partition)
    assert files(base) == before
    record = damaged.manifest
    assert record["changed"] or record["removed"] or record["added"]
    replayed = lw.damage(base, tmp_path / "again", apply=damaged.manifest_path)
    assert files(Path(replayed.path)) == files(case.partition)
    assert Path(replayed.manifest_path).read_text() == Path(damaged.manifest_path).read_text()


CHECKPOINTS = {
    "ck_cleaner_garbage": "cleaner-offset-checkpoint",
    "ck_hw_garbage": "replication-offset-checkpoint",
    "ck_logstart_mid": "log-start-offset-checkpoint",
    "ck_recovery_alpha": "recovery-point-offset-checkpoint",
    "ck_recovery_blank": "recovery-point-offset-checkpoint",
    "ck_recovery_empty": "recovery-point-offset-checkpoint",
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_damage_of_a_log_directory(name: str, tmp_path: Path) -> None:
    """The log directory is damaged as a whole: its files, and those of its partitions."""
    case, base = CASES[f"dmg_{name}"], CASES["dmg_base"]
    expected = files(case.data)
    damaged = lw.damage(
        base.data, tmp_path / "out", {"op": "create", "file": CHECKPOINTS[name], "hex": expected[CHECKPOINTS[name]].hex()}
    )  # fmt: skip
    assert files(Path(damaged.path)) == expected
    assert files(Path(damaged.path) / "dmg_base-0") == files(base.partition)
