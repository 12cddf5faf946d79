"""Reference decoders of RocketMQ's rows. See `logwright.roundtrip.reference`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from logwright.codec.java import java_string
from logwright.codec.rocketmq.formats.batchconsumequeue import UNIT as BATCH_UNIT
from logwright.codec.rocketmq.formats.commitlog.layout import COMPRESSED, V2
from logwright.roundtrip.reference import Described, fields


def messages(frames: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the messages. Skip blank records."""
    for frame in frames:
        if frame["topic"] is None:
            continue
        properties = list(_properties(frame["properties"]))
        named = dict(properties)
        numbers = ("queue_id", "queue_offset", "physical_offset", "flag", "sys_flag", "reconsume_times")
        yield {
            **{name: frame[name] for name in (*numbers, "prepared_transaction_offset")},
            "topic": java_string(frame["topic"]),
            "version": 2 if frame["magic_code"] == V2 else 1,
            "born_timestamp_ms": frame["born_timestamp"],
            "store_timestamp_ms": frame["store_timestamp"],
            "tags": named.get("TAGS"),
            "keys": named.get("KEYS"),
            "properties": [{"key": name, "value": value} for name, value in properties],
            **({} if frame["sys_flag"] & COMPRESSED else {"body": frame["body"] or None}),
        }


def _properties(stored: bytes) -> Iterator[tuple[str, str]]:
    for part in java_string(stored).split("\x02"):
        name, separator, value = part.partition("\x01")
        if separator and name and value:
            yield name, value


ROWS: Mapping[str, Described] = {
    "rocketmq.commitlog": messages,
    "rocketmq.consumequeue": fields("physical_offset", "size", "tags_code", number="queue_offset"),
    "rocketmq.batchconsumequeue": fields(*(field.name for field in BATCH_UNIT.fields)),
    "rocketmq.consumequeue_ext": fields("filter_bit_map", "tags_code", "store_timestamp"),
    "rocketmq.indexfile": fields("key_hash", "physical_offset", "time_diff", "previous", number="entry"),
    "rocketmq.timerlog": fields(
        "write_time", "previous", "delayed_time", "physical_offset", "message_size", "topic_hash", "magic"
    ),
    "rocketmq.timerwheel": fields("time", "first_position", "last_position", "count", "magic", number="slot"),
}
