"""`partition.metadata`: the topic id of a partition (KIP-516). Source: `PartitionMetadataFile`."""

from __future__ import annotations

import base64
import re

import pyarrow as pa

from logwright.codec.describe import DescriptionError
from logwright.codec.table import Column
from logwright.codec.whole import ParseError, Rows, WholeCodec

FILE = "partition.metadata"
_LINE = re.compile(r":\s+")
_ZERO = base64.urlsafe_b64encode(bytes(16)).decode().rstrip("=")


def pack(topic_id: str, version: int = 0) -> bytes:
    """The content of the file."""
    return f"version: {version}\ntopic_id: {topic_id}".encode()


def is_topic_id(text: str) -> bool:
    """Whether it is the base64 form of a UUID that is not zero: 22 characters of the URL-safe alphabet."""
    return bool(re.fullmatch(r"[A-Za-z0-9_-]{22}", text)) and text != _ZERO


def _parse(data: bytes) -> Rows:
    if not data:
        raise ParseError("the file is empty", system="the broker does not start")
    row: dict[str, object] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        words = _LINE.split(line)
        if len(words) != 2 or words[0] not in ("version", "topic_id"):
            raise ParseError(f"`name: value` was expected, found {line[:80]!r}")
        row[words[0]] = words[1]
    if set(row) != {"version", "topic_id"}:
        raise ParseError(f"version and topic_id were expected, found {', '.join(row) or 'nothing'}")
    if not re.fullmatch(r"\d+", str(row["version"]), re.ASCII):
        raise ParseError(f"a version was expected, found {row['version']!r}")
    if not is_topic_id(str(row["topic_id"])):
        raise ParseError(f"a topic id was expected, found {row['topic_id']!r}")
    return [{"version": int(str(row["version"])), "topic_id": row["topic_id"]}]


def _form(rows: Rows) -> bytes:
    if len(rows) != 1:
        raise DescriptionError(f"one row is one file, there are {len(rows)}")
    return pack(rows[0]["topic_id"], rows[0]["version"])


CODEC = WholeCodec(
    name="kafka.partition_metadata",
    title="Kafka topic id of a partition",
    pattern=re.compile(r"partition\.metadata"),
    columns=(
        Column("version", pa.int32(), "0", nullable=False),
        Column("topic_id", pa.string(), "UUID of the topic, URL-safe base64 without padding", nullable=False),
    ),
    parse=_parse,
    form=_form,
    system="the broker takes the log directory offline",
)
