"""The command `logwright-python`, for `PYSPARK_PYTHON`: Python, without Spark's archives on its path where they are not needed.

Spark puts three archives first on the path of each Python process that it starts (`sparkPythonPath` in `PythonUtils.scala`): its own
`pyspark.zip`, Py4J, and the jar of its core, which has no Python modules. Every process reads the lists of files of all three, and compiles
every module that it imports from them. The first query of a session starts six processes, one after the other. The modules of an installed
PySpark are the same, and compiled once.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # each process of Spark waits for this module, and `typing` takes longer than all of it
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NOT_INSTALLED = {"tests", "benchmark"}
"""Folders of PySpark's zip that no package installs."""


def main() -> None:
    """Become the Python of this environment, with the same arguments."""
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(without_archives(places, sys.path))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


def executable() -> str:
    """Return what `PYSPARK_PYTHON` should name: `logwright-python` if it is installed beside this Python, else this Python."""
    command = os.path.join(os.path.dirname(sys.executable), "logwright-python")
    return command if os.path.exists(command) else sys.executable


def without_archives(places: Sequence[str], installed: Iterable[str]) -> list[str]:
    """Return the places of a path, but not the jar of Spark's core, nor its zips of packages that are installed with the same modules."""
    folders = [*places, *installed]
    return [place for place in dict.fromkeys(places) if not _is_needless(place, folders)]


def _is_needless(archive: str, folders: Iterable[str]) -> bool:
    """Whether an archive of Spark has no modules, or those of the folder from which Python would import them otherwise."""
    name = os.path.basename(archive)
    if name.endswith(".jar"):
        return name.startswith("spark-core_")
    package = name.partition(".zip")[0].partition("-")[0]
    if not name.endswith(".zip") or package not in ("pyspark", "py4j"):
        return False
    folder = next((folder for folder in folders if os.path.isdir(os.path.join(folder, package))), None)
    return folder is not None and (_is_of_package(archive, folder) or _has_same_modules(archive, folder))


def _is_of_package(archive: str, folder: str) -> bool:
    """Whether a zip is part of the PySpark that is installed in a folder, and so is not compared with it.

    A package of PySpark contains both zips. Its requirements allow several versions of Py4J; the name of the zip says which it has.
    """
    if os.path.dirname(archive) != os.path.join(folder, "pyspark", "python", "lib"):
        return False
    name = os.path.basename(archive)
    return name == "pyspark.zip" or os.path.isdir(
        os.path.join(folder, name.removesuffix("-src.zip") + ".dist-info")
    )


def _has_same_modules(archive: str, folder: str) -> bool:
    """Compare all modules of a zip with those in a folder."""
    import zipfile
    import zlib
    from pathlib import Path

    try:
        with zipfile.ZipFile(archive) as modules:
            return all(
                zlib.crc32(Path(folder, entry.filename).read_bytes()) == entry.CRC
                for entry in modules.infolist()
                if entry.filename.endswith(".py")
                and not _NOT_INSTALLED.intersection(entry.filename.split("/"))
            )
    except (OSError, zipfile.BadZipFile):
        return False
