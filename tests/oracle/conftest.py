"""Fixtures of the Kafka oracle tests: the oracle, or the reason for skipping, and golden cases in the oracle's form."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright.roundtrip.oracles import kafka as oracle
from logwright.roundtrip.oracles import kafka_broker
from logwright.roundtrip.oracles import zookeeper as zookeeper_oracle

GOLDEN = Path(__file__).parents[2] / "corpora" / "golden" / "kafka"


@pytest.fixture(scope="session")
def kafka() -> Iterator[Any]:
    """`logwright.roundtrip.oracles.kafka`, usable."""
    reason = oracle.available()
    if reason:
        pytest.skip(reason)
    yield oracle
    oracle.SESSION.close()


@pytest.fixture(scope="session")
def zookeeper() -> Any:
    """`logwright.roundtrip.oracles.zookeeper`, usable."""
    reason = zookeeper_oracle.available()
    if reason:
        pytest.skip(reason)
    return zookeeper_oracle


@pytest.fixture
def broker(kafka: Any) -> Iterator[kafka_broker.Broker]:
    """A separate broker for one test, not started."""
    with kafka_broker.Broker() as item:
        yield item


class Golden:
    """One golden case: its partition directory, and what Kafka said of it when it was made."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = GOLDEN / name
        self.directory = next(self.path.glob("data/*-*"))

    def records(self, isolation: str = "read_uncommitted") -> list[dict[str, Any]]:
        """The lines of records.jsonl."""
        names = ["records.jsonl", "records.jsonl.gz"]
        if isolation == "read_committed":
            # There only where it differs.
            names = ["records-committed.jsonl", "records-committed.jsonl.gz", *names]
        path = next(self.path / name for name in names if (self.path / name).exists())
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        return [json.loads(line) for line in text.splitlines()]

    def derived(self, run: str) -> dict[str, bytes]:
        """The derived files of `after-rebuild-4096` and the like, without leader-epoch-checkpoint."""
        return {
            path.name: path.read_bytes()
            for path in (self.path / run).iterdir()
            if path.name != "leader-epoch-checkpoint"
        }


@pytest.fixture(scope="session")
def golden() -> type[Golden]:
    return Golden


def as_golden(record: dict[str, Any]) -> dict[str, Any]:
    """A record that the oracle gave (from a file or a consumer) in the form of records.jsonl, without partition and epoch."""

    def body(name: str, value: bytes | None) -> dict[str, Any]:
        if value is not None and len(value) > 400:
            return {f"{name}_sha256": hashlib.sha256(value).hexdigest(), f"{name}_len": len(value)}
        return {f"{name}_hex": None if value is None else value.hex()}

    def short(value: bytes | None) -> str | None:
        if value is not None and len(value) > 400:
            return f"sha256:{hashlib.sha256(value).hexdigest()}"
        return None if value is None else value.hex()

    return {
        "offset": record["offset"],
        "timestamp": record["timestamp"],
        "timestamp_type": record["timestamp_type"],
        **body("key", record["key"]),
        **body("value", record["value"]),
        "headers": [[key.hex(), short(value)] for key, value in record["headers"]],
    }


@pytest.fixture(name="as_golden")
def _as_golden() -> Any:
    return as_golden
