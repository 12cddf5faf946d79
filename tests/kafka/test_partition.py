"""The layout `kafka.partition`: recognition, faults of the directory, and rows that its views skip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_golden import CASES, copy_case
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.codec import registry
from logwright.codec.base import Match
from logwright.codec.fault import Severity
from logwright.codec.kafka.names import (
    MAX_NAME,
    claims_to_be_kafkas,
    delete_directory,
    is_partition,
    parse_directory,
    parse_segment,
    segment_name,
)
from logwright.codec.option import Options
from logwright.codec.store.listing import Plan, Role

LAYOUT = registry.get_layout("kafka.partition")


TOKEN = "0123456789abcdef0123456789abcdef"


FIRST, SECOND, LAST = 0, 30, 86
"""Base offsets of the four segments of `dmg_base`, whose log ends at 97."""


def golden(case: str) -> MemoryDirectory:
    return MemoryDirectory.of(CASES[case].partition)


def planned(directory: MemoryDirectory, **options: Any) -> Plan:
    return LAYOUT.plan(directory, Options(LAYOUT.read_options, options))


def faults(plan: Plan) -> dict[str, tuple[Severity, str]]:
    """Return severity and details of the faults by file."""
    return {name: (fault.severity, f"{fault.detail}: {fault.system}") for name, fault in plan.faults}


# Names


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("orders-0", "orders", 0),
        ("a-b.c_d-12", "a-b.c_d", 12),
        (f"{'t' * 249}-2147483647", "t" * 249, 2147483647),
        (f"orders-3.{TOKEN}-delete", "orders", 3),
        (f"orders-3.{TOKEN}-future", "orders", 3),
        (f"a-b-3.{TOKEN}-stray", "a-b", 3),
    ],
)
def test_directory_name_gives_topic_and_partition(name: str, topic: str, partition: int) -> None:
    assert parse_directory(name) == (topic, partition)


@pytest.mark.parametrize(
    "name",
    [
        "orders", "orders-", "-0", "orders-x", "..-0", ".-0", "or ders-0", "ordérs-0", "orders-٣", "orders-2147483648",
        f"{'t' * 250}-0", f"orders.{TOKEN}-delete", "orders-0\n", "",
    ],
)  # fmt: skip
def test_other_directories_are_not_recognised(name: str) -> None:
    assert parse_directory(name) is None
    assert not is_partition(name)


def test_partition_is_written_under_its_own_name_only() -> None:
    assert is_partition("a-b-10")
    assert not any(
        is_partition(name) for name in ("orders-007", f"orders-0.{TOKEN}-future", f"orders-0.{TOKEN}-delete")
    )


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_names_of_segment_files(suffix: str) -> None:
    for base in (0, 42, (1 << 63) - 1):
        name = segment_name(base, suffix)
        assert parse_segment(name) == (base, suffix, "")
        assert parse_segment(f"{name}.swap") == (base, suffix, ".swap")
        assert not claims_to_be_kafkas(name)


@pytest.mark.parametrize(
    "name",
    [
        "5.log",
        "foo.log",
        "foo.swap",
        "foo.cleaned",
        f"{'9' * 20}.log",
        f"{1 << 63:020d}.snapshot",
        "٣" * 20 + ".log",
    ],
)
def test_names_that_a_broker_loads(name: str) -> None:
    assert parse_segment(name) is None
    assert claims_to_be_kafkas(name)


@pytest.mark.parametrize(
    "name", ["README", "leader-epoch-checkpoint", "partition.metadata", "foo.deleted", "log", "x.txt"]
)
def test_names_that_a_broker_ignores(name: str) -> None:
    assert parse_segment(name) is None
    assert not claims_to_be_kafkas(name)


@pytest.mark.parametrize(
    "name",
    [
        "orders-0",
        "a-b-7",
        "t" * 249 + "-1234567890",
        "orders",
        "lost+found",
        "x" * 255,
        "é" * 120,
        f"orders-0.{TOKEN}-future",
        "",
    ],
)
def test_staging_directory_is_one_that_a_broker_deletes(name: str) -> None:
    """Whatever the target's name: a broker would not start with a name that it cannot parse."""
    staged = LAYOUT.staging(name, TOKEN)
    assert staged == delete_directory(name, TOKEN)
    assert len(staged.encode()) <= MAX_NAME
    assert staged.endswith(f".{TOKEN}-delete")
    before = staged.removesuffix(f".{TOKEN}-delete")
    assert before.rpartition("-")[2].isdecimal()
    if is_partition(name):
        assert parse_directory(staged) is not None
        assert parse_directory(staged)[1] == parse_directory(name)[1]  # type: ignore[index]


# Recognition


def test_recognised_by_name_and_content() -> None:
    log, metadata = segment_name(0, ".log"), "partition.metadata"
    assert LAYOUT.recognise(MemoryDirectory({log: b""}, "orders-0")) is Match.SURE
    assert LAYOUT.recognise(MemoryDirectory({log: b""}, "backup")) is Match.NAME
    assert LAYOUT.recognise(MemoryDirectory({metadata: b""}, "orders-0")) is Match.NAME
    assert LAYOUT.recognise(MemoryDirectory({metadata: b""}, "backup")) is Match.NO
    assert LAYOUT.recognise(MemoryDirectory({"5.log": b""}, "orders-0")) is Match.NO
    # Possibly only the logs are missing.
    assert LAYOUT.recognise(MemoryDirectory({segment_name(0, ".index"): b""}, "orders-0")) is Match.NAME
    assert LAYOUT.recognise(MemoryDirectory({segment_name(0, ".index"): b""}, "backup")) is Match.NO
    assert LAYOUT.recognise(MemoryDirectory({}, "orders-0")) is Match.NO


def test_files_are_in_loading_order_with_their_roles() -> None:
    directory = golden("dmg_base")
    directory.files |= {
        "README": b"",
        f"{segment_name(0, '.log')}.deleted": b"",
        segment_name(7, ".index"): b"",
    }
    plan = planned(directory)
    roles = [(file.name, file.role) for file in plan.files]
    assert roles[:4] == [
        (segment_name(0, ".log"), Role.PRIMARY),
        (segment_name(0, ".index"), Role.DERIVED),
        (segment_name(0, ".timeindex"), Role.DERIVED),
        (segment_name(7, ".index"), Role.LEFTOVER),
    ]
    assert roles[-4:] == [
        ("partition.metadata", Role.METADATA),
        ("leader-epoch-checkpoint", Role.DERIVED),
        (f"{segment_name(0, '.log')}.deleted", Role.LEFTOVER),
        ("README", Role.FOREIGN),
    ]
    assert {file.name for file in plan.files} == set(directory.files)
    logs = [file for file in plan.files if file.role is Role.PRIMARY]
    assert [(log.hints["base_offset"], log.hints["next_base"], log.hints["last"]) for log in logs] == [
        (0, 30, False), (30, 58, False), (58, 86, False), (86, None, True),
    ]  # fmt: skip
    assert plan[segment_name(7, ".index")].note == "without a log; the broker deletes it"


def test_plan_states_topic_partition_and_segments() -> None:
    plan = planned(golden("dmg_base"))
    assert {name: plan.facts[name] for name in ("topic", "partition", "segments", "first_segment", "last_segment")} == {
        "topic": "dmg_base", "partition": 0, "segments": 4, "first_segment": 0, "last_segment": 86,
    }  # fmt: skip
    assert plan.facts["leader_epochs"] == [{"epoch": 0, "start_offset": 0}, {"epoch": 2, "start_offset": 51}]
    assert plan.facts["log_bytes"] == sum(file.size for file in plan.files if file.name.endswith(".log"))
    assert len(plan.facts["topic_id"]) == 22
    assert plan.facts["clean_shutdown"] is None, "nothing can be seen above"


@pytest.mark.parametrize("clean", [False, True])
def test_parent_directory_shows_a_clean_stop(clean: bool) -> None:
    directory = golden("dmg_base")
    directory.above = MemoryDirectory({".kafka_cleanshutdown": b""} if clean else {}, "logs")
    plan = planned(directory)
    assert plan.facts["clean_shutdown"] is clean
    assert all(file.hints["clean"] is clean for file in plan.files if file.role in (Role.PRIMARY,))


def test_partition_without_segments_is_empty() -> None:
    place = CASES["craft_no_files"].partition
    assert [path.name for path in place.iterdir()] == ["partition.metadata"]
    assert lw.read(place).num_rows == 0
    assert lw.read(place, view="read_committed").num_rows == 0
    assert lw.verify(place).ok
    plan = planned(golden("craft_no_files"))
    assert plan.faults == ()
    assert (plan.facts["segments"], plan.facts["first_segment"]) == (0, None)


# Faults of the directory


def test_sound_directory_has_no_fault() -> None:
    assert planned(golden("dmg_base")).faults == ()


@pytest.mark.parametrize(
    ("name", "severity", "message"),
    [
        (segment_name(SECOND, ".index"), Severity.INFO, "recovers the segment"),
        (segment_name(SECOND, ".timeindex"), Severity.INFO, "lookups by time"),
        ("partition.metadata", Severity.INFO, "stray"),
        ("leader-epoch-checkpoint", Severity.INFO, "leader epochs"),
    ],
)
def test_missing_files_are_named(name: str, severity: Severity, message: str) -> None:
    directory = golden("dmg_base")
    del directory.files[name]
    problems = faults(planned(directory))
    assert list(problems) == [name]
    assert problems[name][0] is severity
    assert message in problems[name][1]


def test_files_required_by_a_kraft_broker() -> None:
    directory = golden("dmg_base")
    del directory.files["partition.metadata"]
    kraft = "version=1\nnode.id=1\ncluster.id=Kg9s5hQ2T0mYb1cVwXzA_A\n"
    for text, severity in (("version=0\nbroker.id=1\n", Severity.INFO), (kraft, Severity.ERROR)):
        directory.above = MemoryDirectory({"meta.properties": f"#\n#\n{text}".encode()}, "logs")
        assert faults(planned(directory))["partition.metadata"][0] is severity


def test_without_snapshots_producers_are_lost_after_a_clean_stop() -> None:
    directory = golden("dmg_base")
    directory.files = {name: data for name, data in directory.files.items() if not name.endswith(".snapshot")}
    assert planned(directory).faults == ()
    directory.above = MemoryDirectory({".kafka_cleanshutdown": b""}, "logs")
    assert "forgets all producers" in faults(planned(directory))[""][1]


@pytest.mark.parametrize(
    ("name", "foreign", "message"),
    [
        ("5.log", Severity.WARNING, "opens an empty segment 00000000000000000005"),
        ("foo.swap", Severity.ERROR, "does not start"),
        (f"{'9' * 20}.log", Severity.ERROR, "does not start"),
        (f"{1 << 63}.snapshot", Severity.ERROR, "does not start"),
    ],
)
def test_confusing_names_are_reported(name: str, foreign: Severity, message: str) -> None:
    directory = golden("dmg_base")
    directory.files[name] = b""
    severity, text = faults(planned(directory))[name]
    assert (severity, message in text) == (foreign, True), text
    assert planned(directory)[name].role is Role.FOREIGN


def log_start(offset: int) -> MemoryDirectory:
    return MemoryDirectory(
        {"log-start-offset-checkpoint": f"0\n2\nother 0 5\ndmg_base 0 {offset}\n".encode()}, "logs"
    )


def test_log_that_ends_before_its_start_is_reported() -> None:
    directory = golden("dmg_base")
    for offset in (0, 45, 86, 97):
        directory.above = log_start(offset)
        assert planned(directory).faults == ()
        assert planned(directory).facts["log_start_offset"] == offset
    directory.above = log_start(98)
    severity, text = faults(planned(directory))[""]
    assert severity is Severity.WARNING
    assert "starts" not in text
    assert text.startswith(
        "the log start offset is 98, but the log ends at 97: the broker deletes all segments"
    )


def test_unreadable_checkpoint_is_reported() -> None:
    directory = golden("dmg_base")
    directory.above = MemoryDirectory({"log-start-offset-checkpoint": b"0\n7\nx"}, "logs")
    (text,) = [fault_text for _, fault_text in faults(planned(directory)).values()]
    assert "log-start-offset-checkpoint" in text
    assert "offline" in text
    assert planned(directory, log_start_offset=5).faults == (), (
        "the option counts, and the file is not looked at"
    )


# Interrupted compactions


def interrupted(*gone: int) -> MemoryDirectory:
    """A compaction of segments 0 and 30 into `0.log.swap`, whose sources are already removed."""
    directory = golden("dmg_base")
    first, second = segment_name(FIRST, ".log"), segment_name(SECOND, ".log")
    directory.files[f"{first}.swap"] = directory.files[first] + directory.files[second]
    for base in gone:
        for suffix in (".log", ".index", ".timeindex"):
            name = segment_name(base, suffix)
            directory.files[f"{name}.deleted"] = directory.files.pop(name)
    return directory


@pytest.mark.parametrize("gone", [(), (FIRST,), (SECOND,), (FIRST, SECOND)], ids=str)
@pytest.mark.parametrize("view", ["read_uncommitted", "read_committed", "log", "batches"])
def test_interrupted_compaction_loses_no_row(gone: tuple[int, ...], view: str, tmp_path: Path) -> None:
    place = tmp_path / "dmg_base-0"
    place.mkdir()
    for name, data in interrupted(*gone).files.items():
        (place / name).write_bytes(data)
    column = "base_offset" if view == "batches" else "offset"
    expected = lw.read(CASES["dmg_base"].partition, view=view, columns=column)
    assert lw.read(place, view=view, columns=column).equals(expected)


def test_swap_file_is_used_if_the_first_source_is_gone() -> None:
    swap = f"{segment_name(FIRST, '.log')}.swap"
    plan = planned(interrupted())
    assert plan[swap].role is Role.LEFTOVER
    plan = planned(interrupted(FIRST))
    assert plan[swap].role is Role.PRIMARY
    assert plan.files[0].name == swap, "in its place among the segments"
    assert plan[swap].hints["next_base"] == 58
    assert plan[segment_name(SECOND, ".log")].role is Role.LEFTOVER
    assert faults(plan)[segment_name(SECOND, ".index")][1].startswith(f"the broker replaces it by {swap}")
    assert plan[segment_name(58, ".log")].role is Role.PRIMARY


def test_swap_file_is_used_if_a_source_lacks_one_of_its_batches() -> None:
    """A broker uses it in any case. If all its batches are in its sources, these have at least as many rows."""
    swap, second = f"{segment_name(FIRST, '.log')}.swap", segment_name(SECOND, ".log")
    assert planned(interrupted(SECOND))[swap].role is Role.PRIMARY
    directory = interrupted()
    directory.files[second] = directory.files[second][:-1]
    assert planned(directory)[swap].role is Role.PRIMARY
    directory = interrupted(SECOND)
    directory.files[swap] = directory.files[segment_name(86, ".log")]
    assert planned(directory)[swap].role is Role.LEFTOVER, "it was not made of the first segment"


def test_swap_file_of_an_undone_split_is_ignored() -> None:
    """With a `.cleaned` file at or below it the split was incomplete: the broker removes both (`LogLoader`)."""
    directory = interrupted(FIRST)
    directory.files[f"{segment_name(0, '.log')}.cleaned"] = b""
    assert planned(directory)[f"{segment_name(FIRST, '.log')}.swap"].role is Role.LEFTOVER


# Views


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_log_start_offset_cuts_records_and_skips_segments() -> None:
    place = CASES["dmg_base"].partition
    every = lw.read(place, columns="offset")["offset"].to_pylist()
    for start in (0, 1, 29, 30, 31, 58, 96, 97, 1000):
        rows = lw.read(place, columns="offset", log_start_offset=start)["offset"].to_pylist()
        assert rows == [offset for offset in every if offset >= start]
        directory = golden("dmg_base")
        options = Options(LAYOUT.read_options, {"log.start.offset": start})
        parts = LAYOUT.parts(directory, LAYOUT.plan(directory, options), "read_uncommitted", options)
        assert len(parts) == sum(end > start for end in (30, 58, 86)) + 1
    with pytest.raises(lw.UsageError, match="does not apply to"):
        lw.read(place, view="log", columns="offset", log_start_offset=50)  # It shows everything on disk.


def test_option_wins_over_the_checkpoint(tmp_path: Path) -> None:
    place = copy_case("dmg_base", tmp_path)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\ndmg_base 0 90\n")
    assert lw.read(place, columns="offset")["offset"].to_pylist() == list(range(90, 97))
    assert lw.read(place, columns="offset", log_start_offset=95)["offset"].to_pylist() == [95, 96]


def test_parts_have_their_offset_ranges() -> None:
    directory = golden("dmg_base")
    options = Options(LAYOUT.read_options)
    for view in ("read_uncommitted", "read_committed", "log"):
        parts = LAYOUT.parts(directory, planned(directory), view, options)
        assert [part.bounds["offset"] for part in parts] == [(0, 29), (30, 57), (58, 85), (86, None)]


def test_committed_rows_end_before_the_first_open_transaction() -> None:
    place = CASES["v2_txn_open"].partition
    facts = LAYOUT.facts(golden("v2_txn_open"), planned(golden("v2_txn_open")))  # type: ignore[attr-defined]
    first = min(open_transaction["first_offset"] for open_transaction in facts["open_transactions"])
    committed = lw.read(place, view="read_committed", columns="offset")["offset"].to_pylist()
    assert max(committed) < first
    assert max(lw.read(place, columns="offset")["offset"].to_pylist()) >= first


def test_committed_rows_do_not_depend_on_the_transaction_index(tmp_path: Path) -> None:
    place = copy_case("dmg_tbase", tmp_path)
    before = lw.read(place, view="read_committed")
    assert before.num_rows < lw.read(place).num_rows
    removed = list(place.glob("*.txnindex"))
    assert removed
    for offset in removed:
        offset.write_bytes(b"")
    assert lw.read(place, view="read_committed").equals(before)


PRODUCER_ID = 43
"""Position of the producer id in a batch."""


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_flipped_bit_opens_and_ends_no_transaction(tmp_path: Path) -> None:
    """Rows of sound batches are returned whatever a batch with a wrong checksum claims."""
    place = copy_case("dmg_tbase", tmp_path)
    frames = lw.read(
        place, view="batches", columns="position,base_offset,last_offset,is_transactional,is_control"
    )
    before = lw.read(place, view="read_committed", columns="offset")["offset"].to_pylist()
    batches = [row for row in frames.to_pylist() if row["is_transactional"] and not row["is_control"]]
    bases = sorted(int(log_path.name[:20]) for log_path in place.glob("*.log"))
    checked = 0
    for batch in batches:
        base = max(base for base in bases if base <= batch["base_offset"])
        path = place / segment_name(base, ".log")
        data = bytearray(path.read_bytes())
        # An invalid producer, as if it had begun a transaction here and never ended it.
        data[batch["position"] + PRODUCER_ID + 7] ^= 0x40
        path.write_bytes(data)
        rows = lw.read(place, view="read_committed", columns="offset", mode="DROPMALFORMED")[
            "offset"
        ].to_pylist()
        lost = range(batch["base_offset"], batch["last_offset"] + 1)
        assert rows == [offset for offset in before if offset not in lost]
        data[batch["position"] + PRODUCER_ID + 7] ^= 0x40
        path.write_bytes(data)
        checked += 1
    assert checked > 3


# Order of files in a commit


def test_files_are_committed_segment_by_segment_with_the_index_last() -> None:
    new = [
        segment_name(base, suffix)
        for base in (0, 9)
        for suffix in (".index", ".log", ".timeindex", ".txnindex")
    ]
    new += [
        segment_name(9, ".snapshot"),
        segment_name(20, ".snapshot"),
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert LAYOUT.order(new) == [
        "partition.metadata",
        "leader-epoch-checkpoint",
        *(segment_name(0, suffix) for suffix in (".log", ".timeindex", ".txnindex", ".index")),
        *(segment_name(9, suffix) for suffix in (".log", ".timeindex", ".txnindex", ".index", ".snapshot")),
        segment_name(20, ".snapshot"),
    ]


# Round trip


@pytest.mark.alike
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_may_come_in_any_chunks(compression: str, tmp_path: Path) -> None:
    """Also if many rows are collected before a batch is full, compressed or not."""
    rows = pa.table(
        {"value": [b"v%d" % i for i in range(1500)], "timestamp": pa.array([1_700_000_000_000] * 1500)}
    )
    written = {}
    for chunk in (1, 100, 667, 1500):
        place = tmp_path / str(chunk) / "orders-0"
        reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(chunk))
        lw.write(reader, place, "kafka.partition", compression_type=compression, batch_size=16384)
        assert lw.read(place)["value"].to_pylist() == rows["value"].to_pylist()
        written[chunk] = (place / segment_name(0, ".log")).read_bytes()
    assert len(set(written.values())) == 1


def test_verbs_on_a_partition_import_no_other_system_and_reading_no_pandas(tmp_path: Path) -> None:
    path = str(tmp_path / "t-0")
    lw.generate("kafka.partition", path, rows=10, seed=1)
    lines = (
        f"import sys, logwright as lw; path = {path!r}",
        "lw.read(path); print('pandas' in sys.modules)",
        "assert lw.verify(path).ok; lw.inspect(path); lw.explain(path, where='offset=1')",
        "lw.repair(path, path + '/../out/t-0', dry_run=True)",
        "print(sorted({name.split('.')[2] for name in sys.modules if name.startswith('logwright.codec.')} & {'kafka', 'leveldb', 'rocketmq'}))",
    )
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["False", "['kafka']"]
