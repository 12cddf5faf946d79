"""Where the messages of a commit log file end: zeros, blank records, stray bytes and missing files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import ROWS, SIZES, flip, real_rows

import logwright as lw
from logwright.codec.frames.walk import Hole, MemoryFile, Walk
from logwright.codec.option import Options
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC
from logwright.codec.rocketmq.store.log import Log, find_runs

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")


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


def test_zeros_up_to_the_end_of_a_file_are_not_searched_for_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CODEC, "resync", None)
    context = CODEC.context("0" * 20, Options(CODEC.options))
    _, hole = Walk(MemoryFile(np.zeros(1000, np.uint8)), CODEC, context)
    assert isinstance(hole, Hole)
    assert (hole.tail, hole.fault.length) == (True, 1000)


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


def test_stray_bytes_after_the_last_message_are_reported_and_need_no_placeholder(tmp_path: Path) -> None:
    home, out, options = tmp_path / "store", tmp_path / "out", {**SIZES, "mappedFileSizeCommitLog": 1 << 16}
    lw.write(ROWS, home, "rocketmq.store", **options)
    (log,) = (home / "commitlog").iterdir()
    data = log.read_bytes()
    log.write_bytes(data[:-50] + b"stray" + data[-45:])
    faults = [fault for file in lw.verify(home, **options).files for fault in file.faults]
    (fault,) = (fault for fault in faults if "other bytes" in fault.detail)
    assert fault.severity == "warning"
    report = lw.repair(home, out, **options)
    assert "placeholder" not in report.text()
    assert real_rows(out, **options) == real_rows(home, **options)
