"""Make `docs/cli.md` from the commands themselves: `make docs`. A test fails if the page is not what the commands print."""

from __future__ import annotations

import inspect
from pathlib import Path

import click

from logwright.cli import VERBS, group

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
WIDTH = 110

INTRODUCTION = """# Command line

<!-- Made from the commands by `make docs`: change those. -->

Results go to standard output, everything else to standard error. `-` stands for standard input or output. Options of a format or a
directory are upstream's own property names (`--segment-bytes 64m`); `logwright codecs NAME` lists them. The expressions of `--filter`,
`--drop` and `--redact` are described in [Filters](python.md#filters).

| exit status | meaning |
|---|---|
| 0 | success; with `verify --as-system`: the real system would start and lose nothing |
| 1 | failed, or could not check |
| 2 | wrong usage |
| 3 | damage, missing rows, or a difference |

Every command has the same names and options as the [Python](python.md) function of its name.

`eval "$(_LOGWRIGHT_COMPLETE=bash_source logwright)"` in `~/.bashrc` completes commands and options with the Tab key (`zsh_source` in
`~/.zshrc`).
"""


def page() -> str:
    """Return the text of the page: the introduction, and the help text of each command."""
    parts = [INTRODUCTION]
    for verb in VERBS:
        command = group.get_command(click.Context(group), verb)
        assert command is not None
        context = click.Context(
            command, info_name=f"logwright {verb}", terminal_width=WIDTH, **group.context_settings
        )
        lines = [line.rstrip() for line in command.get_help(context).split("\n")]
        parts.append("\n".join([f"## {verb}", "", "```text", *lines, "```", ""]))
    return inspect.cleandoc(parts[0]) + "\n\n" + "\n".join(parts[1:])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
