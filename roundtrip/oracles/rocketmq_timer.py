"""RocketMQ's own timer as a judge of stores with a timer wheel and a timer log. One store is open at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from logwright.roundtrip.oracles.java import SHARED, JavaError, OracleError, Releases
from logwright.roundtrip.oracles.rocketmq import FLAGS, SOURCES

__all__ = ["VERSIONS", "JavaError", "OracleError", "available", "deliver", "drop", "load", "put"]

VERSIONS = ("5.5.0", "5.3.3")
_RELEASES = Releases(
    SOURCES,
    "logwright.oracle.rocketmq.Timers",
    *("-Xmx512m", "-XX:MaxDirectMemorySize=1g", *FLAGS),
    sources=(Path(__file__).parent / "java" / "rocketmq_timer", SOURCES, SHARED),
)
available, _session = _RELEASES.why_not, _RELEASES.session
_SETTINGS = {"timerWheelEnable": "true", "fileReservedTime": 1000000, "diskMaxUsedSpaceRatio": 99}


def load(version: str, root: str | Path, config: Mapping[str, Any], *, start: bool = False) -> bool:
    """Load a store and its timer, which may change it, and return whether both load. Raises `JavaError` where they throw an exception.

    With `start` their services run until the store is dropped.
    """
    settings = {name: str(value) for name, value in {**_SETTINGS, **config}.items()}
    _, loaded = _session(version).ask("open", root=str(Path(root).absolute()), config=settings, start=start)
    return bool(loaded)


def put(version: str, messages: Sequence[Mapping[str, Any]]) -> None:
    """Put timer messages (`topic`, `body`, `due` in milliseconds since 1970, `properties`) into the started store."""
    _session(version).ask(
        "put", messages=[{**message, "body": message["body"].hex()} for message in messages]
    )


def deliver(version: str, topic: str, seconds: float) -> tuple[list[bytes], int]:
    """Run the timer for some seconds. Return the bodies that a consumer of a topic gets, and the number of messages in later slots."""
    bodies, done = _session(version).ask("deliver", topic=topic, ms=int(1000 * seconds))
    return [bytes.fromhex(body) for body in bodies], done["pending"]


def drop(version: str) -> None:
    """Stop the open store in the background."""
    _session(version).ask("drop")
