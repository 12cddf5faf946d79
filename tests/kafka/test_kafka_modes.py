"""Kafka's codecs in all three kernel modes: laws on specimens, damage, writing, rebuilding."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from kafka_log import derived_files

import logwright as lw
from logwright.corpora.cases import cases
from logwright.roundtrip import laws

pytestmark = pytest.mark.kernel_modes

CASES = cases("kafka")
SMALL = (
    "v2_none_java", "v2_headers", "v2_txn_interleaved", "v2_compacted_producers", "v2_append_time_lz4", "v2_zstd_librdkafka",
    "craft_nonminimal_varint", "craft_header_key_bytes", "craft_keylen_minus2", "craft_embedded", "craft_empty_batches",
    "craft_snappy_two_headers", "craft_gzip_two_members",
)  # fmt: skip
LOGS = [log for name in SMALL for log in sorted(CASES[name].partition.glob("*.log"))[:2]]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name + "/" + path.name[-8:])
def test_specimens_obey_the_laws(path: Path) -> None:
    for law in (laws.decode_encode, laws.encode_without_payloads, laws.kernel_equals_description):
        verdict = law(path)
        assert verdict, str(verdict)
    size = path.stat().st_size
    verdict = laws.any_split(path, sizes=[1, 100, size // 3 + 1, size])
    assert verdict, str(verdict)


@pytest.mark.parametrize(
    "name",
    ["dmg_flip_payload", "dmg_flip_len_plus", "dmg_garbage_mid", "dmg_zero_old_page", "dmg_fix_garbage"],
)
def test_rows_after_damage_are_read_in_every_kernel_mode(name: str) -> None:
    case = CASES[name]
    frames = lw.scan(case.partition, mode="PERMISSIVE")
    table = frames.to_table()
    assert not frames.report.ok
    assert 0 < table["_corrupt_offset"].null_count < table.num_rows


@pytest.mark.extended
def test_damage_of_any_bit_is_seen() -> None:
    path = CASES["craft_spec22"].partition / f"{0:020d}.log"
    verdict = laws.damage_is_seen(path)
    assert verdict, str(verdict)


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_rows_round_trip_in_every_kernel_mode(tmp_path: Path, compression: str) -> None:
    count = 300
    table = pa.table(
        {
            "key": pa.array([None if n % 5 == 0 else b"k%d" % n for n in range(count)], pa.binary()),
            "value": pa.array([b"v" * (n % 90) for n in range(count)], pa.binary()),
            "timestamp": pa.array(range(count), pa.timestamp("ms", "UTC")),
            "headers": [[{"key": "h", "value": b"x" * n}] * (n % 3) for n in range(count)],
        }
    )
    lw.write(
        table,
        tmp_path / "t-0",
        "kafka.partition",
        batch_size=700,
        segment_bytes=9000,
        compression_type=compression,
    )
    rows = lw.read(tmp_path / "t-0")
    assert rows["offset"].to_pylist() == list(range(count))
    for name in table.schema.names:
        assert rows[name].to_pylist() == table[name].to_pylist()


def test_derived_files_equal_the_brokers_in_every_kernel_mode() -> None:
    case = CASES["v2_txn_interleaved"]
    rebuilt = derived_files({path.name: path.read_bytes() for path in case.partition.glob("*.log")}, 200)
    for path in (case.path / "after-rebuild-200").iterdir():
        if path.suffix != "" and path.name in rebuilt:
            assert rebuilt[path.name] == path.read_bytes(), path.name
