"""`logwright rebuild`: rebuild indexes and other derived files."""

from __future__ import annotations

import click

from logwright.cli.common import (
    ANY_OPTION,
    CODEC,
    RECURSIVE,
    OwnOptionsCommand,
    own_options,
    print_dry_run,
    print_report,
    progress,
    result_options,
)


@click.command("rebuild", cls=OwnOptionsCommand, context_settings=ANY_OPTION)
@click.argument("path")
@CODEC
@click.option("--what", help="Comma-separated names.  [default: everything that can be rebuilt]")
@RECURSIVE
@result_options
@click.pass_context
def command(
    ctx: click.Context, path: str, codec: str | None, what: str | None, out: str | None, in_place: bool, backup: str | None,
    dry_run: bool, recursive: bool, as_json: bool,
) -> int:  # fmt: skip
    """Rebuild indexes, manifests and other derived files.

    PATH is a directory whose primary files are undamaged.

    Either --out names an absent or empty directory for the result, and PATH stays unchanged; or --in-place changes PATH, and --backup names
    a directory outside the data for the original files. Options of the
    layout are the system's own property names; `logwright codecs NAME` lists them.
    """
    import logwright as lw

    with progress("rebuild", None) as show:
        report = lw.rebuild(
            path, out, codec=codec, what=what, in_place=in_place, backup=backup, dry_run=dry_run,
            recursive=recursive, show=show, **own_options(ctx),
        )  # fmt: skip
    if dry_run:
        print_dry_run(report, as_json, has_target=in_place or out is not None)
    else:
        print_report(report, as_json)
    if report.failed:
        return 1
    return 3 if report.incomplete else 0
