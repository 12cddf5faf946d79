"""The laws that every codec obeys, as functions that can be called on any file.

1. `encode_decode`: rows encoded and decoded again are the same rows.
2. `decode_encode`: a file decoded and encoded again has the same bytes. `encode_without_payloads`: the same rows, if no stored payload
   is reused.
3. `kernel_equals_description`: the fast kernels read the same values as the description.
4. `any_split`: however a file is split into parts, each row is read once.
5. `damage_is_seen`: after truncating anywhere or flipping any bit there is no crash, no wrong row, and a fault with the position,
   except for bytes that the format's checksums do not cover.

(6, that the real systems agree, is in `oracles`.) A broken law is a false `Verdict` with the position;
nothing is raised. `LogwrightError` is raised for a file that cannot be read at all, or of an unknown
format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.base import Codec
from logwright.codec.describe import Struct
from logwright.codec.fault import DamageError, LogwrightError, UsageError
from logwright.codec.frames.walk import Stretch, Walk
from logwright.codec.window import Frames, Window
from logwright.readers.stream import Mode
from logwright.roundtrip import reference
from logwright.roundtrip.compare import bytes_differ, plain_times, tables_differ
from logwright.roundtrip.specimen import FileOrBytes, Read, Specimen, attempt


@dataclass(frozen=True)
class Verdict:
    """Whether a law held. `difference` describes the first violation, `at` is its byte or row."""

    law: str
    subject: str
    checked: int
    """The number of bytes, rows, frames, sizes or damaged copies that were compared."""
    difference: str = ""
    at: int | None = None

    def __bool__(self) -> bool:
        return not self.difference

    def __str__(self) -> str:
        return f"{self.law}: {self.subject}: {self.difference or f'holds ({self.checked} checked)'}"


def decode_encode(
    source: FileOrBytes, codec: str | Codec | None = None, *, name: str | None = None, **options: Any
) -> Verdict:
    """Law 2: a file decoded and encoded again has the same bytes. `source`: a path, or bytes with `codec` or `name`."""
    specimen = Specimen.of(source, codec, name, **options)
    before = specimen.all_bytes()
    differ = bytes_differ(before, specimen.encode(*specimen.tables()))
    return _verdict("decode_encode", specimen, len(before), differ)


STORED = ("payload",)
"""Columns of a frames table with stored bytes that encoding reuses. Without them everything is encoded again."""


def encode_without_payloads(
    source: FileOrBytes, codec: str | Codec | None = None, *, name: str | None = None, **options: Any
) -> Verdict:
    """Law 2, second half: a file encoded without the stored payloads has the same rows.

    Positions in the file may differ, because compressed sizes depend on the compressor's version.
    """
    specimen = Specimen.of(source, codec, name, **options)
    rows, frames, file = specimen.tables()
    frames = frames.select([item for item in frames.schema.names if item not in STORED])
    actual = specimen.with_bytes(specimen.encode(rows, frames, file)).read("rows").table
    places = getattr(specimen.codec, "places", ("position",))
    columns = [item for item in rows.schema.names if item not in places]
    return _verdict(
        "encode_without_payloads", specimen, len(rows), tables_differ(rows.select(columns), actual)
    )


def encode_decode(rows: Any, codec: str | Codec, *, name: str = "memory", **options: Any) -> Verdict:
    """Law 1: rows encoded with upstream's defaults and these options are decoded to the same rows.

    `rows`: a table. The columns that the codec has are compared, cast to the codec's types.
    """
    specimen = Specimen.of(b"", codec, name, **options)
    table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    schema = specimen.codec.tables["rows"]
    known = [item for item in table.schema.names if item in schema.names(detail=True)]
    if not known:
        raise UsageError(f"{specimen.codec.name} has none of the columns {', '.join(table.schema.names)}")
    expected = table.select(known).cast(schema.schema(known))
    actual = specimen.with_bytes(specimen.encode(table)).read("rows").table
    return _verdict("encode_decode", specimen, len(table), tables_differ(expected, actual))


def any_split(
    source: FileOrBytes,
    codec: str | Codec | None = None,
    *,
    sizes: Iterable[int],
    name: str | None = None,
    **options: Any,
) -> Verdict:
    """Law 4: for each of `sizes`, reading the file in parts of at most that many bytes gives the same rows."""
    specimen = Specimen.of(source, codec, name, **options)
    verdict = partial(Verdict, "any_split", _subject(specimen))
    expected = specimen.read().table
    checked = 0
    done: set[tuple[tuple[int, int], ...]] = set()
    for size in sizes:
        parts = specimen.stretches(max(1, size))
        checked += 1
        if tuple(parts) in done:
            continue
        done.add(tuple(parts))
        joined = pa.concat_tables([specimen.read(start=start, stop=stop).table for start, stop in parts])
        differ = tables_differ(expected, joined)
        if differ is not None:
            text = f"in parts of {size} bytes ({len(parts)} parts): {differ[1]}"
            return verdict(checked, text, differ[0])
    return verdict(checked)


def kernel_equals_description(
    source: FileOrBytes,
    codec: str | Codec | None = None,
    *,
    name: str | None = None,
    limit: int | None = None,
    **options: Any,
) -> Verdict:
    """Law 3: for each frame, the frames table has the fields of the described structure, the scan and the description agree on
    its checksums, and its rows are those of the description.

    Slow: the description is read field by field. A codec without a described structure (such as text) has nothing to compare.
    `limit`: compare only the frames of the first `limit` bytes, at least one. The complete file is read, because the positions of
    frames may be stored at its end.
    """
    specimen = Specimen.of(source, codec, name, **options)
    verdict = partial(Verdict, "kernel_equals_description", _subject(specimen))
    data = specimen.all_bytes()
    if not specimen.codec.structures:
        return verdict(0)
    struct = reference.frame_of(specimen.codec)
    stop_at = len(data) if limit is None or len(data) <= limit else specimen.stretches(limit)[0][1]
    frames = specimen.read("frames", stop=stop_at).table
    scanned = good_frames(specimen, stop_at)
    rows_of = reference.rows_of(specimen.codec)
    described: list[dict[str, Any]] = []
    for i, (start, end) in enumerate(scanned):
        place = f"frame {i} at byte {start}"
        try:
            values, stop = struct.unpack(data, start, end)
            if rows_of is not None and stop == end:
                list(rows_of([values]))
        except reference.Untold as error:
            if specimen.read().report.faults:
                raise DamageError(str(error)) from None
            return verdict(i, f"{place}: {error}; the kernel reads it", start)
        except ValueError as error:  # of a description or a compressed stream
            # If the description cannot read a frame, its rows must be unreadable too.
            lost = specimen.with_bytes(data[start:end]).read().report.faults
            if lost:
                continue
            return verdict(i, f"{place}: description: {error}; the kernel reads it", start)
        if stop != end:
            return verdict(i, f"{place}: ends at byte {stop} by description, {end} by kernel", start)
        differ = _fields_differ(struct, values, frames, i)
        if differ:
            return verdict(i, f"{place}: {differ}", start)
        wrong = struct.check(data, start, end)
        if wrong:
            field, stored, computed = wrong[0]
            text = f"{place}: {field} is {stored}, {computed} by description, but the scan accepted it"
            return verdict(i, text, start)
        described.append(values)
    if rows_of is not None:
        rows = list(rows_of(described))
        kernel = specimen.read("rows", stop=stop_at).table
        # A reference may omit columns, such as a compressed payload.
        names = [name for name in rows[0] if all(name in row for row in rows)] if rows else []
        schema = specimen.codec.tables["rows"].schema(names)
        differ_rows = (
            tables_differ(pa.Table.from_pylist(rows, schema), kernel.select(names)) if rows else None
        )
        if differ_rows is None and len(rows) != len(kernel):
            differ_rows = len(rows), f"{len(rows)} rows by description, {len(kernel)} by kernel"
        if differ_rows is not None:
            return verdict(len(scanned), differ_rows[1], differ_rows[0])
    return verdict(len(scanned))


def damage_is_seen(
    source: FileOrBytes,
    codec: str | Codec | None = None,
    *,
    name: str | None = None,
    cuts: Sequence[int] | None = None,
    flips: Sequence[tuple[int, int]] | None = None,
    guard: Callable[[], AbstractContextManager[None]] = nullcontext,
    **options: Any,
) -> Verdict:
    """Law 5, on copies in memory: `cuts` are truncated sizes, `flips` (byte, bit) pairs; None means all of them.
    Each copy is read inside of a `guard`.

    For each damaged copy and mode: only `LogwrightError`s; no row that the sound file does not have, except
    from a frame with a changed unchecked byte; all rows of untouched checksummed frames; and a fault (optional if
    only unchecked bytes were changed). Dropped bytes are reported exactly: the damaged ranges are
    the changed frames, and together with the others they cover the file.
    """
    specimen = Specimen.of(source, codec, name, **options)
    verdict = partial(Verdict, "damage_is_seen", _subject(specimen))
    data = specimen.all_bytes()
    sound = _Sound(specimen, data)
    checked = 0
    for at in range(len(data)) if cuts is None else cuts:
        checked += 1
        with guard():
            text = sound.cut(at)
        if text:
            return verdict(checked, f"cut to {at} bytes: {text}", at)
    every = ((at, bit) for at in range(len(data)) for bit in range(8))
    for at, bit in every if flips is None else flips:
        checked += 1
        with guard():
            text = sound.flip(at, bit)
        if text:
            return verdict(checked, f"bit {bit} of byte {at} flipped: {text}", at)
    return verdict(checked)


class _Sound:
    """A sound file, and the checks of damaged copies."""

    def __init__(self, specimen: Specimen, data: bytes) -> None:
        self.specimen, self.data = specimen, data
        frames = _scan(specimen, data, specimen.context())
        self.start, self.end = frames.start.tolist(), frames.end.tolist()
        self.rows = [
            self._rows(specimen.read(columns=None, start=a, stop=b).table) for a, b in self._frames()
        ]
        self.every = {row for rows in self.rows for row in rows}
        structures = specimen.codec.structures
        self.checks = _checked(specimen.codec) if structures else None
        self.unchecked = reference.unchecked(specimen.codec)

    def _frames(self) -> Iterable[tuple[int, int]]:
        return zip(self.start, self.end, strict=True)

    def _rows(self, table: pa.Table) -> list[str]:
        # The text of any value is hashable. Times become numbers, because Python's end with the year 9999.
        return [repr(row) for row in plain_times(table).to_pylist()]

    def cut(self, at: int) -> str:
        complete = [i for i, end in enumerate(self.end) if end <= at]
        expected = [row for i in complete for row in self.rows[i]]
        boundary = at == 0 or at in self.end or at == len(self.data)
        start = max((end for end in self.end if end <= at), default=0)
        # Truncating bytes after the last frame loses nothing; the rest of them may look like the start of a frame.
        tail = len(complete) == len(self.end) and at > start
        must_see = not boundary and self.checks is not None and not tail
        lost = None if self.checks is None or tail else [] if boundary else [(start, at)]
        # Truncating a text file may be undetectable. A file of one zero entry has a row, but more zeros are preallocated.
        exact = self.specimen.codec.structures and any(self.data[:at])
        allowed: set[str] | None = set() if exact else None
        return self._judge(self.data[:at], expected, allowed, must_see=must_see, lost=lost)

    def flip(self, at: int, bit: int) -> str:
        damaged = bytearray(self.data)
        damaged[at] ^= 1 << bit
        hit = next((i for i, (start, end) in enumerate(self._frames()) if start <= at < end), None)
        covered = False
        if hit is not None and self.checks is not None:
            covered = self.checks(
                self.data[self.start[hit] : self.end[hit]], self.start[hit], at - self.start[hit]
            )
        if covered and hit is not None and self.unchecked is not None:
            covered = not self.unchecked(self.data[self.start[hit] : self.end[hit]])
        others = [row for i, rows in enumerate(self.rows) if i != hit for row in rows]
        if self.checks is None:
            return self._judge(bytes(damaged), None, None, must_see=False)
        allowed = (
            None if hit is not None and not covered else set(self.rows[hit]) if hit is not None else set()
        )
        # Unchecked bytes determine positions and order of other frames, which may be lost, but not silently.
        lost = [(self.start[hit], self.end[hit])] if hit is not None and covered else None
        return self._judge(bytes(damaged), others if covered else None, allowed, must_see=covered, lost=lost)

    def _judge(
        self,
        data: bytes,
        expected: list[str] | None,
        allowed: set[str] | None,
        *,
        must_see: bool,
        lost: list[tuple[int, int]] | None = None,
    ) -> str:
        copy = self.specimen.with_bytes(data)
        results: dict[Mode, Read | LogwrightError] = {}
        for mode in (Mode.FAILFAST, Mode.PERMISSIVE, Mode.DROPMALFORMED):
            try:
                results[mode] = attempt(copy, mode)
            except Exception as error:
                return f"{mode}: unexpected {type(error).__name__}: {error}"
        dropped = results[Mode.DROPMALFORMED]
        if isinstance(dropped, LogwrightError):
            return "" if not isinstance(dropped, DamageError) else f"{Mode.DROPMALFORMED} raised: {dropped}"
        got = self._rows(dropped.table)
        strange = [row for row in got if row not in self.every]
        if strange and allowed is not None:
            return f"a row that the sound file does not have: {strange[0]}"
        if expected is not None:
            rest = set(got)
            missing = [row for row in expected if row not in rest]
            if missing:
                return f"a row of a sound frame is missing: {missing[0]}"
        faults = dropped.report.faults_total
        if must_see and not faults:
            return "the damage is not reported"
        gone = [row for row in self.every if row not in set(got)] if expected is None and self.checks else []
        if gone and not faults and not strange:
            return f"rows are missing without a fault: {gone[0]}"
        failed = results[Mode.FAILFAST]
        if isinstance(failed, DamageError) and dropped.report.errors == 0:
            return f"{Mode.FAILFAST} raised, and the report has no error: {failed}"
        if not isinstance(failed, LogwrightError) and dropped.report.errors:
            return f"{Mode.FAILFAST} did not raise: {dropped.report.faults[0].detail}"
        return ranges(results[Mode.PERMISSIVE], data, lost)


def ranges(result: Read | LogwrightError, data: bytes, lost: list[tuple[int, int]] | None) -> str:
    """Check that the reported damaged ranges are those that were lost, in order and with the right bytes. Returns "" or an error."""
    if isinstance(result, LogwrightError):
        return ""
    columns = (
        result.table[name].to_pylist() for name in ("_corrupt_offset", "_corrupt_length", "_corrupt_record")
    )
    reported = [column for column in zip(*columns, strict=True) if column[0] is not None]
    at = 0
    for offset, length, record in reported:
        if offset < at or offset + length > len(data):
            return f"a damaged range of {length} bytes at {offset} is out of order or outside of the file"
        if record != data[offset : offset + length][: len(record)]:
            return f"the damaged range at {offset} is reported with wrong bytes"
        at = offset + length
    if result.report.bytes != len(data):
        return f"the report says {result.report.bytes} bytes, the file has {len(data)}"
    if lost is not None and [(offset, offset + length) for offset, length, _ in reported if length] != lost:
        stretches = ", ".join(f"{offset}..{offset + length}" for offset, length, _ in reported) or "none"
        return f"the reported damaged ranges are {stretches}, expected {lost}"
    return ""


def _checked(codec: Codec) -> Callable[[bytes, int, int], bool] | None:
    """Return a test (frame, its position, byte of the frame) for bytes that a checksum covers; None without checksums."""
    if not any(field.checksum for struct in codec.structures[:1] for field in struct.fields):
        return None

    def checked(frame: bytes, place: int, at: int) -> bool:
        struct = reference.struct_of(codec, frame, place)
        for field in struct.fields:
            if field.checksum:
                here = struct.offset(field.name)
                if here <= at < here + field.type.min_size:
                    return True
                if field.until:
                    places = struct.places(frame, 0, len(frame))
                    if places[field.checksum[1]][0] <= at < places[field.until][1]:
                        return True
                elif struct.offset(field.checksum[1]) <= at:
                    return True
        return False

    return checked


def good_frames(specimen: Specimen, stop: int) -> list[tuple[int, int]]:
    """Return the start and end of each good frame up to byte `stop`, including those after damage."""
    out: list[tuple[int, int]] = []
    with specimen.open() as source:
        for stretch in Walk(source, specimen.codec, specimen.context()):
            if isinstance(stretch, Stretch):
                starts, ends = (
                    stretch.frames.start + stretch.window.offset,
                    stretch.frames.end + stretch.window.offset,
                )
                out += [
                    start for start in zip(starts.tolist(), ends.tolist(), strict=True) if start[1] <= stop
                ]
                if len(ends) and ends[-1] >= stop:
                    break
    return out


def _scan(specimen: Specimen, data: bytes, context: Any) -> Frames:
    window = Window(np.frombuffer(data, np.uint8).copy(), 0, len(data))
    return specimen.codec.scan(window, 0, context)


_PLACE = ("position", "size")
"""Columns of all frames tables with the position of a frame. A field of the same name is unrelated."""


def _fields_differ(struct: Struct, values: dict[str, Any], frames: pa.Table, i: int) -> str:
    for field in struct.fields:
        if (
            field.name in frames.schema.names
            and field.name not in _PLACE
            and isinstance(values[field.name], int)
        ):
            column = frames.column(field.name)[i].as_py()
            if isinstance(column, int) and column != values[field.name]:
                return f"{field.name} is {values[field.name]} by description, {column} by kernel"
    return ""


def _subject(specimen: Specimen) -> str:
    return f"{specimen.codec.name} {specimen.path or specimen.name}"


def _verdict(law: str, specimen: Specimen, checked: int, differ: tuple[int, str] | None) -> Verdict:
    if differ is None:
        return Verdict(law, _subject(specimen), checked)
    return Verdict(law, _subject(specimen), checked, differ[1], differ[0])
