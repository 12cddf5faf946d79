"""`logwright edit`: rows taken out, or values out of rows, and all else left as it is."""

from __future__ import annotations

import click

from logwright.cli.common import ANY_OPTION, filter_text, mending_options, own_options, print_report, progress


@click.command("edit", context_settings=ANY_OPTION)
@click.argument("path")
@click.option("--codec", help="What it is, when the name and the bytes don't tell; see `logwright codecs`.")
@click.option(
    "--drop",
    "drops",
    multiple=True,
    metavar="EXPRESSION",
    help="Take out the rows where it holds, like 'key == user-7' or \"key == x'00ff'\"; several: all must.",
)
@click.option(
    "--redact",
    "redacts",
    multiple=True,
    metavar="EXPRESSION",
    help="Take the values out of the rows where it holds; several: all must.",
)
@click.option(
    "--columns",
    default="value",
    show_default=True,
    help="What is redacted, with commas: value, key, headers.",
)
@click.option(
    "--with", "with_", metavar="TEXT", default="", help="What is there instead.  [default: nothing]"
)
@click.option("--with-null", is_flag=True, help="Null is there instead: in Kafka a tombstone.")
@click.option(
    "--allow-no-match", is_flag=True, help="A filter that matches no row is no error: the result is a copy."
)
@mending_options
@click.pass_context
def command(
    ctx: click.Context, path: str, codec: str | None, drops: tuple[str, ...], redacts: tuple[str, ...], columns: str, with_: str,
    with_null: bool, allow_no_match: bool, out: str | None, in_place: bool, backup: str | None, dry_run: bool, as_json: bool,
) -> int:  # fmt: skip
    """Take rows out of PATH, or values out of rows. All frames that they are not in stay byte for byte, all that is derived from the others
    is made anew, and what was taken out is nowhere in the result (a --backup has it).

    \b
    logwright edit orders-0 --drop 'key == user-7' --out clean/orders-0
    logwright edit chainstate --drop "key == x'00000007'" --out clean/chainstate
    logwright edit orders-0 --redact 'key == user-7' --in-place --backup /backup/orders-0

    Exit status 1, and nothing is written, when a filter matches no row (see --allow-no-match).
    """
    import logwright as lw

    with progress("edit", None) as show:
        report = lw.edit(
            path, out, drop=filter_text(drops), redact=filter_text(redacts), columns=columns, with_=None if with_null else with_,
            codec=codec, in_place=in_place, backup=backup, dry_run=dry_run, allow_no_match=allow_no_match,
            show=show, **own_options(ctx),
        )  # fmt: skip
    print_report(report, as_json)
    return 0
