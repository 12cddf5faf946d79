"""Tests of kernels, in all three modes.

A module whose tests run kernels says

    from modes import other_modes

    pytestmark = pytest.mark.kernel_modes
    test_other_modes = other_modes(__file__)

and so each of its tests runs compiled where it is collected (`conftest.py` turns interpreting of small inputs off), and once
interpreted and once bounds-checked in a process of its own, since numba's modes are settled when a process starts. To look at
one mode by hand: `NUMBA_DISABLE_JIT=1 pytest tests/codec/test_x.py`, `NUMBA_BOUNDSCHECK=1 pytest tests/codec/test_x.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = str(Path(__file__).resolve().parents[2])
MODES = {
    "interpreted": {"NUMBA_DISABLE_JIT": "1"},
    "checked": {"NUMBA_BOUNDSCHECK": "1", "LOGWRIGHT_INTERPRET_BELOW": "0"},
    "compiled": {"LOGWRIGHT_INTERPRET_BELOW": "0"},
}
_SETTINGS = {name for settings in MODES.values() for name in settings}


def environment(mode: str) -> dict[str, str]:
    """The environment of this process with the settings of a mode, and of no other."""
    return {name: value for name, value in os.environ.items() if name not in _SETTINGS} | MODES[mode]


def other_modes(file: str) -> Callable[[str], None]:
    """A test that runs the tests of a module that are marked `kernel_modes` interpreted and bounds-checked."""

    @pytest.mark.parametrize("mode", ["interpreted", "checked"])
    def test_other_modes(mode: str) -> None:
        if any(os.environ.get(name, "0") != "0" for name in ("NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK")):
            pytest.skip("is in another mode already")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-m",
            "kernel_modes and not nightly",
        ]
        # This very test, which is in the module too, skips itself there.
        done = subprocess.run(
            [*command, file], env=environment(mode), cwd=ROOT, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, f"{mode}:\n{done.stdout[-8000:]}\n{done.stderr[-2000:]}"

    return test_other_modes
