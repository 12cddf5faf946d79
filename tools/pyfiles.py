"""Make the zip for `spark-submit --py-files` from a wheel, which Spark does not accept there.

    python tools/pyfiles.py dist/logwright-0.1.0-py3-none-any.whl

writes dist/logwright-0.1.0-py-files.zip beside it: the packages at the top, as `sys.path` wants them, and the metadata, so
that `importlib.metadata` knows the version; and dist/logwright_repair.py and
dist/logwright_replay.py, the jobs' files, since `spark-submit` starts a file:

    spark-submit --py-files dist/logwright-0.1.0-py-files.zip dist/logwright_repair.py --from ... --to ...

The same wheel gives the same bytes.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

# The earliest time that a zip can hold.
EPOCH = (1980, 1, 1, 0, 0, 0)


def pyfiles(wheel: Path) -> Path:
    """Repack `wheel`; returns the zip's path."""
    name, version = wheel.name.split("-")[:2]
    target = wheel.with_name(f"{name}-{version}-py-files.zip")
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w") as out:
        for member in sorted(source.namelist()):
            # RECORD holds the wheel's own hashes, and .data/ the commands: both are for installers.
            if member.endswith(("/", ".dist-info/RECORD")) or ".data/" in member:
                continue
            entry = zipfile.ZipInfo(member, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            out.writestr(entry, source.read(member))
    return target


JOBS = ("repair", "replay")


def job(wheel: Path, name: str = "repair") -> Path:
    """Take a job's file out of `wheel`; returns its path."""
    target = wheel.with_name(f"logwright_{name}.py")
    with zipfile.ZipFile(wheel) as source:
        target.write_bytes(source.read(f"logwright/spark/{name}.py"))
    return target


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].endswith(".whl"):
        sys.exit("usage: python tools/pyfiles.py dist/logwright-VERSION-py3-none-any.whl")
    print(pyfiles(Path(sys.argv[1])))
    for name in JOBS:
        print(job(Path(sys.argv[1]), name))
