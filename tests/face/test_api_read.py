"""The Python API for reading, on a test format: read, scan, verify, inspect, detect, codecs."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fake_store import FRAMES_CODEC, fake_store, frame, shuffled  # noqa: F401

import logwright as lw
from logwright.readers import paths, plan, resolve, task
from logwright.readers.report import Report

pytestmark = pytest.mark.usefixtures("fake_store")

FIRST, SECOND = shuffled(40), [frame(1000 + 10 * i, b"second %d" % i) for i in range(30)]


@pytest.fixture
def box(tmp_path: Path) -> Path:
    path = tmp_path / "box"
    path.mkdir()
    (path / "000.toy").write_bytes(b"".join(FIRST))
    (path / "1000.toy").write_bytes(b"".join(SECOND))
    (path / "NOTE").write_bytes(b"note:hello")
    (path / "README").write_bytes(b"?")
    return path


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def ids(*args: Any, **rest: Any) -> list[int]:
    return lw.read(*args, columns="id", **rest).column("id").to_pylist()


# Paths


def test_directory_is_read_in_order(box: Path) -> None:
    table = lw.read(box)
    assert table.schema.names == ["id", "time", "text", "place", "even", "directory", "words"]
    rows = table.column("id").to_pylist()
    assert rows == sorted(rows)
    assert rows[-30:] == [1000 + 10 * i for i in range(30)]
    assert set(table.column("directory").to_pylist()) == {"box"}


def test_paths_may_be_files_lists_globs_and_uris(
    box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = ids(box / "1000.toy")
    assert len(second) == 30
    assert ids([box / "1000.toy", str(box / "1000.toy")]) == second * 2
    assert ids(f"{box}/1*.toy") == second
    assert ids(f"file://{box}/1000.toy") == second
    assert ids(f"file://{box}") == ids(box) == ids(f"{box}/") == ids(f"{tmp_path}/b?x")
    assert ids([box, box]) == ids(box) * 2
    monkeypatch.chdir(box)
    assert ids("1000.toy") == second
    assert set(lw.read("1000.toy").column("directory").to_pylist()) == {"box"}
    assert ids(".") == ids(box)


def test_globs_work_on_a_remote_file_system(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow import fs

    from logwright.readers import listing, source

    for module in (source, listing, paths):
        monkeypatch.setattr(
            module, "file_system", lambda uri: (fs.LocalFileSystem(), uri.removeprefix("far:/"))
        )
    assert ids(f"far://{box}") == ids(box)
    assert ids(f"far://{box}/1*.toy") == ids(box / "1000.toy")
    assert ids(f"far://{box}/1000.toy") == ids(box / "1000.toy")
    assert lw.read(f"far://{box}/1000.toy").column("directory")[0].as_py() == "box"
    with pytest.raises(lw.NotFoundError, match="no file matches"):
        lw.read(f"far://{box}/*.boy")


def test_standard_input_can_be_scanned_repeatedly(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (box / "1000.toy").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    scan = lw.scan("-", columns="id")
    assert scan.to_table() == scan.to_table()
    assert scan.report["path"] == "-"


@pytest.mark.parametrize("spool", [10, 1 << 20])
def test_named_pipe_is_read(spool: int, box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logwright.readers.source._SPOOL", spool)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=((box / "1000.toy").read_bytes(),))
    writer.start()
    assert len(ids(pipe)) == 30
    writer.join()


def test_partitions_in_a_list_have_their_names(box: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "000.toy").write_bytes(frame(5, b"x"))
    scan = lw.scan([box, other])
    assert scan.to_table().num_rows == lw.read(box).num_rows + 1
    assert [file["path"] for file in scan.report["files"]] == [
        f"{box}/000.toy",
        f"{box}/1000.toy",
        f"{other}/000.toy",
    ]
    assert lw.verify([box, other])["files"][0]["path"] == f"{box}/000.toy"


@pytest.mark.parametrize(
    ("path", "rest", "error", "message"),
    [
        ("box/gone.toy", {}, lw.NotFoundError, "no such file"),
        ("bxo", {}, lw.NotFoundError, "Did you mean .*box"),
        ("box/*.boy", {}, lw.NotFoundError, "no file matches"),
        ("", {}, lw.UsageError, "empty"),
        ([], {}, lw.UsageError, "list of paths is empty"),
        (b"box", {}, lw.UsageError, "path must be text"),
        ("box/README", {}, lw.UsageError, "unrecognised .*`logwright codecs` lists the names"),
        ("empty", {}, lw.UsageError, "empty file with an unknown name"),
        ("above", {}, lw.UsageError, "known layouts: toy.store.*Its sub-folders hold stores, such as .*box"),
        ("hollow", {}, lw.UsageError, "it is empty"),
        ("notes", {}, lw.UsageError, "one of its files: notes/NOTE is toy.note"),
        ("plain", {}, lw.UsageError, "it has a, b, c, d and 2 more"),
        ("box", {"codec": "toy.frames"}, lw.UsageError, "is a codec of files.*looks like toy.store"),
        ("plain", {"codec": "toy.frames"}, lw.UsageError, "Pass one of its files"),
        ("plain", {"codec": "toy.store"}, lw.UsageError, "does not look like toy.store"),
        (
            "box/000.toy",
            {"codec": "toy.store"},
            lw.UsageError,
            "a layout of directories.*looks like toy.frames.*box",
        ),
        ("empty", {"codec": "toy.store"}, lw.UsageError, "Pass its directory"),
        ("box/000.toy", {"codec": "toy.note"}, lw.UsageError, "looks like toy.frames"),
        ("box", {"codec": "toy.stor"}, lw.UsageError, "Did you mean 'toy.store'"),
        ("box", {"view": "text"}, lw.UsageError, "Did you mean 'texts'"),
        ("box", {"view": "zzz"}, lw.UsageError, "Valid values: texts, heads, rows, frames, file, files"),
        ("box/000.toy", {"view": "texts"}, lw.UsageError, "needs a whole directory .*box"),
        ("box/000.toy", {"view": "files"}, lw.UsageError, "unknown view 'files'"),
        ("box", {"columns": "idd"}, lw.UsageError, "Did you mean 'id'"),
        ("box", {"columns": "ID"}, lw.UsageError, "Did you mean 'id'"),
        ("box", {"columns": " "}, lw.UsageError, "names none"),
        ("box", {"colums": "id"}, lw.UsageError, "unknown option 'colums'. Did you mean 'columns'"),
        (
            "rows.parquet",
            {},
            lw.UsageError,
            "a table file.*logwright convert .*rows.parquet TARGET --codec NAME",
        ),
        ("rows.csv", {}, lw.UsageError, "CSV is written, not read"),
        ("box", {"mode": "FASTFAIL"}, lw.UsageError, "FAILFAST"),
        ("box", {"limit": -1}, lw.UsageError, "0 or more"),
        ("box", {"lud": True}, lw.UsageError, "unknown option 'lud'.*'loud'"),
        ("box", {"from_id": "x"}, lw.UsageError, "from.id"),
        (["box", "box/NOTE"], {}, lw.UsageError, "different kinds"),
    ],
)
def test_unreadable_paths_are_errors(
    path: Any, rest: dict[str, Any], error: type[Exception], message: str, box: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("empty").touch()
    for name in ("hollow", "notes", "plain"):
        Path(name).mkdir()
    shutil.copytree(box, "above/below/box")
    Path("notes/NOTE").write_bytes(b"note:")
    Path("rows.parquet").write_bytes(b"PAR1...")
    Path("rows.csv").write_text("id,text\n")
    for name in "abcdef":
        Path("plain", name).touch()
    with pytest.raises(error, match=message):
        lw.read(path, **rest)


def test_codec_option_reads_an_unrecognised_file(tmp_path: Path) -> None:
    path = tmp_path / "backup.bin"
    path.write_bytes(frame(7, b"x"))
    assert ids(path) == [7]
    assert lw.detect(path) == "toy.frames"
    path.write_bytes(b"?" + frame(7, b"x"))
    assert lw.detect(path) is None
    with pytest.warns(lw.DamageWarning):
        assert ids(path, "toy.frames", mode="DROPMALFORMED") == [7]


def test_symlinks_and_tilde_are_resolved(box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(box)
    assert set(lw.read(tmp_path / "link").column("directory").to_pylist()) == {"link"}
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ids("~/box") == ids(box)


# Views, options


def test_view_names_and_table_names_select_the_same_rows(box: Path) -> None:
    assert lw.read(box, view="texts") == lw.read(box) == lw.read(box, view="rows")
    assert lw.read(box, view="heads").num_rows == lw.read(box, view="frames").num_rows == 70
    assert lw.read(box / "000.toy", view="heads").num_rows == 40
    assert lw.read(box, view="file").column("frames").to_pylist() == [40, 30]
    files = lw.read(box, view="files", filter=[("role", "!=", "primary")], columns="name,codec,note")
    assert files.to_pylist() == [
        {"name": "NOTE", "codec": "toy.note", "note": ""}, {"name": "README", "codec": None, "note": "not a toy"},
    ]  # fmt: skip
    assert lw.read([box, box], view="files", limit=5).num_rows == 5
    assert lw.read(box, view="files", mode="PERMISSIVE") == lw.read(box, view="files")


def test_rows_without_columns_are_counted(box: Path) -> None:
    assert lw.read(box, columns=[]).num_rows == lw.read(box).num_rows
    assert lw.read(box, columns=[], filter="id < 5", mode="DROPMALFORMED").num_rows == len(
        ids(box, filter="id < 5")
    )


def test_file_names_that_are_not_utf8_are_listed_with_replacement_characters(box: Path) -> None:
    Path(os.fsdecode(os.fsencode(box) + b"/\xff")).touch()
    assert lw.read(box, view="files").column("name").to_pylist()[-1] == "\N{REPLACEMENT CHARACTER}"


def test_options_reach_the_codec_or_the_layout(box: Path) -> None:
    assert ids(box, from_id=1100) == [1000 + 10 * i for i in range(10, 30)]
    assert ids(box, **{"from.id": "1100"}) == ids(box, fromId=1100)
    assert lw.read(box, loud=True).column("text")[-1].as_py() == b"SECOND 29"
    assert lw.read(box / "1000.toy", Loud="yes").column("text")[-1].as_py() == b"SECOND 29"


def test_filters_skip_files_without_a_matching_row(box: Path) -> None:
    scan = lw.scan(box, filter=[("id", ">=", 1000)], columns="id")
    assert scan.to_table().num_rows == 30
    assert [file["path"] for file in scan.report["files"]] == ["1000.toy"]
    assert ids(box, filter=pc.field("id") > 1200) == ids(box, filter="id > 1200")


@pytest.mark.parametrize("limit", [0, 1, 100, 10_000, "3", "1k"])
def test_limit_counts_rows_over_all_files(box: Path, limit: Any) -> None:
    number = {"3": 3, "1k": 1024}.get(limit, limit)
    assert ids(box, limit=limit) == ids(box)[:number]


# Scans


def test_scan_is_an_arrow_stream(box: Path) -> None:
    expected = lw.read(box)
    scan = lw.scan(box)
    assert scan.schema == expected.schema
    assert pa.table(scan) == expected
    assert scan.to_reader().read_all() == expected
    assert pa.Table.from_batches(scan) == expected
    assert scan.report["rows"] == expected.num_rows
    assert "box" in repr(scan)


def test_pandas_polars_and_duckdb_accept_a_scan(box: Path) -> None:
    import duckdb
    import polars

    expected = lw.read(box)
    scan = lw.scan(box, columns="id,time,text,even")
    assert polars.DataFrame(scan).height == expected.num_rows
    assert scan.to_reader().read_pandas()["id"].tolist() == expected.column("id").to_pylist()
    reader = scan.to_reader()
    assert duckdb.sql("select count(*), max(id) from reader").fetchall() == [(expected.num_rows, 1290)]
    assert reader.schema == scan.schema


def test_report_describes_the_last_iteration(box: Path) -> None:
    scan = lw.scan(box)
    assert scan.report["rows"] == 0
    list(scan)
    list(scan)
    assert scan.report["rows"] == lw.read(box).num_rows


def test_errors_keep_their_class_through_arrow(box: Path) -> None:
    flip(box / "000.toy", 700)
    with pytest.raises(lw.DamageError, match="at byte"):
        lw.scan(box).to_reader().read_all()


# Damage


def test_failfast_raises_permissive_marks_and_dropmalformed_omits_damage(box: Path) -> None:
    complete = ids(box)
    flip(box / "000.toy", 700)
    with pytest.raises(lw.DamageError, match=r"box/000\.toy: at byte 646: checksum mismatch"):
        lw.read(box)
    with pytest.warns(lw.DamageWarning, match="000.toy  at 646"):
        table = lw.read(box, mode="permissive")
    assert table.column("_corrupt_length").drop_null().to_pylist() == [86]
    with pytest.warns(lw.DamageWarning):
        rest = ids(box, mode="DROPMALFORMED")
    assert set(rest) < set(complete)
    assert len(rest) == table.num_rows - 1


@pytest.mark.parametrize("columns", ["id,_corrupt_offset", ["_corrupt_record", "id"], "id"])
def test_columns_may_name_those_of_damaged_regions(box: Path, columns: str | list[str]) -> None:
    names = lw.scan(box, mode="PERMISSIVE", columns=columns).schema.names
    assert names == ["id", "_corrupt_record", "_corrupt_offset", "_corrupt_length"]
    if columns != "id":
        with pytest.raises(lw.UsageError, match="no column '_corrupt"):
            lw.scan(box, mode="DROPMALFORMED", columns=columns)


def test_torn_tail_warns_and_padding_does_not(box: Path) -> None:
    complete = ids(box)
    with (box / "1000.toy").open("ab") as file:
        file.write(b"\0" * 100)
    assert ids(box) == complete
    with (box / "1000.toy").open("r+b") as file:
        file.truncate((box / "1000.toy").stat().st_size - 110)
    with pytest.warns(lw.DamageWarning, match="truncated"):
        assert ids(box) == complete[:-1]


def test_faults_of_a_layout_are_reported(box: Path) -> None:
    (box / "000.toy").rename(box / "001.toy")
    with pytest.raises(lw.DamageError, match="is not there"):
        lw.read(box)
    with pytest.warns(lw.DamageWarning, match="not there"):
        lw.read(box, mode="DROPMALFORMED")
    (box / "001.toy").rename(box / "000.toy")
    (box / "NOTE").unlink()
    assert lw.read(box).num_rows  # a note that is missing is no matter of texts
    with pytest.raises(lw.DamageError, match="note is not there"):
        lw.read(box, view="files")
    assert lw.read(box, view="rows").num_rows


# Verify


def test_verify_counts_files_frames_rows_and_bytes_of_a_store(box: Path) -> None:
    report = lw.verify(box)
    assert isinstance(report, Report)
    assert report["ok"] is True
    assert report["codec"] == "toy.store"
    assert report["live"] is False
    assert [file["path"] for file in report["files"]] == ["000.toy", "1000.toy", "NOTE"]
    # The row of the note is in the entry of the file, not among those of the store.
    assert report["rows"] == lw.read(box).num_rows
    assert report["frames"] == 70
    assert report["files"][2]["rows"] == 1
    assert report["bytes"] == sum((box / name).stat().st_size for name in ("000.toy", "1000.toy", "NOTE"))


@pytest.mark.parametrize(("depth", "kinds"), [
    ("structure", ["missing link to another file"]),
    ("checksums", ["checksum mismatch", "missing link to another file"]),
    ("records", ["checksum mismatch", "bad payload", "missing link to another file"]),
])  # fmt: skip
def test_each_verify_depth_detects_more_kinds_of_damage(box: Path, depth: str, kinds: list[str]) -> None:
    flip(box / "000.toy", 700)
    with (box / "1000.toy").open("ab") as file:
        file.write(frame(9000, b"x" * 255))
    (box / "NOTE").unlink()
    report = lw.verify(box, depth=depth)
    assert [fault["kind"] for file in report["files"] for fault in file["faults"]] == kinds
    assert not report.ok


def test_verify_a_single_file(box: Path) -> None:
    flip(box / "000.toy", 700)
    report = lw.verify(box / "000.toy")
    assert report["files"][0]["path"] == report["path"] == str(box / "000.toy")
    assert report["files"][0]["faults"][0]["lost"] == {"first_id": 23, "last_id": 31}
    assert str(report).endswith(
        f"logwright dump {box}/000.toy --mode DROPMALFORMED   prints every undamaged row"
    )
    with pytest.raises(lw.UsageError, match="Did you mean 'checksums'"):
        lw.verify(box, depth="checksum")
    with pytest.raises(lw.UsageError, match="Valid values"):
        lw.verify(box, depth="??")


def test_verify_and_inspect_read_standard_input(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((box / "1000.toy").read_bytes())))
    assert lw.verify("-")["frames"] == 30
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((box / "1000.toy").read_bytes())))
    assert lw.inspect("-")["frames"] == 30


def test_running_system_is_noted(box: Path) -> None:
    lock = box.parent / ".lock"
    lock.touch()
    code = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert lw.verify(box)["live"] is True
        assert lw.verify([box, box])["live"] is True
        assert lw.inspect(box)["live"] is True
        scan = lw.scan(box)
        assert scan.report["live"] is True
        assert scan.to_table().num_rows
    finally:
        holder.communicate()


# Inspect, detect, codecs


def test_inspect_names_the_role_of_each_file_in_a_directory(box: Path) -> None:
    summary = lw.inspect(box)
    assert (summary["kind"], summary["codec"]) == ("directory", "toy.store")
    heads = sum((box / name).read_bytes().count(b"TY") for name in ("000.toy", "1000.toy"))
    assert summary["facts"] == {"toys": 2, "first_id": 0, "heads": heads}
    assert [file["role"] for file in summary["files"]] == ["primary", "primary", "metadata", "foreign"]
    assert summary["faults"] == []
    (box / "NOTE").unlink()
    assert lw.inspect(box)["faults"][0]["file"] == "NOTE"


def test_inspect_of_a_file_checks_headers_but_no_checksums(box: Path) -> None:
    summary = lw.inspect(box / "1000.toy")
    assert (summary["kind"], summary["codec"], summary["frames"]) == ("file", "toy.frames", 30)
    assert summary["ranges"]["id"][0] == 1000
    assert summary["ranges"]["time"][0] == datetime(1970, 1, 1, 0, 16, 40, tzinfo=UTC)
    assert summary["counts"] == {"compression": {"none": 30}}
    flip(box / "1000.toy", 0)
    assert lw.inspect(box / "1000.toy")["faults"][0]["kind"] == "bad magic or version"
    flip(box / "1000.toy", 0)
    flip(box / "1000.toy", 20)  # what only a checksum tells
    assert lw.inspect(box / "1000.toy")["faults"] == []
    with pytest.raises(lw.UsageError, match="2 stores or files match"):
        lw.inspect(f"{box}/*.toy")


def test_detect_names_the_format(box: Path) -> None:
    assert lw.detect(box) == "toy.store"
    assert lw.detect(box / "000.toy") == "toy.frames"
    assert lw.detect(box / "NOTE") == "toy.note"
    assert lw.detect(box / "README") is None
    assert lw.detect(box.parent) is None
    with pytest.raises(FileNotFoundError):
        lw.detect(box / "gone")


def test_codecs_lists_formats_with_their_columns_options_and_views() -> None:
    assert [codec["name"] for codec in lw.codecs()] == ["toy.store", "toy.frames", "toy.note"]
    (item,) = lw.codecs("toy.frames")
    assert item["tables"]["rows"]["columns"][0] == {
        "name": "id", "type": "int64", "nullable": False, "detail": False, "prunes": True,
        "doc": "the frame's id and the text's place in it",
    }  # fmt: skip
    assert item["options"][0]["name"] == "loud"
    (item,) = lw.codecs("toy.store")
    assert [view["name"] for view in item["views"]] == ["texts", "heads"]
    with pytest.raises(lw.UsageError, match="Did you mean"):
        lw.codecs("toy.not")


# Tasks


def test_tasks_of_any_size_read_each_row_once(box: Path) -> None:
    """Split, pickled and read in any order elsewhere: each row once."""
    actual = plan.reading(resolve.resolve(box))
    for size in (100, 1000, 1 << 20):
        tasks = pickle.loads(pickle.dumps(task.split_tasks(actual.tasks, size)))
        assert len(tasks) >= 2
        got: list[int] = []
        report = Report("box")
        for item in tasks:
            part = Report("box")
            for batch in task.run([item], ("id",), part):
                got += batch.column("id").to_pylist()
            report.merge(part)
        assert got == ids(box)
        assert report["rows"] == len(got)
        assert report["bytes"] == sum((box / name).stat().st_size for name in ("000.toy", "1000.toy"))


def test_file_table_ignores_the_limit(box: Path) -> None:
    actual = plan.reading(resolve.resolve(box), "file")
    assert len(task.split_tasks(actual.tasks, 10)) == 2


# The package


def test_import_loads_no_heavy_package() -> None:
    code = (
        "import sys, logwright; heavy = {'numpy', 'pyarrow', 'numba', 'pandas', 'pyspark', 'click'};"
        "print(heavy & set(sys.modules)); logwright.read; print({'numba', 'pandas', 'pyspark', 'click'} & set(sys.modules))"
    )
    stdout = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert stdout.split() == ["set()", "set()"]


def test_every_public_name_exists_and_others_raise() -> None:
    assert lw.__version__
    assert set(lw.__all__) <= set(dir(lw))
    assert not {"annotations", "importlib", "TYPE_CHECKING"} & set(dir(lw))
    for name in lw.__all__:
        assert getattr(lw, name) is not None
    with pytest.raises(AttributeError, match="rede"):
        _ = lw.rede
    assert issubclass(lw.NotFoundError, FileNotFoundError)
    assert FRAMES_CODEC.name == "toy.frames"
