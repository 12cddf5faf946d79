"""The examples of the README and of the pages in `docs/` run, and print what the pages show."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cli_page
import click
import doc_examples
import pytest

from logwright import cli
from logwright.spark import repair, replay

TOOL = Path(doc_examples.__file__)
JOBS = {"repair": repair.parser(), "replay": replay.parser()}


def _pages() -> Iterator[Any]:
    """Yield the pages of each run: one page, or all pages with Spark, which share a session."""
    with_spark: list[Path] = []
    for page in doc_examples.PAGES:
        sources = [example.source for example in doc_examples.examples(page.read_text(encoding="utf-8"))]
        if any(re.search(r"\bspark\.", source) for source in sources):
            with_spark.append(page)
        elif sources:
            yield pytest.param([page], marks=pytest.mark.extended, id=page.name)
    marks = [pytest.mark.extended, pytest.mark.spark]
    yield pytest.param(with_spark, marks=marks, id="-".join(page.name for page in with_spark))


@pytest.mark.parametrize("pages", list(_pages()))
def test_examples_print_what_the_page_shows(pages: Sequence[Path]) -> None:
    # A cold start of Spark's Python workers takes minutes on a busy machine.
    command = [sys.executable, str(TOOL), *map(str, pages)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, f"run `make docs` if this is intended:\n{done.stderr}"


def test_command_line_page_is_what_the_commands_print() -> None:
    assert cli_page.PAGE.read_text(encoding="utf-8") == cli_page.page(), "run `make docs`"


def _unprinted_commands() -> Iterator[list[str]]:
    """Yield the words of each command in `sh` blocks, which show commands without their output."""
    for page in doc_examples.PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                yield from (shlex.split(command) for command in line.split("&&") if command.strip())


@pytest.mark.parametrize("words", list(_unprinted_commands()), ids=" ".join)
def test_commands_without_shown_output_have_valid_options(words: list[str]) -> None:
    match words:
        case ["logwright", verb, *options]:
            command = cli.group.get_command(click.Context(cli.group), verb)
            assert command is not None
            command.make_context(verb, options)
        case ["spark-submit", "--py-files", _, script, *options]:
            JOBS[Path(script).stem.removeprefix("logwright_")].parse_args(options)
        case ["python", "-m", module, *options]:
            JOBS[module.removeprefix("logwright.spark.")].parse_args(options)
        case ["make", target]:
            assert re.search(rf"^{target}:", (doc_examples.ROOT / "Makefile").read_text(), re.M)
        case ["export", setting]:
            assert Path(sys.executable).with_name(setting.partition("=")[2]).exists()
        case _:
            assert words == ["systemctl", "start", "kafka"]


def test_readme_is_at_most_150_lines() -> None:
    assert len((doc_examples.ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def links_to_files(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "page", [page for page in doc_examples.PAGES if links_to_files(page)], ids=lambda page: page.name
)
def test_links_to_files_exist(page: Path) -> None:
    for link in links_to_files(page):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a"], ["a"], True),
        (["a"], ["b"], False),
        (["a", "..."], ["a", "b", "c"], True),
        (["a", "...", "d"], ["a", "b", "c", "d"], True),
        (["a", "...", "d"], ["a", "b", "c"], False),
        (["..."], [], True),
        ([], ["a"], False),
    ],
)
def test_ellipsis_matches_any_lines(shown: list[str], printed: list[str], same: bool) -> None:
    assert doc_examples.matches(shown, printed) == same


def test_page_is_updated_with_what_was_printed() -> None:
    text = "```console\n$ logwright a\nold\n$ logwright b\n...\n```\n\n```python\nprint(1)\n```\n"
    first, second, third = doc_examples.examples(text)
    results = [(first, ["new"]), (second, ["x", "y"]), (third, ["1"])]
    assert doc_examples.updated(text, results) == (
        "```console\n$ logwright a\nnew\n$ logwright b\n...\n```\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n"
    )
