"""`logwright generate`: generate sample files from a recipe and a seed."""

from __future__ import annotations

import click

from logwright.cli.common import ANY_OPTION, OwnOptionsCommand, own_options


@click.command("generate", cls=OwnOptionsCommand, context_settings=ANY_OPTION)
@click.argument("codec")
@click.argument("path", required=False)
@click.option("--rows", metavar="N", default="1000", show_default=True, help="Number of rows.")
@click.option(
    "--seed",
    metavar="N",
    default="0",
    show_default=True,
    help="Random seed. The same recipe, seed and version give the same bytes.",
)
@click.option("--recipe", help='Kind of rows and files; "list" lists the recipes.')
@click.pass_context
def command(
    ctx: click.Context, codec: str, path: str | None, rows: str, seed: str, recipe: str | None
) -> int:
    """Generate a sample file or directory.

    CODEC is a codec or layout; the sample is written to PATH.

    PATH.manifest.json describes it; PATH.expected.jsonl holds its rows as `dump --format jsonl` prints them. Options of the
    format are the system's own property names: --segment-bytes 64k --compression-type zstd.
    """
    if recipe == "list":
        from logwright.corpora.generate import recipes

        known = recipes(codec)
        width = max(len(recipe_info.name) for recipe_info in known)
        for i, recipe_info in enumerate(known):
            default = " (default)" if i == 0 else ""
            click.echo(f"{click.style(recipe_info.name.ljust(width), bold=True)}  {recipe_info.doc}{default}")
        return 0
    if path is None:
        raise click.UsageError("missing argument PATH")
    import logwright as lw

    click.echo(lw.generate(codec, path, rows=rows, seed=seed, recipe=recipe, **own_options(ctx)), err=True)
    return 0
