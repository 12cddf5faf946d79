"""`FixedCodec`: files of exactly one entry, invalid entries and numbered columns."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from logwright.codec.arrays import Bools
from logwright.codec.describe import I64BE, Field, Struct
from logwright.codec.fault import UsageError
from logwright.codec.fixed import Entries, FixedCodec
from logwright.codec.table import Column
from logwright.roundtrip.laws import decode_encode
from logwright.roundtrip.specimen import Specimen

ENTRY = Struct("Mark", Field("id", I64BE), Field("offset", I64BE))
MARK = FixedCodec(
    name="toy.mark",
    title="A mark",
    entry=ENTRY,
    pattern=re.compile("mark"),
    columns=(Column("id", pa.int64(), "", nullable=False), Column("offset", pa.int64(), "", nullable=False)),
    wrong=lambda entries, base: (),
    system="nobody reads it",
    allocated=False,
    count=1,
)


@pytest.mark.parametrize(
    ("data", "kind"), [(b"", "truncated"), (bytes(15), "truncated"), (bytes(17), "unexpected padding")]
)
def test_wrong_file_length_is_reported(data: bytes, kind: str) -> None:
    result = Specimen.of(data, MARK, "mark").read()
    assert not result.table.num_rows
    assert [(fault.kind, fault.detail) for fault in result.report.faults] == [
        (kind, f"the file has {len(data)} bytes, expected 16")
    ]
    assert decode_encode(data, MARK, name="mark")


def test_single_entry_with_any_content_is_sound() -> None:
    for data in (bytes(16), bytes(15) + b"\x07", bytes(range(16))):
        result = Specimen.of(data, MARK, "mark").read()
        assert result.table.num_rows == 1
        assert not result.report.faults
        assert decode_encode(data, MARK, name="mark")


def test_wrong_number_of_rows_is_refused() -> None:
    with pytest.raises(UsageError, match="2 rows, expected exactly 1"):
        Specimen.of(b"", MARK, "mark").encode(pa.table({"id": [1, 2], "offset": [3, 4]}))


def test_entry_numbers_must_equal_their_positions() -> None:
    queue = Specimen.of(b"", "rocketmq.consumequeue", "00000000000000000040")
    rows = pa.table(
        {"queue_offset": [2, 3], "physical_offset": [0, 100], "size": [100, 100], "tags_code": [0, 0]}
    )
    assert queue.with_bytes(queue.encode(rows)).read().table["queue_offset"].to_pylist() == [2, 3]
    with pytest.raises(UsageError, match="queue_offset of row 0 is 0, expected 2"):
        queue.encode(rows.set_column(0, "queue_offset", pa.array([0, 1])))


def test_invalid_entries_are_tested_a_few_times() -> None:
    """Valid ones are between them, so each is separate damage."""
    tested = 0

    def impossible(entries: Entries) -> Bools:
        nonlocal tested
        tested += len(entries)
        bad: Bools = entries["id"] < 0
        return bad

    marks = FixedCodec(
        name="toy.marks",
        title="Marks",
        entry=ENTRY,
        pattern=re.compile("marks"),
        columns=MARK.columns,
        wrong=lambda entries, base: (),
        system="nobody reads them",
        impossible=(impossible, "an invalid mark"),
    )
    data = b"".join(ENTRY.pack({"id": i if i % 2 else -1, "offset": i}) for i in range(2000))
    result = Specimen.of(data, marks, "marks").read(mode="DROPMALFORMED")
    assert result.table["id"].to_pylist() == list(range(1, 2000, 2))
    assert tested <= 100 * 2000
