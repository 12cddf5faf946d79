"""The Spark job that repairs damaged directories of a cluster, one task per directory, with one report.

    spark-submit --py-files logwright-VERSION-py-files.zip logwright_repair.py --from /disks/*/kafka-logs --to /repaired
    python -m logwright.spark.repair --from /disks/*/kafka-logs --to /repaired

Exit status: 0 nothing is lost, 3 something is lost, 1 some could not be repaired (the others are), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from logwright.codec.fault import ExistsError, LogwrightError, NotFoundError, UsageError
from logwright.spark import many
from logwright.spark.many import Item
from logwright.spark.session import exit_status, reason, session
from logwright.writers.file import whole_file
from logwright.writers.repair import check

MAX_TASKS = 10_000
"""More directories than this share tasks."""
HOPELESS = 5
"""If this number of tasks died and none succeeded, the directories are not the cause."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the job and return the exit status."""
    return exit_status(_run, parser().parse_args(args))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's options."""
    parser = argparse.ArgumentParser(
        prog="logwright.spark.repair",
        description="Repair damaged directories, each as `logwright repair` would, into DIR under their own names.",
        epilog="Exit status: 0 nothing is lost, 3 something is lost, 1 some could not be repaired, 2 wrong usage.",
    )
    add = parser.add_argument
    add(
        "--from",
        dest="paths",
        nargs="+",
        action="extend",
        required=True,
        metavar="PATH",
        help="directories, folders of them (a broker's log directory), globs, or a server.properties",
    )
    add("--to", metavar="DIR", help="directory for the results; all nodes must see it under this path")
    add("--codec", help="format, if it cannot be detected")
    add(
        "--strategy",
        choices=["salvage", "prefix", "system"],
        help="keep every undamaged frame (usually the default), all frames before the first damage, or what the real system would leave",
    )
    add(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the layout, with upstream's name; may be repeated",
    )
    add(
        "--replicas",
        metavar="HOW",
        help="for replicas of one directory: read the first, the longest, or merge (each frame from an undamaged replica)",
    )
    add("--skip-existing", action="store_true", help="keep existing results in DIR")
    add("--dry-run", action="store_true", help="only report what would be done")
    add("--report", metavar="FILE", help="file for the whole report as JSON")
    return parser  # fmt: skip


def _run(args: argparse.Namespace) -> int:
    if args.to is None and not args.dry_run:
        raise UsageError("--to is missing", advice="Pass --to DIR, or --dry-run to see what would be done")
    if args.report is not None:
        _check_report(args.report)
    options = many.options_of(args.option)
    todo = many.plan(args.paths, args.codec, many.check_replicas(args.replicas))
    # Errors that every task would raise are raised before any starts.
    check(todo.items[-1].paths[0], todo.layout.name, args.strategy, options)
    if args.dry_run:
        work, items = many.Work("", "", todo.layout.name, args.strategy, options), list(todo.items)
    else:
        work, items = many.begin(todo, args.to, args.strategy, options, skip_existing=args.skip_existing)
    left = {item.number for item in items}
    try:
        results = distribute(items, work, work.results)
    finally:
        work.end()
    results_found = [json.loads(text) for text in results.values()]
    merged = many.merge(
        args.paths,
        todo,
        results_found,
        [item for item in todo.items if item.number not in left],
    )
    try:
        merged["notes"] += many.own_files(todo, None if args.dry_run else args.to, results_found)
    except LogwrightError as error:
        merged["notes"].append(f"the files beside the stores are not copied: {error}")
        merged["failed"] += 1
    if args.dry_run:
        words = " ".join(shlex.quote(item) for item in args.paths)
        print(many.text(merged, f"python -m logwright.spark.repair --from {words} --to DIR"))
    else:
        print(many.text(merged, f"logwright verify {shlex.quote(args.to)}"))
    if args.report is not None:
        with whole_file(args.report) as stream:
            stream.write(json.dumps(merged, indent=2).encode())
    return many.status(merged)


def _check_report(path: str) -> None:
    """Check the path of the report before hours of work."""
    if os.path.lexists(path):
        raise ExistsError("it already exists", path=path, advice="Use another file for the report")
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise NotFoundError("the directory for the report does not exist", path=path)


def distribute(
    items: Sequence[Item], work: Callable[[Item], str], so_far: Callable[[], dict[int, str]] = dict
) -> dict[int, str]:
    """Return the result of every item by its number. Each is a task of a Spark session, which is started and stopped here.

    If an item kills its task repeatedly, and with it Spark's job, the remaining items run in separate jobs.
    """
    if not items:
        return {}
    spark = session("logwright repair")
    try:
        context = spark.sparkContext

        def job(items_of_job: Sequence[Item]) -> list[tuple[int, str]]:
            tasks = context.parallelize(items_of_job, min(len(items_of_job), MAX_TASKS))
            results_of_job: list[tuple[int, str]] = tasks.map(
                lambda item: (item.number, work(item))
            ).collect()
            return results_of_job

        try:
            return dict(job(items))
        except Exception as error:  # errors of Spark, of many types: a task died too often
            print(f"a task died too often, continuing with separate jobs: {reason(error)}", file=sys.stderr)
        results = so_far()
        deaths: list[str] = []

        def alone(item: Item) -> tuple[int, str]:
            if len(deaths) >= HOPELESS and not results:
                return item.number, many.died(item, deaths[-1])
            try:
                number, text = job([item])[0]
                results[number] = text
            except Exception as error:
                deaths.append(reason(error))
                return item.number, many.died(item, deaths[-1])
            return number, text

        with ThreadPoolExecutor(max(2, min(32, context.defaultParallelism))) as pool:
            left = [item for item in items if item.number not in results]
            return dict(results) | dict(pool.map(alone, left))
    finally:
        spark.stop()


if __name__ == "__main__":
    # Imported by its own name, since the tasks unpickle objects of that module.
    from logwright.spark.repair import main as job_main

    sys.exit(job_main())
