"""`logwright verify`: is it sound, what is lost if not, and what the real system would do."""

from __future__ import annotations

import click

from logwright.cli.common import (
    ANY_OPTION,
    CLEAN,
    JOBS,
    RECURSIVE,
    AsSystemCommand,
    paths_and_options,
    print_report,
    progress,
)


@click.command("verify", cls=AsSystemCommand, context_settings=ANY_OPTION)
@click.argument("path", nargs=-1, required=True)
@click.option("--codec", help="What it is, when the name and the bytes don't tell; see `logwright codecs`.")
@click.option(
    "--depth",
    type=click.Choice(["structure", "checksums", "records"]),
    default="records",
    show_default=True,
    help="How deep to look: frames only, checksums too, every record too.",
)
@click.option(
    "--as-system",
    metavar="[=VERSION]",
    help="What the real system would do with it, of this version or the newest known; "
    "exit status 0 only where it opens and loses nothing.",
)
@CLEAN
@JOBS
@RECURSIVE
@click.option("--json", "as_json", is_flag=True, help="The whole report as JSON.")
def command(
    path: tuple[str, ...],
    codec: str | None,
    depth: str,
    as_system: str | None,
    clean: bool | None,
    jobs: int,
    recursive: bool,
    as_json: bool,
) -> int:
    """Check files or directories, or all the directories in one.

    Exit status 3 when damage is found, 1 when something could not be looked at.
    """
    import logwright as lw

    paths, options = paths_and_options(path)
    if not paths:
        raise click.UsageError("a path is missing")

    with progress("verify", None) as show:
        report = lw.verify(
            paths if len(paths) > 1 else paths[0],
            codec,
            depth=depth,
            as_system=True if as_system == "" else as_system,
            clean=clean,
            jobs=jobs,
            recursive=recursive,
            show=show,
            **options,
        )
    print_report(report, as_json)
    if not (report.ok if as_system is None else report.safe):
        return 3
    return 1 if report.unchecked else 0
