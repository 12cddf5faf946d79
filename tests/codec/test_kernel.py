"""Kernels: when they compile, the cache of compiled code, and equal results in each mode."""

from __future__ import annotations

import enum
import importlib
import json
import math
import os
import pickle
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import platformdirs
import pytest
from modes import MODES, ROOT, environment

from logwright.codec.kernels import disk_cache, intrinsics
from logwright.codec.kernels import kernel as module
from logwright.codec.kernels.intrinsics import load_u8
from logwright.codec.kernels.kernel import Kernel, fingerprint, intrinsic, kernel, kernels, mode, warmup

compiled_only = pytest.mark.skipif(mode() == "interpreted", reason="nothing is compiled with the JIT off")


@kernel("const u1[], i8")
def total(buf: Any, times: int) -> int:
    sum_ = 0
    for i in range(len(buf)):
        sum_ += weighed(load_u8(buf, i), times)
    return sum_


@kernel("i8, i8")
def weighed(value: int, times: int) -> int:
    return value * times


@kernel
def untyped(values: Any) -> Any:
    return values[0]


@kernel("i8")
def factorial(n: int) -> int:
    return 1 if n < 2 else n * factorial(n - 1)


# A separate process


def run(script: str, *, mode: str = "compiled", path: str | Path = "", **settings: str) -> Any:
    """Run a script in a new process and return its output, parsed as JSON."""
    environ = environment(mode) | {"PYTHONPATH": str(path), "LOGWRIGHT_CACHE_DIR": os.devnull} | settings
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_and_small_inputs_need_no_numba() -> None:
    result = run(
        """
        import importlib, json, pkgutil, sys, time
        import logwright.codec, numpy
        for one in pkgutil.walk_packages(logwright.codec.__path__, "logwright.codec."):
            importlib.import_module(one.name)
        from logwright.codec.kernels.crc32c import crc32c, crc32c_combine
        from logwright.codec.kernels.intrinsics import read_varint
        from logwright.codec.kernels.kernel import kernels
        data = numpy.frombuffer(b"\\x02123456789", numpy.uint8)
        read = read_varint(data, 0, 10)
        crc = crc32c_combine(crc32c(data, 1, 5), crc32c(data, 5, 10), 5)
        print(json.dumps([read, crc, len(kernels()) > 10, "numba" in sys.modules]))
        """,
        LOGWRIGHT_INTERPRET_BELOW="",
    )
    assert result == [[1, 1], 0xE3069283, True, False]


@pytest.mark.parametrize("name", MODES)
def test_mode_follows_the_environment(name: str) -> None:
    script = "import json; from logwright.codec.kernels.kernel import mode; print(json.dumps(mode()))"
    assert run(script, mode=name) == name


def test_settings_are_parsed_as_by_numba() -> None:
    script = "import json; from logwright.codec.kernels.kernel import mode; print(json.dumps(mode()))"
    assert run(script, NUMBA_DISABLE_JIT="0", NUMBA_BOUNDSCHECK="0") == "compiled"
    assert run(script, NUMBA_DISABLE_JIT="", NUMBA_BOUNDSCHECK="no") == "compiled"
    assert run(script, NUMBA_DISABLE_JIT="1", NUMBA_BOUNDSCHECK="1") == "interpreted"


def test_kernels_run_without_numba() -> None:
    result = run(
        """
        import json, sys, warnings
        sys.modules["numba"] = None
        from logwright.codec.kernels.kernel import kernel
        @kernel("i8")
        def twice(x):
            return 2 * x
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            print(json.dumps([twice(4), twice(5), [str(one.message) for one in caught]]))
        """
    )
    assert result == [8, 10, ["numba is not installed: logwright runs several hundred times slower"]]


@compiled_only
def test_numbas_configuration_file_can_disable_the_jit(monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    result = kernel("i8")(lambda x: x + 5)
    assert result.compile() is result.py_func


# When to compile


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Kernel[..., int]]:
    """Make a kernel with the given policy."""

    def make(*, cached: bool, numba: bool, below: int | None = None) -> Kernel[..., int]:
        monkeypatch.setattr(module, "_INTERPRET_BELOW", below)
        monkeypatch.setattr(Kernel, "cached", lambda self: cached)
        if numba:
            importlib.import_module("numba")
        else:
            monkeypatch.delitem(sys.modules, "numba", raising=False)
        result = kernel("const u1[]")(lambda buf: len(buf))
        result._run = None
        return result

    return make


@pytest.mark.parametrize(
    ("cached", "numba", "limit"),
    [(False, False, 18_400_000), (False, True, 16_000_000), (True, False, 2_480_000), (True, True, 80_000)],
)
def test_small_calls_are_interpreted(policy: Any, cached: bool, numba: bool, limit: int) -> None:
    """The approximate size from which interpreting takes longer than compiling or loading."""
    result = policy(cached=cached, numba=numba)
    assert result._interprets(limit - 1000)
    assert not result._interprets(limit + 1000)


def test_time_spent_interpreting_counts(policy: Any) -> None:
    result = policy(cached=True, numba=False)
    assert result._interprets(1000)
    result._spent = 0.32
    assert not result._interprets(1000)
    # So does how fast it went.
    result._spent, result._seen = 0.1, 1_000_000
    assert result._interprets(2_000_000)
    assert not result._interprets(2_200_000)
    result._seen = 10_000_000
    assert result._interprets(20_000_000)


def test_size_limit_can_be_configured(policy: Any) -> None:
    result = policy(cached=False, numba=False, below=100)
    assert result._interprets(99)
    assert not result._interprets(100)
    assert not policy(cached=False, numba=False, below=0)._interprets(0)


@compiled_only
def test_kernel_that_replaces_fast_functions_waits_until_it_pays(
    policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORTH_COMPILING", 1000)
    assert not policy(cached=True, numba=False).is_ready(999)
    result = policy(cached=False, numba=True)
    assert not result.is_ready(999)
    assert result.is_ready(1)
    assert policy(cached=True, numba=True).is_ready(1)
    assert policy(cached=False, numba=True, below=0).is_ready(1)
    assert not policy(cached=True, numba=True, below=100).is_ready(99)


@compiled_only
def test_compiled_kernel_runs_compiled(policy: Any) -> None:
    result = policy(cached=True, numba=True)
    assert result._interprets(10)
    result.compile()
    assert not result._interprets(10)


@compiled_only
@pytest.mark.parametrize("brief", [False, True])
def test_brief_kernel_keeps_the_gil(brief: bool) -> None:
    result = kernel("i8", brief=brief)(lambda x: x + 5)
    assert result.compile().targetoptions["nogil"] is not brief
    assert result(2) == 7


def test_interpreted_call_is_measured_and_nested_calls_stay_interpreted(policy: Any) -> None:
    """Kernels called by an interpreted one stay interpreted, however large their input."""
    inner = policy(cached=False, numba=False, below=10)
    inner.compile = lambda: pytest.fail("compiled")

    def outer_(buf: Any) -> int:
        time.sleep(0.01)
        return inner(np.zeros(1000, np.uint8)) + len(buf)

    outer = kernel("const u1[]")(outer_)
    outer._run = None
    assert outer(np.zeros(5, np.uint8)) == 1005
    assert outer._spent >= 0.01
    assert inner._spent == 0
    assert not module._local.interpreting


@compiled_only
def test_large_call_compiles_and_later_small_calls_use_it(policy: Any) -> None:
    def size(buf: Any) -> int:
        return len(buf)

    policy(cached=False, numba=True, below=100)
    result = kernel("const u1[]")(size)
    assert result(np.zeros(5, np.uint8)) == 5
    assert result._run is None
    assert result(np.zeros(500, np.uint8)) == 500
    assert result._run is result.compile()
    assert result(np.zeros(5, np.uint8)) == 5


# Kernels


@compiled_only
def test_one_compiled_form_takes_readonly_and_writable_arrays() -> None:
    data = bytes(range(10))
    writable = np.frombuffer(bytearray(data), np.uint8)
    assert total(np.frombuffer(data, np.uint8), 3) == total(writable, np.int32(3)) == 135
    assert len(total.compile().overloads) == 1
    with pytest.raises(TypeError, match="No matching definition"):
        total(writable.view(np.int8), 3)
    with pytest.raises(TypeError, match="No matching definition"):
        total(writable[::2], 3)


@compiled_only
def test_without_a_signature_there_is_one_form_for_each_type() -> None:
    assert untyped(np.array([4], np.int64)) == 4
    assert untyped(np.array([0.5])) == 0.5
    assert len(untyped.compile().overloads) == 2


@compiled_only
def test_kernel_with_a_signature_returns_no_array() -> None:
    with pytest.raises(TypeError, match="returns an array: fill an array argument instead"):
        kernel("const u1[]")(lambda buf: (1, buf[1:])).compile()
    with pytest.raises(
        Exception, match="Only accept returning of array passed into the function as argument"
    ):
        kernel("const u1[]")(lambda buf: buf[1:]).compile()


@compiled_only
def test_arrays_may_be_sliced_in_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """No reference to the slices or arrays is left, though references are not counted."""
    monkeypatch.setattr(module, "cache_place", lambda mode: None)

    def sliced_(buf: Any, times: int) -> int:
        sum_ = 0
        for _ in range(times):
            part = buf[1:]
            sum_ += total(part, 1) + len(part[1:-1])
        return sum_

    sliced = kernel("const u1[], i8")(sliced_).compile()
    buf = np.ones(10, np.uint8)
    before = sys.getrefcount(buf)
    assert sliced(buf, 1000) == 1000 * (9 + 7)
    assert sys.getrefcount(buf) == before


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("i8", "(int64,)"),
        ("const u1[], i8, b1", "(Array(uint8, 1, 'C', False, aligned=True), int64, bool)"),
        (
            "u1[],f8[,]",
            "(Array(uint8, 1, 'C', True, aligned=True), Array(float64, 2, 'C', True, aligned=True))",
        ),
        ("", "()"),
    ],
)
def test_signature_text_gives_the_types_of_numba(text: str, types: str) -> None:
    actual = module._numba_signature(text)
    assert [str(item) for item in actual] == [str(item) for item in eval_types(types)]


class Both(NamedTuple):
    sums: Annotated[Any, "i8[]"]
    data: Annotated[Any, "u1[]"]


@kernel("i8, Both")
def counted(limit: int, both: Both) -> int:
    for i in range(len(both.data)):
        both.sums[both.data[i]] += 1
    return int(both.sums[limit])


@kernel("const u1[], Both")
def counted_all(more: Any, both: Both) -> int:
    for i in range(len(more)):
        both.sums[more[i]] += 1
    return counted(3, both)


def test_named_tuples_of_arrays_are_accepted() -> None:
    types = module._numba_signature("i8, Both", globals())
    assert str(types[1]) == str(module._numba_signature("Both", globals())[0])
    more = np.array([3, 1], np.uint8)
    for run in (counted_all, counted_all.py_func, counted_all.compile()):
        both = Both(np.zeros(4, np.int64), np.array([1, 3, 3], np.uint8))
        assert run(more, both) == 3
        assert both.sums.tolist() == [0, 2, 0, 3]


def test_arrays_in_a_named_tuple_count_as_work() -> None:
    assert (
        module._nbytes((1, np.zeros(5, np.uint8), Both(np.zeros(2, np.int64), np.zeros(3, np.uint8)))) == 24
    )


def eval_types(text: str) -> Any:
    from numba.core import types

    names = {name: getattr(types, name) for name in ("int64", "uint8", "float64")} | {"bool": types.boolean}

    def array(scalar: Any, ndim: int, layout: str, mutable: bool, aligned: bool) -> Any:
        return types.Array(scalar, ndim, layout, readonly=not mutable, aligned=aligned)

    return eval(text, names | {"Array": array})


def test_kernel_may_call_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cache_place", lambda mode: None)
    assert factorial(20) == math.factorial(20)


def test_kernel_has_a_name_and_repr() -> None:
    assert pickle.loads(pickle.dumps(intrinsics.read_varint)) is intrinsics.read_varint
    assert pickle.loads(pickle.dumps(intrinsics.copy)) is intrinsics.copy
    assert pickle.loads(pickle.dumps(intrinsics.load_i64be)) is intrinsics.load_i64be
    assert repr(total) == f"<kernel {__name__}.total>"
    assert (weighed.__name__, weighed.__wrapped__, weighed.py_func(3, 4)) == ("weighed", weighed.py_func, 12)
    assert total in kernels()
    assert weighed(value=3, times=4) == 12


def test_python_replacement_runs_instead() -> None:
    result = kernel("i8", python=lambda x: x + 100)(lambda x: x)
    assert result(1) == 101
    assert result.py_func(1) == 1


@compiled_only
def test_concurrent_first_calls_compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cache_place", lambda mode: None)
    monkeypatch.setattr(module, "_INTERPRET_BELOW", 0)

    def inner_(x: int) -> int:
        return x + 1

    inner = kernel("i8")(inner_)

    def outer_(x: int) -> int:
        return inner(x) * 2

    outer = kernel("i8")(outer_)
    results: list[tuple[int, Any]] = []
    start = threading.Barrier(6)

    def call(which: Kernel[..., int], x: int) -> None:
        start.wait()
        results.append((which(x), which._run))

    threads = [threading.Thread(target=call, args=((inner, outer)[i % 2], i)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(value for value, _ in results) == sorted(
        i + 1 if i % 2 == 0 else 2 * i + 2 for i in range(6)
    )
    assert {id(run) for _, run in results} == {id(inner.compile()), id(outer.compile())}


@compiled_only
def test_warmup_compiles_kernels_with_a_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_registry", {item.name: item for item in (total, weighed, untyped)})
    actual = dict(warmup())
    assert set(actual) == {total.name, weighed.name}
    assert all(seconds >= 0 for seconds in actual.values())


def test_warmup_does_nothing_without_the_jit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MODE", "interpreted")
    assert list(warmup()) == []


def test_warmup_makes_the_kernels_of_all_modules_and_of_all_framed_formats() -> None:
    names = run(
        """
        import json
        from logwright.codec.kernels.kernel import kernels
        from logwright.codec.warmup import make_kernels
        make_kernels()
        print(json.dumps([item.name for item in kernels()]))
        """
    )
    codec = Path(ROOT, "src/logwright/codec")
    with_kernels = {
        ".".join(path.relative_to(codec).with_suffix("").parts)
        for path in codec.rglob("*.py")
        if re.search(r"^@kernel\b", path.read_text(), re.MULTILINE)
    }
    modules = {name.removeprefix("logwright.codec.").rpartition(".")[0] for name in names}
    assert len(with_kernels) > 50
    assert with_kernels - modules == set()
    framed = {name.partition(":")[2] for name in names if ":" in name}
    assert framed >= {
        "kafka.log", "zookeeper.txnlog", "rocketmq.commitlog", "rocketmq.consumequeue_ext", "rocketmq.timerlog",
        "bookkeeper.entrylog", "bookkeeper.journal",
    }  # fmt: skip
    for format_ in framed:
        expected = {
            f"frames.{name}:{format_}" for name in ("scanner.scan", "scanner.bounded_scan", "resync.find")
        }
        assert {f"logwright.codec.{name}" for name in expected} <= set(names)


@pytest.mark.alike
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"NUMBA_DISABLE_JIT": "1"}, "nothing to compile: NUMBA_DISABLE_JIT is set"),
        ({"LOGWRIGHT_CACHE_DIR": os.devnull}, "2 kernels were compiled for nothing: no cache directory can be written"),
        ({}, "2 kernels are compiled in {}/kernels/"),
    ],
)  # fmt: skip
def test_warmup_says_where_the_compiled_kernels_are(
    settings: dict[str, str], text: str, tmp_path: Path
) -> None:
    script = """
        import json, io, sys
        from logwright.cli.warmup import command
        from logwright.codec import warmup
        from logwright.codec.kernels import kernel
        made = [kernel.kernel("i8")(lambda x: x), kernel.kernel("i8")(lambda x: x + 1)]
        warmup.make_kernels = lambda: None
        kernel.kernels = lambda: made
        sys.stderr = io.StringIO()
        command(standalone_mode=False)
        print(json.dumps(sys.stderr.getvalue()))
        """
    shown = run(script, **{"LOGWRIGHT_CACHE_DIR": str(tmp_path), **settings})
    assert shown.startswith(text.format(tmp_path))


# The cache

INNER = """
from logwright.codec.kernels.kernel import kernel
from tiny.constants import FACTOR

@kernel("i8")
def inner(x):
    return FACTOR * x
"""
OUTER = """
from logwright.codec.kernels.kernel import kernel
from tiny import constants
from tiny.inner import inner

@kernel("const u1[], i8")
def outer(buf, at):
    return inner(7) + constants.TABLE[1] + buf[at]

@kernel("const u1[]")
def another(buf):
    return len(buf)
"""
CONSTANTS = "import numpy as np\nFACTOR = 10\nTABLE = np.array([1, 1000])\n"
SCRIPT = """
    import json, numpy, sys
    from tiny.outer import outer, another
    buf = numpy.zeros(16, numpy.uint8)
    try:
        result = outer(buf[:8], {at})
    except IndexError:
        result = "IndexError"
    hits = sum(outer.compile()._cache_hits.values())
    import numba
    print(json.dumps([result, hits, numba.config.CACHE_DIR]))
"""


class Tiny:
    """An editable package of two kernels with a separate cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tiny").mkdir()
        self.texts = {"__init__": "", "inner": INNER, "outer": OUTER, "constants": CONSTANTS}
        self.edit("__init__", "", "")

    def edit(self, name: str, old: str, new: str) -> None:
        assert old in self.texts[name]
        self.texts[name] = self.texts[name].replace(old, new)
        for name, text in self.texts.items():
            (self.folder / "tiny" / f"{name}.py").write_text(text)

    def run(
        self, mode: str = "compiled", at: int = 0, path: Path | None = None, **settings: str
    ) -> tuple[Any, int]:
        """Return the result of `outer(buf, at)` and the number of kernels loaded from the cache."""
        settings = {
            "LOGWRIGHT_CACHE_DIR": str(self.folder / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
        } | settings
        result, hits, numbas = run(SCRIPT.format(at=at), mode=mode, path=path or self.folder, **settings)
        assert numbas == "", "numba's own configuration is left alone"
        return result, hits

    def entries(self) -> list[Path]:
        return sorted(self.folder.glob("cache/kernels/*/*"))


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    return Tiny(tmp_path)


@pytest.mark.extended
def test_cached_kernel_is_used_until_it_changes(tiny: Tiny) -> None:
    assert tiny.run() == (1070, 0)
    assert tiny.run() == (1070, 1)
    # The callee's code, a constant of another module that it uses, and one behind a module's name.
    tiny.edit("inner", "FACTOR * x", "FACTOR * x + 1")
    assert tiny.run() == (1071, 0)
    tiny.edit("constants", "FACTOR = 10", "FACTOR = 20")
    assert tiny.run() == (1141, 0)
    tiny.edit("constants", "1000", "2000")
    assert tiny.run() == (2141, 0)
    # Not in the digest: another kernel of the file, comments, line numbers.
    tiny.edit("outer", "return len(buf)", "return len(buf) + 1")
    tiny.edit("outer", "from tiny.inner", "# A comment.\nfrom tiny.inner")
    assert tiny.run() == (2141, 1)


@pytest.mark.extended
def test_checked_and_unchecked_code_are_cached_separately(tiny: Tiny) -> None:
    # A place outside of the slice, inside of the array: without checks it is read.
    assert tiny.run(at=12) == (1070, 0)
    assert tiny.run("checked", at=12) == ("IndexError", 0)
    assert tiny.run(at=12) == (1070, 1)


def test_unwritable_cache_is_not_an_error(tiny: Tiny) -> None:
    assert tiny.run(LOGWRIGHT_CACHE_DIR=os.devnull) == (1070, 0)
    assert tiny.entries() == []


@pytest.mark.extended
def test_kernels_are_cached_when_imported_from_a_zip(tiny: Tiny) -> None:
    """As Spark ships a package with --py-files: kernels are compiled, cached, and recompiled after an edit."""

    def pack() -> Path:
        archive = tiny.folder / "shipped.zip"
        with zipfile.ZipFile(archive, "w") as out:
            for name, text in tiny.texts.items():
                out.writestr(f"tiny/{name}.py", text)
            out.writestr("logwright/__init__.py", "")
            for name in (
                "__init__",
                "deferred",
                "kernels/__init__",
                "kernels/disk_cache",
                "kernels/kernel",
                "kernels/intrinsics",
            ):
                out.write(Path(ROOT, "codec", f"{name}.py"), f"logwright/codec/{name}.py")
        return archive

    elsewhere = {"PYTHONSAFEPATH": "1"}
    assert tiny.run(path=pack(), **elsewhere) == (1070, 0)
    assert tiny.run(path=pack(), **elsewhere) == (1070, 1)
    tiny.edit("inner", "FACTOR * x", "FACTOR * x + 1")
    assert tiny.run(path=pack(), **elsewhere) == (1071, 0)
    script = "import json, logwright.codec.kernels.kernel as k; print(json.dumps(k.__file__))"
    assert run(script, path=pack()).startswith(str(tiny.folder / "shipped.zip"))


def test_cache_places_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configured place, the user's cache directory, or a private directory in the shared temporary directory."""
    monkeypatch.setenv("LOGWRIGHT_CACHE_DIR", str(tmp_path / "chosen"))
    assert list(disk_cache._cache_places()) == [tmp_path / "chosen"]
    monkeypatch.delenv("LOGWRIGHT_CACHE_DIR")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    shared = tmp_path / f"logwright-{os.getuid()}"
    assert list(disk_cache._cache_places()) == [Path(platformdirs.user_cache_dir("logwright")), shared]
    # Cached code is run, so the cache must not be writable by others or a link to another place.
    shared.chmod(0o777)
    assert list(disk_cache._cache_places())[1:] == []
    shared.rmdir()
    (tmp_path / "mine").mkdir()
    shared.symlink_to(tmp_path / "mine")
    assert list(disk_cache._cache_places())[1:] == []
    shared.unlink()
    shared.write_bytes(b"")
    assert list(disk_cache._cache_places())[1:] == []


def test_cache_place_must_be_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = disk_cache._usable(tmp_path, "compiled")
    assert place is not None
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o777)
    assert disk_cache._usable(tmp_path, "compiled") is None
    (tmp_path / "file").write_bytes(b"")
    assert disk_cache._usable(tmp_path / "file", "compiled") is None
    places = [tmp_path / "file", tmp_path / "new"]
    monkeypatch.setattr(disk_cache, "_cache_places", lambda: iter(places))
    disk_cache.cache_place.cache_clear()
    try:
        actual = disk_cache.cache_place("compiled")
        assert actual is not None
        assert actual.parent == tmp_path / "new" / "kernels"
        assert disk_cache.cache_place("compiled") is actual
    finally:
        disk_cache.cache_place.cache_clear()


@compiled_only
def test_damaged_cache_entry_is_recompiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cache_place", lambda mode: tmp_path)

    def hits() -> int:
        result = Kernel(weighed.py_func, "i8, i8", None)
        assert result.compile()(3, 4) == 12
        return sum(result.compile()._cache_hits.values())

    assert (hits(), hits()) == (0, 1)
    (entry,) = tmp_path.iterdir()
    data = entry.read_bytes()
    for damaged in (data[: len(data) // 2], b"", b"junk" + data, pickle.dumps((1, 2))):
        entry.write_bytes(damaged)
        assert hits() == 0
        assert hits() == 1


@compiled_only
def test_full_disk_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cache_place", lambda mode: tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    result = kernel("i8")(lambda x: x + 3)
    assert result.compile()(4) == 7
    assert list(tmp_path.iterdir()) == []


def test_old_cache_entries_are_removed(tmp_path: Path) -> None:
    names = ("a.b-old", "a.b-new", "a.c-old")
    for name in names:
        (tmp_path / name).write_bytes(b"")
        if name.endswith("old"):
            os.utime(tmp_path / name, (0, 0))
    disk_cache._remove_old(tmp_path, "a.b")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.b-new", "a.c-old"]


HUGE = np.arange(1 << 18)


@kernel("i8")
def from_huge(i: int) -> int:
    return HUGE[i]


@compiled_only
def test_kernels_with_process_addresses_are_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numba refers to a large constant array by its address."""
    monkeypatch.setattr(module, "cache_place", lambda mode: tmp_path)
    assert from_huge.compile()(1234) == 1234
    assert list(tmp_path.iterdir()) == []


@compiled_only
def test_cached_does_not_import_numba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cache_place", lambda mode: tmp_path)
    module.listing.cache_clear()
    result = kernel("i8")(lambda x: x + 4)
    assert not result.cached()
    result.compile()
    module.listing.cache_clear()
    assert result.cached()
    assert result.cached()
    monkeypatch.setattr(module, "cache_place", lambda mode: tmp_path / "gone")
    assert not result.cached()
    monkeypatch.setattr(module, "cache_place", lambda mode: None)
    assert not result.cached()


# The digest


class Colour(enum.IntEnum):
    RED = 77


def digest(source: str, **names: Any) -> str | None:
    """The fingerprint of the function `f` of a source."""
    scope = {"np": np, "math": math, "__name__": "somewhere", **names}
    exec(textwrap.dedent(source), scope)
    return fingerprint(scope["f"])


def test_digest_covers_everything_compiled_in() -> None:
    def using(value: Any) -> str | None:
        return digest("def f():\n    return X", X=value)

    values = [
        1, 2, True, 1.0, "1", b"1", None, ..., (1,), (1, 2), [1], ((1,),), frozenset({1, 2}), np.int8(1), np.uint8(1),
        np.dtype("u1"), np.array([1]), np.array([2]), np.array([1], np.int8), np.array([[1]]), Colour.RED,
        len, int, np.add, np, math,
        total, weighed, intrinsics.copy, intrinsics.load_u8, intrinsics.load_i16be, lambda: 1, lambda: 2,
    ]  # fmt: skip
    actual = [using(value) for value in values]
    assert None not in actual
    assert len(set(actual)) == len(actual)
    assert using(frozenset("abcdef")) == using(frozenset("fedcba"))
    # What nobody can tell the content of is not kept.
    assert using(object()) is None
    assert using({1: 2}) is None
    assert using(np.array([object()])) is None


def test_digest_ignores_comments_and_formatting() -> None:
    plain = digest('def f(x, y=1):\n    """Add."""\n    return x + y')
    assert plain == digest('\n\ndef f(x, y=1):\n    """Add both."""\n    # Really.\n    return x + y')
    for other in ("x - y", "x + y + 0", "x + 1"):
        assert plain != digest(f'def f(x, y=1):\n    """Add."""\n    return {other}')
    assert plain != digest('def f(x, y=2):\n    """Add."""\n    return x + y')
    assert digest("def f():\n    return 'a'") != digest("def f():\n    return 'b'")
    closures = [digest(f"def g(y):\n    def f(x): return x + y\n    return f\nf = g({y})") for y in (1, 2)]
    assert closures[0] != closures[1]
    inner = [digest(f"def f():\n    def g(): return {y}\n    return g()") for y in (1, 2)]
    assert inner[0] != inner[1]


def test_intrinsics_are_part_of_the_digest() -> None:
    def using(signature: str, generate: Any) -> str | None:
        return digest("def f():\n    return g()", g=intrinsic(signature, generate)(lambda: 0))

    plain = using("-> i8", lambda context: 1)
    assert plain != using("-> i8", lambda context: 2)
    assert plain != using("-> i4", lambda context: 1)


def test_every_kernel_can_be_cached() -> None:
    """Otherwise each process would compile it again."""
    assert [
        kernel.name
        for kernel in kernels()
        if kernel.__module__.startswith("logwright.") and fingerprint(kernel.py_func) is None
    ] == []


def test_compiling_emits_no_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert total(np.arange(200, dtype=np.uint8), 1 << 40) == 19900 << 40
