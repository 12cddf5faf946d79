"""Decoded keys and values of Kafka through Spark: the views of internal topics, and the formats of payloads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kafka_golden import CASES

import logwright as lw

pytestmark = pytest.mark.spark


def test_rows_of_a_decoded_view_are_read_and_written(spark: Any, tmp_path: Path) -> None:
    source, target = CASES["consumer_offsets"].partition, tmp_path / "__consumer_offsets-0"
    frame = spark.read.format("logwright").option("view", "consumer_offsets").load(str(source))
    commits = frame.where("type = 'OFFSET_COMMIT'").select("offset_commit.group", "offset_commit.offset")
    expected = [
        row["offset_commit"]
        for row in lw.read(source, view="consumer_offsets").to_pylist()
        if row["type"] == "OFFSET_COMMIT"
    ]
    assert [tuple(row) for row in commits.collect()] == [(row["group"], row["offset"]) for row in expected]
    frame.coalesce(1).write.format("logwright").option("codec", "kafka.partition").mode("append").save(
        str(target)
    )
    columns = ("key", "value")
    assert lw.read(target, columns=columns).equals(lw.read(source, columns=columns))


def test_formats_of_values_are_options_of_spark(spark: Any, tmp_path: Path) -> None:
    path, options = str(tmp_path / "orders-0"), {"value.format": "confluent-json", "valueSchemaId": "7"}
    frame = spark.createDataFrame([("k", '{"a": 1}')], ["key", "value"]).coalesce(1)
    frame.write.format("logwright").option("codec", "kafka.partition").options(**options).mode("append").save(
        path
    )
    assert lw.read(path)["value"].to_pylist() == [b'\0\0\0\0\7{"a": 1}']
    read = spark.read.format("logwright").options(**options).load(path)
    assert [row[0] for row in read.selectExpr("cast(value as string)").collect()] == ['{"a": 1}']


def test_values_are_structs_in_spark(spark: Any, tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    path, schema = str(tmp_path / "orders-0"), tmp_path / "order.avsc"
    time = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [("id", "long"), ("time", ["null", time]), ("tags", {"type": "map", "values": "string"})]
    record = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }
    schema.write_text(json.dumps(record))
    options = {"value.format": "avro", "value.schema": str(schema), "value.as": "struct"}
    rows = spark.range(3).selectExpr(
        "named_struct('id', id, 'time', if(id = 1, null, timestamp_millis(id)), 'tags', map('n', cast(id as string))) as value"
    )
    rows.coalesce(1).write.format("logwright").option("codec", "kafka.partition").options(**options).mode(
        "append"
    ).save(path)
    assert lw.read(path)["value"][1].as_py() == b"\x02\x00\x02\x02n\x021\x00"
    read = spark.read.format("logwright").options(**options).load(path)
    assert (
        read.schema["value"].dataType.simpleString()
        == "struct<id:bigint,time:timestamp,tags:map<string,string>>"
    )
    parts = ("value.id", "value.time", "value.tags.n")
    assert read.selectExpr(*parts).collect() == rows.selectExpr(*parts).collect()
