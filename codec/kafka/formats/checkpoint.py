"""Text checkpoints: a version, a count, and one line for each entry. Source: `CheckpointFile` of Kafka's server-common module.

They are read as `BufferedReader.readLine` and `split("\\s+")` do: any line end, no blank line, no leading space.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from logwright.codec.describe import Field, Repeated, Struct
from logwright.codec.fault import Kind
from logwright.codec.single_frame import ParseError, SmallFileCodec
from logwright.codec.table import Column, Table
from logwright.codec.text import Word

_LINE_END = re.compile(rb"\r\n|\r|\n")
_SPACE = re.compile(r"[ \t\n\x0b\f\r]+")
_NUMBER = re.compile(r"([+-]?)0*(\d{1,19})", re.ASCII)
Entry = tuple[str | int, ...]


@dataclass(frozen=True)
class Checkpoint:
    """A type of checkpoint. `words` are the types of the words in a line: `str`, or the bits of an integer.

    `low` is the smallest number that the broker accepts in an entry. `no_number` is what it does if a number cannot be parsed.
    """

    words: tuple[type[str] | int, ...]
    low: int | None = None
    no_number: str = ""
    version: int = 0

    def pack(self, entries: Sequence[Entry] | Sequence[tuple[int, int]]) -> bytes:
        lines = [str(self.version), str(len(entries)), *(" ".join(map(str, entry)) for entry in entries)]
        return "".join(f"{line}\n" for line in lines).encode()

    def unpack(self, data: bytes) -> list[Entry]:
        """Return the entries. A file that ends before the first entry has none. Raises `ParseError`."""
        content = lines(data)
        if not content:
            return []
        version = number(*content[0], 32)
        if version != self.version:
            raise ParseError(f"version {version}, expected {self.version}", kind=Kind.MAGIC)
        if len(content) == 1:
            return []
        count = number(*content[1], 32)
        if count < 0:
            raise ParseError(f"the number of entries is {count}", content[1][0], Kind.LENGTH, self.no_number)
        entries = [self._entry(*line) for line in content[2:]]
        if count != len(entries):
            raise ParseError(
                f"the number of entries is {count}, but there are {len(entries)}",
                content[1][0],
                Kind.LENGTH,
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
        if len(parts) != len(self.words):
            raise ParseError(f"expected {len(self.words)} words in a line, found {line[:80]!r}", at)
        entry = tuple(
            part if kind is str else number(at, part, kind, self.no_number)  # type: ignore[arg-type]
            for part, kind in zip(parts, self.words, strict=True)
        )
        if self.low is not None and any(isinstance(value, int) and value < self.low for value in entry):
            raise ParseError(
                f"expected numbers from {self.low} on, found {line[:80]!r}", at, system=self.no_number
            )
        return entry


class NoNumber(ParseError):
    """A word that should be a number, and is not."""


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
            raise ParseError(f"expected UTF-8, found {data[at:stop][:80]!r}", at + error.start) from None
        at = after
    return out if data else []


def words(between: re.Pattern[str], line: str) -> list[str]:
    """Split a line as Java's `split` does: without empty words at the end."""
    parts = between.split(line)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def number(at: int, word: str, bits: int, system: str = "") -> int:
    """Parse an integer as `Integer.parseInt` and `Long.parseLong` do. Raises `ParseError`."""
    digits = _NUMBER.fullmatch(word)
    value = int(digits[1] + digits[2]) if digits is not None else 1 << 63
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise NoNumber(f"expected a number of {bits} bits, found {word[:80]!r}", at, system=system)
    return value


LEADER_EPOCH = Checkpoint((32, 64), low=0, no_number="the broker does not start")
OFFSETS = Checkpoint((str, 32, 64), no_number="the broker logs a warning, and treats the file as empty")


def _described(name: str, doc: str, *fields: Field) -> Struct:
    """Describe the text as a structure, word by word."""
    entry = Struct(f"{name}Entry", *fields, doc="A line.", source="CheckpointFile.EntryFormatter")
    return Struct(
        name,
        Field("version", Word(bits=32), "0", default=0, only=0),
        Field("count", Word(bits=32), "number of lines that follow"),
        Field("entries", Repeated(entry, "count"), "one line for each entry", rows=True),
        doc=doc,
        source="CheckpointFile",
    )


LEADER_EPOCHS = _described(
    "LeaderEpochCheckpoint",
    "The leader epochs of a partition, and the offset at which each starts.",
    Field("epoch", Word(" ", 32), "leader epoch"),
    Field("start_offset", Word("\n", 64), "first offset written in it"),
)
OFFSET_CHECKPOINT = _described(
    "OffsetCheckpoint",
    "One offset for each partition of a log directory.",
    Field("topic", Word(" "), "topic"),
    Field("partition", Word(" ", 32), "partition"),
    Field("offset", Word("\n", 64), "recovery point, high watermark, log start or first dirty offset"),
)


def _codec(
    name: str,
    title: str,
    files: str,
    form: Checkpoint,
    columns: tuple[Column, ...],
    system: str,
    struct: Struct,
) -> SmallFileCodec:
    schema = Table("rows", columns).schema()

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
        columns=columns,
        parse=parse,
        form=write,
        system=system,
        text=struct,
    )


LEADER_EPOCH_CODEC = _codec(
    "kafka.leader_epoch_checkpoint",
    "Kafka leader epochs of a partition",
    r"leader-epoch-checkpoint",
    LEADER_EPOCH,
    (
        Column("epoch", pa.int32(), "leader epoch", nullable=False),
        Column("start_offset", pa.int64(), "first offset written in it", nullable=False),
    ),
    "the broker does not load the partition and takes the log directory offline",
    LEADER_EPOCHS,
)
OFFSETS_CODEC = _codec(
    "kafka.offset_checkpoint",
    "Kafka checkpoint of offsets of a log directory",
    r"(?:recovery-point|replication|log-start|cleaner)-offset-checkpoint",
    OFFSETS,
    (
        Column("topic", pa.string(), "topic", nullable=False),
        Column("partition", pa.int32(), "partition", nullable=False),
        Column(
            "offset",
            pa.int64(),
            "recovery point, high watermark, log start or first dirty offset",
            nullable=False,
        ),
    ),
    "the broker takes the log directory offline",
    OFFSET_CHECKPOINT,
)
