"""`logwright roundtrip`: the laws, held on files of one's own."""

from __future__ import annotations

import click

from logwright.cli.common import ANY_OPTION, paths_and_options, print_json


@click.command("roundtrip", context_settings=ANY_OPTION)
@click.argument("path", nargs=-1, required=True)
@click.option("--codec", help="What it is, when the name and the bytes don't tell; see `logwright codecs`.")
@click.option(
    "--law", "laws", multiple=True, metavar="NAME", help="Only this one; several times for several."
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes that share the files.",
)
@click.option("--json", "as_json", is_flag=True, help="All of it as JSON.")
def command(path: tuple[str, ...], codec: str | None, laws: tuple[str, ...], jobs: int, as_json: bool) -> int:
    """Decode files, encode them again, and hold what comes out against what was there: a line for each file and law.

    \b
    decode_encode               decoded and encoded again, the bytes are the same
    encoded_anew                everything encoded anew, the rows are the same
    any_split                   read in parts, the rows are the same
    kernel_equals_description   the fast kernels read what the written-down structures say
                                (slow: the first MiB of a file, all of it when asked for by --law)

    64 MiB of a file are held at a time, and its tables. Exit status 3 when a law is broken or damage is found, 1 when something
    could not be looked at.
    """
    from logwright.roundtrip.check import roundtrip

    paths, options = paths_and_options(path)
    if not paths:
        raise click.UsageError("a path is missing")
    found = roundtrip(
        paths if len(paths) > 1 else paths[0], codec, law=list(laws) or None, jobs=jobs, **options
    )
    if as_json:
        print_json(found.to_dict())
    else:
        click.echo(found.text())
    if not found.ok:
        return 3
    return 1 if found.unchecked else 0
