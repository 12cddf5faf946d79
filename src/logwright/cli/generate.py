"""`logwright generate`: corpora by recipe and seed."""

from __future__ import annotations

import os

import click

from logwright.cli.common import ANY_OPTION, own_options
from logwright.readers.report_text import count


@click.command("generate", context_settings=ANY_OPTION)
@click.argument("codec")
@click.argument("path", required=False)
@click.option("--rows", default="1000", show_default=True, help="How many rows.")
@click.option("--seed", default="0", show_default=True, help="Same recipe, seed and version: same bytes.")
@click.option("--recipe", help='What kind of rows and files; "list" lists them.')
@click.pass_context
def command(
    ctx: click.Context, codec: str, path: str | None, rows: str, seed: str, recipe: str | None
) -> int:
    """Make a new file or directory PATH of a CODEC or layout, and what must be read from it beside it.

    PATH.manifest.json says what was made, PATH.expected.jsonl holds the rows as `dump --format jsonl` prints them.
    Options of the recipe and of the writer are given by upstream's names: --segment-bytes 64k --compression-type zstd.
    """
    if recipe == "list":
        from logwright.corpora.generate import recipes

        known = recipes(codec)
        width = max(len(one.name) for one in known)
        for i, one in enumerate(known):
            default = " (default)" if i == 0 else ""
            click.echo(f"{click.style(one.name.ljust(width), bold=True)}  {one.doc}{default}")
        return 0
    if path is None:
        raise click.UsageError("where to? PATH is missing")
    import logwright as lw

    made = lw.generate(codec, path, rows=rows, seed=seed, recipe=recipe, **own_options(ctx))
    files = len(made.manifest["files"])
    click.echo(
        f"{made.path}: {count(made.rows, 'row')}, {count(files, 'file')}, {count(made.bytes, 'byte')}",
        err=True,
    )
    beside = sorted({made.manifest_path, *made.expected.values()})
    click.echo(f"beside it: {', '.join(os.path.basename(one) for one in beside)}", err=True)
    return 0
