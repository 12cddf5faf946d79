"""`partition.metadata`: the topic id of a partition (KIP-516). Source: `PartitionMetadataFile`, `PartitionMetadataReadBuffer`.

Two lines are read. The names before the colons, and everything after the second line, are ignored.
"""

from __future__ import annotations

import base64
import re

import pyarrow as pa

from logwright.codec.describe import DescriptionError, Field, Struct
from logwright.codec.kafka.formats.checkpoint import (
    FILE as PATH,
)
from logwright.codec.kafka.formats.checkpoint import (
    ILLEGAL_ARGUMENT,
    IO_EXCEPTION,
    lines,
    number,
    words,
)
from logwright.codec.single_frame import ParseError, SmallFileCodec, only_row, row_table
from logwright.codec.table import Column
from logwright.codec.text import Word

FILE = "partition.metadata"
VERSION = 0
_BETWEEN = re.compile(r":[ \t\n\x0b\f\r]+")
_ID = re.compile(r"[A-Za-z0-9_-]{22}(?:==)?")
_MOST = 24
"""The longest text that is decoded."""
_FATAL = "the broker does not start"
_NO_LINE = 'java.lang.NullPointerException: Cannot invoke "java.lang.CharSequence.length()" because "this.text" is null'


def pack(topic_id: str, version: int = VERSION) -> bytes:
    """Return the content of the file."""
    return f"version: {version}\ntopic_id: {topic_id}".encode()


def unpack(data: bytes) -> tuple[int, str]:
    """Return the version and the topic id. Raises `ParseError`."""
    content = lines(data)
    if not content:
        raise ParseError("the file is empty", system=_FATAL, upstream=_NO_LINE)
    version = number(content[0][0], _value(*content[0]), 32, upstream=_malformed(content[0][1]))
    if version < VERSION:
        upstream = f"{IO_EXCEPTION}: Unrecognized version of partition metadata file ({PATH}): {version}"
        raise ParseError(f"version {version}, expected {VERSION} or above", upstream=upstream)
    if len(content) == 1:
        text = "the line with the topic id is missing"
        raise ParseError(text, len(data), system=_FATAL, upstream=_NO_LINE)
    at, line = content[1]
    topic_id = _value(at, line)
    if not _ID.fullmatch(topic_id):
        text = f"expected a topic id, found {topic_id[:80]!r}"
        raise ParseError(text, at, system=_FATAL, upstream=f"{ILLEGAL_ARGUMENT}: {_refusal(topic_id)}")
    if not any(base64.urlsafe_b64decode(topic_id[:22] + "==")):
        upstream = f"{IO_EXCEPTION}: Invalid topic ID in partition metadata file ({PATH})"
        raise ParseError("the topic id is zero", at, upstream=upstream)
    return version, topic_id


def _malformed(line: str) -> str:
    return f"{IO_EXCEPTION}: Malformed line in partition metadata file [{PATH}]: {line}"


def _refusal(topic_id: str) -> str:
    """Return the message with which `Uuid.fromString` refuses a text."""
    if len(topic_id) > _MOST:
        return f"Input string with prefix `{topic_id[:_MOST]}` is too long to be decoded as a base64 UUID"
    digits = topic_id.rstrip("=")
    odd = next((char for char in digits if not re.fullmatch("[A-Za-z0-9_-]", char)), None)
    if odd is not None:
        return f"Illegal base64 character {ord(odd):x}"
    if len(digits) % 4 == 1:
        return "Last unit does not have enough valid bits"
    expected = "which is not equal to the expected 16 bytes of a base64-encoded UUID"
    return f"Input string `{topic_id}` decoded as {len(digits) * 3 // 4} bytes, {expected}"


def _value(at: int, line: str) -> str:
    parts = words(_BETWEEN, line)
    if len(parts) != 2:
        raise ParseError(f"expected `name: value`, found {line[:80]!r}", at, upstream=_malformed(line))
    return parts[1]


def is_topic_id(text: str) -> bool:
    """Return whether a text is the base64 form of a UUID other than zero: 22 characters of the URL-safe alphabet."""
    return len(text) == 22 and bool(_ID.fullmatch(text)) and any(base64.urlsafe_b64decode(text + "=="))


_COLUMNS = (
    Column("version", pa.int32(), "0", nullable=False),
    Column("topic_id", pa.string(), "UUID of the topic, URL-safe base64 without padding", nullable=False),
)


def _parse(data: bytes) -> pa.Table:
    return row_table(_COLUMNS, *unpack(data))


def _form(rows: pa.Table) -> bytes:
    version, topic_id = only_row(rows).values()
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
