"""Predict how a broker checks its log directories before it loads a log, and which of them it takes offline.

Source: `KafkaConfig`, `KafkaRaftServer.initializeLogDirs`, `MetaPropertiesEnsemble`, `SharedServer`, `LogManager` and
`UnifiedLog.parseTopicPartitionName`; for a broker in ZooKeeper mode `KafkaServer` of Kafka 3.9.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import replace

from logwright.codec.engine.startup import (
    Answers,
    DirectoryState,
    Mode,
    Refused,
    Served,
    ServerDirectory,
    Settings,
    Startup,
)
from logwright.codec.fault import UnreadableError
from logwright.codec.kafka.formats.checkpoint import OFFSETS
from logwright.codec.kafka.formats.meta_properties import (
    KRAFT,
    ZOOKEEPER,
    MetaProperties,
    MetaPropertiesError,
    is_reserved,
    parse_int,
    parse_meta_properties,
    uuid_text,
)
from logwright.codec.kafka.formats.quorum_state import METADATA_PARTITION
from logwright.codec.kafka.names import (
    BOOTSTRAP_FILE,
    CLEAN_SHUTDOWN_FILE,
    LOCK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    METADATA_FILE,
    RECOVERY_POINT_FILE,
    REMOTE_INDEX_CACHE,
    TopicPartition,
    loaded_as,
    loads_directory,
)
from logwright.codec.kafka.options import STARTING
from logwright.codec.kafka.startup.errors import BrokerError, Offline, text_error
from logwright.codec.kafka.startup.start import (
    VERSIONS,
    mode_of_directory,
    mode_of_version,
    start,
    zookeeper_mode,
)
from logwright.codec.kafka.store.raft_log import check_bootstrap
from logwright.codec.option import Options
from logwright.codec.single_frame import ParseError
from logwright.codec.store.listing import Listing
from logwright.codec.store.overlay import Overlay
from logwright.codec.store.view import Part

_STATE = "java.lang.IllegalStateException"
_DUPLICATE = (
    "It is likely because log directory failure happened while broker was replacing current replica with future replica. Recover broker"
    " from this failure by manually deleting one of the two directories for this partition. It is recommended to delete the partition in"
    " the log directory that is known to have failed recently."
)
_KAFKA_EXCEPTION = "org.apache.kafka.common.KafkaException"
_CONFIG_EXCEPTION = "org.apache.kafka.common.config.ConfigException"
_BROKER, _CONTROLLER = "broker", "controller"
_MAX_BOOTSTRAP = 64 << 20
_DIRECTORY_ID = b"directory.id=AAAAAAAAAAAAAAAAAAAAAA\n"
"""The line that a broker adds to the `meta.properties` of a directory without an id. The id itself is random."""
_FEW_VOTERS = 4
"""A Scala set with no more elements keeps their order."""


class _Exit(BrokerError):
    """The broker exits with a line in its log and without an exception."""

    java = ""


class Running(Served):
    """A broker that has started, and has not loaded a log yet."""

    def __init__(self, mode: Mode, warnings: Sequence[str]) -> None:
        self.mode, self._warnings = mode, warnings

    def answers(self) -> Answers:
        return Answers(None, {}, warnings=self._warnings)

    def lost(self) -> None:
        """No log is loaded yet."""

    def parts(self, view: str) -> Sequence[Part]:
        return []


def start_server(overlay: Overlay, settings: Settings) -> Running | Refused:
    """Follow the start of a broker up to the load of its logs. See `codec.engine.startup.Start`."""
    server = Server(settings)
    mode = server.mode()
    try:
        server.start_in_zookeeper_mode() if mode.name == ZOOKEEPER else server.start()
    except BrokerError as error:
        return Refused(
            error.scope,
            error.message,
            error.java or None,
            warnings=server.all_warnings(error.message),
            rows=None,
            mode=mode,
        )
    if server.offline:
        # The broker serves the others.
        text, java = next(iter(server.offline.values()))
        return Refused(Offline.scope, text, java, warnings=server.all_warnings(text), rows=None, mode=mode)
    for name in server.rewrites:
        overlay.put(name, overlay.read(name) + _DIRECTORY_ID)
    return Running(mode, server.warnings)


STARTUP = Startup("kafka", VERSIONS, start_server)


class Server:
    """One start. `offline` has the log directories that the broker takes offline: path to error text and exception class."""

    def __init__(self, start_settings: Settings) -> None:
        self.start_settings, roots = start_settings, start_settings.roots
        self.configured = start_settings.configuration is not None
        settings = self.settings = start_settings.configuration or {}
        self.roots = {
            posixpath.normpath(root.path): root
            for root in sorted(roots, key=lambda directory: directory.path)
        }
        first = posixpath.normpath(roots[0].path)
        self.metadata_dir = posixpath.normpath(settings.get("metadata.log.dir", "").strip() or first)
        named = (settings.get("log.dirs") or settings.get("log.dir") or "").split(",")
        data = dict.fromkeys(posixpath.normpath(name.strip()) for name in named if name.strip())
        self.data_dirs = [path for path in data if path in self.roots] or [
            path for path in self.roots if not self.configured or path != settings.get("metadata.log.dir")
        ]
        self.properties: dict[str, MetaProperties] = {}
        self.absent: list[str] = []
        self.offline: dict[str, tuple[str, str | None]] = {}
        self.rewrites: list[str] = []
        self.warnings: list[str] = []
        self.roles = {_BROKER, _CONTROLLER}

    # Mode

    def mode(self) -> Mode:
        """Return the mode of the broker."""
        if self.start_settings.version_given:
            return mode_of_version(self.start_settings.version)
        if self.settings.get("process.roles"):
            return Mode(KRAFT, "the configuration has process.roles")
        if "zookeeper.connect" in self.settings:
            return zookeeper_mode("the configuration has zookeeper.connect and no process.roles")
        for root in self.roots.values():
            if root.listing is not None and META_PROPERTIES_FILE in _names(root):
                return mode_of_directory(
                    _read(root.listing, META_PROPERTIES_FILE), {*_names(root), *root.folders}
                )
        return Mode(KRAFT, f"assumed: there is no {META_PROPERTIES_FILE}")

    def all_warnings(self, error: str) -> Sequence[str]:
        """Return the warnings, and the errors of offline directories other than `error`."""
        return [*self.warnings, *(text for text, _ in self.offline.values() if text != error)]

    # KRaft

    def start(self) -> None:
        """Start in KRaft mode. Raises `BrokerError` if the broker exits."""
        expected = self._configuration() if self.configured else None
        self._load()
        if not self.properties and not self.offline and not self.configured and not self._is_used():
            self.warnings.append(
                f"There is no {META_PROPERTIES_FILE}: a broker starts on this directory only after kafka-storage.sh format"
            )
            return
        self._verify(expected, needs_one=True)
        if self.metadata_dir in self.offline:
            raise BrokerError(
                f"Encountered I/O error in metadata log directory {self.metadata_dir}. Cannot continue."
            )
        self._check_metadata_location()
        self._check_identities()
        self._bootstrap()
        self._metadata_log()
        self._lock()
        if _BROKER in self.roles:
            self._load_directories()

    def _is_used(self) -> bool:
        """Return whether a broker has used the directory. A copy of some partitions needs no identity."""
        return any(
            METADATA_PARTITION in root.folders or {BOOTSTRAP_FILE, LOCK_FILE} & _names(root)
            for root in self.roots.values()
        )

    def _configuration(self) -> int:
        """Check the settings that identify the node, in the order of the broker. Return the node id. Raises `BrokerError`."""
        settings = self.settings
        if "process.roles" not in settings:
            raise _config_error(_missing("process.roles"))
        name = "node.id" if "node.id" in settings else "broker.id"
        if name not in settings:
            raise _config_error(_missing("node.id"))
        for setting in ("broker.id", "node.id"):
            if setting in settings and parse_int(settings[setting].strip()) is None:
                # The broker copies node.id to broker.id before it parses either.
                raise _config_error(
                    f"Invalid value {settings[setting].strip()} for configuration broker.id: Not a number of type INT"
                )
        node_id = parse_int(settings[name].strip())
        assert node_id is not None
        if node_id < 0:
            raise _config_error(
                f"Invalid value {node_id} for configuration node.id: Value must be at least 0"
            )
        roles = [role.strip() for role in settings["process.roles"].split(",") if role.strip()]
        if not roles:
            raise _config_error(
                "Configuration 'process.roles' must not be empty. Valid values include: [broker, controller]"
            )
        for role in roles:
            if role not in (_BROKER, _CONTROLLER):
                raise _config_error(
                    f"Invalid value {role} for configuration process.roles: String must be one of: broker, controller"
                )
        self.roles = set(roles)
        if parse_int(settings.get("broker.id", str(node_id)).strip()) not in (node_id, -1):
            raise _config_error("You must set `node.id` to the same value as `broker.id`.")
        self._check_voters(node_id)
        return node_id

    def _check_voters(self, node_id: int) -> None:
        voters = re.findall(r"(?:^|,)\s*([0-9]+)@", self.settings.get("controller.quorum.voters", ""))
        if not voters:
            return
        shown = f"Set({', '.join(voters)})" if len(voters) <= _FEW_VOTERS else "HashSet(...)"
        is_voter = str(node_id) in voters
        role = None
        if _CONTROLLER in self.roles and not is_voter:
            role, must = "contains the 'controller' role", "must be"
        elif _CONTROLLER not in self.roles and is_voter:
            role, must = "contains just the 'broker' role", "must not be"
        if role is not None:
            raise BrokerError(
                f"requirement failed: If process.roles {role}, the node id {node_id} {must} included in the set of voters "
                f"controller.quorum.voters={shown}",
                "java.lang.IllegalArgumentException",
            )

    def _load(self) -> None:
        """Read `meta.properties` of each log directory (`MetaPropertiesEnsemble.Loader`)."""

        def offline(path: str, reason: object, java: str = Offline.java) -> None:
            text = f"Error while reading meta.properties file {path}/{META_PROPERTIES_FILE}: {reason}"
            self._offline(path, text, java)

        for path, root in self.roots.items():
            if root.state is DirectoryState.MISSING:
                self.absent.append(path)
            elif root.listing is None:
                reason = "Not a directory" if root.state is DirectoryState.FILE else root.error
                offline(path, reason, "java.nio.file.FileSystemException")
            elif META_PROPERTIES_FILE in root.folders:
                offline(path, "Is a directory")
            elif META_PROPERTIES_FILE not in _names(root):
                self.absent.append(path)
            else:
                try:
                    self.properties[path] = parse_meta_properties(_read(root.listing, META_PROPERTIES_FILE))
                except MetaPropertiesError as error:
                    offline(path, error, error.java)
                except UnreadableError as error:
                    offline(path, error.message)

    def _verify(self, node_id: int | None, *, needs_one: bool) -> None:
        """Check the identities against each other (`MetaPropertiesEnsemble.verify`). Raises `BrokerError`."""
        if needs_one and not self.properties:
            raise BrokerError("No readable meta.properties files found.")
        cluster_id: str | None = None
        seen: dict[bytes, str] = {}
        for path, properties in self.properties.items():
            file = f"{path}/{META_PROPERTIES_FILE}"
            if properties.cluster_id is not None:
                if cluster_id is not None and properties.cluster_id != cluster_id:
                    raise BrokerError(
                        f"Invalid cluster.id in: {file}. Expected {cluster_id}, but read {properties.cluster_id}"
                    )
                cluster_id = properties.cluster_id
            if properties.node_id is not None:
                if node_id is not None and properties.node_id != node_id:
                    raise BrokerError(
                        f"Stored node id {properties.node_id} doesn't match previous node id {node_id} in {file}. If you moved your "
                        "data, make sure your configured node id matches. If you intend to create a new node, you should "
                        "remove all data in your data directories."
                    )
                node_id = properties.node_id
            if properties.directory_id is not None:
                text = uuid_text(properties.directory_id)
                if is_reserved(properties.directory_id):
                    raise BrokerError(f"Invalid reserved directory ID {text} found in {path}")
                before = seen.setdefault(properties.directory_id, path)
                if before != path:
                    raise BrokerError(
                        f"Duplicate directory ID Optional[{text}] found. It was the ID of {before}, but also of {path}"
                    )

    def _check_metadata_location(self) -> None:
        for path in self.properties:
            root = self.roots[path]
            if path != self.metadata_dir and METADATA_PARTITION in {*root.folders, *_names(root)}:
                raise BrokerError(
                    f"Found unexpected metadata location in data directory `{path}/{METADATA_PARTITION}` (the configured "
                    f"metadata directory is {self.metadata_dir}).",
                    _KAFKA_EXCEPTION,
                )

    def _check_identities(self) -> None:
        for path in self.absent:
            raise BrokerError(
                f"No `meta.properties` found in {path} (have you run `kafka-storage.sh` to format the directory?)"
            )
        for path, properties in self.properties.items():
            for name, value in (("node", properties.node_id), ("cluster", properties.cluster_id)):
                if value is None:
                    raise BrokerError(f"Error: {name} ID not found in {path}")
            if properties.directory_id is None:
                if self.roots[path].read_only:
                    text = f"{path}/{META_PROPERTIES_FILE}.tmp: Read-only file system"
                    raise BrokerError(text, "java.io.FileNotFoundException")
                self.rewrites.append(f"{path}/{META_PROPERTIES_FILE}")

    def _bootstrap(self) -> None:
        root = self.roots[self.metadata_dir]
        if BOOTSTRAP_FILE in root.folders:
            raise BrokerError("java.io.IOException: Is a directory", _KAFKA_EXCEPTION)
        if root.listing is not None and BOOTSTRAP_FILE in _names(root):
            data = root.listing.read(BOOTSTRAP_FILE, 0, _MAX_BOOTSTRAP)
            check_bootstrap(data, f"{self.metadata_dir}/{BOOTSTRAP_FILE}")

    def _metadata_log(self) -> None:
        """Load the metadata log and its `quorum-state`. Raises `BrokerError`."""
        root = self.roots[self.metadata_dir]
        place = f"{self.metadata_dir}/{METADATA_PARTITION}"
        if METADATA_PARTITION in _names(root):
            raise BrokerError(place, "java.nio.file.FileAlreadyExistsException")
        if root.read_only:
            raise BrokerError(f"{place}: Read-only file system", "java.nio.file.FileSystemException")
        listing = root.open(METADATA_PARTITION) if METADATA_PARTITION in root.folders else None
        if listing is None:
            return
        # The metadata log is recovered after any stop.
        partition_settings = replace(
            self.start_settings, options=Options(STARTING), version_given=False, clean=False
        )
        outcome = start(Overlay(listing), partition_settings)
        if isinstance(outcome, Refused):
            # The broker names the file by its full path.
            text = (outcome.error or "").replace(f" {METADATA_PARTITION}/", f" {place}/")
            raise BrokerError(text, outcome.error_class)

    def _lock(self) -> None:
        for path in [*self.data_dirs, self.metadata_dir] if _BROKER in self.roles else [self.metadata_dir]:
            if self.roots[path].locked and path not in self.offline:
                raise BrokerError(
                    f"Failed to acquire lock on file .lock in {path}. A Kafka instance in another process or thread is using "
                    "this directory.",
                    _KAFKA_EXCEPTION,
                )

    def _load_directories(self) -> None:
        """Check the folders and the checkpoints of each log directory that is not offline (`LogManager.loadLogs`)."""
        all_dirs = ", ".join(self.data_dirs)
        if all(path in self.offline for path in self.data_dirs):
            raise _Exit(
                f"Shutdown broker because none of the specified log dirs from {all_dirs} can be created or validated"
            )
        live = [path for path in self.data_dirs if path not in self.offline]
        for path in live:
            if self.roots[path].read_only:
                self._offline(path, f"Disk error while locking directory {path}: Read-only file system")
        for path in live:
            for name in sorted(self.roots[path].folders) if path not in self.offline else ():
                if name not in (REMOTE_INDEX_CACHE, CLEAN_SHUTDOWN_FILE) and not loads_directory(name):
                    raise BrokerError(
                        f"Found directory {path}/{name}, '{name}' is not in the form of topic-partition or "
                        "topic-partition.uniqueId-delete (if marked for deletion).\nKafka's log directories (and children) "
                        "should only contain Kafka topic data.",
                        _KAFKA_EXCEPTION,
                    )
        for path in live:
            if path not in self.offline:
                self._checkpoints(path)
        if all(path in self.offline for path in self.data_dirs):
            raise _Exit(f"Shutdown broker because all log dirs in {all_dirs} have failed")
        self._refuse_duplicates([path for path in live if path not in self.offline])
        if self.metadata_dir in self.offline:
            raise _Exit(f"Shutdown broker because the metadata log dir {self.metadata_dir} has failed")

    def _refuse_duplicates(self, live: Sequence[str]) -> None:
        """Raise `BrokerError` if two folders are the same partition (`LogManager.loadLog`)."""
        seen: dict[TopicPartition, tuple[str, str]] = {}
        for path in live:
            for name in sorted(self.roots[path].folders):
                place = loaded_as(name)
                if place is None or name == METADATA_PARTITION:
                    continue
                before = seen.setdefault(place, (path, name))
                if before != (path, name) and not self._is_stray(*before) and not self._is_stray(path, name):
                    partition, other = f"{place.topic}-{place.partition}", "/".join(before)
                    raise BrokerError(
                        f"Duplicate log directories for {partition} are found in both {path}/{name} and {other}. {_DUPLICATE}",
                        _STATE,
                    )

    def _is_stray(self, path: str, name: str) -> bool:
        """Return whether a KRaft broker sets a partition aside since it has no topic id."""
        listing = self.roots[path].open(name)
        return (
            self.mode().name == KRAFT
            and listing is not None
            and METADATA_FILE not in {entry.name for entry in listing.entries()}
        )

    def _checkpoints(self, path: str) -> None:
        root = self.roots[path]
        for name in (RECOVERY_POINT_FILE, LOG_START_FILE):
            if root.listing is None or name not in _names(root):
                continue
            try:
                OFFSETS.unpack(root.listing.read(name))
            except ParseError as error:
                # A number that cannot be parsed is a warning; the file counts as empty.
                if not error.system:
                    raised = text_error(f"{path}/{name}", error)
                    self._offline(path, raised.message, raised.java)

    def _offline(self, path: str, text: str, java: str = Offline.java) -> None:
        self.offline.setdefault(path, (text, java))

    # ZooKeeper

    def start_in_zookeeper_mode(self) -> None:
        """Start a broker of up to 3.9 in ZooKeeper mode. Raises `BrokerError` if it exits.

        It writes `meta.properties` if that is absent. It gets its cluster id from ZooKeeper, which is not simulated.
        """
        self.warnings.append(
            "Kafka 4.0 and newer have no ZooKeeper mode; --as-system=4.3 predicts what they do with these directories"
        )
        self._load()
        self.absent.clear()
        for path, properties in self.properties.items():
            if properties.version != 0:
                raise BrokerError(
                    f"Found unexpected version in {path}/{META_PROPERTIES_FILE}. ZK-based brokers that are not migrating only "
                    "support version 0 (which is implicit when the `version` field is missing)."
                )
        broker_id = parse_int(self.settings.get("broker.id", "-1").strip())
        self._verify(None if broker_id is None or broker_id < 0 else broker_id, needs_one=False)
        self._lock()
        self._load_directories()


def _names(root: ServerDirectory) -> set[str]:
    return set() if root.listing is None else {entry.name for entry in root.listing.entries()}


def _read(listing: Listing, name: str) -> bytes:
    return listing.read(name, 0, 1 << 20)


def _missing(name: str) -> str:
    return f'Missing required configuration "{name}" which has no default value.'


def _config_error(text: str) -> BrokerError:
    return BrokerError(text, _CONFIG_EXCEPTION)
