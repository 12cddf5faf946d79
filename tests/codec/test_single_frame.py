"""Small files of a single frame: read completely or not at all; unchanged rows keep the original bytes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from logwright.codec.describe import DescriptionError
from logwright.codec.fault import Kind, UsageError
from logwright.codec.single_frame import ParseError, SmallFileCodec
from logwright.codec.table import Column
from logwright.codec.window import Window

COLUMNS = (Column("n", pa.int64(), "a number", nullable=False), Column("note", pa.string(), "", detail=True))


def parse(data: bytes) -> pa.Table:
    """Parse numbers in lines. A letter is refused by the description, an empty file by the codec."""
    if not data:
        raise ParseError("the file is empty", kind=Kind.TRUNCATED, system="it does not start")
    try:
        numbers = [int(line) for line in data.split()]
    except ValueError:
        raise DescriptionError("no number", 3) from None
    return pa.table({"n": pa.array(numbers, pa.int64()), "note": pa.nulls(len(numbers), pa.string())})


def form(rows: pa.Table) -> bytes:
    if not rows.num_rows:
        raise DescriptionError("at least one number is needed")
    return b"".join(b"%d\n" % n for n in rows["n"].to_pylist())


CODEC = SmallFileCodec(
    name="toy.numbers",
    title="Numbers",
    pattern=re.compile(r"NUMBERS"),
    columns=COLUMNS,
    parse=parse,
    form=form,
    system="it minds",
)


def scanned(data: bytes) -> tuple[Window, Any]:
    window = Window(np.frombuffer(data, np.uint8), 0, len(data))
    return window, CODEC.scan(window, 0, None)


def encoded(rows: pa.Table, frames: pa.Table | None = None, file: pa.Table | None = None) -> bytes:
    return b"".join(bytes(part) for part in CODEC.encode(rows, frames, file, None))


def rows(*numbers: Any) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def stored(payload: bytes) -> pa.Table:
    return pa.table({"position": [0], "size": [len(payload)], "payload": [payload]})


def test_file_is_one_frame() -> None:
    window, frames = scanned(b"1\n2\n")
    assert (frames.start.tolist(), frames.end.tolist()) == ([0], [4])
    (actual,) = CODEC.decode(window, frames, "rows", ["n"], None)
    assert actual.batch.to_pydict() == {"n": [1, 2]}
    assert CODEC.frame_bounds(frames, "n") == (None, None)
    none = frames.pick(np.zeros(1, np.bool_))
    assert list(CODEC.decode(window, none, "rows", ["n"], None)) == [], "a filter may leave no frame"


@pytest.mark.parametrize(
    ("data", "kind", "detail", "system"),
    [
        (b"", Kind.TRUNCATED, "the file is empty", "it does not start"),
        (b"12\nx", Kind.PAYLOAD, "no number (at byte 3)", "it minds"),
    ],
)
def test_damage_anywhere_loses_the_whole_file(data: bytes, kind: Kind, detail: str, system: str) -> None:
    window, frames = scanned(data)
    assert len(frames) == 0
    fault = frames.damage
    assert (fault.kind, fault.detail, fault.system) == (kind, detail, system)
    assert (fault.offset, fault.length) == (0, len(data))
    assert CODEC.resync(window, 0, None) == (-1, 0), "there is nothing behind it"


def test_unchanged_rows_keep_the_original_bytes() -> None:
    assert encoded(rows(1, 2), stored(b" 1\r\n2")) == b" 1\r\n2"
    assert encoded(rows(1, 3), stored(b" 1\r\n2")) == b"1\n3\n"
    assert encoded(rows(1), stored(b"what?")) == b"1\n", "bytes that say nothing are not used"
    assert encoded(rows(1), stored(b"").slice(0, 0)) == b"1\n"


def test_unreadable_file_is_written_from_its_file_table() -> None:
    file = pa.table({"frames": [0], "trailing": [b"x"], "trailing_zeros": [2]})
    assert encoded(rows(), None, file) == b"x\0\0"
    assert encoded(rows(), None, file.drop_columns(["trailing", "trailing_zeros"])) == b""
    assert encoded(rows(5), None, file) == b"5\n"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (rows(), "value: at least one number is needed"),
        (pa.table({"m": [1]}), "needs a column 'n'"),
        (pa.table({"n": ["one"]}), "column 'n' is not int64"),
        (rows(1, None), "column 'n' must not be null"),
        (pa.table([[1], [2]], ["n", "n"]), "there are 2 columns 'n'"),
    ],
)
def test_invalid_rows_are_refused(inputs: pa.Table, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        encoded(inputs)
