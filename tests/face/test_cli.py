"""The command line: output, error output and exit status."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from command_line import run

import logwright as lw
from logwright.cli import VERBS
from logwright.cli.common import MODES
from logwright.corpora.cases import cases
from logwright.readers import store_search
from logwright.readers.stream import Mode

CASES = cases("kafka")
Out = pytest.CaptureFixture[str]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    target = tmp_path / "orders-0"
    rows = pa.table(
        {
            "key": pa.array([b"a", None, b"\xff\x00", b'q"\\\n\x07'], pa.binary()),
            "value": pa.array([b"1", b"", None, "ü".encode()], pa.binary()),
            "timestamp": pa.array([0, None, 1, 1_700_000_000_123], pa.timestamp("ms", "UTC")),
            "headers": [[], [{"key": "h", "value": b"\xfe"}], [], [{"key": "", "value": None}]],
        }
    )
    lw.write(rows, target, "kafka.partition", topic_id="q83vASNFZ4mrze8BI0VniQ")
    return target


def test_every_verb_has_help(capsys: Out) -> None:
    for verb in VERBS:
        assert run(verb, "--help") == 0
        assert "Usage:" in capsys.readouterr().out
    assert run("--version") == 0
    assert run("--help") == 0


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("words", [["--compression-type", "gzip"], ["--compression.type=gzip"]])
def test_options_of_a_codec_may_be_before_between_and_after_paths(
    place: int, words: list[str], partition: Path, tmp_path: Path
) -> None:
    paths = [str(partition), str(tmp_path / "out-0")]
    assert run("convert", "--limit", "2", *paths[:place], *words, *paths[place:]) == 0
    assert (
        lw.read(tmp_path / "out-0", view="batches", columns="compression")["compression"][0].as_py() == "gzip"
    )
    paths[0] = paths[1]
    words = ["--max.decompressed.bytes", "1m", "--by", "rows"]
    assert run("diff", *paths[:place], *words, *paths[place:]) == 0


def test_value_of_an_option_of_the_verb_may_look_like_an_option(partition: Path, tmp_path: Path) -> None:
    drop = ["--redact", "offset == 0", "--with", "--none"]
    assert run("edit", str(partition), *drop, "-o", str(tmp_path / "out-0")) == 0
    assert lw.read(tmp_path / "out-0", columns="value")["value"][0].as_py() == b"--none"


def test_misspelt_verb_is_named(capsys: Out) -> None:
    assert run("dmp") == 2
    assert "Did you mean 'dump'" in capsys.readouterr().err


def test_json_lines_are_lossless(partition: Path, capsys: Out) -> None:
    assert run("dump", str(partition), "--format", "jsonl", "--columns", "key,value,timestamp,headers") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == {"key": "a", "value": "1", "timestamp": 0, "headers": []}
    assert rows[1] == {
        "key": None,
        "value": "",
        "timestamp": None,
        "headers": [{"key": "h", "value": {"$hex": "fe"}}],
    }
    assert rows[2] == {"key": {"$hex": "ff00"}, "value": None, "timestamp": 1, "headers": []}
    assert rows[3] == {
        "key": 'q"\\\n\x07',
        "value": "ü",
        "timestamp": 1_700_000_000_123,
        "headers": [{"key": "", "value": None}],
    }


@pytest.mark.parametrize(("form", "key"), [("hex", "ff00"), ("base64", "/wA="), ("utf8", "\ufffd\x00")])
def test_bytes_have_one_text_form(partition: Path, capsys: Out, form: str, key: str) -> None:
    assert run("dump", str(partition), "--format", "jsonl", "--bytes", form) == 0
    assert [json.loads(line)["key"] for line in capsys.readouterr().out.splitlines()][2] == key


def test_text_escapes_terminal_control_sequences(partition: Path, capsys: Out) -> None:
    assert run("dump", str(partition), "--format", "text") == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 4
    assert all(c.isprintable() or c == "\n" for c in out)
    assert "timestamp=2023-11-14T22:13:20.123Z" in out


def test_dump_takes_filter_columns_limit_and_view(partition: Path, capsys: Out) -> None:
    words = ["dump", str(partition), "--format", "jsonl", "--columns", "offset"]
    assert run(*words, "--filter", "offset >= 1", "--filter", "offset != 2", "--limit", "1") == 0
    assert capsys.readouterr().out == '{"offset":1}\n'
    assert (
        run("dump", str(partition), "--format", "jsonl", "--view", "batches", "--columns", "records_count")
        == 0
    )
    assert capsys.readouterr().out == '{"records_count":4}\n'


def test_inspect_fails_if_a_store_may_not_be_read(
    partition: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    other = partition.parent / "other-0"
    shutil.copytree(partition, other)
    opened = store_search.open_listing

    def denied(path: str) -> Any:
        if path == str(other):
            raise lw.AccessError("permission denied", path=path)
        return opened(path)

    monkeypatch.setattr(store_search, "open_listing", denied)
    assert run("inspect", str(partition.parent)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"    {partition.name} ") for line in lines)
    assert lines[-1] == f"  skipped: {other}: permission denied"
    assert lw.inspect(partition.parent)["unopened"] == [str(other)]


def test_inspect_goes_on_after_a_path_that_cannot_be_opened(partition: Path, capsys: Out) -> None:
    assert run("inspect", str(partition.parent / "gone"), str(partition)) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith(f"{partition}  kafka.partition: ")
    assert shown.err.startswith(f"error: {partition.parent / 'gone'}: no such file or directory.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--as_system", "4.3"], "unknown option --as_system. Did you mean --as-system?"),
        (["--show", "1"], "unknown option --show"),
        (["--max-faults", "x"], "max_faults is 'x'. Expected an integer of 0 or more"),
    ],
)
def test_parameter_of_the_function_is_not_taken_for_an_option_of_the_files(
    words: list[str], message: str, partition: Path, capsys: Out
) -> None:
    assert run("verify", str(partition), *words) == 2
    assert message in capsys.readouterr().err
    assert run("verify", str(partition), "--max-faults", "1") == 0


@pytest.mark.parametrize(("setting", "styled"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_no_color_is_respected_on_a_terminal(setting: dict[str, str], styled: bool, partition: Path) -> None:
    for words in (["inspect", str(partition)], ["inspect", "gone"]):
        main_end, end = pty.openpty()
        environment = {name: text for name, text in os.environ.items() if name != "NO_COLOR"} | setting
        command = [sys.executable, "-m", "logwright", *words]
        subprocess.run(command, stdout=end, stderr=end, env=environment, check=False)
        os.close(end)
        assert (b"\x1b[" in os.read(main_end, 1 << 16)) == styled
        os.close(main_end)


def test_binary_formats_are_not_printed_to_a_terminal(
    partition: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run("dump", str(partition), "--format", "arrow") == 2
    assert (
        "arrow is binary, but standard output is a terminal. Name a file with --out"
        in capsys.readouterr().err
    )


def test_interrupt_during_imports_prints_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("logwright.readers.process.keep_freed_memory", interrupted)
    assert run("codecs") == 130
    assert capsys.readouterr().err == ""


def test_dry_run_of_an_edit_ends_with_the_complete_command(
    partition: Path, tmp_path: Path, capsys: Out
) -> None:
    words = ["edit", str(partition), "--drop", "offset == 1 or offset == 2", "--drop", "offset == 2"]
    assert run(*words, "--dry-run") == 0
    out = capsys.readouterr().out
    assert "1 record dropped" in out
    last = shlex.split(out.splitlines()[-1])
    assert last == ["logwright", *words, "--out", "DIR"]
    assert run(*last[1:-1], str(tmp_path / "edited" / partition.name)) == 0


def test_a_row_must_match_all_repeated_filters(partition: Path, capsys: Out) -> None:
    words = ["dump", str(partition), "--format", "jsonl", "--columns", "offset"]
    assert run(*words, "--filter", "offset == 1 or offset == 2", "--filter", "offset == 2") == 0
    assert capsys.readouterr().out == '{"offset":2}\n'


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "jsonl", "text"])
def test_output_file_is_written_atomically(partition: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"out.{'txt' if kind == 'text' else kind}"
    assert run("dump", str(partition), "-o", str(out)) == 0
    assert out.stat().st_size > 0
    if kind == "parquet":
        from pyarrow import parquet

        assert parquet.read_table(out).num_rows == 4
    assert run("dump", str(partition / "nothing"), "-o", str(tmp_path / "no.parquet")) == 1
    assert not (tmp_path / "no.parquet").exists()


def test_dump_replaces_a_file_only_if_it_is_told_to(partition: Path, tmp_path: Path, capsys: Out) -> None:
    out = tmp_path / "rows.jsonl"
    out.write_text("old")
    assert run("dump", str(partition), "-o", str(out)) == 1
    assert "it already exists" in capsys.readouterr().err
    assert out.read_text() == "old"
    assert run("dump", str(partition), "-o", str(out), "--if-exists", "overwrite") == 0
    assert len(out.read_text().splitlines()) == 4


def test_ending_that_names_no_format_needs_the_option_format(
    partition: Path, tmp_path: Path, capsys: Out
) -> None:
    out = tmp_path / "rows.xyz"
    assert run("dump", str(partition), "-o", str(out)) == 2
    assert (
        "the format is unknown from the ending of the name. Pass it with --format" in capsys.readouterr().err
    )
    assert not out.exists()
    assert run("dump", str(partition), "-o", str(out), "--format", "csv") == 0
    assert out.read_text().startswith('"key","value"')


@pytest.mark.parametrize("kind", ["text", "parquet", "arrow"])
def test_form_of_bytes_is_refused_where_there_is_no_choice(partition: Path, capsys: Out, kind: str) -> None:
    assert run("dump", str(partition), "--format", kind, "--bytes", "hex") == 2
    assert f"format {kind} has one form of bytes" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["rows.parquet", "inner/rows.jsonl"])
@pytest.mark.parametrize("verb", [["convert"], ["dump", "-o"]])
def test_rows_are_not_written_into_the_directory_that_is_read(
    partition: Path, capsys: Out, verb: list[str], name: str
) -> None:
    before = sorted(partition.iterdir())
    for source in (partition, partition.parent):
        paths = [str(source), str(partition / name)]
        words = [*verb, *paths] if verb == ["convert"] else ["dump", paths[0], "-o", paths[1]]
        if source == partition or verb == ["dump", "-o"]:
            assert run(*words) == 2
            assert "cannot be written into the input directory" in capsys.readouterr().err
    assert sorted(partition.iterdir()) == before


def test_page_of_explain_replaces_no_other_file(partition: Path, tmp_path: Path, capsys: Out) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert run("explain", str(partition), "--html", str(page)) == 1
    assert "Pass another name" in capsys.readouterr().err
    page.unlink()
    for _ in range(2):
        assert run("explain", str(partition), "--html", str(page)) == 0


def test_page_of_explain_is_not_written_into_its_input(partition: Path, capsys: Out) -> None:
    before = sorted(partition.iterdir())
    assert run("explain", str(partition), "--html", str(partition / "page.html")) == 2
    assert "cannot be written into the input directory" in capsys.readouterr().err
    assert sorted(partition.iterdir()) == before


def test_with_and_with_null_exclude_each_other(partition: Path, tmp_path: Path, capsys: Out) -> None:
    words = ["edit", str(partition), "--redact", "offset == 3", "--with-null", "--out", str(tmp_path / "o")]
    for text in ("x", ""):
        assert run(*words, "--with", text) == 2
        assert "--with and --with-null exclude each other" in capsys.readouterr().err
    assert run(*words) == 0
    assert run(*words[:4], "--out", str(tmp_path / "empty")) == 0
    assert lw.read(tmp_path / "empty")["value"].to_pylist()[3] == b""


def test_damage_sets_the_exit_status_to_3(partition: Path, capsys: Out) -> None:
    assert run("verify", str(partition)) == 0
    damaged = CASES["dmg_flip_payload"].partition
    assert run("verify", str(damaged), "--json") == 3
    out = capsys.readouterr().out
    report = json.loads(out[out.index("{") :])
    assert report["report"] == 1
    assert report["ok"] is False
    assert run("dump", str(damaged), "--mode", "dropmalformed", "--format", "jsonl") == 3
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 95
    assert "checksum mismatch" in shown.err
    assert run("dump", str(damaged), "--format", "jsonl") == 3
    assert "at byte 327" in capsys.readouterr().err


def test_dump_as_the_system(capsys: Out, tmp_path: Path) -> None:
    """A broker serves an uncompressed batch without verifying it, and truncates it after an unclean stop."""
    case = CASES["dmg_flip_payload"].partition
    words = ["dump", str(case), "--format", "jsonl", "--columns", "offset"]
    printed = {}
    for options in (
        ["--mode", "AS_SYSTEM", "--unclean"],
        ["--as-system", "--unclean"],
        ["--as-system", "4.3", "--unclean"],
    ):
        run(*words, *options)
        printed[tuple(options)] = [
            json.loads(line)["offset"] for line in capsys.readouterr().out.splitlines()
        ]
    with pytest.warns(lw.DamageWarning, match="loses 4 records"):
        rows = lw.read(case, columns="offset", mode="AS_SYSTEM", clean=False)["offset"].to_pylist()
    assert list(printed.values()) == [rows] * 3
    assert len(rows) < 100
    run(
        "convert",
        str(case),
        str(tmp_path / "rows.parquet"),
        "--as-system",
        "--unclean",
        "--columns",
        "offset",
    )
    from pyarrow import parquet

    assert parquet.read_table(tmp_path / "rows.parquet")["offset"].to_pylist() == rows
    capsys.readouterr()
    assert run(*words, "--as-system", "0.1") == 2
    assert "4.3" in capsys.readouterr().err
    assert run(*words, "--clean") == 2
    assert "AS_SYSTEM" in capsys.readouterr().err


def test_modes_of_the_command_line_are_those_of_the_package() -> None:
    assert list(MODES) == [mode.name for mode in Mode]


def test_inspect_prints_facts_of_a_partition_and_of_a_file(partition: Path, capsys: Out) -> None:
    assert run("inspect", str(partition)) == 0
    out = capsys.readouterr().out
    assert "orders" in out
    assert "log_end_offset" in out
    assert run("inspect", str(partition / f"{0:020d}.log"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["codec"] == "kafka.log"


def test_codecs_prints_every_format(capsys: Out) -> None:
    assert run("codecs") == 0
    assert "kafka.partition" in capsys.readouterr().out
    assert run("codecs", "kafka.log") == 0
    assert "headers_raw" in capsys.readouterr().out
    assert run("codecs", "kafka.log", "--json") == 0
    assert json.loads(capsys.readouterr().out)["name"] == "kafka.log"
    assert run("codecs", "kafka.lgo") == 2


def test_segment_through_parquet_is_the_same_bytes(tmp_path: Path, capsys: Out) -> None:
    for case in ("v2_txn_interleaved", "v2_compacted_zstd", "killed_prealloc", "craft_nonminimal_varint"):
        source = sorted(CASES[case].partition.glob("*.log"))[-1]
        table = tmp_path / f"{case}.parquet"
        back = tmp_path / case / source.name
        back.parent.mkdir()
        assert run("convert", str(source), str(table), "--mode", "permissive") in (0, 3)
        assert {path.name for path in tmp_path.glob(f"{case}.*")} == {
            f"{case}{x}.parquet" for x in ("", ".frames", ".file")
        }
        assert run("convert", str(table), str(back)) == 0
        assert back.read_bytes() == source.read_bytes(), case
    capsys.readouterr()


def test_partition_round_trips_through_an_arrow_file(partition: Path, tmp_path: Path, capsys: Out) -> None:
    assert run("convert", str(partition), str(tmp_path / "rows.arrow")) == 0
    second = tmp_path / "again-0"
    words = [
        "convert",
        str(tmp_path / "rows.arrow"),
        str(second),
        "--codec",
        "kafka.partition",
        "--compression-type",
        "zstd",
    ]
    assert run(*words) == 0
    assert "before starting" in capsys.readouterr().err
    columns = ["key", "value", "offset", "timestamp", "headers"]
    assert lw.read(second, columns=columns).equals(lw.read(partition, columns=columns))
    assert run(*words) == 1
    assert "append" in capsys.readouterr().err
    assert run(*words, "--segment-byts", "3") == 2
    assert "segment.bytes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["dump", "nowhere"], 1, "no such file"),
        (["dump"], 2, "Missing argument"),
        (["verify", "{orders}", "--dpeth", "x"], 2, "unknown option 'dpeth'. Did you mean --depth?"),
        (["dump", "{orders}", "--limt", "5"], 2, "unknown option 'limt'. Did you mean --limit?"),
        (["dump", "{orders}", "--log-start-ofset", "5"], 2, "Did you mean 'log.start.offset'?"),
        (["dump", "{orders}", "--zzz", "5"], 2, "See `logwright dump --help` for the options of dump"),
        (["dump", "{orders}", "--keyzzz", "5"], 2, "? See `logwright dump --help` for the options of dump"),
        (["explain", "{orders}", "--at", "5"], 2, "or use where or fault (--where, --fault)"),
        (
            ["inspect", "{orders}/../empty"],
            2,
            "Pass its format with codec (--codec NAME); `logwright codecs` lists the names",
        ),
        (
            ["convert", "{orders}", "{orders}/../there.parquet"],
            1,
            "Replace it with mode='overwrite' (--if-exists overwrite)",
        ),
        (["verify", "{orders}", "--jsn"], 2, "--jsn needs a value. Did you mean --json?"),
        (["dump", "{orders}", "--segment-bytes"], 2, "needs a value"),
        (["generate", "kafka.log", "--list"], 2, "option --list needs a value"),
        (["diff", "{orders}", "--byy"], 2, "option --byy needs a value. Did you mean --by?"),
        (["generate", "kafka.log", "--list=yes"], 2, "missing argument PATH"),
        (["dump", "{orders}", "--columns", "ofset"], 2, "Did you mean 'offset'"),
        (["dump", "{orders}", "--filter", "ofset > 3"], 2, "Did you mean 'offset'"),
        (["dump", "{orders}", "--view", "read_comitted"], 2, "Did you mean 'read_committed'"),
        (["dump", "{orders}", "--codec", "kafka.log"], 2, "directory"),
        (["convert", "x.parquet", "x"], 2, "--codec"),
        (["convert", "{orders}", "{orders}/../orders.csv"], 2, ".parquet, .arrow or .jsonl file"),
        (["convert", "{orders}", "{orders}/../orders.parqet"], 2, ".parquet, .arrow or .jsonl file"),
        (["dump", "{orders}", "--mode", "PERMISIVE"], 2, "Did you mean 'permissive'?"),
        (["generate", "kafka.partition", "{orders}"], 1, "exists"),
    ],
)
def test_errors_are_one_paragraph(
    partition: Path, capsys: Out, words: list[str], status: int, message: str
) -> None:
    for name in ("empty", "there.parquet"):
        (partition.parent / name).touch()
    assert run(*[word.format(orders=partition) for word in words]) == status
    shown = capsys.readouterr()
    assert message in " ".join(shown.err.split())
    assert shown.out == ""
    assert "Traceback" not in shown.err


def test_internal_error_is_reported_as_a_bug(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    monkeypatch.setattr(lw, "inspect", lambda *_, **__: 1 / 0, raising=False)
    assert run("inspect", "x") == 1
    assert "internal error in logwright (ZeroDivisionError" in capsys.readouterr().err


def test_broken_pipe_is_silent(tmp_path: Path) -> None:
    assert run("generate", "kafka.partition", str(tmp_path / "big-0"), "--rows", "5000") == 0
    with subprocess.Popen(
        [sys.executable, "-m", "logwright", "dump", str(tmp_path / "big-0"), "--format", "jsonl"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as dump:  # fmt: skip
        assert dump.stdout is not None
        assert dump.stderr is not None
        assert dump.stdout.readline()
        dump.stdout.close()
        assert dump.wait(60) == 0
        assert dump.stderr.read() == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full: it is Linux's")
def test_full_standard_output_ends_with_one_line_and_status_1(partition: Path) -> None:
    for words in (["dump", str(partition)], ["inspect", str(partition)]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "logwright", *words], stdout=full, stderr=subprocess.PIPE, check=False
            )
        assert done.returncode == 1
        assert done.stderr.decode().strip() == "error: standard output: No space left on device"


@pytest.mark.alike
@pytest.mark.parametrize(("closed", "status"), [(0, 0), (1, 1), (2, 0)])
def test_closed_standard_stream_is_no_internal_error(partition: Path, closed: int, status: int) -> None:
    """A service may close any of them. Only standard output is needed."""
    done = subprocess.run(
        [sys.executable, "-m", "logwright", "verify", str(partition)], capture_output=True, check=False,
        preexec_fn=lambda: os.close(closed),
    )  # fmt: skip
    assert done.returncode == status
    assert done.stderr == (b"error: standard output: Bad file descriptor\n" if status else b"")


@pytest.mark.parametrize(
    "words",
    [
        ["repair", "{orders}", "--out", "-"],
        ["edit", "{orders}", "--drop", "offset == 1", "--out", "-"],
        ["convert", "{orders}", "-"],
        ["generate", "leveldb.db", "-"],
        ["rebuild", "{orders}", "--in-place", "--backup", "-"],
    ],
)
def test_native_files_are_not_written_to_standard_output(
    words: list[str], partition: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    """Nor into a file of this name."""
    monkeypatch.chdir(partition.parent)
    assert run(*[word.format(orders=partition) for word in words]) == 2
    assert "the result cannot be written to standard output" in capsys.readouterr().err
    assert not (partition.parent / "-").exists()


def test_notes_are_not_printed_with_rows(capsys: Out, tmp_path: Path) -> None:
    """Preallocated zeros are reported by verify, not by dump."""
    zk = str(cases("zookeeper")["multi"].path / "version-2")
    assert run("verify", zk) == 0
    assert "preallocated zeros" in capsys.readouterr().out
    assert run("dump", zk, "--limit", "2") == 0
    assert run("convert", zk, str(tmp_path / "nodes.parquet")) == 0
    assert capsys.readouterr().err == f"49 rows in {tmp_path / 'nodes.parquet'}\n"


@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.extended)])
def test_output_that_fails_half_way(tmp_path: Path, unbuffered: str) -> None:
    """write(2) may write fewer bytes than requested; only the return value says so."""
    assert run("generate", "kafka.partition", str(tmp_path / "big-0"), "--rows", "3000") == 0
    limit = 100_000
    with open(tmp_path / "rows", "wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "logwright", "dump", str(tmp_path / "big-0")], stdout=out, stderr=subprocess.PIPE, check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )  # fmt: skip
    assert (tmp_path / "rows").stat().st_size == limit
    assert done.returncode == 1
    assert done.stderr.decode().startswith("error: standard output: ")


def test_dump_reads_a_file_from_standard_input(partition: Path) -> None:
    data = (partition / f"{0:020d}.log").read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "logwright", "dump", "-", "--codec", "kafka.log", "--format", "jsonl", "--columns", "offset"],
        input=data, capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [b'{"offset":%d}' % n for n in range(4)]


INSPECTED = {
    "kafka.partition": {"log_end_offset": "1200"},
    "leveldb.db": {"last_sequence": "1200"},
    "zookeeper.datadir": {"snapshot_zxid": "0x4b0"},
}


@pytest.mark.parametrize("layout", INSPECTED)
def test_inspect_prints_ids_and_offsets_as_commands_take_them(
    layout: str, tmp_path: Path, capsys: Out
) -> None:
    """Quantities have separators of thousands."""
    path = tmp_path / "orders-0"
    lw.generate(layout, path, rows=1200)
    capsys.readouterr()
    assert run("inspect", str(path)) == 0
    facts = dict(re.findall(r"^  (\w+) +(.+)$", capsys.readouterr().out, re.MULTILINE))
    assert "," in facts["bytes"]
    for name, value in INSPECTED[layout].items():
        assert facts[name] == value


def test_inspect_lists_structures_of_one_field_by_their_values(capsys: Out) -> None:
    from logwright.cli.inspect import render

    details = {
        "path": "bookie", "codec": "bookkeeper.bookie", "title": "bookie",
        "facts": {"fenced_ledgers": [{"ledger_id": 4096}, {"ledger_id": 5}]}, "counts": {"type": {"setData": 1000, None: 1}},
        "faults": [
            {"file": "a", "offset": 0, "length": 0, "kind": "missing link to another file", "severity": "error", "detail": "b is missing"},
            {"offset": 9, "length": 7, "kind": "unexpected padding", "severity": "info", "detail": ""},
        ],
    }  # fmt: skip
    assert render(details).splitlines()[1:] == [
        "  fenced_ledgers  4096, 5",
        "  type            setData: 1,000",
        "  DAMAGED  a  b is missing",
        "  logwright verify bookie   reports what is lost",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dmg_len_zero", "damaged: 00000000000000000086.log from byte 327: batch_length is 0"),
        ("dmg_base", None),
    ],
)
def test_inspect_reports_damage_visible_in_headers(capsys: Out, name: str, message: str | None) -> None:
    case = CASES[name].partition
    assert run("inspect", str(case)) == 0
    shown = capsys.readouterr().out
    assert ("damaged" in shown) is (f"logwright verify {case}" in shown) is (message is not None)
    assert message is None or message in shown
    log = case / "00000000000000000086.log"
    assert run("inspect", str(log)) == 0
    assert (f"logwright verify {log}" in capsys.readouterr().out) is (message is not None)


def test_inspect_of_an_unreadable_log(tmp_path: Path) -> None:
    place = tmp_path / "dmg_base-0"
    shutil.copytree(CASES["dmg_base"].partition, place)
    (place / "00000000000000000030.log").write_bytes(b"x" * 200)
    (item,) = lw.inspect(place)["facts"]["damaged"]
    assert (item["file"], item["offset"]) == ("00000000000000000030.log", 0)
