"""`logwright diff`: how two files or directories differ."""

from __future__ import annotations

import click

from logwright.cli.common import ANY_OPTION, filter_text, own_options, print_json


@click.command("diff", context_settings=ANY_OPTION)
@click.argument("a")
@click.argument("b")
@click.option(
    "--by",
    type=click.Choice(["rows", "frames", "fields", "files"]),
    default="rows",
    show_default=True,
    help="What is held against each other: rows of a view, frames, their fields, or whole files.",
)
@click.option("--view", help="The view whose rows are compared (read_committed, history, ...).")
@click.option("--columns", help='Comma-separated; "*" is all, detail columns too.')
@click.option(
    "--key", metavar="COLUMNS", help="What rows are matched by, in whose order they come; '' is row by row."
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="EXPRESSION",
    help="Only rows where it holds; several: all must hold.",
)
@click.option(
    "--mode",
    default="FAILFAST",
    show_default=True,
    type=click.Choice(["FAILFAST", "DROPMALFORMED"], case_sensitive=False),
    help="On damage: stop, or compare what is sound.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=10, show_default=True, help="Differences told in full."
)
@click.option("--codec", help="What they are, when names and bytes don't tell; see `logwright codecs`.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_context
def command(
    ctx: click.Context, a: str, b: str, by: str, view: str | None, columns: str | None, key: str | None,
    filters: tuple[str, ...], mode: str, limit: int, codec: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Tell how B differs from A, the first difference to the byte. Either may be a table file (.parquet, .arrow, .jsonl).

    Exit status 0 when they are equal, 3 when they differ.
    """
    import logwright as lw

    found = lw.diff(
        a, b, codec, by=by, view=view, columns=columns, key=key, filter=filter_text(filters), mode=mode, limit=limit,
        **own_options(ctx),
    )  # fmt: skip
    if as_json:
        print_json(found.to_dict())
    else:
        click.echo(found.text())
    return 0 if found.equal else 3
