"""Log directories of a formatted broker, and defects that stop its start before it loads a log."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_log import batch, record

CLUSTER_ID = "Kg9s5hQ2T0mYb1cVwXzA_A"
DIRECTORY_IDS = ("CfIPZLe2FUgwQUbOSWF_hQ", "ODDn20Dc_EMKAt_Sl5HOQA")
VOTE = '{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}'
VOTE_1 = (
    '{"leaderId":-1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)
RAFT_LOG = "d0/__cluster_metadata-0"
_SNAPSHOT = f"{RAFT_LOG}/{500:020d}-{9:010d}.checkpoint"
_LEADER = record(0, bytes([0, 0, 0, 2]), bytes.fromhex("000000000001010100"))
"""A record LEADER_CHANGE."""

Change = Callable[[Path], object]


def put(name: str, data: str | bytes) -> Change:
    """Write a file and create its parent folders."""

    def change(home: Path) -> None:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)

    return change


def sub(name: str, pattern: str, text: str) -> Change:
    """Replace text in a file."""

    def change(home: Path) -> None:
        before = (home / name).read_text()
        after = re.sub(pattern, text, before, flags=re.MULTILINE)
        assert after != before
        (home / name).write_text(after)

    return change


def remove(*names: str) -> Change:
    def change(home: Path) -> None:
        for name in names:
            shutil.rmtree(home / name) if (home / name).is_dir() else (home / name).unlink()

    return change


def folder(name: str) -> Change:
    """Create a folder in place of the file of that name."""

    def change(home: Path) -> None:
        (home / name).unlink(missing_ok=True)
        (home / name).mkdir(parents=True)

    return change


def both(*changes: Change) -> Change:
    return lambda home: [change(home) for change in changes]


def nothing(home: Path) -> None:
    """A healthy broker."""


@dataclass(frozen=True)
class Start:
    """A change of healthy directories, and the start of the broker on them.

    `scope` is that of the verdict, None if it starts. `error` is the beginning of the message of its exception.

    """

    name: str
    change: Change
    scope: str | None
    java: str | None = None
    error: str = ""
    settings: Mapping[str, str | None] = field(default_factory=dict)
    dirs: tuple[str, ...] = ("d0", "d1")


_RUNTIME = "java.lang.RuntimeException"
_NUMBER = "java.lang.NumberFormatException"
_ILLEGAL = "java.lang.IllegalArgumentException"
_CONFIG = "org.apache.kafka.common.config.ConfigException"
_KAFKA = "org.apache.kafka.common.KafkaException"
_UNCHECKED = "java.io.UncheckedIOException"
_M0, _M1 = "d0/meta.properties", "d1/meta.properties"
_IO_ERROR = "Encountered I/O error in metadata log directory {home}/d0. Cannot continue."
_V0 = "version=0\nbroker.id=1\n"
_NO_VERSION_RECORD = (
    "No FeatureLevelRecord for metadata.version was found in the bootstrap metadata from the binary bootstrap metadata file: "
    "{home}/d0/bootstrap.checkpoint"
)


def _vote(name: str, data: str | bytes, java: str | None = None, error: str = "") -> Start:
    return Start(
        f"vote_{name}", put(f"{RAFT_LOG}/quorum-state", data), "process" if java else None, java, error
    )


def _vote_unreadable(name: str, data: str | bytes) -> Start:
    return _vote(
        name,
        data,
        _UNCHECKED,
        f"Error while reading the Quorum status from the file {{home}}/{RAFT_LOG}/quorum-state",
    )


STARTS = [
    Start("healthy", nothing, None),
    # meta.properties
    Start("identity_missing_in_first", remove(_M0), "process", _RUNTIME, "No `meta.properties` found in {home}/d0 (have you run"),
    Start("identity_missing_in_second", remove(_M1), "process", _RUNTIME, "No `meta.properties` found in {home}/d1 (have you run"),
    Start("identity_missing_in_both", remove(_M0, _M1), "process", _RUNTIME, "No readable meta.properties files found."),
    Start("identity_empty", put(_M0, ""), "process", _RUNTIME, "Error: node ID not found in {home}/d0"),
    Start("identity_empty_in_second", put(_M1, ""), "process", _RUNTIME, "Error: node ID not found in {home}/d1"),
    Start("identity_garbage", put(_M0, bytes(range(256))), "process", _RUNTIME, "Error: node ID not found in {home}/d0"),
    Start("identity_bad_escape", put(_M0, "a=\\uzz\n"), "process", _RUNTIME, _IO_ERROR),
    Start("identity_bad_escape_in_second", put(_M1, "a=\\uzz\n"), "log_dir"),
    Start("identity_is_a_folder", folder(_M0), "process", _RUNTIME, _IO_ERROR),
    Start("identity_is_a_folder_in_second", folder(_M1), "log_dir"),
    Start("identity_version_2", sub(_M0, "version=1", "version=2"), "process", _RUNTIME, _IO_ERROR),
    Start("identity_version_2_in_second", sub(_M1, "version=1", "version=2"), "log_dir"),
    Start("identity_version_is_no_number", sub(_M0, "version=1", "version=x"), "process", _RUNTIME, _IO_ERROR),
    Start("identity_without_version", sub(_M0, "version=1\n", ""), "process", _RUNTIME, "Error: node ID not found in {home}/d0"),
    Start("identity_of_zookeeper_mode", sub(_M0, "version=1\n", _V0), None),
    Start("identity_of_zookeeper_mode_of_another_broker", sub(_M0, "version=1\n", "version=0\nbroker.id=2\n"), "process", _RUNTIME,
          "Stored node id 2 doesn't match previous node id 1 in {home}/d0/meta.properties."),
    Start("identity_of_zookeeper_mode_without_cluster", both(sub(_M0, "version=1\n", _V0), sub(_M0, "cluster.id=.*\n", "")),
          "process", _RUNTIME, "Error: cluster ID not found in {home}/d0"),
    Start("identity_without_node", sub(_M0, "node.id=1\n", ""), "process", _RUNTIME, _IO_ERROR),
    Start("identity_without_cluster_in_second", sub(_M1, "cluster.id=.*\n", ""), "log_dir"),
    Start("identity_of_another_node", sub(_M0, "node.id=1", "node.id=2"), "process", _RUNTIME,
          "Stored node id 2 doesn't match previous node id 1 in {home}/d0/meta.properties."),
    Start("identity_with_blank_behind_node", sub(_M1, "node.id=1", "node.id=1 "), "log_dir"),
    Start("identity_of_another_cluster", sub(_M1, "cluster.id=.*\n", "cluster.id=abc\n"), "process", _RUNTIME,
          f"Invalid cluster.id in: {{home}}/d1/meta.properties. Expected {CLUSTER_ID}, but read abc"),
    Start("identity_without_directory", sub(_M0, "directory.id=.*\n", ""), None),
    Start("identity_with_bad_directory", sub(_M1, "directory.id=.*\n", "directory.id=hello\n"), "log_dir"),
    Start("identity_with_reserved_directory", sub(_M1, "directory.id=.*\n", "directory.id=AAAAAAAAAAAAAAAAAAAAAg\n"), "process",
          _RUNTIME, "Invalid reserved directory ID AAAAAAAAAAAAAAAAAAAAAg found in {home}/d1"),
    Start("identity_with_the_directory_of_the_first", sub(_M1, "directory.id=.*\n", f"directory.id={DIRECTORY_IDS[0]}\n"), "process",
          _RUNTIME, f"Duplicate directory ID Optional[{DIRECTORY_IDS[0]}] found. It was the ID of {{home}}/d0, but also of {{home}}/d1"),
    # Configuration
    Start("another_node_in_the_configuration", nothing, "process", _RUNTIME,
          "Stored node id 1 doesn't match previous node id 2 in {home}/d0/meta.properties.",
          {"node.id": "2", "controller.quorum.voters": None, "controller.quorum.bootstrap.servers": "127.0.0.1:9"}),
    Start("a_node_that_is_no_voter", nothing, "process", _ILLEGAL,
          "requirement failed: If process.roles contains the 'controller' role, the node id 2 must be included", {"node.id": "2"}),
    Start("no_node_in_the_configuration", nothing, "process", _CONFIG,
          'Missing required configuration "node.id" which has no default value.', {"node.id": None}),
    Start("no_roles_in_the_configuration", nothing, "process", _CONFIG,
          'Missing required configuration "process.roles" which has no default value.', {"process.roles": None}),
    Start("a_configuration_of_zookeeper_mode", nothing, "process", _CONFIG,
          'Missing required configuration "process.roles" which has no default value.',
          {"process.roles": None, "node.id": None, "broker.id": "1", "zookeeper.connect": "127.0.0.1:2181"}),
    Start("broker_id_is_not_node_id", nothing, "process", _CONFIG,
          "You must set `node.id` to the same value as `broker.id`.", {"broker.id": "2"}),
    # Log directories
    Start("a_log_directory_is_missing", nothing, "process", _RUNTIME, "No `meta.properties` found in {home}/d2",
          dirs=("d0", "d1", "d2")),
    Start("a_log_directory_is_a_file", put("d2", "x"), "log_dir", dirs=("d0", "d1", "d2")),
    Start("a_log_directory_is_not_formatted", folder("d2"), "process", _RUNTIME, "No `meta.properties` found in {home}/d2",
          dirs=("d0", "d1", "d2")),
    Start("the_metadata_log_in_another_directory", folder("d1/__cluster_metadata-0"), "process", _KAFKA,
          "Found unexpected metadata location in data directory `{home}/d1/__cluster_metadata-0`"),
    Start("a_folder_that_is_no_partition", folder("d1/lost+found"), "process", _KAFKA,
          "Found directory {home}/d1/lost+found, 'lost+found' is not in the form of topic-partition"),
    Start("the_index_cache_of_tiered_storage", folder("d1/remote-log-index-cache"), None),
    Start("recovery_points_garbage_in_second", put("d1/recovery-point-offset-checkpoint", "garbage"), "log_dir"),
    Start("recovery_points_garbage_in_first", put("d0/recovery-point-offset-checkpoint", "garbage"), "process", None,
          "Shutdown broker because "),
    # Metadata log and the files beside it
    Start("metadata_log_missing", remove(RAFT_LOG), None),
    Start("metadata_log_is_a_file", both(remove(RAFT_LOG), put(RAFT_LOG, "x")), "process",
          "java.nio.file.FileAlreadyExistsException", f"{{home}}/{RAFT_LOG}"),
    Start("metadata_log_with_topic_of_another", put(f"{RAFT_LOG}/partition.metadata", f"version: 0\ntopic_id: {DIRECTORY_IDS[0]}"),
          "process", "org.apache.kafka.common.errors.InconsistentTopicIdException", "Tried to assign topic ID Optional[AAAA"),
    Start("metadata_log_without_topic", remove(f"{RAFT_LOG}/partition.metadata"), None),
    Start("metadata_log_with_bad_epochs", put(f"{RAFT_LOG}/leader-epoch-checkpoint", "xx"), "process",
          "org.apache.kafka.common.errors.KafkaStorageException", "Error while reading checkpoint file"),
    Start("snapshot_of_metadata_without_batch", put(_SNAPSHOT, "xx"), "process",
          "java.lang.NullPointerException", 'Cannot invoke "java.lang.Integer.intValue()"'),
    Start("snapshot_of_metadata_of_zeros", put(_SNAPSHOT, bytes(100)), "process",
          "org.apache.kafka.common.errors.CorruptRecordException", "Record size 0 is less than the minimum record overhead (14)"),
    Start("snapshot_of_metadata_of_records", put(_SNAPSHOT, batch(0, [record(0, None, bytes([1, 20, 0, 0]))])), "process",
          "java.lang.IllegalStateException", "First batch is not a control batch with at least one record"),
    Start("snapshot_of_metadata_without_header", put(_SNAPSHOT, batch(0, [_LEADER], attributes=0x20)), "process",
          "java.lang.IllegalStateException", "First control record is not a snapshot header (LEADER_CHANGE)"),
    Start("snapshot_of_metadata_unfinished", put(f"{RAFT_LOG}/{5:020d}-{1:010d}.checkpoint.part", "xx"), None),
    Start("snapshot_of_metadata_with_short_name", put(f"{RAFT_LOG}/5-1.checkpoint", "xx"), "process",
          "java.lang.StringIndexOutOfBoundsException", "begin 0, end 20, length 14"),
    Start("bootstrap_empty", put("d0/bootstrap.checkpoint", ""), "process", _RUNTIME, _NO_VERSION_RECORD),
    Start("bootstrap_garbage", put("d0/bootstrap.checkpoint", bytes(range(256))), "process", _RUNTIME, _NO_VERSION_RECORD),
    Start("bootstrap_zeros", put("d0/bootstrap.checkpoint", bytes(400)), "process",
          "org.apache.kafka.common.errors.CorruptRecordException", "Found record size 0 smaller than minimum record overhead (14)"),
    Start("bootstrap_missing", remove("d0/bootstrap.checkpoint"), None),
    # quorum-state
    Start("vote_missing", remove(f"{RAFT_LOG}/quorum-state"), None),
    Start("vote_is_a_folder", folder(f"{RAFT_LOG}/quorum-state"), "process", _UNCHECKED,
          f"Error while reading the Quorum status from the file {{home}}/{RAFT_LOG}/quorum-state"),
    _vote_unreadable("garbage", bytes(range(128, 256))),
    _vote_unreadable("text", "garbage"),
    _vote_unreadable("empty", ""),
    _vote_unreadable("line_end_only", "\n"),
    _vote_unreadable("array", "[]"),
    _vote_unreadable("cut", VOTE[:50]),
    _vote_unreadable("without_data_version", VOTE.replace(',"data_version":0', "")),
    _vote_unreadable("not_a_number", VOTE.replace('"leaderId":1', '"leaderId":NaN')),
    _vote_unreadable("bad_text_behind_it", VOTE.encode() + b"\n\xff"),
    _vote("of_version_2", VOTE.replace('"data_version":0', '"data_version":2'), "java.lang.IllegalStateException",
          "data_version (2) is not within the min (0) and max (1) supported version"),
    _vote("version_is_text", VOTE.replace('"data_version":0', '"data_version":"1"')),
    _vote("without_leader", VOTE.replace('"leaderId":1,', ""), _RUNTIME,
          "QuorumStateData: unable to locate field 'leaderId', which is mandatory in version 0"),
    _vote("leader_is_text", VOTE.replace('"leaderId":1', '"leaderId":"x"'), _NUMBER,
          "QuorumStateData: expected an integer or string type, but got STRING"),
    _vote("leader_of_64_bits", VOTE.replace('"leaderId":1', '"leaderId":99999999999'), _NUMBER,
          'QuorumStateData: failed to parse number: For input string: "99999999999"'),
    _vote("leader_is_negative", VOTE.replace('"leaderId":1', '"leaderId":-5'), _ILLEGAL, "Illegal leader Id -5: must be non-negative"),
    _vote("voters_are_text", VOTE.replace('[{"voterId":1}]', '"a"'), _RUNTIME, "QuorumStateData expected a JSON array, but got OBJECT"),
    _vote("voters_are_null", VOTE.replace('[{"voterId":1}]', "null"), "java.lang.NullPointerException", 'Cannot invoke "java.util.List'),
    _vote("of_other_voters", VOTE.replace('"voterId":1', '"voterId":2')),
    _vote("with_text_behind_it", VOTE + "xyz\ngarbage"),
    _vote("of_version_1", VOTE_1),
    _vote("of_version_1_without_directory", VOTE_1.replace('"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",', ""), _RUNTIME,
          "QuorumStateData: unable to locate field 'votedDirectoryId', which is mandatory in version 1"),
]  # fmt: skip


def settings_of(home: Path, start: Start) -> dict[str, str]:
    """Return the settings that decide whether the broker starts."""
    settings: dict[str, str | None] = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "log.dirs": ",".join(str(home / name) for name in start.dirs),
        **start.settings,
    }
    return {name: value for name, value in settings.items() if value is not None}
