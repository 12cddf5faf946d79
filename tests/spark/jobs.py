"""Jobs under `spark-submit`, from the zip of `make dist`."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pyfiles
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the zip for --py-files and the job's file, built from this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    wheel = folder / "logwright-0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as out:
        for package in ("logwright", "pyspark_logwright"):
            for base, folders, files in os.walk(ROOT / "src" / package, followlinks=True):
                folders[:] = [name for name in folders if name not in ("golden", "__pycache__", "target")]
                for name in files:
                    if name.endswith(".py"):
                        out.write(Path(base) / name, Path(base, name).relative_to(ROOT / "src"))
    return pyfiles.pyfiles(wheel), pyfiles.job(wheel)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Return a Python with the packages installed here, except logwright itself."""
    place = tmp_path / "python"
    installed = sysconfig.get_paths()["purelib"]
    # Without site no .pth file is read, so what is installed for editing is not found.
    place.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{installed}" exec {sys.executable} -S "$@"\n')
    place.chmod(0o755)
    return place


def submit(python: Path, *words: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "SPARK", "PYSPARK"))
    }
    env |= {
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    } | environ
    import pyspark

    home = Path(pyspark.__file__).parent
    return subprocess.run(
        [home / "bin" / "spark-submit", "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.bindAddress=127.0.0.1", *words],
        env={**env, "SPARK_HOME": str(home)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
