"""The command `logwright-python`, for `PYSPARK_PYTHON`: Python, without Spark's zip of PySpark where the same PySpark is installed.

Spark puts its `pyspark.zip` first on the path of each Python process that it starts (`sparkPythonPath` in `PythonUtils.scala`). A process
compiles every module that it imports from a zip. The first query of a session starts four processes, one after the other, and a write as
many. The modules of an installed PySpark are the same, and compiled once.
"""

from __future__ import annotations

import os
import sys
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

_NOT_INSTALLED = {"tests", "benchmark"}
"""Folders of PySpark's zip that no package installs."""


def main() -> None:
    """Become the Python of this environment, with the same arguments."""
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(without_zips(places, sys.path))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


def executable() -> str:
    """Return what `PYSPARK_PYTHON` should name: `logwright-python` if it is installed beside this Python, else this Python."""
    command = Path(sys.executable).with_name("logwright-python")
    return str(command) if command.exists() else sys.executable


def without_zips(places: Iterable[str], installed: Iterable[str]) -> list[str]:
    """Return the places of a path, but not Spark's zips of packages that are installed with the same bytes."""
    folders = [Path(folder) for folder in installed]
    return [place for place in places if not _is_installed(Path(place), folders)]


def _is_installed(archive: Path, folders: Iterable[Path]) -> bool:
    """Whether the folder from which Python would import the package of one of Spark's zips has the same modules."""
    package = archive.name.partition(".zip")[0].partition("-")[0]
    if archive.suffix != ".zip" or package not in ("pyspark", "py4j"):
        return False
    folder = next((folder for folder in folders if (folder / package).is_dir()), None)
    if folder is None:
        return False
    try:
        with zipfile.ZipFile(archive) as modules:
            return all(
                zlib.crc32((folder / entry.filename).read_bytes()) == entry.CRC
                for entry in modules.infolist()
                if entry.filename.endswith(".py")
                and not _NOT_INSTALLED.intersection(entry.filename.split("/"))
            )
    except (OSError, zipfile.BadZipFile):
        return False
