"""`logwright explain`: explain every byte."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import AbstractContextManager
from typing import IO

import click

from logwright.cli.common import ANY_OPTION, CODEC, output, paths_and_options
from logwright.codec import plural
from logwright.codec.fault import ExistsError

_FRAMES, _ITEMS = 8, 12
"""Limits for a terminal if none are given."""
_OTHERS = 1
"""Limit of list items that were not asked for, with --at or --where."""
_PAGE_ITEMS = 100_000
_NOT_CUT = 1 << 16
"""Width in characters of a file or a pipe."""


def _page(path: str) -> AbstractContextManager[IO[bytes]]:
    """Open the file for the page. An existing file is replaced only if it is such a page."""
    try:
        with open(path, "rb") as there:
            ours = b'content="logwright explain"' in there.read(2048)
    except OSError:
        ours = False
    if not ours and path != "-" and os.path.lexists(path):
        raise ExistsError(
            "it already exists, and is no page of `logwright explain`", path=path, advice="Pass another name"
        )
    return output(path, "overwrite" if ours else "error")


@click.command("explain", context_settings=ANY_OPTION)
@click.argument("path", nargs=-1, required=True)
@click.option(
    "--at",
    metavar="BYTE",
    help="Field at a byte: 73400320, 0x4600000, or @73400381+31 in the data unpacked there.",
)
@click.option(
    "--where", metavar="NAME=VALUE", help="Row with this id: offset=4183220, key=user-7, or any filter."
)
@click.option(
    "--fault",
    type=click.IntRange(min=1),
    help="Fault by its place in the list that `logwright verify` prints, from 1.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of frames or rows.")
@click.option(
    "--items",
    type=click.IntRange(min=1),
    help="Maximum number of list items to show, in addition to a requested one.  [default: 12; 1 with --at or --where; all in JSON and HTML]",
)
@click.option(
    "--html", metavar="OUT", help="Write a self-contained page: bytes on one side, fields on the other."
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@CODEC
def command(
    path: tuple[str, ...], at: str | None, where: str | None, fault: int | None, limit: int | None, items: int | None,
    html: str | None, as_json: bool, codec: str | None,
) -> int:  # fmt: skip
    """Explain every byte of a file, including compressed data."""
    import logwright as lw

    paths, options = paths_and_options(path)
    if len(paths) != 1:
        raise click.UsageError("explain takes one path")
    if html is not None:
        from logwright.writers.file import refuse_own_input

        refuse_own_input(html, paths, "error")
    plain = html is None and not as_json
    asked = at is not None or where is not None
    if plain and limit is None and not asked and fault is None:
        limit = _FRAMES
    few = items or ((_OTHERS if asked else _ITEMS) if plain else _PAGE_ITEMS)
    explanation = lw.explain(
        paths[0], codec, at=at, where=where, fault=fault, limit=limit, items=few, **options
    )
    if html is not None:
        with _page(html) as stream:
            stream.write(explanation.html().encode())
        if html != "-":
            click.echo(
                f"{html}: {plural.count(sum(len(piece.data) for piece in explanation.pieces), 'byte')} explained",
                err=True,
            )
    if as_json:
        click.echo(explanation.to_json(indent=2))
    elif html is None:
        colour = sys.stdout.isatty()
        width = max(shutil.get_terminal_size((132, 24)).columns, 100) if colour else _NOT_CUT
        click.echo(explanation.text(colour=colour, items=few, width=width), color=colour)
    return 0
