"""The first query of a Spark session waits for the imports of each process that Spark starts, so each imports only what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import logwright as lw
from logwright.codec import registry

pytest.importorskip("pyspark")

HEAVY = ("pyarrow", "numpy", "pandas", "numba", "logwright.writers")
KAFKA = "logwright.codec.kafka"
RARE = (
    f"{KAFKA}.startup.start", f"{KAFKA}.repair", f"{KAFKA}.store.builder", f"{KAFKA}.store.assemble", f"{KAFKA}.formats.log.write",
    f"{KAFKA}.formats.log.reencode", f"{KAFKA}.formats.internal.records", "logwright.codec.engine.startup", "logwright.codec.address",
    "logwright.readers.report_text", "logwright.readers.verdict_text", "logwright.readers.journal", "logwright.readers.combined",
    "logwright.readers.served",
)  # fmt: skip
"""Modules that no process of a query on a sound partition needs: starts, repair, writing, internal topics, reports."""
DECODING = (
    f"{KAFKA}.formats.log.scan", f"{KAFKA}.formats.log.rows", "logwright.codec.frames.scanner", "logwright.codec.kernels.compress",
)  # fmt: skip
"""Modules that only a task needs."""
STEP = """
import json, sys
{code}
systems = sorted({{name.split(".")[2] for name in sys.modules if name.count(".") > 1 and name.startswith("logwright.codec.")}}
                 & set({systems!r}))
print(json.dumps([systems, [name for name in {watched!r} if name in sys.modules]]))
"""
SOURCE = "from pyspark_logwright import DefaultSource\nsource = DefaultSource({{'path': {path!r}}})\n"
SCHEMA = "from pyspark.sql.types import LongType, StructField, StructType, TimestampType\n" \
    "schema = StructType([StructField('offset', LongType()), StructField('timestamp', TimestampType())])\n"  # fmt: skip
SCHEMA_STEP = f"{SOURCE}source.schema()"
PLAN_STEP = f"{SOURCE}{SCHEMA}reader = source.reader(schema)\npartitions = reader.partitions()"
TASK_STEP = f"{PLAN_STEP}\nassert sum(batch.num_rows for batch in reader.read(partitions[0])) == 10"


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("imports") / "orders-0"
    lw.generate("kafka.partition", path, rows=10, seed=1)
    return path


@pytest.mark.parametrize(
    ("code", "systems", "imported"),
    [
        ("import pyspark_logwright", [], []),
        (SCHEMA_STEP, ["kafka"], ["pyarrow", "numpy"]),
        (PLAN_STEP, ["kafka"], ["pyarrow", "numpy"]),
        (TASK_STEP, ["kafka"], ["pyarrow", "numpy", *DECODING]),
    ],
    ids=["lookup", "schema", "plan", "task"],
)
def test_each_process_of_a_query_imports_one_system_and_only_what_it_needs(
    partition: Path, code: str, systems: list[str], imported: list[str]
) -> None:
    step = STEP.format(
        code=code.format(path=str(partition)), systems=registry.SYSTEMS, watched=(*HEAVY, *RARE, *DECODING)
    )
    run = subprocess.run([sys.executable, "-c", step], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == [systems, imported]
