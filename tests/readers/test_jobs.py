"""Work shared by processes: same results in the same order, same errors, no process left running."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_golden import CASES

import logwright as lw
from logwright.readers import jobs, task, verify

SOME = (
    "dmg_flip_two",
    "dmg_flip_old_payload",
    "v2_rolled",
    "dmg_epoch_garbage",
    "v0_none",
    "dmg_index_stale",
)


def piece(text: str) -> Callable[[], Any]:
    """Return a job that any process can run."""
    return functools.partial(eval, f"__import__('logwright') and {text}")


def workers() -> list[str]:
    result = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True, check=False
    )
    return [line for line in result.stdout.splitlines() if "readers.jobs" in line]


def test_results_are_in_order() -> None:
    slow_first = [piece(f"__import__('time').sleep({0.3 if i == 0 else 0}) or {i}") for i in range(6)]
    assert list(jobs.run(slow_first, 2)) == list(range(6))
    assert workers() == []


def test_several_processes_share_the_work() -> None:
    pids = set(jobs.run([piece("__import__('time').sleep(0.1) or __import__('os').getpid()")] * 8, 2))
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_one_job_starts_no_process() -> None:
    here = [piece("__import__('os').getpid()")]
    assert list(jobs.run(here * 3, 1)) == [os.getpid()] * 3
    assert list(jobs.run(here, 4)) == [os.getpid()]


def test_errors_keep_their_type_and_message() -> None:
    error = "(_ for _ in ()).throw(__import__('logwright').NotFoundError('is gone', path='x'))"
    result = jobs.run([piece("1"), piece(error), piece("3")], 2)
    assert next(result) == 1
    with pytest.raises(lw.NotFoundError, match="is gone") as caught:
        next(result)
    assert caught.value.path == "x"
    assert workers() == []


def test_job_that_cannot_be_pickled_is_an_error() -> None:
    with pytest.raises(Exception, match="pickle"):
        list(jobs.run([lambda: 1, lambda: 2], 2))


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (
            "__import__('os').kill(__import__('os').getpid(), 9)",
            "was killed by SIGKILL. It may have run out of memory",
        ),
        ("__import__('os').kill(__import__('os').getpid(), 11)", "was killed by SIGSEGV. Use jobs=1"),
        ("__import__('os')._exit(7)", r"ended \(status 7\)"),
    ],
)
def test_worker_that_dies_is_an_error(action: str, message: str) -> None:
    with pytest.raises(lw.LogwrightError, match=message):
        list(jobs.run([piece("1"), piece(action), piece("3")], 2))
    assert workers() == []


def test_stopped_pool_starts_no_process() -> None:
    shared = jobs._Shared([piece("1")])
    worker = jobs._Worker(shared)
    shared.stopped = True
    with pytest.raises(EOFError):
        worker._ask(piece("1"))
    assert workers() == []


def test_output_of_a_job_does_not_mix_with_results(capfd: pytest.CaptureFixture[str]) -> None:
    assert list(jobs.run([piece("print('x') or 1"), piece("2")], 2)) == [1, 2]
    assert capfd.readouterr().err == "x\n"


def test_abandoned_iteration_leaves_no_process() -> None:
    result = jobs.run([piece("1"), piece("__import__('time').sleep(600)"), piece("3")], 2)
    assert next(result) == 1
    started = time.monotonic()
    del result
    assert workers() == []
    assert time.monotonic() - started < 60


def test_ctrl_c_is_quiet_and_leaves_no_process(tmp_path: Path) -> None:
    """A terminal sends it to all processes of the foreground."""
    for i in range(3):
        (tmp_path / f"logs/x-{i}").mkdir(parents=True)
        os.symlink(CASES["v2_rolled"].partition / f"{0:020}.log", tmp_path / f"logs/x-{i}/{0:020}.log")
    script = (
        "import sys, functools; from logwright.cli import main; from logwright.readers import verify;"
        "slow = functools.partial(eval, \"__import__('time').sleep(600)\");"
        "real = verify._jobs.run; verify._jobs.run = lambda work, jobs: real([slow, slow], jobs);"
        "print('ready', flush=True); main(sys.argv[1:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, "verify", "-j", "2", str(tmp_path / "logs")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(3)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (130, "", "")


# verify with several processes


@pytest.mark.extended
@pytest.mark.parametrize("small", [0, 1 << 30])
def test_verify_report_is_the_same_with_several_processes(
    monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """Whether one directory or several are divided into jobs."""
    monkeypatch.setattr(verify, "_SMALL", small)
    paths = [CASES[name].partition for name in SOME] + [CASES["dmg_flip_two"].partition / f"{0:020}.log"]
    report, two = lw.verify(paths, clean=False), lw.verify(paths, clean=False, jobs=2)
    assert json.dumps(report.to_dict()) == json.dumps(two.to_dict())
    assert report.text() == two.text()


@pytest.mark.extended
@pytest.mark.parametrize("name", ["dmg_flip_two", "v2_rolled", "v0_none"])
def test_verify_report_of_one_directory_is_the_same(name: str) -> None:
    place = CASES[name].partition
    shown: list[tuple[int, int]] = []
    report = lw.verify(place, depth="checksums")
    two = lw.verify(place, depth="checksums", jobs=2, show=lambda done, total: shown.append((done, total)))
    assert json.dumps(report.to_dict()) == json.dumps(two.to_dict())
    assert report.text() == two.text()
    assert shown[-1][0] == shown[-1][1] == sum(path.stat().st_size for path in place.iterdir())


@pytest.mark.extended
def test_single_file_and_standard_input_are_not_divided() -> None:
    log = CASES["dmg_flip_two"].partition / f"{0:020}.log"
    assert lw.verify(log, jobs=2).to_dict() == lw.verify(log).to_dict()
    command = [sys.executable, "-m", "logwright", "verify", "-", "--codec", "kafka.log"]

    def verified(*more: str) -> subprocess.CompletedProcess[str]:
        with log.open("rb") as stream:
            return subprocess.run(
                [*command, *more], stdin=stream, capture_output=True, text=True, check=False
            )

    done = verified("-j", "1")
    assert (done.returncode, "checksum mismatch" in done.stdout, done.stderr) == (3, True, "")
    done = verified("-j", "2")
    assert (done.returncode, done.stdout) == (2, "")
    assert "only one process can read standard input" in done.stderr


# Reading


@pytest.fixture
def partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three segments, each of several splits."""
    monkeypatch.setattr(task, "SPLIT_SIZE", 4096)
    rows = [{"key": f"k{i}", "value": "x" * 50, "offset": i} for i in range(900)]
    lw.write(rows, tmp_path / "a-0", "kafka.partition", segment_bytes=24 << 10, batch_size=1 << 10)
    return tmp_path / "a-0"


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 400},
        *(
            pytest.param(options, marks=pytest.mark.extended)
            for options in (
                {},
                {"limit": 0},
                {"filter": "offset >= 600"},
                {"view": "batches", "columns": "*"},
            )
        ),
    ],
)
def test_rows_are_the_same_with_several_processes(partition: Path, options: dict[str, Any]) -> None:
    scan, many = lw.scan(partition, **options), lw.scan(partition, jobs=2, **options)
    assert many.to_table().equals(scan.to_table())
    if "limit" not in options:
        assert many.report.to_dict() == scan.report.to_dict()


@pytest.mark.extended
def test_damage_is_the_same_with_several_processes(partition: Path) -> None:
    log = sorted(partition.glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[9000] ^= 1
    log.write_bytes(data)
    with pytest.raises(lw.DamageError):
        lw.read(partition, jobs=2)
    scan, many = (lw.scan(partition, mode="DROPMALFORMED", jobs=many_jobs) for many_jobs in (1, 2))
    assert many.to_table().equals(scan.to_table())
    assert not many.report.ok
    assert [fault for _, fault in many.report.faults] == [fault for _, fault in scan.report.faults]


def test_limited_prefetching_keeps_the_order_of_results() -> None:
    work = [functools.partial(pow, 2, i) for i in range(20)]
    result = jobs.run(work, 2, ahead=3)
    assert [next(result) for _ in range(5)] == [1, 2, 4, 8, 16]
    assert list(result) == [2**i for i in range(5, 20)]
