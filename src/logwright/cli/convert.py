"""`logwright convert`: native files to and from Parquet, Arrow and JSON lines, and to other native files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from logwright.cli.common import (
    ANY_OPTION,
    JOBS,
    AsSystemCommand,
    filter_text,
    mode_of,
    own_options,
    read_options,
    width_of,
)
from logwright.codec.plural import count


@click.command("convert", cls=AsSystemCommand, context_settings=ANY_OPTION)
@click.argument("source")
@click.argument("target")
@click.option(
    "--if-exists",
    type=click.Choice(["error", "append", "overwrite"]),
    default="error",
    show_default=True,
    help="What to do if the target exists.",
)
@click.option(
    "--rows-only",
    is_flag=True,
    help="Write rows only. The original bytes cannot be restored from the result.",
)
@click.option(
    "--compact",
    is_flag=True,
    help="Compact a Kafka partition into a new directory, exactly as the broker's log cleaner does.",
)
@read_options
@JOBS
@click.pass_context
def command(
    ctx: click.Context, source: str, target: str, if_exists: str, rows_only: bool, compact: bool, codec: str | None, view: str | None,
    columns: str | None, filters: tuple[str, ...], limit: int | None, mode: str,
    as_system: str | None, clean: bool | None, jobs: int,
) -> int:  # fmt: skip
    """Convert between native files and tables.

    SOURCE becomes TARGET: native files to a .parquet, .arrow or .jsonl file, back, or to other native files.

    Options of the native format are the system's own property names: --segment-bytes 64m --compression-type zstd. Use --filter to select by
    offset, time or key. The order of rows is kept. Data that the target format cannot hold is reported, or the conversion is refused.
    """
    from logwright.api import detect
    from logwright.conversion import convert

    done = convert(
        source, target, codec, view=view, columns=columns, filter=filter_text(filters), limit=limit, **mode_of(mode, as_system, clean),
        if_exists=if_exists, rows_only=rows_only, jobs=jobs, compact=compact, **own_options(ctx),
    )  # fmt: skip
    click.echo(f"{count(done['rows'], 'row')} in {_where(target, done['files'])}", err=True)
    for line in done["notes"]:
        click.echo(f"note: {line}", err=True)
    if done["written"] is not None:
        for line in done["written"].warnings:
            click.echo(f"warning: {line}", err=True)
        if done["written"].before_you_start:
            system = (detect(target) or "the system").partition(".")[0]
            for line in done["written"].before_you_start:
                click.echo(f"before starting {system}: {line}", err=True)
    report = done["report"]
    if report is not None and report.telling:
        click.echo(report.text(width_of(sys.stderr)), err=True)
    return 0 if report is None or (report.ok and not report.missing) else 3


def _where(target: str, files: Sequence[str]) -> str:
    """Return what was written: the file, or a directory with its number of files."""
    if os.path.isdir(target):
        return f"{target}, {count(len(files), 'file')}"
    return ", ".join(str(name) for name in files)
