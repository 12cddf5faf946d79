"""`quorum-state`: the vote of a KRaft node, in the directory of the metadata log.

Source: `FileQuorumStateStore`, `QuorumStateDataJsonConverter`, `MessageUtil` and `ElectionState` of Kafka.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, NoReturn

import pyarrow as pa

from logwright.codec.describe import Bytes, DescriptionError, Field, Struct
from logwright.codec.kafka.formats.checkpoint import FILE
from logwright.codec.kafka.formats.meta_properties import UUID, is_uuid, uuid_text, well_formed
from logwright.codec.kafka.startup.errors import BrokerError
from logwright.codec.single_frame import ParseError, SmallFileCodec, only_row, row_table
from logwright.codec.table import Column

QUORUM_STATE_FILE = "quorum-state"
METADATA_TOPIC = "__cluster_metadata"
METADATA_PARTITION = f"{METADATA_TOPIC}-0"
METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"

MAX_BYTES = 1 << 20
"""The most bytes that are read. The broker writes about 150."""
_BUFFER = 8192
"""Java's reader decodes at least this much before it returns the first line."""
_VERSIONS = (0, 1)
_BLANK = " \t\n\r"
_LINE_END = re.compile(r"\r\n|\r|\n")
_RUNTIME, _NUMBER = "java.lang.RuntimeException", "java.lang.NumberFormatException"
_ILLEGAL_ARGUMENT = "java.lang.IllegalArgumentException"
_UNCHECKED = "java.io.UncheckedIOException"


def parse_quorum_state(data: bytes, path: str) -> dict[str, Any]:
    """Parse the file as a broker does when it starts, and return its JSON object. Raises `BrokerError` with the broker's exception and text."""
    try:
        line = _first_line(data)
    except UnicodeDecodeError as error:
        unreadable(path, f"byte {error.start} is not UTF-8")
    if line is None:
        unreadable(path, "File ended prematurely.")
    node = _json(line, path)
    if not isinstance(node, dict):
        shown = "" if node is _NOTHING else json.dumps(node, separators=(",", ":"))[:80]
        unreadable(path, f"Deserialized node {shown} is not an object node")
    if "data_version" not in node:
        shown = json.dumps(node, separators=(",", ":"))[:200]
        unreadable(path, f"Deserialized node {shown} does not have data_version field")
    version = _short(node["data_version"])
    if version not in _VERSIONS:
        raise BrokerError(
            f"data_version ({version}) is not within the min (0) and max (1) supported version",
            "java.lang.IllegalStateException",
        )
    _check_vote(node, version)
    return node


def _check_vote(node: dict[str, Any], version: int) -> None:
    """Check the fields in the order of the schema."""
    if version == 0 and not isinstance(_field(node, "clusterId", version), str):
        raise BrokerError("QuorumStateData expected a string type, but got OBJECT", _RUNTIME)
    leader = _int(_field(node, "leaderId", version), 32)
    _int(_field(node, "leaderEpoch", version), 32)
    voted = _int(_field(node, "votedId", version), 32)
    if version == 1:
        directory = _field(node, "votedDirectoryId", version)
        if not isinstance(directory, str):
            raise BrokerError("QuorumStateData expected a JSON string type, but got OBJECT", _RUNTIME)
        if not UUID.fullmatch(directory):
            raise BrokerError(
                f"votedDirectoryId {directory[:80]!r} is not the base64 form of 16 bytes", _ILLEGAL_ARGUMENT
            )
    else:
        _int(_field(node, "appliedOffset", version), 64)
        _check_voters(_field(node, "currentVoters", version))
    for role, number in (("leader", leader), ("voted", voted)):
        if number < -1:
            raise BrokerError(f"Illegal {role} Id {number}: must be non-negative", _ILLEGAL_ARGUMENT)


def _check_voters(voters: Any) -> None:
    if voters is None:
        raise BrokerError(
            'Cannot invoke "java.util.List.stream()" because the return value of '
            '"org.apache.kafka.raft.generated.QuorumStateData.currentVoters()" is null',
            "java.lang.NullPointerException",
        )
    if not isinstance(voters, list):
        raise BrokerError("QuorumStateData expected a JSON array, but got OBJECT", _RUNTIME)
    for voter in voters:
        if not isinstance(voter, dict) or "voterId" not in voter:
            raise BrokerError(
                "Voter: unable to locate field 'voterId', which is mandatory in version 0", _RUNTIME
            )
        _int(voter["voterId"], 32, "Voter")


class _Nothing:
    """The value of a blank line, which has no JSON value."""


_NOTHING = _Nothing()


def _first_line(data: bytes) -> str | None:
    """Return the first line; None if the file is empty."""
    end = len(data)
    if end > _BUFFER:
        # The rest is decoded only if the line continues in it. A character may cross the limit of the buffer.
        first = re.search(rb"[\r\n]", data)
        end = max(_BUFFER, first.start() if first else len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
    text = data[:end].decode("utf-8")
    return _LINE_END.split(text, maxsplit=1)[0] if text else None


def _json(line: str, path: str) -> Any:
    """Parse the first JSON value of the line. The rest is ignored."""
    start = len(line) - len(line.lstrip(_BLANK))
    if start == len(line):
        return _NOTHING
    try:
        return json.JSONDecoder(parse_constant=_no_constant).raw_decode(line, start)[0]
    except json.JSONDecodeError as error:
        unreadable(path, f"not valid JSON: {error.msg} at character {error.pos}")
    except (ValueError, RecursionError) as error:
        unreadable(path, f"not valid JSON: {str(error)[:80]}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def unreadable(path: str, cause: str) -> NoReturn:
    """Raise the exception of a broker that cannot read the file."""
    raise BrokerError(f"Error while reading the Quorum status from the file {path}: {cause}", _UNCHECKED)


def _field(node: dict[str, Any], name: str, version: int) -> Any:
    if name not in node:
        raise BrokerError(
            f"QuorumStateData: unable to locate field '{name}', which is mandatory in version {version}",
            _RUNTIME,
        )
    return node[name]


def _int(value: Any, bits: int, about: str = "QuorumStateData") -> int:
    if isinstance(value, str):
        raise BrokerError(f"{about}: expected an integer or string type, but got STRING", _NUMBER)
    if isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1:
        return value
    shown = "" if isinstance(value, dict | list) else json.dumps(value)[:80]
    raise BrokerError(f'{about}: failed to parse number: For input string: "{shown}"', _NUMBER)


def _short(value: Any) -> int:
    """Return a JSON value as Jackson's `shortValue()` does: 0 unless it is a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    number = int(max(-(1 << 31), min((1 << 31) - 1, value))) if isinstance(value, float) else int(value)
    return (number + (1 << 15)) % (1 << 16) - (1 << 15)


_COLUMNS = (
    Column("data_version", pa.int16(), "1 since Kafka 3.9 with kraft.version 1, else 0", nullable=False),
    Column("leader_id", pa.int32(), "node id of the leader; null if it is not known"),
    Column("leader_epoch", pa.int32(), "epoch of the leader or of the vote", nullable=False),
    Column("voted_id", pa.int32(), "node id that got the vote; null for no vote"),
    Column("voted_directory_id", pa.string(), "its directory id; null for none, and in version 0"),
    Column("cluster_id", pa.string(), "id of the cluster, empty as brokers write it; null in version 1"),
    Column("applied_offset", pa.int64(), "not used: 0; null in version 1"),
    Column("current_voters", pa.list_(pa.int32()), "node ids of the voters; null in version 1"),
)
_NO_DIRECTORY = "A" * 22


def _parse(data: bytes) -> pa.Table:
    try:
        node = parse_quorum_state(data, FILE)
    except BrokerError as error:
        raise ParseError(error.message, upstream=f"{error.java}: {error.message}") from None
    version = _short(node["data_version"])
    leader, voted = (None if node[name] == -1 else node[name] for name in ("leaderId", "votedId"))
    vote = (version, leader, node["leaderEpoch"], voted)
    if version:
        directory = uuid_text(base64.urlsafe_b64decode(node["votedDirectoryId"][:22] + "=="))
        return row_table(_COLUMNS, *vote, None if directory == _NO_DIRECTORY else directory, None, None, None)
    voters = [voter["voterId"] for voter in node["currentVoters"]]
    return row_table(_COLUMNS, *vote, None, well_formed(node["clusterId"]), node["appliedOffset"], voters)


def _form(rows: pa.Table) -> bytes:
    row = only_row(rows)
    version, directory = row["data_version"], row["voted_directory_id"]
    if version not in _VERSIONS:
        raise DescriptionError(f"data_version {version}, expected 0 or 1")
    others = ("cluster_id", "applied_offset", "current_voters") if version else ("voted_directory_id",)
    wrong = [name for name in others if row[name] is not None]
    wrong += [name for name in ("leader_id", "voted_id") if (row[name] or 0) < 0]
    if wrong:
        raise DescriptionError(f"{wrong[0]} is {row[wrong[0]]!r}, which version {version} cannot hold")
    if directory is not None and not is_uuid(directory):
        raise DescriptionError(f"{directory!r} is not a UUID in URL-safe base64 (22 characters)")
    vote = {
        "leaderId": -1 if row["leader_id"] is None else row["leader_id"],
        "leaderEpoch": row["leader_epoch"],
        "votedId": -1 if row["voted_id"] is None else row["voted_id"],
    }
    if version:
        node = {**vote, "votedDirectoryId": directory or _NO_DIRECTORY}
    else:
        voters = [{"voterId": voter} for voter in row["current_voters"] or ()]
        if any(voter["voterId"] is None for voter in voters):
            raise DescriptionError("a voter is null")
        node = {
            "clusterId": row["cluster_id"] or "",
            **vote,
            "appliedOffset": row["applied_offset"] or 0,
            "currentVoters": voters,
        }
    return json.dumps({**node, "data_version": version}, separators=(",", ":"), ensure_ascii=False).encode()


CODEC = SmallFileCodec(
    name="kafka.quorum_state",
    title="Kafka vote of a KRaft node",
    pattern=re.compile(QUORUM_STATE_FILE),
    columns=_COLUMNS,
    parse=_parse,
    form=_form,
    system="the broker does not start",
    text=Struct(
        "QuorumState",
        Field("state", Bytes(), "JSON of QuorumStateData: the last vote, in one line"),
        source="FileQuorumStateStore",
    ),
)
