"""What real releases do when they are started on the golden stores: each run of each case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden_stores import CASES, HOME, Run, directory, readable, runs
from stores import INDEX

import logwright as lw
from logwright.codec.engine.startup import Started
from logwright.codec.option import Options
from logwright.codec.rocketmq.startup import message_store
from logwright.codec.rocketmq.startup.message import string_hash
from logwright.codec.rocketmq.startup.start import STARTUP, VERSIONS, ServedStore
from logwright.codec.rocketmq.store.layout import LAYOUT

_FOLDERS = ("commitlog", "consumequeue", "batchconsumequeue", "consumequeue_ext")
_MINIMAL = "commit log files only"


def options(case: str, run: Run | None = None) -> Options:
    known = {option.name for option in LAYOUT.read_options} - {"storePathCommitLog"}
    inputs = CASES[case]["config"] | ((run.store.get("config_extra") or {}) if run else {})
    return Options(LAYOUT.read_options, {name: value for name, value in inputs.items() if name in known})


def started(case: str, run: Run) -> Started:
    listing = directory(case, logs_only=run.store.get("opened") == _MINIMAL)
    chosen = options(case, run)
    clean = not run.store["abort_file"]
    return STARTUP.run(
        listing, LAYOUT.plan(listing, chosen), chosen, version=run.store["reader"], clean=clean
    )


def simulated(case: str) -> list[Run]:
    """Return the runs of simulated releases, except those on files an earlier run left."""
    return [
        run
        for run in runs(case).values()
        if run.store["reader"] in VERSIONS and run.store.get("opened", _MINIMAL) == _MINIMAL
    ]


def sizes(files: dict[str, int]) -> dict[str, int]:
    return {
        name.replace("disk1/", "").replace("disk2/commitlog", "storePathCommitLog-2"): size
        for name, size in files.items()
        if name.replace("disk1/", "").replace("disk2/", "").partition("/")[0]
        in (*_FOLDERS, "storePathCommitLog-2")
    }


@pytest.mark.parametrize("case", CASES)
def test_predicted_start_equals_each_releases(case: str) -> None:
    for run in simulated(case):
        start = started(case, run)
        store = run.store
        assert start.verdict.opens == store["load"], run.name
        if not store["load"]:
            continue
        served = start.served
        assert isinstance(served, ServedStore)
        assert (served.store.log.min_offset, served.store.max_phy) == (store["min_phy"], store["max_phy"]), (
            run.name
        )
        after = {entry.name: entry.size for entry in start.after.entries()}
        assert sizes(after) == sizes(store["files_open"]), run.name
        if "files_deleted" in store:
            gone = {name for name in start.after.removed if not name.startswith("abort")}
            assert gone == {name for name in store["files_deleted"] if not name.startswith("abort")}, run.name
        expected = readable(case, run)
        actual = [
            [topic, queue_id, unit.number, unit.phy, unit.size]
            for (topic, queue_id), unit in served.store.read_all()
        ]
        if expected is None:
            assert len(actual) == store["readable"], run.name
        else:
            # Releases 4.x do not report the queue offset.
            old = store["reader"].startswith("4")
            assert sorted(_plain(actual, old)) == sorted(_plain(expected, old)), run.name


@pytest.mark.alike
@pytest.mark.parametrize("case", [case for case in CASES if case.startswith(("dmg_cl_c", "dmg_cl_body"))])
def test_start_does_not_depend_on_how_much_of_the_log_is_read_at_a_time(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in simulated(case):
        before = started(case, run)
        with monkeypatch.context() as patched:
            patched.setattr(message_store, "_WINDOW", 1)
            after = started(case, run)
        assert after.verdict == before.verdict
        if isinstance(before.served, ServedStore) and isinstance(after.served, ServedStore):
            assert after.served.store.ended == before.served.store.ended
            assert after.served.messages.tolist() == before.served.messages.tolist()


def _plain(units: list[list[Any]], old: bool) -> list[list[Any]]:
    return [[*unit[:2], *unit[3 if old else 2 :]] for unit in units]


@pytest.mark.alike
@pytest.mark.parametrize("case", CASES)
def test_queues_and_keys_equal_the_real_stores(case: str) -> None:
    for run in simulated(case):
        served = started(case, run).served if run.store["load"] else None
        for line in run.lines.get("queue", []) if isinstance(served, ServedStore) else ():
            queue = served.store.queues[line["topic"], line["queue"]]
            assert (queue.min_offset, queue.max_offset) == (line["min"], line["max"]), run.name
        for line in run.lines.get("query", []) if isinstance(served, ServedStore) else ():
            if not _same_name(served, run):
                assert served.store.query(line["topic"], line["key"], 64) == line["phys"], (
                    run.name,
                    line["key"],
                )


def _same_name(served: ServedStore, run: Run) -> bool:
    """Return whether a run has fewer index files than it created: two created in the same millisecond have the same name."""
    return len(served.store.index.files) > sum(name.startswith("index/") for name in run.store["files_open"])


@pytest.mark.parametrize("case", [path.parent.name for path in sorted(HOME.glob("*/after"))])
def test_rebuilt_files_equal_the_real_stores(case: str) -> None:
    """Compare the bytes, but not the names of index files, which are times."""
    for run in simulated(case):
        home = HOME / case / "after" / run.store["reader"]
        if run.store.get("opened") != _MINIMAL or run.store["abort_file"] or not home.exists():
            continue
        start = started(case, run)
        after = start.after
        for path in sorted(home.rglob("*")):
            name = str(path.relative_to(home))
            if path.is_file() and not name.startswith("index/"):
                assert after.read(name) == path.read_bytes(), (run.name, name)
        indexes = [after.read(entry.name) for entry in after.entries() if entry.name.startswith("index/")]
        assert isinstance(start.served, ServedStore)
        if not _same_name(start.served, run):
            assert indexes == [path.read_bytes() for path in sorted(home.glob("index/*"))], run.name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("TopicA#k1", -1903240649),
        ("标签", 857175),
        ("😀", 1772899),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_hash_of_text_equals_javas(text: str, expected: int) -> None:
    assert string_hash(text) == expected


@pytest.mark.parametrize(("version", "served"), [("5.5.0", 0), ("4.9.7", 1)])
def test_messages_of_a_renamed_log_file_are_lost_for_consumers(
    version: str, served: int, tmp_path: Path
) -> None:
    """A broker adds them to queues with their physical offsets, which are not in the file. Old ones read offset 0 in the first file."""
    rows = [{"topic": "T", "body": b"x" * 50, "store_timestamp_ms": 1_700_000_000_000 + n} for n in range(9)]
    lw.write(rows, tmp_path / "store", "rocketmq.store", mappedFileSizeCommitLog=4096, **INDEX)
    (log,) = (tmp_path / "store/commitlog").iterdir()
    log.rename(log.with_name(f"{4096:020d}"))
    for clean in (True, False):
        system = lw.verify(tmp_path / "store", as_system=version, clean=clean, **INDEX).system
        assert system is not None
        assert (system["rows"], system["rows_lost"]) == (served, len(rows) - served)
