"""The codec `leveldb.current`: the file CURRENT, a line with the name of the manifest in use.

Source: `VersionSet::Recover` and `SetCurrentFile` of LevelDB. Everything before the last byte, which must be a newline, is the name.
"""

from __future__ import annotations

import re

import pyarrow as pa

from logwright.codec.describe import Field, Struct
from logwright.codec.fault import Kind
from logwright.codec.single_frame import ParseError, SmallFileCodec, only_row, row_table
from logwright.codec.store.listing import Listing
from logwright.codec.table import Column
from logwright.codec.text import Word

NAME = "leveldb.current"
NO_NEWLINE = "CURRENT file does not end with newline"
_COLUMNS = (Column("manifest", pa.string(), "name of the manifest", nullable=False),)
_LONGEST = 1 << 16
"""Bytes read of CURRENT. No file name is longer."""


def manifest_of(data: bytes) -> bytes:
    """Return the name as LevelDB reads it. Raises `ParseError` with LevelDB's message."""
    if not data.endswith(b"\n"):
        raise ParseError(NO_NEWLINE, len(data), Kind.TRUNCATED)
    return data[:-1]


def read_current(listing: Listing) -> bytes:
    """Return the name in the file CURRENT of a directory. Raises `ParseError` and `UnreadableError`."""
    return manifest_of(listing.read("CURRENT", 0, _LONGEST))


def _parse(data: bytes) -> pa.Table:
    name = manifest_of(data)
    try:
        text = name.decode()
    except UnicodeDecodeError as error:
        raise ParseError("the name of the manifest is not text", error.start) from None
    return row_table(_COLUMNS, text)


def _form(rows: pa.Table) -> bytes:
    return str(only_row(rows)["manifest"]).encode() + b"\n"


CURRENT = Struct(
    "Current",
    Field("manifest", Word(), "name of the manifest in use"),
    doc="One line.",
    source="SetCurrentFile",
)

CODEC = SmallFileCodec(
    name=NAME,
    title="LevelDB CURRENT: the manifest in use",
    pattern=re.compile("CURRENT"),
    columns=_COLUMNS,
    parse=_parse,
    form=_form,
    system=f"LevelDB refuses to open: Corruption: {NO_NEWLINE}, or the manifest is not found",
    text=CURRENT,
)
