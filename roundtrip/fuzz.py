"""Fuzzing: a file of any bytes is read to its end, and all reports about it are consistent.

`fuzz_one` is the target, for any driver: it takes bytes, and raises `BrokenPromise` (or an unexpected exception) for a bug. `fuzz` drives
it with mutated samples: flipped bits, extreme numbers in fields with or without a fixed checksum, and pieces that are removed, repeated,
exchanged or taken from other files. `python -m logwright.roundtrip.fuzz CODEC --seconds N --seed S` runs it with bounds-checked kernels,
and saves a file that breaks a promise in the working directory.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec import registry
from logwright.codec.describe import Field, Int, Struct
from logwright.codec.fault import DamageError, LogwrightError, UnsupportedError, UsageError
from logwright.codec.frames.walk import Walk
from logwright.readers.stream import CORRUPT, Mode
from logwright.roundtrip import laws
from logwright.roundtrip.compare import tables_differ
from logwright.roundtrip.specimen import Read, Specimen, attempt
from logwright.roundtrip.specimens import samples
from logwright.roundtrip.trust import BrokenPromise, Figures, in_time

_SMALL = 4096
"""The smallest window."""
_LARGEST = 1 << 16
"""The maximum size of a mutated file in bytes."""
_EXTREMES = (
    0,
    1,
    -1,
    2,
    7,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    1 << 31,
    (1 << 31) - 1,
    (1 << 63) - 1,
    -(1 << 63),
    -2,
    -(1 << 31),
)
_STORED = {field.name for field in CORRUPT}

Mutation = Callable[[random.Random, bytearray, Sequence[bytes], Struct | None], None]


def fuzz_one(codec: str, data: bytes, name: str | None = None) -> None:
    """Read a file of any bytes in every mode, window and table.

    Raises `BrokenPromise` unless: only FAILFAST raises, for damage or unsupported data; the other modes return the same rows for all
    window sizes; the damaged ranges are in order and cover the file together with the frames; and encoding restores the file if the
    codec preserves damaged bytes.
    """
    specimen = Specimen.of(data, codec, name or samples(codec)[0].name)
    results = {mode: attempt(specimen, mode) for mode in (Mode.FAILFAST, Mode.PERMISSIVE, Mode.DROPMALFORMED)}
    strict, permissive, dropped = results.values()
    if isinstance(dropped, UnsupportedError):
        return
    for mode, item in results.items():
        if isinstance(item, LogwrightError) and not (
            mode is Mode.FAILFAST and isinstance(item, DamageError | UnsupportedError)
        ):
            raise BrokenPromise(f"{mode} raised {type(item).__name__}: {item}")
    assert isinstance(permissive, Read)
    assert isinstance(dropped, Read)
    if isinstance(strict, Read) == bool(dropped.report.errors or dropped.report.unsupported):
        raise BrokenPromise(
            f"FAILFAST {'did not raise' if isinstance(strict, Read) else 'raised'}, and the report says otherwise"
        )
    text = laws.ranges(permissive, data, None)
    if text:
        raise BrokenPromise(text)
    rows = permissive.table.filter(pc.is_null(permissive.table["_corrupt_offset"]))
    _same("PERMISSIVE and DROPMALFORMED", rows.drop_columns(sorted(_STORED)), dropped.table)
    if not specimen.codec.single_frame:
        _same("windows", specimen.read(columns=None, window=_SMALL).table, dropped.table)
    for table in ("frames", "file"):
        specimen.read(table, mode=Mode.PERMISSIVE)
    with specimen.open() as source:
        for check in (False, True):
            list(Walk(source, specimen.codec, specimen.context(), check=check, step=_SMALL))
        list(Walk(source, specimen.codec, specimen.context(), check=False, step=_SMALL).starts())
    if "raw" in specimen.codec.tables["frames"].names(detail=True):
        verdict = laws.decode_encode(data, codec, name=specimen.name)
        if not verdict:
            raise BrokenPromise(str(verdict))


def _same(text: str, left: pa.Table, right: pa.Table) -> None:
    differ = tables_differ(left.cast(right.schema), right)
    if differ is not None:
        raise BrokenPromise(f"{text} differ: {differ[1]}")


# Mutations


def _flip(rng: random.Random, data: bytearray, pool: Sequence[bytes], struct: Struct | None) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _put(rng: random.Random, data: bytearray, pool: Sequence[bytes], struct: Struct | None) -> None:
    """Overwrite a number of one to eight bytes with an extreme or random value."""
    width = rng.choice((1, 2, 4, 8))
    if len(data) >= width:
        value = rng.choice(_EXTREMES) if rng.random() < 0.7 else rng.getrandbits(64)
        at = rng.randrange(len(data) - width + 1)
        data[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(
            width, rng.choice(("big", "little"))
        )


def _cut(rng: random.Random, data: bytearray, pool: Sequence[bytes], struct: Struct | None) -> None:
    at = rng.randint(0, len(data))
    del data[at : at + rng.choice((1, 7, 64, len(data)))]


def _insert(rng: random.Random, data: bytearray, pool: Sequence[bytes], struct: Struct | None) -> None:
    """Insert a piece of this file or another one, zeros, or random bytes, or overwrite as much with it."""
    other = rng.choice((bytes(data), rng.choice(pool), bytes(300), rng.randbytes(60)))
    at, start = rng.randint(0, len(data)), rng.randint(0, len(other))
    piece = other[start : start + rng.choice((1, 8, 61, 200, len(other)))]
    if rng.random() < 0.5:
        data[at : at + len(piece)] = piece
    else:
        data[at:at] = piece


def _fill(rng: random.Random, data: bytearray, pool: Sequence[bytes], struct: Struct | None) -> None:
    """Overwrite more than a window with zeros, random bytes, or copies of a file, or insert as much."""
    size = rng.randrange(_SMALL // 2, 3 * _SMALL)
    piece = rng.choice((bytes(size), rng.randbytes(size), rng.choice(pool) * (1 + rng.randrange(4))))
    at = rng.randint(0, len(data))
    data[at : at + len(piece) * rng.randrange(2)] = piece


def _field(rng: random.Random, data: bytearray, pool: Sequence[bytes], struct: Struct | None) -> None:
    """Change a number of a structure's head at a possible start of the structure, and in half of the cases fix its checksum."""
    if struct is None or not struct.head_size:
        return _put(rng, data, pool, struct)
    start = _frame_starts(data, struct, rng)
    if start is None:
        return None
    fields = [
        item
        for item in struct.fields
        if item.name in (struct.head_dtype.names or ()) and isinstance(item.type, Int)
    ]
    field = rng.choice(fields)
    at = start + struct.offset(field.name)
    width = field.type.min_size
    value = (
        rng.choice(_EXTREMES)
        if rng.random() < 0.5
        else int.from_bytes(data[at : at + width], "big") + rng.randint(-9, 9)
    )
    data[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "big")
    # The checksum of damaged bytes longer than a window is not computed.
    if rng.random() < 0.7 and _end(data, start, struct) - start < _SMALL:
        reseal(data, start, struct)
    return None


def _frame_starts(data: bytearray, struct: Struct, rng: random.Random) -> int | None:
    """Return a start of the structure, found by walking sizes from the start of the file."""
    starts: list[int] = []
    at = 0
    while at + struct.head_size <= len(data) and len(starts) < 1000:
        starts.append(at)
        at = _end(data, at, struct)
    return rng.choice(starts) if starts else None


def _end(data: bytearray, start: int, struct: Struct) -> int:
    """Return the declared end of the structure at `start`, or the end of the file if that is implausible."""
    sizes = next((item for item in struct.fields if item.sizes), None)
    if sizes is None:
        return start + struct.min_size if struct.min_size == struct.max_size else len(data)
    at = start + struct.offset(sizes.name)
    value = _number(data, at, sizes)
    return at + sizes.type.min_size + value if 0 < value <= len(data) - at else len(data)


def _number(data: bytearray, at: int, field: Field) -> int:
    return int(field.type.unpack(bytes(data[at : at + field.type.min_size]), 0, field.type.min_size, {})[0])


def reseal(data: bytearray, start: int, struct: Struct) -> None:
    """Fix the checksums of the structure at `start`, up to its declared end."""
    end = min(_end(data, start, struct), len(data))
    for item in struct.fields:
        if item.checksum is not None and not item.until:
            algorithm, first = item.checksum
            at = start + struct.offset(item.name)
            covered = bytes(data[start + struct.offset(first) : end])
            data[at : at + item.type.min_size] = item.type.pack(algorithm(covered), {})


_MUTATIONS: tuple[Mutation, ...] = (_flip, _put, _cut, _insert, _fill, _field, _field)


def mutated(rng: random.Random, pool: Sequence[bytes], struct: Struct | None) -> bytes:
    """Return one of the files with one to six changes."""
    data = bytearray(rng.choice(pool))
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        rng.choice(_MUTATIONS)(rng, data, pool, struct)
    return bytes(data[:_LARGEST])


def fuzz(
    codec: str,
    *,
    seconds: float | None = None,
    count: int | None = None,
    seed: int = 0,
    more: Sequence[bytes] = (),
) -> Figures:
    """Mutate samples of a codec (and `more` files) for a time or a number of cases. The same seed gives the same files.

    Raises `BrokenPromise`, which has the file as `data`.
    """
    known = samples(codec)
    pool = [*(recipe.specimen().all_bytes() for recipe in known), *more]
    structures = registry.get(codec).structures
    rng, done, start = random.Random(f"{codec} {seed}"), 0, time.monotonic()
    while (count is None or done < count) and (seconds is None or time.monotonic() - start < seconds):
        data = mutated(rng, pool, structures[0] if structures else None)
        try:
            with in_time():
                fuzz_one(codec, data, known[0].name)
        except Exception as error:
            broken = BrokenPromise(f"{codec}, seed {seed}, file {done}: {type(error).__name__}: {error}")
            broken.data = data
            raise broken from error
        done += 1
    return Figures(mutations=done)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz codecs from the command line. Returns 1 if a promise is broken, and saves the file."""
    parser = argparse.ArgumentParser(
        prog="python -m logwright.roundtrip.fuzz",
        description="Read mutated files of a format, to its end or to an error.",
    )
    parser.add_argument("codecs", nargs="+", metavar="CODEC", help='"all" for every codec')
    parser.add_argument("--seconds", type=float, default=60.0, help="for each codec (60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--file", type=Path, help="try this one file instead")
    parsed = parser.parse_args(arguments)
    if "NUMBA_BOUNDSCHECK" not in os.environ and "NUMBA_DISABLE_JIT" not in os.environ:
        # Both variables are read when the kernels are first imported.
        os.environ.update(NUMBA_BOUNDSCHECK="1", LOGWRIGHT_INTERPRET_BELOW="0")
        words = list(sys.argv[1:] if arguments is None else arguments)
        os.execv(sys.executable, [sys.executable, "-m", "logwright.roundtrip.fuzz", *words])
    names = [item.name for item in registry.codecs()] if "all" in parsed.codecs else parsed.codecs
    try:
        for codec in names:
            if parsed.file is not None:
                fuzz_one(codec, parsed.file.read_bytes())
                continue
            print(f"{codec}: {fuzz(codec, seconds=parsed.seconds, seed=parsed.seed)}", flush=True)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPromise as error:
        print(f"broken: {error}", file=sys.stderr)
        if error.data is not None:
            place = Path(f"broken-{codec}-{hashlib.sha256(error.data).hexdigest()[:12]}")
            place.write_bytes(error.data)
            print(f"The file is {place}: try it again with --file", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
