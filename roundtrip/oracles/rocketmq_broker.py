"""A real RocketMQ name server and broker on loopback that serve a store directory to real clients."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from logwright.roundtrip.oracles.java import SHARED, OracleError, Project, Session
from logwright.roundtrip.oracles.rocketmq import FLAGS

__all__ = ["Broker", "OracleError", "available"]

_SOURCES = Path(__file__).parent / "java" / "rocketmq_broker"
_PROJECT = Project(_SOURCES / "pom.xml", _SOURCES, SHARED)
_PATIENCE = 60
"""Seconds without a message until a consumer gives up."""
_SETTINGS = {
    "brokerClusterName": "oracle",
    "brokerName": "oracle",
    "brokerId": "0",
    "brokerIP1": "127.0.0.1",
    "timerWheelEnable": "false",
    "fileReservedTime": "1000000",
    "diskMaxUsedSpaceRatio": "99",
    "transientStorePoolEnable": "false",
}
"""The broker never deletes anything, whatever its age and however full the disk."""

available = _PROJECT.why_not
"""Return why a broker cannot be started here; None if it can. The first call fetches its jars."""


def _free_ports(count: int) -> list[int]:
    """Return free ports. A broker also listens at the port two below its own, which is tested too."""
    with ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            port = stack.enter_context(socket.socket())
            port.bind(("127.0.0.1", 0))
            beside = stack.enter_context(socket.socket())
            try:
                beside.bind(("127.0.0.1", port.getsockname()[1] - 2))
            except OSError:
                continue
            ports.append(port.getsockname()[1])
        return ports


class Broker:
    """A context manager around a broker on the store at `root`. `config` has further lines of its broker.conf.

    `conf` is the path of the broker.conf.
    """

    def __init__(self, root: str | Path, config: Mapping[str, Any]) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="logwright-broker-"))
        self.conf = self._home / "broker.conf"
        self._names, listen, ha = _free_ports(3)
        path = Path(root).absolute()
        settings = {
            **_SETTINGS, "listenPort": listen, "haListenPort": ha, "storePathRootDir": path, "storePathCommitLog": path / "commitlog", **config,
        }  # fmt: skip
        self.conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._session = Session(
            _PROJECT,
            "logwright.oracle.rocketmq.Servers",
            *("-Xmx512m", "-XX:MaxDirectMemorySize=256m", f"-Drocketmq.home.dir={self._home}", *FLAGS),
            *(f"-Duser.home={self._home}", "-Drocketmq.client.logUseSlf4j=true"),
        )

    def __enter__(self) -> Broker:
        try:
            self._session.ask("start", port=self._names, broker_conf=str(self.conf))
        except BaseException:
            self._end()
            raise
        return self

    def consume(
        self, topic: str, count: int, group: str = "oracle", *, refused: int = 0
    ) -> list[dict[str, Any]]:
        """Return the messages that a new consumer group gets from a topic, from its first on; `body` is bytes. It refuses the first ones, so
        that the broker delivers them again."""
        settings = {"topic": topic, "count": count, "group": group, "refused": refused}
        rows, _ = self._session.ask("consume", timeout=300, patience=_PATIENCE, **settings)
        return [{**row, "body": bytes.fromhex(row["body"])} for row in rows]

    def produce(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        """Send messages (`topic`, `queue_id`, `tags`, `keys`, `body`, `properties`): each alone, as one `batch`, or each in a transaction that
        has this `end` (`commit`, `rollback`). Return their queue offsets."""
        rows = [{**message, "body": message["body"].hex()} for message in messages]
        return self._session.ask("produce", timeout=300, messages=rows, **options)[0]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._session.ask("stop")
        finally:
            self._end()

    def _end(self) -> None:
        self._session.close()
        shutil.rmtree(self._home, ignore_errors=True)
