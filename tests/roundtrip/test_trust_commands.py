"""Every command on a real directory while any one call of the operating system fails: a clear error or the complete result."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.cli import main
from logwright.codec.fault import LogwrightError
from logwright.conversion import convert
from logwright.roundtrip import trust
from logwright.roundtrip.faulty import FaultyCalls
from logwright.roundtrip.memory_filesystem import Failure

Command = Callable[[Path], Any]
ROWS = 60
WRITING = {"batch.size": 200, "segment.bytes": 500, "topic.id": "AAAAAAAAAAAAAAAAAAAAAQ"}


def rows(prefix: str, count: int = ROWS) -> pa.Table:
    return pa.table(
        {
            "value": pa.array([f"{prefix}-{n:04}".encode() for n in range(count)], pa.binary()),
            "timestamp": pa.array(range(count), pa.timestamp("ms", "UTC")),
        }
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with a sound and a damaged partition."""
    home = tmp_path / "home"
    home.mkdir()
    lw.write(rows("old"), home / "orders-0", "kafka.partition", **WRITING)
    shutil.copytree(home / "orders-0", home / "bad-0")
    log = sorted((home / "bad-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    return home


def tree(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()
    }


def cli(*words: str) -> tuple[int, bytes, str]:
    """Run a command line; return status, standard output and standard error."""
    out, err = io.BytesIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stdout = io.TextIOWrapper(out, write_through=True)
        stack.enter_context(contextlib.redirect_stdout(stdout))
        stack.enter_context(contextlib.redirect_stderr(err))
        try:
            main(list(words))
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        stdout.flush()
        return status, out.getvalue(), err.getvalue()


# Reading


def scanned(path: Path, mode: str = "DROPMALFORMED") -> Any:
    scan = lw.scan(path, mode=mode)
    return scan.to_table().to_pylist(), not scan.report.ok


READERS: dict[str, tuple[str, Command]] = {
    "read": ("orders-0", lambda path: (lw.read(path).to_pylist(), False)),
    "read committed": ("orders-0", lambda path: (lw.read(path, view="read_committed").to_pylist(), False)),
    "scan as the system": ("orders-0", lambda path: scanned(path, "AS_SYSTEM")),
    "scan": ("orders-0", scanned),
    "scan damage": ("bad-0", scanned),
    "verify": ("orders-0", lambda path: ((report := lw.verify(path)).rows, not report.ok)),
    "verify as the system": (
        "bad-0",
        lambda path: (dict((report := lw.verify(path, as_system="4.3"))["system"]), report.faults_total),
    ),
    "inspect": ("orders-0", lambda path: ((summary := lw.inspect(path))["facts"], bool(summary["faults"]))),
    "roundtrip": (
        "orders-0",
        lambda path: ((result := lw.roundtrip(path, law="decode_encode")).ok, not result.ok),
    ),
    "detect": ("orders-0", lambda path: (lw.detect(path), False)),
    "diff": ("orders-0", lambda path: (lw.diff(path, path).counts, False)),
    "diff by frames": ("orders-0", lambda path: (lw.diff(path, path, by="frames").counts, False)),
    "diff by files": ("orders-0", lambda path: (lw.diff(path, path, by="files").counts, False)),
}


@pytest.mark.alike
@pytest.mark.parametrize("step", [31, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", READERS)
def test_any_call_of_a_reader_may_fail(place: Path, name: str, step: int) -> None:
    inner, command = READERS[name]
    path = place / inner
    before = tree(place)
    sound = command(path)

    def judge(actual: Any, error: LogwrightError | None, text: str) -> None:
        if error is not None:
            assert error.path, f"{text}: {error}"
            assert str(error).count("\n") == 0
        elif actual != sound:
            assert actual[1], f"{text}: another result, and nothing is said"

    figures = trust.every_call(lambda: command(path), judge, failures=(Failure.EIO, Failure.SHORT), step=step)
    figures += trust.every_call(
        lambda: command(path), judge, failures=(Failure.EIO,), forever=True, step=step
    )
    assert figures.failures >= 1
    assert tree(place) == before


LINES = {
    "dump": ("dump", "orders-0", "--format", "jsonl"),
    "dump permissive": ("dump", "bad-0", "--format", "csv", "--mode", "DROPMALFORMED"),
    "verify": ("verify", "bad-0"),
    "inspect": ("inspect", "orders-0"),
}


@pytest.mark.alike
@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", LINES)
def test_any_call_of_a_command_line_may_fail(
    place: Path, name: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    before = tree(place)
    sound = cli(*LINES[name])
    assert sound[0] in (0, 3)

    def judge(actual: tuple[int, bytes, str], error: LogwrightError | None, text: str) -> None:
        assert error is None
        status, out, message = actual
        assert "Traceback" not in message
        assert "internal error in logwright" not in message, f"{text}: {message}"
        if status == sound[0] and status != 3:
            assert out == sound[1], text
        elif status == 1:
            assert message.startswith("error:"), text
        else:
            assert status == 3, f"{text}: {status} {message}"

    figures = trust.every_call(
        lambda: cli(*LINES[name]), judge, failures=(Failure.EIO, Failure.SHORT), step=step
    )
    assert figures.failures >= 1
    assert tree(place) == before


# Writing


def written(mode: str) -> Command:
    return lambda path: lw.write(rows("new"), path, "kafka.partition", mode=mode, **WRITING)


WRITERS: dict[str, tuple[str, Command]] = {
    "write": ("new-0", written("error")),
    "append": ("orders-0", written("append")),
    "overwrite": ("orders-0", written("overwrite")),
    "generate": ("gen-0", lambda path: lw.generate("kafka.partition", path, rows=40, seed=3)),
    "convert": ("rows.parquet", lambda path: convert(str(path.parent / "orders-0"), str(path))),
    "convert back": (
        "back-0",
        lambda path: convert(
            str(path.parent / "orders-0"), str(path), "kafka.partition", topic_id=WRITING["topic.id"]
        ),
    ),
    "convert compacted": (
        "compacted-0",
        lambda path: convert(str(path.parent / "orders-0"), str(path), compact=True, now=1),
    ),
    "repair": ("repaired-0", lambda path: lw.repair(path.parent / "bad-0", path)),
    "repair in place": ("bad-0", lambda path: lw.repair(path, in_place=True, backup=path.parent / "backup")),
    "damage": (
        "worse",
        lambda path: lw.damage(path.parent / "orders-0", path, op=["flip:file=last,at=-40,bit=3"]),
    ),
    "rebuild": ("rebuilt-0", lambda path: lw.rebuild(path.parent / "orders-0", path)),
    "edit": ("edited-0", lambda path: lw.edit(path.parent / "orders-0", path, drop="offset == 7")),
    "edit in place": (
        "orders-0",
        lambda path: lw.edit(path, redact="offset == 30", in_place=True, backup=path.parent / "backup"),
    ),
}


class Sandbox:
    """Restores a folder to its initial state."""

    def __init__(self, place: Path) -> None:
        self.place, self.saved = place, place.parent / "saved"
        shutil.copytree(place, self.saved)

    def restore(self) -> None:
        shutil.rmtree(self.place)
        shutil.copytree(self.saved, self.place)


def seen(path: Path) -> Any:
    """Return the rows or bytes readers see."""
    if not path.exists():
        return None
    if path.is_file():
        return path.read_bytes()
    if (path / "damage.json").exists():
        # Its verdict reports what the disk could not read.
        return {name: data for name, data in tree(path).items() if name != "damage.json"}
    scan = lw.scan(path, mode="DROPMALFORMED")
    return scan.to_table().to_pylist()


@pytest.mark.alike
@pytest.mark.parametrize("step", [211, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", WRITERS)
def test_any_call_of_a_writer_may_fail(place: Path, name: str, step: int) -> None:
    target, command = WRITERS[name]
    path = place / target
    sandbox = Sandbox(place)
    old, others = (
        seen(path),
        {name: data for name, data in tree(place).items() if not name.startswith(target)},
    )
    command(path)
    new, complete = seen(path), {name.split("/")[0] for name in tree(place)}

    def judge(actual: Any, error: LogwrightError | None, text: str) -> None:
        there = seen(path)
        assert there in (old, new), f"{text}: neither the old nor the new"
        if error is None:
            assert there == new, f"{text}: no error, and it is not there"
        else:
            assert error.path or error.advice, f"{text}: {error}"
            assert str(error).count("\n") == 0
        now = tree(place)
        assert {other: now.get(other) for other in others} == others, f"{text}: the input was changed"
        # Nobody else finds a half-written thing.
        if there == old:
            with contextlib.suppress(lw.ExistsError):
                command(path)
                assert seen(path) == new, f"{text}: the next run fails"
                left = {name.split("/")[0] for name in tree(place)} - complete
                assert not left, f"{text}: left behind: {left}"

    figures = trust.every_call(lambda: command(path), judge, prepare=sandbox.restore, step=step)
    assert figures.failures >= 1


def test_harness_lets_a_command_fail_where_it_says(place: Path) -> None:
    with FaultyCalls(0) as calls, pytest.raises(lw.LogwrightError):
        lw.read(place / "orders-0" / f"{0:020d}.log")
    assert calls.ticks >= 1
    assert sys.stdout is not None


def commands() -> Iterator[str]:
    yield from (*READERS, *LINES, *WRITERS)


def test_every_command_is_tried() -> None:
    from logwright.cli import VERBS

    tried = {name.split()[0] for name in commands()}
    # Verbs without input files: the list of codecs, the cache of kernels, and explanations.
    assert set(VERBS) - tried <= {"codecs", "warmup", "explain"}
