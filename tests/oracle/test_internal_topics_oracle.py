"""Kafka's own formatters and tools read the records that decoded views write, and print the values of their rows."""

from __future__ import annotations

from pathlib import Path
from random import Random

import kafka_json
import pytest
from internal_rows import random_message
from kafka_golden import CASES

import logwright as lw
from logwright.codec.kafka.formats.internal.definitions import CONTROL, TOPICS, Topic
from logwright.codec.kafka.formats.internal.records import encode
from logwright.roundtrip.oracles import kafka

pytestmark = pytest.mark.oracle

FORMATTERS = {
    "OffsetsMessageFormatter": ("consumer_offsets", "consumer_offsets"),
    "GroupMetadataMessageFormatter": ("consumer_offsets", "consumer_offsets"),
    "TransactionLogMessageFormatter": ("transaction_state", "transaction_state"),
    "group.share.ShareGroupStateMessageFormatter": ("share_group_state", "share_group_state"),
}
REMOVED = ("SHARE_GROUP_PARTITION_METADATA",)
"""Types that Kafka 4.3 knows no more."""


@pytest.mark.parametrize("formatter", FORMATTERS)
@pytest.mark.parametrize("suffix", ["", "_28"])
def test_decoded_rows_are_what_the_formatter_prints(formatter: str, suffix: str) -> None:
    name, view = FORMATTERS[formatter]
    if f"{name}{suffix}" not in CASES:
        return
    path = CASES[f"{name}{suffix}"].partition
    topic = kafka_json.topic_of(view)
    records = lw.read(path, columns="key,value").to_pylist()
    answers = kafka.formatted(formatter, [(record["key"], record["value"]) for record in records])
    compared = 0
    for row, answer in zip(lw.read(path, view=view).to_pylist(), answers, strict=True):
        if answer is not None:
            key, value = kafka_json.printed(topic, row)
            assert answer == {"key": key, "value": value}
            compared += 1
    assert compared


# Of __remote_log_metadata the tool prints its own objects, not the fields.
@pytest.mark.parametrize("topic", TOPICS[:4], ids=lambda topic: topic.view)
def test_random_rows_are_dumped_with_their_values(topic: Topic, tmp_path: Path) -> None:
    """Every type and version that we encode is parsed by Kafka's generated classes, with the same values."""
    random = Random(11)
    records = []
    for kind in topic.records:
        if kind.name in REMOVED or kind is CONTROL:
            continue
        for version in (*kind.versions, *(() if topic.framed else (None,))):
            if kind.name == "LEGACY_OFFSET_COMMIT" and version:
                continue  # Kafka 4.3 reads only version 0
            for _ in range(20):
                key, value = encode(topic, random_message(random, kind, version))
                records.append({"key": key, "value": value, "timestamp": 1, "is_control": kind.control})
    path = tmp_path / f"{topic.topic}-0"
    lw.write(records, path, "kafka.partition")
    log = path / f"{0:020}.log"
    text = kafka.dump(log, "--deep-iteration", "--print-data-log", kafka_json.DECODERS[topic.view])
    (dumped,) = kafka_json.dumped(text).values()
    rows = lw.read(path, view=topic.view).to_pylist()
    assert len(rows) == len(records) == len(dumped)
    for row in rows:
        assert kafka_json.printed(topic, row) == dumped[row["offset"]]
