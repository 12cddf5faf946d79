"""Repairing LevelDB logs, going back to a state that was, and what a disk can not read."""

from __future__ import annotations

import pytest
from leveldb_damage import BLOOM, PLAIN, Rows, flip, flipped, levels, rows, warnings_of
from leveldb_repair import check_leveldb_accepts, repaired, sound_entries
from leveldb_startup import CraftedDatabase, batch, fill, large, physical, put
from memory_directory import MemoryDirectory

from logwright.codec import registry
from logwright.codec.engine.repair import Strategy
from logwright.codec.fault import DamageError, UnreadableError, UsageError
from logwright.codec.leveldb.formats.records.layout import BLOCK, fragmented
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy

LAYOUT = registry.get_layout("leveldb.db")

# Logs


def test_a_log_with_damage_in_the_middle() -> None:
    good = [put(n, b"k%d" % n, b"x" * 100) for n in range(1, 40)]
    data = bytearray(b"".join(physical(one) for one in good))
    data[1000] ^= 1
    made = CraftedDatabase(logs={5: bytes(data)})
    result, mending = repaired(MemoryDirectory(made.files))
    assert len(check_leveldb_accepts(result)) == 38
    assert sound_entries(result) == sound_entries(MemoryDirectory(made.files))
    (cut,) = mending.cut
    assert cut.rows_lost == 1
    kept = result.files["000005.log"]
    assert kept[: cut.offset] == data[: cut.offset]
    assert len(kept) == len(data) - cut.length


def test_records_over_several_blocks_behind_damage() -> None:

    payloads = [put(1, b"a"), large(2, b"big", 70_000), put(3, b"b"), large(4, b"too", 90_000), put(5, b"c")]
    data = bytearray()
    for one in payloads:
        data += fragmented(one, len(data))
    data[10] ^= 1
    result, mending = repaired(MemoryDirectory(CraftedDatabase(logs={5: bytes(data)}).files))
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"b", b"big", b"c", b"too"]
    assert [cut.offset for cut in mending.cut] == [0]


def test_batches_that_go_wrong_behind_a_right_checksum() -> None:
    wrong_count = batch(10, (b"a", b"1"), (b"b", b"2"), count=3)
    cut_short = batch(20, (b"c", b"3"), (b"d", b"4"))[:-1]
    other_tag = batch(30, (b"e", b"5")) + b"\x07rest"
    nothing = batch(40, count=2) + b"\x09"
    too_small = b"small"
    poison = batch(0)
    too_high = batch(1 << 56, (b"h", b""))
    empty = batch(45)
    records = [
        put(1, b"first"),
        wrong_count,
        cut_short,
        other_tag,
        nothing,
        too_small,
        poison,
        too_high,
        empty,
        put(50, b"last"),
    ]
    data = b"".join(physical(one) for one in records)
    result, mending = repaired(MemoryDirectory(CraftedDatabase(logs={5: data}).files))
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"a", b"b", b"c", b"e", b"first", b"last"]
    assert len(mending.cut) == 7
    whys = [cut.why for cut in mending.cut]
    assert whys[0] == "WriteBatch has wrong count; the 2 operation(s) before are kept"
    assert whys[1] == "bad WriteBatch Put; the 1 operation(s) before are kept"
    assert whys[4] == "log record too small"
    assert result.files["000005.log"].endswith(physical(empty) + physical(put(50, b"last")))


def test_a_torn_tail_is_cut_and_zeros_stay() -> None:
    data = physical(put(1, b"a")) + physical(put(2, b"b"))
    result, mending = repaired(MemoryDirectory(CraftedDatabase(logs={5: data[:-3]}).files))
    assert result.files["000005.log"] == physical(put(1, b"a"))
    assert len(mending.cut) == 1
    zeros = MemoryDirectory(CraftedDatabase(logs={5: data + bytes(500)}).files)
    result, mending = repaired(zeros)
    assert result.files == zeros.files
    assert not mending.cut


def test_what_does_not_belong_to_the_padding_at_the_end_of_a_log_may_have_been_a_batch() -> None:
    data = physical(put(1, b"a")) + bytes(40) + b"torn"
    _, plan = repaired(MemoryDirectory(CraftedDatabase(logs={5: data}).files))
    assert [cut.lost for cut in plan.cut] == [{"file": 5, "first_sequence": 2}]


def test_a_log_that_is_not_there_is_told() -> None:
    made = CraftedDatabase([(1, 3, rows(0, 20))], last_sequence=40, log_number=5)
    result, mending = repaired(MemoryDirectory(made.files))
    assert result.files == made.files
    assert warnings_of(mending).startswith("000005.log, the current log by the manifest, is missing")


def test_what_fills_a_block_behind_damage() -> None:
    data = bytearray(physical(put(1, b"a")))
    data += fill(len(data) + 3, 2)
    assert len(data) == BLOCK - 3
    data += b"\0\0\0" + physical(put(3, b"c"))
    data[5] ^= 4
    result, _ = repaired(MemoryDirectory(CraftedDatabase(logs={5: bytes(data)}).files))
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"c", b"fill"]


def test_lost_writes_are_told_where_there_is_something_older() -> None:
    data = bytearray(physical(put(41, b"key001", b"new")) + physical(put(42, b"key002", b"new")))
    data[20] ^= 1
    made = CraftedDatabase([(1, 3, rows(0, 20))], {5: bytes(data)}, last_sequence=40)
    result, mending = repaired(MemoryDirectory(made.files))
    assert dict(check_leveldb_accepts(result))[b"key001"] == b"value"
    assert "for keys written or deleted by the lost part, older entries become visible" in warnings_of(
        mending
    )
    assert list(mending.removes) == []


def test_what_is_passed_over_may_be_no_batch() -> None:
    """Behind a damaged record its block is left, whatever is in it."""
    broken = flip(physical(put(1, b"k1")) + physical(b"none") + physical(b"none too"), 12)
    _, mending = repaired(MemoryDirectory(CraftedDatabase(logs={5: broken}).files), "system")
    passed = [cut for cut in mending.cut if "skips it" in cut.why]
    assert [(cut.offset, cut.rows_lost, cut.lost) for cut in passed] == [
        (len(physical(put(1, b"k1"))), 0, {"file": 5})
    ]


# Back to a state that was


def test_prefix_ends_logs_at_the_first_damage() -> None:
    one = b"".join(physical(put(n, b"k%d" % n)) for n in (1, 2, 3))
    broken = bytearray(one)
    broken[len(physical(put(1, b"k1"))) + 12] ^= 1
    logs = {5: bytes(broken), 8: physical(put(4, b"k4")), 9: b""}
    result, mending = repaired(MemoryDirectory(CraftedDatabase(logs=logs).files), "prefix")
    assert [key for key, _ in check_leveldb_accepts(result)] == [b"k1"]
    assert sorted(mending.removes) == ["000008.log", "000009.log"]
    assert [(cut.file, cut.rows_lost) for cut in mending.cut] == [("000008.log", 1), ("000005.log", None)]


def test_prefix_leaves_a_sound_database_as_it_is() -> None:
    directory = MemoryDirectory(
        CraftedDatabase([(1, 3, rows(0, 20))], {5: physical(put(41, b"a"))}, last_sequence=40).files
    )
    result, mending = repaired(directory, "prefix")
    assert result.files == directory.files
    assert not mending.cut


@pytest.mark.parametrize("how", ["flip", "missing", "empty"])
def test_prefix_goes_back_before_a_table_that_lost_entries(how: str) -> None:
    made = CraftedDatabase(
        [(1, 3, rows(0, 20)), (0, 5, rows(5, 25, b"lost", 100)), (0, 7, rows(6, 9, b"newer", 200))],
        {9: physical(put(300, b"newest"))}, last_sequence=299,
    )  # fmt: skip
    files = dict(made.files)
    if how == "missing":
        del files["000005.ldb"]
    else:
        files["000005.ldb"] = (
            b"" if how == "empty" else bytes([files["000005.ldb"][0] ^ 1]) + files["000005.ldb"][1:]
        )
    result, mending = repaired(MemoryDirectory(files), "prefix")
    assert check_leveldb_accepts(result) == [(key, value) for key, _, value in rows(0, 20)]
    assert levels(result) == {3: 1}
    assert {cut.file for cut in mending.cut} >= {"000007.ldb", "000009.log"}


def test_prefix_mends_what_loses_nothing() -> None:
    made = CraftedDatabase([(1, 3, rows(0, 20))], last_sequence=40, settings=PLAIN)
    data = made.files["000003.ldb"]
    result, _ = repaired(flipped(made, "000003.ldb", len(data) - 1), "prefix")
    assert result.files == made.files


def test_prefix_refuses_where_ages_mix() -> None:
    mixed: Rows = [(b"a", 1, b""), (b"z", 500, b"")]
    made = CraftedDatabase([(1, 3, rows(0, 20, b"", 100)), (2, 5, mixed)], last_sequence=600, settings=PLAIN)
    with pytest.raises(DamageError, match=r"000005\.ldb has entries from before and after"):
        repaired(flipped(made, "000003.ldb", 10), "prefix")
    alone = CraftedDatabase([(1, 3, rows(0, 20, b"", 100))], last_sequence=600, settings=PLAIN)
    with pytest.raises(DamageError, match="no table is older"):
        repaired(flipped(alone, "000003.ldb", 10), "prefix")


# What can't be read, and what is not asked rightly


class Dying(MemoryDirectory):
    """A directory on a disk that can't read some bytes of a file."""

    def __init__(self, files: dict[str, bytes], name: str, start: int, stop: int) -> None:
        super().__init__(files)
        self.bad = name, start, stop

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        bad, start, stop = self.bad
        end = len(self.files[name]) if length is None else offset + length
        if name == bad and offset < stop and end > start:
            raise UnreadableError.of(max(start, offset), stop - max(start, offset), "EIO", name)
        return super().read(name, offset, length)


@pytest.mark.parametrize(("start", "stop"), [(0, 40), (300, 310), (1500, 1600), (2300, 2700)])
def test_a_disk_that_cannot_read_some_of_a_table(start: int, stop: int) -> None:
    made = CraftedDatabase([(2, 5, rows(0, 90))], last_sequence=90, settings=BLOOM)
    dying = Dying(made.files, "000005.ldb", start, stop)
    result, mending = repaired(dying)
    assert sound_entries(result) == sound_entries(dying)
    assert len(check_leveldb_accepts(result)) >= 60
    assert any("can't read" in cut.why for cut in mending.cut)


@pytest.mark.parametrize(("start", "stop"), [(0, 40), (900, 910), (38_000, 39_000), (49_000, 49_990)])
def test_a_disk_that_cannot_read_some_of_a_log(start: int, stop: int) -> None:
    data = b""
    for n in range(1, 401):
        data += fragmented(put(n, b"k%03d" % n, b"x" * 100), len(data))
    dying = Dying(CraftedDatabase(logs={5: data}).files, "000005.log", start, stop)
    result, mending = repaired(dying)
    assert sound_entries(result) == sound_entries(dying)
    assert len(check_leveldb_accepts(result)) >= 380
    assert any("can't read" in cut.why for cut in mending.cut)


def test_zeros_at_the_end_that_cannot_be_read_are_cut() -> None:
    data = physical(put(1, b"a")) + bytes(1000)
    dying = Dying(CraftedDatabase(logs={5: data}).files, "000005.log", 500, 700)
    result, _ = repaired(dying)
    assert result.files["000005.log"] == physical(put(1, b"a"))


def test_current_on_a_dying_disk() -> None:
    made = CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=40)
    dying = Dying(made.files, "CURRENT", 0, 16)
    plan = LAYOUT.plan(dying, Options(LAYOUT.read_options))
    mending = LAYOUT.capabilities.repair.repair(
        [dying], [plan], Strategy.SALVAGE, Options(LAYOUT.capabilities.repair.options)
    )
    made_files = {mended.name: mended.pieces for mended in mending.files()}
    name = next(one for one in made.files if one.startswith("MANIFEST"))
    assert made_files["CURRENT"] == [f"{name}\n".encode()]
    assert made_files[name] == [Copy(name, 0, len(made.files[name]))]


def test_copies_are_refused() -> None:
    one = MemoryDirectory(CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=40).files)
    plan = LAYOUT.plan(one, Options(LAYOUT.read_options))
    with pytest.raises(UsageError, match="no replicas"):
        LAYOUT.capabilities.repair.repair(
            [one, one], [plan, plan], Strategy.SALVAGE, Options(LAYOUT.capabilities.repair.options)
        )


def test_a_repair_by_the_system_that_has_nothing_to_say() -> None:
    _, mending = repaired(
        MemoryDirectory(CraftedDatabase([(1, 5, rows(0, 20))], last_sequence=20).files), "system"
    )
    assert warnings_of(mending) == ""
    assert mending.summary().rows == 20
