"""Following a growing partition: each new row is returned once, located by position alone."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec import registry
from logwright.codec.fault import LogwrightError, UsageError
from logwright.codec.option import Options
from logwright.corpora.cases import cases
from logwright.readers.follow import PACE_OPTIONS, Following, Pace, Ranged
from logwright.readers.replicas import choose_replicas
from logwright.readers.report import Report
from logwright.readers.resolve import resolve
from logwright.readers.spark_request import Request
from logwright.readers.target import DirectoryTarget, Skipped
from logwright.readers.task import run

CASES = cases("kafka")
LAYOUT = registry.get_layout("kafka.partition")


def following(*paths: Path, view: str | None = None, fail: bool = True, **words: Any) -> Following:
    def look() -> list[DirectoryTarget]:
        existing = [path for path in paths if path.exists()]
        resolved = resolve(existing, skipped=Skipped()) if existing else []
        return [
            partition for partition in choose_replicas(resolved) if isinstance(partition, DirectoryTarget)
        ]

    return Following(
        look, LAYOUT, view, Options(LAYOUT.capabilities.follow.options, words), fail_on_loss=fail
    )  # type: ignore[attr-defined]


def rows(tasks: Sequence[Ranged], column: str = "offset") -> list[int]:
    table = registry.get("kafka.log").tables["frames" if column == "base_offset" else "rows"]
    batches = [batch.column(column).to_pylist() for batch in run(tasks, [column], Report("x"))]
    assert table is not None
    return [value for batch in batches for value in batch]


def write(path: Path, first: int, count: int, **options: Any) -> None:
    values = [b"%d" % n for n in range(first, first + count)]
    times = pa.array([1000 * n for n in range(first, first + count)], pa.timestamp("ms", "UTC"))
    lw.write(
        pa.table({"value": values, "timestamp": times}),
        path,
        "kafka.partition",
        mode="append",
        **{"batch_size": "300", **options},
    )


@pytest.mark.parametrize("fresh", [False, True], ids=["one reader", "a new one each time"])
def test_each_row_comes_once_however_the_log_grows(tmp_path: Path, fresh: bool) -> None:
    """The active segment grows by pieces of any size, including torn frames, and rolls."""
    full, grown = tmp_path / "whole" / "orders-0", tmp_path / "orders-0"
    write(full, 0, 500, segment_bytes="3000")
    grown.mkdir()
    chance = random.Random(7)
    follow, position, seen = following(grown), {"orders-0": 0}, []
    for segment in sorted(full.glob("*.log")):
        data = segment.read_bytes()
        at = 0
        while at <= len(data):
            (grown / segment.name).write_bytes(b"") if at == 0 else None
            with open(grown / segment.name, "r+b") as file:
                file.truncate(at)
                file.seek(0)
                file.write(data[:at])
            if fresh:
                follow = following(grown)
            end = follow.latest(position)
            new_rows = rows(follow.between(position, end))
            assert rows(following(grown).between(position, end)) == new_rows, "asked once more"
            seen += new_rows
            position = end
            at = at + chance.randrange(1, 700) if at < len(data) else len(data) + 1
            at = min(at, len(data)) if at <= len(data) + 699 and at != len(data) + 1 else at
    assert seen == list(range(500))


@pytest.mark.alike
@pytest.mark.parametrize("view", ["read_uncommitted", "log", "read_committed", "batches"])
@pytest.mark.parametrize("name", ["v2_txn_interleaved", "v2_headers", "craft_txn_open"])
def test_any_step_size_gives_the_rows_of_a_batch_read(name: str, view: str) -> None:
    path = CASES[name].partition
    column = "base_offset" if view == "batches" else "offset"
    expected = lw.read(path, view=view, columns=[column])[column].to_pylist()
    follow = following(path, view=view)
    ((key, (target, low, high)),) = follow.spans(stream=True).items()
    end = follow.latest({key: low})[key]
    assert target.directory.name == key
    for step in (1, 3, 7, 1000):
        seen: list[int] = []
        for position in range(low, end, step):
            reader = follow if step > 3 else following(path, view=view)
            seen += rows(reader.between({key: position}, {key: min(position + step, end)}), column)
        assert seen == expected, step
    assert rows(follow.between({key: low}, {key: end}, 5), column) == expected
    assert high >= end


def test_open_transactions_delay_their_rows(tmp_path: Path) -> None:
    """A reader sees a prefix of the growing log: a row is returned once its transaction has committed."""
    path = CASES["v2_txn_interleaved"].partition
    expected = lw.read(path, view="read_committed", columns=["offset"])["offset"].to_pylist()
    for fresh in (False, True):
        grown = tmp_path / str(fresh) / path.name
        grown.mkdir(parents=True)
        follow, position, seen, waited = following(grown, view="read_committed"), {path.name: 0}, [], 0
        for segment in sorted(path.glob("*.log")):
            data = segment.read_bytes()
            starts = lw.read(segment, view="frames", columns=["position"])["position"].to_pylist()
            for stop in [*starts, len(data)]:
                with open(grown / segment.name, "ab") as file:
                    file.write(data[file.tell() : stop])
                follow = following(grown, view="read_committed") if fresh else follow
                end = follow.latest(position)
                seen += rows(follow.between(position, end))
                waited += end == position
                position = end
        assert seen == expected
        assert waited > 3


def pace(**words: Any) -> Pace:
    return Pace.of(Options(PACE_OPTIONS, words))


def test_rate_limits_the_rows_of_a_step(tmp_path: Path) -> None:
    for number, count in ((0, 400), (1, 100)):
        write(tmp_path / f"a-{number}", 0, count, segment_bytes="2k")
    follow = following(tmp_path)
    start = {"a-0": 0, "a-1": 0}
    end = follow.latest(start)
    assert end == {"a-0": 400, "a-1": 100}
    assert follow.paced(start, end, pace(maxOffsetsPerTrigger=50)) == {"a-0": 40, "a-1": 10}
    assert follow.paced(start, end, pace(maxOffsetsPerTrigger=1)) == {"a-0": 1, "a-1": 1}
    assert follow.paced(start, end, pace(maxOffsetsPerTrigger=5000)) == end
    for words in (
        {"maxBytesPerTrigger": "1500"},
        {"maxBytesPerTrigger": 1},
        {"maxFilesPerTrigger": 1},
        {"maxOffsetsPerTrigger": 33},
    ):
        at, seen, batches = start, [], 0
        while at != end:
            to = follow.paced(at, end, pace(**words))
            assert to != at
            seen += rows(follow.between(at, to))
            at, batches = to, batches + 1
        assert sorted(seen) == sorted([*range(400), *range(100)])
        assert batches >= 4, words


def test_spark_options_for_kafka_select_partitions_and_offsets(tmp_path: Path) -> None:
    write(tmp_path / "a-0", 0, 100)
    write(tmp_path / "a-1", 0, 50)
    write(tmp_path / "b-0", 0, 10)

    def spans(stream: bool = False, **words: Any) -> dict[str, tuple[int, int]]:
        follow = following(tmp_path, **words)
        follow._look = lambda look=follow._look: [
            offset
            for offset in look()
            if LAYOUT.capabilities.follow.wanted(offset.directory.name, follow.words)
        ]  # type: ignore[attr-defined,misc]
        return {name: (low, high) for name, (_, low, high) in follow.spans(stream=stream).items()}

    assert spans() == {"a-0": (0, 100), "a-1": (0, 50), "b-0": (0, 10)}
    assert spans(subscribe="a") == {"a-0": (0, 100), "a-1": (0, 50)}
    assert spans(subscribe="b, a") == spans()
    assert spans(subscribePattern="b|c.*") == {"b-0": (0, 10)}
    assert spans(assign='{"a": [1], "b": [0, 7]}') == {"a-1": (0, 50), "b-0": (0, 10)}
    assert spans(stream=True)["a-0"] == (0, 100)
    assert spans(stream=True, subscribe="b") == {"b-0": (10, 10)}
    assert spans(stream=True, subscribe="b", startingOffsets="earliest") == {"b-0": (0, 10)}
    both = {"startingOffsets": '{"a": {"0": 7, "1": -2}}', "endingOffsets": '{"a": {"0": 30, "1": -1}}'}
    assert spans(subscribe="a", **both) == {"a-0": (7, 30), "a-1": (0, 50)}
    assert spans(subscribe="a", startingTimestamp=20_000, endingTimestamp=40_000) == {
        "a-0": (20, 40),
        "a-1": (20, 40),
    }
    assert spans(subscribe="a", startingTimestamp=19_001, endingTimestamp=70_000) == {
        "a-0": (20, 70),
        "a-1": (20, 50),
    }
    by = {"startingOffsetsByTimestamp": '{"a": {"0": 5000, "1": 6000}}', "startingOffsets": "latest"}
    assert spans(subscribe="a", **by) == {"a-0": (5, 100), "a-1": (6, 50)}
    late = {"startingTimestamp": 70_000, "startingOffsetsByTimestampStrategy": "latest"}
    assert spans(subscribe="a", **late) == {"a-0": (70, 100), "a-1": (50, 50)}
    for words, refused in (
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe and assign exclude each other"),
        ({"subscribe": " , "}, "expected topics"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"assign": '{"a": 0}'}, r"expected \{"),
        ({"assign": "[]"}, "expected a JSON object with the topics"),
        ({"startingOffsets": "erliest"}, "expected JSON"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, r"expected \{"),
        ({"startingOffsets": '{"a": {"0": 3}}'}, "has no value for a-1"),
        ({"startingTimestamp": 99_000, "subscribe": "a"}, "no record of a-1 is at or after the time"),
        ({"kafka.bootstrap.servers": "here:9092"}, "files are read, not a broker"),
    ):
        with pytest.raises(UsageError, match=refused):
            spans(**words)
    with pytest.raises(UsageError, match="endingOffsets is not for streams"):
        spans(stream=True, endingOffsets="latest")
    with pytest.raises(UsageError, match="be followed"):
        following(tmp_path, view="rows")
    assert following(tmp_path, **{"kafka.isolation.level": "read_committed"}).view == "read_committed"
    with pytest.raises(UsageError, match="a duration such as"):
        pace(maxTriggerDelay="soon")
    assert pace(maxTriggerDelay="500ms").patience == 0.5


def test_deleted_offsets_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a-0"
    write(path, 0, 300, segment_bytes="2k")
    first, second = sorted(path.glob("*.log"))[:2]
    begin = int(second.stem)
    for file in path.glob(f"{first.stem}.*"):
        file.unlink()
    for start, end in (({"a-0": 3}, {"a-0": 300}), ({"a-0": 500}, {"a-0": 500})):
        follow = following(path)
        with pytest.raises(LogwrightError, match="failOnDataLoss=false"):
            follow.between(start, follow.latest(start) | end)
    relaxed = following(path, fail=False)
    assert rows(relaxed.between({"a-0": 3}, {"a-0": 300})) == list(range(begin, 300))
    assert relaxed.latest({"a-0": 500}) == {"a-0": 500}
    assert relaxed.spans(stream=True)["a-0"][1:] == (begin, 300)
    assert "may have been deleted" not in caplog.text
    assert f"the first available is {begin}" in caplog.text
    with pytest.raises(LogwrightError, match="requested from 5"):
        following(path, startingOffsets='{"a": {"0": 5}}').spans(stream=True)
    with pytest.raises(LogwrightError, match="it ends at 300"):
        following(path, startingOffsets='{"a": {"0": 301}}').spans(stream=True)
    shutil.rmtree(path)
    with pytest.raises(LogwrightError, match="the directory no longer exists"):
        following(path).latest({"a-0": 300})
    assert relaxed.latest({"a-0": 300}) == {"a-0": 300}
    assert relaxed.between({"a-0": 300}, {"a-0": 310}) == []


def test_new_partition_starts_at_its_first_offset(tmp_path: Path) -> None:
    write(tmp_path / "a-0", 0, 10)
    follow = following(tmp_path)
    start = follow.latest({})
    write(tmp_path / "a-1", 0, 5, first_offset=100)
    end = follow.latest(start)
    assert end == {"a-0": 10, "a-1": 105}
    assert rows(follow.between(start, end)) == list(range(100, 105))


def test_replaced_file_is_read_from_its_start(tmp_path: Path) -> None:
    write(tmp_path / "a-0", 0, 10)
    (change,) = following(tmp_path).between({}, {"a-0": 10})
    moved = Ranged(change.with_files(lambda task: task).task, change.table, change.column, 0, 10)
    from dataclasses import replace

    gone = replace(
        moved, task=replace(change.task, real=str(tmp_path / "a-0" / ".logwright" / "x" / "0.log"))
    )
    assert rows([gone]) == list(range(10))


# Folders of stores


def found(path: Path, **options: str) -> list[str]:
    request = Request.of({"path": str(path), **options})
    assert request.reading() is not None
    return [target.path for target in request.found()]


def test_recursive_file_lookup_reads_no_folder_of_a_store_again(tmp_path: Path) -> None:
    bookie = tmp_path / "all" / "bookie"
    lw.write([{"ledger_id": 1, "entry_id": 0, "payload": b"x"}], bookie, "bookkeeper.bookie")
    assert found(tmp_path, recursiveFileLookup="true") == [str(bookie)]


def test_stores_of_several_systems_in_a_folder_are_refused(tmp_path: Path) -> None:
    """Also if only some of them can be followed. Option codec chooses those of one kind."""
    places = {"kafka.partition": tmp_path / "all" / "a-0", "leveldb.db": tmp_path / "all" / "db"}
    for codec, place in places.items():
        lw.write([{"key": "a", "value": "b"}], place, codec)
    with pytest.raises(UsageError, match=r"a-0 \(kafka\.partition\).*Read them one by one; codec .* chooses"):
        found(tmp_path / "all")
    for codec, place in places.items():
        assert found(tmp_path / "all", codec=codec) == [str(place)]
    with pytest.raises(UsageError, match="Spark with recursiveFileLookup"):
        found(tmp_path)
