"""Hypothesis profiles, the sample of tests that `make test` runs, and the reason for skipping tests that need Java."""

from __future__ import annotations

import functools
import gc
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import sampling
from hypothesis import HealthCheck, Phase, settings

from logwright.codec.kernels import kernel

# Run kernels compiled (or as NUMBA_DISABLE_JIT and NUMBA_BOUNDSCHECK say), however small the input. Programs that tests start decide
# by themselves, as those of users do.
if "LOGWRIGHT_INTERPRET_BELOW" not in os.environ:
    kernel._INTERPRET_BELOW = 0

# Flushing is proven with disks in memory; to wait for the real disk proves nothing. A wrong descriptor is still an error.
os.fsync = os.fstat

# A cold kernel compiles inside the first example: no deadline, and slow first examples are no ill health.
settings.register_profile(
    "dev", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# The same examples at each run, so that a red build is red for its change.
settings.register_profile("ci", parent=settings.get_profile("dev"), derandomize=True, database=None)
# `make test`: a tenth of the examples, the same at each run.
settings.register_profile("sample", parent=settings.get_profile("ci"), max_examples=10)
settings.register_profile("nightly", parent=settings.get_profile("dev"), max_examples=5_000)
# Interpreted kernels under coverage: a hundredfold slower, and a failure is shrunk by the other profiles.
settings.register_profile(
    "coverage", parent=settings.get_profile("ci"), max_examples=25, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


@functools.cache
def why_no_java() -> str | None:
    """Return the reason why tests that need Java cannot run here; None if they can."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    if java is None:
        return "needs Java 17 or newer, but no java was found: install a JDK 17 or set JAVA_HOME"
    try:
        stderr = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return (
            f"needs Java 17 or newer, and {java} does not start ({error}): install a JDK 17 or set JAVA_HOME"
        )
    version = re.search(r'version "(?:1\.)?(\d+)', stderr)
    if version is None or int(version[1]) < 17:
        actual = version[1] if version else "of unknown version"
        return f"needs Java 17 or newer, and {java} is Java {actual}: install a JDK 17 or set JAVA_HOME"
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("spark") or item.get_closest_marker("oracle"):
        reason = why_no_java()
        if reason:
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Turn the garbage collector off while tests are collected, and let it skip them later: they are needed to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)  # fewer collections: a tenth of the time of all tests
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # so that nothing is called a leak when the process ends


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests outside the sample as `extended`, and run the slowest files first, so that the workers finish together."""
    sampling.mark_extended(items)
    items.sort(key=sampling.is_short)
