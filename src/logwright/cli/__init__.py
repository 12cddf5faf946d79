"""The command line: one file a verb. Results on stdout, everything else on stderr.

Exit status: 0 fine, 1 could not do it, 2 wrong usage, 3 damage found or rows missing.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from logwright.codec.fault import UsageError

VERBS = (
    "inspect",
    "dump",
    "verify",
    "explain",
    "repair",
    "rebuild",
    "convert",
    "diff",
    "edit",
    "generate",
    "damage",
    "roundtrip",
    "codecs",
    "warmup",
)


class _ReaderGone(Exception):
    """Nobody reads standard output any more (`| head`)."""


class Verbs(click.Group):
    """Imports a verb's module only when the verb is used, so that a small question has a quick answer."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command = importlib.import_module(f"logwright.cli.{name}").command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        from logwright.codec.fault import UsageError

        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _ReaderGone from None  # click would end with status 1
        except UsageError as error:
            if error.unknown is not None and ctx.invoked_subcommand is not None:
                self._suggest(ctx, ctx.invoked_subcommand, error.unknown, error)
            raise

    def _suggest(self, ctx: click.Context, verb: str, name: str, error: UsageError) -> None:
        """Options of the verb itself are ones that were meant, too."""
        from logwright.cli.common import nearest

        command = self.get_command(ctx, verb)
        assert command is not None
        near = nearest(command, name, error.known)
        if near is not None and near.removeprefix("--") not in error.known:
            error.advice = f"Did you mean {near}?"
        elif near is None:
            end = "" if error.advice.endswith("?") else "."
            error.advice += f"{end} `logwright {verb} --help` lists those of {verb} itself"

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], VERBS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(VERBS)}."
            ctx.fail(f"no command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="logwright", message="logwright %(version)s")
def group() -> None:
    """Read, write and check the files that storage systems keep on disk, byte for byte."""


def main(args: Sequence[str] | None = None) -> None:
    """The program `logwright`."""
    from logwright.codec.fault import DamageError, LogwrightError, StorageError, UsageError
    from logwright.readers.process import keep_freed_memory

    _buffer_output()
    keep_freed_memory()
    try:
        status = group.main(args=args, prog_name="logwright", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        _suggested(error).show()
        sys.exit(error.exit_code)
    except UsageError as error:
        _say(error)
        sys.exit(2)
    except DamageError as error:
        _say(error)
        sys.exit(3)
    except LogwrightError as error:
        _say(error)
        sys.exit(1)
    except (_ReaderGone, BrokenPipeError):
        _close_output()
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        # Those of files are told by who meets them: this is what was to be printed.
        _close_output()
        _say(StorageError(error.strerror or str(error), path=error.filename or "standard output"))
        sys.exit(1)
    except Exception as error:
        if os.environ.get("LOGWRIGHT_DEBUG"):
            raise
        _say(
            LogwrightError(
                f"this is a mistake in logwright itself ({type(error).__name__}: {error})",
                advice="Nothing was half-written. Run it again with LOGWRIGHT_DEBUG=1 and report what it prints",
            )
        )
        sys.exit(1)


def _buffer_output() -> None:
    """With PYTHONUNBUFFERED what is under standard output may write less than it was given, and nobody asks: rows would be lost where
    the disk is full."""
    out = sys.__stdout__
    if out is not None and sys.stdout is out and isinstance(getattr(out, "buffer", None), io.RawIOBase):
        sys.stdout = open(out.fileno(), "w", 1, out.encoding, out.errors, closefd=False)  # noqa: SIM115


def _suggested(error: click.ClickException) -> click.ClickException:
    """With what was meant by a word that is none of those an option takes."""
    if not isinstance(error, click.BadParameter) or not isinstance(param := error.param, click.Parameter):
        return error
    if not isinstance(param.type, click.Choice):
        return error
    import difflib

    said = error.message.partition("'")[2].partition("'")[0]
    near = difflib.get_close_matches(said.lower(), [str(one).lower() for one in param.type.choices], n=1)
    more = f" Did you mean {near[0]!r}?" if near else ""
    return click.BadParameter(error.message + more, error.ctx, param, error.param_hint)


def _close_output() -> None:
    """Quiet, and no second complaint when Python closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(error: Exception) -> None:
    mark = click.style("error:", fg="red", bold=True)
    click.echo(f"{mark} {error}", err=True)
