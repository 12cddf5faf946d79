"""The command line, one module per verb. Results go to stdout, everything else to stderr.

Exit status: 0 success, 1 failure, 2 wrong usage, 3 damage found or rows missing.
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
    """The reader of standard output has gone away (`| head`)."""


class Verbs(click.Group):
    """A click group that imports the module of a verb only when it is used, so that short commands start fast."""

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
            raise _ReaderGone from None  # click would exit with status 1
        except UsageError as error:
            if error.unknown is not None and ctx.invoked_subcommand is not None:
                self._suggest(ctx, ctx.invoked_subcommand, error.unknown, error)
            raise

    def _suggest(self, ctx: click.Context, verb: str, name: str, error: UsageError) -> None:
        """Add the nearest option of the verb itself to an error about an unknown option."""
        from logwright.cli.common import nearest

        command = self.get_command(ctx, verb)
        assert command is not None
        near = nearest(command, name, error.known)
        if near is not None and near.removeprefix("--") not in error.known:
            error.advice = f"Did you mean {near}?"
        elif near is None:
            end = "" if error.advice.endswith("?") else "."
            error.advice += f"{end} See `logwright {verb} --help` for the options of {verb}"

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], VERBS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Commands: {', '.join(VERBS)}."
            ctx.fail(f"unknown command {args[0]!r}. {hint}")
        from logwright.cli.common import WORDS

        ctx.meta[WORDS] = tuple(args)
        return super().resolve_command(ctx, args)


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="logwright", message="logwright %(version)s")
def group() -> None:
    """Read, write, check and repair the native files of Kafka, LevelDB, ZooKeeper, RocketMQ and BookKeeper.

    Start with `logwright inspect PATH` or `logwright verify PATH`: the format is detected.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run the program `logwright`, by default with the arguments of this process."""
    try:
        _run(args)
    except KeyboardInterrupt:  # at any time, also during imports
        sys.exit(130)


def _run(args: Sequence[str] | None) -> None:
    from logwright.cli.common import color, print_error
    from logwright.codec.fault import DamageError, LogwrightError, StorageError, UsageError
    from logwright.readers.process import keep_freed_memory, leave_out_pandas

    _open_standard_streams()
    _buffer_output()
    keep_freed_memory()
    if args is None:
        leave_out_pandas()
    try:
        status = group.main(args=args, prog_name="logwright", standalone_mode=False, color=color())
        sys.stdout.flush()
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        _suggested(error).show()
        sys.exit(error.exit_code)
    except UsageError as error:
        print_error(error)
        sys.exit(2)
    except DamageError as error:
        print_error(error)
        sys.exit(3)
    except LogwrightError as error:
        print_error(error)
        sys.exit(1)
    except (_ReaderGone, BrokenPipeError):
        _close_output()
        sys.exit(0)
    except OSError as error:
        # Errors of input files are reported where they occur, so this one is about the output.
        _close_output()
        print_error(StorageError(error.strerror or str(error), path=error.filename or "standard output"))
        sys.exit(1)
    except Exception as error:
        if os.environ.get("LOGWRIGHT_DEBUG"):
            raise
        print_error(
            LogwrightError(
                f"internal error in logwright ({type(error).__name__}: {error})",
                advice="No output is half-written. Run the command again with LOGWRIGHT_DEBUG=1 and report the traceback",
            )
        )
        sys.exit(1)


def _open_standard_streams() -> None:
    """Open the standard streams that the caller closed, so that no file gets their numbers. Writing to standard output then fails."""
    for number, name, flags in (
        (0, "stdin", os.O_RDONLY),
        (1, "stdout", os.O_RDONLY),
        (2, "stderr", os.O_WRONLY),
    ):
        if getattr(sys, f"__{name}__") is None and getattr(sys, name) is None:
            fd = os.open(os.devnull, flags)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def _buffer_output() -> None:
    """Buffer standard output. With PYTHONUNBUFFERED a short write would go unnoticed, and rows would be lost on a full disk."""
    out = sys.__stdout__
    if out is not None and sys.stdout is out and isinstance(getattr(out, "buffer", None), io.RawIOBase):
        sys.stdout = open(out.fileno(), "w", 1, out.encoding, out.errors, closefd=False)  # noqa: SIM115


def _suggested(error: click.ClickException) -> click.ClickException:
    """Add the nearest valid choice to an error about an invalid one."""
    if not isinstance(error, click.BadParameter) or not isinstance(param := error.param, click.Parameter):
        return error
    if not isinstance(param.type, click.Choice):
        return error
    import difflib

    value = error.message.partition("'")[2].partition("'")[0]
    near = difflib.get_close_matches(
        value.lower(), [str(choice).lower() for choice in param.type.choices], n=1
    )
    more = f" Did you mean {near[0]!r}?" if near else ""
    return click.BadParameter(error.message + more, error.ctx, param, error.param_hint)


def _close_output() -> None:
    """Discard further output, so that Python reports no second error when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
