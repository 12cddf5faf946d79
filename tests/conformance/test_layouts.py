"""The conformance suite: what every layout of the registry keeps, on its sample directory. Nothing here names a layout.

A layout takes part by being registered with a sample in `DIRECTORY_SAMPLES` of `roundtrip/<system>/specimens.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from explanations import check_covers_file

import logwright as lw
from logwright.codec import registry
from logwright.codec.store.build import Piece
from logwright.readers.prefetch import Prefetcher
from logwright.readers.stream import Mode
from logwright.roundtrip import trust
from logwright.roundtrip.sample import DirectorySample
from logwright.roundtrip.specimens import DIRECTORY_SAMPLES
from logwright.writers import write

each_layout = pytest.mark.parametrize("box", DIRECTORY_SAMPLES, ids=lambda box: box.layout)


@pytest.fixture
def directory(box: DirectorySample, tmp_path: Path) -> Path:
    """The sample, written in two steps: new, and appended to."""
    path = tmp_path / box.name
    lw.write(list(box.old), path, box.layout, **box.options)
    lw.write(list(box.new), path, box.layout, mode="append", **box.options)
    return path


def keys(box: DirectorySample, path: Path, **options: Any) -> list[Any]:
    rows = lw.read(path, columns=box.key, **options)[box.key].to_pylist()
    return [value for value in rows if value not in box.own]


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@each_layout
def test_written_rows_are_read_in_every_mode(box: DirectorySample, directory: Path) -> None:
    written = [row[box.key] for row in (*box.old, *box.new)]
    for mode in Mode:
        assert sorted(keys(box, directory, mode=mode)) == sorted(written), mode


@each_layout
def test_pieces_keep_their_bytes_while_later_ones_are_computed(
    box: DirectorySample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`write` computes pieces in a thread while it writes earlier ones. Here all are computed before the first is written."""
    counts: list[int] = []

    def all_at_once(
        prefetcher: Prefetcher, pieces: Callable[[], Iterator[Piece]], size: int
    ) -> Iterator[Piece]:
        computed = list(pieces())
        counts.append(len(computed))
        return iter(computed)

    monkeypatch.setattr(write, "_ahead", all_at_once)
    rows, path = [*box.old, *box.new], tmp_path / box.name
    lw.write(rows, path, box.layout, **box.options)
    assert max(counts) > 3
    assert lw.verify(path).ok
    assert sorted(keys(box, path)) == sorted(row[box.key] for row in rows)


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@each_layout
def test_rows_of_every_view_are_counted_without_columns(box: DirectorySample, directory: Path) -> None:
    for view in (*registry.get_layout(box.layout).views, "files"):
        if view not in box.payload_views:
            rows = lw.read(directory, view=view).num_rows
            assert lw.read(directory, view=view, columns=[]).num_rows == rows, view
    assert lw.diff(directory, directory).text().endswith(f"equal: {lw.read(directory).num_rows} rows")


@pytest.mark.alike
@each_layout
def test_parallel_jobs_give_the_same_rows(box: DirectorySample, directory: Path) -> None:
    assert keys(box, directory, jobs=2) == keys(box, directory)


@each_layout
def test_every_view_is_read_without_faults(box: DirectorySample, directory: Path) -> None:
    report = lw.verify(directory)
    assert report.ok, report.text()
    for view in (*registry.get_layout(box.layout).views, "files"):
        if view in box.payload_views:
            continue
        scan = lw.scan(directory, view=view)
        scan.to_table()
        assert scan.report.ok


SYSTEM_KEYS = {
    "name", "version", "clean", "clean_from", "opens", "scope", "error", "error_class", "rows", "rows_lost", "lost", "serves",
    "truncates", "removes", "rewrites", "creates", "warnings",
}  # fmt: skip
FAULT_KEYS = {"offset", "length", "kind", "severity", "detail", "rows_lost", "lost", "system"}
CUT_KEYS = {"file", "offset", "length", "saved_to", "why", "rows_lost", "lost"}


@each_layout
def test_reports_have_the_documented_keys(box: DirectorySample, directory: Path, tmp_path: Path) -> None:
    sound = lw.verify(directory, as_system=True).system
    for file in lw.read(directory, view="files").to_pylist():
        if file["role"] == "primary" and file["size"]:
            middle = file["size"] // 2
            with (directory / file["name"]).open("r+b") as stream:
                stream.seek(middle)
                stream.write(b"\xff" * min(20, file["size"] - middle))
    report = lw.repair(directory, tmp_path / "repaired" / box.name)
    for system in (sound, lw.verify(directory, as_system=True).system):
        assert set(system) >= SYSTEM_KEYS
        assert {"first", "last", "stops_at"} <= set(system["serves"])
        assert system["scope"] in ("process", "log_dir", "partition", None)
    faults = [fault for file in report["files"] for fault in file["faults"]]
    assert faults
    assert all(set(fault) >= FAULT_KEYS for fault in faults)
    assert all(set(kept) >= {"file", "offset", "length"} for kept in report["kept"])
    assert all(set(cut) >= CUT_KEYS for cut in report["cut"])


@each_layout
def test_every_byte_of_its_files_is_explained_once(box: DirectorySample, directory: Path) -> None:
    actual = 0
    for file in sorted(path for path in directory.rglob("*") if path.is_file()):
        if registry.detect(file.name, file.read_bytes()[:4096]) is not None:
            check_covers_file(lw.explain(file), file.read_bytes())
            actual += 1
    assert actual


@each_layout
def test_simulated_start_loses_nothing(box: DirectorySample, directory: Path) -> None:
    if registry.get_layout(box.layout).capabilities.predict is None:
        pytest.skip("the layout does not predict what the system would do")
    system = lw.verify(directory, as_system=True).system
    assert system is not None
    assert system["opens"]
    assert system["rows_lost"] == 0


@each_layout
def test_repair_of_a_sound_directory_keeps_its_bytes(
    box: DirectorySample, directory: Path, tmp_path: Path
) -> None:
    """Except leftovers, which the system would remove too."""
    if registry.get_layout(box.layout).capabilities.repair is None:
        pytest.skip("the layout has no repair")
    repaired = tmp_path / "repaired" / box.name
    repaired.parent.mkdir()
    lw.repair(directory, repaired)
    assert contents(repaired).items() <= contents(directory).items()
    assert keys(box, repaired) == keys(box, directory)


@each_layout
@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_rows_lost_to_damage_are_reported(box: DirectorySample, directory: Path, tmp_path: Path) -> None:
    written = [row[box.key] for row in (*box.old, *box.new)]
    for seed in range(6):
        place = Path(lw.damage(directory, tmp_path / str(seed), seed=seed, count=2).path)
        actual = keys(box, place, mode="DROPMALFORMED")
        if any(value not in actual for value in written):
            assert lw.verify(place).faults, seed


WAYS = [f"{mode}{by}" for by in ("", " by tasks") for mode in ("new", "append", "overwrite")]
WAYS += ["overwrite without exchange", "overwrite by tasks without exchange"]


@each_layout
@pytest.mark.parametrize(
    ("step", "least"),
    [pytest.param(3, 33, marks=pytest.mark.extended), pytest.param(1, 100, marks=pytest.mark.nightly)],
)
@pytest.mark.parametrize("way", WAYS)
def test_write_survives_any_failure_and_crash(box: DirectorySample, way: str, step: int, least: int) -> None:
    """The old or the new rows are there, and the next writer removes leftovers: see `trust.writing_directory`."""
    figures = trust.writing_directory(box, [way], step=step)
    assert figures.failures > least
    assert figures.crashes > least


@pytest.mark.alike
@pytest.mark.parametrize(("step", "least"), [(21, 4), pytest.param(7, 14, marks=pytest.mark.extended)])
@each_layout
def test_append_survives_failures_and_crashes_at_some_operations(
    box: DirectorySample, step: int, least: int
) -> None:
    figures = trust.writing_directory(box, ["append"], step=step)
    assert figures.failures > least
    assert figures.crashes > least
