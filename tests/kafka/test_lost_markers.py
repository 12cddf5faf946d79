"""Transactions whose markers may be lost: aborted records are never returned as committed, and records in doubt are reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_log import batch, data_batch, end_marker, record
from memory_directory import MemoryDirectory, UnreadableDirectory

import logwright as lw
from logwright.codec.kafka.formats.indexes import TXNINDEX_ENTRY
from logwright.codec.kafka.names import segment_name
from logwright.codec.kafka.repair.ends import TransactionEnds
from logwright.codec.kafka.store.transactions import AbortedIndex
from logwright.corpora.cases import cases

ABORT, COMMIT = 0, 1
CASES = cases("kafka")


def plain(base: int) -> bytes:
    return batch(base, [record(value=b"plain")])


def committed(path: Path) -> tuple[list[int], list[str]]:
    """Return the offsets that are returned as committed, and the faults of this view."""
    scan = lw.scan(path, view="read_committed", mode="DROPMALFORMED")
    offsets = scan.to_table()["offset"].to_pylist()
    return offsets, [fault.detail for _, fault in scan.report.faults if "read_uncommitted" in fault.detail]


def write(path: Path, batches: list[bytes], damaged: int) -> Path:
    path.mkdir(parents=True)
    data = bytearray(b"".join(batches))
    end = len(b"".join(batches[: damaged + 1]))
    data[end - 3 : end] = b"xyz"
    (path / segment_name(0, ".log")).write_bytes(data)
    return path


def index_of(path: Path, *entries: tuple[int, int, int]) -> None:
    """Write the index of aborted transactions: producer, first and last offset."""
    names = ("producer_id", "first_offset", "last_offset")
    packed = [
        TXNINDEX_ENTRY.pack({**dict(zip(names, entry, strict=True)), "last_stable_offset": entry[2] + 1})
        for entry in entries
    ]
    (path / segment_name(0, ".txnindex")).write_bytes(b"".join(packed))


def two_transactions(first: int, second: int) -> list[bytes]:
    """Return the batches of two transactions of a producer with these ends."""
    return [data_batch(0, 1), end_marker(1, 1, first), data_batch(2, 1), end_marker(3, 1, second), plain(4)]


BEFORE_A_COMMIT = two_transactions(ABORT, COMMIT)


def test_later_commit_does_not_commit_records_before_a_lost_marker(tmp_path: Path) -> None:
    offsets, (fault,) = committed(write(tmp_path / "orders-0", BEFORE_A_COMMIT, 1))
    assert offsets == [2, 4]
    assert fault.startswith("records of producer 1 from offset 0 to 0 are not returned")


def test_later_abort_leaves_the_outcome_before_a_lost_marker_unknown(tmp_path: Path) -> None:
    offsets, (fault,) = committed(write(tmp_path / "orders-0", two_transactions(COMMIT, ABORT), 1))
    assert offsets == [4]
    assert fault.startswith("records of producer 1 from offset 0 to 0 are not returned")


def test_index_of_aborted_transactions_stands_for_a_lost_marker(tmp_path: Path) -> None:
    path = write(tmp_path / "orders-0", BEFORE_A_COMMIT, 1)
    index_of(path, (1, 0, 1))
    assert committed(path) == ([2, 4], [])


def test_transaction_that_the_index_ends_does_not_stop_the_read(tmp_path: Path) -> None:
    path = write(tmp_path / "orders-0", [data_batch(0, 1), end_marker(1, 1, ABORT), plain(2)], 1)
    offsets, (fault,) = committed(path)
    assert offsets == []
    assert "begins at offset 0 has no end" in fault
    index_of(path, (1, 0, 1))
    assert committed(path) == ([2], [])


@pytest.mark.parametrize(
    "entry",
    [pytest.param((1, 5, 1), id="first offset"), pytest.param((1, 0, 7), id="last offset"), pytest.param((9, 0, 1), id="producer")],
)  # fmt: skip
def test_entry_that_the_log_contradicts_ends_no_transaction(
    tmp_path: Path, entry: tuple[int, int, int]
) -> None:
    path = write(tmp_path / "orders-0", BEFORE_A_COMMIT, 1)
    index_of(path, entry)
    offsets, faults = committed(path)
    assert (offsets, len(faults)) == ([2, 4], 1)
    (path / segment_name(0, ".txnindex")).write_bytes(b"odd")
    assert committed(path) == (offsets, faults)


RECORDS_BETWEEN = [
    data_batch(0, 1),
    data_batch(1, 2, transactional=False, count=3),
    data_batch(4, 1),
    end_marker(5, 1, COMMIT),
]


def test_lost_batch_of_several_records_hides_no_marker(tmp_path: Path) -> None:
    assert committed(write(tmp_path / "orders-0", RECORDS_BETWEEN, 1)) == ([0, 4], [])


def test_lost_batch_of_one_record_hides_a_marker_only_if_it_has_the_size_of_one(tmp_path: Path) -> None:
    for size, offsets in ((8, [0]), (9, []), (10, [0])):
        batches = [data_batch(0, 1), batch(1, [record(value=bytes(size))]), end_marker(2, 1, COMMIT)]
        path = write(tmp_path / str(size) / "orders-0", batches, 1)
        assert (len(batches[1]) == len(batches[2])) == (not offsets)
        assert committed(path)[0] == offsets


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
@pytest.mark.parametrize("name", ["dmg_tbase", "killed_txn", "v2_txn_interleaved"])
def test_without_a_segment_aborted_records_are_not_committed(tmp_path: Path, name: str) -> None:
    source = CASES[name].partition
    healthy = set(committed(source)[0])
    for log in source.glob("*.log"):
        path = tmp_path / log.stem / source.name
        path.mkdir(parents=True)
        for file in source.iterdir():
            if file.name not in (log.name, log.with_suffix(".txnindex").name):
                (path / file.name).write_bytes(file.read_bytes())
        offsets, faults = committed(path)
        readable = set(lw.read(path, mode="DROPMALFORMED")["offset"].to_pylist())
        assert set(offsets) <= healthy
        assert faults or set(offsets) == healthy & readable


def test_index_of_aborted_transactions_stands_for_a_marker_that_is_gone_without_damage(
    tmp_path: Path,
) -> None:
    """Compaction leaves such a gap too, but it keeps the marker as long as the transaction has records."""
    path = tmp_path / "orders-0"
    path.mkdir()
    batches = [batch for i, batch in enumerate(BEFORE_A_COMMIT) if i != 1]
    (path / segment_name(0, ".log")).write_bytes(b"".join(batches))
    assert committed(path) == ([0, 2, 4], [])
    index_of(path, (1, 0, 1))
    assert committed(path) == ([2, 4], [])


def test_index_ends_the_last_transaction_of_a_log_that_was_cut_before_its_marker(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    path.mkdir()
    (path / segment_name(0, ".log")).write_bytes(b"".join([plain(0), data_batch(1, 1)]))
    assert committed(path) == ([0], [])
    index_of(path, (1, 1, 2))
    assert committed(path) == ([0], [])
    (path / segment_name(3, ".log")).write_bytes(plain(3))
    assert committed(path)[0] == [0, 3]


def write_batches(path: Path, batches: list[bytes]) -> Path:
    path.mkdir(parents=True)
    (path / segment_name(0, ".log")).write_bytes(b"".join(batches))
    return path


@pytest.mark.parametrize("place", range(7))
def test_records_before_a_marker_at_a_wrong_place_are_not_committed(tmp_path: Path, place: int) -> None:
    """The batch is complete, but is not where its offset is. A later marker commits the records that it aborted."""
    batches = [
        data_batch(0, 2),
        data_batch(1, 1),
        end_marker(2, 1, ABORT),
        data_batch(3, 1),
        end_marker(4, 1, COMMIT),
        end_marker(5, 2, COMMIT),
        plain(6),
    ]
    batches.insert(place, batches.pop(2))
    path = write_batches(tmp_path / "orders-0", batches)
    offsets, faults = committed(path)
    assert 1 not in offsets
    assert offsets in ([0, 3, 6], [0, 6])
    assert place or faults[0].startswith("records of producer 1 from offset 1 to 1 are not returned")


def test_marker_with_a_wrong_offset_in_a_compacted_log_leaves_its_records_in_doubt(tmp_path: Path) -> None:
    batches = [
        data_batch(0, 1),
        end_marker(1 + 64, 1, ABORT),
        data_batch(9, 1),
        end_marker(10, 1, COMMIT),
        plain(20),
    ]
    offsets, (fault,) = committed(write_batches(tmp_path / "orders-0", batches))
    assert offsets == [9, 20]
    assert fault.startswith("records of producer 1 from offset 0 to 0 are not returned")


# Repair


def repaired(path: Path, **options: str) -> tuple[Path, list[str]]:
    """Repair a partition. Return the result, and the notes on transactions."""
    out = path.parent / "repaired" / path.name
    report = lw.repair(path, out, **options)
    return out, [note for note in report.notes if "producer 1 " in note]


def types_of(path: Path) -> list[tuple[int, str | None]]:
    """Return the offsets of all records with the types of markers."""
    rows = lw.read(path, view="log", columns=["offset", "control_type"]).to_pylist()
    return [(row["offset"], row["control_type"]) for row in rows]


def test_repair_writes_an_abort_marker_again_that_the_index_proves(tmp_path: Path) -> None:
    path = write(tmp_path / "orders-0", BEFORE_A_COMMIT, 1)
    index_of(path, (1, 0, 1))
    out, (note,) = repaired(path)
    assert note.startswith(
        "The lost marker at offset 1, which aborted the transaction of producer 1 since offset 0, is written again"
    )
    assert types_of(out) == [(0, None), (1, "ABORT"), (2, None), (3, "COMMIT"), (4, None)]
    assert committed(out) == committed(path) == ([2, 4], [])


def test_repair_writes_the_marker_at_the_end_of_a_segment_or_of_the_log_again(tmp_path: Path) -> None:
    for name, rest in (("between", plain(2)), ("last", b"")):
        path = write(tmp_path / name / "orders-0", [data_batch(0, 1), end_marker(1, 1, ABORT)], 1)
        index_of(path, (1, 0, 1))
        if rest:
            (path / segment_name(2, ".log")).write_bytes(rest)
        out, _ = repaired(path)
        assert types_of(out)[:2] == [(0, None), (1, "ABORT")]
        assert lw.read(out / segment_name(0, ".log"), columns="offset")["offset"].to_pylist() == [0, 1]
        assert committed(out) == ([2] if rest else [], [])


def test_repair_writes_no_marker_far_beyond_the_end_of_the_log(tmp_path: Path) -> None:
    path = write(tmp_path / "orders-0", [data_batch(0, 1), end_marker(1, 1, ABORT)], 1)
    index_of(path, (1, 0, 1 << 20))
    out, (note,) = repaired(path)
    assert types_of(out) == [(0, None)]
    assert note.endswith("The transaction stays open, and read_committed consumers stop at offset 0.")


@pytest.mark.parametrize(
    ("later", "offsets", "effect"),
    [
        (COMMIT, [0, 2, 4], "count as committed, and read_committed consumers get them"),
        (ABORT, [4], "count as aborted, and read_committed consumers skip them"),
    ],
)
def test_repair_reports_records_whose_lost_marker_a_later_one_replaces(
    tmp_path: Path, later: int, offsets: list[int], effect: str
) -> None:
    path = write(tmp_path / "orders-0", two_transactions(1 - later, later), 1)
    out, (note,) = repaired(path)
    assert note.startswith(
        "The marker that ended the transaction of producer 1 since offset 0 may be lost (offset 1)."
    )
    assert (
        f"The next marker of the producer, at offset 3, now ends it: its records up to offset 0 {effect}"
        in note
    )
    assert committed(out) == (offsets, [])


@pytest.mark.parametrize("strategy", ["salvage", "prefix"])
def test_repair_reports_a_transaction_that_stays_open_without_its_marker(
    tmp_path: Path, strategy: str
) -> None:
    path = write(tmp_path / "orders-0", [data_batch(0, 1), end_marker(1, 1, ABORT), plain(2)], 1)
    out, (note,) = repaired(path, strategy=strategy)
    assert note.endswith(
        "(offset 1). The transaction stays open, and read_committed consumers stop at offset 0."
    )
    assert types_of(out) == ([(0, None), (2, None)] if strategy == "salvage" else [(0, None)])


def test_repair_describes_the_first_lost_markers_and_counts_the_others(tmp_path: Path) -> None:
    data = [data_batch(i, i + 1) for i in range(12)]
    batches = [*data, *(end_marker(12 + i, i + 1, ABORT) for i in range(12)), plain(24)]
    path = tmp_path / "orders-0"
    path.mkdir()
    log = bytearray(b"".join(batches))
    start = len(b"".join(data))
    log[start : len(log) - len(plain(24))] = bytes(len(log) - len(plain(24)) - start)
    (path / segment_name(0, ".log")).write_bytes(log)
    index_of(path, *((i + 1, i, 12 + i) for i in range(6)))
    notes = lw.repair(path, tmp_path / "out" / "orders-0").notes
    assert "So are 2 more markers of aborted transactions." in notes
    assert "So may be the ends of 2 more transactions." in notes
    assert sum("is written again" in note for note in notes) == 4
    assert (
        sum(
            "may be lost (offsets 12 to 23)" in note or "may be lost (offsets 18 to 23)" in note
            for note in notes
        )
        == 4
    )


def test_lost_batch_of_records_hides_no_marker_from_a_repair(tmp_path: Path) -> None:
    assert repaired(write(tmp_path / "orders-0", RECORDS_BETWEEN, 1))[1] == []


def test_unreadable_index_of_aborted_transactions_proves_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "orders-0", BEFORE_A_COMMIT, 1)
    index_of(path, (1, 0, 1))
    files = MemoryDirectory.of(path).files
    assert AbortedIndex(MemoryDirectory(files)).between(0, 9)
    unreadable = UnreadableDirectory(files, {segment_name(0, ".txnindex"): [(0, 10)]})
    assert AbortedIndex(unreadable).between(0, 9) == []


def test_ranges_of_lost_offsets_may_overlap() -> None:
    ends = TransactionEnds(None, [(5, 9), (2, 6), (20, 20)])
    ends.lose(3, 8, {1: 0})
    ends.lose(10, 20, {2: 10})
    ends.lose(15, None, {3: 15})
    assert [note.partition(".")[0] for note in ends.notes()] == [
        "The marker that ended the transaction of producer 1 since offset 0 may be lost (offsets 3 to 7)",
        "The marker that ended the transaction of producer 3 since offset 15 may be lost (offset 20)",
    ]
