"""`logwright explain`: what every byte means."""

from __future__ import annotations

import shutil
import sys
from contextlib import AbstractContextManager
from typing import IO

import click

from logwright.cli.common import ANY_OPTION, output, paths_and_options

_FRAMES, _ITEMS = 8, 12
"""What a terminal is given where nothing is said."""
_PAGE_ITEMS = 100_000


def _page(path: str) -> AbstractContextManager[IO[bytes]]:
    """The page's file: one that is there is replaced only if it is such a page."""
    try:
        with open(path, "rb") as there:
            ours = b'content="logwright explain"' in there.read(2048)
    except OSError:
        ours = False
    if not ours:
        return output(path)
    from logwright.writers.file import whole_file

    return whole_file(path, if_exists="overwrite")


@click.command("explain", context_settings=ANY_OPTION)
@click.argument("path", nargs=-1, required=True)
@click.option(
    "--at",
    metavar="BYTE",
    help="The field at a byte: 73400320, 0x4600000, or @73400381+31 in what is packed there.",
)
@click.option(
    "--where", metavar="NAME=VALUE", help="The row of an id: offset=4183220, key=user-7, or any filter."
)
@click.option(
    "--fault",
    type=click.IntRange(min=1),
    help="A fault, by its number in the list of `logwright verify --json`.",
)
@click.option("--limit", type=click.IntRange(min=1), help="So many frames, or rows, at most.")
@click.option("--items", type=click.IntRange(min=1), help="So many items of a list are written out.")
@click.option(
    "--html", metavar="OUT", help="A page that stands on its own: bytes on one side, fields on the other."
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option("--codec", help="What it is, when the name and the bytes don't tell; see `logwright codecs`.")
def command(
    path: tuple[str, ...], at: str | None, where: str | None, fault: int | None, limit: int | None, items: int | None,
    html: str | None, as_json: bool, codec: str | None,
) -> int:  # fmt: skip
    """Say what the bytes of a file mean: every byte, also inside of what is compressed."""
    import logwright as lw

    paths, options = paths_and_options(path)
    if len(paths) != 1:
        raise click.UsageError("one path is needed")
    plain = html is None and not as_json
    if plain and limit is None and at is None and fault is None and where is None:
        limit = _FRAMES
    few = items or (_ITEMS if plain else _PAGE_ITEMS)
    found = lw.explain(paths[0], codec, at=at, where=where, fault=fault, limit=limit, items=few, **options)
    if html is not None:
        with _page(html) as stream:
            stream.write(found.html().encode())
        if html != "-":
            click.echo(
                f"{html}: {sum(one.stop - one.start for one in found.pieces):,} bytes explained", err=True
            )
    if as_json:
        click.echo(found.to_json(indent=2))
    elif html is None:
        colour = sys.stdout.isatty()
        width = max(shutil.get_terminal_size((132, 24)).columns, 100) if colour else 132
        click.echo(found.text(colour=colour, items=few, width=width), color=colour)
    return 0
