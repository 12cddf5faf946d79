"""Classes of the golden Kafka cases, and rows in the form in which they are recorded there."""

from __future__ import annotations

import hashlib
import shutil
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa

from logwright.corpora.cases import Case, cases

CASES = cases("kafka")

# The class of each case. A folder in no class or in two fails a test.

HEALTHY = (
    "v0_*", "v1_*", "v2*", "mixed_v0_v1*", "killed_*", "consumer_offsets*", "share_group_state", "transaction_state*",
)  # fmt: skip
"""Written by a broker."""

LEGAL = (
    "craft_append_time", "craft_control_no_pid", "craft_control_unknown", "craft_delete_horizon", "craft_delta_beyond",
    "craft_delta_order", "craft_embedded", "craft_empty_batches", "craft_empty_txn_batch", "craft_epoch_minus1",
    "craft_first_offset_high", "craft_gzip_name_mtime", "craft_gzip_trailing", "craft_gzip_two_members",
    "craft_header_key_bytes", "craft_holes", "craft_keylen_minus2", "craft_lz4_4mb_block",
    "craft_lz4_bad_content_checksum", "craft_lz4_block_checksum", "craft_lz4_size_checksum", "craft_magic_mix", "craft_marker_without_txn",
    "craft_no_files", "craft_nonminimal_varint", "craft_only_empty_segment", "craft_raw_snappy", "craft_record_attr",
    "craft_seq_wrap", "craft_snappy_two_headers", "craft_spec22", "craft_ts_minus1", "craft_ts_negative_delta",
    "craft_txn_epoch_back", "craft_txn_open", "craft_v0_gzip_abs", "craft_v0_gzip_gaps", "craft_v0_inner_magic1",
    "craft_v0_lz4_right_hc", "craft_v1_append_inner_ct", "craft_v1_append_inner_lat", "craft_v1_gzip_rel",
    "craft_v1_inner_magic0", "craft_v1_partial_inner", "craft_v1_ts_minus1", "craft_v1_wrapper_key",
    "craft_v1_wrapper_offset0", "craft_zstd_two_frames", "dmg_base", "dmg_tbase",
)  # fmt: skip
"""Handmade, partly unusual, and served by the broker to the end: see `test_legal_cases_are_those_that_are_served`."""

REFUSED = (
    "craft_batch_extra_bytes", "craft_below_base", "craft_compressed_less_records", "craft_compressed_more_records",
    "craft_gzip_bad_crc", "craft_gzip_truncated", "craft_header_count_neg", "craft_header_key_null", "craft_lz4_bad_hc",
    "craft_lz4_linked", "craft_lz4_two_frames", "craft_record_extra_bytes", "craft_record_len_short",
    "craft_txn_then_plain", "craft_v0_v1_badcrc", "craft_v1_empty_inner", "craft_v1_inner_badcrc", "craft_v1_nested", "craft_v1_null_value",
    "craft_v1_wrapper_too_small", "craft_v1_zstd", "craft_zstd_bad_checksum",
)  # fmt: skip
"""Handmade. The broker does not start on them, truncates them, or its consumer stops with an error."""

DAMAGED = ("dmg_[!bt]*", "dmg_batch*", "dmg_t[!b]*")
"""Edited after a broker wrote them: all `dmg_*` except the two base cases."""

DIRECTORIES = ("logdir_*", "cluster_metadata_*")
"""Complete log directories and metadata logs, on which no consumer was run."""

CLASSES = {
    "healthy": HEALTHY,
    "legal": LEGAL,
    "refused": REFUSED,
    "damaged": DAMAGED,
    "directories": DIRECTORIES,
}


def classes_of(name: str) -> list[str]:
    return [
        kind for kind, patterns in CLASSES.items() if any(fnmatchcase(name, pattern) for pattern in patterns)
    ]


def of_class(*names: str) -> list[Case]:
    return [case for case in CASES.values() if classes_of(case.name)[0] in names]


def copy_case(name: str, folder: Path) -> Path:
    """Copy the partition of a case to a folder, where it may be changed."""
    target = folder / CASES[name].partition.name
    shutil.copytree(CASES[name].partition, target)
    for path in target.iterdir():
        path.chmod(0o644)
    return target


# Rows as recorded: the output of a Java consumer, in JSON.

COLUMNS = "partition,offset,timestamp_ms,timestampType,leader_epoch,key,value,headers"
LONG = 400
"""Longer keys and values are recorded by hash and length."""
_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


def as_recorded(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table with `COLUMNS` in the form of records.jsonl."""
    return [
        {
            "partition": row["partition"],
            "offset": row["offset"],
            "timestamp": row["timestamp_ms"],
            "timestamp_type": _TYPES[row["timestampType"]],
            **({"leader_epoch": row["leader_epoch"]} if row["leader_epoch"] >= 0 else {}),
            **_bytes("key", row["key"]),
            **_bytes("value", row["value"]),
            "headers": [[header["key"].encode().hex(), _short(header["value"])] for header in row["headers"]],
        }
        for row in table.to_pylist()
    ]


def _bytes(name: str, value: bytes | None) -> dict[str, Any]:
    if value is None or len(value) <= LONG:
        return {f"{name}_hex": None if value is None else value.hex()}
    return {f"{name}_sha256": hashlib.sha256(value).hexdigest(), f"{name}_len": len(value)}


def _short(value: bytes | None) -> str | None:
    if value is None or len(value) <= LONG:
        return None if value is None else value.hex()
    return f"sha256:{hashlib.sha256(value).hexdigest()}"
