"""RocketMQ's own store classes as a judge of store directories, in several releases fetched by Maven.

Names are RocketMQ's. One store is open at a time; it stays open until the next request. A broker is in `rocketmq_broker`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logwright.roundtrip.oracles.java import JavaError, OracleError, Releases

__all__ = ["VERSIONS", "JavaError", "Loaded", "OracleError", "Queue", "available", "close", "load", "put"]

VERSIONS = ("5.5.0", "5.3.3", "4.9.7")
SOURCES = Path(__file__).parent / "java" / "rocketmq"
FLAGS = (
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.nio", "sun.nio.ch", "jdk.internal.ref")
    ),
    f"-Drmq.logback.configurationFile={SOURCES / 'logback.xml'}",
)
_RELEASES = Releases(SOURCES, "logwright.oracle.rocketmq.Oracle", "-Xmx512m", *FLAGS)
available, _session = _RELEASES.why_not, _RELEASES.session
_MOST_LOADS = 400
"""A store keeps a thread and memory after its shutdown, so the JVM is restarted after this number."""
_loads: Counter[str] = Counter()


@dataclass(frozen=True)
class Queue:
    """A consume queue, read by pulls from its first offset to its last."""

    min: int
    max: int
    units: list[list[Any]]
    """Queue offset (None in 4.x), physical offset, size, and whether a client decodes the message."""
    not_found: list[list[Any]]
    """Pulls without a message: queue offset, status or exception, next queue offset."""


@dataclass(frozen=True)
class Loaded:
    """A store after `DefaultMessageStore.load`. If it does not load, the other fields are empty."""

    load: bool
    min_phy: int = -1
    max_phy: int = -1
    queues: dict[tuple[str, int], Queue] = field(default_factory=dict)
    """By topic and queue id."""
    offsets: dict[tuple[str, str], list[int] | None] = field(default_factory=dict)
    """The physical offsets of the messages that `queryMessage` returns, by topic and key; None where it runs out of memory, because it
    allocates what a damaged body length says."""
    messages: list[dict[str, Any]] = field(default_factory=list)


def load(
    version: str,
    root: str | Path,
    config: Mapping[str, Any],
    *,
    batch_topics: Sequence[str] = (),
    queries: Sequence[tuple[str, str]] = (),
    messages: bool = False,
    start: bool = False,
) -> Loaded:
    """Load and read a store, which may change it.

    `config` has properties of `MessageStoreConfig`. With `start` the services run until the store is closed; 4.x dispatches only then,
    so it is always started. Raises `JavaError` where the store throws an exception.
    """
    _loads[version] += 1
    if _loads[version] % _MOST_LOADS == 0:
        _session(version).close()
    items, done = _session(version).ask(
        "load",
        root=str(Path(root).absolute()),
        config={name: str(value) for name, value in config.items()},
        batchTopics=list(batch_topics),
        queries=[list(query) for query in queries],
        messages=messages,
        start=start or version.startswith("4."),
    )
    queues = {
        (item["topic"], item["queue_id"]): Queue(item["min"], item["max"], item["units"], item["not_found"])
        for item in items
        if "units" in item
    }
    offsets = {
        (item["topic"], item["key"]): item["physical_offsets"] for item in items if "physical_offsets" in item
    }
    rows = [item for item in items if "queue_offset" in item]
    return Loaded(done["load"], done.get("min_phy", -1), done.get("max_phy", -1), queues, offsets, rows)


def put(version: str, messages: Sequence[Mapping[str, Any]]) -> int:
    """Put messages (`topic`, `queue_id`, `body`, `tags`, `keys`) into the open store. Return the end of its log."""
    rows = [{**message, "body": message["body"].hex()} for message in messages]
    statuses, end = _session(version).ask("put", messages=rows)
    if set(statuses) - {"PUT_OK"}:
        raise OracleError(f"the store does not accept messages: {statuses}")
    return int(end)


def close(version: str) -> None:
    """Shut the open store down cleanly. This takes seconds."""
    _session(version).ask("close")
