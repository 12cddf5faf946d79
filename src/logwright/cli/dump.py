"""`logwright dump`: print or export rows."""

from __future__ import annotations

import sys

import click

from logwright.cli.common import (
    ANY_OPTION,
    JOBS,
    AsSystemCommand,
    filter_text,
    mode_of,
    output,
    paths_and_options,
    progress,
    read_options,
    tell_reader,
)


@click.command("dump", cls=AsSystemCommand, context_settings=ANY_OPTION)
@click.argument("path", nargs=-1, required=True)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["text", "jsonl", "csv", "parquet", "arrow"]),
    help="Default: by the ending of --out; else text on a terminal, jsonl otherwise.",
)
@click.option("-o", "--out", help="Write to a file instead of standard output.")
@click.option(
    "--if-exists",
    type=click.Choice(["error", "overwrite"]),
    default="error",
    show_default=True,
    help="What to do if the file exists.",
)
@click.option(
    "--bytes",
    "form",
    type=click.Choice(["auto", "hex", "base64", "utf8"]),
    default="auto",
    show_default=True,
    help='Bytes in JSON and CSV: auto is text if it is UTF-8, otherwise {"$hex": ...}.',
)
@read_options
@JOBS
def command(
    path: tuple[str, ...], kind: str | None, out: str | None, if_exists: str, form: str, codec: str | None,
    view: str | None, columns: str | None, filters: tuple[str, ...], limit: int | None, mode: str,
    as_system: str | None, clean: bool | None, jobs: int,
) -> int:  # fmt: skip
    """Print the rows of files or directories."""
    import logwright as lw
    from logwright.formats.sink import ENDINGS, Sink, format_of
    from logwright.writers.file import refuse_own_input

    paths, options = paths_and_options(path)

    if out in (None, "-"):
        on_terminal = out is None and sys.stdout.isatty()
        kind = kind or ("text" if on_terminal else "jsonl")
        if on_terminal and kind in ("parquet", "arrow"):
            raise lw.UsageError(
                f"{kind} is binary, but standard output is a terminal", advice="Name a file with --out"
            )
    else:
        assert out is not None
        kind = kind or format_of(out)
        refuse_own_input(out, paths, if_exists)
    if kind is None:
        raise lw.UsageError(
            "the format is unknown from the ending of the name",
            path=out,
            advice=f"Pass it with --format, or use one of the endings {', '.join(ENDINGS)}",
        )
    scan = lw.scan(
        paths if len(paths) > 1 else paths[0], codec, view=view, columns=columns, filter=filter_text(filters),
        limit=limit, **mode_of(mode, as_system, clean), jobs=jobs, **options,
    )  # fmt: skip
    with (
        output(out, if_exists) as stream,
        Sink(stream, kind, scan.schema, form=form, hexadecimal=scan.hexadecimal) as sink,
        progress("dump", scan.size) as show,
    ):
        for batch in scan:
            sink.write(batch)
            show(scan.report.bytes)
    tell_reader(scan.report)
    return 0 if scan.report.ok and not scan.report.missing else 3
