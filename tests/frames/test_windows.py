"""Search past damage: the result does not depend on the window."""

from __future__ import annotations

import numpy as np
import pytest

from logwright.codec.bookkeeper.formats.journal import FENCE, HEADER, PADDING, PADDING_MASK, RECORD
from logwright.codec.rocketmq.formats.consumequeue_ext import UNIT
from logwright.roundtrip.specimen import Specimen

SMALL, LARGE = 4096, 1 << 20
"""Windows in bytes."""
JUNK = np.random.default_rng(5).bytes(9000)
GOOD = UNIT.pack({"tags_code": 1, "store_timestamp": 5})


def positions(codec: str, name: str, data: bytes) -> list[int]:
    """Return the positions of the frames, which are the same in small and large windows."""
    small, large = (
        Specimen.of(data, codec, name).read("frames", columns="position", window=window).table["position"]
        for window in (SMALL, LARGE)
    )
    assert small.to_pylist() == large.to_pylist()
    places: list[int] = small.to_pylist()
    return places


def unit_of_size(size: int, content: bytes) -> bytes:
    """Return a damaged unit, whose length and content are right."""
    return size.to_bytes(2, "big") + GOOD[2:18] + b"\x55\x55" + content[: size - 20].ljust(size - 20, b"\x33")


@pytest.mark.parametrize("size", [300, SMALL, SMALL + 1, 2 * SMALL])
def test_damaged_frame_with_a_right_length_hides_its_content(size: int) -> None:
    data = GOOD + unit_of_size(size, JUNK[:21] + GOOD + JUNK) + GOOD
    for ending in (b"", JUNK, bytes(5000)):
        assert positions("rocketmq.consumequeue_ext", "0" * 20, data + ending) == [0, 20 + size]


@pytest.mark.parametrize("size", [300, SMALL, SMALL + 1, 2 * SMALL])
def test_damaged_frame_with_a_wrong_length_hides_no_frame(size: int) -> None:
    """Neither a frame nor zeros are where its length ends, although a window may end there."""
    data = GOOD + unit_of_size(size, JUNK[:21] + GOOD + JUNK) + JUNK
    assert positions("rocketmq.consumequeue_ext", "0" * 20, data) == [0, 61]


@pytest.mark.parametrize("zeros", [8, 63, 64, 100])
def test_zeros_follow_a_padding_record_if_there_are_enough_of_them(zeros: int) -> None:
    """The window ends among the zeros."""
    head = HEADER.pack({"version": 4}) + 3 * RECORD.pack({"ledger_id": 1, "entry_id": FENCE})
    padding = SMALL - 8 - len(head)
    data = head + PADDING.pack({"length": PADDING_MASK, "pad_length": padding - 8}) + bytes(padding - 8)
    places = positions("bookkeeper.journal", "1.txn", data + bytes(zeros) + b"\x01" * 500)
    assert places == [0, 8, 28, 48, *([68] if zeros >= 64 else [])]
    assert positions("bookkeeper.journal", "1.txn", data + bytes(zeros)) == [0, 8, 28, 48, 68]
