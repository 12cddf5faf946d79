"""`logwright rebuild`: indexes and all else that is derived, made anew."""

from __future__ import annotations

import click

from logwright.cli.common import ANY_OPTION, RECURSIVE, mending_options, own_options, print_report, progress


@click.command("rebuild", context_settings=ANY_OPTION)
@click.argument("path")
@click.option("--codec", help="What it is, when the files don't tell; see `logwright codecs`.")
@click.option("--what", help="Names with commas.  [default: all that can be made anew]")
@RECURSIVE
@mending_options
@click.pass_context
def command(
    ctx: click.Context, path: str, codec: str | None, what: str | None, out: str | None, in_place: bool, backup: str | None,
    dry_run: bool, recursive: bool, as_json: bool,
) -> int:  # fmt: skip
    """Make the derived files of a directory PATH anew from the primary ones, which must be sound.

    Either --out names where the result goes, absent or empty, and PATH stays as it is; or with --in-place PATH is changed, and
    --backup names a directory outside of the data for the originals. Options of the layout are given by upstream's names.
    """
    import logwright as lw

    with progress("rebuild", None) as show:
        report = lw.rebuild(
            path, out, codec=codec, what=what, in_place=in_place, backup=backup, dry_run=dry_run,
            recursive=recursive, show=show, **own_options(ctx),
        )  # fmt: skip
    print_report(report, as_json)
    if report.failed:
        return 1
    return 3 if report.incomplete else 0
