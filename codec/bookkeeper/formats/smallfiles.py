"""The codecs of the smallest files of a bookie: `lastMark`, `lastId`, `BOOKIE_STATUS` and `DIRTY`.

Source: `Journal.LastLogMark`, `EntryLoggerAllocator.setLastLogId`, `BookieStatus` and `UncleanShutdownDetectionImpl` of BookKeeper.
"""

from __future__ import annotations

import re

import pyarrow as pa

from logwright.codec.describe import I64BE, Bytes, DescriptionError, Field, Struct
from logwright.codec.fault import Kind
from logwright.codec.java import first_line, integer
from logwright.codec.single_frame import ParseError, SmallFileCodec, only_row, row_table
from logwright.codec.table import TIMESTAMP, Column
from logwright.codec.text import Word

MARK_SIZE = 16
MARK = Struct(
    "LastMark",
    Field("journal_id", I64BE, "id of the journal up to which all entries are in entry logs and indexes"),
    Field("offset", I64BE, "byte of that journal at which the replay starts"),
    Field("rest", Bytes("rest"), "ignored", default=b""),
    source="Journal.LastLogMark",
)
_MODES = ("READ_WRITE", "READ_ONLY")
_STATUS = re.compile(
    rb"([0-9]{1,9}),(READ_WRITE|READ_ONLY),([+-]?[0-9]{1,18})(?:,(true|false))?", re.IGNORECASE
)


def _trailing_remark(data: bytes) -> str:
    rest = data[len(first_line(data)) :]
    if not rest:
        return "no line end"
    return "" if rest in (b"\r\n", b"\r", b"\n") else "bytes after the first line, which are ignored"


_MARK_COLUMNS = (
    Column("journal_id", pa.int64(), MARK["journal_id"].doc, nullable=False, hexadecimal=True),
    Column("offset", pa.int64(), MARK["offset"].doc, nullable=False),
)


def _parse_mark(data: bytes) -> pa.Table:
    if len(data) < MARK_SIZE:
        text = f"the file has {len(data)} bytes, expected {MARK_SIZE}"
        raise ParseError(text, kind=Kind.TRUNCATED)
    values, _ = MARK.unpack(data)
    return row_table(_MARK_COLUMNS, values["journal_id"], values["offset"])


def _mark_remark(data: bytes) -> str:
    values, _ = MARK.unpack(data)
    if values["journal_id"] < 0:
        return f"journal_id is {values['journal_id']}: the bookie ignores the mark"
    return f"{len(data) - MARK_SIZE} bytes after the mark, which are ignored" if len(data) > MARK_SIZE else ""


LAST_MARK = SmallFileCodec(
    name="bookkeeper.lastmark",
    title="BookKeeper lastMark: where the replay of the journal starts",
    pattern=re.compile(r"lastMark(?:\.[0-9]+)?"),
    columns=_MARK_COLUMNS,
    parse=_parse_mark,
    form=lambda rows: MARK.pack(only_row(rows)),
    system="the bookie ignores the file; without another one it replays all journals",
    structures=(MARK,),
    remark=_mark_remark,
)

_ID_COLUMNS = (
    Column("log_id", pa.int64(), "id of the newest entry log, which may be preallocated", nullable=False),
)


def _parse_id(data: bytes) -> pa.Table:
    line = first_line(data).decode(errors="replace")
    try:
        return row_table(_ID_COLUMNS, integer(line, 64, 16))
    except ValueError:
        raise ParseError(f"expected a hexadecimal number, found {line[:80]!r}") from None


def _id_remark(data: bytes) -> str:
    number = _parse_id(data)["log_id"][0].as_py()
    if not 0 <= number < 1 << 31:
        return f"log_id is {number}: ids of entry logs have 31 bits"
    return _trailing_remark(data)


LAST_ID = SmallFileCodec(
    name="bookkeeper.lastid",
    title="BookKeeper lastId: the newest entry log of a directory",
    pattern=re.compile("lastId"),
    columns=_ID_COLUMNS,
    parse=_parse_id,
    form=lambda rows: f"{only_row(rows)['log_id']:x}\n".encode(),
    system="the bookie looks for the newest entry log in the directory",
    text=Struct(
        "LastId", Field("log_id", Word(), "in hexadecimal"), source="EntryLoggerAllocator.setLastLogId"
    ),
    remark=_id_remark,
)

_STATUS_COLUMNS = (
    Column("layout_version", pa.int32(), "1", nullable=False),
    Column("mode", pa.string(), "READ_WRITE or READ_ONLY", nullable=False),
    Column("last_update_time", TIMESTAMP, "when the mode changed; the newest file of all directories counts", nullable=False),
    Column("manually_modified", pa.bool_(), "whether an operator set the mode; null in older files"),
)  # fmt: skip


def _parse_status(data: bytes) -> pa.Table:
    line = first_line(data)
    match = _STATUS.fullmatch(line)
    if match is None:
        text = f"expected a status such as 1,READ_WRITE,1700000000000,false, found {line[:80].decode(errors='replace')!r}"
        raise ParseError(text)
    version, mode, time, manual = match.groups()
    manually = None if manual is None else manual.lower() == b"true"
    return row_table(_STATUS_COLUMNS, int(version), mode.decode().upper(), int(time), manually)


def _form_status(rows: pa.Table) -> bytes:
    time = rows["last_update_time"].cast(pa.int64())[0].as_py() if rows.num_rows == 1 else 0
    row = only_row(rows.drop_columns(["last_update_time"]))
    if row["mode"] not in _MODES:
        raise DescriptionError(f"mode is {row['mode']!r}, expected {' or '.join(_MODES)}")
    parts = [row["layout_version"], row["mode"], time]
    if row["manually_modified"] is None:
        return ",".join(map(str, parts)).encode()
    return (",".join(map(str, parts)) + f",{str(row['manually_modified']).lower()}\n").encode()


STATUS = SmallFileCodec(
    name="bookkeeper.bookiestatus",
    title="BookKeeper BOOKIE_STATUS: whether the bookie accepts writes",
    pattern=re.compile("BOOKIE_STATUS"),
    columns=_STATUS_COLUMNS,
    parse=_parse_status,
    form=_form_status,
    system="the bookie ignores the file and starts writable",
    text=Struct(
        "BookieStatus",
        Field("status", Word(), "layout version, mode, time in milliseconds since 1970, whether set by hand"),
        source="BookieStatus",
    ),
    remark=lambda data: "" if data.count(b",") == 2 and b"\n" not in data else _trailing_remark(data),
)


DIRTY = SmallFileCodec(
    name="bookkeeper.dirty",
    title="BookKeeper DIRTY: exists while a bookie is running, or if it was not stopped cleanly",
    pattern=re.compile("DIRTY"),
    columns=(
        Column("content", pa.binary(), "the content; an empty file, as the bookie creates it, has no row"),
    ),
    parse=lambda data: pa.table({"content": pa.array([data] if data else [], pa.binary())}),
    form=lambda rows: b"".join(rows["content"].to_pylist()),
    system="the bookie never reads it; only its existence matters",
    text=Struct("Dirty", Field("content", Bytes(), "nothing"), source="UncleanShutdownDetectionImpl"),
    remark=lambda data: f"{len(data)} bytes; the bookie creates an empty file" if data else "",
)
CODECS = (LAST_MARK, LAST_ID, STATUS, DIRTY)
