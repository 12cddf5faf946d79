"""Repair of a single file: out of place, in place, and from standard input."""

from __future__ import annotations

from pathlib import Path

import pytest
from repairable_store import (
    DAMAGED,
    SALVAGED,
    SIZE,
    joined,
    read_files,
)

import logwright as lw

pytestmark = pytest.mark.usefixtures("repairable_store")

# Single file


def test_single_file_keeps_its_good_frames(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "new.toy"
    (store / "003.toy").chmod(0o640)
    report = lw.repair(store / "003.toy", out)
    assert out.read_bytes() == joined(3, 5, 6)
    assert out.stat().st_mode & 0o777 == 0o640
    assert report.incomplete
    assert report["rows"] == 3
    assert [(removed["offset"], removed["length"]) for removed in report["cut"]] == [(SIZE, SIZE)]
    assert [(kept_range["offset"], kept_range["length"]) for kept_range in report["kept"]] == [
        (0, SIZE),
        (2 * SIZE, 2 * SIZE),
    ]
    report = lw.repair(store / "003.toy", tmp_path / "less.toy", strategy="prefix")
    assert (tmp_path / "less.toy").read_bytes() == joined(3)
    assert [(removed["offset"], removed["length"]) for removed in report["cut"]] == [(SIZE, 3 * SIZE)]
    with pytest.raises(lw.ExistsError):
        lw.repair(store / "003.toy", out)
    with pytest.raises(lw.UsageError, match="strategy"):
        lw.repair(store / "003.toy", tmp_path / "other.toy", strategy="system")
    with pytest.raises(lw.UsageError, match="repair takes one file"):
        lw.repair([store / "003.toy", store / "000.toy"], tmp_path / "other.toy")
    with pytest.raises(lw.UsageError, match="cannot replace its own input"):
        lw.repair(store / "003.toy", store / "003.toy")
    assert read_files(store) == DAMAGED


def test_lists_of_a_single_file_are_capped_and_counts_exact(store: Path, tmp_path: Path) -> None:
    report = lw.repair(store / "003.toy", tmp_path / "new.toy", max_faults=1)
    assert (len(report["kept"]), len(report["cut"])) == (1, 1)
    assert "of 2 ranges kept, the first 1 are listed" in report.text()


def test_single_file_in_place(store: Path, tmp_path: Path) -> None:
    assert "would be removed" in lw.repair(store / "003.toy", dry_run=True).text()
    with pytest.raises(lw.UsageError, match="outside"):
        lw.repair(store / "003.toy", in_place=True, backup=store / "backup")
    report = lw.repair(store / "003.toy", in_place=True, backup=tmp_path / "backup")
    assert read_files(store) == {**DAMAGED, "003.toy": joined(3, 5, 6)}
    assert (tmp_path / "backup" / "003.toy").read_bytes() == DAMAGED["003.toy"]
    assert report["cut"][0]["saved_to"] == str(tmp_path / "backup" / "003.toy")
    assert "derived" in report.text()
    report = lw.repair(store / "003.toy", in_place=True, backup=tmp_path / "other")
    assert "no changes needed" in report.text()
    assert not report.incomplete
    assert not (tmp_path / "other").exists()


def test_file_with_only_warnings_is_copied_unchanged(tmp_path: Path) -> None:
    data = joined(0, 1) + bytes(100)
    path = tmp_path / "000.toy"
    path.write_bytes(data)
    assert not lw.repair(path, tmp_path / "out.toy").incomplete
    assert (tmp_path / "out.toy").read_bytes() == data
    torn = tmp_path / "torn.toy"
    torn.write_bytes(joined(0, 1)[:-3])
    lw.repair(torn, tmp_path / "whole.toy")
    assert (tmp_path / "whole.toy").read_bytes() == joined(0)


def test_single_frame_file_is_sound_or_lost(tmp_path: Path) -> None:
    (tmp_path / "NOTE").write_bytes(b"nothing")
    with pytest.raises(lw.DamageError, match="is a single unit"):
        lw.repair(tmp_path / "NOTE", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "NOTE").write_bytes(b"note:good")
    lw.repair(tmp_path / "NOTE", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"note:good"


# Errors of layouts and machines


def test_single_file_from_standard_input(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys
    from types import SimpleNamespace

    def stdin() -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(DAMAGED["003.toy"])))

    stdin()
    lw.repair("-", tmp_path / "005.toy", codec="toy.frames")
    assert (tmp_path / "005.toy").read_bytes() == joined(3, 5, 6)
    stdin()
    with pytest.raises(lw.UsageError, match="only local files"):
        lw.repair("-", in_place=True, backup=tmp_path / "backup", codec="toy.frames")
    (tmp_path / "009.toy").touch()
    lw.repair(store / "003.toy", tmp_path / "009.toy")
    assert (tmp_path / "009.toy").read_bytes() == joined(3, 5, 6)
    (tmp_path / "001.toy").write_bytes(b"??" + joined(1))
    lw.repair(tmp_path / "001.toy", tmp_path / "002.toy")
    assert (tmp_path / "002.toy").read_bytes() == joined(1)


def test_single_file_that_changes_is_detected(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logwright.writers import repair_file

    plain, path = repair_file._others, store / "003.toy"

    def growing(*arguments):  # type: ignore[no-untyped-def]
        path.write_bytes(DAMAGED["003.toy"] + b"x")
        return plain(*arguments)

    monkeypatch.setattr(repair_file, "_others", growing)
    with pytest.raises(lw.BusyError, match="changed by someone else"):
        lw.repair(path, in_place=True, backup=tmp_path / "backup")
    assert path.read_bytes() == DAMAGED["003.toy"] + b"x"
    assert not (tmp_path / "backup").exists()

    def shrinking(*arguments):  # type: ignore[no-untyped-def]
        path.write_bytes(DAMAGED["003.toy"][:-SIZE])
        return plain(*arguments)

    path.write_bytes(DAMAGED["003.toy"])
    monkeypatch.setattr(repair_file, "_others", shrinking)
    with pytest.raises(lw.BusyError, match="truncated"):
        lw.repair(path, tmp_path / "out.toy")

    def careless(gone: object, size: int) -> list[tuple[int, int]]:
        return [(0, size)]

    path.write_bytes(DAMAGED["003.toy"])
    monkeypatch.setattr(repair_file, "_others", careless)
    with pytest.raises(lw.DamageError, match="would be damaged"):
        lw.repair(path, tmp_path / "out.toy")
    assert not (tmp_path / "out.toy").exists()


def test_repair_from_a_store_without_rename(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import fs

    from logwright.readers import listing, paths, source

    def far(uri: str) -> tuple[fs.LocalFileSystem, str]:
        return fs.LocalFileSystem(), uri.removeprefix("far://")

    for module in (source, listing, paths):
        monkeypatch.setattr(module, "file_system", far)
    lw.repair(f"far://{store}", tmp_path / "out")
    assert read_files(tmp_path / "out") == SALVAGED
    with pytest.raises(lw.UsageError, match="only local"):
        lw.repair(f"far://{store}", in_place=True, backup=tmp_path / "backup")
    lw.repair(f"far://{store}/003.toy", tmp_path / "005.toy")
    assert (tmp_path / "005.toy").read_bytes() == joined(3, 5, 6)
    with pytest.raises(lw.UsageError, match="only local"):
        lw.repair(f"far://{store}/003.toy", in_place=True, backup=tmp_path / "backup")
    assert read_files(store) == DAMAGED
