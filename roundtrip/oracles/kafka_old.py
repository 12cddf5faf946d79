"""Kafka 2.8 and 3.9 as judges of magic 0 and 1: their classes read log segments, and convert them to older magics. Fetched by Maven."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from logwright.roundtrip.oracles.java import JavaError, OracleError, Releases

__all__ = ["VERSIONS", "JavaError", "OracleError", "available", "batches", "down_convert"]

VERSIONS = ("2.8.2", "3.9.1")
_RELEASES = Releases(
    Path(__file__).parent / "java" / "kafka_old", "logwright.oracle.kafka_old.MessageSets", "-Xmx512m"
)
available, _session = _RELEASES.why_not, _RELEASES.session


def batches(version: str, path: str | Path) -> list[dict[str, Any]]:
    """Return the batches of a `.log` file with their `records`: offset, timestamp, key, value, number of headers.

    Raises `JavaError` for a checksum mismatch, also of a message in a wrapper.
    """
    return _unhexed(_session(version).ask("batches", path=str(Path(path).absolute()))[0])


def down_convert(version: str, path: str | Path, magic: int) -> tuple[list[dict[str, Any]], bytes]:
    """Return what a broker of this version sends to a consumer that knows only `magic`: in the form of `batches`, and as bytes."""
    items, done = _session(version).ask("down_convert", path=str(Path(path).absolute()), magic=magic)
    return _unhexed(items), bytes.fromhex(done)


def _unhexed(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for batch in batches:
        for record in batch["records"]:
            for name in ("key", "value"):
                record[name] = None if record[name] is None else bytes.fromhex(record[name])
    return batches
