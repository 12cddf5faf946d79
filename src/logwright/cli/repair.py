"""`logwright repair`: what can be kept of a damaged directory or file, as one that the system opens."""

from __future__ import annotations

import click

from logwright.cli.common import (
    ANY_OPTION,
    RECURSIVE,
    mending_options,
    paths_and_options,
    print_report,
    progress,
)


@click.command("repair", context_settings=ANY_OPTION)
@click.argument("path", nargs=-1, required=True)
@click.option("--codec", help="What it is, when the name and the bytes don't tell; see `logwright codecs`.")
@click.option(
    "--strategy",
    type=click.Choice(["salvage", "prefix", "system"]),
    help="Keep every undamaged frame (usually the default), all before the first damage (the default for ZooKeeper), or what the real "
    "system would leave.",
)
@RECURSIVE
@mending_options
def command(
    path: tuple[str, ...], codec: str | None, strategy: str | None, out: str | None, in_place: bool, backup: str | None,
    dry_run: bool, recursive: bool, as_json: bool,
) -> int:  # fmt: skip
    """Mend a damaged directory or file PATH; several are replicas of one directory, and each frame is taken from whichever is sound.

    Either --out names where the result goes, absent or empty, and PATH stays as it is; or with --in-place PATH is changed, and
    --backup names a directory outside of the data for the originals. Exit status 3 when something that was there is lost.

    A broker's log directory, its server.properties, a zoo.cfg or a folder of databases stands for all stores in it: each is repaired by
    itself, into a directory of its own in --out and --backup. Exit status 1 when one of them could not be repaired; the others are.
    Options of the layout are given by upstream's names.
    """
    import logwright as lw

    paths, options = paths_and_options(path)
    if not paths:
        raise click.UsageError("a path is missing")

    with progress("repair", None) as show:
        report = lw.repair(
            paths if len(paths) > 1 else paths[0], out, codec=codec, strategy=strategy, in_place=in_place, backup=backup,
            dry_run=dry_run, recursive=recursive, show=show, **options,
        )  # fmt: skip
    print_report(report, as_json)
    if report.failed:
        return 1
    return 3 if report.incomplete else 0
