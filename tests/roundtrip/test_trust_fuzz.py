"""The fuzzer finds nothing in mutated files of every codec, and detects broken promises."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logwright.codec import registry
from logwright.codec.fault import DamageError, Fault, Kind, StorageError, UnsupportedError
from logwright.readers.stream import Mode
from logwright.roundtrip import fuzz, laws
from logwright.roundtrip.fuzz import fuzz_one, mutated, reseal
from logwright.roundtrip.specimen import Read
from logwright.roundtrip.specimens import samples
from logwright.roundtrip.trust import BrokenPromise

CODECS = [codec.name for codec in registry.codecs()]
LOG = samples("kafka.log")[0]
DATA = LOG.specimen().all_bytes()
BATCH = registry.get("kafka.log").structures[0]


@pytest.mark.nightly
@pytest.mark.parametrize("codec", CODECS)
def test_mutated_files_of_a_format_break_no_promise(codec: str) -> None:
    """With the kernels bounds-checked."""
    done = subprocess.run(
        [sys.executable, "-m", "logwright.roundtrip.fuzz", codec, "--seconds", "120", "--seed", str(random.randrange(1 << 32))],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_same_seed_gives_the_same_files() -> None:
    pool = [DATA]
    subset = [[mutated(random.Random(seed), pool, BATCH) for _ in range(30)] for seed in (1, 1, 2)]
    assert subset[0] == subset[1] != subset[2]
    assert all(len(item) <= 1 << 16 for item in subset[0])
    assert mutated(random.Random(1), [b""], BATCH) is not None
    assert {mutated(random.Random(seed), [b"x"], None) for seed in range(60)} > {b"", b"x"}


def test_resealed_batch_is_readable() -> None:
    """With a valid checksum a changed field is detected otherwise, or read as its new value."""
    data = bytearray(DATA)
    at = BATCH.offset("base_timestamp")
    data[at : at + 8] = (5).to_bytes(8, "big")
    with pytest.raises(DamageError):
        LOG.specimen().with_bytes(bytes(data)).read(mode=Mode.FAILFAST)
    reseal(data, 0, BATCH)
    assert LOG.specimen().with_bytes(bytes(data)).read(mode=Mode.FAILFAST).table.num_rows == len(LOG.rows)


# It notices


def judged(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
    """Run `fuzz_one` with replaced results of reading in some modes."""
    real = fuzz.attempt
    changed = {Mode[name]: answer for name, answer in answers.items()}

    def attempt(specimen: Any, mode: Mode) -> Any:
        actual = real(specimen, mode)
        return changed[mode](actual) if mode in changed else actual

    monkeypatch.setattr(fuzz, "attempt", attempt)


def test_unexpected_error_breaks_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, PERMISSIVE=lambda read: StorageError("what"))
    with pytest.raises(BrokenPromise, match="PERMISSIVE raised StorageError: what"):
        fuzz_one("kafka.log", DATA)


def test_unsupported_version_is_not_a_broken_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, DROPMALFORMED=lambda read: UnsupportedError("magic 9"))
    fuzz_one("kafka.log", DATA)


def test_failfast_that_raises_without_a_fault_breaks_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, FAILFAST=lambda read: DamageError("no"))
    with pytest.raises(BrokenPromise, match="FAILFAST raised, and the report says otherwise"):
        fuzz_one("kafka.log", DATA)


def without_a_row(actual: Any) -> Read:
    return Read(actual.table.slice(1), actual.report)


def test_disagreeing_modes_and_windows_break_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, DROPMALFORMED=without_a_row)
    with pytest.raises(BrokenPromise, match="PERMISSIVE and DROPMALFORMED differ"):
        fuzz_one("kafka.log", DATA)
    monkeypatch.undo()
    judged(monkeypatch, DROPMALFORMED=without_a_row, PERMISSIVE=without_a_row)
    with pytest.raises(BrokenPromise, match="windows differ"):
        fuzz_one("kafka.log", DATA)


def test_invented_damage_breaks_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(actual: Any) -> Read:
        at = actual.table.schema.get_field_index("_corrupt_offset")
        column = pa.array(
            [None if row is None else row + 1000 for row in actual.table["_corrupt_offset"].to_pylist()],
            pa.int64(),
        )
        return Read(actual.table.set_column(at, actual.table.schema.field(at), column), actual.report)

    judged(monkeypatch, PERMISSIVE=shifted)
    with pytest.raises(BrokenPromise, match="outside of the file"):
        fuzz_one("kafka.log", DATA[:-3])

    def other_bytes(actual: Any) -> Read:
        at = actual.table.schema.get_field_index("_corrupt_record")
        column = pa.array(
            [None if row is None else b"?" for row in actual.table["_corrupt_record"].to_pylist()],
            pa.binary(),
        )
        return Read(actual.table.set_column(at, actual.table.schema.field(at), column), actual.report)

    monkeypatch.undo()
    judged(monkeypatch, PERMISSIVE=other_bytes)
    with pytest.raises(BrokenPromise, match="reported with wrong bytes"):
        fuzz_one("kafka.log", DATA[:-3])

    def fewer(actual: Any) -> Read:
        actual.report.bytes -= 1
        return Read(actual.table, actual.report)

    monkeypatch.undo()
    judged(monkeypatch, PERMISSIVE=fewer)
    with pytest.raises(BrokenPromise, match=f"the report says {len(DATA) - 1} bytes"):
        fuzz_one("kafka.log", DATA)


def test_changed_bytes_break_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    data = samples("kafka.index")[0].specimen().all_bytes()
    monkeypatch.setattr(registry.get("kafka.index"), "encode", lambda *_: iter([b"other"]))
    with pytest.raises(BrokenPromise, match="decode_encode"):
        fuzz_one("kafka.index", data)


# The program


def test_fuzz_on_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "0")
    assert fuzz.main(["kafka.partition_metadata", "--seconds", "0.05"]) == 0
    assert "mutated files" in capsys.readouterr().out
    assert fuzz.main(["kafka.nothing"]) == 2
    assert "no codec" in capsys.readouterr().err
    file = tmp_path / "some"
    file.write_bytes(b"anything")
    assert fuzz.main(["kafka.log", "--file", str(file)]) == 0

    def broken(codec: str, data: bytes, name: str | None = None) -> None:
        raise DamageError.of(Fault(codec, 0, 1, Kind.MAGIC, "oh no"), "x")

    monkeypatch.setattr(fuzz, "fuzz_one", broken)
    assert fuzz.main(["kafka.log", "--seconds", "5"]) == 1
    err = capsys.readouterr().err
    assert "broken: kafka.log, seed 0, file 0: DamageError" in err
    (left,) = tmp_path.glob("broken-kafka.log-*")
    assert left.name in err


@pytest.mark.extended
def test_fuzz_runs_as_a_program(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "logwright.roundtrip.fuzz", "kafka.partition_metadata", "--seconds", "0.2"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "mutated files" in done.stdout


def test_file_argument_that_breaks_a_promise(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "0")
    file = tmp_path / "some"
    file.write_bytes(DATA)
    judged(monkeypatch, DROPMALFORMED=without_a_row)
    assert fuzz.main(["kafka.log", "--file", str(file)]) == 1
    assert "broken: PERMISSIVE and DROPMALFORMED differ" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [file]


def test_wrong_damage_ranges_break_a_promise() -> None:
    read = LOG.specimen().with_bytes(DATA[:-3]).read(mode=Mode.PERMISSIVE)
    assert laws.ranges(DamageError("no"), DATA, []) == ""
    assert laws.ranges(read, DATA[:-3], None) == ""
    assert "reported damaged ranges are" in laws.ranges(read, DATA[:-3], [(0, 5)])


def test_fuzzing_checks_kernel_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Exception):
        pass

    message: list[Any] = []

    def execv(*args: Any) -> None:
        message.append(args)
        raise Gone

    monkeypatch.setattr("os.execv", execv)
    monkeypatch.setattr("os.environ", {})
    with pytest.raises(Gone):
        fuzz.main(["all", "--seconds", "1"])
    assert message[0][1][1:] == ["-m", "logwright.roundtrip.fuzz", "all", "--seconds", "1"]
    assert fuzz.os.environ["NUMBA_BOUNDSCHECK"] == "1"
