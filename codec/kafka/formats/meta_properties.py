"""`meta.properties`: the identity of a log directory.

Source: `MetaProperties`, `MetaPropertiesVersion`, `PropertiesUtils`, `DirectoryId` and `Uuid` of Kafka.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from logwright.codec.properties import properties

ZOOKEEPER, KRAFT = "ZooKeeper", "KRaft"
"""The modes of a broker, named after the place of the cluster's metadata."""

_INT = re.compile(r"[+-]?[0-9]+")
_UUID = re.compile(r"[A-Za-z0-9_-]{22}(?:==)?")
_RESERVED = 100
"""UUIDs below this number are reserved, and never the id of a directory."""


class MetaPropertiesError(Exception):
    """The exception of a broker that reads the file. `java` is the Java class."""

    def __init__(self, message: str, java: str = "java.lang.RuntimeException") -> None:
        super().__init__(message)
        self.java = java


@dataclass(frozen=True)
class MetaProperties:
    """The content of the file. Only version 1 must have a cluster id and a node id."""

    version: int
    cluster_id: str | None
    node_id: int | None
    """`broker.id` in version 0, `node.id` in version 1."""
    directory_id: bytes | None

    @property
    def reserved(self) -> bool:
        """Whether the id is reserved."""
        if self.directory_id is None:
            return False
        high, low = self.directory_id[:8], int.from_bytes(self.directory_id[8:], "big", signed=True)
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
    if directory_id is not None and not _UUID.fullmatch(directory_id):
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


def pack(cluster_id: str, node_id: int, directory_id: str) -> bytes:
    """Return the file of a KRaft broker."""
    values = {"cluster.id": cluster_id, "directory.id": directory_id, "node.id": node_id, "version": 1}
    return "".join(f"{name}={value}\n" for name, value in values.items()).encode("latin-1")


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
    if not _INT.fullmatch(text) or len(text) > 1000:
        return None
    value = int(text)
    return value if -(1 << 31) <= value < 1 << 31 else None
