"""Try the correction of flipped bits on every kind of file: `python -m logwright.roundtrip.corrections --tries 1000`.

A correction is right if the frame that it makes sound has its original bytes. One wrong correction fails the run. The other outcomes are
counted: the file is as before, a part of the damage is left, or no damage is seen at all, because no checksum covers the bit.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

import click
import numpy as np

from logwright.codec.engine.correct import Correction, Corrector, patched
from logwright.codec.frames.walk import Hole, Walk
from logwright.roundtrip.sample import Sample
from logwright.roundtrip.specimen import Specimen

DAMAGE = ("1 bit", "2 bits", "3 bits", "8 bits", "zeroed", "overwritten")


class Outcome(StrEnum):
    """What became of a damaged file."""

    RESTORED = "restored"
    LEFT = "left"
    UNSEEN = "unseen"
    WRONG = "wrong"


def damaged(data: bytes, kind: str, seed: int) -> bytes:
    """Return bytes with random damage of one of the kinds `DAMAGE`; flipped bits are within 64 bytes of each other."""
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


def corrections(specimen: Specimen) -> tuple[list[Correction], bool]:
    """Return the corrections of a file, and whether it has damage."""
    context = specimen.context()
    with specimen.open() as source:
        corrector = Corrector(source, specimen.codec, context)
        holes = [step for step in Walk(source, specimen.codec, context) if isinstance(step, Hole)]
        return [made for hole in holes for made in corrector.correct(hole)[0]], bool(holes)


def outcome(specimen: Specimen, data: bytes) -> Outcome:
    """Correct `data`, a damaged copy of the specimen, and compare."""
    right = specimen.all_bytes()
    made, seen = corrections(replace(specimen, path=None, data=data))
    after = patched(np.frombuffer(data, np.uint8), 0, made).tobytes()
    for correction in made:
        frame = slice(correction.frame, correction.frame + correction.length)
        if after[frame] != right[frame]:
            return Outcome.WRONG
    if after == right:
        return Outcome.RESTORED
    return Outcome.LEFT if seen else Outcome.UNSEEN


def outcomes(specimen: Specimen, kind: str, seeds: Sequence[int]) -> Counter[Outcome]:
    """Return how often each outcome occurs."""
    data = specimen.all_bytes()
    return Counter(outcome(specimen, damaged(data, kind, seed)) for seed in seeds if data)


def table(samples: Sequence[Sample], tries: int) -> Iterator[tuple[str, str, Counter[Outcome]]]:
    """Yield the outcomes of each sample with a checksum and each kind of damage."""
    for sample in samples:
        specimen = sample.specimen()
        if specimen.codec.checksum:
            for kind in DAMAGE:
                yield sample.label, kind, outcomes(specimen, kind, range(tries))


@click.command()
@click.option("--tries", default=1000, help="Damaged copies of each sample and kind of damage.")
@click.option("--only", default="", help="Only samples with this text in their name.")
def main(tries: int, only: str) -> None:
    """Print a table, and exit with status 1 if a correction was wrong."""
    from logwright.roundtrip.specimens import SAMPLES

    chosen = [sample for sample in SAMPLES if only in sample.label]
    wrong = 0
    print(f"{'file':<44} {'damage':<12} " + " ".join(f"{outcome:>9}" for outcome in Outcome))
    for label, kind, counts in table(chosen, tries):
        print(
            f"{label:<44} {kind:<12} " + " ".join(f"{counts[outcome]:>9,}" for outcome in Outcome), flush=True
        )
        wrong += counts[Outcome.WRONG]
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
