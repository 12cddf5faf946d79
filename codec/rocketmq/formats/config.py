"""The codecs of files in `config/`: topics, consumer offsets, and offsets of delay levels.

They are JSON as fastjson writes it: indented with tabs, no spaces, integer keys without quotes. Source: `ConfigManager`,
`TopicConfigSerializeWrapper`, `ConsumerOffsetManager` and `DelayOffsetSerializeWrapper` of RocketMQ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from logwright.codec.base import Codec
from logwright.codec.describe import Bytes, DescriptionError, Field, Struct
from logwright.codec.single_frame import ParseError, SmallFileCodec, struct_name
from logwright.codec.table import Column

_BARE_KEY = re.compile(r'("(?:[^"\\]|\\.)*")|([{,]\s*)(-?[0-9]+)(?=\s*:)')
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_VERSION = {"counter": 1, "stateVersion": 0, "timestamp": 0}
Json = Mapping[str, Any]


def load(data: bytes) -> Json:
    """Parse a file. Raises `ParseError`."""
    try:
        text = data.decode()
        content = json.loads(_BARE_KEY.sub(lambda match: match[1] or f'{match[2]}"{match[3]}"', text))
    except (ValueError, RecursionError) as error:
        raise ParseError(f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ParseError("expected a JSON object")
    return content


def dump(value: Any, depth: int = 0) -> str:
    """Format a value as fastjson does."""
    if isinstance(value, Mapping) and value:
        inner = (
            f"{key if isinstance(key, int) else dump(key)}:{dump(item, depth + 1)}"
            for key, item in value.items()
        )
        return _lines("{", inner, "}", depth)
    if isinstance(value, list) and value:
        return _lines("[", (dump(item, depth + 1) for item in value), "]", depth)
    return json.dumps(value, ensure_ascii=False)


def _lines(opening: str, inner: Iterable[str], closing: str, depth: int) -> str:
    tabs = "\t" * (depth + 1)
    return f"{opening}\n{tabs}" + f",\n{tabs}".join(inner) + "\n" + tabs[1:] + closing


def object_of(content: Json, name: str) -> Json:
    """Return a member that is an object, or an empty one if it is missing. Raises `ParseError`."""
    value = content.get(name) or {}
    if not isinstance(value, dict):
        raise ParseError(f"{name} is not a JSON object")
    return value


def _integer(value: Any, bits: int, field: str) -> int:
    number = int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value
    if (
        not isinstance(number, int)
        or isinstance(number, bool)
        or not -(1 << bits - 1) <= number < 1 << bits - 1
    ):
        raise ParseError(f"{field}: expected a {bits}-bit integer, found {value!r}")
    return number


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise ParseError(f"{field}: expected a string, found {value!r}")
    return value


def _codec(
    name: str, title: str, file: str, columns: tuple[Column, ...], rows: Callable[[Json], Iterable[Json]],
    content: Callable[[list[Json]], Json], source: str,
) -> SmallFileCodec:  # fmt: skip
    schema = pa.schema([column.field() for column in columns])

    def parse(data: bytes) -> pa.Table:
        try:
            return pa.Table.from_pylist(list(rows(load(data))), schema=schema)
        except (pa.ArrowException, UnicodeEncodeError) as error:
            raise ParseError(str(error)) from None

    def form(table: pa.Table) -> bytes:
        records = table.to_pylist()
        data = dump({"dataVersion": _VERSION, **content(records)}).encode()
        if parse(data).to_pylist() != records:
            raise DescriptionError(
                "the rows cannot be written: a key is in several rows, or the rows of a key are not adjacent"
            )
        return data

    return SmallFileCodec(
        name=name, title=title, pattern=re.compile(re.escape(file) + r"(?:\.bak)?"), columns=columns, parse=parse,
        form=form, largest=Codec.largest, system="the broker reads the .bak file instead, or starts without it",
        text=Struct(struct_name(name), Field("content", Bytes(), "JSON"), doc="JSON as fastjson writes it.", source=source),
    )  # fmt: skip


_ATTRIBUTES = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string(), nullable=False)])
)
_TOPIC = (
    ("read_queue_nums", "readQueueNums", 16),
    ("write_queue_nums", "writeQueueNums", 16),
    ("perm", "perm", 6),
    ("topic_sys_flag", "topicSysFlag", 0),
)
"""Integer columns: name, upstream's name, default."""


def _topics(content: Json) -> Iterable[Json]:
    for topic, values in object_of(content, "topicConfigTable").items():
        if not isinstance(values, dict):
            raise ParseError(f"topic {topic!r} is not a JSON object")
        attributes = object_of(values, "attributes").items()
        yield {
            "topic": topic,
            **{column: _integer(values.get(name, default), 32, name) for column, name, default in _TOPIC},
            "topic_filter_type": _text(values.get("topicFilterType", "SINGLE_TAG"), "topicFilterType"),
            "order": values.get("order", False) is True,
            "attributes": [{"key": key, "value": _text(value, key)} for key, value in attributes],
        }


def _topics_content(rows: list[Json]) -> Json:
    return {
        "topicConfigTable": {
            row["topic"]: {
                "attributes": {attribute["key"]: attribute["value"] for attribute in row["attributes"]},
                "order": row["order"],
                "perm": row["perm"],
                "readQueueNums": row["read_queue_nums"],
                "topicFilterType": row["topic_filter_type"],
                "topicName": row["topic"],
                "topicSysFlag": row["topic_sys_flag"],
                "writeQueueNums": row["write_queue_nums"],
            }
            for row in rows
        }
    }


def _consumer_offsets(content: Json) -> Iterable[Json]:
    for key, queues in object_of(content, "offsetTable").items():
        topic, at, group = key.partition("@")
        if not at or not isinstance(queues, dict):
            raise ParseError(f"offsetTable: expected topic@group with an object of queues, found {key!r}")
        for queue, offset in queues.items():
            yield {
                "topic": topic,
                "group": group,
                "queue_id": _integer(queue, 32, key),
                "offset": _integer(offset, 64, key),
            }


def _consumer_offsets_content(rows: list[Json]) -> Json:
    table: dict[str, dict[int, int]] = {}
    for row in rows:
        if "@" in row["topic"]:
            raise DescriptionError(f"topic {row['topic']!r} contains an @")
        table.setdefault(f"{row['topic']}@{row['group']}", {})[row["queue_id"]] = row["offset"]
    return {"offsetTable": table}


def _delay_offsets(content: Json) -> Iterable[Json]:
    for level, offset in object_of(content, "offsetTable").items():
        yield {
            "delay_level": _integer(level, 32, "offsetTable"),
            "offset": _integer(offset, 64, f"level {level}"),
        }


TOPICS = _codec(
    "rocketmq.topics",
    "RocketMQ topics.json: the topics of a broker",
    "topics.json",
    (
        Column("topic", pa.string(), "the topic", nullable=False),
        Column("read_queue_nums", pa.int32(), "queues that consumers read", nullable=False),
        Column("write_queue_nums", pa.int32(), "queues that producers write", nullable=False),
        Column("perm", pa.int32(), "bits: 4 read, 2 write, 1 inherit", nullable=False),
        Column("topic_filter_type", pa.string(), "SINGLE_TAG or MULTI_TAG", nullable=False),
        Column("topic_sys_flag", pa.int32(), "system flags", nullable=False),
        Column("order", pa.bool_(), "whether consumers read in order", nullable=False),
        Column("attributes", _ATTRIBUTES, "attributes, for example queue.type=BatchCQ", nullable=False),
    ),
    _topics,
    _topics_content,
    "TopicConfigSerializeWrapper",
)
CONSUMER_OFFSETS = _codec(
    "rocketmq.consumer_offsets",
    "RocketMQ consumerOffset.json: the progress of each consumer group",
    "consumerOffset.json",
    (
        Column("topic", pa.string(), "the topic", nullable=False),
        Column("group", pa.string(), "the consumer group", nullable=False),
        Column("queue_id", pa.int32(), "queue of the topic", nullable=False),
        Column("offset", pa.int64(), "queue offset of the next message to consume", nullable=False),
    ),
    _consumer_offsets,
    _consumer_offsets_content,
    "ConsumerOffsetManager",
)
DELAY_OFFSETS = _codec(
    "rocketmq.delay_offsets",
    "RocketMQ delayOffset.json: the progress of each delay level",
    "delayOffset.json",
    (
        Column(
            "delay_level",
            pa.int32(),
            "the level; its queue of SCHEDULE_TOPIC_XXXX is level - 1",
            nullable=False,
        ),
        Column("offset", pa.int64(), "queue offset of the next message to deliver", nullable=False),
    ),
    _delay_offsets,
    lambda rows: {"offsetTable": {row["delay_level"]: row["offset"] for row in rows}},
    "DelayOffsetSerializeWrapper",
)
CODECS = (TOPICS, CONSUMER_OFFSETS, DELAY_OFFSETS)
