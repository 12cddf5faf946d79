"""Every option of LevelDB is used or refused by every verb, view and kind of file: see `option_usage`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from leveldb_db import GOLDEN
from option_usage import Sample, ignored

import logwright as lw

VALUES = {"comparator": "leveldb.BytewiseComparator", "compression": "snappy"}
REUSE = {"reuse_logs": True}
BESIDE = {
    ("write", "zstd_compression_level"): {"compression": "zstd"},
    ("as_system", "max_file_size"): REUSE,
    ("verify", "max_file_size"): REUSE,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lw.generate("leveldb.db", tmp_path / "tables", rows=60, seed=1)
    for case in ("few_puts", "current_missing"):
        shutil.copytree(GOLDEN / case / "db", tmp_path / case)
    (table,) = (tmp_path / "tables").glob("*.ldb")
    lw.damage(tmp_path / "tables", tmp_path / "damaged", f"flip:file={table.name},at=20,bit=3")
    return tmp_path


def check(folder: Path, kind: str, *paths: Path) -> None:
    sample = Sample(kind, paths, VALUES, BESIDE)
    assert ignored(sample, folder) == {}


@pytest.mark.extended
def test_every_option_is_used_or_refused_for_a_database(folder: Path) -> None:
    names = ("tables", "few_puts", "damaged/tables", "current_missing")
    check(folder, "leveldb.db", *(folder / name for name in names))


@pytest.mark.parametrize(
    ("kind", "pattern"), [("leveldb.table", "tables/*.ldb"), ("leveldb.log", "few_puts/*.log")]
)
def test_every_option_is_used_or_refused_for_a_file(folder: Path, kind: str, pattern: str) -> None:
    check(folder, kind, *folder.glob(pattern), *folder.glob(f"damaged/{pattern}"))
