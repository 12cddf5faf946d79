"""The codec `rocketmq.abort`: a file that exists while a broker runs. Source: `DefaultMessageStore.createTempFile` of RocketMQ."""

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
        raise ParseError(f"a process id was expected, found {data[:80].decode(errors='replace')!r}")
    return pa.table({"pid": pa.array([int(data)] if data else [], pa.int64())})


def _form(rows: pa.Table) -> bytes:
    if rows.num_rows > 1:
        raise DescriptionError(f"{rows.num_rows} rows, the file holds one process id at most")
    if rows.num_rows and not 0 <= rows["pid"][0].as_py() < 10**18:
        raise DescriptionError(f"{rows['pid'][0].as_py()} is not a process id")
    return b"".join(b"%d" % pid for pid in rows["pid"].to_pylist())


CODEC = SmallFileCodec(
    name="rocketmq.abort",
    title="RocketMQ abort: the process id of a broker that runs, or did not stop cleanly",
    pattern=re.compile(r"abort(?:\.bak)?"),
    columns=(Column("pid", pa.int64(), "the process id; no row where the file is empty", nullable=False),),
    parse=_parse,
    form=_form,
    system="the broker never reads it: only that the file exists counts",
    text=Struct(
        "Abort", Field("pid", Word(bits=64), "the process id"), source="DefaultMessageStore.createTempFile"
    ),
)
