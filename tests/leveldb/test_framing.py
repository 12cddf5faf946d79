"""Physical records: scanning, joining, writing, and the next record after damage."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from leveldb_records import record, to_block_end, written

from logwright.codec.leveldb.formats.records import layout as framing
from logwright.codec.leveldb.formats.records import log_reader
from logwright.codec.leveldb.formats.records.codec import Payloads, Physical
from logwright.codec.leveldb.formats.records.layout import BLOCK, FIRST, FULL, HEADER, LAST, MIDDLE
from logwright.codec.window import Frames, Window

pytestmark = pytest.mark.kernel_modes

NO_LIMIT = 1 << 40


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def scan(
    data: bytes, offset: int = 0, size: int | None = None, *, limit: int = NO_LIMIT
) -> tuple[Frames, int, list[int]]:
    size = offset + len(data) if size is None else size
    return log_reader.scan(Window(array(data), offset, size), 0, check=True, limit=limit)


def payloads(data: bytes, frames: Frames, offset: int = 0) -> list[bytes]:
    joined = Payloads.of(Window(array(data), offset, offset + len(data)), frames, joined=True)
    return [
        joined.data[a:b].tobytes() for a, b in zip(joined.start.tolist(), joined.end.tolist(), strict=True)
    ]


def kernel_written(values: list[bytes], offset: int) -> bytes:
    stops = np.cumsum([0, *map(len, values)])
    out = np.full(framing.room_for(int(stops[-1]), len(values)), 0xEE, np.uint8)
    return out[: framing.write_records(array(b"".join(values)), stops, offset, out)].tobytes()


SIZES = st.integers(0, 40) | st.sampled_from(
    [BLOCK - 20, BLOCK - 14, BLOCK - 8, BLOCK - 7, BLOCK - 6, BLOCK, 2 * BLOCK]
)


@settings(max_examples=examples(40))
@given(st.lists(SIZES, max_size=5), st.integers(0, 9) | st.integers(BLOCK - 20, BLOCK - 1))
def test_written_records_equal_the_description_and_are_found(sizes: list[int], offset: int) -> None:
    contents = [bytes([n + 1]) * size for n, size in enumerate(sizes)]
    data = written(contents, offset)
    assert kernel_written(contents, offset) == data
    frames, status, _ = scan(data, offset)
    assert status == framing.END
    assert payloads(data, frames, offset) == contents
    assert frames.header["size"].tolist() == sizes
    # Frames are adjacent; only the filler before the first one belongs to none.
    assert frames.start[1:].tolist() == frames.end[:-1].tolist()
    physical = Physical.of(Window(array(data), offset, offset + len(data)), frames)
    assert np.bincount(physical.owner, minlength=len(frames)).tolist() == frames.header["records"].tolist()
    assert int((physical.end - physical.start).sum()) == int((frames.end - frames.start).sum())


@pytest.mark.parametrize(
    ("left", "kinds"),
    [(6, [FULL, FULL]), (7, [FULL, FIRST, LAST]), (8, [FULL, FIRST, LAST]), (0, [FULL, FULL])],
)
def test_end_of_a_block(left: int, kinds: list[int]) -> None:
    """Less than a header is filled with zeros; exactly a header becomes an empty FIRST record."""
    data = written([b"x" * to_block_end(0, left), b"yyy"])
    frames, _, _ = scan(data)
    physical = Physical.of(Window(array(data), 0, len(data)), frames)
    assert physical.type.tolist() == kinds
    assert frames.end[0] == (BLOCK if left < HEADER else BLOCK - left)
    assert data[BLOCK - left : BLOCK] == (bytes(left) if left < HEADER else data[BLOCK - left :][:left])


def test_head_of_a_batch_is_joined_from_fragments() -> None:
    head = (5 - (1 << 63)).to_bytes(8, "little", signed=True) + b"\7\0\0\1"
    for parts in ((head, b"z"), (head[:3], head[3:7], head[7:] + b"z"), (head[:7], head[7:9], head[9:])):
        kinds = [FIRST, *[MIDDLE] * (len(parts) - 2), LAST]
        frames, status, _ = scan(
            b"".join(record(kind, part) for kind, part in zip(kinds, parts, strict=True))
        )
        assert status == framing.END
        assert frames.header["sequence"].tolist() == [5 - (1 << 63)]
        assert frames.header["count"].tolist() == [7 + (1 << 24)]
    frames, _, _ = scan(record(FULL, head[:11]))
    assert (frames.header["sequence"][0], frames.header["count"][0]) == (-1, -1)


def test_empty_first_record_before_another_start_is_part_of_the_frame() -> None:
    """Old writers left one if a header just fitted the block."""
    data = (
        record(FIRST, b"")
        + record(FULL, b"abc")
        + record(FIRST, b"")
        + record(FIRST, b"d")
        + record(LAST, b"e")
    )
    frames, status, _ = scan(data)
    assert status == framing.END
    assert frames.header["begin"].tolist() == [7, 7]
    assert frames.header["records"].tolist() == [1, 2]
    assert payloads(data, frames) == [b"abc", b"de"]


REST = record(FULL, b"behind")
BROKEN = bytearray(record(FULL, b"abc"))
BROKEN[-1] ^= 1
DAMAGE = [
    (b"", framing.END),
    (record(FULL, b"abc")[:3], framing.TORN_HEADER),
    (record(FULL, b"abc")[:-1], framing.TORN),
    (record(FIRST, b"abc"), framing.TORN_CHAIN),
    (record(FIRST, b"abc") + b"\0" * 3, framing.TORN_CHAIN),
    (bytes(BROKEN) + REST, framing.CHECKSUM),
    (bytes(20), framing.ZEROS),
    (record(0, b"abc") + REST, framing.UNKNOWN),
    (record(5, b"") + REST, framing.UNKNOWN),
    (record(200, b"abc") + REST, framing.UNKNOWN),
    (record(FIRST, b"abc") + REST, framing.PARTIAL),
    (record(FIRST, b"abc") + record(FIRST, b"d"), framing.PARTIAL),
    (record(MIDDLE, b"abc") + REST, framing.MISSING),
    (record(LAST, b"abc") + REST, framing.MISSING),
    (record(FULL, b"x" * 2000), framing.TOO_LONG),
    (record(FIRST, b"x" * 900) + record(LAST, b"x" * 900), framing.TOO_LONG),
    (BROKEN[:4] + b"\xff\xff" + BROKEN[6:] + bytes(BLOCK), framing.BAD_LENGTH),
]


@pytest.mark.parametrize(("data", "expected"), DAMAGE)
def test_end_of_a_scan(data: bytes, expected: int) -> None:
    good = written([b"one", b"two"])
    frames, status, state = scan(good + data, limit=1000)
    assert status == expected
    assert payloads(good, frames) == [b"one", b"two"]
    assert frames.stop == state[framing.STOP] == len(good)


def test_torn_fragments_report_their_size() -> None:
    data = written([b"one"]) + record(FIRST, b"abc") + record(MIDDLE, b"defg")
    _, status, state = scan(data)
    assert status == framing.TORN_CHAIN
    assert (state[framing.GATHERED], state[framing.CHAIN], state[framing.PLACE]) == (7, 2, len(data))


def test_scan_may_start_in_block_filler() -> None:
    data = b"\0" * 4 + record(FULL, b"abc")
    frames, status, _ = scan(data, BLOCK - 4)
    assert (status, frames.start.tolist(), frames.end.tolist()) == (framing.END, [4], [len(data)])
    # The window ends there too, or before it.
    for size in (2, 4):
        frames, status, state = scan(data[:size], BLOCK - 4, BLOCK + 10)
        assert (len(frames), status) == (0, framing.NEED)
        assert state[framing.STOP] + state[framing.NEEDED] in (4, 11)


def test_fragments_may_leave_the_end_of_a_block_unused() -> None:
    """No writer of LevelDB does so, but its reader accepts it."""
    data = record(FIRST, b"x" * to_block_end(0, 5)) + b"\1\2\3\4\5" + record(LAST, b"end")
    frames, status, _ = scan(data)
    assert (status, frames.end.tolist()) == (framing.END, [len(data)])
    assert payloads(data, frames) == [b"x" * to_block_end(0, 5) + b"end"]
    for cut in range(BLOCK - 5, BLOCK):
        _, status, state = scan(data[:cut], 0, len(data))
        assert (status, state[framing.STOP], state[framing.NEEDED]) == (framing.NEED, 0, BLOCK)


def test_record_cut_by_the_window_asks_for_more() -> None:
    data = written([b"one", b"x" * to_block_end(10, 5), b"three", b"y" * 40])
    full, _, _ = scan(data)
    for cut in [*range(40), *range(BLOCK - 20, len(data))]:
        frames, status, state = scan(data[:cut], 0, len(data))
        assert status == framing.NEED
        done = int(np.searchsorted(full.end, cut, "right"))
        assert frames.end.tolist() == full.end[:done].tolist()
        stop, need = state[framing.STOP], state[framing.NEEDED]
        assert need > cut - stop
        assert stop + need <= full.end[done]


def test_last_bytes_of_a_file_ask_for_more_too() -> None:
    """Fewer bytes than a header remain, and the window does not have even those."""
    data = written([b"one"]) + b"\1\2\3"
    frames, status, state = scan(data[:-1], 0, len(data))
    assert (len(frames), status, state[framing.NEEDED]) == (1, framing.NEED, 3)
    _, status, state = scan(data[:-1][10:], 10, len(data))
    assert (status, state[framing.STOP], state[framing.NEEDED]) == (framing.NEED, 0, 3)


def test_more_records_than_the_buffer_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "_CAPACITY", 3)
    contents = [b"%d" % n for n in range(50)]
    data = written(contents)
    frames, status, _ = scan(data)
    assert status == framing.END
    assert payloads(data, frames) == contents


# After damage


@pytest.mark.parametrize(
    ("data", "block_end", "end"),
    [
        (record(FULL, b"abc"), BLOCK, 10),
        (record(FULL, b"abc")[:6], BLOCK, -1),  # Less than a header.
        (record(FULL, b"abc")[:-1], BLOCK, -1),  # Cut.
        (record(0, b"abc"), BLOCK, -1),
        (record(5, b"abc"), BLOCK, -1),
        (record(FIRST, b"abc"), BLOCK, -1),  # A FIRST fills its block.
        (record(FIRST, b"abc"), 10, 10),
        (bytes(BROKEN), BLOCK, -1),
    ],
)
def test_record_is_sound_if_its_type_and_length_fit_its_block(data: bytes, block_end: int, end: int) -> None:
    assert framing.sound(array(data), 0, len(data), block_end) == end


def test_end_of_a_damaged_record() -> None:
    follows = record(FULL, b"next")

    def end(data: bytes, block_end: int = BLOCK) -> int:
        return int(framing.true_end(array(data), 0, len(data), block_end))

    broken = bytes(BROKEN)
    assert end(broken + follows) == 10  # Its length leads to the next record.
    assert end(broken) == 10  # Or to the end of the file.
    assert end(broken + b"\0\0\0", 13) == 10  # Or to the end of the block.
    assert end(broken[:5]) == -1
    assert end(broken + b"no record") == -1
    wrong = bytearray(record(FULL, b"a" * 9))
    stored = bytes(wrong)
    # Length and checksum are wrong: the checksum of type and payload fits another length.
    assert end(stored[:4] + b"\xff\x7f" + stored[6:] + b"junk behind it") == len(stored)
    assert end(stored[:4] + b"\xff\x7f" + stored[6:]) == len(stored)
    assert end(stored[:4] + b"\xff\x7f" + stored[6:-1] + b"!") == -1


def test_next_start_after_damage() -> None:
    def start(data: bytes, at: int = 0) -> tuple[int, int]:
        place, sure = framing.next_start(array(data), at, len(data), BLOCK)
        return int(place), int(sure)

    two = written([b"one", b"two"])
    assert start(b"junk" + two) == (4, 1)  # A run of records up to the end.
    assert start(b"junk" + two + b"junk") == (4, 0)  # May be a value.
    assert start(b"junk" + two, 5) == (14, 1)
    assert start(b"nothing here at all") == (-1, 0)
    assert start(record(MIDDLE, b"a") + record(LAST, b"b")) == (-1, 0)
    assert start(b"") == (-1, 0)


@pytest.mark.parametrize("left", range(9))
def test_records_appended_to_existing_bytes(left: int) -> None:
    data = kernel_written([b"payload"], BLOCK - left)
    assert data == written([b"payload"], BLOCK - left)
    assert data[:left] == bytes(left) if left < HEADER else data[6] == FIRST
