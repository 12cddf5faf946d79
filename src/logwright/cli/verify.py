"""`logwright verify`: report damage, what is lost, and what the real system would do."""

from __future__ import annotations

import click

from logwright.cli.common import (
    ANY_OPTION,
    CLEAN,
    CODEC,
    JOBS,
    RECURSIVE,
    AsSystemCommand,
    paths_and_options,
    print_report,
    progress,
)


@click.command("verify", cls=AsSystemCommand, context_settings=ANY_OPTION)
@click.argument("path", nargs=-1, required=True)
@CODEC
@click.option(
    "--depth",
    type=click.Choice(["structure", "checksums", "records"]),
    default="records",
    show_default=True,
    help="Level of checking: frame structure, checksums, or every record.",
)
@click.option(
    "--as-system",
    metavar="[=VERSION]",
    help="Simulate the start of this version of the real system, or of the newest known; "
    "the exit status is 0 only if it opens and loses nothing.",
)
@CLEAN
@JOBS
@RECURSIVE
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
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
    """Check files or directories, or all stores in a directory.

    Exit status 3 if damage is found, 1 if something could not be checked.
    """
    import logwright as lw

    paths, options = paths_and_options(path)

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
        return 1 if report.denied else 3
    return 1 if report.unchecked else 0
