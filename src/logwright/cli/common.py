"""What the verbs share: options by upstream's names, filters from text, progress, and the output stream."""

from __future__ import annotations

import difflib
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from logwright.readers.report import Report

F = TypeVar("F", bound=Callable[..., Any])

ANY_OPTION = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["-h", "--help"]}
"""For verbs that take a codec's own options: `--segment-bytes 1m`, `--compression.type=zstd`."""


def own_options(ctx: click.Context) -> dict[str, Any]:
    """The options that click does not know, as a mapping; they are checked where the codec is known."""
    paths, options = paths_and_options(tuple(ctx.args))
    if paths:
        raise click.UsageError(f"unexpected argument {paths[0]!r}")
    return options


def paths_and_options(words: tuple[str, ...]) -> tuple[list[str], dict[str, Any]]:
    """Words of the command line that click left: paths, and options it does not know with their values."""
    paths: list[str] = []
    options: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            paths.append(word)
            continue
        name, sign, value = word[2:].partition("=")
        if not sign:
            if not rest or rest[0].startswith("--"):
                raise click.UsageError(f"option --{name} needs a value{_instead(name)}")
            value = rest.pop(0)
        options[name] = value
    return paths, options


def nearest(command: click.Command, name: str, known: Iterable[str] = ()) -> str | None:
    """The option that is meant by a name that neither the command has, nor is among those of the codec, which are `known`."""
    from logwright.codec.option import fold

    own = {
        fold(text): text
        for one in command.params
        if isinstance(one, click.Option)
        for text in (*one.opts, *one.secondary_opts)
    }
    names = {**{fold(one): f"--{one}" for one in known}, **own}
    near = difflib.get_close_matches(fold(name), names, n=1, cutoff=0.6)
    return names[near[0]] if near else None


def _instead(name: str) -> str:
    near = nearest(click.get_current_context().command, name)
    return "" if near is None else f". Did you mean {near}?"


MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED", "AS_SYSTEM")
"""The names of `readers.stream.Mode`, without the import of it: help has to come at once."""


class AsSystemCommand(click.Command):
    """`--as-system` may stand alone: what follows is not its value, unless it is a version."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        out: list[str] = []
        for word in args:
            if out and out[-1] == "--as-system=" and re.fullmatch(r"\d+(\.\d+)*", word):
                out[-1] += word
            else:
                out.append("--as-system=" if word == "--as-system" else word)
        return super().parse_args(ctx, out)


CLEAN = click.option(
    "--clean/--unclean",
    default=None,
    help="Whether the last stop was a clean one.  [default: as the system's marker says]",
)

JOBS = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes that share the work.",
)


RECURSIVE = click.option(
    "-r",
    "--recursive",
    is_flag=True,
    help="Include the stores in all sub-folders. Without it the result only names them.",
)


def read_options(command: F) -> F:
    """The options of every verb that reads rows."""
    for decorate in reversed(
        [
            click.option("--codec", help="What it is, when the name and the bytes don't tell; see `logwright codecs`."),
            click.option("--view", help="What to see of it (rows, frames, read_committed, ...)."),
            click.option("--columns", help='Comma-separated; "*" is all, detail columns too.'),
            click.option("--filter", "filters", multiple=True, metavar="EXPRESSION",
                         help="Keep rows where it holds, like 'offset >= 5 and key == user-7' or \"key == x'00ff'\"; several: all must "
                         "hold."),
            click.option("--limit", type=click.IntRange(min=0), help="Stop after so many rows."),
            click.option("--mode", default="FAILFAST", show_default=True,
                         type=click.Choice(MODES, case_sensitive=False),
                         help="On damage: stop, mark it, drop it, or what the real system would give after its start."),
            click.option("--as-system", metavar="[=VERSION]",
                         help="Mode AS_SYSTEM, of this version or the newest known."),
            CLEAN,
        ]
    ):  # fmt: skip
        command = decorate(command)
    return command


def mode_of(mode: str, as_system: str | None, clean: bool | None) -> dict[str, Any]:
    """The options of `read_options` that say what to do on damage, as the functions of the package take them."""
    if as_system is not None:
        mode = MODES[-1]
    return {"mode": mode.upper(), "as_system": as_system or None, "clean": clean}


def mending_options(command: F) -> F:
    """The options of the verbs that mend: where the result goes."""
    for decorate in reversed(
        [
            click.option("-o", "--out", metavar="PATH", help="Where the result goes: absent or empty."),
            click.option("--in-place", is_flag=True, help="Change PATH itself; needs --backup."),
            click.option("--backup", metavar="DIR", help="Where the originals go: outside of the data, absent or empty."),
            click.option("--dry-run", is_flag=True, help="Only say what would be done."),
            click.option("--json", "as_json", is_flag=True, help="The whole report as JSON."),
        ]
    ):  # fmt: skip
        command = decorate(command)
    return command


def filter_text(words: tuple[str, ...]) -> str | None:
    """Several filters must all hold."""
    return " and ".join(words) or None


@contextmanager
def output(path: str | None) -> Iterator[IO[bytes]]:
    """Standard output, or a file that appears whole or not at all."""
    if path in (None, "-"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from logwright.writers.file import whole_file

    assert path is not None
    with whole_file(path) as stream:
        yield stream


@contextmanager
def progress(label: str, total: int | None, unit: str = "bytes") -> Iterator[Callable[..., None]]:
    """A bar on stderr when a person watches; the function yielded takes how much is done, and of how much if that is news."""
    if not sys.stderr.isatty():
        yield lambda done, total=None: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task(label, total=total)
        yield lambda done, total=total: bar.update(task, completed=done, total=total)


def print_report(report: Report, as_json: bool) -> None:
    """A report, for people or programs."""
    if as_json:
        print_json(report.to_dict())
    else:
        click.echo(report.text(width_of(sys.stdout)))


def width_of(stream: IO[str]) -> int | None:
    """Characters of a line, where a person reads; None where a program does."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))
