"""Run kernel tests in all three modes.

Tests marked `kernel_modes` run compiled where they are collected (`conftest.py` turns off interpreting of small inputs). They
also run interpreted and bounds-checked, in one process per mode, because numba fixes its mode when a process starts:
`tests/codec/test_kernels_interpreted.py` and `test_kernels_checked.py`, two files so that two workers run them. To run one mode by
hand: `NUMBA_DISABLE_JIT=1 pytest tests/codec/test_x.py`, `NUMBA_BOUNDSCHECK=1 pytest tests/codec/test_x.py`.

"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = str(Path(__file__).resolve().parents[2])
MODES = {
    "interpreted": {"NUMBA_DISABLE_JIT": "1"},
    # Barely optimised: the indices are checked all the same. Without any optimisation kernels that call others cannot be cached, and
    # each process compiles them again. `make install` compiles with the same settings.
    "checked": {"NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "1", "LOGWRIGHT_INTERPRET_BELOW": "0"},
    "compiled": {"LOGWRIGHT_INTERPRET_BELOW": "0"},
}
_SETTINGS = {name for settings in MODES.values() for name in settings}


def environment(mode: str) -> dict[str, str]:
    """Return the environment of this process with the settings of exactly one mode."""
    return {name: value for name, value in os.environ.items() if name not in _SETTINGS} | MODES[mode]


def run_marked(mode: str) -> None:
    """Run the tests that are marked `kernel_modes` in another mode, in one process. Raise `AssertionError` unless all pass."""
    if any(os.environ.get(name, "0") != "0" for name in ("NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK")):
        pytest.skip("this process runs in another mode already")
    files = [
        str(path)
        for path in sorted(Path(ROOT, "tests").glob("*/test_*.py"))
        if "mark.kernel_modes" in path.read_text()
    ]
    selected = "kernel_modes and not nightly"
    if os.environ.get("HYPOTHESIS_PROFILE") == "sample":
        selected += " and not extended"
        files = [
            path
            for path in files
            if Path(path).parent.name == "codec" or path.endswith("test_kafka_modes.py")
        ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", selected, *files],
        env=environment(mode), cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{mode}:\n{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
