"""`logwright edit`: remove rows or redact values."""

from __future__ import annotations

import click

from logwright.cli.common import (
    ANY_OPTION,
    CODEC,
    OwnOptionsCommand,
    filter_text,
    own_options,
    print_dry_run,
    print_report,
    progress,
    result_options,
)


@click.command("edit", cls=OwnOptionsCommand, context_settings=ANY_OPTION)
@click.argument("path")
@CODEC
@click.option(
    "--drop",
    "drops",
    multiple=True,
    metavar="EXPRESSION",
    help="Remove matching rows, such as 'key == user-7' or \"key == x'00ff'\". Repeat it: all must match.",
)
@click.option(
    "--redact",
    "redacts",
    multiple=True,
    metavar="EXPRESSION",
    help="Redact values in matching rows. Repeat it: all must match.",
)
@click.option(
    "--columns",
    default="value",
    show_default=True,
    help="Columns to redact, comma-separated: value, key, headers.",
)
@click.option("--with", "with_", metavar="TEXT", help="Replacement for redacted values.  [default: empty]")
@click.option("--with-null", is_flag=True, help="Replace with null; in Kafka this is a tombstone.")
@click.option(
    "--allow-no-match", is_flag=True, help="Allow filters that match no row; the result is then a copy."
)
@result_options
@click.pass_context
def command(
    ctx: click.Context, path: str, codec: str | None, drops: tuple[str, ...], redacts: tuple[str, ...], columns: str, with_: str | None,
    with_null: bool, allow_no_match: bool, out: str | None, in_place: bool, backup: str | None, dry_run: bool, as_json: bool,
) -> int:  # fmt: skip
    """Remove rows, or redact values in them. All other frames keep their bytes, and derived files are rebuilt. Removed
    values do not remain in the result, only in --backup.

    \b
    logwright edit orders-0 --drop 'key == user-7' --out clean/orders-0
    logwright edit chainstate --drop "key == x'00000007'" --out clean/chainstate
    logwright edit orders-0 --redact 'key == user-7' --in-place --backup /backup/orders-0

    If a filter matches no row, nothing is written and the exit status is 1 (see --allow-no-match).
    """
    import logwright as lw

    if with_null and with_ is not None:
        raise click.UsageError("--with and --with-null exclude each other")
    with progress("edit", None) as show:
        report = lw.edit(
            path, out, drop=filter_text(drops), redact=filter_text(redacts), columns=columns, with_=None if with_null else with_ or "",
            codec=codec, in_place=in_place, backup=backup, dry_run=dry_run, allow_no_match=allow_no_match,
            show=show, **own_options(ctx),
        )  # fmt: skip
    if dry_run:
        print_dry_run(report, as_json, has_target=in_place or out is not None)
    else:
        print_report(report, as_json)
    return 0
