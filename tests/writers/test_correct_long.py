"""Beyond 16 KiB a CRC-32C proves a bit only if the frame cannot be decoded without the correction."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from logwright.codec.kernels.bitflip import CRC32C
from logwright.codec.kernels.crc32c import slicing
from logwright.roundtrip.corrections import Outcome, outcome
from logwright.roundtrip.sample import Sample
from logwright.roundtrip.specimen import Specimen

CRC_END = 21
"""Where the bytes of a batch start that its CRC-32C covers."""


def syndromes(size: int) -> npt.NDArray[np.int64]:
    """Return for each bit of `size` bytes how it changes their CRC-32C."""
    table = slicing(CRC32C, 1)
    changes = table[1 << np.arange(8)]
    out = np.empty((size, 8), np.int64)
    for place in reversed(range(size)):
        out[place] = changes
        changes = table[changes & 255] ^ changes >> 8
    return out.ravel()


def triples_like_one(size: int, chance: random.Random) -> Iterator[tuple[int, int, int]]:
    """Yield three bits within 64 bytes that change a CRC-32C as a single bit elsewhere in the `size` bytes does."""
    all_changes = syndromes(size)
    ordered = np.sort(all_changes)
    second, third = np.triu_indices(512, 1)
    while True:
        low = 8 * chance.randrange(size - 64)
        changes = all_changes[low : low + 512]
        first = chance.randrange(512)
        together = changes[first] ^ changes[second] ^ changes[third]
        place = np.searchsorted(ordered, together) % len(ordered)
        fits = (ordered[place] == together) & (second != first) & (third != first)
        for i in np.flatnonzero(fits)[:2].tolist():
            yield low + first, low + int(second[i]), low + int(third[i])


def value(n: int, *, packs: bool) -> bytes:
    chance = random.Random(n)
    if not packs:
        return chance.randbytes(1000)
    words = [chance.choice(("order", "payment", "failed", "shipped", "retry", "paris")) for _ in range(12)]
    return json.dumps(
        {"id": n, "user": chance.randrange(10**6), "amount": chance.random(), "text": words}
    ).encode()


def log(compression: str, *, packs: bool) -> tuple[Specimen, int]:
    """Return a log of batches of more than 16 KiB, and the size of the first one."""
    count = 900 if packs else 60
    rows = [{"offset": n, "value": value(n, packs=packs), "timestamp": 1} for n in range(count)]
    options = {"batch.size": 100_000 if packs else 25_000, "compression.type": compression}
    specimen = Sample("kafka.log", f"{0:020d}.log", rows, options, {"next_base": count}).specimen()
    size = int(specimen.read("frames", columns=["size"]).table["size"][0].as_py())
    assert size > 17_000
    return specimen, size


def flipped(specimen: Specimen, *bits: int) -> bytes:
    data = bytearray(specimen.all_bytes())
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


@pytest.mark.alike
@pytest.mark.parametrize("compression", ["none", "snappy", "lz4", "zstd"])
def test_three_bits_that_look_like_one_are_left(compression: str) -> None:
    """The values do not compress, so that they decompress whatever their bits are."""
    specimen, size = log(compression, packs=False)
    triples = triples_like_one(size - CRC_END, random.Random(compression))
    for _ in range(4):
        bits = [8 * CRC_END + bit for bit in next(triples)]
        assert outcome(specimen, flipped(specimen, *bits)) in (Outcome.LEFT, Outcome.UNSEEN)


@pytest.mark.parametrize(("compression", "least"), [("lz4", 1), ("zstd", 5), ("gzip", 12)])
def test_bit_that_prevents_decompression_is_corrected(compression: str, least: int) -> None:
    """gzip has a checksum of the content. With lz4 and zstd, a flipped bit often gives other values that decompress as well."""
    specimen, size = log(compression, packs=True)
    chance = random.Random(compression)
    bits = [chance.randrange(8 * (CRC_END + 49), 8 * size) for _ in range(12)]
    counts = [outcome(specimen, flipped(specimen, bit)) for bit in bits]
    assert counts.count(Outcome.RESTORED) >= least
    assert Outcome.WRONG not in counts


def test_bit_in_the_structure_of_a_long_batch_is_corrected() -> None:
    """With another number of records the batch cannot be decoded."""
    specimen, _ = log("none", packs=False)
    assert outcome(specimen, flipped(specimen, 8 * 60)) is Outcome.RESTORED
