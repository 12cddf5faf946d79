"""The Spark job that mends damaged directories of a cluster, one task a directory, with one report.

    spark-submit --py-files logwright-VERSION-py-files.zip logwright_repair.py --from /disks/*/kafka-logs --to /mended
    python -m logwright.spark.repair --from /disks/*/kafka-logs --to /mended

Exit status: 0 nothing is lost, 3 something is, 1 some could not be mended (the others are), 2 wrong usage.
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
from logwright.spark.session import reason, session
from logwright.writers.file import whole_file
from logwright.writers.repair import check

MAX_TASKS = 10_000
"""More directories than that share tasks."""
HOPELESS = 5
"""Where so many tasks died and none did not, it is not the directories."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit status."""
    asked = _parser().parse_args(args)
    try:
        return _run(asked)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except LogwrightError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="logwright.spark.repair",
        description="Mend damaged directories, each as `logwright repair` would: the clean ones lie in DIR under their own names.",
        epilog="Exit status: 0 nothing is lost, 3 something is, 1 some could not be mended, 2 wrong usage.",
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
    add("--to", metavar="DIR", help="where the results go; all nodes must see it under this path")
    add("--codec", help="what they are, when names and bytes don't tell")
    add(
        "--strategy",
        choices=["salvage", "prefix", "system"],
        help="keep every undamaged frame (usually the default), all before the first damage, or what the real system would leave",
    )
    add(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the layout, by upstream's name; again and again",
    )
    add(
        "--replicas",
        metavar="HOW",
        help="where copies of one directory are found: first, longest, or merge (each frame from whichever is sound)",
    )
    add("--skip-existing", action="store_true", help="leave what is in DIR already as it is")
    add("--dry-run", action="store_true", help="only say what would be done")
    add("--report", metavar="FILE", help="the whole report as JSON")
    return parser  # fmt: skip


def _run(asked: argparse.Namespace) -> int:
    if asked.to is None and not asked.dry_run:
        raise UsageError(
            "where to?", advice="--to DIR gets the results, --dry-run only says what would be done"
        )
    if asked.report is not None:
        _check_report(asked.report)
    options = many.options_of(asked.option)
    todo = many.plan(asked.paths, asked.codec, many.check_replicas(asked.replicas))
    # What no task would understand is told now.
    check(todo.items[-1].paths[0], todo.layout.name, asked.strategy, options)
    if asked.dry_run:
        work, items = many.Work("", "", todo.layout.name, asked.strategy, options), list(todo.items)
    else:
        work, items = many.begin(todo, asked.to, asked.strategy, options, skip_existing=asked.skip_existing)
    left = {item.number for item in items}
    try:
        results = distribute(items, work, work.results)
    finally:
        work.end()
    found = [json.loads(text) for text in results.values()]
    merged = many.merge(
        asked.paths,
        todo,
        found,
        [one for one in todo.items if one.number not in left],
    )
    try:
        merged["notes"] += many.own_files(todo, None if asked.dry_run else asked.to, found)
    except LogwrightError as error:
        merged["notes"].append(f"the files beside the stores are not copied: {error}")
        merged["failed"] += 1
    if asked.dry_run:
        words = " ".join(shlex.quote(one) for one in asked.paths)
        print(many.text(merged, f"python -m logwright.spark.repair --from {words} --to DIR"))
    else:
        print(many.text(merged, f"logwright verify {shlex.quote(asked.to)}"))
    if asked.report is not None:
        with whole_file(asked.report) as stream:
            stream.write(json.dumps(merged, indent=2).encode())
    return many.status(merged)


def _check_report(path: str) -> None:
    """Before hours of work."""
    if os.path.lexists(path):
        raise ExistsError("it is there already", path=path, advice="Name another file for the report")
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise NotFoundError("the folder for the report is not there", path=path)


def distribute(
    items: Sequence[Item], work: Callable[[Item], str], so_far: Callable[[], dict[int, str]] = dict
) -> dict[int, str]:
    """The result of every item by its number, each worked on by a task of the Spark session, which is made and stopped here.

    Where an item lets its task die again and again, and with it Spark's job, the rest is done in jobs of its own.
    """
    if not items:
        return {}
    spark = session("logwright repair")
    try:
        context = spark.sparkContext

        def job(some: Sequence[Item]) -> list[tuple[int, str]]:
            tasks = context.parallelize(some, min(len(some), MAX_TASKS))
            found: list[tuple[int, str]] = tasks.map(lambda item: (item.number, work(item))).collect()
            return found

        try:
            return dict(job(items))
        except Exception as error:  # Spark's own, of many kinds: a task died too often
            print(f"a task died too often, the rest goes on one by one: {reason(error)}", file=sys.stderr)
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
    # Under its own name: what tasks get pickled has to be found there too.
    from logwright.spark.repair import main as job_main

    sys.exit(job_main())
