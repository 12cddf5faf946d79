"""`meta.properties`: the identity of a log directory.

Source: `MetaProperties`, `MetaPropertiesVersion`, `PropertiesUtils`, `DirectoryId` and `Uuid` of Kafka.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

import pyarrow as pa

from logwright.codec.describe import Bytes, DescriptionError, Field, Struct
from logwright.codec.java import integer
from logwright.codec.kafka.names import META_PROPERTIES_FILE
from logwright.codec.properties import properties, property_line
from logwright.codec.single_frame import ParseError, SmallFileCodec, only_row, row_table
from logwright.codec.table import Column

ZOOKEEPER, KRAFT = "ZooKeeper", "KRaft"
"""The modes of a broker, named after the place of the cluster's metadata."""

UUID = re.compile(r"[A-Za-z0-9_-]{22}(?:==)?")
_RESERVED = 100
"""UUIDs below this number are reserved, and never the id of a directory."""


class MetaPropertiesError(Exception):
    """The exception of a broker that reads the file. `java` is the Java class."""

    def __init__(self, message: str, java: str = "java.lang.RuntimeException") -> None:
        super().__init__(message)
        self.java = java


@dataclass(frozen=True)
class MetaProperties:
    """The content of the file, as the broker's parser accepts it: only version 1 must have a cluster id and a node id."""

    version: int
    cluster_id: str | None
    node_id: int | None
    """`broker.id` in version 0, `node.id` in version 1."""
    directory_id: bytes | None


def is_reserved(directory_id: bytes) -> bool:
    """Return whether Kafka reserves the id of a directory."""
    high, low = directory_id[:8], int.from_bytes(directory_id[8:], "big", signed=True)
    return not any(high) and low < _RESERVED


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Parse the file. Raises `MetaPropertiesError` with the text of the broker."""
    try:
        stored = dict(properties(data, strict=True))
    except ValueError as error:
        raise MetaPropertiesError(str(error), "java.lang.IllegalArgumentException") from None
    text = stored.get("version", "0")
    version = parse_int(text.strip())
    if version is None:
        raise MetaPropertiesError(f"Invalid meta.properties version string '{text}'")
    if version not in (0, 1):
        raise MetaPropertiesError(f"Unknown meta.properties version number {version}")
    node_id = None
    name = "node.id" if version else "broker.id"
    if version or name in stored:
        if name not in stored:
            raise MetaPropertiesError(f"Failed to find {name}")
        node_id = parse_int(stored[name])
        if node_id is None:
            raise MetaPropertiesError(f"Unable to read {name} as a base-10 number.")
    directory_id = stored.get("directory.id")
    if directory_id is not None and not UUID.fullmatch(directory_id):
        raise MetaPropertiesError(
            f"Unable to read directory.id as a Uuid: {directory_id[:80]!r} is not the base64 form of 16 bytes"
        )
    if version and "cluster.id" not in stored:
        raise MetaPropertiesError("cluster.id was not found.")
    return MetaProperties(
        version,
        stored.get("cluster.id"),
        node_id,
        None if directory_id is None else base64.urlsafe_b64decode(directory_id[:22] + "=="),
    )


def pack(cluster_id: str | None, node_id: int | None, directory_id: str | None, version: int = 1) -> bytes:
    """Return the file of a broker: of KRaft in version 1."""
    values = {
        "cluster.id": cluster_id,
        "directory.id": directory_id,
        "node.id" if version else "broker.id": node_id,
        "version": version,
    }
    return b"".join(property_line(name, str(value)) for name, value in values.items() if value is not None)


def mode_of(content: MetaProperties) -> str | None:
    """Return the mode of the broker that wrote the file; None if it is unknown."""
    if content.version == 1:
        return KRAFT
    return None if content.node_id is None else ZOOKEEPER


def uuid_text(value: bytes) -> str:
    """Return a UUID as Kafka writes it."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def parse_int(text: str) -> int | None:
    """Parse a number as `Integer.parseInt` does; None if that throws."""
    try:
        return integer(text, 32)
    except ValueError:
        return None


def well_formed(text: str | None) -> str | None:
    """Return a text of Java with pairs of surrogates as one character, and U+FFFD for other surrogates."""
    return None if text is None else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def is_uuid(text: str) -> bool:
    """Return whether a text is a UUID as Kafka writes it."""
    return bool(UUID.fullmatch(text)) and uuid_text(base64.urlsafe_b64decode(text[:22] + "==")) == text


_NAMES = {"cluster.id", "directory.id", "node.id", "broker.id", "version"}
_COLUMNS = (
    Column("version", pa.int32(), "1 with KRaft, 0 with ZooKeeper", nullable=False),
    Column("cluster_id", pa.string(), "cluster.id, which version 1 must have"),
    Column("node_id", pa.int32(), "node.id; broker.id in version 0"),
    Column(
        "directory_id",
        pa.string(),
        "directory.id: UUID of the log directory, URL-safe base64 without padding",
    ),
)


def _parse(data: bytes) -> pa.Table:
    try:
        content = parse_meta_properties(data)
    except MetaPropertiesError as error:
        raise ParseError(str(error), upstream=f"{error.java}: {error}") from None
    if content.node_id is None:
        # The broker's parser accepts it, the check that follows does not (`MetaPropertiesEnsemble.verify`).
        raise ParseError("it has neither node.id nor broker.id", system="a KRaft broker does not start")
    directory_id = None if content.directory_id is None else uuid_text(content.directory_id)
    return row_table(
        _COLUMNS, content.version, well_formed(content.cluster_id), content.node_id, directory_id
    )


def _remark(data: bytes) -> str:
    unknown = [name for name, _ in properties(data) if name not in _NAMES]
    return f"unknown property {unknown[0][:80]!r}: the broker ignores it" if unknown else ""


def _form(rows: pa.Table) -> bytes:
    row = only_row(rows)
    version, directory_id = row["version"], row["directory_id"]
    if version not in (0, 1):
        raise DescriptionError(f"version {version}, expected 0 or 1")
    if row["node_id"] is None:
        raise DescriptionError("node_id is null, but a broker must have one")
    if version and row["cluster_id"] is None:
        raise DescriptionError("cluster_id is null, but version 1 must have it")
    if directory_id is not None and not is_uuid(directory_id):
        raise DescriptionError(f"{directory_id!r} is not a UUID in URL-safe base64 (22 characters)")
    return pack(row["cluster_id"], row["node_id"], directory_id, version)


CODEC = SmallFileCodec(
    name="kafka.meta_properties",
    title="Kafka identity of a log directory",
    pattern=re.compile(re.escape(META_PROPERTIES_FILE)),
    columns=_COLUMNS,
    parse=_parse,
    form=_form,
    system="the broker takes the log directory offline",
    remark=_remark,
    text=Struct(
        "MetaProperties",
        Field(
            "properties",
            Bytes(),
            "a Java property file: cluster.id, node.id or broker.id, directory.id, version",
        ),
        source="PropertiesUtils.writePropertiesFile",
    ),
)
