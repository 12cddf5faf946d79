"""Records that LevelDB's own reader delivers from a file, for any window size."""

from __future__ import annotations

import numpy as np
import pytest
from leveldb_records import record, to_block_end, written

from logwright.codec.leveldb.formats.records.codec import Payloads
from logwright.codec.leveldb.formats.records.layout import BLOCK, FIRST, FULL, LAST, MIDDLE
from logwright.codec.leveldb.formats.records.log_reader import Delivered, Dropped, read_records


def read(data: bytes, size: int | None = None, **options: int) -> tuple[list[bytes], list[Dropped]]:
    payloads: list[bytes] = []
    dropped = []

    def piece(offset: int, length: int) -> np.ndarray:
        return np.frombuffer(data[offset : offset + length], np.uint8)

    for delivered in read_records(piece, len(data) if size is None else size, **options):
        if isinstance(delivered, Delivered):
            payload_buffer = Payloads.of(delivered.window, delivered.frames, joined=True)
            payloads += [
                payload_buffer.data[a:b].tobytes()
                for a, b in zip(payload_buffer.start, payload_buffer.end, strict=True)
            ]
        else:
            dropped.append(delivered)
    return payloads, dropped


def broken(kind: int, payload: bytes) -> bytes:
    data = bytearray(record(kind, payload))
    data[-1] ^= 1
    return bytes(data)


ONE, TWO = record(FULL, b"one"), record(FULL, b"two")
REST = BLOCK - len(ONE)


@pytest.mark.parametrize(
    ("middle", "expected", "reports"),
    [
        (b"", [b"two"], []),
        (broken(FULL, b"bad"), [], [(10, REST, "checksum mismatch")]),
        (
            record(FIRST, b"abc") + broken(LAST, b"d"), [],
            [(20, REST - 10, "checksum mismatch"), (20, 3, "error in middle of record")],
        ),
        (b"\1\0\0\0\xff\xff\1", [], [(10, REST, "bad record length")]),
        (bytes(7), [], []),
        (record(FIRST, b"abc") + bytes(7), [], [(20, 3, "error in middle of record")]),
        (record(FIRST, b"abc"), [b"two"], [(20, 3, "partial record without end(1)")]),
        (record(MIDDLE, b"abc"), [b"two"], [(10, 3, "missing start of fragmented record(1)")]),
        (record(LAST, b"abc"), [b"two"], [(10, 3, "missing start of fragmented record(2)")]),
        (record(5, b"abc"), None, []),
        (record(6, b"abc"), [b"two"], []),
        (record(FIRST, b"ab") + record(6, b"abc"), [b"two"], [(19, 2, "error in middle of record")]),
        (record(9, b"abc"), [b"two"], [(10, 3, "unknown record type 9")]),
        (record(FIRST, b"ab") + record(200, b"abc"), [b"two"], [(19, 5, "unknown record type 4294967240")]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("step", [1, 5000, BLOCK, 4 << 20])
def test_delivered_and_dropped_records(
    middle: bytes, expected: list[bytes] | None, reports: list[tuple[int, int, str]], step: int
) -> None:
    head = ONE + middle + TWO
    fill = record(FULL, b"x" * to_block_end(len(head)))
    data = head + fill + written([b"behind", b"y" * (2 * BLOCK)], BLOCK)
    payloads, dropped = read(data, step=step)
    if expected is None:  # Taken for the end of the file.
        assert payloads == [b"one"]
    else:
        filled = [*expected, fill[7:]] if expected else []
        assert payloads == [b"one", *filled, b"behind", b"y" * (2 * BLOCK)]
    assert [(drop.position, drop.bytes, drop.reason) for drop in dropped] == reports


@pytest.mark.parametrize("tail", [ONE[:4], ONE[:-1], record(FIRST, b"abc")])
@pytest.mark.parametrize("step", [3, 4096])
def test_torn_end_is_not_reported(tail: bytes, step: int) -> None:
    assert read(ONE + tail, step=step) == ([b"one"], [])


def test_file_that_became_shorter() -> None:
    data = written([b"one", b"x" * BLOCK, b"three"])
    for cut in range(0, len(data), 997):
        payloads, dropped = read(data[:cut], len(data), step=64)
        assert payloads == [b"one", b"x" * BLOCK, b"three"][: len(payloads)]
        assert dropped == []


def test_without_checksums_everything_is_accepted() -> None:
    assert read(ONE + broken(FULL, b"two"), check=False)[0] == [b"one", b"tw" + bytes([b"o"[0] ^ 1])]
