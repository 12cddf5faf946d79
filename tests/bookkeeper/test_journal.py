"""Journals that real bookies wrote, healthy and damaged."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from logwright.codec.fault import UsageError
from logwright.roundtrip.laws import any_split, decode_encode, encoded_anew, kernel_equals_description
from logwright.roundtrip.specimen import Specimen

HOME = Path(__file__).resolve().parents[2] / "corpora" / "golden" / "bookkeeper"
CASES = sorted(path.name for path in HOME.iterdir())
DAMAGED = [case for case in CASES if case.startswith("jrn_")]
VERSION_1 = {"journal_v1", "old_4_0_0"}
HEALTHY = [case for case in CASES if case not in DAMAGED and case not in VERSION_1]
NAME = "bookkeeper.journal"
UNCHECKED = {"jrn_fence_other_ledger", "jrn_key_flip", "jrn_lac_flip", "jrn_second_key"}
"""Damage of records that nothing seals: fences, master keys and explicit last-add-confirmed."""


def files(case: str) -> list[Path]:
    return sorted((HOME / case).rglob("*.txn"))


@cache
def base() -> set[str]:
    return {
        told(row) for path in files("dmg_jbase") for row in Specimen.of(path, NAME).read().table.to_pylist()
    }


def told(row: dict[str, Any]) -> str:
    return repr({name: value for name, value in row.items() if name != "position"})


@pytest.mark.parametrize("case", HEALTHY)
def test_healthy_journals_decode_and_encode_to_the_same_bytes(case: str) -> None:
    records = [json.loads(line) for line in (HOME / case / "records.jsonl").read_text().splitlines()]
    for path in files(case):
        verdict = decode_encode(path, NAME)
        assert verdict, verdict
        found = Specimen.of(path, NAME).read()
        assert not found.report.errors
        said = [one for one in records if one["file"] == path.relative_to(HOME / case).as_posix()]
        assert [(one["pos"], one["ledger"]) for one in said] == list(
            zip(found.table["position"].to_pylist(), found.table["ledger_id"].to_pylist(), strict=True)
        )
        for one, row in zip(said, found.table.to_pylist(), strict=True):
            assert row["entry_id"] == (one["entry"] if one["entry"] >= 0 else None)
            body = bytes.fromhex(one.get("hex", ""))
            if row["kind"] == "entry" and body:
                assert body[32:] == (row["digest"] or b"") + row["payload"]
            elif row["data"] is not None and body:
                assert body[20:] == row["data"]


@pytest.mark.parametrize("case", ["handmade", "journal_v4", "meta_records_killed", "digests"])
def test_laws_hold_on_golden_journals(case: str) -> None:
    for path in files(case):
        for law in (encoded_anew, kernel_equals_description) if case == "handmade" else (encoded_anew,):
            verdict = law(path, NAME)
            assert verdict, verdict
        verdict = any_split(path, NAME, sizes=[1, 300, 2000])
        assert verdict, verdict


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_journals_give_no_record_that_was_not_there(case: str) -> None:
    for path in files(case):
        found = Specimen.of(path, NAME).read().table.to_pylist()
        strange = [row for row in found if told(row) not in base()]
        assert strange == [] or (case in UNCHECKED and len(strange) == 1 and strange[0]["kind"] != "entry")
        verdict = decode_encode(path, NAME)
        assert verdict, verdict


@pytest.mark.parametrize(
    "case", ["jrn_length_low", "jrn_length_huge", "jrn_length_zero", "jrn_flip_body", "jrn_ff_sector"]
)
def test_salvage_loses_the_damaged_record_only(case: str) -> None:
    (path,) = files(case)
    whole = Specimen.of(next(one for one in files("dmg_jbase") if one.name == path.name), NAME).read().table
    found = Specimen.of(path, NAME).read()
    assert len(found.table) == len(whole) - 1
    assert found.report.errors


@pytest.mark.parametrize("version", [4, 6])
def test_zeros_and_noise_are_no_records(version: int) -> None:
    header = b"BKLG" + version.to_bytes(4, "big")
    header = header.ljust(512 if version > 4 else 8, b"\0")
    noise = np.random.default_rng(version).integers(0, 256, 1 << 17, dtype=np.uint8).tobytes()
    small = np.random.default_rng(version).integers(0, 3, 1 << 16, dtype=np.uint8).tobytes()
    for body in (
        noise,
        small,
        bytes(5000),
        bytes(999) + b"\x01" + bytes(5000),
        noise[:1000] + bytes(3000) + noise[:9],
    ):
        assert not len(Specimen.of(header + body, NAME, "1.txn").read().table)


def test_a_record_of_no_kind_is_refused() -> None:
    specimen = Specimen.of(b"", NAME, "1.txn")
    for row in ({"ledger_id": 1}, {"ledger_id": -1, "entry_id": 1}, {"ledger_id": 1, "kind": "note"}):
        with pytest.raises(UsageError, match="row 0: a record of kind"):
            specimen.encode(pa.Table.from_pylist([row]))


def test_rows_alone_get_digests_running_totals_and_padding() -> None:
    specimen = Specimen.of(b"", NAME, "1.txn")
    rows = pa.table({"ledger_id": [1, 2, 1], "entry_id": [0, 0, 1], "payload": [b"abc", b"", b"de"]})
    data = specimen.encode(rows)
    assert len(data) == 1024
    found = specimen.with_bytes(data).read().table
    assert found["length"].to_pylist() == [3, 0, 5]
    assert found["last_add_confirmed"].to_pylist() == [-1, -1, 0]
    assert all(len(one) == 4 for one in found["digest"].to_pylist())
