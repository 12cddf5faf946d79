"""The Spark job that writes rows of any source as native files, for back-fill and migration.

    spark-submit --py-files logwright-VERSION-py-files.zip logwright_replay.py --from /lake/orders --to /stage/orders-0
    python -m logwright.spark.replay --from /disks/a/kafka-logs --to /stage --into '{topic}-{partition}' --app move

Exit status: 0 everything is written, 1 failure, 2 wrong usage.
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

from logwright.codec import plural, registry
from logwright.codec.fault import LogwrightError, NotFoundError, UsageError
from logwright.codec.option import Options
from logwright.readers.resolve import detect, resolve
from logwright.readers.source import local_path
from logwright.readers.target import DirectoryTarget, Skipped
from logwright.spark.conversion import Work, check_options, convert_all
from logwright.spark.many import options_of
from logwright.spark.session import exit_status, reason, session
from logwright.writers.file import whole_file

NATIVE = "logwright"
_FORMATS = {
    ".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".orc": "orc", ".csv": "csv", ".avro": "avro",
}  # fmt: skip
_LOOKED_AT = 1000
_MOST = 10_000
"""More directories than this are probably a mistake."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the job and return the exit status."""
    return exit_status(_run, parser().parse_args(args))


def _run(args: argparse.Namespace) -> int:
    job = Job.of(args)
    spark = session("logwright replay")
    try:
        return run(spark, job)
    finally:
        spark.stop()


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's options."""
    parser = argparse.ArgumentParser(
        prog="logwright.spark.replay",
        description="Write rows as native files. Each directory gets all its rows or none.",
        epilog="Exit status: 0 everything is written, 1 failure, 2 wrong usage.",
    )
    add = parser.add_argument
    add("--from", dest="paths", nargs="+", action="extend", required=True, metavar="PATH",
        help="input for Spark: table files, or native files and directories")  # fmt: skip
    add(
        "--to",
        required=True,
        metavar="DIR",
        help="directory to write; all nodes must see it under this path",
    )
    add(
        "--into",
        metavar="NAME",
        help="write one directory in DIR per value of these columns: '{topic}-{partition}'",
    )
    add("--codec", default="kafka.partition", help="format to write (default: kafka.partition)")
    add(
        "--format",
        help=f"input format, in Spark's terms, or {NATIVE} for native files; detected from names by default",
    )
    add("--view", help="view to read of native files")
    add("--order-by", metavar="COLUMNS",
        help="comma-separated; by default the order column of the target, if a table has it; none keeps the order of rows")  # fmt: skip
    add(
        "--tasks",
        type=int,
        metavar="N",
        help="number of writing tasks, each with its own files; default: as many as Spark chooses",
    )
    add(
        "--mode",
        default="append",
        choices=["append", "overwrite"],
        help="add to an existing directory or replace it (default: append)",
    )
    add(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="write option, with upstream's name; may be repeated",
    )
    add(
        "--read-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="read option; may be repeated",
    )
    add(
        "--convert",
        action="store_true",
        help="convert each native directory into DIR under its own name, like `logwright convert`; --option sets its options, such as "
        "magic, compression.type, segment.bytes or retention.ms",
    )
    add(
        "--compact",
        action="store_true",
        help="as --convert, but compact each Kafka partition, as the broker's log cleaner does",
    )
    add(
        "--app",
        metavar="NAME",
        help="name of this replay: if it is repeated, also after a kill, only missing data is written",
    )
    add("--report", metavar="FILE", help="file for a report as JSON")
    return parser


@dataclass(frozen=True)
class Job:
    """The job, checked as far as possible without Spark."""

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
    each: Work | None = None
    """How each directory is converted on its own, with `--convert` or `--compact`."""

    @classmethod
    def of(cls, args: argparse.Namespace) -> Job:
        """Create from arguments. Raises `UsageError` for errors that can be detected now."""
        if args.convert or args.compact:
            return cls._conversion(args)
        layout = registry.get_writer(args.codec)
        writing = options_of(args.option)
        Options(layout.options, writing)
        format_ = args.format or _detect_format(args.paths)
        reading = options_of(args.read_option)
        if args.view is not None:
            if format_ != NATIVE:
                raise UsageError(f"--view applies to native files, not to {format_}", advice="Omit --view")
            reading["view"] = args.view
        if args.app is not None:
            writing |= {"txnAppId": args.app, "txnVersion": "0"}
        order = None
        if args.order_by is not None:
            order = (
                () if args.order_by == "none" else tuple(name.strip() for name in args.order_by.split(","))
            )
        if args.into is not None and not _columns_of(args.into):
            raise UsageError("--into names no column", advice="Example: --into '{topic}-{partition}'")
        if args.tasks is not None and args.tasks < 1:
            raise UsageError(f"--tasks is {args.tasks}", advice="It must be at least 1")
        return cls(
            tuple(args.paths), args.to, args.into, layout.name, format_, reading, writing, args.mode, order, args.tasks,
            args.report,
        )  # fmt: skip

    @classmethod
    def _conversion(cls, args: argparse.Namespace) -> Job:
        """Create a job that converts directories one by one. Raises `UsageError` for arguments that it would ignore."""
        ignored = {
            "--into": args.into,
            "--view": args.view,
            "--order-by": args.order_by,
            "--tasks": args.tasks,
            "--app": args.app,
        }
        passed = [name for name, value in ignored.items() if value is not None]
        passed += ["--mode"] * (args.mode != "append") + ["--read-option"] * bool(args.read_option)
        passed += ["--format"] * (args.format not in (None, NATIVE))
        if passed:
            name = "--compact" if args.compact else "--convert"
            raise UsageError(f"{passed[0]} cannot be combined with {name}", advice="Omit it")
        options = options_of(args.option)
        check_options(args.codec, options, compact=args.compact)
        work = Work(args.to, args.codec, args.compact, options)
        return cls(
            tuple(args.paths), args.to, None, args.codec, NATIVE, {}, {}, args.mode, None, None, args.report, work
        )  # fmt: skip


def _detect_format(paths: Sequence[str]) -> str:
    """Return the input format for Spark, detected from file names. Raises `UsageError` if it cannot be detected."""
    formats_found = {_format(path) for path in paths}
    if len(formats_found) > 1:
        formats = ", ".join(sorted(str(single) for single in formats_found))
        raise UsageError(f"inputs of different formats: {formats}", advice="Replay them separately")
    (single,) = formats_found
    if single is None:
        raise UsageError(
            "cannot detect the input format from file names",
            path=paths[0],
            advice="Pass --format, for example parquet",
        )
    return single


def _format(path: str) -> str | None:
    try:
        local = local_path(path)
        here = sorted(glob.glob(local)) if glob.has_magic(local) and not os.path.lexists(local) else [local]
    except LogwrightError:
        here = []  # not local: only the name can tell
    for place in [*here, path]:
        # A native directory may have files of a table format, such as the topics.json of a RocketMQ store.
        if os.path.isdir(place) and (_is_native(place) or any(map(_is_native, _folders(place)))):
            return NATIVE
        for name in (place, *_files_below(place)):
            if os.path.splitext(name)[1].lower() in _FORMATS:
                return _FORMATS[os.path.splitext(name)[1].lower()]
        if os.path.isfile(place) and detect(place) is not None:
            return NATIVE
    if here and not any(os.path.lexists(place) for place in here):
        raise NotFoundError("no such file or directory", path=path)
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


def _files_below(folder: str) -> Iterator[str]:
    """Iterate over some of the files in the directory of a table."""
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
    """Run the job and return the exit status."""
    from pyspark.errors import PySparkException

    from logwright.spark import register

    register(spark)
    started = time.monotonic()
    done: list[dict[str, Any]] = []
    try:
        if job.each is not None:
            done += convert_all(spark, job.paths, job.each)
        for path, rows in () if job.each is not None else _targets(spark, job):
            done.append(_write(rows, path, job))
    except PySparkException as error:
        raise LogwrightError(
            reason(error), path=None if not done else f"after {plural.count(len(done), 'directory')}"
        ) from None
    _print_report(done, job, time.monotonic() - started)
    return 0


def _read(spark: Any, job: Job, paths: Sequence[str], schema: Any = None) -> Any:
    reader = spark.read.format(job.format).options(**job.reading)
    reader = reader if schema is None else reader.schema(schema)
    return reader.load(list(paths) if len(paths) > 1 else paths[0])


def _targets(spark: Any, job: Job) -> Iterator[tuple[str, Any]]:
    """Iterate over the directories to write, with their rows."""
    from pyspark.sql import functions

    frame = _read(spark, job, job.paths)
    if job.into is None:
        yield job.to, frame
        return
    names = _columns_of(job.into)
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise UsageError(f"unknown column {missing[0]!r}", advice=f"Valid values: {', '.join(frame.columns)}")
    values_by_name: dict[str, dict[str, Any]] = {}
    sources: dict[str, list[str]] = {}
    for paths in _path_groups(job):
        few = _read(spark, job, paths, frame.select(*names).schema if job.format == NATIVE else None)
        for row in few.select(*names).distinct().limit(_MOST + 1).collect():
            name = _name(job.into, row.asDict())
            values_by_name[name] = row.asDict()
            sources.setdefault(name, []).extend(paths)
        if len(values_by_name) > _MOST:
            raise UsageError(f"more than {_MOST} directories would be written", advice="Check --into")
    for name, values in sorted(values_by_name.items()):
        same = functions.lit(True)
        for column, value in values.items():
            same = same & (functions.col(column) == functions.lit(value))
        yield os.path.join(job.to, name), _read(spark, job, sources[name]).filter(same)


def _path_groups(job: Job) -> Iterator[Sequence[str]]:
    """Return groups of paths to list together: native directories one by one, so that each is read only for its own rows."""
    if job.format != NATIVE or set(job.reading) - {"view", "mode"}:
        yield job.paths
        return
    folders = [
        target.path
        for target in resolve(job.paths, skipped=Skipped(), served=True)
        if isinstance(target, DirectoryTarget)
    ]
    yield from ([path] for path in folders) if folders else (job.paths,)


def _name(pattern: str, values: Mapping[str, Any]) -> str:
    name = pattern.format(**values)
    if None in values.values() or os.path.basename(name) != name or name in ("", ".", ".."):
        raise UsageError(f"{dict(values)} is not a valid directory name", advice="Check --into")
    return name


def _write(frame: Any, path: str, job: Job) -> dict[str, Any]:
    from pyspark.sql import Observation, functions

    order = job.order
    if order is None:
        layout = registry.get_writer(job.codec)
        column = registry.get(layout.views[layout.default_view].codec).ordered
        # Native files are read in order; of tables Spark reads the largest file first.
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


def _print_report(done: Sequence[Mapping[str, Any]], job: Job, seconds: float) -> None:
    rows = sum(target["rows"] for target in done)
    where = (
        job.to
        if job.into is None and job.each is None
        else f"{plural.count(len(done), 'directory')} in {job.to}"
    )
    source = "native files" if job.format == NATIVE else job.format
    print(f"replay  {plural.count(rows, 'row')} from {source} into {where}, {seconds:.1f} s")
    for target in done:
        for note in target.get("notes", ()):
            print(f"  {target['path']}: {note}")
    print(f"  logwright verify {shlex.quote(job.to)}")
    if job.report is not None:
        with whole_file(job.report) as stream:
            stream.write(
                json.dumps(
                    {"replay": 1, "rows": rows, "seconds": seconds, "targets": list(done)}, indent=2
                ).encode()
            )


if __name__ == "__main__":
    # Imported by its own name, since the tasks unpickle objects of that module.
    from logwright.spark.replay import main as job_main

    sys.exit(job_main())
