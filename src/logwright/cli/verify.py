"""`logwright verify`: is it sound, and what is lost if not."""

from __future__ import annotations

import click

from logwright.cli.common import ANY_OPTION, paths_and_options, print_json


@click.command("verify", context_settings=ANY_OPTION)
@click.argument("path", nargs=-1, required=True)
@click.option(
    "--depth",
    type=click.Choice(["structure", "checksums", "records"]),
    default="records",
    show_default=True,
    help="How deep to look: frames only, checksums too, every record too.",
)
@click.option("--json", "as_json", is_flag=True, help="The whole report as JSON.")
def command(path: tuple[str, ...], depth: str, as_json: bool) -> int:
    """Check files or directories; exit status 3 when damage is found."""
    import logwright as lw

    paths, options = paths_and_options(path)
    if not paths:
        raise click.UsageError("a path is missing")

    report = lw.verify(paths if len(paths) > 1 else paths[0], depth=depth, **options)
    if as_json:
        print_json(report.to_dict())
    else:
        click.echo(report.text())
    return 0 if report.ok else 3
