"""CRC-32 and CRC-32C: the values that zlib and the package crc32c compute, in all modes, on any processor, and never out of bounds."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
import zlib
from typing import Any

import crc32c as package
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from modes import environment

from logwright.codec.kernels import crc32c as checksums
from logwright.codec.kernels import kernel as module
from logwright.codec.kernels.crc32 import crc32_update
from logwright.codec.kernels.crc32c import crc32c, crc32c_combine, crc32c_of_three, crc32c_update
from logwright.codec.kernels.kernel import Kernel, kernel, mode

pytestmark = pytest.mark.kernel_modes

ELSEWHERE = pytest.mark.skipif(
    mode() != module.COMPILED, reason="it starts a process that compiles for another processor"
)
"""For tests that do the same in every mode."""


# CRC-32C


@kernel("const u1[], i8, i8")
def checksum(buf: Any, start: int, end: int) -> int:
    return crc32c(buf, start, end)


@kernel("i8, const u1[], i8, i8")
def continued(crc: int, buf: Any, start: int, end: int) -> int:
    return crc32c_update(crc, buf, start, end)


DATA = np.random.default_rng(7).integers(0, 256, 20_000, np.uint8)


def test_crc32c_gives_the_checksums_of_rfc_3720() -> None:
    """RFC 3720, B.4."""
    known = {
        bytes(32): 0x8A9136AA,
        b"\xff" * 32: 0x62A8AB43,
        bytes(range(32)): 0x46DD794E,
        b"123456789": 0xE3069283,
        b"": 0,
    }
    assert {data: checksum(np.frombuffer(data, np.uint8), 0, len(data)) for data in known} == known


# Around each place where the way of summing changes, and around the next step after it.
EDGES = sorted(
    {edge + off for edge in (8, 16, 384, 768, 3072, 3456, 6144, 16384) for off in range(-9, 10)} - {-1}
)


@pytest.mark.parametrize("start", [0, 1, 5])
def test_crc32c_of_any_alignment(start: int) -> None:
    for size in EDGES:
        assert checksum(DATA, start, start + size) == package.crc32c(DATA[start : start + size]), size


@given(st.integers(0, 20_000), st.integers(0, 20_000), st.integers(0, 20_000))
def test_crc32c_can_be_continued(a: int, b: int, c: int) -> None:
    a, b, c = sorted((a, b, c))
    first, second, both = (checksum(DATA, *ends) for ends in ((a, b), (b, c), (a, c)))
    assert both == package.crc32c(DATA[a:c])
    assert continued(first, DATA, b, c) == both
    assert crc32c_combine(first, second, c - b) == both
    # And backwards: from the checksums of two prefixes.
    assert crc32c_combine(first, both, c - b) == second


@given(
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, 1 << 61),
    st.integers(0, 1 << 61),
)
def test_crc32c_combine_of_long_lengths(first: int, second: int, n: int, m: int) -> None:
    """Nobody has that many bytes: appending n and then m is appending n + m."""
    assert crc32c_combine(crc32c_combine(first, 0, n), second, m) == crc32c_combine(first, second, n + m)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 383, 384, 500, 3072, 3500])
def test_hardware_and_table_crc32c_agree(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the instruction and with tables, whichever the processor would choose, and both in plain Python."""
    ones = 0xFFFFFFFF
    expected = package.crc32c(DATA[3 : 3 + size]) ^ ones
    for way in (checksums._by_slicing, checksums._by_instruction):
        assert way.py_func(ones, DATA, 3, 3 + size) == expected
    assert sliced(DATA, 3, 3 + size) == expected
    assert crc32c.py_func(DATA, 3, 3 + size) == expected ^ ones
    assert not checksums._has_instruction()
    for has in (True, False):
        monkeypatch.setattr(checksums, "_has_instruction", lambda has=has: has)
        assert crc32c_update.py_func(0, DATA, 3, 3 + size) == expected ^ ones


@kernel("const u1[], i8, i8")
def sliced(buf: Any, start: int, end: int) -> int:
    return checksums._by_slicing(0xFFFFFFFF, buf, start, end)


@kernel("const u1[], i8, i8, i8, i8")
def three(buf: Any, first: int, second: int, third: int, size: int) -> tuple[int, int, int]:
    return crc32c_of_three(buf, first, second, third, size)


@given(st.lists(st.integers(0, 100), min_size=3, max_size=3), st.integers(-1, 110))
def test_crc32c_of_three_ranges_equals_three_checksums(starts: list[int], size: int) -> None:
    buf = DATA[100:200]

    def by_instruction(*args: Any) -> tuple[int, int, int]:
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(checksums, "_has_instruction", lambda: True)
            return crc32c_of_three.py_func(*args)

    for way in (three, crc32c_of_three.py_func, by_instruction):
        if size < 0 or max(starts) + size > 100:
            with pytest.raises(IndexError, match="checksum outside"):
                way(buf, *starts, size)
        else:
            assert list(way(buf, *starts, size)) == [package.crc32c(buf[at : at + size]) for at in starts]


# Near both ends of 50 bytes and far beyond them: a difference of two must not wrap around either.
bounds = st.integers(-3, 80) | st.sampled_from([-(1 << 63), -(1 << 62), 1 << 31, 1 << 62, (1 << 63) - 1])


@given(bounds, bounds)
def test_crc32c_never_leaves_its_buffer(start: int, end: int) -> None:
    buf = DATA[100:150]
    if 0 <= start <= end <= 50:
        assert checksum(buf, start, end) == package.crc32c(buf[start:end])
        return
    for refuse in (
        checksum,
        crc32c,
        functools.partial(continued, 0),
        functools.partial(crc32c_update.py_func, 0),
    ):
        with pytest.raises(IndexError, match="checksum outside"):
            refuse(buf, start, end)


@pytest.mark.parametrize(
    ("triple", "features", "widest"),
    [
        ("x86_64-unknown-linux-gnu", "+sse4.1,+sse4.2", "llvm.x86.sse42.crc32.64.64"),
        ("aarch64-unknown-linux-gnu", "+neon,+crc", "llvm.aarch64.crc32cx"),
        ("arm64-apple-darwin23.0.0", "+crc", "llvm.aarch64.crc32cx"),
        ("x86_64-unknown-linux-gnu", "+sse4.1,-sse4.2", None),
        ("aarch64-unknown-linux-gnu", "-crc", None),
        ("powerpc64le-unknown-linux-gnu", "+crc", None),
    ],
)
def test_instructions_are_called_as_llvm_declares_them(
    triple: str, features: str, widest: str | None
) -> None:
    """For other processors too: LLVM knows the types of all."""
    assert checksums._crc_instruction(triple, features, 8) == widest
    if widest is None:
        return
    ir, binding = pytest.importorskip("llvmlite.ir"), pytest.importorskip("llvmlite.binding")
    for width in (1, 2, 4, 8):
        name = checksums._crc_instruction(triple, features, width)
        built = ir.Module()
        i64 = ir.IntType(64)
        function = ir.Function(built, ir.FunctionType(i64, [i64, i64]), "step")
        builder = ir.IRBuilder(function.append_basic_block())
        builder.ret(checksums._emit_crc(builder, name, *function.args, width))
        binding.parse_assembly(str(built)).verify()


@ELSEWHERE
@pytest.mark.extended
def test_crc32c_without_the_cpu_instruction() -> None:
    """Compiled for a processor that lacks it, the checksum comes from the tables."""
    script = """
        import numpy, crc32c as package
        from logwright.codec.kernels.kernel import kernel
        from logwright.codec.kernels.crc32c import _has_instruction, crc32c
        @kernel("const u1[], i8")
        def checksum(buf, end):
            return _has_instruction(), crc32c(buf, 0, end)
        buf = numpy.arange(5000, dtype=numpy.uint8)
        assert all(checksum(buf, n) == (False, package.crc32c(buf[:n])) for n in (0, 1, 7, 8, 100, 5000))
        """
    settings = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "LOGWRIGHT_CACHE_DIR": os.devnull}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environment("compiled") | settings, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@kernel("")
def has_instruction() -> bool:
    return checksums._has_instruction()


def test_crc32c_compiles_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cache, so that each run tests newly emitted code."""
    if mode() == "interpreted":
        pytest.skip("nothing is compiled with the JIT off")
    monkeypatch.setattr(module, "cache_place", lambda mode: None)
    monkeypatch.setattr(module, "_registry", {})

    def compiled(item: Any) -> Any:
        return Kernel(item.py_func, item.signature, None).compile()

    raw = package.crc32c(DATA) ^ 0xFFFFFFFF
    assert compiled(checksums._by_slicing)(0xFFFFFFFF, DATA, 0, len(DATA)) == raw
    if compiled(has_instruction)():
        assert compiled(checksums._by_instruction)(0xFFFFFFFF, DATA, 0, len(DATA)) == raw


def test_checksums_are_plain_integers() -> None:
    """NumPy scalars are narrow, and computations with them warn of overflow."""
    results = checksum(DATA, 0, 20), crc32c_combine(1, 2, 3), continued_crc32(0, DATA, 0, 20)
    assert {type(result) for result in results} == {int}


# CRC-32


@kernel("i8, const u1[], i8, i8")
def continued_crc32(crc: int, buf: Any, start: int, end: int) -> int:
    return crc32_update(crc, buf, start, end)


@pytest.mark.parametrize("crc", [0, 0x12345678, 0xFFFFFFFF])
def test_crc32_of_every_length_is_that_of_zlib(crc: int) -> None:
    data = np.random.default_rng(5).integers(0, 256, 5000, np.uint8)
    for size in (*range(400), 1023, 1024, 4095, 4096):
        assert continued_crc32(crc, data, size % 7, size % 7 + size) == zlib.crc32(
            data[size % 7 :][:size].tobytes(), crc
        )


@ELSEWHERE
@pytest.mark.parametrize(
    ("features", "folds"),
    [
        ("", False),
        pytest.param("+sse4.2,+pclmul", True, marks=pytest.mark.extended),
        # Most processors are like this one, and all other tests prove it on those.
        pytest.param("+sse4.2,+avx,+avx2,+pclmul,+vpclmulqdq", True, marks=pytest.mark.extended),
    ],
)
def test_crc32_without_the_widest_products(features: str, folds: bool) -> None:
    """Compiled for a processor that multiplies two blocks at a time, one, or none, the checksum is the same."""
    import llvmlite.binding

    host = llvmlite.binding.get_host_cpu_features()
    if not all(host.get(feature[1:]) for feature in features.split(",") if feature):
        pytest.skip("this processor has no such carry-less product")
    script = f"""
        import numpy, zlib
        from logwright.codec.kernels.kernel import kernel
        from logwright.codec.kernels.crc32 import _can_fold, crc32
        @kernel("const u1[], i8")
        def checksum(buf, end):
            return _can_fold(), crc32(buf, 0, end)
        buf = numpy.arange(5000, dtype=numpy.uint8)
        assert all(checksum(buf, n) == ({folds}, zlib.crc32(buf[:n])) for n in (0, 1, 7, 31, *range(32, 400), 5000))
        """
    settings = {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": features,
        "LOGWRIGHT_CACHE_DIR": os.devnull,
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environment("compiled") | settings, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="pages are protected by Linux's C library")
def test_crc32_touches_no_page_beside_its_buffer() -> None:
    """The first bytes are loaded as the end of a vector that starts before them."""
    script = """
        import ctypes, mmap, numpy, zlib
        from logwright.codec.kernels.kernel import kernel
        from logwright.codec.kernels.crc32 import crc32
        @kernel("const u1[], i8, i8")
        def checksum(buf, start, end):
            return crc32(buf, start, end)
        page = mmap.PAGESIZE
        memory = numpy.frombuffer(mmap.mmap(-1, 3 * page), numpy.uint8)
        memory[page : 2 * page] = numpy.arange(page) * 7 % 251
        for first in (0, 2 * page):
            assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + first), ctypes.c_size_t(page), 0) == 0
        buf = memory[page : 2 * page]
        for n in range(32, 200):
            assert checksum(buf, 0, n) == zlib.crc32(buf[:n])
            assert checksum(buf, page - n, page) == zlib.crc32(buf[page - n :])
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environment("compiled"), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(mode() == "interpreted", reason="zlib sums slices, which end with the buffer")
def test_crc32_does_not_read_outside_of_the_buffer() -> None:
    data = np.zeros(64, np.uint8)
    for start, end in ((-1, 40), (0, 65), (60, 100)):
        with pytest.raises(IndexError):
            continued_crc32(0, data, start, end)
