"""Every golden file decodes to the records of a Kafka consumer, encodes to the same bytes, and yields the derived files that a broker
wrote. Damage is in `test_golden_damage`."""

from __future__ import annotations

import functools
import hashlib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import kafka_golden
import pyarrow as pa
import pytest
from kafka_golden import CASES, COLUMNS, as_recorded, classes_of, of_class

import logwright as lw
from logwright.codec import registry
from logwright.corpora.cases import Case
from logwright.roundtrip.laws import (
    any_split,
    decode_encode,
    encode_without_payloads,
    kernel_equals_description,
)

SERVED = of_class("healthy", "legal")
BY_NAME = {"ids": lambda case: case.name if isinstance(case, Case) else None}


def test_every_case_is_in_one_class() -> None:
    assert CASES
    assert {name: classes_of(name) for name in CASES if len(classes_of(name)) != 1} == {}


def test_classes_name_existing_cases_only() -> None:
    every = [
        (pattern, name)
        for patterns in kafka_golden.CLASSES.values()
        for pattern in patterns
        for name in CASES
    ]
    used = {pattern for pattern, name in every if fnmatchcase(name, pattern)}
    assert {pattern for patterns in kafka_golden.CLASSES.values() for pattern in patterns} == used


def test_legal_cases_are_those_that_are_served() -> None:
    """Crafted cases are legal if a broker starts on them, truncates nothing, and a consumer reads to the end."""
    for case in CASES.values():
        if case.kind != "crafted":
            continue
        run = case.runs["no_marker"]
        got = run.get("consumer", {}).get("read_uncommitted", {})
        served = run["started"] and not got.get("error") and got.get("position") == got.get("end_offset")
        served = served and not any("Found invalid messages" in line for line in run["log"])
        assert classes_of(case.name) == (["legal"] if served else ["refused"]), case.name


# Rows


def first_run(case: Case) -> dict[str, Any]:
    return dict(next(iter(case.runs.values()))["consumer"])


PASSED_OVER = ("craft_delta_beyond", "craft_delta_order")
"""A consumer silently skips records whose offsets do not exceed those before; we warn."""


@pytest.mark.alike
@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize("committed", [False, True], ids=["uncommitted", "committed"])
@pytest.mark.parametrize("case", SERVED, **BY_NAME)
def test_rows_equal_those_of_a_consumer(case: Case, committed: bool) -> None:
    view = "read_committed" if committed else "read_uncommitted"
    start = first_run(case)["read_uncommitted"]["log_start_offset"]
    rows = lw.read(case.partition, view=view, columns=COLUMNS, log_start_offset=start)
    recorded = case.records(committed=committed)
    assert recorded is not None
    rows_read = as_recorded(rows)
    for i, (recorded_row, other) in enumerate(zip(recorded, rows_read, strict=False)):
        assert other == recorded_row, f"row {i}"
    assert len(rows_read) == len(recorded)


@pytest.mark.parametrize("name", PASSED_OVER)
def test_skipped_records_are_reported(name: str) -> None:
    with pytest.warns(lw.DamageWarning, match="skipped: 1 record, with offsets"):
        lw.read(CASES[name].partition)


@pytest.mark.parametrize("case", of_class("healthy"), **BY_NAME)
def test_healthy_golden_partitions_verify_without_faults(case: Case) -> None:
    report = lw.verify(case.partition)
    assert report.ok, report.text()


def test_topic_and_partition_come_from_the_directory() -> None:
    rows = lw.read(CASES["v2.dotted_name-with-dashes-7"].partition)
    assert rows["topic"].unique().to_pylist() == ["v2.dotted_name-with-dashes-7"]
    assert rows["partition"].unique().to_pylist() == [0]


# Bytes


@functools.cache
def known_files() -> dict[str, list[tuple[str, Path]]]:
    """Return every file of a known kind of all cases with the name of its case, by kind, equal files once."""
    files: dict[str, list[tuple[str, Path]]] = {}
    seen = set()
    for case in of_class("healthy", "legal", "refused", "damaged", "directories"):
        for file in case.files():
            head = file.read_bytes()
            key = file.name, hashlib.sha256(head).digest()
            if key not in seen and registry.detect(file.name, head[:4096]) is not None:
                seen.add(key)
                files.setdefault(file.suffix or file.name, []).append((case.name, file))
    return files


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        pytest.param(kind, part, marks=pytest.mark.extended if part else ())
        for kind, files in sorted(known_files().items())
        for part in range(min(3, len(files)))
    ],
)
def test_decode_and_encode_gives_the_same_bytes(kind: str, part: int) -> None:
    """A third of the files of each kind is in the sample."""
    broken = []
    for name, path in known_files()[kind][part::3]:
        verdict = decode_encode(path)
        if not verdict:
            broken.append(f"{name}/{path.name}: {verdict.difference}")
    assert not broken, "\n".join(broken)


@pytest.mark.alike
@pytest.mark.parametrize("case", [case for case in SERVED if any(case.partition.glob("*.log"))], **BY_NAME)
def test_reencoded_batches_have_the_same_rows(case: Case) -> None:
    for path in sorted(case.partition.glob("*.log")):
        verdict = encode_without_payloads(path)
        assert verdict, f"{path.name}: {verdict.difference}"


@pytest.mark.alike
@pytest.mark.parametrize("case", SERVED, **BY_NAME)
def test_kernels_equal_the_description(case: Case) -> None:
    for path in sorted(case.partition.iterdir()):
        if registry.detect(path.name, b"") is not None:
            verdict = kernel_equals_description(path)
            assert verdict, f"{path.name}: {verdict.difference}"


EDITED = [
    "v2_gzip_java",
    "v2_snappy_java",
    "v2_lz4_java",
    "v2_zstd_java",
    "v2_lz4_librdkafka",
    "v2_snappy_librdkafka",
]


@pytest.mark.parametrize("name", EDITED)
def test_edited_compressed_value_is_read_back(name: str) -> None:
    """Core columns win: a stored payload is reused only if it decodes to the rows."""
    path = next(path for path in sorted(CASES[name].partition.glob("*.log")) if path.stat().st_size > 1000)
    rows = lw.read(path, columns="*", view="rows")
    frames = lw.read(path, view="frames", columns="*")
    file = lw.read(path, view="file", columns="*")
    packed = [i for i, row in enumerate(frames["compression"].to_pylist()) if row != "none"]
    batch = packed[len(packed) // 2]
    at = rows["position"].to_pylist().index(frames["position"][batch].as_py())
    values = rows["value"].to_pylist()
    values[at] = b"edited by hand"
    index = rows.schema.get_field_index("value")
    edited = rows.set_column(
        index, rows.schema.field("value"), pa.array(values, rows.schema.field("value").type)
    )
    codec = registry.get("kafka.log")
    from logwright.roundtrip.specimen import Specimen

    specimen = Specimen.of(path)
    data = b"".join(bytes(chunk) for chunk in codec.encode(edited, frames, file, specimen.context()))
    reread = specimen.with_bytes(data)
    keep = [column for column in rows.schema.names if column != "position"]
    table = reread.read("rows").table
    assert table.select(keep).equals(edited.select(keep))
    heads = reread.read("frames").table.drop_columns(["position", "payload", "size", "batch_length", "crc"])
    assert heads.equals(frames.drop_columns(["position", "payload", "size", "batch_length", "crc"]))
    # All other batches keep their bytes.
    before, after = frames.to_pylist(), reread.read("frames").table.to_pylist()
    same = [
        pair["payload"] == other["payload"] and pair["crc"] == other["crc"]
        for pair, other in zip(before, after, strict=True)
    ]
    assert [i for i, same_batch in enumerate(same) if not same_batch] == [batch]


SPLIT = [
    "craft_embedded",
    "craft_spec22",
    "craft_empty_batches",
    "v2_txn_interleaved",
    "v2_compacted_producers",
    "killed_prealloc",
]


@pytest.mark.alike
@pytest.mark.parametrize("name", SPLIT)
def test_any_split_gives_each_row_once(name: str) -> None:
    for path in sorted(CASES[name].partition.glob("*.log")):
        size = path.stat().st_size
        step = max(1, size // 200)
        verdict = any_split(path, sizes=range(1, size + 2, step))
        assert verdict, f"{path.name}: {verdict.difference}"
