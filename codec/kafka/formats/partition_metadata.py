"""`partition.metadata`: the topic id of a partition (KIP-516). Source: `PartitionMetadataFile`, `PartitionMetadataReadBuffer`.

Two lines are read. The names before the colons, and everything after the second line, are ignored.
"""

from __future__ import annotations

import base64
import re

import pyarrow as pa

from logwright.codec.describe import DescriptionError, Field, Struct
from logwright.codec.kafka.formats.checkpoint import lines, number, words
from logwright.codec.single_frame import ParseError, SmallFileCodec
from logwright.codec.table import Column, Table
from logwright.codec.text import Word

FILE = "partition.metadata"
VERSION = 0
_BETWEEN = re.compile(r":[ \t\n\x0b\f\r]+")
_ID = re.compile(r"[A-Za-z0-9_-]{22}(?:==)?")
_FATAL = "the broker does not start"


def pack(topic_id: str, version: int = VERSION) -> bytes:
    """Return the content of the file."""
    return f"version: {version}\ntopic_id: {topic_id}".encode()


def unpack(data: bytes) -> tuple[int, str]:
    """Return the version and the topic id. Raises `ParseError`."""
    content = lines(data)
    if not content:
        raise ParseError("the file is empty", system=_FATAL)
    version = number(content[0][0], _value(*content[0]), 32)
    if version < VERSION:
        raise ParseError(f"version {version}, expected {VERSION} or above")
    if len(content) == 1:
        raise ParseError("the line with the topic id is missing", len(data), system=_FATAL)
    at, line = content[1]
    topic_id = _value(at, line)
    if not _ID.fullmatch(topic_id):
        raise ParseError(f"expected a topic id, found {topic_id[:80]!r}", at, system=_FATAL)
    if not any(base64.urlsafe_b64decode(topic_id[:22] + "==")):
        raise ParseError("the topic id is zero", at)
    return version, topic_id


def _value(at: int, line: str) -> str:
    parts = words(_BETWEEN, line)
    if len(parts) != 2:
        raise ParseError(f"expected `name: value`, found {line[:80]!r}", at)
    return parts[1]


def is_topic_id(text: str) -> bool:
    """Return whether a text is the base64 form of a UUID other than zero: 22 characters of the URL-safe alphabet."""
    return len(text) == 22 and bool(_ID.fullmatch(text)) and any(base64.urlsafe_b64decode(text + "=="))


_COLUMNS = (
    Column("version", pa.int32(), "0", nullable=False),
    Column("topic_id", pa.string(), "UUID of the topic, URL-safe base64 without padding", nullable=False),
)


def _parse(data: bytes) -> pa.Table:
    version, topic_id = unpack(data)
    return pa.Table.from_pylist(
        [{"version": version, "topic_id": topic_id}], schema=Table("rows", _COLUMNS).schema()
    )


def _form(rows: pa.Table) -> bytes:
    if rows.num_rows != 1:
        raise DescriptionError(f"a file has one row, found {rows.num_rows}")
    version, topic_id = rows["version"][0].as_py(), rows["topic_id"][0].as_py()
    if version < VERSION:
        raise DescriptionError(f"version {version} is below {VERSION}")
    if not is_topic_id(topic_id):
        raise DescriptionError(f"{topic_id!r} is not a UUID in URL-safe base64 (22 characters)")
    return pack(topic_id, version)


PARTITION_METADATA = Struct(
    "PartitionMetadata",
    Field("version_name", Word(": "), "ignored", default="version"),
    Field("version", Word(bits=32), "0", default=VERSION),
    Field("topic_id_name", Word(": "), "ignored", default="topic_id"),
    Field("topic_id", Word(), "UUID of the topic, URL-safe base64 without padding"),
    doc="Two lines. The second one ends with the file.",
    source="PartitionMetadataFile",
)

CODEC = SmallFileCodec(
    name="kafka.partition_metadata",
    title="Kafka topic id of a partition",
    pattern=re.compile(r"partition\.metadata"),
    columns=_COLUMNS,
    parse=_parse,
    form=_form,
    system="the broker takes the log directory offline",
    text=PARTITION_METADATA,
)
