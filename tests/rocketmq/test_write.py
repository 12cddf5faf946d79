"""Write stores with several commit log paths, batch consume queues, extensions and light message queues, and append to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from memory_directory import MemoryDirectory
from stores import LARGER, ROWS, SIZES, batch, light, placed

import logwright as lw
from logwright.codec.option import Options
from logwright.codec.rocketmq.startup.start import STARTUP
from logwright.codec.rocketmq.store.follow import OPTIONS
from logwright.codec.rocketmq.store.layout import LAYOUT

PREPARED = {**ROWS[9], "sys_flag": 4, "keys": "one two"}


STORES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "plain": (ROWS, {}),
    "batches": ([batch(*args) for args in ((0, 1), (1, 3), (4, 1), (5, 10), (15, 1))], {"batch_topics": "B"}),
    "extensions": (ROWS, {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 84}),
    "light queues": ([light(n) for n in range(12)], {"enableLmq": True}),
}


def files(home: Path, *folders: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file() and path.relative_to(home).parts[0] in folders
    }


@pytest.mark.parametrize("kind", STORES)
def test_broker_serves_a_written_store_and_changes_nothing(kind: str, tmp_path: Path) -> None:
    rows, options = STORES[kind]
    sizes = {**SIZES, **options, "mapperFileSizeBatchConsumeQueue": 138}
    cut = len(rows) // 2
    lw.write(rows, tmp_path / "once", "rocketmq.store", **sizes)
    lw.write(rows[:cut], tmp_path / "twice", "rocketmq.store", **sizes)
    del sizes["batch_topics" if kind == "batches" else "maxIndexNum"]
    lw.write(rows[cut:], tmp_path / "twice", "rocketmq.store", mode="append", **sizes)
    derived = "consumequeue", "batchconsumequeue", "consumequeue_ext", "index"
    assert files(tmp_path / "once", *derived) == files(tmp_path / "twice", *derived)
    options = {name: value for name, value in options.items() if name.startswith("enable")}
    report = lw.verify(tmp_path / "twice", "rocketmq.store", as_system="5.5.0", **options)
    assert report.ok, report.text()
    assert report.system is not None
    assert (report.system["rows"], report.system["rows_lost"]) == (len(rows), 0)
    assert [
        name for name in (*report.system["rewrites"], *report.system["removes"]) if name.startswith(derived)
    ] == []


def test_index_for_an_older_broker_has_no_tags(tmp_path: Path) -> None:
    lw.write(ROWS, tmp_path / "new", "rocketmq.store", **SIZES)
    lw.write(ROWS, tmp_path / "old", "rocketmq.store", broker_version="5.3.3", **SIZES)
    counts = [lw.read(tmp_path / name, view="index").num_rows for name in ("new", "old")]
    assert counts == [2 * len(ROWS), len(ROWS)]
    lw.rebuild(tmp_path / "new", tmp_path / "rebuilt", what="index", broker_version="5.3.3")
    assert list(files(tmp_path / "rebuilt", "index").values()) == list(
        files(tmp_path / "old", "index").values()
    )


def test_append_continues_a_store_whose_last_messages_are_in_no_queue(tmp_path: Path) -> None:
    """A broker indexes such messages again at each start. An append does not."""
    rows = [*ROWS[:10], PREPARED, PREPARED, *ROWS[10:20]]
    sizes: dict[str, Any] = {**SIZES, "maxIndexNum": 22}
    lw.write(rows, tmp_path / "once", "rocketmq.store", **sizes)
    lw.write(rows[:12], tmp_path / "twice", "rocketmq.store", **sizes)
    report = lw.verify(tmp_path / "twice", "rocketmq.store", as_system="5.5.0")
    assert any(name.startswith("index/") for name in report.system["rewrites"])
    lw.write(rows[12:], tmp_path / "twice", "rocketmq.store", mode="append", **sizes)
    derived = "consumequeue", "index"
    assert files(tmp_path / "once", *derived) == files(tmp_path / "twice", *derived)


def test_append_is_refused_where_a_start_would_index_further_messages(tmp_path: Path) -> None:
    lw.write([*ROWS[:10], PREPARED, PREPARED], tmp_path / "store", "rocketmq.store", **SIZES)
    index = max((tmp_path / "store/index").iterdir())
    data = bytearray(index.read_bytes())
    count = int.from_bytes(data[36:40], "big")
    data[36:40] = (count - 1).to_bytes(4, "big")
    index.write_bytes(data)
    with pytest.raises(lw.UsageError, match="a broker would change index/"):
        lw.write(ROWS[10:], tmp_path / "store", "rocketmq.store", mode="append", **SIZES)


def test_append_with_another_size_than_that_of_the_files_is_refused(tmp_path: Path) -> None:
    lw.write(ROWS, tmp_path / "store", "rocketmq.store", **SIZES)
    with pytest.raises(lw.UsageError, match="Leave out mappedFileSizeCommitLog, or repair it first"):
        lw.write(ROWS, tmp_path / "store", "rocketmq.store", mode="append", mappedFileSizeCommitLog=2048)


def test_rows_without_the_type_of_a_transaction_are_refused(tmp_path: Path) -> None:
    lw.write([*ROWS[:10], PREPARED, *ROWS[10:]], tmp_path / "store", "rocketmq.store", **SIZES)
    with pytest.raises(lw.UsageError, match="need the column sys_flag"):
        lw.write(lw.read(tmp_path / "store"), tmp_path / "other", "rocketmq.store", **SIZES)
    lw.write(lw.read(tmp_path / "store", columns="*"), tmp_path / "copy", "rocketmq.store", **SIZES)
    assert files(tmp_path / "copy", "commitlog") == files(tmp_path / "store", "commitlog")


def test_start_that_is_no_offset_is_refused() -> None:
    with pytest.raises(lw.UsageError, match="expected earliest, latest or a number"):
        Options(OPTIONS, {"startingPhysicalOffset": "first"})


@pytest.mark.parametrize("base", [220, 300, 1 << 62, (1 << 63) - 1])
def test_store_whose_last_queue_file_has_another_name_is_not_appended_to(base: int, tmp_path: Path) -> None:
    lw.write(ROWS, tmp_path, "rocketmq.store", mode="overwrite", **SIZES)
    last = max((tmp_path / "consumequeue/T0/0").iterdir())
    last.rename(last.with_name(f"{base // 20 * 20:020d}"))
    (row,) = lw.read(
        tmp_path, view="queues", filter="topic == T0 and queue_id == 0", mode="PERMISSIVE"
    ).to_pylist()
    assert row["max_offset"] == base // 20 + 2
    with pytest.raises(
        lw.UsageError, match=r"at other queue offsets than those of their messages|is not a multiple of 100"
    ):
        lw.write(ROWS, tmp_path, "rocketmq.store", mode="append")


def test_store_whose_last_log_file_begins_inside_another_one_is_not_appended_to(tmp_path: Path) -> None:
    lw.write(ROWS, tmp_path, "rocketmq.store", mode="overwrite", **SIZES)
    last = max((tmp_path / "commitlog").iterdir())
    last.rename(last.with_name(f"{int(last.name) + 1:020d}"))
    with pytest.raises(
        lw.UsageError, match=r"is not a multiple of 1024, the size of a file.* Repair the store first"
    ):
        lw.write(ROWS, tmp_path, "rocketmq.store", mode="append", **SIZES)


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../../x", "a\0b"])
def test_topic_that_cannot_be_a_folder_is_refused(topic: str, tmp_path: Path) -> None:
    with pytest.raises(lw.UsageError, match="cannot be the name of a folder"):
        lw.write([{"topic": topic}], tmp_path / "store", "rocketmq.store", **SIZES)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "row", [{"tags": "a\2b"}, {"keys": "a\2"}, {"properties": [("a\1", "b")]}, {"properties": [("a", "b\2")]}]
)
def test_text_with_a_separator_of_properties_is_refused(row: dict[str, Any], tmp_path: Path) -> None:
    rows = [{"properties": [("a", "b\1")], "tags": "c\1"}, {}, row]
    with pytest.raises(lw.UsageError, match="row 2: names of properties cannot contain bytes 1 and 2"):
        lw.write([{"topic": "T", **row} for row in rows], tmp_path / "store", "rocketmq.store", **SIZES)


def test_largest_queue_id_is_written(tmp_path: Path) -> None:
    lw.write([{"topic": "T", "queue_id": (1 << 31) - 1}], tmp_path / "store", "rocketmq.store", **SIZES)
    assert lw.verify(tmp_path / "store", as_system="5.5.0").ok


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


@pytest.mark.parametrize(
    ("version", "size"), [("4.9.7", 128), ("5.0.0", 200), ("5.1.0", 200), ("4.9.7", 127)]
)
def test_topic_that_an_old_broker_cannot_read_is_refused(version: str, size: int, tmp_path: Path) -> None:
    """It would end the log there, and delete all later files."""
    rows = [{**ROWS[0], "topic": topic} for topic in ("T", "t" * size, "T")]
    if size > 127 and version < "5.1":
        with pytest.raises(lw.UsageError, match="row 1: a broker before"):
            lw.write(rows, tmp_path / "store", "rocketmq.store", broker_version=version, **LARGER)
        assert not (tmp_path / "store").exists()
        return
    lw.write(rows, tmp_path / "store", "rocketmq.store", broker_version=version, **LARGER)
    served = lw.read(tmp_path / "store", mode="AS_SYSTEM", as_system="4.9.7" if size < 128 else "5.5.0")
    assert served.num_rows == 3


def test_settings_that_the_broker_needs_are_named(tmp_path: Path) -> None:
    """An append continues with the settings of the store."""
    rows = [{"topic": "orders", "body": "x"}]
    sizes = {"mappedFileSizeCommitLog": 4096, "maxHashSlotNum": 4, "maxIndexNum": 8}
    written = lw.write(rows, tmp_path / "store", "rocketmq.store", **sizes)
    assert written.before_you_start == (
        "Set in broker.conf: mappedFileSizeCommitLog=4096, maxHashSlotNum=4, maxIndexNum=8",
    )
    assert not lw.write(rows, tmp_path / "store", "rocketmq.store", mode="append").before_you_start


def test_negative_queue_is_refused(tmp_path: Path) -> None:
    rows = [{"topic": "orders", "queue_id": number, "body": "x"} for number in (0, None, -1)]
    with pytest.raises(lw.UsageError, match="row 2: queue_id is -1"):
        lw.write(rows, tmp_path / "store", "rocketmq.store")
