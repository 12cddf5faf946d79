"""Walking over the batches of a segment: each once for any window size, past damage and past unreadable ranges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka_log import NAME, batch, record
from kafka_walks import BATCHES, DAMAGE, LENGTH, MAGIC, STARTS, WHOLE, Disk, planned, put, walk_by

from logwright.codec.fault import UsageError
from logwright.codec.frames.walk import good_frames, walk_file
from logwright.codec.kafka.formats.log.codec import CODEC
from logwright.codec.kafka.formats.log.layout import (
    CONTROL,
    CONTROL_RECORD_KEY,
    END_TXN_MARKER,
    TRANSACTIONAL,
)
from logwright.codec.kafka.formats.log.markers import ABORT
from logwright.codec.kafka.state.producers import AbortedTxn
from logwright.codec.kafka.store.resume import _batches
from logwright.codec.kafka.store.transactions import transactions
from logwright.codec.store.listing import PlannedFile, Role
from logwright.codec.window import Frames, Window

WINDOWS = (61, 100, 333, 1 << 20)


def numbers(parts: Any, data: bytes) -> list[int]:
    """Return the numbers of the batches by their base offsets, and check their positions."""
    out = []
    for window, frames in parts:
        for start, end, head in zip(frames.start, frames.end, frames.header, strict=True):
            at = window.offset + int(start)
            assert bytes(window.data[start:end]) == data[at : window.offset + int(end)]
            out.append(int(head["base_offset"]) // 10)
    return out


@pytest.fixture(params=WINDOWS)
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    walk_by(request.param, monkeypatch)
    return int(request.param)


def walk(disk: Disk, file: PlannedFile) -> Iterator[tuple[Window, Frames]]:
    return good_frames(walk_file(disk, file, CODEC, check=False))


def appending(disk: Disk, file: PlannedFile) -> Iterator[tuple[Window, Frames]]:
    """The last segment of a partition that is being written."""
    return _batches(disk, file, True)


def salvage(disk: Disk) -> Iterator[tuple[Window, Frames]]:
    return good_frames(
        walk_file(
            disk, PlannedFile(NAME, len(disk.data), Role.PRIMARY, "kafka.log", {"base_offset": 0}), CODEC
        )
    )


def test_each_walk_gives_each_batch_once(window: int) -> None:
    disk = Disk(WHOLE)
    assert numbers(walk(disk, planned(WHOLE)), WHOLE) == list(range(10))
    assert numbers(appending(disk, planned(WHOLE)), WHOLE) == list(range(10))
    assert numbers(salvage(disk), WHOLE) == list(range(10))
    assert disk.most <= max(window, 2 * (max(map(len, BATCHES)) + 61)), "a window, or twice a batch"


@pytest.mark.alike
@pytest.mark.parametrize("damage", DAMAGE)
def test_next_good_batch_after_damage(damage: str, window: int) -> None:
    data, gone = DAMAGE[damage]
    expected = [n for n in range(10) if n not in gone]
    assert numbers(walk(Disk(data), planned(data)), data) == expected
    assert numbers(salvage(Disk(data)), data) == expected
    with pytest.raises(UsageError, match=r"is damaged at byte (\d+): .*Nothing is appended after damage"):
        list(appending(Disk(data), planned(data)))


def test_wrong_checksum_is_damage_if_checksums_are_verified(window: int) -> None:
    data = put(STARTS[5] + 500, b"\0")
    assert numbers(walk(Disk(data), planned(data)), data) == list(range(10))
    assert numbers(salvage(Disk(data)), data) == [n for n in range(10) if n != 5]
    with pytest.raises(UsageError, match=f"{NAME} is damaged at byte {STARTS[5]}: "):
        list(appending(Disk(data), planned(data)))


def test_too_large_length_hides_the_next_batch_only_without_checksums(
    window: int,
) -> None:
    data = put(STARTS[1] + LENGTH, (len(BATCHES[1]) + 50 - 12).to_bytes(4, "big"))
    assert 2 not in numbers(walk(Disk(data), planned(data)), data)
    assert numbers(salvage(Disk(data)), data) == [0, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("cut", [1, 100, 139, 140, 300])
def test_file_that_became_shorter(cut: int, window: int) -> None:
    """Since the directory was listed."""
    expected = [n for n in range(10) if STARTS[n] + len(BATCHES[n]) <= len(WHOLE) - cut]
    assert numbers(walk(Disk(WHOLE[:-cut]), planned(WHOLE)), WHOLE) == expected
    data = put(STARTS[2] + MAGIC, b"\7")
    assert numbers(walk(Disk(data[:-cut]), planned(data)), data) == [n for n in expected if n != 2]
    data = put(STARTS[7] + MAGIC, b"\7")
    assert numbers(walk(Disk(data[:-cut]), planned(data)), data) == [n for n in expected if n != 7]


def test_damaged_length_hides_no_end_of_a_transaction(window: int) -> None:
    txn = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "attributes": TRANSACTIONAL}
    abort = {**txn, "base_sequence": -1, "attributes": TRANSACTIONAL | CONTROL}
    marker = record(
        key=CONTROL_RECORD_KEY.pack({"type": ABORT}), value=END_TXN_MARKER.pack({"coordinator_epoch": 0})
    )
    parts = [batch(0, **txn), batch(1), batch(2, [marker], **abort), batch(3)]
    data = b"".join(parts)
    at = len(parts[0]) + LENGTH
    longer = data[:at] + (len(parts[1]) + 20 - 12).to_bytes(4, "big") + data[at + 4 :]
    for log_data in (data, longer):
        open_transactions, _ = transactions(Disk(log_data), [planned(log_data)])
        assert open_transactions.aborted == [AbortedTxn(7, 0, 2, 3)]
        assert open_transactions.state.first_unstable is None
        assert open_transactions.damaged == ({NAME} if log_data is longer else set())
    open_transactions, _ = transactions(Disk(data[: -len(parts[3]) - 1]), [planned(data)])
    assert (open_transactions.aborted, open_transactions.state.first_unstable) == ([], 0)


@pytest.mark.parametrize(
    ("bad", "gone"),
    [
        ([(0, 1)], {0}),
        ([(STARTS[3] - 1, STARTS[3])], {2}),
        ([(STARTS[3], STARTS[3] + 1)], {3}),
        ([(STARTS[2] + 5, STARTS[6] - 5)], {2, 3, 4, 5}),
        ([(STARTS[2] + 5, STARTS[2] + 6), (STARTS[2] + 90, STARTS[2] + 99), (STARTS[9] + 70, len(WHOLE))], {2, 9}),
        ([(0, len(WHOLE))], set(range(10))),
    ],
)  # fmt: skip
def test_batches_after_unreadable_ranges_are_read(
    bad: list[tuple[int, int]], gone: set[int], window: int
) -> None:
    expected = [n for n in range(10) if n not in gone]
    assert numbers(walk(Disk(WHOLE, bad), planned(WHOLE)), WHOLE) == expected
    assert numbers(salvage(Disk(WHOLE, bad)), WHOLE) == expected
    with pytest.raises(UsageError, match="the disk cannot read"):
        list(appending(Disk(WHOLE, bad), planned(WHOLE)))


def test_damage_before_an_unreadable_range(window: int) -> None:
    data = put(STARTS[2] + MAGIC, b"\7")
    for bad in ([(STARTS[2] + 30, STARTS[2] + 40)], [(STARTS[5], STARTS[5] + 40)]):
        expected = [n for n in range(10) if n not in (2, 5 if bad[0][0] == STARTS[5] else 2)]
        assert numbers(salvage(Disk(data, bad)), data) == expected
