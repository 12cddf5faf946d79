"""Logs and snapshots under each other's names, transactions that are there twice, and snapshots whose name is not that of their tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from memory_directory import MemoryDirectory
from zookeeper_crafted import create, log, record
from zookeeper_repairs import checked, repaired, served, truth
from zookeeper_startup import GOLDEN, data_directory, memory_of

import logwright as lw
from logwright.codec.fault import DamageError, Severity
from logwright.codec.zookeeper.formats.txnlog.layout import HEADER_SIZE, OVERHEAD

STRATEGIES = pytest.mark.parametrize("strategy", ["prefix", "salvage"])


def renamed(case: str, new: Mapping[str, str]) -> MemoryDirectory:
    return data_directory({new.get(name, name): data for name, data in memory_of(case).files.items()})


def exchanged(case: str, first: str, second: str) -> MemoryDirectory:
    return renamed(case, {first: second, second: first})


def changed(case: str, **files: bytes | None) -> MemoryDirectory:
    files = {name.replace("_", ".", 1): data for name, data in files.items()}
    both = {**memory_of(case).files, **files}
    return data_directory({name: data for name, data in both.items() if data is not None})


def used(data: bytes) -> bytes:
    """Return a log without the zeros after its records."""
    at = HEADER_SIZE
    while at + OVERHEAD <= len(data) and (size := int.from_bytes(data[at + 8 : at + 12], "big")):
        at += OVERHEAD + size
    return data[:at]


# Names


@pytest.mark.parametrize(
    ("case", "names"),
    [
        ("basic", ("snapshot.0", "log.1")),
        ("rolled", ("snapshot.28", "log.2a")),
        ("rolled", ("snapshot.0", "log.b")),
        ("snap_gz", ("snapshot.42.gz", "log.1")),
        ("snap_snappy", ("snapshot.42.snappy", "log.43")),
        ("v362", ("snapshot.1d", "log.1f")),
    ],
)
@STRATEGIES
def test_log_and_snapshot_under_each_others_names_are_exchanged_back(
    case: str, names: tuple[str, str], strategy: str
) -> None:
    result, plan = repaired(exchanged(case, *names), strategy)
    assert served(result) == truth(case)
    assert checked(result) == []
    logs = {name: data for name, data in memory_of(case).files.items() if name.startswith("log.")}
    assert {name: data for name, data in result.files.items() if name.startswith("log.")} == logs
    assert "it has the content of a log" in " ".join(plan.summary().warnings)


@pytest.mark.parametrize(("case", "name"), [("rolled", "log.2a"), ("v3414", "log.28"), ("snap_gz", "log.1")])
@STRATEGIES
def test_log_under_the_name_of_a_snapshot_gets_its_name_back(case: str, name: str, strategy: str) -> None:
    result, _ = repaired(renamed(case, {name: "snapshot.3"}), strategy)
    assert result.files == memory_of(case).files


@STRATEGIES
def test_snapshot_under_the_name_of_a_log_is_named_after_its_digest(strategy: str) -> None:
    wrong = data_directory({"log.7": memory_of("sessions").files["snapshot.16"]})
    result, _ = repaired(wrong, strategy)
    assert sorted(result.files) == ["snapshot.16"]
    assert served(result) == truth("sessions")


@STRATEGIES
def test_copy_of_a_snapshot_over_a_log_is_removed(strategy: str) -> None:
    intact = memory_of("rolled").files
    result, _ = repaired(changed("rolled", log_1=intact["snapshot.15"]), strategy)
    assert result.files == {name: data for name, data in intact.items() if name != "log.1"}


@STRATEGIES
def test_snapshot_under_the_name_of_another_compression_is_read_by_its_content(strategy: str) -> None:
    result, _ = repaired(renamed("snap_gz", {"snapshot.42.gz": "snapshot.42"}), strategy)
    assert result.files == memory_of("snap_gz").files


def test_file_with_the_content_of_another_kind_is_an_error_of_a_read(tmp_path: Path) -> None:
    path = written(exchanged("basic", "snapshot.0", "log.1"), tmp_path / "version-2")
    with pytest.raises(DamageError, match="it has the content of a"):
        lw.read(path)
    texts = [fault["detail"] for file in lw.verify(path)["files"] for fault in file["faults"]]
    assert "it has the content of a log: the file was renamed, copied or exchanged" in texts
    assert "it has the content of a snapshot: the file was renamed, copied or exchanged" in texts


@STRATEGIES
def test_snapshot_is_named_after_its_digest_if_the_transactions_after_its_name_are_lost(
    strategy: str,
) -> None:
    """It was begun at 0x1d, and transaction 0x1e was made before it was complete."""
    intact = memory_of("v362").files
    result, _ = repaired(changed("v362", log_1=intact["snapshot.0"]), strategy)
    assert "snapshot.1e" in result.files
    assert served(result) == truth("v362")
    assert checked(result) == []


# Copies


def twice(data: bytes) -> bytes:
    return used(data) + used(data)[HEADER_SIZE:]


def middle_twice(data: bytes) -> bytes:
    data = used(data)
    first = HEADER_SIZE + OVERHEAD + int.from_bytes(data[HEADER_SIZE + 8 : HEADER_SIZE + 12], "big")
    return data + data[HEADER_SIZE:first] + data[first:]


@pytest.mark.parametrize("case", ["basic", "multi", "sessions", "v3414"])
@pytest.mark.parametrize("copied", [twice, middle_twice])
@STRATEGIES
def test_transactions_that_are_in_a_log_twice_are_kept_once(
    case: str, copied: Callable[[bytes], bytes], strategy: str
) -> None:
    intact = memory_of(case).files["log.1"]
    damaged = changed(case, log_1=copied(intact))
    assert "comes after" in " ".join(fault.detail for _, fault in checked(damaged))
    result, plan = repaired(damaged, strategy)
    assert used(result.files["log.1"]) == used(intact)
    assert served(result) == truth(case)
    assert [cut.rows_lost for cut in plan.cut] == [0] * len(plan.cut)


@pytest.mark.parametrize("copy", ["log_2", "log_5", "log_30"])
@STRATEGIES
def test_copy_of_a_log_under_another_name_is_removed(copy: str, strategy: str) -> None:
    intact = memory_of("rolled")
    damaged = changed("rolled", **{copy: intact.files["log.1"]})
    assert "comes after" in " ".join(fault.detail for _, fault in checked(damaged))
    result, _ = repaired(damaged, strategy)
    assert result.files == intact.files


@STRATEGIES
def test_transactions_copied_into_an_earlier_log_are_kept_in_the_log_of_their_name(strategy: str) -> None:
    intact = memory_of("rolled").files
    damaged = changed("rolled", log_1=used(intact["log.1"]) + used(intact["log.21"])[HEADER_SIZE:])
    result, _ = repaired(damaged, strategy)
    assert result.files["log.21"] == intact["log.21"]
    assert used(result.files["log.1"]) == used(intact["log.1"])
    assert served(result) == truth("rolled")


def records_of(data: bytes) -> list[bytes]:
    """Return the records of a log."""
    data, out, at = used(data), [], HEADER_SIZE
    while at < len(data):
        end = at + OVERHEAD + int.from_bytes(data[at + 8 : at + 12], "big")
        out.append(data[at:end])
        at = end
    return out


def first_two_exchanged(records: list[bytes]) -> list[bytes]:
    return [records[1], records[0], *records[2:]]


def last_moved_to_the_front(records: list[bytes]) -> list[bytes]:
    return [records[-1], *records[:-1]]


def last_copied_into_the_middle(records: list[bytes]) -> list[bytes]:
    half = len(records) // 2
    return [*records[:half], records[-1], *records[half:]]


@pytest.mark.parametrize("moved", [first_two_exchanged, last_moved_to_the_front, last_copied_into_the_middle])
@pytest.mark.parametrize(("case", "name"), [("basic", "log.1"), ("rolled", "log.b"), ("v3414", "log.28")])
@STRATEGIES
def test_transactions_exchanged_or_moved_within_a_log_are_put_in_order(
    case: str, name: str, moved: Callable[[list[bytes]], list[bytes]], strategy: str
) -> None:
    intact = memory_of(case).files[name]
    records = moved(records_of(intact))
    damaged = changed(case, **{name.replace(".", "_"): intact[:HEADER_SIZE] + b"".join(records)})
    texts = [fault.detail for _, fault in checked(damaged)]
    assert any("comes after" in text for text in texts)
    assert not any("in no log" in text for text in texts)
    result, plan = repaired(damaged, strategy)
    assert result.files[name] == used(intact)
    assert served(result) == truth(case)
    assert [cut.rows_lost for cut in plan.cut] == [0] * len(plan.cut)


def test_lower_transactions_after_the_end_of_a_log_are_compared_with_their_digests() -> None:
    intact = memory_of("fuzzy").files
    lower = used(intact["log.1"])
    at = lower.index(b"/app/f0150")
    start = lower.rindex(b"B", 0, at - 60) + 1
    while int.from_bytes(lower[start : start + 8], "big") >> 32:
        start = lower.rindex(b"B", 0, start - 1) + 1
    damaged = changed("fuzzy", log_122=used(intact["log.122"]) + lower[start:])
    texts = [fault.detail for name, fault in checked(damaged) if name == "log.122"]
    assert any("the digest of the tree after" in text for text in texts)
    assert any("comes after 0x24a" in text for text in texts)


def test_lower_transactions_are_an_error_of_a_read(tmp_path: Path) -> None:
    path = tmp_path / "version-2"
    path.mkdir()
    for name, data in changed("v3414", log_1=twice(memory_of("v3414").files["log.1"])).files.items():
        if not name.startswith("snapshot"):
            (path / name).write_bytes(data)
    with pytest.raises(DamageError, match="comes after later transactions"):
        lw.read(path)


def test_transactions_after_lower_ones_are_not_missing() -> None:
    """0x27 follows 0x26, whatever is between them."""
    intact = memory_of("v3414").files
    damaged = changed("v3414", log_4=intact["log.1"])
    texts = [fault.detail for _, fault in checked(damaged)]
    assert not any("are in no log" in text or "is in no log" in text for text in texts)


def test_repeated_transaction_stays() -> None:
    """It does no harm right after itself."""
    repeated = memory_of("syn_zxid_repeat")
    assert checked(repeated, Severity.ERROR) == []
    result, _ = repaired(repeated)
    assert result.files == repeated.files


@STRATEGIES
def test_log_of_another_history_within_a_complete_log_is_removed(strategy: str) -> None:
    intact = memory_of("v3414")
    result, plan = repaired(changed("v3414", log_4=memory_of("size_rolled").files["log.4"]), strategy)
    assert result.files == intact.files
    assert [(cut.file, cut.rows_lost) for cut in plan.cut] == [("log.4", 3)]


def test_log_of_another_history_stays_if_nothing_tells_which_is_right() -> None:
    damaged = data_directory({"log.1": log(*records(b"a")), "log.0": log(*records(b"b"))})
    result, plan = repaired(damaged)
    assert {"log.0", "log.1"} < result.files.keys()
    assert plan.cut == []
    assert "comes after" in " ".join(fault.detail for _, fault in checked(result))


@STRATEGIES
def test_log_of_another_history_under_the_name_of_a_snapshot_is_not_used(strategy: str) -> None:
    damaged = changed("dmg_base", snapshot_16=memory_of("v362").files["log.1"])
    result, plan = repaired(damaged, strategy)
    assert result.files == {
        name: data for name, data in memory_of("dmg_base").files.items() if name != "snapshot.16"
    }
    assert "it belongs to another history" in plan.cut[0].why


def test_log_is_not_removed_for_a_longer_one_under_a_wrong_name() -> None:
    """That may be the one of another history."""
    right = records(b"a", 12)
    damaged = data_directory(
        {"log.1": log(*right[:4]), "log.5": log(*right[4:8]), "log.9": log(*records(b"b", 20)[4:])}
    )
    result, plan = repaired(damaged, "salvage")
    assert {"log.1", "log.5"} < result.files.keys()
    assert not any(cut.file == "log.5" and cut.rows_lost for cut in plan.cut)


def records(data: bytes, count: int = 5) -> list[bytes]:
    return [record(zxid, 1, create(b"/node%d" % zxid, data=data)) for zxid in range(1, count + 1)]


def written(directory: MemoryDirectory, path: Path) -> Path:
    path.mkdir()
    for name, data in directory.files.items():
        (path / name).write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (exchanged("basic", "snapshot.0", "log.1"), "by its content"),
        (renamed("rolled", {"log.b": "log.9"}), "by its first transaction"),
        (changed("rolled", log_30=memory_of("rolled").files["log.1"]), "begins with the same transaction"),
        (changed("basic", log_1=twice(memory_of("basic").files["log.1"])), "copies of transactions"),
    ],
)
def test_snapshot_is_not_rebuilt_from_misnamed_or_copied_files(
    damaged: MemoryDirectory, why: str, tmp_path: Path
) -> None:
    with pytest.raises(DamageError, match=why):
        lw.rebuild(written(damaged, tmp_path / "version-2"), tmp_path / "out", codec="zookeeper.datadir")


def test_transactions_of_a_log_that_a_server_does_not_open_count_as_lost(tmp_path: Path) -> None:
    """It starts with the last log that is named below the first transaction it needs."""
    damaged = changed("v3414", log_4=memory_of("size_rolled").files["log.4"])
    system = lw.verify(written(damaged, tmp_path / "version-2"))["system"]
    assert system["opens"]
    assert system["rows_lost"] == 1
    assert system["lost"][0]["first_zxid"] == 0x27


SNAPSHOT, LOG = "data/version-2/snapshot.0", "datalog/version-2/log.1"


@pytest.mark.parametrize(
    "moved",
    [
        {SNAPSHOT: LOG, LOG: SNAPSHOT},
        {SNAPSHOT: "data/version-2/log.3"},
        {LOG: "datalog/version-2/snapshot.3"},
        {SNAPSHOT: "datalog/version-2/snapshot.0"},
        {LOG: "data/version-2/log.1"},
    ],
    ids=str,
)
@STRATEGIES
def test_files_in_the_directory_of_the_others_are_moved_back(
    moved: dict[str, str], strategy: str, tmp_path: Path
) -> None:
    intact = {name: (GOLDEN / "split_dirs" / name).read_bytes() for name in (SNAPSHOT, LOG)}
    for folder in ("data", "datalog"):
        (tmp_path / folder / "version-2").mkdir(parents=True)
    for name, data in intact.items():
        (tmp_path / moved.get(name, name)).write_bytes(data)
    with pytest.warns(lw.DamageWarning):
        broken = lw.read(tmp_path / "data", mode="DROPMALFORMED", dataLogDir=str(tmp_path / "datalog"))
    lw.repair(tmp_path / "data", tmp_path / "out", strategy=strategy, dataLogDir=str(tmp_path / "datalog"))
    right = lw.read(GOLDEN / "split_dirs/data", dataLogDir=str(GOLDEN / "split_dirs/datalog"))
    assert lw.read(tmp_path / "out", codec="zookeeper.datadir").equals(right)
    assert broken.num_rows <= right.num_rows


def test_server_does_not_start_with_a_log_among_the_snapshots_and_an_empty_data_log_dir(
    tmp_path: Path,
) -> None:
    for folder, name in (("data", SNAPSHOT), ("data", LOG), ("datalog", "")):
        place = tmp_path / folder / "version-2"
        place.mkdir(parents=True, exist_ok=True)
        if name:
            (place / Path(name).name).write_bytes((GOLDEN / "split_dirs" / name).read_bytes())
    separate = str(tmp_path / "datalog")
    with pytest.raises(DamageError, match=r"log\.1 is a log in the directory of the snapshots"):
        lw.read(tmp_path / "data", dataLogDir=separate)
    system = lw.verify(tmp_path / "data", dataLogDir=separate)["system"]
    assert not system["opens"]
    assert system["error_class"].endswith("SnapDirContentCheckException")


@pytest.mark.parametrize("name", ["log_30", "log_1"])
def test_strategy_system_keeps_transactions_that_a_server_applies_twice(name: str) -> None:
    """It does not stop at them."""
    data = memory_of("rolled").files["log.1"]
    damaged = changed("rolled", **{name: twice(data)})
    result, plan = repaired(damaged, "system")
    assert result.files[name.replace("_", ".")] == twice(data)
    assert plan.cut == []


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_transactions_of_a_log_under_an_earlier_name_are_read(tmp_path: Path) -> None:
    """The zxid in its name is not that of a missing transaction, so what follows is not dead."""
    wrong = renamed("size_rolled", {"log.7": "log.6", "log.a": "log.8"})
    path = written(wrong, tmp_path / "version-2")
    assert lw.verify(path).ok
    assert lw.read(path).equals(lw.read(GOLDEN / "size_rolled"))
    assert lw.read(path, view="txns").num_rows == lw.read(GOLDEN / "size_rolled", view="txns").num_rows


def blocks_exchanged(case: str, first: str, second: str, size: int = 512) -> MemoryDirectory:
    """Exchange the first blocks of two files."""
    upper, lower = (memory_of(case).files[name] for name in (first, second))
    files = {first: lower[:size] + upper[size:], second: upper[:size] + lower[size:]}
    return data_directory({**memory_of(case).files, **files})


@pytest.mark.filterwarnings("ignore")
def test_transactions_of_blocks_that_were_exchanged_between_logs_are_moved_back(tmp_path: Path) -> None:
    result, plan = repaired(blocks_exchanged("rolled", "log.17", "log.2a"), "salvage")
    kept = set()
    for name in [name for name in result.files if name.startswith("log.")]:
        (tmp_path / name).write_bytes(result.files[name])
        kept |= set(lw.read(tmp_path / name, columns=["zxid"], filter="type != error")["zxid"].to_pylist())
    # The records across the ends of the blocks are lost.
    assert kept == {*range(1, 0x2F)} - {0x1A, 0x2D}
    assert any("where their zxids belong" in cut.why for cut in plan.cut)
    assert checked(result) == []


@STRATEGIES
def test_log_that_begins_with_a_block_of_a_snapshot_keeps_its_other_transactions(strategy: str) -> None:
    result, plan = repaired(blocks_exchanged("sessions", "log.1", "snapshot.16"), strategy)
    assert plan.ids == {"first_zxid": "0x1", "last_zxid": "0x16"}
    assert served(result) == truth("sessions")
    assert [cut.rows_lost for cut in plan.cut] == [0] * len(plan.cut)


@pytest.mark.parametrize("damage", ["snapshot", "log"])
def test_epoch_of_which_only_names_of_files_are_left_is_a_gap(damage: str) -> None:
    intact = memory_of("quorum_one").files
    log, snapshot = "log.100000001", "snapshot.100000005"
    files = {**intact, snapshot: intact[snapshot][:453], log: bytes(512) + intact[log][512:]}
    del files[log if damage == "snapshot" else snapshot]
    directory = data_directory(files)
    missing = 5 if damage == "snapshot" else 1
    text = "0x100000001 to 0x100000005 are in no log and no snapshot"
    assert damage == "log" or any(fault.detail == text for _, fault in checked(directory))
    _, plan = repaired(directory, "salvage")
    assert any("0x100000001" in note and "missing" in note for note in plan.notes)
    assert max(cut.rows_lost or 0 for cut in plan.cut) == missing
    _, plan = repaired(directory, "prefix")
    assert not plan.ids
