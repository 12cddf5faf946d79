"""Edited bookies: removed entries are gone from all files, redacted ones have another payload, and a bookie serves all others as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden_bookies import case

import logwright as lw

_ID = ("ledger_id", "entry_id")


def mixed(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    home = tmp_path / "bookie"
    output = lw.generate("bookkeeper.bookie", home, rows=120, seed=7, recipe="mixed")
    return home, dict(output.manifest["read_options"])


def rows_by_id(home: Path, **options: Any) -> dict[tuple[int, int], dict[str, Any]]:
    return {
        (row["ledger_id"], row["entry_id"]): row for row in lw.read(home, columns="*", **options).to_pylist()
    }


def all_bytes(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file())


def check_served(out: Path, expected: int, **options: Any) -> None:
    report = lw.verify(out, as_system="4.18.0", **options)
    assert report.ok, report.text()
    assert report.system is not None
    assert report.system["opens"], report.system["error"]
    assert report.system["rows_lost"] == 0
    assert lw.read(out, mode="AS_SYSTEM", columns=_ID, **options).num_rows == expected


_SLOW = pytest.mark.extended


@pytest.mark.parametrize(
    "ledger",
    [0, 0x102, *(pytest.param(ledger, marks=_SLOW) for ledger in (1, 3, (1 << 33) + 4))],
)
def test_dropped_ledger_is_in_no_file(ledger: int, tmp_path: Path) -> None:
    home, options = mixed(tmp_path)
    before = rows_by_id(home, **options)
    secrets = [
        row["payload"] for row in before.values() if row["ledger_id"] == ledger and len(row["payload"]) > 30
    ]
    report = lw.edit(home, tmp_path / "out", drop=f"ledger_id == {ledger}", **options)
    after = rows_by_id(tmp_path / "out", **options)
    assert after.keys() == {ids for ids in before if ids[0] != ledger}
    same = [(row["payload"], row["digest"], row["length"]) for row in after.values()]
    assert same == [
        (row["payload"], row["digest"], row["length"]) for ids, row in before.items() if ids[0] != ledger
    ]
    data = all_bytes(tmp_path / "out")
    others = [row["payload"] for ids, row in before.items() if ids[0] != ledger]
    assert secrets
    assert not [
        secret for secret in secrets if secret in data and not any(secret in other for other in others)
    ]
    assert report.text()
    check_served(tmp_path / "out", len(after), **options)


def test_entries_keep_their_positions_in_entry_logs(tmp_path: Path) -> None:
    home, options = mixed(tmp_path)
    before = rows_by_id(home, **options)
    lw.edit(home, tmp_path / "out", drop="entry_id == 3", **options)
    after = rows_by_id(tmp_path / "out", **options)
    assert after == {
        ids: row if row["file"].endswith(".log") else {**row, "position": after[ids]["position"]}
        for ids, row in before.items()
        if ids[1] != 3
    }
    check_served(tmp_path / "out", len(after), **options)


@pytest.mark.alike
@pytest.mark.parametrize("payload", [b"gone", *(pytest.param(value, marks=_SLOW) for value in (b"", None))])
@pytest.mark.parametrize("ledger", [0, 1, 0x102, 3])
def test_redacted_payload_gets_the_digest_of_its_ledger(
    ledger: int, payload: bytes | None, tmp_path: Path
) -> None:
    home, options = mixed(tmp_path)
    before = rows_by_id(home, **options)
    payloads = [row["payload"] for row in before.values()]
    ids = next(
        key for key, row in before.items()
        if key[0] == ledger and key[1] and len(row["payload"]) > 40
        and sum(row["payload"] in other for other in payloads) == 1
    )  # fmt: skip
    chosen = [("ledger_id", "==", ids[0]), ("entry_id", "==", ids[1])]
    lw.edit(home, tmp_path / "out", redact=chosen, columns="payload", with_=payload, **options)
    after = rows_by_id(tmp_path / "out", **options)
    assert after.keys() == before.keys()
    assert after[ids]["payload"] == (payload or b"")
    for key, row in after.items():
        kept = ("length", "last_add_confirmed", "digest_type", *(("payload", "digest") if key != ids else ()))
        assert [row[name] for name in kept] == [before[key][name] for name in kept]
    assert before[ids]["payload"] not in all_bytes(tmp_path / "out")
    check_served(tmp_path / "out", len(after), **options)


def test_hmac_cannot_be_recomputed_without_the_password(tmp_path: Path) -> None:
    home, _ = mixed(tmp_path)
    first = {"passwd": {258: "swordfish"}, "digestType": "DUMMY"}
    assert lw.read(home, **first).num_rows == 120
    with pytest.raises(lw.LogwrightError, match=r"needs the password of ledger 258|digest mismatch"):
        lw.edit(home, tmp_path / "out", redact="ledger_id == 258", columns="payload", digestType="DUMMY")
    assert not (tmp_path / "out").exists()


def test_longer_payload_and_other_columns_are_refused(tmp_path: Path) -> None:
    home, options = mixed(tmp_path)
    with pytest.raises(lw.UsageError, match="has no room for the new payload"):
        lw.edit(
            home, tmp_path / "out", redact="entry_id == 1", columns="payload", with_=b"x" * 400, **options
        )
    with pytest.raises(lw.UsageError, match="digest cannot be redacted"):
        lw.edit(home, tmp_path / "out", redact="entry_id == 1", columns="digest", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name",
    [
        *("digests", "journal_v2", "db_direct_io"),
        *(
            pytest.param(name, marks=_SLOW)
            for name in ("compacted", "journal_v4", "journals_two", "gaps_and_order")
        ),
    ],
)
def test_files_of_a_real_bookie_are_edited(name: str, tmp_path: Path) -> None:
    golden = case(name)
    options = {"passwd": golden.passwords} if golden.passwords else {}
    before = rows_by_id(golden.path, **options)
    ids = sorted(before)[len(before) // 2]
    chosen = [("ledger_id", "==", ids[0]), ("entry_id", "==", ids[1])]
    lw.edit(golden.path, tmp_path / "out", drop=chosen, **golden.options)
    after = rows_by_id(tmp_path / "out", **options)
    assert after.keys() == before.keys() - {ids}
    same = ("payload", "digest", "length", "last_add_confirmed")
    assert all(
        [row[field] for field in same] == [before[key][field] for field in same] for key, row in after.items()
    )
    report = lw.verify(tmp_path / "out", as_system="4.18.0", **golden.options)
    assert report.system is not None
    assert report.system["opens"], report.system["error"]
    assert report.ok == lw.verify(golden.path, **golden.options).ok or "db_" in name


@pytest.mark.alike
@pytest.mark.parametrize(
    ("field", "change"), [("payload", "text=changed"), ("last_add_confirmed", "value=1")]
)
@pytest.mark.parametrize("file", ["*.log", "*.txn"])
@pytest.mark.parametrize("kind", ["CRC32", "HMAC"])
def test_field_of_an_entry_is_changed_with_its_digest(
    kind: str, file: str, field: str, change: str, tmp_path: Path
) -> None:
    """Resealed, an entry is as valid as before; without, its digest does not match."""
    home = tmp_path / "bookie"
    passwords: dict[str, Any] = {"passwd": b"swordfish"} if kind == "HMAC" else {}
    options: dict[str, Any] = {"digestType": kind, **passwords}
    rows = [{"ledger_id": 5, "entry_id": n, "payload": b"entry %d" % n} for n in range(30)]
    lw.write(rows, home, "bookkeeper.bookie", logSizeLimit=1600, journalWriteData=True, **options)
    name = sorted(str(path.relative_to(home)) for path in home.rglob(file))[0]
    operation = f"set:file={name},frame=6,field={field},{change}"
    sound = lw.damage(home, tmp_path / "sound", operation + ",reseal", **passwords).path
    broken = lw.damage(home, tmp_path / "broken", operation, **passwords).path
    assert b"swordfish" not in (tmp_path / "sound/damage.json").read_bytes()
    changed = lw.read(f"{sound}/{name}", columns="*", **passwords).to_pylist()
    before = lw.read(home / name, columns="*", **passwords).to_pylist()
    differ = [
        (old, new)
        for old, new in zip(before, changed, strict=True)
        if (old[field], old["digest"]) != (new[field], new["digest"])
    ]
    ((old, new),) = differ
    assert new[field] == (b"changed" if field == "payload" else 1)
    assert new["digest_type"] == old["digest_type"] == kind
    assert lw.verify(f"{sound}/{name}", **passwords).ok
    assert not lw.verify(f"{broken}/{name}", **passwords).ok


def test_hmac_is_not_recomputed_without_its_password(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    rows = [{"ledger_id": 5, "entry_id": n, "payload": b"entry %d" % n} for n in range(30)]
    lw.write(rows, log, "bookkeeper.entrylog", digestType="HMAC", passwd=b"swordfish")
    operation = "set:frame=6,field=last_add_confirmed,value=1,reseal"
    attempts: tuple[dict[str, Any], ...] = ({}, {"passwd": b"other"})
    for options in attempts:
        with pytest.raises(lw.UsageError, match="cannot be recomputed") as error:
            lw.damage(log, tmp_path / "out", operation, **options)
        assert "passwd" in str(error.value)
    with pytest.raises(lw.UsageError, match="unknown option"):
        lw.damage(log, tmp_path / "out", operation, password=b"swordfish")
