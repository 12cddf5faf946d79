"""The codec `rocketmq.abort`: a file that exists while a broker is running. Source: `DefaultMessageStore.createTempFile` of RocketMQ."""

from __future__ import annotations

import re

import pyarrow as pa

from logwright.codec.describe import DescriptionError, Field, Struct
from logwright.codec.single_frame import ParseError, SmallFileCodec
from logwright.codec.table import Column
from logwright.codec.text import Word

_PID = re.compile(rb"[0-9]{1,18}")


def _parse(data: bytes) -> pa.Table:
    if data and not _PID.fullmatch(data):
        raise ParseError(f"expected a process id, found {data[:80].decode(errors='replace')!r}")
    return pa.table({"pid": pa.array([int(data)] if data else [], pa.int64())})


def _form(rows: pa.Table) -> bytes:
    if rows.num_rows > 1:
        raise DescriptionError(f"{rows.num_rows} rows; the file holds at most one process id")
    if rows.num_rows and not 0 <= rows["pid"][0].as_py() < 10**18:
        raise DescriptionError(f"{rows['pid'][0].as_py()} is not a process id")
    return b"".join(b"%d" % pid for pid in rows["pid"].to_pylist())


CODEC = SmallFileCodec(
    name="rocketmq.abort",
    title="RocketMQ abort: the process id of a broker that is running or was not stopped cleanly",
    pattern=re.compile(r"abort(?:\.bak)?"),
    columns=(Column("pid", pa.int64(), "the process id; an empty file has no row", nullable=False),),
    parse=_parse,
    form=_form,
    system="the broker never reads it; only its existence matters",
    text=Struct(
        "Abort", Field("pid", Word(bits=64), "the process id"), source="DefaultMessageStore.createTempFile"
    ),
)
