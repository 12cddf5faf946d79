"""Pulsar's own classes as a judge of the entries of topics: what a producer and a broker write, and what a consumer reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from logwright.roundtrip.oracles.java import SHARED, JavaError, OracleError, Project, Session

__all__ = ["JavaError", "OracleError", "available", "read", "write"]

VERSION = "4.0.6"
_SOURCES = Path(__file__).parent / "java" / "pulsar"
_PROJECT = Project(_SOURCES / "pom.xml", _SOURCES, SHARED)
SESSION = Session(_PROJECT, "logwright.oracle.pulsar.Oracle", "-Xmx400m")

available = _PROJECT.why_not
"""Return why it is not available here; None if it is. The first call fetches its jars."""


def write(metadata: Mapping[str, Any], **content: Any) -> list[bytes]:
    """Return the entries of a message or a batch; several if the message is divided into chunks.

    `metadata` has fields of `MessageMetadata`. `content` has `payload`, or `batch` with messages (`metadata`, `payload`); further
    `checksum`, `chunks`, and `broker` with fields of `BrokerEntryMetadata`. Bytes are hexadecimal.
    """
    items, _ = SESSION.ask("write", metadata=dict(metadata), **content)
    return [bytes.fromhex(item) for item in items]


def read(entry: bytes) -> tuple[list[dict[str, Any]], int]:
    """Return the messages that a consumer reads, and the number of bytes after them. Raises `JavaError` where it throws an exception."""
    items, done = SESSION.ask("read", entry=entry.hex())
    return items, done["unread"]
