"""Reference decoders of RocketMQ's rows. See `logwright.roundtrip.reference`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from logwright.codec.java import java_string
from logwright.codec.rocketmq.formats.commitlog.layout import COMPRESSED, V2
from logwright.roundtrip.reference import Described


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


def fields(*names: str) -> Described:
    """Return a function that yields these fields of each frame."""

    def rows(frames: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        for frame in frames:
            if frame[names[0]] is not None:
                yield {name: frame[name] for name in names}

    return rows


def extensions(frames: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the units. Skip the end record of a file."""
    for frame in frames:
        if frame["filter_bit_map"] is not None:
            yield {name: frame[name] for name in ("tags_code", "store_timestamp", "filter_bit_map")}


def entries(frames: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the entries. The first frame is the header."""
    for number, frame in enumerate(frames):
        if not number:
            continue
        names = ("key_hash", "physical_offset", "time_diff", "previous")
        yield {"entry": number, **{name: frame[name] for name in names}}


def slots(frames: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for number, frame in enumerate(frames):
        yield {
            "slot": number,
            **{name: frame[name] for name in ("time", "first_position", "last_position", "count", "magic")},
        }


def units(frames: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for number, frame in enumerate(frames):
        yield {
            "queue_offset": number,
            **{name: frame[name] for name in ("physical_offset", "size", "tags_code")},
        }


ROWS: Mapping[str, Described] = {
    "rocketmq.commitlog": messages,
    "rocketmq.consumequeue": units,
    "rocketmq.batchconsumequeue": fields(
        "physical_offset",
        "size",
        "tags_code",
        "store_timestamp",
        "base_offset",
        "batch_size",
        "compacted_offset",
        "reserved",
    ),
    "rocketmq.consumequeue_ext": extensions,
    "rocketmq.indexfile": entries,
    "rocketmq.timerlog": fields(
        "write_time", "previous", "delayed_time", "physical_offset", "message_size", "topic_hash", "magic"
    ),
    "rocketmq.timerwheel": slots,
}
