"""The fast reader of version edits equals the description."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from leveldb_db import GOLDEN

from logwright.codec.leveldb.formats.manifest import layout as version_edit
from logwright.codec.leveldb.formats.manifest.layout import TAGS, EditError, EditField, form, parse
from logwright.readers.stream import Mode
from logwright.roundtrip.specimen import Specimen

NUMBERS = st.integers(0, (1 << 64) - 1) | st.integers(0, 300)
KEYS = st.binary(min_size=1, max_size=200)
LEVELS = st.integers(0, 6)
FIELDS = st.one_of(
    st.builds(lambda text: EditField("comparator", text=text), st.binary(max_size=40)),
    *(
        st.builds(EditField, st.just(name), number=NUMBERS)
        for name in ("log_number", "prev_log_number", "next_file_number", "last_sequence")
    ),
    st.builds(EditField, st.just("compact_pointer"), level=LEVELS, smallest=KEYS),
    st.builds(EditField, st.just("deleted_file"), level=LEVELS, number=NUMBERS),
    st.builds(
        EditField,
        st.just("new_file"),
        level=LEVELS,
        number=NUMBERS,
        size=NUMBERS,
        smallest=KEYS,
        largest=KEYS,
    ),
)


def read(payload: bytes) -> list[EditField] | str:
    try:
        return version_edit._parse_described(payload)
    except EditError as error:
        return str(error)


def fast_read(payload: bytes) -> list[EditField] | str:
    try:
        return parse(payload)
    except EditError as error:
        return str(error)


@settings(max_examples=examples(200))
@given(st.lists(FIELDS, max_size=6))
def test_edits_round_trip_and_kernels_read_every_cut_alike(fields: list[EditField]) -> None:
    payload = form(fields)
    assert parse(payload) == read(payload) == fields
    for cut in range(len(payload)):
        assert fast_read(payload[:cut]) == read(payload[:cut])


@settings(max_examples=examples(300))
@given(
    st.builds(
        bytes, st.lists(st.sampled_from([*TAGS, 0, 8, 10, 127, 128, 255]) | st.integers(0, 255), max_size=30)
    )
)
@example(b"\x02\x80\x00")
@example(b"\x02" + b"\xff" * 9 + b"\x01")
@example(b"\x02" + b"\xff" * 10)
@example(b"\x01\x00")
@example(b"\x05\x87\x00\x01a")
@example(b"\x82\x00\x05")
@example(b"\x01\xff\xff\xff\xff\x1fa")
def test_arbitrary_bytes_read_alike(payload: bytes) -> None:
    assert fast_read(payload) == read(payload)


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("*/db/MANIFEST-*")), ids=lambda path: path.parent.parent.name
)
def test_golden_manifests_read_alike(path: Path) -> None:
    payloads = Specimen.of(path).read("records", mode=Mode.DROPMALFORMED).table["payload"].to_pylist()
    assert payloads
    for payload in payloads:
        assert version_edit._parse_regular(payload) == read(payload)
