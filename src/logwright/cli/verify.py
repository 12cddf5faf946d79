"""`logwright verify`: is it sound, and what is lost if not."""

from __future__ import annotations

import click

from logwright.cli.common import ANY_OPTION, own_options, print_json


@click.command("verify", context_settings=ANY_OPTION)
@click.argument("path", nargs=-1, required=True)
@click.option("--depth", type=click.Choice(["structure", "checksums", "records"]), default="records", show_default=True,
              help="How deep to look: frames only, checksums too, every record too.")
@click.option("--json", "as_json", is_flag=True, help="The whole report as JSON.")
@click.pass_context
def command(ctx: click.Context, path: tuple[str, ...], depth: str, as_json: bool) -> int:
    """Check files or directories; exit status 3 when damage is found."""
    import logwright as lw

    report = lw.verify(list(path) if len(path) > 1 else path[0], depth=depth, **own_options(ctx))
    if as_json:
        print_json(report.to_dict())
    else:
        click.echo(report.text())
    return 0 if report.ok else 3
