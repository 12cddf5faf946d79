"""Which options a verb uses: each option that is declared anywhere is given to each verb and view, and is either read by what runs
or refused."""

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
from logwright.codec.mending import Strategy
from logwright.codec.option import Option, Options, fold
from logwright.readers.usage import declarations, every_option

USED, REFUSED, IGNORED = "used", "refused", "ignored"


@dataclass(frozen=True)
class Sample:
    """What options are tried on: paths of one kind, with different content so that each option matters to one of them."""

    kind: str
    paths: Sequence[Path]
    drop: str
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values of options that have no default."""
    beside: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Other options without which one has no meaning, for writing."""
    rows: Mapping[str, Any] = field(default_factory=dict)
    """What is read to be written, for layouts: options of `read`."""


@contextmanager
def reads() -> Iterator[set[str]]:
    """Collect the names of the given options whose values are asked for."""
    found: set[str] = set()
    item, given = Options.__getitem__, Options.given

    def get(self: Options, name: str) -> Any:
        if given(self, name):
            found.add(fold(name))
        return item(self, name)

    def asked(self: Options, name: str) -> bool:
        if given(self, name):
            found.add(fold(name))
        return given(self, name)

    Options.__getitem__, Options.given = get, asked  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Options.__getitem__, Options.given = item, given  # type: ignore[method-assign]


def value(option: Option, values: Mapping[str, Any]) -> Any:
    if option.name in values:
        return values[option.name]
    if option.choices:
        return option.choices[-1]
    if option.default is not None:
        return option.default
    return max(option.low or 1, 1)


def all_options(kind: str) -> dict[str, Option]:
    """Every option of the system, those of this kind first."""
    own = registry.find(kind)
    found: dict[str, Option] = {}
    for option in every_option(own):
        found.setdefault(option.name, option)
    return found


Run = Callable[[Path, Mapping[str, Any]], Any]


def verbs(sample: Sample) -> Iterator[tuple[str, Run]]:
    """Each verb, each view and each strategy."""
    own: Any = registry.find(sample.kind)
    layout = hasattr(own, "inner_staging")
    views = [*own.views, "rows", "frames", "file", "files"] if layout else list(own.tables)
    if not layout:
        views += [name for one in registry.layouts() for name in one.alone.get(sample.kind, ())]

    def reading(view: str, **more: Any) -> Run:
        return lambda path, options: lw.read(path, view=view, columns="*", **more, **options)

    for view in dict.fromkeys(views):
        yield f"read {view}", reading(view, mode="DROPMALFORMED")
    if layout:
        for view in own.views:
            yield f"as_system {view}", reading(view, mode="AS_SYSTEM")
    yield "verify", lambda path, options: lw.verify(path, as_system=True if layout else None, **options)
    yield "inspect", lambda path, options: lw.inspect(path, **options)
    yield "explain", lambda path, options: [lw.explain(one, limit=3, **options) for one in _inside(path)]
    for by in ("rows", "frames", "files"):
        yield f"diff {by}", lambda path, options, by=by: lw.diff(path, path, by=by, **options)
    yield "roundtrip", lambda path, options: lw.roundtrip(path, law="encoded_anew", **options)
    for strategy in Strategy:
        yield (
            f"repair {strategy}",
            lambda path, options, strategy=strategy: lw.repair(
                path, dry_run=True, strategy=str(strategy), **options
            ),
        )
    yield "rebuild", lambda path, options: lw.rebuild(path, dry_run=True, **options)
    yield (
        "edit",
        lambda path, options: lw.edit(path, dry_run=True, drop=sample.drop, allow_no_match=True, **options),
    )


def _inside(path: Path) -> list[Path]:
    return [path]


_names = itertools.count()


def writing(sample: Sample, folder: Path) -> Run:
    """Write rows, and for files with the other tables too."""
    layout = hasattr(registry.find(sample.kind), "inner_staging")

    def run(path: Path, options: Mapping[str, Any]) -> None:
        rows = lw.read(path, columns="*", mode="DROPMALFORMED", **(sample.rows if layout else {}))
        name = f"{next(_names)}"
        target = folder / name / path.name
        target.parent.mkdir()
        lw.write(rows, target, sample.kind, **options)
        if not layout:
            frames, file = (lw.read(path, view=view, columns="*") for view in ("frames", "file"))
            lw.write(rows, target, sample.kind, frames=frames, file=file, mode="overwrite", **options)

    return run


def outcome(run: Run, path: Path, name: str, options: Mapping[str, Any]) -> str:
    with reads() as found, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run(path, options)
        except UsageError as error:
            if error.message.startswith(("option", "unknown option")) or fold(name) not in found:
                return REFUSED
        except LogwrightError:
            pass
    return USED if fold(name) in found else IGNORED


def ignored(sample: Sample, folder: Path) -> dict[str, list[str]]:
    """By option, the verbs that take it and use it with none of the paths."""
    out: dict[str, list[str]] = {}
    declared = {fold(one.name) for one, _ in declarations(registry.find(sample.kind))}
    useless = set(declared)
    every = [*verbs(sample), ("write", writing(sample, folder))]
    for name, option in all_options(sample.kind).items():
        for verb, run in every:
            options = {name: value(option, sample.values)}
            if verb == "write":
                options |= sample.beside.get(name, {})
            results = []
            for path in sample.paths:
                results.append(outcome(run, path, name, options))
                if results[-1] != IGNORED:
                    break
            if results[-1] == IGNORED:
                out.setdefault(name, []).append(verb)
            if USED in results:
                useless.discard(fold(name))
    for name in useless:
        out.setdefault(name, []).append("all verbs")
    return out
