"""The Spark job that writes rows from anywhere into native files: for back-fill and migration.

    spark-submit --py-files logwright-VERSION-py-files.zip logwright_replay.py --from /lake/orders --to /stage/orders-0
    python -m logwright.spark.replay --from /disks/a/kafka-logs --to /stage --into '{topic}-{partition}' --app move

Exit status: 0 all is written, 1 something could not be, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import shlex
import string
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logwright.codec import registry
from logwright.codec.fault import LogwrightError, NotFoundError, UsageError
from logwright.codec.option import Options
from logwright.readers.resolve import DirectoryTarget, detect, resolve
from logwright.readers.source import local_path
from logwright.spark.many import options_of
from logwright.spark.session import reason, session
from logwright.writers.file import whole_file

NATIVE = "logwright"
_FORMATS = {
    ".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".orc": "orc", ".csv": "csv", ".avro": "avro",
}  # fmt: skip
_LOOKED_AT = 1000
_MOST = 10_000
"""More directories than that are hardly meant."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit status."""
    asked = _parser().parse_args(args)
    try:
        job = Job.of(asked)
        spark = session("logwright replay")
        try:
            return run(spark, job)
        finally:
            spark.stop()
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except LogwrightError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="logwright.spark.replay",
        description="Write rows into native files: all rows of a directory, or none of them.",
        epilog="Exit status: 0 all is written, 1 something could not be, 2 wrong usage.",
    )
    add = parser.add_argument
    add("--from", dest="paths", nargs="+", action="extend", required=True, metavar="PATH",
        help="what Spark reads: tables in files, or native files and directories")  # fmt: skip
    add(
        "--to",
        required=True,
        metavar="DIR",
        help="the directory to be written; all nodes must see it under this path",
    )
    add(
        "--into",
        metavar="NAME",
        help="one directory in DIR for each of these: '{topic}-{partition}', names of columns",
    )
    add("--codec", default="kafka.partition", help="what is written (default: kafka.partition)")
    add(
        "--format",
        help=f"what is read, in Spark's words, {NATIVE} for native files; told from names by default",
    )
    add("--view", help="of native files, what to see of them")
    add("--order-by", metavar="COLUMNS",
        help="with commas; by default what the written files are in order of, where tables have it; none leaves rows as they come")  # fmt: skip
    add(
        "--tasks",
        type=int,
        metavar="N",
        help="so many write, each its own files; by default as many as Spark takes",
    )
    add(
        "--mode",
        default="append",
        choices=["append", "overwrite"],
        help="add to what is there, or replace it (default: append)",
    )
    add(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of writing, by upstream's name; again and again",
    )
    add(
        "--read-option", action="append", default=[], metavar="NAME=VALUE", help="of reading; again and again"
    )
    add(
        "--app",
        metavar="NAME",
        help="a name for this replay: done again, after a kill too, it writes only what is missing",
    )
    add("--report", metavar="FILE", help="what was written, as JSON")
    return parser


@dataclass(frozen=True)
class Job:
    """What to do, checked as far as that goes without Spark."""

    paths: tuple[str, ...]
    to: str
    into: str | None
    codec: str
    format: str
    reading: Mapping[str, str]
    writing: Mapping[str, str]
    mode: str
    order: tuple[str, ...] | None
    tasks: int | None
    report: str | None

    @classmethod
    def of(cls, asked: argparse.Namespace) -> Job:
        """Raises `UsageError` for what can be seen to be wrong now."""
        layout = registry.get_layout(asked.codec)
        writing = options_of(asked.option)
        Options(layout.options, writing)
        format_ = asked.format or _told(asked.paths)
        reading = options_of(asked.read_option)
        if asked.view is not None:
            if format_ != NATIVE:
                raise UsageError(
                    f"a view is one of native files, {format_} has none", advice="Leave --view away"
                )
            reading["view"] = asked.view
        if asked.app is not None:
            writing |= {"txnAppId": asked.app, "txnVersion": "0"}
        order = None
        if asked.order_by is not None:
            order = (
                () if asked.order_by == "none" else tuple(one.strip() for one in asked.order_by.split(","))
            )
        if asked.into is not None and not _columns_of(asked.into):
            raise UsageError("--into names no column", advice="For example --into '{topic}-{partition}'")
        if asked.tasks is not None and asked.tasks < 1:
            raise UsageError(f"--tasks is {asked.tasks}", advice="One at least")
        return cls(
            tuple(asked.paths), asked.to, asked.into, layout.name, format_, reading, writing, asked.mode, order, asked.tasks,
            asked.report,
        )  # fmt: skip


def _told(paths: Sequence[str]) -> str:
    """What Spark is to read these as, from the names of files. Raises `UsageError` where they don't tell."""
    found = {_format(path) for path in paths}
    if len(found) > 1:
        said = ", ".join(sorted(str(one) for one in found))
        raise UsageError(f"these are of different kinds: {said}", advice="Replay one kind after the other")
    (one,) = found
    if one is None:
        raise UsageError(
            "what lies there can't be told from names",
            path=paths[0],
            advice="Say --format, parquet for example",
        )
    return one


def _format(path: str) -> str | None:
    try:
        local = local_path(path)
        here = sorted(glob.glob(local)) if glob.has_magic(local) and not os.path.lexists(local) else [local]
    except LogwrightError:
        here = []  # somewhere else: only the name tells
    for one in [*here, path]:
        for name in (one, *_below(one)):
            if os.path.splitext(name)[1].lower() in _FORMATS:
                return _FORMATS[os.path.splitext(name)[1].lower()]
        if os.path.exists(one) and (
            detect(one) is not None or any(_is_native(inner) for inner in _folders(one))
        ):
            return NATIVE
    if here and not any(os.path.lexists(one) for one in here):
        raise NotFoundError("nothing is there", path=path)
    return None


def _is_native(folder: str) -> bool:
    try:
        return detect(folder) is not None
    except LogwrightError:
        return False


def _folders(path: str) -> Iterator[str]:
    if os.path.isdir(path):
        for name in sorted(os.listdir(path))[:_LOOKED_AT]:
            if os.path.isdir(os.path.join(path, name)):
                yield os.path.join(path, name)


def _below(folder: str) -> Iterator[str]:
    """Some of the files of a table's directory."""
    seen = 0
    for _, _, names in os.walk(folder):
        for name in names:
            seen += 1
            if not name.startswith((".", "_")):
                yield name
            if seen > _LOOKED_AT:
                return


def _columns_of(pattern: str) -> list[str]:
    try:
        return [name for _, name, _, _ in string.Formatter().parse(pattern) if name]
    except ValueError as error:
        raise UsageError(f"--into {pattern!r}: {error}") from None


def run(spark: Any, job: Job) -> int:
    """Do it; returns the exit status."""
    from pyspark.errors import PySparkException

    from logwright.spark import register

    register(spark)
    started = time.monotonic()
    done: list[dict[str, Any]] = []
    try:
        for path, rows in _targets(spark, job):
            done.append(_write(rows, path, job))
    except PySparkException as error:
        raise LogwrightError(
            reason(error), path=None if not done else f"after {len(done)} directories"
        ) from None
    _tell(done, job, time.monotonic() - started)
    return 0


def _read(spark: Any, job: Job, paths: Sequence[str], schema: Any = None) -> Any:
    reader = spark.read.format(job.format).options(**job.reading)
    reader = reader if schema is None else reader.schema(schema)
    return reader.load(list(paths) if len(paths) > 1 else paths[0])


def _targets(spark: Any, job: Job) -> Iterator[tuple[str, Any]]:
    """What is to be written, and which of the rows."""
    from pyspark.sql import functions

    frame = _read(spark, job, job.paths)
    if job.into is None:
        yield job.to, frame
        return
    names = _columns_of(job.into)
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise UsageError(f"no column {missing[0]!r}", advice=f"There are: {', '.join(frame.columns)}")
    found: dict[str, dict[str, Any]] = {}
    sources: dict[str, list[str]] = {}
    for paths in _apart(job):
        few = _read(spark, job, paths, frame.select(*names).schema if job.format == NATIVE else None)
        for row in few.select(*names).distinct().limit(_MOST + 1).collect():
            name = _name(job.into, row.asDict())
            found[name] = row.asDict()
            sources.setdefault(name, []).extend(paths)
        if len(found) > _MOST:
            raise UsageError(f"these would be more than {_MOST} directories", advice="Check --into")
    for name, values in sorted(found.items()):
        same = functions.lit(True)
        for column, value in values.items():
            same = same & (functions.col(column) == functions.lit(value))
        yield os.path.join(job.to, name), _read(spark, job, sources[name]).filter(same)


def _apart(job: Job) -> Iterator[Sequence[str]]:
    """Paths that are looked at together: native directories one by one, so that each is read for its own rows only."""
    if job.format != NATIVE or set(job.reading) - {"view", "mode"}:
        yield job.paths
        return
    found = [one.path for one in resolve(job.paths, passed=[]) if isinstance(one, DirectoryTarget)]
    yield from ([path] for path in found) if found else (job.paths,)


def _name(pattern: str, values: Mapping[str, Any]) -> str:
    name = pattern.format(**values)
    if None in values.values() or os.path.basename(name) != name or name in ("", ".", ".."):
        raise UsageError(f"{dict(values)} makes no name for a directory", advice="Check --into")
    return name


def _write(frame: Any, path: str, job: Job) -> dict[str, Any]:
    from pyspark.sql import Observation, functions

    order = job.order
    if order is None:
        layout = registry.get_layout(job.codec)
        column = registry.get(layout.views[layout.default_view].codec).ordered
        # Native files come in order; of tables Spark reads the largest file first.
        order = (column,) if job.format != NATIVE and column is not None and column in frame.columns else ()
    if order and job.tasks is not None:
        frame = frame.repartitionByRange(job.tasks, *order).sortWithinPartitions(*order)
    elif order:
        frame = frame.orderBy(*order)
    elif job.tasks is not None:
        frame = frame.coalesce(job.tasks)
    counted = Observation()
    frame = frame.observe(counted, functions.count(functions.lit(1)).alias("rows"))
    frame.write.format(NATIVE).option("codec", job.codec).options(**job.writing).mode(job.mode).save(path)
    return {"path": path, "rows": int(counted.get["rows"])}


def _tell(done: Sequence[Mapping[str, Any]], job: Job, seconds: float) -> None:
    rows = sum(one["rows"] for one in done)
    where = job.to if job.into is None else f"{len(done):,} directories in {job.to}"
    print(f"replay  {rows:,} rows from {job.format} into {where}, {seconds:.1f} s")
    print(f"  logwright verify {shlex.quote(job.to)}")
    if job.report is not None:
        with whole_file(job.report) as stream:
            stream.write(
                json.dumps(
                    {"replay": 1, "rows": rows, "seconds": seconds, "targets": list(done)}, indent=2
                ).encode()
            )


if __name__ == "__main__":
    # Under its own name: what tasks get pickled has to be found there too.
    from logwright.spark.replay import main as job_main

    sys.exit(job_main())
