"""Try the correction of flipped bits on every kind of file: `python -m logwright.roundtrip.corrections --tries 1000`.
With `--by-field`, single flipped bits are counted by the field that they are in.

A correction is right if the corrected byte and the range that is proved with it have their original bytes. That range is the frame, except in
formats in which no checksum covers most of a frame. One wrong correction fails the run. The other outcomes are counted: the file is unchanged,
a part of the damage is left, the rest of a frame of which a part was corrected is not as it was, or no damage is detected, because no
checksum covers the bit.
"""

from __future__ import annotations

import random
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import click
import numpy as np

from logwright.codec.engine.correct import Corrector, Fix, patched
from logwright.codec.explain import Focus, Node
from logwright.codec.fault import Severity
from logwright.codec.frames.walk import Hole, Stretch, Walk
from logwright.codec.window import Window
from logwright.readers.source import Source
from logwright.roundtrip.sample import Sample
from logwright.roundtrip.specimen import Specimen

DAMAGE = ("1 bit", "2 bits", "3 bits", "8 bits", "zeroed", "overwritten")


class Outcome(StrEnum):
    """The outcome for a damaged file."""

    RESTORED = "restored"
    LEFT = "left"
    PART = "part"
    UNSEEN = "unseen"
    WRONG = "wrong"


def damaged(data: bytes, kind: str, seed: int) -> bytes:
    """Return the bytes with random damage of one of the kinds `DAMAGE`. Flipped bits are at most 64 bytes apart."""
    chance = random.Random(f"{kind} {seed}")
    out = bytearray(data)
    start = chance.randrange(len(data))
    stop = min(len(data), start + 64)
    if kind.endswith(("bit", "bits")):
        count = min(int(kind.split()[0]), 8 * (stop - start))
        for bit in chance.sample(range(8 * start, 8 * stop), count):
            out[bit // 8] ^= 1 << bit % 8
    else:
        stop = min(stop, start + chance.randint(1, 64))
        out[start:stop] = bytes(stop - start) if kind == "zeroed" else chance.randbytes(stop - start)
    return bytes(out)


def corrections(specimen: Specimen, touched: tuple[int, int] | None = None) -> tuple[list[Fix], bool]:
    """Return the corrections of a file, and whether it has damage or anything else to report.

    `touched`: the range of the file that is damaged. Other frames are then decoded only if decoding checks their checksums.
    """
    codec, context = specimen.codec, specimen.context()
    columns = codec.tables["rows"].select(None)
    seen = False
    corrected: list[Fix] = []
    with specimen.open() as source:
        corrector = Corrector(source, codec, context)
        for step in Walk(source, codec, context):
            if isinstance(step, Hole):
                seen |= step.fault.severity is not Severity.INFO
                corrected += corrector.correct(step)[0]
                continue
            faults, frames = list(step.faults), step.frames
            if touched is not None and not codec.refuses:
                start, stop = (place - step.window.offset for place in touched)
                frames = frames.pick((frames.start < stop) & (start < frames.end))
            for decoded in codec.decode(step.window, frames, "rows", columns, context):
                faults += [fault for _, fault in decoded.faults]
            seen |= any(fault.severity is not Severity.INFO for fault in faults)
            corrected += [correction for _, correction in corrector.frames(step, faults)]
        of_file = corrector.of_file()
    return corrected if of_file is None else [*corrected, of_file[1]], seen


def outcome(specimen: Specimen, data: bytes, starts: Sequence[int] = ()) -> Outcome:
    """Correct `data`, a damaged copy of the specimen, and compare. `starts`: where the frames of the specimen start, and where it ends."""
    right = specimen.all_bytes()
    changed = np.flatnonzero(np.frombuffer(data, np.uint8) != np.frombuffer(right, np.uint8))
    touched = (int(changed[0]), int(changed[-1]) + 1) if len(changed) else (0, 0)
    corrected, seen = corrections(replace(specimen, path=None, data=data), touched)
    after = patched(np.frombuffer(data, np.uint8), 0, corrected).tobytes()
    part = False
    for correction in corrected:
        proved = slice(correction.frame, correction.frame + correction.length)
        if after[correction.offset] != right[correction.offset] or after[proved] != right[proved]:
            return Outcome.WRONG
        i = bisect_right(starts, correction.offset)
        frame = slice(starts[i - 1], starts[i]) if 0 < i < len(starts) else proved
        part |= after[frame] != right[frame]
    if after == right:
        return Outcome.RESTORED
    if part:
        return Outcome.PART
    return Outcome.LEFT if seen else Outcome.UNSEEN


def _starts(specimen: Specimen) -> list[int]:
    """Return where the frames of a file start, and where it ends."""
    with specimen.open() as source:
        return [*(start for start, _ in _frames(specimen, source, specimen.context())), source.size]


def outcomes(specimen: Specimen, kind: str, seeds: Sequence[int]) -> Counter[Outcome]:
    """Return how often each outcome occurs."""
    data, starts = specimen.all_bytes(), _starts(specimen)
    return Counter(outcome(specimen, damaged(data, kind, seed), starts) for seed in seeds if data)


def _frames(specimen: Specimen, source: Source, context: Any) -> Iterator[tuple[int, int]]:
    """Yield where each frame of a file starts and ends."""
    for step in Walk(source, specimen.codec, context):
        if isinstance(step, Stretch):
            base = step.window.offset
            for start, end in zip(step.frames.start.tolist(), step.frames.end.tolist(), strict=True):
                yield start + base, end + base


def fields(specimen: Specimen) -> Iterator[tuple[int, int, str]]:
    """Yield the fields of a file, in order: start, end and path, without the numbers of list items."""
    context = specimen.context()
    at = 0
    with specimen.open() as source:
        pieces = list(_frames(specimen, source, context))
        for start, end, frame in [*((*piece, True) for piece in pieces), (source.size, source.size, False)]:
            if at < start:
                yield from _leaves(specimen, source, at, start, frame=False, context=context)
            yield from _leaves(specimen, source, start, end, frame=frame, context=context)
            at = end


def _leaves(
    specimen: Specimen, source: Source, start: int, end: int, *, frame: bool, context: Any
) -> Iterator[tuple[int, int, str]]:
    window = Window(source.pread(start, end - start), start, source.size)

    def below(node: Node, path: str) -> Iterator[tuple[int, int, str]]:
        name = "" if node.name.startswith("[") else node.name
        path = f"{path}.{name}" if path and name else path or name
        if not node.children:
            yield node.start, node.end, path
        for child in node.children:
            yield from below(child, path)

    for node in specimen.codec.explain(window, context, Focus(), frame=frame) if end > start else ():
        yield from below(node, "")


def by_field(specimen: Specimen, bits: Sequence[int]) -> dict[str, Counter[Outcome]]:
    """Flip each of these bits, and return by field how often each outcome occurs."""
    data, frame_starts = bytearray(specimen.all_bytes()), _starts(specimen)
    ranges = [field for field in fields(specimen) if field[0] < field[1]]
    starts = [start for start, _, _ in ranges]
    out: dict[str, Counter[Outcome]] = {path: Counter() for _, _, path in ranges}
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
        path = ranges[bisect_right(starts, bit // 8) - 1][2]
        out[path][outcome(specimen, bytes(data), frame_starts)] += 1
        data[bit // 8] ^= 1 << bit % 8
    return out


def table(
    samples: Sequence[Sample], seeds: Sequence[int], kinds: Sequence[str]
) -> Iterator[tuple[str, str, Counter[Outcome]]]:
    """Yield the outcomes of each sample with a checksum and each of these kinds of damage."""
    for sample in samples:
        specimen = sample.specimen()
        if specimen.codec.checksum:
            for kind in kinds:
                yield sample.label, kind, outcomes(specimen, kind, seeds)


def field_table(samples: Sequence[Sample], tries: int) -> Iterator[tuple[str, str, Counter[Outcome]]]:
    """Yield the outcomes of single flipped bits for each sample: all fields together, then each field. The bits are random, or all
    if there are not more."""
    for sample in samples:
        specimen = sample.specimen()
        size = 8 * len(specimen.all_bytes())
        bits = (
            range(size) if size <= tries else sorted(random.Random(sample.label).sample(range(size), tries))
        )
        counted = by_field(specimen, bits)
        yield sample.label, "", sum(counted.values(), Counter())
        yield from ((sample.label, path, counts) for path, counts in counted.items())


@click.command()
@click.option("--tries", default=1000, help="Damaged copies of each sample and kind of damage.")
@click.option("--seed", default=0, help="The first random seed; each copy has its own.")
@click.option("--only", default="", help="Only samples with this text in their name.")
@click.option(
    "--damage", "kinds", multiple=True, type=click.Choice(DAMAGE), help="Kinds of damage; all by default."
)
@click.option("--primary", is_flag=True, help="Only the kinds of files that hold the rows of a store.")
@click.option("--by-field", is_flag=True, help="Flip single bits, and count by field.")
def main(tries: int, seed: int, only: str, kinds: Sequence[str], primary: bool, by_field: bool) -> None:
    """Print a table, and exit with status 1 if a correction was wrong."""
    from logwright.roundtrip.specimens import PRIMARY_SAMPLES, SAMPLES

    samples = PRIMARY_SAMPLES if by_field or primary else (*PRIMARY_SAMPLES, *SAMPLES)
    chosen = [sample for sample in samples if only in sample.label]
    rows = (
        field_table(chosen, tries) if by_field else table(chosen, range(seed, seed + tries), kinds or DAMAGE)
    )
    wrong = 0
    print(f"{'file':<40} {'field' if by_field else 'damage':<44} " + " ".join(f"{o:>9}" for o in Outcome))
    for label, name, counts in rows:
        print(f"{label:<40} {name:<44} " + " ".join(f"{counts[o]:>9,}" for o in Outcome), flush=True)
        wrong += counts[Outcome.WRONG]
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
