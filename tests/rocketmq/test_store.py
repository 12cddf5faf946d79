"""The layout `rocketmq.store`: read, check and write golden stores through the public functions."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_stores import CASES, HEALTHY, first, runs, store
from hypothesis import given
from hypothesis import strategies as st
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.codec.fault import Kind, Severity
from logwright.codec.frames.walk import MemoryFile, Walk
from logwright.codec.option import Options
from logwright.codec.rocketmq.check import store as check
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC
from logwright.codec.rocketmq.formats.consumequeue import FILLER, UNIT
from logwright.codec.rocketmq.formats.indexfile.layout import entry_at
from logwright.codec.rocketmq.formats.indexfile.slots import find_slots
from logwright.codec.rocketmq.startup.start import STARTUP
from logwright.codec.rocketmq.store.layout import LAYOUT
from logwright.codec.rocketmq.store.log import Log, find_runs

SILENT = (
    *("dmg_cl_props_last", "dmg_cl_props_old", "dmg_cl_storets0_last", "dmg_cl_storets_future"),
    *("dmg_cl_blank_size", "dmg_cl_blank_small", "dmg_cl_missing_first"),
    *("dmg_cl_zero_file_after", "dmg_cl_zero_len_after", "dmg_cl_unpadded"),
)
"""Damage in fields that no checksum covers, blank records of a wrong size (no loss), a first file that may have expired, and empty or
badly named files."""


def placed(case: str, tmp_path: Path) -> Path:
    """Copy a golden store and return its path."""
    home = tmp_path / case
    for name, path in store(case).items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        if name == "timerwheel.gz":
            (home / "timerwheel").write_bytes(gzip.decompress(path.read_bytes()))
        else:
            shutil.copyfile(path, home / name)
    home.mkdir(exist_ok=True)
    return home


def path_options(case: str, home: Path) -> dict[str, Any]:
    """Return the option for several commit log paths, if the store has them."""
    paths = CASES[case]["config"].get("storePathCommitLog")
    return {} if paths is None else {"storePathCommitLog": paths.replace("@ROOT@", str(home))}


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


def test_zeros_after_a_blank_record_are_not_mentioned(tmp_path: Path) -> None:
    """Old brokers leave other bytes there."""
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **SIZES)
    full, *_, last = sorted((tmp_path / "store/commitlog").iterdir())
    assert not lw.verify(full).files[0].faults
    assert [fault.detail for fault in lw.verify(last).files[0].faults] == ["preallocated zeros"]
    data = bytearray(full.read_bytes())
    data[-1] = 7
    full.write_bytes(data)
    (fault,) = lw.verify(full).files[0].faults
    assert (fault.detail, str(fault.severity)) == ("undefined bytes after the blank record", "info")


def test_check_reads_an_undamaged_log_of_several_files_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second pass searches for messages in the wrong place. A blank record at the end of a file is no missing message."""
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **SIZES)
    full, *_ = sorted((tmp_path / "store/commitlog").iterdir())
    searches = []
    search = Log.read
    monkeypatch.setattr(Log, "read", lambda log: searches.append(log) or search(log))
    assert lw.verify(tmp_path / "store", "rocketmq.store").ok
    assert not searches
    second = int.from_bytes(full.read_bytes()[:4], "big")
    flip(full, second + 4)
    lw.verify(tmp_path / "store", "rocketmq.store")
    assert searches


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


def faults_of(store: Path) -> list[tuple[str, int, str]]:
    """Return path, offset and text of the errors and warnings of a check."""
    return [
        (path, fault.offset, fault.detail) for path, fault in lw.verify(store).faults if fault.severity is not Severity.INFO
    ]  # fmt: skip


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


def test_configuration_file_names_the_store(tmp_path: Path) -> None:
    home = placed("basic", tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"brokerName=a\nstorePathRootDir={home}\nstorePathCommitLog={home}/commitlog\nmappedFileSizeCommitLog=4096\n"
    )
    assert lw.read(conf).num_rows == 14


def test_errors_of_settings_and_sizes_name_the_file(tmp_path: Path) -> None:
    home = placed("basic", tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={home}\nmappedFileSizeCommitLog=4k0\n")
    with pytest.raises(lw.UsageError) as invalid:
        lw.read(conf)
    assert str(invalid.value).startswith(f"{conf}: option mappedFileSizeCommitLog: '4k0' is not valid")
    with pytest.raises(lw.DamageError) as other:
        lw.read(home, mappedFileSizeCommitLog=1000)
    assert other.value.path == f"{home}/commitlog/{0:020d}"
    conf.write_text(f"storePathRootDir={tmp_path}/gone\n")
    with pytest.raises(lw.UsageError, match="If the data has moved, pass its directory"):
        lw.read(conf)


SIZES = {
    "mappedFileSizeCommitLog": 1024,
    "mappedFileSizeConsumeQueue": 100,
    "maxHashSlotNum": 8,
    "maxIndexNum": 10,
}
ROWS = [
    {"topic": f"T{n % 2}", "queue_id": n % 3, "keys": f"k{n}", "tags": "a", "store_timestamp_ms": 1_700_000_000_000 + 700 * n,
     "body": b"x" * (n * 37 % 300)}
    for n in range(40)
]  # fmt: skip


def test_written_store_has_the_files_a_broker_derives_from_its_log(tmp_path: Path) -> None:
    lw.write(ROWS[:25], tmp_path / "store", "rocketmq.store", **SIZES)
    lw.write(ROWS[25:], tmp_path / "store", "rocketmq.store", mode="append", **SIZES)
    assert_rebuilt(tmp_path / "store")


def assert_rebuilt(home: Path) -> None:
    files = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    alone = MemoryDirectory(
        {name: data for name, data in files.items() if name.startswith("commitlog")}, "store"
    )
    chosen = Options(LAYOUT.read_options, {**SIZES, "commitLogRecoverMaxNum": 1000})
    after = STARTUP.run(alone, LAYOUT.plan(alone, chosen), chosen, version="5.5.0", clean=True).after
    result = {entry.name: after.read(entry.name) for entry in after.entries()}
    queues = {name: data for name, data in files.items() if name.startswith("consumequeue")}
    assert queues == {name: data for name, data in result.items() if name.startswith("consumequeue")}
    assert [data for name, data in sorted(files.items()) if name.startswith("index")] == [
        data for name, data in sorted(result.items()) if name.startswith("index")
    ]


def test_gap_in_a_queue_is_refused(tmp_path: Path) -> None:
    rows = [{"topic": "T", "queue_id": 0, "queue_offset": n, "body": b"x"} for n in (0, 2)]
    with pytest.raises(lw.UsageError, match="queue_offset is 2, expected 1"):
        lw.write(rows, tmp_path / "store", "rocketmq.store", **SIZES)
    written = lw.write(rows, tmp_path / "store", "rocketmq.store", offsets="assign", **SIZES)
    assert written.rows == 2
    assert lw.read(tmp_path / "store")["queue_offset"].to_pylist() == [0, 1]


def test_store_with_an_abort_file_is_not_appended_to(tmp_path: Path) -> None:
    home = placed("killed", tmp_path)
    with pytest.raises(lw.UsageError, match="abort"):
        lw.write(ROWS[:1], home, "rocketmq.store", mode="append")


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


LARGER = {**SIZES, "mappedFileSizeCommitLog": 1 << 16, "mappedFileSizeConsumeQueue": 2000}
"""Sizes of files that hold all messages of a test."""


def flip(path: Path, place: int) -> None:
    """Flip the lowest bit of a byte."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


TAGGED: list[dict[str, Any]] = [
    {"topic": "T", "queue_id": 0, "body": b"1", "tags": "TagA"},
    {"topic": "T", "queue_id": 0, "body": b"2"},
    {"topic": "T", "queue_id": 0, "body": b"3", "tags": "größer 🙂 TagB"},
    {"topic": "T", "queue_id": 0, "body": b"4", "tags": "TagA", "properties": [("DELAY", "3")]},
]


@pytest.mark.parametrize("depth", ["records", "checksums"])
@pytest.mark.parametrize("unit", range(3))
def test_tags_code_of_a_unit_is_the_hash_of_the_tags_of_its_message(
    tmp_path: Path, unit: int, depth: str
) -> None:
    store = tmp_path / "store"
    lw.write(TAGGED, store, "rocketmq.store", **LARGER)
    assert lw.verify(store).ok
    (queue,) = (store / "consumequeue").rglob("0" * 20)
    flip(queue, 20 * unit + 19)
    faults = [
        (path, fault.offset, fault.detail) for path, fault in lw.verify(store, depth=depth).faults
        if fault.severity is Severity.ERROR
    ]  # fmt: skip
    if depth == "checksums":
        assert faults == []  # properties are not read
        return
    ((path, offset, detail),) = faults
    assert (path, offset) == (str(queue.relative_to(store)), 20 * unit)
    assert re.fullmatch(r"the tags code is (-?\d+), but the hash of the message's tags is (-?\d+)", detail)
    assert not lw.repair(store, tmp_path / "out").incomplete
    assert lw.verify(tmp_path / "out").ok


def test_tags_code_is_compared_in_a_queue_with_other_faults(tmp_path: Path) -> None:
    store = tmp_path / "store"
    lw.write(TAGGED, store, "rocketmq.store", **LARGER)
    (queue,) = (store / "consumequeue").rglob("0" * 20)
    flip(queue, 7)
    flip(queue, 20 * 2 + 19)
    offsets = sorted(fault.offset for path, fault in lw.verify(store).faults if "tags code" in fault.detail)
    assert offsets == [40]


@pytest.fixture
def keyed(tmp_path: Path) -> Path:
    """A store of 100 messages with two keys each, in three commit log files and three index files of four slots."""
    rows = [
        {"topic": f"T{n % 3}", "queue_id": n % 2, "body": b"x" * n, "keys": f"k{n} größer{n}"} for n in range(100)
    ]  # fmt: skip
    lw.write(
        rows, tmp_path / "store", "rocketmq.store", mappedFileSizeCommitLog=1 << 13, maxHashSlotNum=4, maxIndexNum=81,
        mappedFileSizeConsumeQueue=400,
    )  # fmt: skip
    return tmp_path / "store"


@pytest.mark.alike
@pytest.mark.parametrize(("field", "place"), [("hash", 3), ("offset", 11), ("offset beyond the log", 5)])
@pytest.mark.parametrize("file", [0, 1, 2])
def test_entry_of_an_index_file_leads_to_a_message_with_its_key(
    keyed: Path, tmp_path: Path, file: int, field: str, place: int
) -> None:
    assert faults_of(keyed) == []
    files = sorted((keyed / "index").iterdir())
    assert len(files) == 3
    before = files[file].read_bytes()
    at = 40 + 4 * 4 + 20 * 7
    flip(files[file], at + place)
    wrong = [
        (path, offset)
        for path, offset, detail in faults_of(keyed)
        if "1 entry with a wrong physical offset or hash" in detail
    ]
    assert wrong == [(f"index/{files[file].name}", at)]
    lw.repair(keyed, tmp_path / "out")
    assert faults_of(tmp_path / "out") == []
    (repaired,) = (tmp_path / "out" / "index").glob(files[file].name)
    assert repaired.read_bytes()[40:] == before[40:]


def test_damaged_keys_of_a_message_are_shown_by_the_index(keyed: Path) -> None:
    log = sorted((keyed / "commitlog").iterdir())[1]
    flip(log, log.read_bytes().index("größer".encode()))
    ((path, _, detail),) = faults_of(keyed)
    assert path.startswith("index/")
    assert detail.startswith("1 entry with a wrong physical offset or hash")


def test_entries_of_lost_messages_are_no_fault_of_the_index(keyed: Path) -> None:
    log = sorted((keyed / "commitlog").iterdir())[1]
    data = bytearray(log.read_bytes())
    data[2000:3000] = bytes(1000)
    log.write_bytes(data)
    assert [fault for fault in faults_of(keyed) if fault[0].startswith("index/")] == []


def test_extension_that_units_lead_to_must_exist(tmp_path: Path) -> None:
    store = tmp_path / "store"
    rows = [{"topic": "T", "queue_id": 0, "body": b"x", "tags": "A"} for _ in range(30)]
    lw.write(
        rows, store, "rocketmq.store", enableConsumeQueueExt=True, mappedFileSizeConsumeQueueExt=512, **LARGER
    )
    assert faults_of(store) == []
    files = sorted((store / "consumequeue_ext").rglob("0" * 10 + "*"))
    assert len(files) > 1
    files[0].unlink()
    ((path, _, detail),) = faults_of(store)
    assert path.startswith("consumequeue/T/0/")
    assert "but its files of this queue begin at 512" in detail
    shutil.rmtree(store / "consumequeue_ext")
    ((_, _, detail),) = faults_of(store)
    assert detail.endswith("are missing")
    lw.repair(store, tmp_path / "out")
    assert faults_of(tmp_path / "out") == []


@pytest.mark.alike
@pytest.mark.parametrize("units", [1, 3, 50])
@pytest.mark.parametrize("files", ["first", "all"])
def test_queue_file_with_the_name_of_another_one_is_an_error(units: int, files: str, tmp_path: Path) -> None:
    size = 20 * units
    home = tmp_path / "store"
    rows = [{"topic": "T", "queue_id": 0, "body": b"x"} for _ in range(5)]
    lw.write(rows, home, "rocketmq.store", mappedFileSizeConsumeQueue=size, mappedFileSizeCommitLog=4096)
    assert lw.verify(home).ok
    queue = sorted((home / "consumequeue" / "T" / "0").iterdir(), reverse=True)
    for file in queue if files == "all" else queue[-1:]:
        file.rename(file.with_name(f"{int(file.name) + 100 * size:020d}"))
    report = lw.verify(home)
    assert not report.ok
    wrong = {name: fault.detail for name, fault in report.faults if fault.kind is Kind.ORDER}
    name = f"consumequeue/T/0/{100 * size:020d}"
    assert "queue offset 0 on" in wrong[name]
    assert f"should be {0:020d}" in wrong[name]


def test_queue_file_that_is_shorter_than_others_is_damage(keyed: Path, tmp_path: Path) -> None:
    """A broker does not load a store with such a file."""
    queue = sorted((keyed / "consumequeue").rglob("0" * 10 + "*"))[1]
    queue.write_bytes(queue.read_bytes()[:-20])
    report = lw.verify(keyed, as_system="5.5.0")
    assert not report.ok
    assert report.system is not None
    assert not report.system["opens"]
    assert [detail for _, _, detail in faults_of(keyed)] == [
        "the file has 380 bytes, expected 400 like the other files"
    ]
    lw.repair(keyed, tmp_path / "out")
    assert faults_of(tmp_path / "out") == []


@pytest.mark.parametrize(("field", "place", "number"), [("begin", 23, "first"), ("end", 31, "last")])
def test_header_of_an_index_file_has_the_offsets_of_its_ends(
    keyed: Path, tmp_path: Path, field: str, place: int, number: str
) -> None:
    file = sorted((keyed / "index").iterdir())[1]
    flip(file, place)
    ((_, offset, detail),) = faults_of(keyed)
    assert offset == place - 7
    assert detail.startswith(f"{field}_physical_offset is")
    assert f"the {number} entry has" in detail
    lw.repair(keyed, tmp_path / "out")
    assert faults_of(tmp_path / "out") == []


@pytest.mark.parametrize("slots", [1, 2, 7, 100, 1001])
@pytest.mark.parametrize("entries", [2, 20, 400])
def test_number_of_slots_of_an_index_file_without_entries_fits_its_size(slots: int, entries: int) -> None:
    size = entry_at(slots, entries)
    data = np.zeros(size, np.uint8)
    inferred = find_slots(lambda offset, length: data[offset : offset + length], size)
    assert (size - entry_at(inferred, 0)) % 20 == 0


@pytest.mark.kernel_modes
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 0, 0, 5]), st.integers(91, 300), st.sampled_from([0, 0, 0, -7, 40]))
    )
)
def test_a_run_ends_where_messages_or_their_physical_offsets_are_not_adjacent(
    messages: list[tuple[int, int, int]],
) -> None:
    """Each message: bytes before it, its size, and by how much its physical offset differs from the end of the one before."""
    starts, ends, offsets = [], [], []
    at = phy = 0
    for gap, size, moved in messages:
        at, phy = at + gap, phy + gap + moved
        starts.append(at)
        offsets.append(phy)
        at, phy = at + size, phy + size
        ends.append(at)
    heads = np.zeros(len(messages), CODEC.spec.head)
    heads["physical_offset"] = offsets
    edges = np.full(len(messages) + 1, -1, np.int64)
    count = find_runs(
        heads.view(np.uint8), heads.itemsize, np.array(starts, np.int64), np.array(ends, np.int64), edges
    )
    expected = [i for i, (gap, _, moved) in enumerate(messages) if i == 0 or gap or moved]
    assert edges[: count + 1].tolist() == [*expected, len(messages)]


def test_a_walk_reads_as_many_bytes_at_a_time_as_the_codec_says() -> None:
    read = []

    class Recorded(MemoryFile):
        def pread(self, offset: int, length: int) -> Any:
            read.append(length)
            return super().pread(offset, length)

    data = np.zeros(2 * CODEC.window + 100, np.uint8)
    list(Walk(Recorded(data), CODEC, CODEC.context("0" * 20, Options(CODEC.options))))
    assert read[0] == max(read) == CODEC.window


def test_files_of_another_size_than_configured_are_damage(tmp_path: Path) -> None:
    lw.write([{"topic": "T", "body": b"x"}], tmp_path / "store", "rocketmq.store", **SIZES)
    assert lw.verify(tmp_path / "store", **SIZES).ok
    for option, folder in (
        ("mappedFileSizeCommitLog", "commitlog"),
        ("mappedFileSizeConsumeQueue", "consumequeue/T/0"),
    ):
        report = lw.verify(tmp_path / "store", **{**SIZES, option: 4000})
        faults = [(file, fault.detail) for file, fault in report.faults if fault.severity is Severity.ERROR]
        text = f"the file has {SIZES[option]} bytes, expected 4000 as configured"
        assert faults == [(f"{folder}/00000000000000000000", text)]


def test_messages_that_are_not_dispatched_yet_are_no_damage_after_an_unclean_stop(tmp_path: Path) -> None:
    """A broker adds messages to their queues in log order, so only units of the last messages may be missing."""
    rows = [
        {"topic": "T", "queue_id": n % 2, "body": b"x" * 30, "store_timestamp_ms": n + 1} for n in range(6)
    ]
    home = tmp_path / "store"
    lw.write(rows, home, "rocketmq.store", **SIZES)
    queues = [home / f"consumequeue/T/{n}/00000000000000000000" for n in range(2)]
    content = [queue.read_bytes() for queue in queues]
    queues[1].write_bytes(content[1][:40].ljust(len(content[1]), b"\0"))
    assert any("no unit for 1 message of queue 1 of T" in detail for _, _, detail in faults_of(home))
    (home / "abort").write_text("1")
    report = lw.verify(home)
    notes = [str(fault.detail) for _, fault in report.faults]
    assert report.ok
    assert any(note.startswith("no unit yet for the last message of the log") for note in notes), notes
    assert not lw.verify(home, clean=True).ok
    queues[1].write_bytes(content[1])
    queues[0].write_bytes(content[0][:40].ljust(len(content[0]), b"\0"))
    assert any("no unit for 1 message of queue 0 of T" in detail for _, _, detail in faults_of(home))


def test_store_without_its_commit_log_is_one_fault(tmp_path: Path) -> None:
    """The log may be in another directory, which only an option names."""
    home = tmp_path / "store"
    lw.write([{"topic": "T", "body": b"x"}] * 30, home, "rocketmq.store", **SIZES)
    (home / "commitlog").rename(tmp_path / "elsewhere")
    report = lw.verify(home)
    (text,) = [str(fault.detail) for _, fault in report.faults if fault.kind is Kind.LINK]
    assert "pass storePathCommitLog" in text
    assert not report.ok
    assert lw.verify(home, storePathCommitLog=str(tmp_path / "elsewhere")).ok


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T0/0"])
@pytest.mark.parametrize(
    ("name", "loads"),
    [
        ("+" + "0" * 19, True),
        ("0" * 21, True),
        ("-" + "0" * 20, True),
        ("9" * 20, False),
        ("abc", False),
        ("0" * 20 + ".tmp", False),
    ],
)
def test_fault_of_a_file_name_says_whether_a_broker_loads_the_file(
    folder: str, name: str, loads: bool, tmp_path: Path
) -> None:
    home = tmp_path / "store"
    lw.write(ROWS, home, "rocketmq.store", **SIZES)
    min((home / folder).iterdir()).rename(home / folder / name)
    report = lw.verify(home, as_system="5.5.0", **SIZES)
    assert report.system is not None
    assert report.system["opens"] == loads
    (fault,) = (fault for file in report.files for fault in file.faults if "name is not that" in fault.detail)
    expected = "a broker loads it as the file of offset 0" if loads else "a broker does not load the store"
    assert fault.system == expected


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T0/0"])
def test_name_without_padding_is_a_warning(folder: str, keyed: Path) -> None:
    for path in (keyed / folder).iterdir():
        path.rename(path.with_name(str(int(path.name))))
    report = lw.verify(keyed)
    assert report.ok
    assert sum("not padded" in fault.detail for _, fault in report.faults) == len(
        [*(keyed / folder).iterdir()]
    )


def test_queue_begins_after_its_deleted_messages(tmp_path: Path) -> None:
    """As in a broker. A queue whose messages are all deleted has the offset of its next one."""
    home = tmp_path / "store"
    rows = [{"topic": "Old" if n < 3 else "T", "body": b"x" * 100} for n in range(40)]
    lw.write(rows, home, "rocketmq.store", **SIZES)
    low = len(lw.read(home))
    min((home / "commitlog").iterdir()).unlink()
    low -= len(lw.read(home))
    plain = lw.read(home, view="queues").to_pylist()
    assert plain == lw.read(home, view="queues", mode="AS_SYSTEM").to_pylist()
    names = ("topic", "min_offset", "max_offset", "messages", "gaps")
    assert [tuple(row[name] for name in names) for row in plain] == [
        ("Old", 3, 3, 0, 0),
        ("T", low - 3, 37, 40 - low, 0),
    ]


def test_fillers_after_the_units_of_a_queue_are_an_error(tmp_path: Path) -> None:
    """A broker counts them, so the next message has another queue offset. It writes fillers only at the start of a queue."""
    home = tmp_path / "store"
    rows = [{"topic": "T", "body": b"x", "store_timestamp_ms": 1_700_000_000_000 + n} for n in range(7)]
    lw.write(rows, home, "rocketmq.store", **SIZES)
    queue = home / f"consumequeue/T/0/{100:020d}"
    data = queue.read_bytes()
    queue.write_bytes(
        data[:40] + UNIT.pack({"physical_offset": 0, "size": FILLER, "tags_code": 0}) + data[60:]
    )
    (fault,) = faults_of(home)
    assert fault == (str(queue.relative_to(home)), 40, "1 filler after the units of messages")
    lw.repair(home, tmp_path / "out", **SIZES)
    assert (tmp_path / "out" / queue.relative_to(home)).read_bytes() == data


def test_exchanged_files_of_a_batch_queue_are_an_error(tmp_path: Path) -> None:
    """Its units have no queue offsets that follow from their places, so only their order shows it."""
    home, options = tmp_path / "store", {**SIZES, "mapperFileSizeBatchConsumeQueue": 138}
    rows = [{"topic": "B", "body": b"x", "store_timestamp_ms": 1_700_000_000_000 + n} for n in range(7)]
    lw.write(rows, home, "rocketmq.store", batch_topics="B", **options)
    first, second = (home / f"batchconsumequeue/B/0/{base:020d}" for base in (0, 138))
    data = first.read_bytes(), second.read_bytes()
    first.write_bytes(data[1])
    second.write_bytes(data[0])
    paths = {path for path, *_ in faults_of(home)}
    assert str(second.relative_to(home)) in paths
    lw.repair(home, tmp_path / "out", **options)
    assert [(tmp_path / "out" / file.relative_to(home)).read_bytes() for file in (first, second)] == [*data]


def test_store_without_a_commit_log_is_refused_and_its_messages_count_as_lost(tmp_path: Path) -> None:
    lw.generate("rocketmq.store", tmp_path / "store", rows=20, seed=1)
    for file in (tmp_path / "store" / "commitlog").iterdir():
        file.unlink()
    with pytest.raises(lw.DamageError, match="the commit log has no file"):
        lw.read(tmp_path / "store")
    report = lw.verify(tmp_path / "store")
    (fault,) = [fault for _, fault in report.faults if fault.severity == "error"]
    assert fault.rows_lost is None


def test_zeros_at_the_end_of_a_log_file_before_others_are_an_error(tmp_path: Path) -> None:
    rows = [{"topic": "T", "queue_id": 0, "body": bytes(200)} for _ in range(10)]
    lw.write(rows, tmp_path / "store", "rocketmq.store", mappedFileSizeCommitLog=1024)
    first, *others = sorted((tmp_path / "store/commitlog").iterdir())
    assert len(others) > 1
    assert len(lw.read(tmp_path / "store")) == 10
    first.write_bytes(first.read_bytes()[:292].ljust(1024, b"\0"))
    with pytest.raises(lw.DamageError, match="the blank record is missing, and later files have messages"):
        lw.read(tmp_path / "store")
    for other in others:
        other.write_bytes(bytes(1024))
    assert lw.scan(tmp_path / "store").to_table().num_rows == 1  # preallocated files


@pytest.mark.parametrize("listed", [False, True])
def test_queue_without_messages_points_to_none_of_other_queues(listed: bool, tmp_path: Path) -> None:
    properties = [{"key": "INNER_MULTI_DISPATCH", "value": "Other"}] if listed else []
    rows = [{"topic": "T", "queue_id": 0, "body": b"1", "properties": properties} for _ in range(3)]
    lw.write(rows, tmp_path / "store", "rocketmq.store", **SIZES)
    shutil.copytree(tmp_path / "store/consumequeue/T", tmp_path / "store/consumequeue/Other")
    report = lw.verify(tmp_path / "store", **SIZES)
    assert report.ok == listed
    details = [fault["detail"] for file in report.to_dict()["files"] for fault in file["faults"]]
    assert listed != any("there is no undamaged message of this queue" in detail for detail in details)


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_zeroed_last_message_of_a_log_file_before_others_is_an_error(tmp_path: Path) -> None:
    rows = [{"topic": "T", "queue_id": 0, "body": bytes(200)} for _ in range(10)]
    lw.write(rows, tmp_path / "store", "rocketmq.store", mappedFileSizeCommitLog=1024)
    first = min((tmp_path / "store/commitlog").iterdir())
    data = first.read_bytes()
    first.write_bytes(data[:584] + bytes(292) + data[876:])
    with pytest.raises(lw.DamageError, match="zero bytes, followed by other bytes"):
        lw.read(tmp_path / "store")
    assert len(lw.read(tmp_path / "store", mode="DROPMALFORMED")) == 9


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("block", [1, 2, 5, 8192])
def test_queues_that_point_behind_the_log_prove_that_its_last_file_is_missing(
    block: int, damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logwright.codec.rocketmq.store.layout._BLOCK_UNITS", block)
    rows = [{"topic": "T", "queue_id": i % 2, "body": bytes(200)} for i in range(12)]
    store = tmp_path / "store"
    lw.write(rows, store, "rocketmq.store", mappedFileSizeCommitLog=1024)
    if damaged:  # a single wrong unit proves nothing
        queue = store / "consumequeue/T/0" / f"{0:020d}"
        queue.write_bytes(queue.read_bytes()[:80] + (1 << 40).to_bytes(8, "big") + queue.read_bytes()[88:])
        assert len(lw.read(store)) == 12
        return
    max((store / "commitlog").iterdir()).unlink()
    with pytest.raises(lw.DamageError, match="where the commit log ends at 3072: files are missing"):
        lw.read(store)


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_queue_file_whose_name_is_no_multiple_of_a_unit_is_rebuilt(tmp_path: Path) -> None:
    rows = [{"topic": "T", "queue_id": 0, "body": bytes(50)} for _ in range(8)]
    sizes = {"mappedFileSizeCommitLog": 4096, "mappedFileSizeConsumeQueue": 100}
    lw.write(rows, tmp_path / "store", "rocketmq.store", **sizes)
    queue = tmp_path / "store/consumequeue/T/0"
    (queue / f"{0:020d}").rename(queue / f"{7:020d}")
    report = lw.verify(tmp_path / "store", as_system="5.5.0", **sizes)
    assert report.system is not None
    assert report.system["rows_lost"] == 5
    assert not report.ok
    lw.repair(tmp_path / "store", tmp_path / "out", **sizes)
    assert lw.verify(tmp_path / "out", **sizes).ok
    assert lw.read(tmp_path / "out", mode="AS_SYSTEM", **sizes).num_rows == 8
