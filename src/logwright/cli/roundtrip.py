"""`logwright roundtrip`: check the laws of all codecs on your own files."""

from __future__ import annotations

import click

from logwright.cli.common import ANY_OPTION, CODEC, paths_and_options, print_json


@click.command("roundtrip", context_settings=ANY_OPTION)
@click.argument("path", nargs=-1, required=True)
@CODEC
@click.option("--law", "laws", multiple=True, metavar="NAME", help="Check only this law; may be repeated.")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of processes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
def command(path: tuple[str, ...], codec: str | None, laws: tuple[str, ...], jobs: int, as_json: bool) -> int:
    """Decode files, encode them again, and compare. Prints a line for each file and law.

    \b
    decode_encode               a file decoded and encoded again has the same bytes
    encode_without_payloads     encoded without stored payloads, it has the same rows
    any_split                   read in parts, it has the same rows
    kernel_equals_description   the compiled kernels return what the format description says
                                (slow: the first MiB of a file, all of it with --law)

    Memory: 64 MiB of a file and its tables. Exit status 3 if a law is violated or damage is found, 1 if something could not be checked.
    """
    from logwright.roundtrip.check import roundtrip

    paths, options = paths_and_options(path)
    result = roundtrip(
        paths if len(paths) > 1 else paths[0], codec, law=list(laws) or None, jobs=jobs, **options
    )
    if as_json:
        print_json(result.to_dict())
    else:
        click.echo(result.text())
    if not result.ok:
        return 3
    return 1 if result.unchecked else 0
