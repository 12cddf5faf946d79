"""Run the examples of README.md and docs/*.md, and compare or update the output that the pages show.

Usage: `python tools/doc_examples.py [--update] PAGE...`

A page's examples run in order, in a temporary directory that is empty at the start of the page. A `console` block contains commands, each
on a line that starts with `$ ` (a trailing backslash continues it), followed by the output. A line `...` matches any number of lines. A
`python` block is executed; a `text` block directly below it is its output. The name `spark` in it is a local Spark session, which all
pages share: Spark resolves relative paths against the directory in which it was started, so all pages use the same directory. Other
blocks are not run.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from logwright import spark_python

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
WIDTH = 100
ANY = "..."
SETTINGS = {"COLUMNS": str(WIDTH), "NO_COLOR": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True)
class Block:
    """A fenced block: its mark, its lines without the fences, and the number of its first line in the page, from 0."""

    mark: str
    lines: list[str]
    start: int


@dataclass(frozen=True)
class Example:
    """A command, or a piece of Python, and the lines of the page that show its output (`start` to `stop`, from 0)."""

    source: str
    is_python: bool
    shown: list[str]
    start: int
    stop: int


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    mark: str | None = None
    lines: list[str] = []
    start = 0
    for number, line in enumerate(text.split("\n")):
        if not line.startswith("```"):
            if mark is not None:
                lines.append(line)
        elif mark is None:
            mark, lines, start = line.removeprefix("```").strip(), [], number + 1
        else:
            yield Block(mark, lines, start)
            mark = None


def examples(text: str) -> list[Example]:
    """Return the examples of a page, in order."""
    out: list[Example] = []
    previous: Block | None = None
    for block in blocks(text):
        if block.mark == "console":
            out.extend(_commands(block))
        elif block.mark == "python":
            end = block.start + len(block.lines)
            out.append(Example("\n".join(block.lines), True, [], end, end))
        elif block.mark == "text" and previous is not None and previous.mark == "python":
            between = text.split("\n")[previous.start + len(previous.lines) + 1 : block.start - 1]
            if not any(line.strip() for line in between):
                out[-1] = Example(
                    out[-1].source, True, block.lines, block.start, block.start + len(block.lines)
                )
        previous = block
    return out


def _commands(block: Block) -> Iterator[Example]:
    at = 0
    while at < len(block.lines):
        if not block.lines[at].startswith("$ "):
            raise SystemExit(f"line {block.start + at + 1}: a console block starts with a command (`$ ...`)")
        command = block.lines[at].removeprefix("$ ")
        at += 1
        while command.endswith("\\"):
            command = command.removesuffix("\\") + block.lines[at].lstrip()
            at += 1
        start = at
        while at < len(block.lines) and not block.lines[at].startswith("$ "):
            at += 1
        yield Example(command, False, block.lines[start:at], block.start + start, block.start + at)


def matches(shown: list[str], printed: list[str]) -> bool:
    """Return whether the page shows what was printed. A shown line `...` matches any number of printed lines."""
    if ANY not in shown:
        return shown == printed
    cut = shown.index(ANY)
    head, tail = shown[:cut], shown[cut + 1 :]
    if printed[:cut] != head:
        return False
    return any(matches(tail, printed[at:]) for at in range(cut, len(printed) + 1))


def run_page(path: Path, directory: Path) -> list[tuple[Example, list[str]]]:
    """Run the examples of a page in `directory`, which is emptied first, and return each with the lines that it printed."""
    results = []
    for entry in directory.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    names: dict[str, object] = {"__name__": "__main__"}
    with contextlib.chdir(directory):
        for example in examples(path.read_text(encoding="utf-8")):
            printed = (
                _run_python(example.source, names) if example.is_python else _run_command(example.source)
            )
            results.append(
                (
                    example,
                    [line.rstrip() for line in printed.rstrip("\n").split("\n")] if printed.strip() else [],
                )
            )
    return results


def _run_command(command: str) -> str:
    """Run a command and return what it printed on both outputs. A plain `logwright` command runs in a fork of this process, so that
    the imports are done once; not once Spark's threads are running, since a fork copies their locks but not the threads."""
    words = shlex.split(command)
    if (
        words[0] != "logwright"
        or _spark.cache_info().currsize
        or re.search(r"[|<>&;$*]", re.sub(r"'[^']*'|\"[^\"]*\"", "", command))
    ):
        done = subprocess.run(
            ["bash", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.stdout
    import logwright.cli

    with tempfile.TemporaryFile() as output:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            status = 70
            try:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
                sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
                logwright.cli.main(words[1:])
            except SystemExit as ended:
                status = ended.code if isinstance(ended.code, int) else 1
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        os.waitpid(child, 0)
        output.seek(0)
        return output.read().decode()


def _run_python(source: str, names: dict[str, object]) -> str:
    if "spark" not in names and re.search(r"\bspark\.", source):
        names["spark"] = _spark()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "<example>", "exec"), names)
    return printed.getvalue()


@functools.cache
def _spark() -> object:
    """Return the Spark session of all pages, started at the first use."""
    os.environ.setdefault("PYSPARK_PYTHON", spark_python.executable())
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()


def updated(text: str, results: list[tuple[Example, list[str]]]) -> str:
    """Return the page with the outputs as they are. A shown output that matches stays as it is, and with it its `...`."""
    lines = text.split("\n")
    for example, printed in reversed(results):
        if matches(example.shown, printed):
            continue
        if example.is_python and example.start == example.stop:
            lines[example.stop + 1 : example.stop + 1] = ["", "```text", *printed, "```"]
        else:
            lines[example.start : example.stop] = printed
    return "\n".join(lines)


def differences(path: Path, directory: Path) -> list[str]:
    """Return the lines of a diff between the shown and the printed output of a page; an empty list if they match."""
    lines: list[str] = []
    for example, printed in run_page(path, directory):
        if not matches(example.shown, printed):
            lines.append(f"{path.name}: {example.source}")
            lines.extend(difflib.unified_diff(example.shown, printed, "shown", "printed", lineterm=""))
    return lines


def main() -> None:
    """Check or update the pages."""
    parser = argparse.ArgumentParser(description="Run the examples of the documentation.")
    parser.add_argument("--update", action="store_true", help="write the outputs into the pages")
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES)
    arguments = parser.parse_args()
    os.environ.update(SETTINGS)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    mismatches = []
    with tempfile.TemporaryDirectory() as folder:
        for page in [page.resolve() for page in arguments.pages]:
            if arguments.update:
                text = page.read_text(encoding="utf-8")
                page.write_text(updated(text, run_page(page, Path(folder))), encoding="utf-8")
            else:
                mismatches.extend(differences(page, Path(folder)))
    if mismatches:
        raise SystemExit("\n".join(mismatches))


if __name__ == "__main__":
    main()
