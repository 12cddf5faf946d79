"""Entry logs that real bookies wrote, healthy and damaged, and what the real scanner read from them."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from golden_bookies import case, home, names

import logwright as lw
from logwright.codec.bookkeeper.formats.entries import EntryWriter
from logwright.codec.bookkeeper.formats.entrylog.codec import CODEC
from logwright.codec.bookkeeper.formats.entrylog.ledgersmap import LedgersMap, map_bytes, map_order, read_map
from logwright.codec.fault import Severity, UsageError
from logwright.roundtrip.laws import any_split, decode_encode, encode_without_payloads
from logwright.roundtrip.specimen import Specimen

NAME = "bookkeeper.entrylog"
HEALTHY = [name for name in names() if not name.startswith(("elog_", "direct_"))]
DAMAGED = [name for name in names() if name.startswith("elog_")]
UNSEALED = {"elog_flip_ledger"}
"""The entry has an HMAC, and moves to a ledger that nothing else is known of."""


def logs(name: str) -> Iterator[Path]:
    for path in sorted((home() / name).rglob("*.log*")):
        if path.parent.name == "current" or name == "old_4_0_0":
            yield path


def reported(name: str, path: Path, kind: str) -> list[dict[str, Any]]:
    """Return what the real scanner reported of a log."""
    file = path.relative_to(home() / name).as_posix()
    return [line for line in case(name).lines.get(kind, []) if line["file"] == file]


def content(row: dict[str, Any]) -> str:
    numbers = (row[name] for name in ("ledger_id", "entry_id", "last_add_confirmed", "length"))
    return (struct.pack(">4q", *numbers) + (row["digest"] or b"") + row["payload"]).hex()


def map_of(data: bytes) -> LedgersMap | None:
    array = np.frombuffer(data, np.uint8)
    return read_map(lambda at, size: array[at : at + size], len(data))


@cache
def sound() -> set[str]:
    rows = (row for path in logs("dmg_base") for row in Specimen.of(path, NAME).read().table.to_pylist())
    return {content(row) for row in rows}


@pytest.mark.alike
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_logs_have_the_entries_that_the_real_scanner_reads(name: str) -> None:
    for path in logs(name):
        read = Specimen.of(path, NAME, passwd=case(name).passwords).read()
        assert not read.report.errors, read.report.faults
        lines = reported(name, path, "log_entry")
        if not reported(name, path, "log_end"):
            continue
        rows = read.table.to_pylist()
        places = [(row["position"], row["ledger_id"], row["entry_id"]) for row in rows]
        assert places == [(line["pos"], line["ledger"], line["entry"]) for line in lines]
        for row, line in zip(rows, lines, strict=True):
            assert "hex" not in line or content(row) == line["hex"]


@pytest.mark.alike
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_logs_are_written_with_the_same_bytes(name: str) -> None:
    for path in logs(name):
        for law in (decode_encode, encode_without_payloads):
            verdict = law(path, NAME)
            assert verdict, verdict


@pytest.mark.alike
@pytest.mark.parametrize("name", HEALTHY)
def test_rows_alone_give_finished_logs_with_their_maps(name: str) -> None:
    """Header, digests, and the order of the map are those of the real entry logger."""
    for path in logs(name):
        specimen = Specimen.of(path, NAME)
        data = specimen.all_bytes()
        stored = map_of(data)
        if stored is None or not stored.sizes or b"\xf0" * 16 in data:
            continue  # not finished, or written by the direct-I/O logger
        assert Specimen.of(b"", NAME).encode(specimen.read().table) == data
        for line in reported(name, path, "log_map"):
            assert dict(line.get("ledgers", stored.sizes.items())) == stored.sizes


@pytest.mark.parametrize("name", ["digests", "dmg_base", "db_direct_io", "nested_frames", "entry_sizes"])
def test_splits_of_golden_logs_have_each_entry_once(name: str) -> None:
    for path in logs(name):
        verdict = any_split(path, NAME, sizes=[1, 1500, 5000])
        assert verdict, verdict


@pytest.mark.alike
@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_logs_give_no_entry_that_was_not_there(name: str) -> None:
    for path in logs(name):
        read = Specimen.of(path, NAME, passwd=case("dmg_base").passwords).read()
        strange = [row for row in read.table.to_pylist() if content(row) not in sound()]
        assert not strange or (name in UNSEALED and len(strange) == 1)
        verdict = decode_encode(path, NAME)
        assert verdict, verdict


@pytest.mark.parametrize(
    ("name", "offset", "lost"),
    [
        ("elog_length_zero", 1552, 0),
        ("elog_length_max", 1552, 0),
        ("elog_length_tiny", 1552, 0),
        ("elog_flip_length_low", 1552, 0),
        ("elog_flip_length_minus", 1552, 0),
        ("elog_entry_negative", 1552, 1),
        ("elog_flip_body", 1552, 1),
        ("elog_zero_frame", 1552, 1),
        ("elog_map_inside_entry", 1552, 1),
        ("elog_trunc_mid", 1552, 1),
        ("elog_inserted_bytes", 1454, 0),
    ],
)
def test_fault_of_a_damaged_entry_has_its_offset(name: str, offset: int, lost: int) -> None:
    """Only the damaged entry is lost, though the real scanner reads garbage behind it; none, if the digest proves it for another size."""
    path = home() / name / "ledger" / "current" / "0.log"
    read = Specimen.of(path, NAME, passwd=case("dmg_base").passwords).read()
    assert offset in [fault.offset for fault in read.report.faults]
    if name != "elog_trunc_mid":
        assert read.table.num_rows == 15 - lost


@pytest.mark.parametrize("field", ["size", "ledger", "payload"])
def test_entry_logs_inside_of_payloads_give_no_entries(field: str) -> None:
    """Payloads that are entry logs have frames with matching digests, which lead to the end of the damaged entry."""
    for path in logs("nested_frames"):
        specimen = Specimen.of(path, NAME)
        data, table = specimen.all_bytes(), specimen.read().table
        rows = {content(row) for row in table.to_pylist()}
        for place in table["position"].to_pylist():
            damaged = bytearray(data)
            damaged[place + {"size": 2, "ledger": 4, "payload": 45}[field]] ^= 0x85
            read = specimen.with_bytes(bytes(damaged)).read()
            actual = {content(row) for row in read.table.to_pylist()}
            assert actual <= rows
            assert len(actual) >= len(rows) - 1
            assert read.report.faults


@pytest.mark.extended
def test_map_of_many_ledgers_has_the_order_of_the_real_hash_table() -> None:
    for path in logs("map_batches"):
        specimen = Specimen.of(path, NAME)
        data = specimen.all_bytes()
        stored = map_of(data)
        if stored is None or not stored.sizes:
            continue
        assert not stored.error
        assert len(stored.sizes) > 9000
        first = list(dict.fromkeys(specimen.read().table["ledger_id"].to_pylist()))
        assert map_order(first) == list(stored.sizes)
        assert data[stored.offset : stored.end] == map_bytes(
            {ledger: stored.sizes[ledger] for ledger in first}
        )


def test_passwords_verify_the_hmac() -> None:
    passwords = case("digests").passwords
    path = next(logs("digests"))
    assert not Specimen.of(path, NAME, passwd=passwords).read().report.faults
    read = Specimen.of(path, NAME, passwd=dict.fromkeys(passwords, b"wrong")).read()
    assert [fault.detail for fault in read.report.faults] == ["digest mismatch"] * 4
    with pytest.raises(UsageError, match="the value is not valid") as error:
        Specimen.of(path, NAME, passwd="secret")
    assert "secret" not in str(error.value)


def test_damaged_entry_of_a_ledger_with_an_hmac_is_seen_with_the_password() -> None:
    path, passwords = next(logs("digests")), case("digests").passwords
    rows = Specimen.of(path, NAME).read().table.to_pylist()
    place = next(row["position"] for row in rows if row["digest_type"] == "HMAC")
    damaged = bytearray(path.read_bytes())
    damaged[place + 60] ^= 1
    specimen = Specimen.of(bytes(damaged), NAME, path.name, passwd=passwords)
    assert [fault.offset for fault in specimen.read().report.faults] == [place]


def test_damaged_first_entry_of_a_ledger_with_an_hmac_is_seen_with_the_password(tmp_path: Path) -> None:
    """The ledger has gaps, so the running totals do not give the size of its digests."""
    rows = [
        {"ledger_id": 7, "entry_id": n, "length": 1000 * n, "payload": b"entry %d" % n} for n in (1, 3, 5)
    ]
    path = tmp_path / "0.log"
    lw.write(rows, path, NAME, digestType="HMAC", passwd=b"pw")
    data = path.read_bytes()
    damaged = data.replace(b"entry 1", b"entry 2")
    read = Specimen.of(damaged, NAME, path.name, passwd=b"pw").read()
    assert [fault.detail for fault in read.report.faults] == ["digest mismatch"]
    assert read.table["entry_id"].to_pylist() == [3, 5]


def test_digest_types_are_those_of_the_ledgers() -> None:
    types = {0: "CRC32C", 1: "CRC32", 2: "HMAC", 3: "DUMMY"}
    for row in Specimen.of(next(logs("digests")), NAME).read().table.to_pylist():
        assert row["digest_type"] == types[row["ledger_id"]]


def test_worked_example_is_written_from_rows() -> None:
    rows = [
        *({"ledger_id": 10, "entry_id": n, "payload": b"hello", "digest_type": "CRC32C"} for n in range(3)),
        {"ledger_id": 11, "entry_id": 0, "payload": b"world", "digest_type": "CRC32"},
    ]
    data = Specimen.of(b"", NAME, "0.log").encode(pa.Table.from_pylist(rows))
    assert data == (home() / "handmade" / "ledger" / "current" / "0.log").read_bytes()


def test_hmac_needs_a_password_to_be_written() -> None:
    rows = pa.table({"ledger_id": [1], "entry_id": [0], "payload": [b""], "digest_type": ["HMAC"]})
    with pytest.raises(UsageError, match="needs the password"):
        Specimen.of(b"", NAME, "0.log").encode(rows)
    with pytest.raises(UsageError, match="must not be negative"):
        Specimen.of(b"", NAME, "0.log").encode(pa.table({"ledger_id": [-1], "entry_id": [0]}))


@pytest.mark.alike
@pytest.mark.parametrize("seed", range(3))
def test_zeros_and_noise_give_no_entries(seed: int) -> None:
    random = np.random.default_rng(seed)
    noise = random.integers(0, 256, 1 << 17, dtype=np.uint8).tobytes()
    small = random.integers(0, 3, 1 << 16, dtype=np.uint8).tobytes()
    header = Specimen.of(b"", NAME).encode(pa.table({"ledger_id": [1], "entry_id": [0]}).slice(0, 0))
    for body in (noise, small, bytes(5000), bytes(999) + b"\1" + bytes(999), b"\xf0" * 7 + noise[:999]):
        assert not len(Specimen.of(header + body, NAME, "1.log").read().table)
        verdict = decode_encode(header + body, NAME, name="1.log")
        assert verdict, verdict


def test_lengths_continue_those_of_earlier_rows_in_any_chunks() -> None:
    table = pa.table(
        {
            "ledger_id": [1, 2, 1, 2, 1],
            "entry_id": [0, 0, 1, 1, 2],
            "length": pa.array([100, None, None, 7, None], pa.int64()),
            "payload": [b"abc", b"de", b"f", b"", b"ghij"],
        }
    )
    rows = CODEC.complete(table)
    writer = EntryWriter(NAME, None, None)
    parts = [writer.write(rows.slice(i, 1))[0].tobytes() for i in range(len(table))]
    lengths = [int.from_bytes(part[28:36], "big") for part in parts]
    assert lengths == [100, 2, 101, 7, 105]
    assert b"".join(parts) == EntryWriter(NAME, None, None).write(rows)[0].tobytes()


@pytest.mark.filterwarnings("ignore")
def test_entry_with_more_payload_than_the_running_total_of_its_ledger_is_damaged(tmp_path: Path) -> None:
    rows = [{"ledger_id": i, "entry_id": 5, "length": 200, "payload": bytes([65]) * 100} for i in (1, 2, 3)]
    log = tmp_path / "0.log"
    lw.write(rows, log, NAME)
    data, size = log.read_bytes(), 4 + 32 + 4 + 100
    second = 1024 + size
    log.write_bytes(data[: second + 20] + bytes(size - 20) + data[second + size :])
    with pytest.raises(lw.DamageError, match="digest mismatch"):
        lw.read(log)
    assert lw.read(log, mode="DROPMALFORMED")["ledger_id"].to_pylist() == [1, 3]


@pytest.mark.parametrize(("digest", "options"), [("CRC32C", {}), ("HMAC", {"passwd": b"secret"})])
def test_ledgers_map_whose_ids_are_damaged_is_no_entry(
    digest: str, options: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "0.log"
    rows = [
        {"ledger_id": ledger, "entry_id": entry, "payload": b"x"} for entry in range(9) for ledger in (0, 5)
    ]
    lw.write(rows, path, "bookkeeper.entrylog", digestType=digest, **options)
    data = bytearray(path.read_bytes())
    at = int.from_bytes(data[8:16], "big")
    data[at + 4 : at + 20] = bytes(16)
    path.write_bytes(data)
    with pytest.raises(lw.DamageError, match=f"at byte {at}"):
        lw.read(path)
    scan = lw.scan(path, mode="DROPMALFORMED")
    assert scan.to_table().num_rows == len(rows)
    assert [fault.offset for _, fault in scan.report.faults if fault.severity is Severity.ERROR] == [at]


def written(tmp_path: Path, name: str, payloads: Sequence[bytes], ledger: int = 1) -> Specimen:
    """Return a file with these entries of a ledger."""
    totals = itertools.accumulate(map(len, payloads))
    rows = [
        {"ledger_id": ledger, "entry_id": n, "last_add_confirmed": n - 1, "length": total, "payload": payload}
        for n, (payload, total) in enumerate(zip(payloads, totals, strict=True))
    ]
    codec = NAME if name.endswith(".log") else "bookkeeper.journal"
    lw.write(rows, tmp_path / name, codec)
    return Specimen.of(tmp_path / name)


@pytest.mark.alike
@pytest.mark.parametrize(("name", "start"), [("1.log", 1024), ("1.txn", 512)])
@pytest.mark.parametrize("payload", [88, 100])
def test_wrong_size_loses_no_entry_wherever_it_ends(
    name: str, start: int, payload: int, tmp_path: Path
) -> None:
    """It may end where a later entry begins, or at bytes that look like one. The digest shows the right end, unless it ends before 61 or more
    zeros of the payload, which look like the end of the file."""
    specimen = written(tmp_path, name, 60 * [bytes(payload)])
    data, at = specimen.all_bytes(), start + 5 * (payload + 40)
    sizes = [*range(37, 2000, 7), *range(payload + 36, 20 * (payload + 40), payload + 40), 8000, 9000]
    for size in set(sizes) - {payload + 36}:
        damaged = specimen.with_bytes(data[:at] + size.to_bytes(4, "big") + data[at + 4 :])
        read = damaged.read(columns="entry_id").table["entry_id"].to_pylist()
        assert read == [n for n in range(60) if n != 5 or size > payload - 25], size


@pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")
@pytest.mark.parametrize("size", [2147483647, 0, -1, 7, 1 << 20])
@pytest.mark.parametrize("digest", ["CRC32C", "CRC32", "HMAC"])
@pytest.mark.parametrize("codec", [NAME, "bookkeeper.journal"])
def test_digest_proves_the_end_of_an_entry_with_an_impossible_size(
    codec: str, digest: str, size: int, tmp_path: Path
) -> None:
    """It ends where the next entry starts, or before the ledgers map or the padding at the end of the file."""
    path = tmp_path / ("1.log" if codec == NAME else "1.txn")
    rows = [{"ledger_id": i % 2, "entry_id": i // 2, "payload": b"p" * (20 + i)} for i in range(8)]
    options = {"passwd": b"secret"} if digest == "HMAC" else {}
    lw.write(rows, path, codec, digestType=digest, **options)
    healthy, table = path.read_bytes(), lw.read(path, columns="*", **options)
    for i in (3, 7):
        place, right = table["position"][i].as_py(), 32 + len(table["digest"][i].as_py()) + 20 + i
        path.write_bytes(healthy[:place] + (size & 0xFFFFFFFF).to_bytes(4, "big") + healthy[place + 4 :])
        with pytest.raises(lw.DamageError):
            lw.read(path, **options)
        for mode in ("PERMISSIVE", "DROPMALFORMED"):
            scan = lw.scan(path, columns="*", mode=mode, **options)
            assert scan.to_table().select(table.column_names).to_pylist() == table.to_pylist()
            ((_, fault),) = ((path, f) for path, f in scan.report.faults if f.severity is Severity.ERROR)
            field = "entry_size" if codec == NAME else "length"
            text = f"{field} is {size}, it was {right}, proved by digest"
            assert (fault.offset, fault.detail, fault.rows_lost) == (place, text, 0)
        report = lw.repair(path, tmp_path / f"{i} {path.name}", **options)
        assert f"corrected: 4 bytes at byte {place} ({text})" in " ".join(str(report).split())
        assert (tmp_path / f"{i} {path.name}").read_bytes() == healthy


@pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")
def test_rows_with_an_impossible_size_are_written_with_the_same_bytes(tmp_path: Path) -> None:
    specimen = written(tmp_path, "1.log", 6 * [bytes(30)])
    data = specimen.all_bytes()
    for place in (1024, 1024 + 5 * 70):
        damaged = data[:place] + b"\x7f\xff\xff\xff" + data[place + 4 :]
        assert specimen.with_bytes(damaged).read().table.num_rows == 6
        verdict = decode_encode(damaged, NAME, name="1.log")
        assert verdict, verdict


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_entries_inside_of_a_payload_are_not_read_if_the_size_around_them_is_wrong(
    size: int, tmp_path: Path
) -> None:
    inner = written(tmp_path, "2.log", 10 * [b"inner"], ledger=9).all_bytes()
    specimen = written(tmp_path, "1.log", [inner if n == 5 else b"payload" for n in range(20)])
    data, at = specimen.all_bytes(), 1024 + 5 * (len(b"payload") + 40)
    damaged = specimen.with_bytes(data[:at] + size.to_bytes(4, "big") + data[at + 4 :])
    read = damaged.read(columns="ledger_id,entry_id").table
    assert set(read["ledger_id"].to_pylist()) == {1}
    assert read["entry_id"].to_pylist() == list(range(20))


@pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")
@pytest.mark.parametrize("codec", ["bookkeeper.entrylog", "bookkeeper.journal"])
@pytest.mark.parametrize("kind", ["CRC32C", "CRC32"])
@pytest.mark.parametrize("covered", [1, 2])
def test_entries_inside_a_wrong_length_are_salvaged(
    codec: str, kind: str, covered: int, tmp_path: Path
) -> None:
    """The length ends where a later entry does, so that another entry follows."""
    rows = [{"ledger_id": 3, "entry_id": n, "payload": b"p" * (10 + n)} for n in range(6)]
    path = tmp_path / ("1.log" if codec.endswith("log") else "1.txn")
    lw.write(rows, path, codec, digestType=kind)
    places = lw.read(path, columns=["position"])["position"].to_pylist()
    data = bytearray(path.read_bytes())
    wrong = places[2 + covered] - places[1] - 4
    data[places[1] : places[1] + 4] = wrong.to_bytes(4, "big")
    path.write_bytes(data)
    (fault,) = (
        fault for file in lw.verify(path)["files"] for fault in file["faults"] if fault["severity"] == "error"
    )
    right = places[2] - places[1] - 4
    field = "entry_size" if codec.endswith("entrylog") else "length"
    assert (fault["offset"], fault["length"]) == (places[1], right + 4)
    assert fault["detail"] == f"{field} is {wrong}, but the digest matches {right} bytes"
    assert lw.read(path, mode="DROPMALFORMED")["entry_id"].to_pylist() == [0, 1, 2, 3, 4, 5]
    assert lw.roundtrip(path, law=["decode_encode", "any_split"]).holds


@pytest.mark.filterwarnings("ignore::logwright.codec.fault.DamageWarning")
@pytest.mark.parametrize("hits", [[50], [50, 52], [20, 50, 53, 56, 80]])
def test_entry_with_the_crc_of_another_ledger_is_damage(hits: list[int], tmp_path: Path) -> None:
    """One bit of its ledger id is flipped. Without its CRC, it would be an entry of a ledger whose digests cannot be verified."""
    rows = [{"ledger_id": i % 3, "entry_id": i // 3, "payload": bytes([i]) * (i % 60)} for i in range(100)]
    path = tmp_path / "1.log"
    lw.write(rows, path, "bookkeeper.entrylog")
    healthy = path.read_bytes()
    data = bytearray(healthy)
    for position in lw.read(path, columns=["position"])["position"].take(hits).to_pylist():
        data[position + 11] ^= 64
    path.write_bytes(data)
    with pytest.raises(lw.DamageError, match="digest mismatch"):
        lw.read(path)
    assert lw.read(path, mode="DROPMALFORMED").num_rows == 100 - len(hits)
    assert not lw.verify(path).ok
    lw.repair(path, tmp_path / "out.log")
    assert (tmp_path / "out.log").read_bytes() == healthy
