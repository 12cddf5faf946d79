"""The simulated start equals what a real broker did with the golden partitions, after a clean stop and after an unclean one."""

from __future__ import annotations

import hashlib
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kafka_golden import CASES, of_class

import logwright as lw
from logwright.codec import registry
from logwright.codec.engine.startup import Started
from logwright.codec.kafka.names import EPOCH_FILE, METADATA_FILE
from logwright.codec.option import Options
from logwright.corpora.cases import Case
from logwright.readers.listing import LocalDirectory

LAYOUT = registry.get_layout("kafka.partition")

SETTINGS = {
    "index.interval.bytes": 250,
    "segment.index.bytes": 4096,
    "producer.id.expiration.ms": 2147483647,
    "now": 1795300000000,
}
"""Settings of the broker that judged."""
RUNS = {"no_marker": False, "marker": True}

OUTSIDE = {"dmg_pm_other": "another topic id than the cluster's metadata has: option topic.id gives it"}
"""Causes outside of the files."""
CHANGES_AFTERWARDS = {
    "dmg_pm_missing": "renamed, and served again without a record",
    "dmg_batch_swapped": "its consumer gets the same records over and over",
}

MINE = [
    (case, run)
    for case in of_class("legal", "refused", "damaged")
    for run in RUNS
    if case.name not in OUTSIDE and run in case.runs
]
IDS = [f"{case.name}-{run}" for case, run in MINE]


def opened(directory: Path, clean: bool | None, **options: Any) -> Started:
    listing = LocalDirectory(str(directory))
    startup_options = Options(LAYOUT.read_options, {**SETTINGS, **options})
    return LAYOUT.capabilities.predict.run(
        listing, LAYOUT.plan(listing, startup_options), startup_options, version=None, clean=clean
    )


def consumed(case: Case, run: str, view: str) -> list[int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lw.DamageWarning)
        table = lw.read(
            case.partition, view=view, columns="offset", mode="AS_SYSTEM", clean=RUNS[run], **SETTINGS
        )
    return list(table["offset"].to_pylist())


def ranges(offsets: list[int]) -> list[list[int]]:
    out: list[list[int]] = []
    for offset in offsets:
        if out and out[-1][1] + 1 == offset:
            out[-1][1] = offset
        else:
            out.append([offset, offset])
    return out


def scope(run: Mapping[str, Any], directory: str) -> str | None:
    """Return the scope of the failure."""
    if not run["started"]:
        return "process"
    if run["log_dir_offline"]:
        return "log_dir"
    return None if directory in run["partition_dirs_after"] else "partition"


@pytest.mark.parametrize(("case", "run"), MINE, ids=IDS)
def test_prediction_of_the_start_equals_the_brokers(case: Case, run: str) -> None:
    verdict = opened(case.partition, RUNS[run]).verdict
    expected = scope(case.runs[run], case.partition.name)
    assert (verdict.opens, verdict.scope) == (expected is None, expected), verdict.error
    assert verdict.clean is RUNS[run]
    if expected is not None:
        data = "\n".join(case.runs[run]["log"])
        # The broker logs a stray partition; it throws no exception.
        assert verdict.error
        assert verdict.error_class is None or f"{verdict.error_class}: {verdict.error}".strip() in data


@pytest.mark.alike
@pytest.mark.parametrize(("case", "run"), MINE, ids=IDS)
def test_predicted_files_equal_those_after_the_start(case: Case, run: str) -> None:
    """Names, and every byte of truncated and rewritten files, except the leader epochs, to which a leading broker appends."""
    started, real = opened(case.partition, RUNS[run]), case.runs[run]
    if not started.verdict.opens:
        return
    before = {path.name: path.read_bytes() for path in case.partition.iterdir()}
    expected = set(before) - set(real["files_removed"])
    expected |= {name for name in real["files_after"] if not name.endswith(".deleted")}
    names = {entry.name for entry in started.after.entries()}
    assert names == expected
    for name in sorted(names - {EPOCH_FILE}):
        content = started.after.read(name)
        if name in real["files_after"]:
            assert hashlib.sha256(content).hexdigest() == real["files_after"][name]["sha256"], name
        else:
            assert content == before[name], name
    assert started.verdict.truncates == {
        name: len(started.after.read(name))
        for name in before
        if name in names
        and len(started.after.read(name)) < len(before[name])
        and before[name].startswith(started.after.read(name))
        and name in started.verdict.truncates
    }
    logs = {name for name in before if name.endswith(".log") and name in names}
    cut = {name for name in logs if len(started.after.read(name)) < len(before[name])}
    assert cut <= set(started.verdict.truncates) | set(started.verdict.rewrites)


CONSUMED = [
    (case, run)
    for case, run in MINE
    if case.runs[run].get("consumer")
    and case.name not in CHANGES_AFTERWARDS
    and scope(case.runs[run], case.partition.name) is None
]


@pytest.mark.alike
@pytest.mark.parametrize(("case", "run"), CONSUMED, ids=[f"{case.name}-{run}" for case, run in CONSUMED])
def test_served_rows_equal_those_of_the_real_consumer(case: Case, run: str) -> None:
    for view, real in case.runs[run]["consumer"].items():
        assert ranges(consumed(case, run, view)) == real["offset_ranges"], view
        if view != "read_uncommitted":
            continue
        verdict = opened(case.partition, RUNS[run]).verdict
        assert verdict.rows == real["count"]
        assert (verdict.serves["stops_at"] is not None) == bool(real.get("error"))
        if real.get("error"):
            assert verdict.serves["stops_at"] == real["position"]


def test_repeated_records_are_returned_once() -> None:
    """The real consumer never ends here; the verdict says where, and each record is returned once."""
    case = CASES["dmg_batch_swapped"]
    verdict = opened(case.partition, True).verdict
    assert verdict.opens
    assert verdict.serves["stops_at"] is not None
    assert "no progress" in str(verdict.error)
    real = case.runs["marker"]["consumer"]["read_uncommitted"]["offset_ranges"]
    assert ranges(consumed(case, "marker", "read_uncommitted"))[:2] == real[:2]


def test_topic_of_another_id_is_stray() -> None:
    case = CASES["dmg_pm_other"]
    assert opened(case.partition, True).verdict.opens
    verdict = opened(case.partition, True, **{"topic.id": "AAAAAAAAAAAAAAAAAAAAAQ"}).verdict
    assert (verdict.opens, verdict.scope) == (False, "partition")
    assert scope(case.runs["marker"], case.partition.name) == "partition"


@pytest.mark.parametrize("case", of_class("healthy"), ids=lambda case: case.name)
def test_healthy_partitions_lose_nothing(case: Case, tmp_path: Path) -> None:
    for partition in case.partitions:
        directory = tmp_path / partition.name
        shutil.copytree(partition, directory)
        if not (directory / METADATA_FILE).exists():
            # Written before topic ids existed.
            verdict = opened(directory, True).verdict
            assert (verdict.opens, verdict.scope) == (False, "partition")
            (directory / METADATA_FILE).write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
        for clean in (False,) if case.about.get("unclean") else (True, False):
            verdict = opened(directory, clean, **start_of(case)).verdict
            assert verdict.opens, verdict.error
            assert verdict.rows_lost == 0
            assert not [name for name in verdict.removes if name.endswith(".log")]
            if not case.about.get("unclean"):
                assert not verdict.truncates
        records = case.records()
        if records is not None and len(case.partitions) == 1:
            assert verdict.rows == len(records)


def start_of(case: Case) -> dict[str, int]:
    """Return the log start offset of a partition whose first records were deleted."""
    served = case.runs.get("served", {}).get("consumer", {}).get("read_uncommitted")
    return {} if served is None else {"log.start.offset": served["log_start_offset"]}


def test_lost_rows_are_reported() -> None:
    """The broker truncates an old segment and deletes the later ones: all sound records after the damage are reported, with times."""
    case = CASES["dmg_zero_old_tail"]
    verdict = opened(case.partition, False).verdict
    assert verdict.truncates == {"00000000000000000030.log": 1871}
    assert {"00000000000000000058.log", "00000000000000000086.log"} <= {*verdict.removes}
    assert verdict.rows_lost == 39
    (gone,) = verdict.lost
    assert (gone["topic"], gone["first_offset"], gone["last_offset"]) == (case.name, 58, 96)
    assert 0 < gone["first_timestamp"] <= gone["last_timestamp"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dmg_torn_append", "40 bytes that are not a batch stay at the end"),
        ("dmg_zero_tail_12", "12 bytes that are not a batch stay at the end"),
        ("dmg_index_stale", "offsets from 86 on are assigned again"),
    ],
)
def test_failure_of_the_next_append_is_reported(name: str, message: str) -> None:
    """A start after a clean stop does not verify, so the broker gives no warning."""
    case = CASES[name]
    assert any(message in warning for warning in opened(case.partition, True).verdict.warnings)
    assert not any(message in warning for warning in opened(case.partition, False).verdict.warnings)


def test_clean_shutdown_marker_is_used(tmp_path: Path) -> None:
    case = CASES["dmg_flip_payload"]
    place = tmp_path / case.partition.name
    shutil.copytree(case.partition, place)
    verdict = opened(place, None).verdict
    assert (verdict.clean, verdict.clean_from) == (False, ".kafka_cleanshutdown does not exist")
    (tmp_path / ".kafka_cleanshutdown").write_text("{}")
    verdict = opened(place, None).verdict
    assert (verdict.clean, verdict.clean_from) == (True, ".kafka_cleanshutdown exists")
    assert opened(place, False).verdict.clean_from == "option"


def test_unknown_version_is_refused() -> None:
    with pytest.raises(lw.UsageError, match=r"4\.3"):
        lw.read(CASES["dmg_base"].partition, mode="AS_SYSTEM", as_system="0.8")


def test_single_file_has_no_system() -> None:
    log = next(CASES["dmg_base"].partition.glob("*.log"))
    for view in ("rows", "files"):
        with pytest.raises(lw.UsageError, match=f"mode AS_SYSTEM has no view '{view}'"):
            lw.read(CASES["dmg_base"].partition, mode="AS_SYSTEM", view=view)
    with pytest.raises(lw.UsageError, match="AS_SYSTEM reads a directory, but this is a file"):
        lw.read(log, mode="AS_SYSTEM")
    with pytest.raises(lw.UsageError, match="AS_SYSTEM"):
        lw.read(CASES["dmg_base"].partition, clean=True)


def test_only_own_views_are_served() -> None:
    with pytest.raises(lw.UsageError, match="read_committed"):
        lw.read(CASES["dmg_base"].partition, view="files", mode="AS_SYSTEM")


def test_refused_start_is_raised_in_the_words_of_the_broker() -> None:
    case = CASES["dmg_seg_alpha"]
    with pytest.raises(lw.DamageError, match=r'NumberFormatException: For input string: "foo"'):
        lw.read(case.partition, mode="AS_SYSTEM")
