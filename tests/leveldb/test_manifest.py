"""Manifests: fields of edits and bytes, faults of invalid edits, and reencoding."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from leveldb_records import record, with_value, written

from logwright.codec.describe import DescriptionError
from logwright.codec.fault import Kind, LogwrightError, UsageError
from logwright.codec.leveldb.formats.manifest.codec import CODEC
from logwright.codec.leveldb.formats.manifest.layout import VERSION_EDIT, EditField, form
from logwright.codec.leveldb.formats.records.layout import FULL
from logwright.codec.leveldb.keys import internal_key
from logwright.roundtrip.specimen import Specimen

LOW, HIGH = internal_key(b"a", 1, 1), internal_key(b"z", 9, 1)
FIRST_EDIT = [
    EditField("comparator", text=b"leveldb.BytewiseComparator"),
    EditField("log_number", number=3),
    EditField("prev_log_number", number=0),
    EditField("next_file_number", number=4),
    EditField("last_sequence", number=0),
]
SECOND_EDIT = [
    EditField("compact_pointer", level=1, smallest=LOW),
    EditField("deleted_file", level=0, number=5),
    EditField("new_file", level=2, number=(1 << 64) - 1, size=1 << 63, smallest=LOW, largest=HIGH),
]
THIRD_EDIT = [EditField("log_number", number=9)]
DATA = written([form(FIRST_EDIT), form(SECOND_EDIT), form(THIRD_EDIT)])


def specimen_of(data: bytes) -> Specimen:
    return Specimen.of(data, "leveldb.manifest", "MANIFEST-000002")


def round_trips(specimen: Specimen) -> bool:
    return specimen.encode(*specimen.tables()) == specimen.all_bytes()


def test_rows_of_a_manifest() -> None:
    rows = specimen_of(DATA).read().table.to_pylist()
    second = 7 + len(form(FIRST_EDIT))
    third = second + 7 + len(form(SECOND_EDIT))
    empty = dict.fromkeys(("level", "number", "size", "smallest", "largest", "comparator"))
    name = "leveldb.BytewiseComparator"
    assert rows == [
        {**empty, "field": "comparator", "comparator": name, "position": 0},
        {**empty, "field": "log_number", "number": 3, "position": 0},
        {**empty, "field": "prev_log_number", "number": 0, "position": 0},
        {**empty, "field": "next_file_number", "number": 4, "position": 0},
        {**empty, "field": "last_sequence", "number": 0, "position": 0},
        {**empty, "field": "compact_pointer", "level": 1, "smallest": LOW, "position": second},
        {**empty, "field": "deleted_file", "level": 0, "number": 5, "position": second},
        # Numbers of 64 bits, as the column holds them.
        {
            **empty, "field": "new_file", "level": 2, "number": -1, "size": -(1 << 63),
            "smallest": LOW, "largest": HIGH, "position": second,
        },
        {**empty, "field": "log_number", "number": 9, "position": third},
    ]  # fmt: skip


def test_manifest_written_from_rows_alone() -> None:
    manifest = specimen_of(DATA)
    rows = manifest.read().table
    assert specimen_of(b"").encode(rows) == DATA
    # Without positions all rows are one edit; unused columns may be missing.
    bare = pa.table({"field": ["log_number", "last_sequence"], "number": [3, 7]})
    edit = [EditField("log_number", number=3), EditField("last_sequence", number=7)]
    assert specimen_of(b"").encode(bare) == written([form(edit)])
    assert specimen_of(b"").encode(bare.slice(0, 0)) == b""
    positioned = bare.append_column("position", pa.array([0, 1]))
    assert specimen_of(b"").encode(positioned) == written([form(edit[:1]), form(edit[1:])])


NUMBERED = st.builds(
    EditField,
    st.sampled_from(["log_number", "prev_log_number", "next_file_number", "last_sequence"]),
    number=st.integers(0, (1 << 64) - 1),
)
NEW_FILE = st.builds(
    EditField,
    st.just("new_file"),
    level=st.integers(0, 6),
    number=st.integers(0, (1 << 64) - 1),
    size=st.integers(0, (1 << 64) - 1),
    smallest=st.binary(min_size=1, max_size=20000),
    largest=st.binary(min_size=1, max_size=20),
)


@settings(max_examples=examples(40))
@given(st.lists(st.lists(NUMBERED | NEW_FILE, min_size=1, max_size=4), max_size=5), st.booleans())
def test_any_edits_in_a_manifest_round_trip(edits: list[list[EditField]], frames: bool) -> None:
    manifest = specimen_of(written([form(edit) for edit in edits]))
    rows_read = manifest.read()
    assert (rows_read.table.num_rows, rows_read.report.faults) == (sum(map(len, edits)), [])
    rows, framed, file = manifest.tables()
    assert framed["payload"].null_count == framed.num_rows
    assert manifest.encode(rows, framed if frames else None, file) == manifest.all_bytes()


def test_records_of_a_manifest() -> None:
    manifest = specimen_of(DATA)
    records = manifest.read("records").table
    assert records.column_names == ["position", "size", "payload"]
    assert records["payload"].to_pylist() == [form(FIRST_EDIT), form(SECOND_EDIT), form(THIRD_EDIT)]
    assert manifest.encode(records) == DATA
    with pytest.raises(KeyError):
        CODEC.record_column("sequence", None)  # type: ignore[arg-type]


NO_EDIT = [
    (b"\x63", "VersionEdit: unknown tag"),
    (b"\x80", "VersionEdit: invalid tag"),
    (b"\x02", "VersionEdit: log number"),
    (b"\x06\x07\x01", "VersionEdit: deleted file"),
    (b"\x05\x01\x00", "VersionEdit: compaction pointer"),
    (b"\x07\x01\x01\x01\x00\x00", "VersionEdit: new-file entry"),
]


@pytest.mark.parametrize(("payload", "words"), NO_EDIT)
def test_invalid_edit_is_reported_and_others_are_read(payload: bytes, words: str) -> None:
    manifest = specimen_of(written([form(FIRST_EDIT), payload, form(THIRD_EDIT)]))
    rows_read = manifest.read()
    (fault,) = rows_read.report.faults
    unknown = words.endswith("unknown tag")
    assert fault.kind is (Kind.UNSUPPORTED if unknown else Kind.PAYLOAD)
    assert fault.detail.partition(": the checksum is right")[0] == words
    assert fault.system == f"LevelDB refuses to open: Corruption: {words}"
    assert (fault.offset, fault.length) == (7 + len(form(FIRST_EDIT)), 7 + len(payload))
    assert rows_read.table["field"].to_pylist() == [field.name for field in FIRST_EDIT + THIRD_EDIT]
    assert round_trips(manifest)
    # It is kept if other rows are edited, and if none are left.
    rows, frames, file = manifest.tables()
    edited = manifest.with_bytes(manifest.encode(with_value(rows, "number", 1, 300), frames, file))
    assert edited.read("records").table["payload"].to_pylist()[1] == payload
    assert edited.read().table["number"].to_pylist()[1] == 300
    none = manifest.with_bytes(manifest.encode(rows.slice(0, 0), frames, file))
    assert none.read("records").table["payload"].to_pylist() == [payload]


ODD = {
    "a number longer than need be": b"\x02\x83\x00",
    "a name that is not text": form([EditField("comparator", text=b"\xff\xfe")]),
    "no fields": b"",
}


@pytest.mark.parametrize("payload", ODD.values(), ids=ODD)
def test_edits_are_stored_unchanged(payload: bytes) -> None:
    manifest = specimen_of(written([form(FIRST_EDIT), payload, form(THIRD_EDIT)]))
    rows, frames, file = manifest.tables()
    assert [row for row in frames["payload"].to_pylist() if row is not None] == [payload]
    assert manifest.encode(rows, frames, file) == manifest.all_bytes()


def test_stored_edit_is_used_only_if_it_decodes_to_the_rows() -> None:
    manifest = specimen_of(written([ODD["a number longer than need be"]]))
    rows, frames, file = manifest.tables()
    assert manifest.encode(with_value(rows, "number", 0, 4), frames, file) == written([b"\x02\x04"])
    # Nor if its rows belong to another edit and it is invalid.
    broken = frames.set_column(
        frames.schema.get_field_index("payload"), "payload", pa.array([b"\x63\x01\x01"], pa.binary())
    )
    assert manifest.encode(rows, broken, file) == written([b"\x02\x03"])
    # If all its rows are removed, it is removed too.
    assert manifest.encode(rows.slice(0, 0), frames, file) == b""


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"field": "log", "number": 1}, "unknown field 'log'; expected one of comparator, log_number"),
        ({"field": "log_number"}, "a field 'log_number' without 'number'"),
        ({"field": "comparator"}, "a field 'comparator' without 'text'"),
        ({"field": "deleted_file", "number": 1, "level": 7}, "a field 'deleted_file' of level 7"),
        ({"field": "deleted_file", "number": 1, "level": -1}, "a field 'deleted_file' of level -1"),
        ({"field": "compact_pointer", "level": 1, "smallest": b""}, "'compact_pointer' with an empty internal key"),
    ],
)  # fmt: skip
def test_invalid_rows_are_refused(row: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        specimen_of(b"").encode(pa.Table.from_pylist([row]))


def test_required_column_is_missing() -> None:
    with pytest.raises(LogwrightError, match="field"):
        specimen_of(b"").encode(pa.table({"number": [1]}))


def test_after_damage_valid_edits_are_accepted_and_other_bytes_are_not() -> None:
    """Neither fills the block, but the edit can be decoded."""
    junk = b"\xff" * 9
    manifest = specimen_of(
        written([form(FIRST_EDIT)]) + junk + record(FULL, b"no edit") + record(FULL, b"")
        + record(FULL, form(THIRD_EDIT)) + junk
    )  # fmt: skip
    rows = manifest.read().table
    assert rows["number"].to_pylist() == [None, 3, 0, 4, 0, 9]
    faults = manifest.read().report.faults
    assert faults[0].offset == 7 + len(form(FIRST_EDIT))
    assert faults[0].length == len(junk) + 7 + 7 + 7
    assert round_trips(manifest)


def test_errors_of_edits_without_rows() -> None:
    with pytest.raises(DescriptionError, match="unknown tag 99"):
        VERSION_EDIT.unpack(b"\x63\x01", 0, 2)
    # Edits have no order: nothing is pruned.
    assert CODEC.frame_bounds(None, "number") == (None, None)  # type: ignore[arg-type]
