"""Journals that real bookies wrote, healthy and damaged."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import golden_bookies
import numpy as np
import pyarrow as pa
import pytest
from golden_bookies import home, names

import logwright as lw
from logwright.codec.bookkeeper.formats.digest import SIZES, digest_of
from logwright.codec.fault import UsageError
from logwright.roundtrip.laws import (
    any_split,
    decode_encode,
    encode_without_payloads,
    kernel_equals_description,
)
from logwright.roundtrip.specimen import Specimen

EDITED = ("cookie_", "direct_", "elog_", "idx_", "jrn_", "lastid_", "mark_", "status_")
SAME_RECORDS = ("jrn_base_cut", "jrn_missing_", "jrn_no_zero_tail")
DAMAGED = [name for name in names() if name.startswith("jrn_") and not name.startswith(SAME_RECORDS)]
HEALTHY = [name for name in names() if not name.startswith(EDITED) and name != "old_4_0_0"]
"""The scanner of 4.18.0 does not read the directories of 4.0.0, but their files (`old_4_0_0_moved`)."""
NAME = "bookkeeper.journal"
UNCHECKED = {"jrn_fence_other_ledger", "jrn_key_flip", "jrn_lac_flip", "jrn_second_key"}
"""Damage of records that nothing seals: fences, master keys and explicit last-add-confirmed."""


@cache
def files(name: str) -> list[Path]:
    """Return the journals of a case; of a damaged one those that differ from the case before the damage, except for zeros at the end."""
    base = files("dmg_jbase") if name.startswith("jrn_") else []
    before = {path.name: path.read_bytes().rstrip(b"\0") for path in base}
    paths = sorted((home() / name).rglob("*.txn"))
    return [path for path in paths if path.read_bytes().rstrip(b"\0") != before.get(path.name)]


@cache
def base() -> set[str]:
    return {
        without_position(row)
        for path in files("dmg_jbase")
        for row in Specimen.of(path, NAME).read().table.to_pylist()
    }


def without_position(row: dict[str, Any]) -> str:
    return repr({name: value for name, value in row.items() if name != "position"})


@pytest.mark.alike
@pytest.mark.parametrize("case", HEALTHY)
def test_healthy_journals_decode_and_encode_to_the_same_bytes(case: str) -> None:
    records = golden_bookies.case(case).lines.get("journal_record", [])
    for path in files(case):
        verdict = decode_encode(path, NAME)
        assert verdict, verdict
        result = Specimen.of(path, NAME).read()
        assert not result.report.errors
        message = [
            record for record in records if record["file"] == path.relative_to(home() / case).as_posix()
        ]
        assert [(row["pos"], row["ledger"]) for row in message] == list(
            zip(result.table["position"].to_pylist(), result.table["ledger_id"].to_pylist(), strict=True)
        )
        for item, row in zip(message, result.table.to_pylist(), strict=True):
            assert row["entry_id"] == (item["entry"] if item["entry"] >= 0 else None)
            body = bytes.fromhex(item.get("hex", ""))
            if row["kind"] == "entry" and body:
                assert body[32:] == (row["digest"] or b"") + row["payload"]
            elif row["data"] is not None and body:
                assert body[20:] == row["data"]


@pytest.mark.parametrize("case", ["handmade", "journal_v4", "meta_records_killed", "digests"])
def test_laws_hold_on_golden_journals(case: str) -> None:
    for path in files(case):
        for law in (
            (encode_without_payloads, kernel_equals_description)
            if case == "handmade"
            else (encode_without_payloads,)
        ):
            verdict = law(path, NAME)
            assert verdict, verdict
        verdict = any_split(path, NAME, sizes=[1, 300, 2000])
        assert verdict, verdict


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_journals_give_no_record_that_was_not_there(case: str) -> None:
    assert files(case)
    for path in files(case):
        rows = Specimen.of(path, NAME).read().table.to_pylist()
        strange = [row for row in rows if without_position(row) not in base()]
        assert strange == [] or (case in UNCHECKED and len(strange) == 1 and strange[0]["kind"] != "entry")
        verdict = decode_encode(path, NAME)
        assert verdict, verdict


@pytest.mark.parametrize(
    ("case", "lost"),
    [("jrn_length_low", 0), ("jrn_length_huge", 0), ("jrn_length_zero", 0), ("jrn_flip_body", 1), ("jrn_ff_sector", 1)],
)  # fmt: skip
def test_salvage_loses_the_damaged_record_only(case: str, lost: int) -> None:
    """An entry of which only the length is wrong is not lost: its digest shows where it ends."""
    (path,) = files(case)
    table = (
        Specimen.of(next(file for file in files("dmg_jbase") if file.name == path.name), NAME).read().table
    )
    actual = Specimen.of(path, NAME).read()
    assert len(actual.table) == len(table) - lost
    assert actual.report.errors


@pytest.mark.parametrize("version", [4, 6])
def test_zeros_and_noise_give_no_records(version: int) -> None:
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


def test_record_of_an_unknown_kind_is_refused() -> None:
    specimen = Specimen.of(b"", NAME, "1.txn")
    for row in ({"ledger_id": 1}, {"ledger_id": -1, "entry_id": 1}, {"ledger_id": 1, "kind": "note"}):
        with pytest.raises(UsageError, match="row 0: a record of kind"):
            specimen.encode(pa.Table.from_pylist([row]))


def test_rows_alone_get_digests_lengths_and_padding() -> None:
    specimen = Specimen.of(b"", NAME, "1.txn")
    rows = pa.table({"ledger_id": [1, 2, 1], "entry_id": [0, 0, 1], "payload": [b"abc", b"", b"de"]})
    data = specimen.encode(rows)
    assert len(data) == 1024
    table = specimen.with_bytes(data).read().table
    assert table["length"].to_pylist() == [3, 0, 5]
    assert table["last_add_confirmed"].to_pylist() == [-1, -1, 0]
    assert all(len(row) == 4 for row in table["digest"].to_pylist())


def test_each_version_is_written_and_read() -> None:
    rows = pa.table({"ledger_id": [1, 1], "entry_id": [0, 1], "payload": [b"abc", b""]})
    for version in range(1, 7):
        specimen = Specimen.of(b"", NAME, "1.txn", journalFormatVersionToWrite=version)
        data = specimen.encode(rows)
        assert data[:4] == (b"BKLG" if version > 1 else (4 + 32 + 3 + 4 - 4).to_bytes(4, "big"))
        result = specimen.with_bytes(data).read("file").table.to_pylist()[0]
        assert (result["version"], result["frames"]) == (version, 2 + (version > 1) + (version > 4))
        assert decode_encode(data, NAME, name="1.txn")


def test_record_that_the_version_does_not_have_is_reported() -> None:
    fence = {"ledger_id": 1, "kind": "fence"}
    specimen = Specimen.of(b"", NAME, "1.txn", journalFormatVersionToWrite=3)
    faults = specimen.with_bytes(specimen.encode(pa.Table.from_pylist([fence]))).read().report.faults
    assert "Contains fenceKey but layout version (3) is too old" in faults[0].detail
    newer = Specimen.of(b"", NAME, "1.txn", journalFormatVersionToWrite=4)
    assert not newer.with_bytes(newer.encode(pa.Table.from_pylist([fence]))).read().report.faults


def test_padding_is_no_entry_of_ledger_0_after_a_wrong_length() -> None:
    """The length of a padding record and the zeros after it look like an entry without a digest."""
    rows = pa.table({"ledger_id": [5] * 6, "entry_id": list(range(6)), "payload": [b"x" * 30] * 6})
    specimen = replace(Specimen.of(b"", NAME, "1.txn", journalAlignmentSize=512), hints={"ledgers": {0}})
    data = bytearray(b"".join(specimen.encode(rows.slice(i, 1))[512 * (i > 0) :] for i in range(6)))
    healthy = specimen.with_bytes(bytes(data)).read().table
    assert healthy["entry_id"].to_pylist() == list(range(6))
    data[512 + 3] -= 1
    result = specimen.with_bytes(bytes(data)).read()
    assert (result.table["ledger_id"].to_pylist(), result.table["entry_id"].to_pylist()) == (
        [5] * 6,
        list(range(6)),
    )


def test_preallocated_zeros_are_written() -> None:
    specimen = Specimen.of(b"", NAME, "1.txn", journalPreAllocSizeMB=1)
    data = specimen.encode(pa.table({"ledger_id": [1], "entry_id": [0], "payload": [b"a"]}))
    assert len(data) == 1 << 20
    assert not any(data[1024:])


@pytest.mark.parametrize("type_of_digest", ["CRC32", "CRC32C", "MAC", "DUMMY"])
def test_entries_have_the_digest_of_the_option(type_of_digest: str) -> None:
    specimen = Specimen.of(b"", NAME, "1.txn", digestType=type_of_digest, passwd={7: b"secret"})
    rows = pa.table({"ledger_id": [7, 7], "entry_id": [0, 1], "payload": [b"abc", b"de"]})
    data = specimen.encode(rows)
    name = {"MAC": "HMAC"}.get(type_of_digest, type_of_digest)
    assert specimen.with_bytes(data).read().table["digest_type"].to_pylist() == [name, name]
    damaged = data.replace(b"abc", b"abd")
    result = specimen.with_bytes(damaged).read()
    expected = [b"abd", b"de"] if name == "DUMMY" else [b"de"]
    assert result.table["payload"].to_pylist() == expected


def test_entries_of_a_ledger_whose_master_key_is_elsewhere_are_no_damage(tmp_path: Path) -> None:
    """Their HMACs cannot be checked; their running totals fit. An entry that is alone in its ledger may be garbage."""
    rows = [
        {"ledger_id": 7, "entry_id": n, "length": 100 + 9 * n, "payload": b"entry %03d" % n}
        for n in (3, 5, 9)
    ]
    path = tmp_path / "1.txn"
    lw.write(rows, path, NAME, passwd=b"secret", digestType="HMAC")
    report = lw.verify(path)
    assert report.ok
    (fault,) = report.to_dict()["files"][0]["faults"]
    assert fault["severity"] == "info"
    assert "the digests of ledger 7 are not verified" in fault["detail"]
    assert "--passwd env:NAME or --passwd file:PATH); without one, the option digestType" in fault["detail"]
    stored = lw.read(path, columns=["entry_id", "digest_type", "payload"]).to_pylist()
    assert [row["entry_id"] for row in stored] == [3, 5, 9]
    assert all(
        row["digest_type"] is None and row["payload"].endswith(b"entry %03d" % row["entry_id"])
        for row in stored
    )
    assert lw.read(path, passwd=b"secret")["payload"].to_pylist() == [row["payload"] for row in rows]
    data = bytearray(path.read_bytes())
    at = 512 + 4 + 7
    assert data[at] == 7
    data[at] = 8
    path.write_bytes(data)
    with pytest.raises(lw.DamageError, match="digest mismatch, or an HMAC of a ledger without an index"):
        lw.read(path)
    faults = lw.verify(path).to_dict()["files"][0]["faults"]
    assert [fault["severity"] for fault in faults] == ["info", "error", "info"]


def test_entries_whose_totals_do_not_fit_are_damage(tmp_path: Path) -> None:
    rows = [
        {"ledger_id": 7, "entry_id": n, "length": 900 - n, "payload": b"entry %03d" % n} for n in (3, 5, 9)
    ]
    path = tmp_path / "1.txn"
    lw.write(rows, path, NAME, passwd=b"secret", digestType="HMAC")
    assert not lw.verify(path).ok
    assert lw.verify(path, passwd=b"secret").ok


@pytest.mark.parametrize("digest_type", ["HMAC", "DUMMY"])
@pytest.mark.parametrize("bit", [7, 15, 23, 31])
def test_zeros_behind_a_damaged_padding_are_no_entry_of_an_assumed_type(digest_type: str, bit: int) -> None:
    """The zeros have the length of a record, ledger 0 and entry 0, and their running total leaves no room for a payload."""
    specimen = Specimen.of(files("handmade_journal_only")[0], NAME, digestType=digest_type)
    data = specimen.all_bytes()
    before = specimen.read().table
    damaged = bytearray(data)
    padding = data.index(b"\xff\xff\xff\x00\x00\x00\x01")
    damaged[padding + bit // 8] ^= 1 << bit % 8
    after = specimen.with_bytes(bytes(damaged)).read()
    assert after.report.faults
    assert {*map(repr, after.table.to_pylist())} <= {*map(repr, before.to_pylist())}


@pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")
@pytest.mark.parametrize(
    ("kind", "password", "warnings"),
    [("CRC32C", None, 1), ("CRC32", None, 1), ("HMAC", b"pw", 1), ("HMAC", None, 0), ("DUMMY", None, 0)],
)
def test_explicit_lac_with_a_wrong_digest_is_a_warning(
    kind: str, password: bytes | None, warnings: int, tmp_path: Path
) -> None:
    """A client that gets it cannot open the ledger, but a later record may replace it. An HMAC is verified with the password only."""
    numbers = (5).to_bytes(8, "big") + (3).to_bytes(8, "big")
    right = numbers + digest_of(numbers, SIZES[kind], b"pw")
    wrong = right[:15] + b"\x04" + right[16:]
    rows = [{"ledger_id": 5, "kind": "explicit_lac", "data": data} for data in (right, wrong, right)]
    path = tmp_path / "1.txn"
    lw.write(rows, path, "bookkeeper.journal")
    options = {} if password is None else {"passwd": password}
    faults = [fault for file in lw.verify(path, **options)["files"] for fault in file["faults"]]
    texts = [fault["detail"] for fault in faults if fault["severity"] == "warning"]
    assert texts == ["the digest of the explicit last-add-confirmed is wrong"] * warnings
    assert lw.read(path, **options).num_rows == 3
