"""A store with sub-folders, in one root or in two, is read like a flat folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import queue_store as stores

import logwright as lw
from logwright.writers.streamed import StreamWrite

queue_store = stores.queue_store
BODIES = [row["body"] for row in stores.messages(0, 7)]


@pytest.fixture(params=["one root", "two roots"])
def store(request: Any, tmp_path: Path, queue_store: stores.QueueStore) -> tuple[Path, dict[str, str]]:
    options = {"storePathCommitLog": str(tmp_path / "log")} if request.param == "two roots" else {}
    path = tmp_path / "store"
    lw.write(stores.messages(0, 4), path, "test.queues", **options)
    lw.write(stores.messages(4, 3), path, "test.queues", mode="append", **options)
    return path, options


def test_files_have_relative_paths(store: Any) -> None:
    path, options = store
    rows = lw.read(path, view="files", **options)
    names = rows["name"].to_pylist()
    assert names[1:3] == [f"commitlog/{stores.number(0)}", f"commitlog/{stores.number(1024)}"]
    assert f"consumequeue/T1/2/{stores.number(0)}" in names
    log = Path(options.get("storePathCommitLog", path / "commitlog"))
    assert sorted(child.name for child in log.iterdir()) == [stores.number(0), stores.number(1024)]
    assert (log / stores.number(0)).stat().st_size == stores.FILE_SIZE


def test_views_jobs_and_filters(store: Any) -> None:
    path, options = store
    assert lw.read(path, **options)["body"].to_pylist() == BODIES
    assert lw.read(path, jobs=2, **options)["body"].to_pylist() == BODIES
    assert lw.read(path, filter=[("queue_id", "==", 2)], **options)["body"].to_pylist() == BODIES[2::3]
    units = lw.read(path, view="units", columns=["queue_offset", "physical_offset"], **options).to_pylist()
    assert sorted(unit["physical_offset"] for unit in units)[0] == 0
    assert [unit["queue_offset"] for unit in units] == [0, 1, 0, 0, 0, 0, 0]


def test_verify_inspect_and_explain(store: Any) -> None:
    path, options = store
    assert lw.verify(path, **options).ok
    assert lw.inspect(path, **options)["codec"] == "test.queues"
    log = Path(options.get("storePathCommitLog", path / "commitlog")) / stores.number(0)
    damaged = bytearray(log.read_bytes())
    damaged[100] ^= 1
    log.write_bytes(damaged)
    report = lw.verify(path, **options)
    assert not report.ok
    assert any("commitlog" in file.path or str(log) in file.path for file in report.files if file.faults)


def test_diff_by_files_names_files_in_subdirectories(store: Any, tmp_path: Path) -> None:
    path, options = store
    other = tmp_path / "other"
    lw.write(stores.messages(0, 4), other, "test.queues")
    lw.write(stores.messages(4, 2), other, "test.queues", mode="append")
    difference = lw.diff(path, other, by="files", **options) if options else lw.diff(path, other, by="files")
    files = [difference["id"]["file"] for difference in difference.differences]
    assert f"consumequeue/T0/0/{stores.number(0)}" in files


def test_single_file_in_a_sub_folder(store: Any) -> None:
    path, _ = store
    queue = path / f"consumequeue/T0/0/{stores.number(0)}"
    assert lw.read(queue)["queue_offset"].to_pylist() == [0, 1]


def test_damage_in_a_sub_folder(store: Any, tmp_path: Path) -> None:
    path, options = store
    if options:
        shutil.copytree(options["storePathCommitLog"], path / "commitlog")
    out = tmp_path / "damaged"
    lw.damage(path, out, [f"zero:file=commitlog/{stores.number(0)},at=100,length=8"])
    assert not lw.verify(out).ok


def test_damage_in_the_first_file(store: Any, tmp_path: Path) -> None:
    path, options = store
    if not options:
        lw.damage(path, tmp_path / "damaged", ["zero:file=first,frame=1,at=8,length=4"])
        assert not lw.verify(tmp_path / "damaged").ok


def test_stream_appends_to_every_root_once(store: Any) -> None:
    path, options = store
    for _ in range(2):
        stream = StreamWrite(str(path), "test.queues", "app", options=options)
        task = stream.task(0)
        task.add(pa.RecordBatch.from_pylist(stores.messages(7, 2)))
        stream.commit(1, [task.commit()])
    assert len(lw.read(path, **options)) == 9
    log = Path(options.get("storePathCommitLog", path / "commitlog"))
    assert sorted(child.name for child in log.iterdir() if child.is_file()) == [
        stores.number(n << 10) for n in range(3)
    ]
    assert not [child for child in log.rglob("*") if child.name == "link.json"]
