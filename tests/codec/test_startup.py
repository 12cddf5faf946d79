"""The engine that simulates the start of a system, and the overlay of a directory that a start changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from memory_directory import MemoryDirectory

from logwright.codec.engine.repair import OutputFile
from logwright.codec.engine.startup import (
    MAX_RANGES,
    Answers,
    DirectoryState,
    LostRows,
    Refused,
    Served,
    ServerDirectory,
    Settings,
    Startup,
    SystemRepair,
    lost_runs,
)
from logwright.codec.fault import DamageError, UsageError, join_lost
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy
from logwright.codec.store.listing import Plan, PlannedFile, Role
from logwright.codec.store.overlay import Overlay
from logwright.codec.store.view import Part


class Store(Served):
    """A store that serves its file "a"; `lost_rows` are lost."""

    def __init__(self, lost_rows: Iterable[LostRows] | None = None) -> None:
        self.lost_rows = lost_rows

    def answers(self) -> Answers:
        return Answers(3, {"stops_at": None}, warnings=["low on disk"])

    def lost(self) -> Iterable[LostRows] | None:
        return self.lost_rows

    def parts(self, view: str) -> Sequence[Part]:
        return [
            Part("a", "toy", "rows", {}, 1, 3),
            Part("b", "toy", "rows", {}),
            Part("new", "toy", "rows", {}),
        ]


DIRECTORY = MemoryDirectory({"a": b"0123456789", "b": b"bbb", "c": b"c"})
PLAN = Plan(tuple(PlannedFile(name, len(data), Role.PRIMARY) for name, data in DIRECTORY.files.items()))


def startup(outcome: Served | Refused, *changes: Callable[[Overlay], object]) -> Startup:
    def start(overlay: Overlay, settings: Settings) -> Served | Refused:
        for change in changes:
            change(overlay)
        return outcome

    return Startup(
        "toys", ("2.1", "2.0", "1.9"), start, refusal="no start: {reason}", advice="Ask for salvage"
    )


def run(item: Startup) -> Any:
    return item.run(DIRECTORY, PLAN, Options(()), version=None, clean=None)


CHANGES: tuple[Callable[[Overlay], object], ...] = (
    lambda disk: disk.truncate("a", 4),
    lambda disk: disk.copy("a", 1, 3, "part"),
    lambda disk: disk.put("b", b"new"),
    lambda disk: disk.delete("c"),
    lambda disk: disk.put("new", b"x"),
)


def test_verdict_lists_the_changes_of_the_overlay() -> None:
    verdict = run(startup(Store(), *CHANGES)).verdict
    assert (verdict.opens, verdict.rows, verdict.rows_lost, verdict.lost) == (True, 3, None, ())
    assert verdict.truncates == {"a": 4}
    assert (verdict.removes, verdict.rewrites, verdict.creates) == (("c",), ("b",), ("new", "part"))
    assert verdict.to_dict()["warnings"] == ["low on disk"]
    assert "mode" not in verdict.to_dict()


def test_refused_start_may_change_files() -> None:
    refused = Refused("process", "no space", "IOError", warnings=["w"], lost=lambda: [LostRows(2, {})])
    started = run(startup(refused, *CHANGES))
    verdict = started.verdict
    assert (verdict.opens, verdict.scope, verdict.error, verdict.rows) == (False, "process", "no space", 0)
    assert (verdict.rows_lost, verdict.removes, started.served) == (2, ("c",), None)
    assert started.parts("rows") == list(started.rows("rows", ())) == []
    with pytest.raises(DamageError, match="no start: IOError: no space") as caught:
        SystemRepair(started, sorted)
    assert "Ask for salvage" in str(caught.value)


def test_parts_name_the_changed_files() -> None:
    started = run(
        startup(Store(), lambda disk: disk.copy("a", 2, 8, "a"), lambda disk: disk.put("new", b"x"))
    )
    assert [(part.file, part.start, part.stop) for part in started.parts("rows")] == [
        ("a", 3, 5),
        ("b", 0, 3),
    ]


def where(start: int, stop: int) -> Mapping[str, Any]:
    return {"first_id": start, "last_id": stop - 1}


def test_consecutive_lost_rows_are_one_range() -> None:
    masks = [[True, False, True], [], [True, True, False], [False, True]]
    runs = list(lost_runs((np.array(mask, np.bool_), where) for mask in masks))
    assert [(run.rows, run.continues) for run in runs] == [(1, False), (1, False), (2, True), (1, False)]
    verdict = run(startup(Store(runs))).verdict
    assert verdict.rows_lost == 5
    assert verdict.lost == (
        {"first_id": 0, "last_id": 0}, {"first_id": 0, "last_id": 2}, {"first_id": 1, "last_id": 1},
    )  # fmt: skip


def test_lost_ranges_are_limited_but_lost_rows_are_counted() -> None:
    many = [LostRows(1, {"first_id": i, "last_id": i}) for i in range(MAX_RANGES + 5)]
    verdict = run(startup(Store([*many, LostRows(2, {"last_id": 9999}, continues=True)]))).verdict
    assert (verdict.rows_lost, len(verdict.lost)) == (MAX_RANGES + 7, MAX_RANGES)
    assert verdict.lost[-1]["last_id"] == MAX_RANGES - 1
    assert run(startup(Store([LostRows(1, {}), LostRows(None, {})]))).verdict.rows_lost is None


def test_adjacent_lost_ranges_are_joined() -> None:
    first = {"topic": "t", "first_offset": 3, "last_offset": 5, "smallest": "a", "largest": "x"}
    second = {"first_offset": 1, "last_offset": 4, "smallest": "b", "largest": "c", "last_timestamp": 7}
    assert join_lost(first, second) == {
        "topic": "t", "first_offset": 1, "last_offset": 5, "smallest": "a", "largest": "c", "last_timestamp": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        (None, "2.1"),
        ("", "2.1"),
        ("true", "2.1"),
        ("toys", "2.1"),
        ("Toys 2.0", "2.0"),
        ("v1.9.4", "1.9"),
        ("1", "1.9"),
    ],
)
def test_version_may_be_a_release_line_or_a_patch(asked: str | None, version: str) -> None:
    assert startup(Store()).version_of(asked) == version


@pytest.mark.parametrize("asked", ["3", "2.10", "1.9-rc0", "kafka"])
def test_unknown_versions_are_refused(asked: str) -> None:
    with pytest.raises(UsageError, match="unknown version") as caught:
        startup(Store()).version_of(asked, "/data")
    assert caught.value.path == "/data"


# Strategy system


def test_repair_as_the_system_leaves_the_same_files() -> None:
    repair = SystemRepair(run(startup(Store(), *CHANGES)), sorted)
    assert [(cut.file, cut.offset, cut.length) for cut in repair.cut] == [
        ("a", 4, 6),
        ("b", 0, 3),
        ("c", 0, 1),
    ]
    assert list(repair.files()) == [
        OutputFile("a", [Copy("a", 0, 4)], "a"),
        OutputFile("b", [b"new"], "b"),
        OutputFile("new", [b"x"], None),
        OutputFile("part", [Copy("a", 1, 3)], "a"),
    ]
    assert list(repair.removes) == ["c"]
    assert (repair.summary().rows, list(repair.summary().warnings)) == (3, ["low on disk"])


def test_removed_ranges_are_in_no_file_of_the_result() -> None:
    def change(disk: Overlay) -> None:
        disk.assemble("x", [Copy("a", 5, 7), b"?", Copy("a", 6, 8)])
        disk.delete("a")
        disk.delete("b")

    repair = SystemRepair(run(startup(Store(), change)), sorted)
    actual = [(file.name, start, stop) for file, start, stop in repair.removed_ranges()]
    assert actual == [("a", 0, 5), ("a", 8, 10), ("b", 0, 3)]


def test_system_may_finish_the_files_of_a_repair() -> None:
    class Careful(Store):
        def settle(self, repair: SystemRepair) -> None:
            repair.overlay.restore("c")
            repair.overlay.restore("new")
            repair.rows += 4

    repair = SystemRepair(run(startup(Careful(), *CHANGES)), sorted)
    assert [file.name for file in repair.files()] == ["a", "b", "c", "part"]
    assert (list(repair.removes), repair.cut, repair.summary().rows) == ([], [], 7)


# The start of a server


def test_files_of_a_server_are_under_the_paths_of_its_roots() -> None:
    def start(overlay: Overlay, settings: Settings) -> Served | Refused:
        assert [root.state for root in settings.roots] == [DirectoryState.DIRECTORY, DirectoryState.MISSING]
        assert settings.configuration == {"id": "1"}
        overlay.put("/data/b", overlay.read("/data/b") + b"!")
        return Store()

    roots = [
        ServerDirectory("/data", DirectoryState.DIRECTORY, listing=DIRECTORY),
        ServerDirectory("/gone", DirectoryState.MISSING),
    ]
    verdict = Startup("toys", ("2.1",), start).run_server(roots, {"id": "1"}, version=None).verdict
    assert (verdict.opens, verdict.rewrites) == (True, ("/data/b",))


# The overlay


def test_overlay_of_pieces_reads_as_one_file() -> None:
    disk = Overlay(
        DIRECTORY, [OutputFile("m", [Copy("a", 2, 5), b"-", Copy("b", 0, 1)]), OutputFile("empty", [])]
    )
    assert [(entry.name, entry.size) for entry in disk.entries()] == [("empty", 0), ("m", 5)]
    assert [disk.read("m"), disk.read("m", 1, 3), disk.read("m", 4), disk.read("m", 9), disk.read("empty")] == [
        b"234-b", b"34-", b"b", b"", b"",
    ]  # fmt: skip
    disk.truncate("m", 4)
    assert (disk.read("m"), disk.origin("m")) == (b"234-", None)
    disk.truncate("m", 2)
    assert disk.origin("m") == Copy("a", 2, 4)


def test_lazy_content_is_produced_once() -> None:
    result = []
    disk = Overlay(DIRECTORY)
    disk.put("b", lambda: result.append(1) or b"later")  # type: ignore[func-returns-value]
    assert (disk.rewritten, disk.truncated, result) == (["b"], {}, [])
    assert (disk.read("b"), disk.size("b"), disk.read("b", 1, 2), result) == (b"later", 5, b"at", [1])
    disk.truncate("b", 2)
    assert disk.read("b") == b"la"
