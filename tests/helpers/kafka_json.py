"""Rows of decoded views as the JSON that Kafka's own converters print (`*JsonConverter`)."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from logwright.codec.kafka.formats.internal.definitions import TOPICS, Topic
from logwright.codec.kafka.formats.internal.schema import Field, Kind, RecordType, fields
from logwright.codec.kafka.formats.internal.serde import value_coder

DECODERS = {
    "consumer_offsets": "--offsets-decoder",
    "transaction_state": "--transaction-log-decoder",
    "share_group_state": "--share-group-state-decoder",
    "cluster_metadata": "--cluster-metadata-decoder",
    "remote_log_metadata": "--remote-log-metadata-decoder",
}
"""The options of `kafka-dump-log`, by view."""
_RECORD = re.compile(r"\| offset: (\d+) .*?headerKeys: \[[^]]*\] (.*)")
_CONTROL = re.compile(r"([A-Z][A-Za-z]+):? (\{.*\})")
CONTROL_TYPES = {
    "LeaderChange": "LEADER_CHANGE",
    "SnapshotHeader": "SNAPSHOT_HEADER",
    "SnapshotFooter": "SNAPSHOT_FOOTER",
    "KRaftVersion": "KRAFT_VERSION",
    "KRaftVoters": "KRAFT_VOTERS",
}
"""The types of control records, by their names in the output of `kafka-dump-log`."""
_KEYED = re.compile(r"key: (\{.*\}) payload: (.*)")


def topic_of(view: str) -> Topic:
    return next(topic for topic in TOPICS if topic.view == view)


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def as_json(schema: Sequence[Field], version: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a message as Kafka prints them: without those of other versions, and without tags that have their default."""
    out = {}
    for field in schema:
        value = values[field.name]
        if field.within(version) and not (field.tag is not None and value == field.default):
            out[camel(field.name)] = _value(field.kind, version, value)
    return out


_OWNED = "[]{topic:string; partitions:[]int32}"
_SUBSCRIPTION = fields(
    f"topics:[]string; user_data:bytes?; owned_partitions:{_OWNED} v1+; generation_id:int32 v2+; rack_id:string? v3+"
)
_ASSIGNMENT = fields(f"assigned_partitions:{_OWNED}; user_data:bytes?")


def consumer_protocol(row: dict[str, Any]) -> dict[str, Any]:
    """Return a printed value of a classic consumer group as `kafka-dump-log` prints it: with decoded subscriptions and assignments."""
    for member in row["data"].get("members", ()):
        for name, schema in (("subscription", _SUBSCRIPTION), ("assignment", _ASSIGNMENT)):
            data = base64.b64decode(member[name])
            version = int.from_bytes(data[:2], "big")
            reader = value_coder(RecordType(name, 0, name, (), schema, range(4), 4), version).read
            member[name] = as_json(schema, version, reader(data, 2)[0])
    return row


def _value(kind: Kind, version: int, value: Any) -> Any:
    if value is None:
        return None
    if kind.item is not None:
        return [_value(kind.item, version, each) for each in value]
    if kind.fields is not None:
        return as_json(kind.fields, version, value)
    return base64.b64encode(value).decode() if kind.name == "bytes" else value


def kind_of(topic: Topic, row: Mapping[str, Any]) -> RecordType:
    return next(kind for kind in topic.records if kind.name == row["type"])


def printed(topic: Topic, row: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the key and value of a row as Kafka's tools print them: of a framed record, None and its type with the fields,
    and of a control record, its type and the fields."""
    kind = kind_of(topic, row)
    values = row[kind.column] if kind.fields else {}
    if kind.control:
        return kind.name, {"version": row["version"], **as_json(kind.value, row["version"], values)}
    if topic.framed:
        name = kind.name
        return None, {
            "type": name,
            "version": row["version"],
            "data": as_json(kind.value, row["version"], values),
        }
    key = {"type": kind.id, "data": as_json(kind.key, 0, values)}
    if row["version"] is None:
        return key, None
    return key, {"version": row["version"], "data": as_json(kind.value, row["version"], values)}


def dumped(text: str) -> dict[str, dict[int, tuple[Any, Any]]]:
    """Return the decoded keys and values in the output of `kafka-dump-log`, by file name and offset. A tombstone is None."""
    files: dict[str, dict[int, tuple[Any, Any]]] = {}
    for line in text.splitlines():
        if line.startswith("Dumping "):
            records = files.setdefault(line.removeprefix("Dumping ").rpartition("/")[2], {})
        match = _RECORD.fullmatch(line)
        if match is None:
            continue
        keyed = _KEYED.fullmatch(match[2])
        if keyed:
            key = json.loads(keyed[1])
            key["type"] = int(key["type"])
            value = None if keyed[2] == "<DELETE>" else json.loads(keyed[2])
            if value is not None:
                value["version"] = int(value["version"])
            records[int(match[1])] = key, value
        elif control := _CONTROL.fullmatch(match[2]):
            records[int(match[1])] = CONTROL_TYPES[control[1]], json.loads(control[2])
        elif match[2].startswith("payload: {"):
            records[int(match[1])] = None, json.loads(match[2].removeprefix("payload: "))
    return files


def texts(folder: Path) -> Iterator[str]:
    """Iterate over the dumps in the folder of a golden case."""
    for path in sorted((folder / "tools").iterdir()):
        data = path.read_bytes()
        yield (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
