"""Text checkpoints: a version, a count, and one line for each entry. Source: `CheckpointFile` of Kafka's server-common module.

They are read as `BufferedReader.readLine` and `split("\\s+")` do: any line end, no blank line, no leading space.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

import pyarrow as pa

from logwright.codec.base import Codec
from logwright.codec.describe import Field, Repeated, Struct
from logwright.codec.fault import Kind
from logwright.codec.java import integer
from logwright.codec.single_frame import ParseError, SmallFileCodec
from logwright.codec.table import Column, Table
from logwright.codec.text import Word

_LINE_END = re.compile(rb"\r\n|\r|\n")
_SPACE = re.compile(r"[ \t\n\x0b\f\r]+")
Entry = tuple[str | int, ...]
FILE = "{file}"
"""Stands for the path of the file in `ParseError.upstream`."""
IO_EXCEPTION, ILLEGAL_ARGUMENT = "java.io.IOException", "java.lang.IllegalArgumentException"
_NOT_UTF8 = "java.nio.charset.MalformedInputException: Input length = 1"
_TYPES = {0: pa.string(), 32: pa.int32(), 64: pa.int64()}
"""Types of words by bits; 0 is text."""


class Checkpoint:
    """A type of checkpoint. `fields` are the words of a line, `low` is the smallest number that the broker accepts in an entry, and
    `no_number` is what it does if a number cannot be parsed."""

    version = 0

    def __init__(
        self, name: str, doc: str, *fields: Field, low: int | None = None, no_number: str = ""
    ) -> None:
        self.low, self.no_number = low, no_number
        self.bits = [field.type.bits for field in fields if isinstance(field.type, Word)]
        self.columns = tuple(
            Column(field.name, _TYPES[bits], field.doc, nullable=False)
            for field, bits in zip(fields, self.bits, strict=True)
        )
        entry = Struct(f"{name}Entry", *fields, doc="A line.", source="CheckpointFile.EntryFormatter")
        self.struct = Struct(
            name,
            Field("version", Word(bits=32), "0", default=self.version, only=self.version),
            Field("count", Word(bits=32), "number of lines that follow"),
            Field("entries", Repeated(entry, "count"), "one line for each entry", rows=True),
            doc=doc,
            source="CheckpointFile",
        )

    def pack(self, entries: Sequence[Entry] | Sequence[tuple[int, int]]) -> bytes:
        lines = [str(self.version), str(len(entries)), *(" ".join(map(str, entry)) for entry in entries)]
        return "".join(f"{line}\n" for line in lines).encode()

    def unpack(self, data: bytes) -> list[Entry]:
        """Return the entries. A file that ends before the first entry has none. Raises `ParseError`."""
        content = lines(data)
        if not content:
            return []
        version = number(*content[0], 32, upstream=_malformed(content[0][1]))
        if version != self.version:
            upstream = f"{IO_EXCEPTION}: Unrecognised version:{version}, expected version: {self.version} in checkpoint file at: {FILE}"
            raise ParseError(
                f"version {version}, expected {self.version}", kind=Kind.MAGIC, upstream=upstream
            )
        if len(content) == 1:
            return []
        count = number(*content[1], 32, upstream=_malformed(content[1][1]))
        if count < 0:
            upstream = f"{ILLEGAL_ARGUMENT}: Illegal Capacity: {count}"
            raise ParseError(
                f"the number of entries is {count}", content[1][0], Kind.LENGTH, self.no_number, upstream
            )
        entries = [self._entry(*line) for line in content[2:]]
        if count != len(entries):
            raise ParseError(
                f"the number of entries is {count}, but there are {len(entries)}",
                content[1][0],
                Kind.LENGTH,
                upstream=f"{IO_EXCEPTION}: Expected [{count}] entries in checkpoint file [{FILE}], but found only [{len(entries)}]",
            )
        return entries

    def salvage(self, data: bytes) -> list[Entry]:
        """Return the entries that can be read, even if the rest of the file is malformed."""
        entries: list[Entry] = []
        # The first two lines are the version and the count.
        for line in _LINE_END.split(data)[2:]:
            with contextlib.suppress(ParseError, UnicodeDecodeError):
                entries.append(self._entry(0, line.decode()))
        return entries

    def _entry(self, at: int, line: str) -> Entry:
        parts = words(_SPACE, line)
        if len(parts) != len(self.bits):
            text = f"expected {len(self.bits)} words in a line, found {line[:80]!r}"
            raise ParseError(text, at, upstream=_malformed(line))
        entry = tuple(
            number(at, part, bits, self.no_number) if bits else part
            for part, bits in zip(parts, self.bits, strict=True)
        )
        if self.low is not None and any(isinstance(value, int) and value < self.low for value in entry):
            epoch, offset = entry
            upstream = f"{ILLEGAL_ARGUMENT}: Received invalid partition leader epoch entry EpochEntry(epoch={epoch}, startOffset={offset})"
            text = f"expected numbers from {self.low} on, found {line[:80]!r}"
            raise ParseError(text, at, system=self.no_number, upstream=upstream)
        return entry


def _malformed(line: str) -> str:
    return f"{IO_EXCEPTION}: Malformed line in checkpoint file [{FILE}]: {line}"


def lines(data: bytes) -> list[tuple[int, str]]:
    """Return the lines, each with the byte where it starts. A last line without a line end counts.

    Raises `ParseError` for bytes that are not UTF-8, as Java's reader does.
    """
    ends = [(end.start(), end.end()) for end in _LINE_END.finditer(data)]
    if not ends or ends[-1][1] < len(data):
        ends.append((len(data), len(data)))
    out, at = [], 0
    for stop, after in ends:
        try:
            out.append((at, data[at:stop].decode()))
        except UnicodeDecodeError as error:
            text = f"expected UTF-8, found {data[at:stop][:80]!r}"
            raise ParseError(text, at + error.start, upstream=_NOT_UTF8) from None
        at = after
    return out if data else []


def words(between: re.Pattern[str], line: str) -> list[str]:
    """Split a line as Java's `split` does: without empty words at the end."""
    parts = between.split(line)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def number(at: int, word: str, bits: int, system: str = "", upstream: str = "") -> int:
    """Parse an integer as `Integer.parseInt` and `Long.parseLong` do. Raises `ParseError`, by default for Java's NumberFormatException."""
    try:
        return integer(word, bits)
    except ValueError as error:
        upstream = upstream or f"java.lang.NumberFormatException: {error}"
        text = f"expected a {bits}-bit number, found {word[:80]!r}"
        raise ParseError(text, at, Kind.PAYLOAD, system, upstream) from None


LEADER_EPOCH = Checkpoint(
    "LeaderEpochCheckpoint",
    "The leader epochs of a partition, and the offset at which each starts.",
    Field("epoch", Word(" ", 32), "leader epoch"),
    Field("start_offset", Word("\n", 64), "first offset written in it"),
    low=0,
    no_number="the broker does not start",
)
OFFSETS = Checkpoint(
    "OffsetCheckpoint",
    "One offset for each partition of a log directory.",
    Field("topic", Word(" "), "topic"),
    Field("partition", Word(" ", 32), "partition"),
    Field("offset", Word("\n", 64), "recovery point, high watermark, log start or first dirty offset"),
    no_number="the broker logs a warning, and treats the file as empty",
)


def _codec(name: str, title: str, files: str, form: Checkpoint, system: str) -> SmallFileCodec:
    schema = Table("rows", form.columns).schema()

    def parse(data: bytes) -> pa.Table:
        entries = form.unpack(data)
        arrays = [pa.array([entry[i] for entry in entries], column.type) for i, column in enumerate(schema)]
        return pa.Table.from_arrays(arrays, schema=schema)

    def write(rows: pa.Table) -> bytes:
        return form.pack(list(zip(*(rows[column.name].to_pylist() for column in schema), strict=True)))

    return SmallFileCodec(
        name=name,
        title=title,
        pattern=re.compile(files),
        columns=form.columns,
        parse=parse,
        form=write,
        system=system,
        text=form.struct,
        largest=Codec.largest,
    )


LEADER_EPOCH_CODEC = _codec(
    "kafka.leader_epoch_checkpoint",
    "Kafka leader epochs of a partition",
    r"leader-epoch-checkpoint",
    LEADER_EPOCH,
    "the broker does not load the partition and takes the log directory offline",
)
OFFSETS_CODEC = _codec(
    "kafka.offset_checkpoint",
    "Kafka checkpoint of offsets of a log directory",
    r"(?:recovery-point|replication|log-start|cleaner)-offset-checkpoint",
    OFFSETS,
    "the broker takes the log directory offline",
)
