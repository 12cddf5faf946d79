"""Every golden file, sound or damaged, reencodes byte for byte, reads as the description says, and gives the same rows for any splits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logwright.codec import registry
from logwright.codec.leveldb.formats.records import log_reader
from logwright.corpora import cases
from logwright.roundtrip import laws
from logwright.roundtrip.specimen import Specimen

CASES = cases.cases("leveldb")


def _parts(path: Path) -> tuple[str, ...]:
    return path.relative_to(CASES["empty"].path.parent).parts


def _case(path: Path) -> Any:
    """Return the first line of the truth of the case that a file is from."""
    with (CASES[_parts(path)[0]].path / "truth.jsonl").open() as lines:
        return json.loads(next(lines))


def _files() -> list[Path]:
    """Return the files of known kinds: without LOCK, and without LOG, which is text for the user."""
    paths = []
    for case in CASES.values():
        for path in sorted((case.path / "db").rglob("*")):
            if path.is_file() and registry.detect(path.name, path.read_bytes()[:4096]) is not None:
                paths.append(path)
    return paths


FILES = _files()
SOUND = [path for path in FILES if not _case(path)["damaged"]]


def _id(path: Path) -> str:
    return "/".join(part for part in _parts(path) if part != "db")


def test_golden_files_exist() -> None:
    kinds = [Specimen.of(path).codec.name for path in FILES]
    counts = {name: kinds.count(name) for name in set(kinds)}
    assert counts == {"leveldb.log": 64, "leveldb.table": 47, "leveldb.manifest": 62, "leveldb.current": 61}
    assert len(SOUND) > 80


@pytest.mark.alike
@pytest.mark.parametrize("path", FILES, ids=_id)
def test_golden_files_decode_and_encode_to_the_same_bytes(path: Path) -> None:
    verdict = laws.decode_encode(path)
    assert verdict, verdict
    assert verdict.checked == path.stat().st_size


@pytest.mark.parametrize("path", SOUND, ids=_id)
def test_rows_alone_round_trip(path: Path) -> None:
    verdict = laws.encode_without_payloads(path)
    assert verdict, verdict


LOGS = [file for file in FILES if file.suffix == ".log" or file.name.startswith("MANIFEST")]
TABLES = [file for file in FILES if file.suffix in (".ldb", ".sst")]


# Blocks of a damaged table are known to the kernels only.
@pytest.mark.parametrize("path", [*LOGS, *(table for table in TABLES if table in SOUND)], ids=_id)
def test_kernels_equal_the_description(path: Path) -> None:
    verdict = laws.kernel_equals_description(path)
    assert verdict, verdict


def _sizes(path: Path, count: int) -> list[int]:
    size = path.stat().st_size
    return sorted({*range(1, min(size, count)), *range(1, size, max(1, size // count))})


@pytest.mark.alike
@pytest.mark.parametrize("path", [*LOGS, *TABLES], ids=_id)
def test_splits_give_each_row_once(path: Path) -> None:
    verdict = laws.any_split(path, sizes=_sizes(path, 12))
    assert verdict, verdict


@pytest.mark.nightly
@pytest.mark.parametrize("path", [*LOGS, *TABLES], ids=_id)
def test_splits_of_every_size_give_each_row_once(path: Path) -> None:
    """A log at every byte, a table at every block: splits of every size up to that of the file."""
    verdict = laws.any_split(path, sizes=range(1, path.stat().st_size + 1))
    assert verdict, verdict


@pytest.mark.parametrize("room", [1, 2, 7])
def test_records_beyond_the_initial_buffer_are_found(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are found however small the initial buffer is."""
    path = next(log for log in LOGS if log.stat().st_size > 20_000)
    before = Specimen.of(path).read(columns=None).table
    monkeypatch.setattr(log_reader, "_CAPACITY", room)
    assert Specimen.of(path).read(columns=None).table == before
    assert len(before) > 50


@pytest.mark.parametrize("first", [0, (1 << 55) - 1, (1 << 56) - 3])
def test_largest_sequence_numbers_round_trip(first: int) -> None:
    """56 bits, of which the highest is the sign bit of an internal key's tag."""
    empty = Specimen.of(b"", "leveldb.log", "000003.log", batch_size=3)
    rows = pa.table({"key": [b"a", b"b", b"c"], "sequence": pa.array([first, first + 1, first + 2])})
    rewritten = empty.with_bytes(empty.encode(rows))
    assert rewritten.read().table["sequence"].to_pylist() == [first, first + 1, first + 2]
    assert rewritten.read("records").table["count"].to_pylist() == [3]
    assert laws.decode_encode(rewritten)
