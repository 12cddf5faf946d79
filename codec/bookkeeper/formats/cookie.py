"""The codec `bookkeeper.cookie`: `VERSION`, the identity of a bookie in each of its directories. Source: `Cookie` of BookKeeper."""

from __future__ import annotations

import re

import pyarrow as pa

from logwright.codec.bookkeeper.startup import textformat
from logwright.codec.bookkeeper.startup.errors import JavaError
from logwright.codec.describe import Bytes, DescriptionError, Field, Struct
from logwright.codec.single_frame import ParseError, SmallFileCodec, only_row, row_table
from logwright.codec.table import Column
from logwright.codec.text import Word

NEWEST, PLAIN = 5, 3
"""The layout version that is written, and the one with plain lines instead of the text format of Protocol Buffers."""
FIELDS = {
    "bookieHost": "bookie_host", "journalDir": "journal_dir", "ledgerDirs": "ledger_dirs", "instanceId": "instance_id",
    "indexDirs": "index_dirs",
}  # fmt: skip
"""Columns by the names of `CookieFormat`, in the order in which they are written."""
REQUIRED = ("bookieHost", "journalDir", "ledgerDirs")
_FAILS = "the bookie does not start: IOException or InvalidCookieException"


def fields_of(data: bytes) -> tuple[int, dict[str, str | None]]:
    """Return the layout version and the fields by their names in `CookieFormat`; other names have no value. Raises `ParseError`."""
    first, _, rest = data.decode(errors="replace").partition("\n")
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", first.removesuffix("\r")):
        raise ParseError(f"Invalid string '{first[:80]}', cannot parse cookie.")
    version = int(first)
    if version < PLAIN:
        return version, {}
    if version == PLAIN:
        lines = rest.splitlines()
        if len(lines) < len(REQUIRED):
            raise ParseError(f"expected {len(REQUIRED)} lines after the layout version, found {len(lines)}")
        return version, dict(zip(REQUIRED, lines, strict=False))
    try:
        fields = dict(textformat.fields(rest.encode(), FIELDS))
    except JavaError as error:
        raise ParseError(error.text) from None
    missing = [name for name in REQUIRED if name not in fields]
    if missing:
        raise ParseError(f"the required field {missing[0]} is missing")
    return version, fields


def _parse(data: bytes) -> pa.Table:
    version, fields = fields_of(data)
    return row_table(COLUMNS, version, *map(fields.get, FIELDS))


def _remark(data: bytes) -> str:
    version, fields = fields_of(data)
    if version < PLAIN:
        return f"Cookie is of too old version {version}"
    unknown = [name for name in fields if name not in FIELDS]
    return f"unknown field {unknown[0]}" if unknown else ""


def _form(rows: pa.Table) -> bytes:
    row = only_row(rows)
    version = row["layout_version"] or NEWEST
    fields = {name: row[column] for name, column in FIELDS.items() if row[column] is not None}
    if version < PLAIN:
        return b"%d\n" % version
    missing = [name for name in REQUIRED if name not in fields]
    if missing:
        raise DescriptionError(f"the required field {missing[0]} is null")
    if version == PLAIN:
        lines = [fields[name] for name in REQUIRED]
        if len(fields) > len(lines) or any("\n" in line or "\r" in line for line in lines):
            raise DescriptionError("layout 3 has three plain lines only")
        return "\n".join([str(version), *lines, ""]).encode()
    return f"{version}\n{textformat.form(fields)}".encode()


COLUMNS = (
    Column(
        "layout_version",
        pa.int32(),
        "layout version: 5 since release 4.16, 4 since 4.2, 3 in 4.1",
        nullable=False,
    ),
    Column("bookie_host", pa.string(), "id of the bookie, or its address"),
    Column("journal_dir", pa.string(), "journal directories as configured, separated by commas"),
    Column("ledger_dirs", pa.string(), "number of ledger directories, and each of them, separated by tabs"),
    Column("instance_id", pa.string(), "id of the cluster"),
    Column("index_dirs", pa.string(), "like ledger_dirs; null if index files are in the ledger directories"),
)
CODEC = SmallFileCodec(
    name="bookkeeper.cookie",
    title="BookKeeper VERSION: the identity of a bookie",
    pattern=re.compile("VERSION"),
    columns=COLUMNS,
    parse=_parse,
    form=_form,
    system=_FAILS,
    remark=_remark,
    text=Struct(
        "Cookie",
        Field("layout_version", Word(bits=32), "3 or more"),
        Field(
            "fields",
            Bytes(),
            "CookieFormat in the text format of Protocol Buffers; three plain lines in layout 3",
        ),
        source="Cookie.writeToDirectory",
    ),
)
