"""`logwright diff`: compare two files or directories."""

from __future__ import annotations

import click

from logwright.cli.common import ANY_OPTION, CODEC, OwnOptionsCommand, filter_text, own_options, print_json


@click.command("diff", cls=OwnOptionsCommand, context_settings=ANY_OPTION)
@click.argument("a")
@click.argument("b")
@click.option(
    "--by",
    type=click.Choice(["rows", "frames", "fields", "files"]),
    default="rows",
    show_default=True,
    help="What to compare: rows of a view, frames, their fields, or whole files.",
)
@click.option("--view", help="View whose rows are compared (read_committed, history, ...).")
@click.option("--columns", help='Comma-separated; "*" for all, including detail columns.')
@click.option(
    "--key",
    metavar="COLUMNS",
    help="Columns that match rows; the rows must be sorted by them. '' compares row by row.",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="EXPRESSION",
    help="Compare matching rows only. Repeat it: all must match.",
)
@click.option(
    "--mode",
    default="FAILFAST",
    show_default=True,
    type=click.Choice(["FAILFAST", "DROPMALFORMED"], case_sensitive=False),
    help="On damage: stop, or compare the undamaged rows.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Number of differences to describe.",
)
@CODEC
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_context
def command(
    ctx: click.Context, a: str, b: str, by: str, view: str | None, columns: str | None, key: str | None,
    filters: tuple[str, ...], mode: str, limit: int, codec: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Compare two files or directories.

    The first difference is reported byte by byte. Either may be a table file (.parquet, .arrow, .jsonl).

    Exit status 0 if they are equal, 3 if they differ.
    """
    import logwright as lw

    difference = lw.diff(
        a, b, codec, by=by, view=view, columns=columns, key=key, filter=filter_text(filters), mode=mode, limit=limit,
        **own_options(ctx),
    )  # fmt: skip
    if as_json:
        print_json(difference.to_dict())
    else:
        click.echo(difference.text())
    return 0 if difference.equal else 3
