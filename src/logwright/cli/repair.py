"""`logwright repair`: keep what is undamaged, as a directory or file that the system can open."""

from __future__ import annotations

import click

from logwright.cli.common import (
    ANY_OPTION,
    CODEC,
    RECURSIVE,
    paths_and_options,
    print_dry_run,
    print_report,
    progress,
    result_options,
)


@click.command("repair", context_settings=ANY_OPTION)
@click.argument("path", nargs=-1, required=True)
@CODEC
@click.option(
    "--strategy",
    type=click.Choice(["salvage", "prefix", "system"]),
    help="Keep every undamaged frame (usually the default), all frames before the first damage (the default for ZooKeeper), or what the real "
    "system would leave.",
)
@click.option(
    "--correct/--no-correct",
    default=True,
    help="Correct single flipped bits where checksums prove them, or leave them.",
)
@RECURSIVE
@result_options
def command(
    path: tuple[str, ...], codec: str | None, strategy: str | None, correct: bool, out: str | None, in_place: bool, backup: str | None,
    dry_run: bool, recursive: bool, as_json: bool,
) -> int:  # fmt: skip
    """Repair a damaged file or directory. Several PATHs are treated as replicas: each frame is taken from one in which it is undamaged.

    Either --out names an absent or empty path for the result, and PATH stays unchanged; or --in-place changes PATH, and --backup names a
    directory outside the data for the original files. Exit status 3 if something is lost.

    A broker's log directory, its server.properties, a zoo.cfg or a folder of databases stands for all stores in it. Each store is repaired
    separately, into its own directory in --out and --backup. Exit status 1 if a store could not be repaired; the others still are. Options
    of the layout are the system's own property names; `logwright codecs NAME` lists them.
    """
    import logwright as lw

    paths, options = paths_and_options(path)

    with progress("repair", None) as show:
        report = lw.repair(
            paths if len(paths) > 1 else paths[0], out, codec=codec, strategy=strategy, in_place=in_place, backup=backup,
            dry_run=dry_run, correct=correct, recursive=recursive, show=show, **options,
        )  # fmt: skip
    if dry_run:
        print_dry_run(report, as_json, has_target=in_place or out is not None)
    else:
        print_report(report, as_json)
    if report.failed:
        return 1
    return 3 if report.incomplete else 0
