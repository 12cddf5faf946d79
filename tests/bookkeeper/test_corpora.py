"""Generated BookKeeper corpora read as their manifest says, and a bookie starts on them without a loss."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import logwright as lw
from logwright.corpora.expected import lines
from logwright.corpora.generate import generators

RECIPES = [
    (generator.name, recipe.name) for generator in generators() if generator.name.startswith("bookkeeper.") for recipe in generator.recipes
]  # fmt: skip
NAMES = {
    "bookkeeper.bookie": "bookie",
    "bookkeeper.entrylog": "1f.log",
    "bookkeeper.journal": "18bcfe56800.txn",
}


def rows_of(table: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for batch in table.to_batches() for line in lines(batch).splitlines()]


@pytest.mark.alike
@pytest.mark.parametrize("rows", [0, 1, 300])
@pytest.mark.parametrize(("codec", "recipe"), RECIPES)
def test_generated_files_read_as_expected(codec: str, recipe: str, rows: int, tmp_path: Path) -> None:
    path = tmp_path / NAMES[codec]
    output = lw.generate(codec, path, rows=rows, seed=11, recipe=recipe)
    options = output.manifest["read_options"]
    for view, expected in output.expected.items():
        expected_rows = [json.loads(line) for line in Path(expected).read_bytes().splitlines()]
        assert rows_of(lw.read(path, codec, view=view, **options)) == expected_rows, view
    report = lw.verify(path, codec, as_system="4.18.0" if codec == "bookkeeper.bookie" else None, **options)
    assert report.ok, report.text()
    if report.system is not None:
        assert report.system["opens"], report.system["error"]
        assert report.system["rows_lost"] == 0


@pytest.mark.parametrize("codec", NAMES)
def test_generated_hmacs_match_the_password_and_the_manifest_only_names_it(
    codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BK_PASSWORD", "swordfish")
    options: dict[str, Any] = {"digestType": "HMAC", "passwd": "env:BK_PASSWORD"}
    output = lw.generate(codec, tmp_path / NAMES[codec], rows=60, **options)
    assert output.manifest["read_options"] == {"passwd": "env:BK_PASSWORD"}
    assert b"swordfish" not in Path(output.manifest_path).read_bytes()
    assert set(lw.read(output.path, codec, columns="*", **options)["digest_type"].to_pylist()) <= {
        "HMAC",
        None,
    }
    report = lw.verify(output.path, codec, **output.manifest["read_options"])
    assert report.ok
    assert report.faults_total == 0
    assert lw.verify(output.path, codec, passwd=b"other").faults_total > 0


@pytest.mark.parametrize("password", [b"swordfish", "swordfish", {0: b"swordfish"}])
def test_generate_takes_a_password_by_reference_only(password: Any, tmp_path: Path) -> None:
    with pytest.raises(lw.UsageError, match="option passwd: the value is not valid") as error:
        lw.generate("bookkeeper.entrylog", tmp_path / "0.log", rows=5, digestType="HMAC", passwd=password)
    assert "swordfish" not in str(error.value)


def hashes(path: Path) -> dict[str, str]:
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_mixed_bookie_depends_on_the_seed_alone(tmp_path: Path) -> None:
    for name, seed in (("a/bookie", 3), ("b/bookie", 3), ("c/bookie", 4)):
        (tmp_path / name).parent.mkdir()
        lw.generate("bookkeeper.bookie", tmp_path / name, rows=120, seed=seed, recipe="mixed")
    first, same, other = (hashes(tmp_path / name / "bookie") for name in "abc")
    assert first == same
    assert first != other


def test_mixed_bookie_has_every_kind_of_file_and_record(tmp_path: Path) -> None:
    home = tmp_path / "bookie"
    output = lw.generate("bookkeeper.bookie", home, rows=300, seed=3, recipe="mixed")
    options = output.manifest["read_options"]
    rows = lw.read(home, columns="*", **options).to_pylist()
    assert {row["digest_type"] for row in rows} == {"CRC32C", "CRC32", "HMAC", "DUMMY"}
    assert {row["file"].rpartition(".")[2] for row in rows} == {"log", "txn"}
    assert {row["kind"] for row in lw.read(home, view="journal", **options).to_pylist()} == {
        "entry", "master_key", "fence", "explicit_lac",
    }  # fmt: skip
    ledgers = lw.read(home, view="ledgers", **options).to_pylist()
    assert {row["fenced"] for row in ledgers} == {row["gaps"] > 0 for row in ledgers} == {True, False}
    versions = {
        lw.read(file, view="file")["version"][0].as_py() for file in home.glob("journal-*/current/*.txn")
    }
    assert versions == {4, 5, 6}
    logs = sorted(home.glob("ledger-*/current/*.log"))
    assert {int.from_bytes(file.read_bytes()[8:16], "big") > 0 for file in logs} == {True, False}
    assert {file.parts[-3] for file in logs} == {"ledger-0", "ledger-1"}
    assert not (home / "ledger-1/current/1.log").exists()
    assert len(list(home.glob("*/current/*.compacting"))) == 1
    index = [file.read_bytes() for file in home.glob("index-*/current/*/*/*.idx")]
    assert {data[7] for data in index} == {0, 1}
    assert {bool(data[35] & 1) for data in index} == {True, False}


def test_damaged_header_of_a_mixed_log_costs_no_other_entry(tmp_path: Path) -> None:
    lw.generate("bookkeeper.entrylog", tmp_path / "1f.log", rows=60, seed=5, recipe="mixed")
    options = {"digestType": "DUMMY", "mode": "DROPMALFORMED"}
    before = rows_of(lw.read(tmp_path / "1f.log", **options))
    damaged = lw.damage(
        tmp_path / "1f.log", tmp_path / "out", "set:frame=30,field=entry_size,value=0x7fffffff"
    )
    with pytest.warns(lw.DamageWarning):
        after = rows_of(lw.read(damaged.path, **options))
    assert damaged.rows == 59
    assert len(after) >= 59
    assert [row for row in before if row in after] == after
