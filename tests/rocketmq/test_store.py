"""Read and check golden stores through the public functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden_stores import CASES, HEALTHY, first, runs, store
from stores import faults_of, path_options, placed

import logwright as lw
from logwright.codec.rocketmq.check import store as check

SILENT = (
    *("dmg_cl_props_last", "dmg_cl_props_old", "dmg_cl_storets0_last", "dmg_cl_storets_future"),
    *("dmg_cl_blank_size", "dmg_cl_blank_small", "dmg_cl_missing_first"),
    *("dmg_cl_zero_file_after", "dmg_cl_zero_len_after", "dmg_cl_unpadded"),
)
"""Damage in fields that no checksum covers, blank records of a wrong size (no loss), a first file that may have expired, and empty or
badly named files."""


@pytest.mark.parametrize("case", [case for case in HEALTHY if case not in ("empty",)])
def test_messages_of_a_healthy_store_equal_the_real_ones(case: str, tmp_path: Path) -> None:
    home = placed(case, tmp_path)
    table = lw.read(home, "rocketmq.store", columns="*", **path_options(case, home))
    rows = {row["physical_offset"]: row for row in table.to_pylist()}
    for line in first(case).lines.get("message", []):
        if line.get("decoded", True):
            row = rows[line["phy"]]
            assert (row["flag"], row["sys_flag"], row["tags"]) == (
                line["flag"],
                line["sys_flag"],
                line["tags"],
            )
            assert row["store_timestamp_ms"] == line["store_ts"]
    assert table["physical_offset"].to_pylist() == sorted(rows)


@pytest.mark.parametrize("case", [case for case in HEALTHY if not case.startswith("hand") and case != "live"])
def test_healthy_store_has_no_faults(case: str, tmp_path: Path) -> None:
    home = placed(case, tmp_path)
    report = lw.verify(home, "rocketmq.store", **path_options(case, home))
    assert report.ok, report.text()


@pytest.mark.parametrize("case", [case for case in HEALTHY if "query" in first(case).lines])
def test_key_is_found_in_the_index(case: str, tmp_path: Path) -> None:
    home = placed(case, tmp_path)
    run = first(case)
    if run.store["abort_file"] or not any(name.startswith("index/") for name in store(case)):
        pytest.skip("the real store created another index before the query")
    for line in run.lines["query"][:6]:
        key = f"{line['topic']}#{line['key']}"
        table = lw.read(home, "rocketmq.store", view="index", key=key, **path_options(case, home))
        assert set(line["phys"]) <= set(table["physical_offset"].to_pylist())


def test_queues_have_the_offsets_of_the_real_store_and_its_consumers(tmp_path: Path) -> None:
    home = placed("broker_e2e", tmp_path)
    rows = lw.read(home, view="queues").to_pylist()
    assert lw.read(home, view="queues", mode="AS_SYSTEM").to_pylist() == [
        row for row in rows if row["messages"]
    ]
    recorded = {(line["topic"], line["queue"]): line for line in first("broker_e2e").lines["queue"]}
    for row in rows:
        line = recorded[row["topic"], row["queue_id"]]
        assert (row["min_offset"] or 0, row["max_offset"] or 0) == (line["min"], line["max"])
    (queue,) = (row for row in rows if (row["topic"], row["queue_id"]) == ("TopicTest", 1))
    assert queue["consumer_offsets"] == [{"group": "cg0", "offset": 22}]


UNREPORTED = (
    *(
        "dmg_base",
        "dmgk_base",
        "dmgk_plain",
        "dmg_abort_only",
        "dmg_cl_missing_first",
        "dmg_cl_zero_file_after",
    ),
    *("dmg_cp_index_time", "dmg_cp_past", "dmg_cp_zero"),
    *("dmg_cp_missing", "dmgk_cp_missing", "dmg_cq_foreign_dirs", "dmg_idx_names"),
    *("dmg_cq_missing_all", "dmg_cq_index_missing", "dmg_cq_index_cp_missing"),
    *("dmg_idx_missing_all", "dmg_idx_missing_first", "dmg_idx_missing_last"),
)
"""No damage, times that nothing contradicts, files that a broker ignores, and missing files that it makes again."""


@pytest.mark.alike
@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("dmg")])
def test_damage_is_reported_unless_a_file_is_missing_or_nothing_contradicts_a_time(
    case: str, tmp_path: Path
) -> None:
    assert bool(faults_of(placed(case, tmp_path))) == (case not in UNREPORTED)


@pytest.mark.alike
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.startswith(("dmg_cl", "dmgk_body", "dmgk_torn"))]
)
def test_damage_of_the_log_is_reported_unless_it_loses_nothing(case: str, tmp_path: Path) -> None:
    report = lw.verify(placed(case, tmp_path), "rocketmq.store")
    assert report.ok == (case in SILENT), report.text()


@pytest.mark.parametrize(
    "case",
    [
        "dmg_cq_zero_unit",
        "dmg_cq_behind_one",
        "dmg_cq_garbage_offset",
        "dmg_cq_size_field",
        "dmg_cq_dup",
        "dmg_cq_missing_one",
    ],
)
def test_queue_that_contradicts_the_log_is_an_error(case: str, tmp_path: Path) -> None:
    report = lw.verify(placed(case, tmp_path), "rocketmq.store")
    assert not report.ok


@pytest.mark.alike
@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize(
    "case",
    ["basic", "dmg_cl_body_last", "dmg_cl_body_old", "dmg_cl_magic_old", "dmg_cq_missing_one", "multipath"],
)
def test_mode_as_system_returns_the_messages_that_consumers_get(case: str, tmp_path: Path) -> None:
    home = placed(case, tmp_path)
    for version in ("5.5.0", "5.3.3"):
        run = runs(case)[f"{version} clean"]
        sizes = {
            name: value for name, value in CASES[case]["config"].items() if name.startswith(("mapped", "max"))
        }
        chosen = {**sizes, **path_options(case, home)}
        table = lw.read(home, "rocketmq.store", mode="AS_SYSTEM", as_system=version, **chosen)
        report = lw.verify(home, "rocketmq.store", as_system=version, **chosen)
        assert report.system is not None
        assert report.system["rows"] == table.num_rows
        undecoded = [line for line in run.lines.get("message", []) if line.get("decoded") is False]
        assert table.num_rows == run.store["readable"] - len(undecoded)


@pytest.mark.alike
@pytest.mark.parametrize(
    "case",
    ["lmq", "batchcq", "dmg_cl_queueoffset_old", "dmg_cl_missing_mid", "dmg_cq_dup", "dmg_cq_missing_one", "dmg_cq_zero_unit_old"],
)  # fmt: skip
def test_faults_do_not_depend_on_how_many_messages_are_compared_at_a_time(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = placed(case, tmp_path)
    expected = lw.verify(home, "rocketmq.store").faults
    for block in (1, 3):
        monkeypatch.setattr(check, "_BLOCK", block)
        assert lw.verify(home, "rocketmq.store").faults == expected


def test_check_of_a_healthy_store_keeps_two_messages_per_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_BLOCK", 100)
    checkers = []
    create = check.StoreChecker.__init__

    def recorded(self: check.StoreChecker, *args: Any) -> None:
        create(self, *args)
        checkers.append(self)

    monkeypatch.setattr(check.StoreChecker, "__init__", recorded)
    rows = [{"topic": "T", "queue_id": n % 3, "body": b"x"} for n in range(3000)]
    sizes = {"mappedFileSizeCommitLog": 1 << 16, "mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 9}
    lw.write(rows, tmp_path / "store", "rocketmq.store", **sizes, maxIndexNum=10)
    assert lw.verify(tmp_path / "store", "rocketmq.store").ok
    kept = [run.phy for checker in checkers for runs in checker._runs.values() for run in runs]
    assert list(map(len, kept)) == [2, 2, 2]
