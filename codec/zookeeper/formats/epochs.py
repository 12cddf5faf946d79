"""Codecs of the files that hold one number: `acceptedEpoch` and `currentEpoch` of a quorum member, and `myid`.

The number is in decimal digits. Servers write no line end and read the first line. Source: `QuorumPeer.readLongFromFile`,
`QuorumPeer.writeLongToFile` and `QuorumPeerConfig.setupMyId` of ZooKeeper.
"""

from __future__ import annotations

import re

import pyarrow as pa

from logwright.codec.describe import DescriptionError, Field, Struct
from logwright.codec.java import first_line, integer
from logwright.codec.single_frame import ParseError, SmallFileCodec, row_table, struct_name
from logwright.codec.table import Column
from logwright.codec.text import Word

MOST_MYID = 255


def parse_number(data: bytes) -> int:
    """Return the number on the first line, as `BufferedReader.readLine` and `Long.parseLong` read it. Raises `ParseError`."""
    line = first_line(data).decode(errors="replace")
    try:
        return integer(line, 64)
    except ValueError:
        raise ParseError(f"expected a number on the first line, found {line[:80]!r}") from None


def _codec(
    name: str, title: str, files: str, column: Column, system: str, source: str, *, most: int | None = None
) -> SmallFileCodec:
    """Return the codec of a file with one number; `most`: from 1 to this one."""

    def checked(value: int) -> int:
        if most is not None and not 1 <= value <= most:
            raise ParseError(f"expected a number from 1 to {most}, found {value}")
        return value

    def parse(data: bytes) -> pa.Table:
        return row_table((column,), checked(parse_number(data)))

    def form(rows: pa.Table) -> bytes:
        values = rows[column.name].to_pylist()
        if len(values) != 1:
            raise DescriptionError(f"{len(values)} rows, but the file holds one number")
        return str(checked(values[0])).encode()

    return SmallFileCodec(
        name=name,
        title=title,
        pattern=re.compile(files),
        columns=(column,),
        parse=parse,
        form=form,
        system=system,
        text=Struct(
            struct_name(name),
            Field(column.name, Word(bits=64), column.doc),
            doc="One line. The rest of the file is ignored.",
            source=source,
        ),
    )


ACCEPTED_EPOCH = _codec(
    "zookeeper.accepted_epoch",
    "ZooKeeper acceptedEpoch: the last epoch that the server agreed to",
    r"acceptedEpoch(?:\.tmp)?",
    Column("epoch", pa.int64(), "the epoch of the last NEWEPOCH that was acknowledged", nullable=False),
    "the server does not start: IOException",
    "QuorumPeer.readLongFromFile",
)
CURRENT_EPOCH = _codec(
    "zookeeper.current_epoch",
    "ZooKeeper currentEpoch: the epoch that the server is in",
    r"currentEpoch(?:\.tmp)?",
    Column("epoch", pa.int64(), "the epoch of the last NEWLEADER that was acknowledged", nullable=False),
    "the server does not start: IOException",
    "QuorumPeer.readLongFromFile",
)
MYID = _codec(
    "zookeeper.myid",
    "ZooKeeper myid: the number of the server in its quorum",
    r"myid",
    Column("myid", pa.int64(), f"1 to {MOST_MYID}", nullable=False),
    "the server does not start: IllegalArgumentException",
    "QuorumPeerConfig.setupMyId",
    most=MOST_MYID,
)
CODECS = (ACCEPTED_EPOCH, CURRENT_EPOCH, MYID)
