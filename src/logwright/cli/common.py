"""Shared parts of the verbs: options, filters, progress and output."""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click
from click.core import augment_usage_errors

if TYPE_CHECKING:
    from logwright.readers.report import Report

F = TypeVar("F", bound=Callable[..., Any])

WORDS = "logwright.words"
"""The key of a context's `meta` for the words of the command line."""

ANY_OPTION = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["-h", "--help"]}
"""For verbs that accept the options of a codec, such as `--segment-bytes 1m` or `--compression.type=zstd`."""


def own_options(ctx: click.Context) -> dict[str, Any]:
    """Return the options that click does not know. They are checked once the codec is known."""
    paths, options = _split(tuple(ctx.args))
    if paths:
        raise click.UsageError(f"unexpected argument {paths[0]!r}")
    return options


def paths_and_options(words: tuple[str, ...]) -> tuple[list[str], dict[str, Any]]:
    """Split the arguments that click did not parse into one or more paths and options with values."""
    paths, options = _split(words)
    if not paths:
        raise click.UsageError("missing argument PATH")
    return paths, options


def _split(words: tuple[str, ...]) -> tuple[list[str], dict[str, Any]]:
    from logwright.codec.option import fold

    # Parameters of the verb, which click knows by other spellings, and the progress of its Python function.
    reserved = {"show", *(fold(param.name or "") for param in click.get_current_context().command.params)}
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
        if fold(name) in reserved:
            raise click.UsageError(f"unknown option --{name}{_instead(name)}")
        options[name] = value
    return paths, options


def nearest(command: click.Command, name: str, known: Iterable[str] = ()) -> str | None:
    """Return the option of the command, or of the codec (`known`), that is nearest to an unknown name."""
    from logwright.codec.option import fold

    own = {
        fold(text): text
        for param in command.params
        if isinstance(param, click.Option)
        for text in (*param.opts, *param.secondary_opts)
    }
    names = {**{fold(param): f"--{param}" for param in known}, **own}
    near = difflib.get_close_matches(fold(name), names, n=1, cutoff=0.6)
    return names[near[0]] if near else None


def _instead(name: str) -> str:
    near = nearest(click.get_current_context().command, name)
    return "" if near is None else f". Did you mean {near}?"


MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED", "AS_SYSTEM")
"""The names of `readers.stream.Mode`, repeated here so that --help needs no slow import."""


class OwnOptionsCommand(click.Command):
    """A command that takes the options of a codec before, between and after its paths. They are moved behind them, to `own_options`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        known = {text: option for option in options for text in (*option.opts, *option.secondary_opts)}
        words: list[str] = []
        own: list[str] = []
        rest = list(args)
        while rest and rest[0] != "--":
            word = rest.pop(0)
            option = known.get(word.partition("=")[0])
            foreign = option is None and word.startswith("--")
            target = own if foreign else words
            target.append(word)
            if option is not None:
                has_value = not option.is_flag and not option.count
            else:
                has_value = foreign and bool(rest) and not rest[0].startswith("--")
            if has_value and "=" not in word:
                target += rest[:1]
                del rest[:1]
        with augment_usage_errors(ctx):
            _split(tuple(own))  # an option without its value is named before a missing argument
        # An argument takes any word that is left; only one of several words is split again (`paths_and_options`).
        several = any(param.nargs < 0 for param in self.get_params(ctx) if isinstance(param, click.Argument))
        ctx.args = super().parse_args(ctx, [*words, *rest, *(own if several else ())])
        ctx.args += [] if several else own
        return ctx.args


class AsSystemCommand(OwnOptionsCommand):
    """A command whose `--as-system` takes an optional value: the next word is its value only if it is a version number."""

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
    help="Whether the system was stopped cleanly.  [default: read from the system's own marker]",
)

CODEC = click.option("--codec", help="Format, if it cannot be detected; `logwright codecs` lists them.")

JOBS = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of processes.",
)


RECURSIVE = click.option(
    "-r",
    "--recursive",
    is_flag=True,
    help="Also process the stores in all sub-folders. By default they are only listed.",
)


def read_options(command: F) -> F:
    """Add the options of every verb that reads rows."""
    for decorate in reversed(
        [
            CODEC,
            click.option("--view", help="View to read (rows, frames, read_committed, ...)."),
            click.option("--columns", help='Comma-separated; "*" for all, including detail columns.'),
            click.option("--filter", "filters", multiple=True, metavar="EXPRESSION",
                         help="Keep matching rows, such as 'offset >= 5 and key == user-7' or \"key == x'00ff'\". Repeat it: all must "
                         "match."),
            click.option("--limit", type=click.IntRange(min=0), help="Stop after this many rows."),
            click.option("--mode", default="FAILFAST", show_default=True,
                         type=click.Choice(MODES, case_sensitive=False),
                         help="On damage: stop, mark it, drop it, or return what the real system would serve."),
            click.option("--as-system", metavar="[=VERSION]",
                         help="Same as mode AS_SYSTEM, for this version or the newest known."),
            CLEAN,
        ]
    ):  # fmt: skip
        command = decorate(command)
    return command


def mode_of(mode: str, as_system: str | None, clean: bool | None) -> dict[str, Any]:
    """Return the options of `read_options` about damage as arguments of the Python functions."""
    if as_system is not None:
        mode = MODES[-1]
    return {"mode": mode.upper(), "as_system": as_system or None, "clean": clean}


def result_options(command: F) -> F:
    """Add the options that say where the result of a repair, rebuild or edit goes."""
    for decorate in reversed(
        [
            click.option("-o", "--out", metavar="PATH", help="Where to write the result; must be absent or empty."),
            click.option("--in-place", is_flag=True, help="Change PATH itself; requires --backup."),
            click.option("--backup", metavar="DIR", help="Where to save the original files: outside the data, absent or empty."),
            click.option("--dry-run", is_flag=True, help="Only report what would be done."),
            click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON."),
        ]
    ):  # fmt: skip
        command = decorate(command)
    return command


def filter_text(words: tuple[str, ...]) -> str | None:
    """Join several filters; all must match."""
    return words[0] if len(words) == 1 else " and ".join(f"({word})" for word in words) or None


@contextmanager
def output(path: str | None, if_exists: str = "error") -> Iterator[IO[bytes]]:
    """Open standard output, or a file that is replaced atomically."""
    if path in (None, "-"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from logwright.writers.file import whole_file

    assert path is not None
    with whole_file(path, if_exists=if_exists) as stream:
        yield stream


@contextmanager
def progress(label: str, total: int | None, unit: str = "bytes") -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr if it is a terminal. The function yielded takes the amount done and, if it has changed, the total."""
    if not sys.stderr.isatty():
        yield lambda done, total=None: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    amounts = (
        (DownloadColumn(), TransferSpeedColumn())
        if unit == "bytes"
        else (MofNCompleteColumn(), TextColumn(unit))
    )
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), *amounts, TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task(label, total=total)
        yield lambda done, total=total: bar.update(task, completed=done, total=total)


def print_dry_run(report: Report, as_json: bool, *, has_target: bool) -> None:
    """Print the report of a dry run. If there is something to do, the text ends with the same command without --dry-run."""
    if not (report.next or "").startswith("logwright verify "):
        words = [word for word in click.get_current_context().meta[WORDS] if word != "--dry-run"]
        report.next = shlex.join(["logwright", *words, *(() if has_target else ("--out", "DIR"))])
    print_report(report, as_json)


def print_report(report: Report, as_json: bool) -> None:
    """Print a report as text or JSON."""
    if as_json:
        print_json(report.to_dict())
    else:
        click.echo(report.text(width_of(sys.stdout)))


def tell_reader(report: Report) -> None:
    """Print what a reader of the rows should know to standard error: damage, or else what was left out."""
    if report.telling:
        click.echo(report.text(width_of(sys.stderr)), err=True)
        return
    for note in report.notes:
        click.echo(f"note: {note}", err=True)


def width_of(stream: IO[str]) -> int | None:
    """Return the width of a terminal; None if the output is not one."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def color() -> bool | None:
    """Return False if NO_COLOR is set; None leaves it to the terminal."""
    return False if os.environ.get("NO_COLOR") else None


def print_error(error: Exception) -> None:
    click.echo(f"{click.style('error:', fg='red', bold=True)} {error}", err=True, color=color())
