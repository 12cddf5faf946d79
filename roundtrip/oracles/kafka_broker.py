"""A real broker, one node, KRaft, on loopback only, that serves hand-made partition directories.

Each placed partition gets a separate log directory, so that a partition that does not open affects no other, and has its
own clean-shutdown marker and checkpoints: many cases share one start, which takes seconds. Topics placed before the first
start go into the bootstrap records of the metadata log; later ones are created by the admin client, and placed between a
clean stop and the next start.
"""

from __future__ import annotations

import base64
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

from logwright.roundtrip.oracles.java import QUICK, OracleError, command
from logwright.roundtrip.oracles.kafka import LOG_FLAGS, PROJECT, SESSION, hexed, unhex

Isolation = Literal["read_uncommitted", "read_committed"]

MARKER = ".kafka_cleanshutdown"

NODE = 1

# The broker never deletes, compacts or expires anything, whatever the age of the records, and does not wait for others.
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": str(NODE),
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    "log.cleaner.enable": "false",
    "producer.id.expiration.ms": str(2**31 - 1),
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # After a crash the controller waits this long before it accepts the broker again.
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "1",
    "num.recovery.threads.per.data.dir": "1",
}


# Loggers of changes to files. Others log only routine messages at INFO level.
_STORAGE_LOGGERS = {
    *(
        "LogManager",
        "LogLoader",
        "LogSegment",
        "LogSegments",
        "UnifiedLog",
        "LocalLog",
        "ProducerStateManager",
    ),
    *(
        "LeaderEpochFileCache",
        "OffsetIndex",
        "TimeIndex",
        "TransactionIndex",
        "AbstractIndex",
        "LogDirFailureChannel",
    ),
}

# These two name all log directories.
_ABOUT_ALL = re.compile(r"INFO LogManager: (Loading logs from log dirs|Loaded \d+ logs) ")


class BrokerError(OracleError):
    """The broker did not start, exited, or does not serve a partition. `.lines` is its log."""

    def __init__(self, message: str, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lines = list(lines)


class ConsumeError(OracleError):
    """The consumer stopped before the end of the log. `.consumed` holds the records up to there."""

    def __init__(self, message: str, consumed: Consumed) -> None:
        super().__init__(message)
        self.consumed = consumed


@dataclass(frozen=True)
class Consumed:
    """The records that a consumer got, from the log start to where it stopped.

    `end_offset` is where the log ends for it (the last stable offset, if it reads committed records only), `position` where
    it ended, `error` the exception that stopped it (class, message, causes, trace) or None.
    """

    records: list[dict[str, Any]]
    log_start_offset: int
    end_offset: int
    position: int
    error: dict[str, Any] | None


@dataclass
class _Placed:
    topic: str
    partition: int
    log_dir: Path
    leader_epoch: int

    @property
    def directory(self) -> Path:
        return self.log_dir / f"{self.topic}-{self.partition}"


class Broker:
    """A context manager around a broker and its directories, which are temporary.

    `properties` are added to its server.properties. Topic settings that `place` and `create_topic` take are Kafka's
    (`index.interval.bytes`, `internal.segment.bytes`, since `segment.bytes` must be at least 1 MiB, ...).
    """

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self._properties = dict(properties or {})
        self._clean_up = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._started_at = 0
        self._port = 0
        self.cluster_id = _uuid()
        self._formatted = False
        self._placed: dict[tuple[str, int], _Placed] = {}
        self._topic_ids: dict[str, str] = {}
        self._configs: dict[str, dict[str, str]] = {}

    def __enter__(self) -> Broker:
        home = self._clean_up.enter_context(
            tempfile.TemporaryDirectory(prefix="logwright-kafka-", ignore_cleanup_errors=True)
        )
        self.home = Path(home)
        self._metadata_dir.mkdir()
        self._own_dir.mkdir()
        # Unbuffered, and read through the same descriptor, so that no output is missed.
        self._log = self._clean_up.enter_context(Path(home, "broker.log").open("ab+", buffering=0))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()
        self._clean_up.close()

    # --- places

    @property
    def _metadata_dir(self) -> Path:
        return self.home / "metadata"

    @property
    def _own_dir(self) -> Path:
        """The directory of created topics."""
        return self.home / "logs"

    @property
    def _log_dirs(self) -> list[Path]:
        return [self._own_dir, *dict.fromkeys(placed.log_dir for placed in self._placed.values())]

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        """Return the directory of a partition. Its files are complete only after `stop()`."""
        placed = self._placed.get((topic, partition))
        if placed:
            return placed.directory
        # The broker places a new partition into the log directory with the fewest partitions.
        directory = next(self.home.glob(f"logs*/{topic}-{partition}"), None)
        if directory is None:
            raise OracleError(f"there is no partition {topic}-{partition}")
        return directory

    def files(self, topic: str, partition: int = 0) -> dict[str, bytes]:
        """Return the files of a partition: name to bytes."""
        directory = self.partition_dir(topic, partition)
        return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}

    # --- topics and partitions

    def create_topic(self, name: str, configs: Mapping[str, str] | None = None, partitions: int = 1) -> None:
        """Create a topic on the running broker, empty."""
        self._topic_ids[name] = self._ask(
            "create_topic", name=name, configs=dict(configs or {}), partitions=partitions
        )[1]

    def place(
        self,
        directory: str | Path,
        topic: str | None = None,
        partition: int | None = None,
        *,
        configs: Mapping[str, str] | None = None,
        clean: bool = False,
        checkpoints: Mapping[str, int] | None = None,
        leader_epoch: int = 10,
        keep_metadata: bool = False,
    ) -> str:
        """Put a copy of a partition directory where the next start finds it, under `topic`; returns the topic's name.

        The name and number come from the directory's if not given. Before the first start any topic may be placed; after
        it, those that exist (the broker must be stopped).

        `configs`: the topic's settings, before the first start. `clean`: with the marker of a clean stop, so that nothing is
        recovered. `checkpoints`: offsets for this partition by file, such as {"recovery-point-offset-checkpoint": 10}.
        `leader_epoch`: what the controller says before the first start, which raises it by 2; a leader of a lower epoch than
        the records' would cut their epochs away. `partition.metadata` is kept if the topic's id is free to choose and the
        file is sound, else rewritten; with `keep_metadata` it is kept.
        """
        directory = Path(directory)
        if self._process is not None:
            raise OracleError("the broker is running: stop() it before you place a partition")
        own_topic, _, own_number = directory.absolute().name.rpartition("-")
        topic = topic or own_topic
        if partition is None:
            partition = int(own_number) if own_number.isdecimal() else 0
        if self._formatted and topic not in self._topic_ids:
            raise OracleError(
                f"topic {topic} is not known to a broker that has run before: start(), create_topic(), stop(), then place()"
            )
        topic_id = self._topic_ids.get(topic) or self._choose_id(directory)
        before = self._placed.get((topic, partition))
        if before is None and self._formatted:
            # Remove the broker's own copy: duplicates of a partition are fatal.
            shutil.rmtree(self.partition_dir(topic, partition))
        log_dir = self.home / f"logs-{topic}-{partition}"
        placed = _Placed(topic, partition, log_dir, leader_epoch)
        shutil.rmtree(log_dir / f"{topic}-{partition}", ignore_errors=True)
        shutil.copytree(directory, placed.directory)
        metadata = placed.directory / "partition.metadata"
        if not keep_metadata and _topic_id(metadata) != topic_id:
            metadata.write_text(f"version: 0\ntopic_id: {topic_id}")
        for name in (
            *("recovery-point-offset-checkpoint", "replication-offset-checkpoint"),
            *("log-start-offset-checkpoint", "cleaner-offset-checkpoint"),
        ):
            offset = (checkpoints or {}).get(name)
            if offset is None:
                (log_dir / name).unlink(missing_ok=True)
            else:
                (log_dir / name).write_text(f"0\n1\n{topic} {partition} {offset}\n")
        if clean:
            (log_dir / MARKER).write_text('{"version":0,"brokerEpoch":1}')
        else:
            (log_dir / MARKER).unlink(missing_ok=True)
        self._placed[topic, partition] = placed
        self._topic_ids[topic] = topic_id
        if configs and self._formatted:
            raise OracleError(f"the settings of topic {topic} are given to create_topic()")
        self._configs.setdefault(topic, {}).update(configs or {})
        return topic

    def place_log_directory(self, directory: str | Path) -> list[tuple[str, int]]:
        """Put a copy of a log directory, with its own checkpoints and identity, where the first start finds it. Return its partitions.

        Its meta.properties must have `cluster_id` and `NODE`; the topics get the ids in partition.metadata.
        """
        if self._process is not None or self._formatted:
            raise OracleError("a log directory is placed before the first start")
        log_dir = self.home / "logs-all"
        shutil.copytree(directory, log_dir)
        for partition in sorted(path for path in log_dir.iterdir() if path.is_dir()):
            topic, _, number = partition.name.rpartition("-")
            id_ = _topic_id(partition / "partition.metadata")
            if id_ is None or self._topic_ids.setdefault(topic, id_) != id_:
                raise OracleError("the partitions of a topic need the same topic id", path=str(partition))
            self._placed[topic, int(number)] = _Placed(topic, int(number), log_dir, leader_epoch=10)
        return list(self._placed)

    def _choose_id(self, directory: Path) -> str:
        own = _topic_id(directory / "partition.metadata")
        return own if own and own not in self._topic_ids.values() else _uuid()

    # --- the process

    def start(self, timeout: float = 90.0) -> None:
        """Format new directories, start, and wait until it serves. Raises `BrokerError` if it exits."""
        if self._process is not None:
            raise OracleError("the broker is running already")
        self._format()
        attempts = 3
        while self._process is None:
            attempts -= 1
            try:
                self._launch(timeout)
            except BrokerError:
                # Another process may have taken the free port in the meantime.
                if not attempts or "java.net.BindException" not in self.log_text():
                    raise

    def _launch(self, timeout: float) -> None:
        assert self._log is not None
        self._port, controller = free_ports(2)
        properties = {
            **PROPERTIES,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "controller.quorum.voters": f"{NODE}@127.0.0.1:{controller}",
            "log.dirs": ",".join(map(str, self._log_dirs)),
            "metadata.log.dir": str(self._metadata_dir),
            **self._properties,
        }
        config = self.home / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self._started_at = self._log.seek(0, 2)
        self._process = subprocess.Popen(
            command_line(config),
            # Kept open, so that the broker exits if this process is killed.
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            cwd=self.home,
        )
        deadline = time.monotonic() + timeout
        while " Kafka Server started" not in self.log_text():
            if self._process.poll() is not None:
                self._ended()
                raise BrokerError("the broker ended during its start", self._problems())
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerError(f"the broker did not start within {timeout:g} s", self._problems())
            time.sleep(0.02)

    def _ended(self) -> None:
        process, self._process = self._running(), None
        assert process.stdin is not None
        process.stdin.close()

    def _format(self) -> None:
        topics: list[dict[str, Any]] = []
        dirs = [str(path) for path in self._log_dirs]
        request: dict[str, Any] = {
            "node_id": NODE,
            "cluster_id": self.cluster_id,
            "metadata_dir": str(self._metadata_dir),
            "dirs": dirs,
        }
        # Each directory gets an id, which the metadata of its partitions refers to.
        SESSION.ask("format", **request)
        if not self._formatted:
            for topic, topic_id in self._topic_ids.items():
                partitions = {
                    str(placed.partition): {
                        "directory": _directory_id(placed.log_dir),
                        "leader_epoch": placed.leader_epoch,
                    }
                    for placed in self._placed.values()
                    if placed.topic == topic
                }
                topics.append(
                    {
                        "name": topic,
                        "id": topic_id,
                        "partitions": partitions,
                        "configs": self._configs.get(topic, {}),
                    }
                )
            SESSION.ask("format", **request, topics=topics)
            self._formatted = True

    def stop(self, timeout: float = 60.0) -> None:
        """Stop cleanly: everything flushed and closed, the markers written."""
        process = self._running()
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(f"the broker did not stop within {timeout:g} s", self._problems()) from None
        self._ended()

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        process = self._running()
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._ended()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise OracleError("the broker is not running: start() it")
        return self._process

    # --- clients

    @property
    def bootstrap(self) -> str:
        """`host:port` for any client."""
        return f"127.0.0.1:{self._port}"

    def _ask(self, op: str, wait: float = 15.0, **fields: Any) -> tuple[list[Any], Any]:
        self._running()
        request: dict[str, Any] = hexed(fields)
        return SESSION.ask(
            op, bootstrap=self.bootstrap, timeout_ms=int(wait * 1000), timeout=wait * 4 + 60, **request
        )

    def consume_all(
        self,
        topic: str,
        isolation: Isolation = "read_uncommitted",
        *,
        partition: int = 0,
        limit: int | None = None,
        wait: float = 15.0,
    ) -> Consumed:
        """Read a partition by the Java consumer until the end of its log, an error, or `wait` seconds without progress."""
        items, done = self._ask(
            "consume",
            wait,
            topic=topic,
            partition=partition,
            isolation=isolation,
            **({} if limit is None else {"limit": limit}),
        )
        records = [unhex(item) for item in items]
        return Consumed(
            records, done["log_start_offset"], done["end_offset"], done["position"], done["error"]
        )

    def consume(
        self, topic: str, isolation: Isolation = "read_uncommitted", *, partition: int = 0
    ) -> list[dict[str, Any]]:
        """The records of a partition, all of them.

        Each has partition, offset, timestamp, timestamp_type, leader_epoch, key, value, headers (pairs). `ConsumeError` when
        the consumer stopped before the end.
        """
        consumed = self.consume_all(topic, isolation, partition=partition)
        if consumed.error is not None:
            raise ConsumeError(
                f"the consumer of {topic}-{partition} stopped at offset {consumed.position} of {consumed.end_offset}: "
                f"{consumed.error['class']}: {consumed.error['message']}",
                consumed,
            )
        return consumed.records

    def offsets(self, topic: str, partition: int = 0) -> dict[str, int]:
        """log_start_offset, high_watermark, last_stable_offset."""
        return dict(self._ask("offsets", topic=topic, partition=partition)[1])

    def produce(
        self,
        topic: str,
        records: Iterable[Mapping[str, Any]],
        *,
        partition: int = 0,
        configs: Mapping[str, str] | None = None,
        abort: bool = False,
    ) -> list[int]:
        """Send records (key, value, timestamp, headers) by the Java producer; returns their offsets.

        With `transactional.id` among `configs` they are one transaction, committed or aborted.
        """
        return list(
            self._ask(
                "produce",
                topic=topic,
                partition=partition,
                records=[dict(record) for record in records],
                configs=dict(configs or {}),
                abort=abort,
            )[1]
        )

    # --- logs

    def log_text(self) -> str:
        """The log since the last start."""
        assert self._log is not None
        self._log.seek(self._started_at)
        return self._log.read().decode(errors="replace")

    def log_lines(self, topic: str, partition: int = 0) -> list[str]:
        """Return the log lines about a partition's files since the last start, as `LEVEL Logger: message`.

        That is all warnings and errors, and what the log layer says at INFO level. Exceptions follow their line, indented,
        without the stack. Paths are cut to `LOGDIR`, durations to N.
        """
        placed = self._placed.get((topic, partition))
        log_dir = str(placed.log_dir if placed else self._own_dir)
        about = re.compile(
            rf"(?<![\w.-]){re.escape(topic)}-{partition}(?![\w-])"
            rf"|\btopic={re.escape(topic)}, partition={partition}\b"
            rf"|{re.escape(log_dir)}(?![\w.-])"
        )
        return [
            re.sub(r"\b\d+ ?ms\b", "N ms", line.replace(log_dir, "LOGDIR"))
            for entry in self._entries()
            if entry[0].startswith(("WARN", "ERROR")) or entry[0].split(":")[0].split()[1] in _STORAGE_LOGGERS
            if any(about.search(line) for line in entry) and not _ABOUT_ALL.match(entry[0])
            for line in entry
        ]

    def _entries(self) -> list[list[str]]:
        entries: list[list[str]] = []
        for line in self.log_text().splitlines():
            head = re.match(r"(TRACE|DEBUG|INFO|WARN|ERROR) (\S+) - (.*)", line)
            if head:
                entries.append([f"{head[1]} {head[2]}: {head[3]}"])
            elif entries and line.strip() and not re.match(r"\s+(at |\.\.\. \d+ more)", line):
                entries[-1].append(f"  {line.strip()}")
        return entries

    def _problems(self) -> list[str]:
        """Return warnings and errors, or the last lines if there are no such lines."""
        entries = self._entries()
        bad = [line for entry in entries if entry[0].startswith(("WARN", "ERROR")) for line in entry]
        return bad or self.log_text().splitlines()[-20:]


def command_line(config: Path) -> list[str]:
    """Return the command line of a broker that exits when its stdin is closed."""
    return [
        *(command("java"), *QUICK, "-Xmx256m", "-Xms256m", *LOG_FLAGS),
        *("-cp", PROJECT.classpath(), "logwright.oracle.kafka.BrokerMain", str(config)),
    ]


def _uuid() -> str:
    """A random id as Kafka writes them: URL-safe base64 of 16 bytes, not starting with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _topic_id(metadata: Path) -> str | None:
    try:
        match = re.fullmatch(r"version: 0\ntopic_id: ([\w-]{22})\n?", metadata.read_text())
    except (OSError, UnicodeDecodeError):
        return None
    return match[1] if match and match[1].strip("A") else None


def _directory_id(log_dir: Path) -> str:
    match = re.search(r"^directory\.id=(\S+)$", (log_dir / "meta.properties").read_text(), re.MULTILINE)
    if match is None:
        raise OracleError("formatting gave the directory no id", path=str(log_dir))
    return match[1]


def free_ports(count: int) -> list[int]:
    """Return free TCP ports on loopback."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [int(item.getsockname()[1]) for item in sockets]
