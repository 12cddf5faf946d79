"""Which options a verb uses: each declared option is passed to each verb and view, and must be either read or refused."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import logwright as lw
from logwright.codec import registry
from logwright.codec.fault import LogwrightError, UsageError
from logwright.codec.option import Option, Options, fold
from logwright.readers.usage import every_option

USED, REFUSED, IGNORED = "used", "refused", "ignored"


@dataclass(frozen=True)
class Sample:
    """Paths of one kind on which options are tried, with contents such that each option matters to one of them."""

    kind: str
    paths: Sequence[Path]
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values of options without a default."""
    beside: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """Options that another option requires, by verb and option."""


@contextmanager
def reads() -> Iterator[set[str]]:
    """Collect the names of the passed options whose values are read. Meant for many runs: Python 3.13 gives a class only so many versions,
    and then calls the methods that were replaced."""
    names: set[str] = set()
    item, is_given = Options.__getitem__, Options.given

    def get(self: Options, name: str) -> Any:
        if is_given(self, name):
            names.add(fold(name))
        return item(self, name)

    def asked(self: Options, name: str) -> bool:
        if is_given(self, name):
            names.add(fold(name))
        return is_given(self, name)

    Options.__getitem__, Options.given = get, asked  # type: ignore[method-assign]
    try:
        yield names
    finally:
        Options.__getitem__, Options.given = item, is_given  # type: ignore[method-assign]


def value(option: Option, values: Mapping[str, Any]) -> Any:
    if option.name in values:
        return values[option.name]
    if option.choices:
        return option.choices[-1]
    if option.default is not None:
        return option.default
    return max(option.low or 1, 1)


def all_options(kind: str) -> dict[str, Option]:
    """Return every option of the system, those of this kind first."""
    own = registry.find(kind)
    by_name: dict[str, Option] = {}
    for option in every_option(own):
        by_name.setdefault(option.name, option)
    return by_name


Run = Callable[[Path, Mapping[str, Any]], Any]


def verbs(sample: Sample) -> Iterator[tuple[str, Run]]:
    """Yield each verb, view and strategy."""
    own: Any = registry.find(sample.kind)
    layout = hasattr(own, "inner_staging")
    views = [*own.views, "rows", "frames", "file", "files"] if layout else list(own.tables)
    if not layout:
        views += [name for candidate in registry.layouts() for name in candidate.alone.get(sample.kind, ())]

    def reading(view: str, **more: Any) -> Run:
        return lambda path, options: lw.read(path, view=view, columns="*", **more, **options)

    for view in dict.fromkeys(views):
        yield f"read {view}", reading(view, mode="DROPMALFORMED")
    if layout:
        for view in own.views:
            yield f"as_system {view}", reading(view, mode="AS_SYSTEM")
    yield "verify", lambda path, options: lw.verify(path, as_system=True if layout else None, **options)
    yield "inspect", lambda path, options: lw.inspect(path, **options)
    yield "explain", lambda path, options: lw.explain(path, limit=3, **options)
    # A comparison by rows reads a view, which is tested above.
    for by in ("frames", "files"):
        yield f"diff {by}", lambda path, options, by=by: lw.diff(path, sample.paths[-1], by=by, **options)


_names = itertools.count()


def writing(sample: Sample, folder: Path) -> Run:
    """Write the rows of a file: all columns, the core columns, and with the other tables."""

    def run(path: Path, options: Mapping[str, Any]) -> None:
        rows = lw.read(path, columns="*", mode="DROPMALFORMED")
        target = folder / f"{next(_names)}" / path.name
        target.parent.mkdir()
        lw.write(rows, target, sample.kind, **options)
        lw.write(lw.read(path), target, sample.kind, mode="overwrite", **options)
        frames, file = (lw.read(path, view=view, columns="*") for view in ("frames", "file"))
        lw.write(rows, target, sample.kind, frames=frames, file=file, mode="overwrite", **options)

    return run


def outcome(run: Run, path: Path, name: str, options: Mapping[str, Any], names: set[str]) -> str:
    names.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run(path, options)
        except UsageError as error:
            if error.message.startswith(("option", "unknown option")) or fold(name) not in names:
                return REFUSED
        except LogwrightError:
            pass
    return USED if fold(name) in names else IGNORED


ARGUMENTS = ("clean", "version", "replicas")
"""Options of a layout that are arguments of other verbs, which have separate tests."""


def ignored(sample: Sample, folder: Path) -> dict[str, list[str]]:
    """Return, by option, the verbs that accept it and do not use it for any of the paths."""
    out: dict[str, list[str]] = {}
    every = list(verbs(sample))
    if not hasattr(registry.find(sample.kind), "inner_staging"):
        every.append(("write", writing(sample, folder)))
    with reads() as names:
        for name, option in all_options(sample.kind).items():
            for verb, run in every if name not in ARGUMENTS else ():
                options = {
                    name: value(option, sample.values),
                    **sample.beside.get((verb.split()[0], name), {}),
                }
                if all(outcome(run, path, name, options, names) == IGNORED for path in sample.paths):
                    out.setdefault(name, []).append(verb)
    return out
