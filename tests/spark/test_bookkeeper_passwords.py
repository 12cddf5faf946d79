"""Passwords of ledgers through Spark: options name them, and no plan shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import logwright as lw

pytestmark = pytest.mark.spark
functions = pytest.importorskip("pyspark.sql.functions")


def test_hmacs_are_written_and_verified_with_a_password_from_a_file(spark: Any, tmp_path: Path) -> None:
    secret, bookie = tmp_path / "secret", tmp_path / "bookie"
    secret.write_text("hunter2\n")
    reference = f"file:{secret}"
    rows = spark.range(20).select(
        functions.lit(7).cast("long").alias("ledger_id"), functions.col("id").alias("entry_id"),
        functions.lit(b"payload").alias("payload"),
    )  # fmt: skip
    save = rows.coalesce(1).write.format("logwright").option("codec", "bookkeeper.bookie").mode("append")
    save.options(digestType="HMAC", passwd=reference).save(str(bookie))
    table = lw.read(str(bookie), passwd=b"hunter2", columns=["entry_id", "digest_type"])
    assert table.to_pylist() == [{"entry_id": i, "digest_type": "HMAC"} for i in range(20)]
    (log,) = bookie.rglob("*.log")
    data = bytearray(log.read_bytes())
    data[data.index(b"payload")] ^= 1
    log.write_bytes(data)
    read = spark.read.format("logwright").option("mode", "DROPMALFORMED")
    assert read.load(str(bookie)).count() == 20
    verified = read.option("passwd", reference).load(str(bookie))
    assert sorted(row.entry_id for row in verified.collect()) == list(range(1, 20))
    assert "hunter2" not in verified._jdf.queryExecution().toString()
    with pytest.raises(Exception, match="the value is not valid") as error:
        read.option("passwd", "hunter2").load(str(bookie)).count()
    assert "hunter2" not in str(error.value)
