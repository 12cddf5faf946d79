"""A Spark source that returns the same rows from memory, to measure the cost of Spark itself.

`python benchmarks/null_source.py DIRECTORY` writes a partition there, reads it with both on one core, and prints rows per second
as JSON. Each process that Spark starts imports this module, so its functions import what they need.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

sys.path.insert(0, str(Path(__file__).parent))

ROWS = 2_000_000
BATCH = 100_000
ROUNDS = 5


class Share(InputPartition):
    def __init__(self, rows: int) -> None:
        super().__init__(None)
        self.rows = rows


class NullReader(DataSourceReader):
    def __init__(self, schema: StructType, rows: int, shares: int) -> None:
        self.schema, self.rows, self.shares = schema, rows, shares

    def partitions(self) -> list[InputPartition]:
        return [Share(self.rows // self.shares) for _ in range(self.shares)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        assert isinstance(partition, Share)
        size = min(BATCH, partition.rows)
        batch = null_batch(to_arrow_schema(self.schema, timezone="UTC"), size)
        for _ in range(partition.rows // size):
            yield batch


class NullSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "null_rows"

    def reader(self, schema: StructType) -> NullReader:
        return NullReader(schema, int(self.options["rows"]), int(self.options["shares"]))


def null_batch(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Rows of the same sizes as ours, made once."""
    import pyarrow as pa

    values: dict[str, Any] = {
        "key": pa.nulls(rows, pa.binary()), "value": pa.array([bytes(100)] * rows), "topic": pa.array(["orders"] * rows),
        "partition": pa.array([0] * rows, pa.int32()), "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.array(range(rows), pa.timestamp("us", "UTC")), "timestampType": pa.array([0] * rows, pa.int32()),
    }  # fmt: skip
    arrays = [
        values[field.name] if field.name in values else pa.array([[]] * rows, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def main() -> None:
    from bench_kafka import rows
    from pyspark.sql import SparkSession

    import logwright as lw

    target = Path(sys.argv[1], "orders-0")
    target.mkdir(parents=True)
    table = rows()
    parts = [batch for _ in range(ROWS // table.num_rows) for batch in table.to_batches(50_000)]
    lw.write(parts, target / f"{0:020d}.log", "kafka.log")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
        .config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    )  # fmt: skip
    try:
        spark.dataSource.register(NullSource)
        ours = (
            spark.read.format("logwright")
            .option("maxPartitionBytes", "64m")
            .load(str(target / f"{0:020d}.log"))
        )
        shares = max(1, -(-(target / f"{0:020d}.log").stat().st_size // (64 << 20)))
        null = spark.read.format("null_rows").schema(ours.schema).options(rows=ROWS, shares=shares).load()
        seconds: dict[str, list[float]] = {"logwright": [], "null": []}
        for i in range(ROUNDS + 1):
            for name, frame in (("logwright", ours), ("null", null)):
                started = time.perf_counter()
                frame.write.format("noop").mode("overwrite").save()
                if i:
                    seconds[name].append(time.perf_counter() - started)
        print(json.dumps({name: ROWS / statistics.median(times) for name, times in seconds.items()}))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
