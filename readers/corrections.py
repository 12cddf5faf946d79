"""Find the flipped bits of files before they are read, for readers that want corrected rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.engine.correct import Corrector, Fix
from logwright.codec.fault import Fault, LogwrightError
from logwright.codec.frames.walk import Hole, Walk
from logwright.readers.corrected import CorrectedDirectory, correctable
from logwright.readers.source import STDIN, Source
from logwright.readers.stream import named
from logwright.readers.target import FileTarget, Target
from logwright.readers.task import codec_options

Found = Mapping[str, Mapping[str, Sequence[Fix]]]
"""Corrections by the path of the target and the name of the file."""


def find_corrections(targets: Sequence[Target]) -> Found:
    """Return the corrections of all targets. Their files with checksums are read once. A file that cannot be read has none."""
    return {target.path: dict(_of(target)) for target in targets}


def _of(target: Target) -> Iterator[tuple[str, Sequence[Fix]]]:
    if isinstance(target, FileTarget):
        # Standard input cannot be read twice.
        if target.source is None and target.path != STDIN:
            with target.open() as source:
                yield target.name, _in_file(source, target.codec, target.options, target.hints)
        return
    for file in target.plan.files:
        if file.codec is not None and correctable(file):
            try:
                with target.directory.open(file.name) as source:
                    hints = target.hints(file.hints)
                    yield file.name, _in_file(source, registry.get(file.codec), target.options, hints)
            except LogwrightError:
                continue  # Reading the rows reports it.


def _in_file(
    source: Source, codec: Codec, options: Mapping[str, Any], hints: Mapping[str, Any]
) -> Sequence[Fix]:
    context = codec.context(
        source.path.rstrip("/").rpartition("/")[2], codec_options(codec, options), **hints
    )
    corrector = Corrector(source, codec, context)
    out: list[Fix] = []
    with named(source):
        for step in Walk(source, codec, context):
            if isinstance(step, Hole):
                out += corrector.correct(step)[0]
                continue
            faults: list[Fault] = []
            if codec.refuses and len(step.frames):
                columns = codec.checked_columns(context)
                for decoded in codec.decode(step.window, step.frames, "rows", columns, context):
                    faults += [fault for _, fault in decoded.faults]
            out += [correction for _, correction in corrector.frames(step, faults)]
        of_file = corrector.of_file()
    return out if of_file is None else [*out, of_file[1]]


def corrected(resolve: Callable[..., list[Target]], by_path: Found, **arguments: Any) -> list[Target]:
    """Resolve targets, and return them with corrections."""
    return [_with(target, by_path.get(target.path, {})) for target in resolve(**arguments)]


def _with(target: Target, by_name: Mapping[str, Sequence[Fix]]) -> Target:
    corrections = {name: of_file for name, of_file in by_name.items() if of_file}
    if not corrections:
        return target
    if isinstance(target, FileTarget):
        return replace(target, corrections=corrections.get(target.name, ()))
    directory = CorrectedDirectory(target.directory, corrections)
    plan = target.layout.plan(directory, target.layout_options)
    return replace(target, directory=directory, plan=plan)


def corrections_in(targets: Sequence[Target]) -> list[tuple[str, Fix]]:
    """Return the corrections of targets, with their files as a report names them."""
    out: list[tuple[str, Fix]] = []
    for target in targets:
        if isinstance(target, FileTarget):
            out += [(target.path, correction) for correction in target.corrections]
            continue
        for name, corrections in target.directory.corrections.items():
            path = target.directory.shown(name) if len(targets) > 1 else name
            out += [(path, correction) for correction in corrections]
    return out
