"""Text checkpoints: a version, a count, and a line an entry. Source: `CheckpointFile` of Kafka's server-common module.

Read as `BufferedReader.readLine` and `split("\\s+")` would: any line end, no blank line, no leading space.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from logwright.codec.fault import Kind
from logwright.codec.table import Column
from logwright.codec.whole import ParseError, Rows, WholeCodec

_LINE_END = re.compile(rb"\r\n|\r|\n")
_SPACE = re.compile(r"[ \t\n\x0b\f\r]+")
_NUMBER = re.compile(r"[+-]?\d+", re.ASCII)
Entry = tuple[str | int, ...]


@dataclass(frozen=True)
class Checkpoint:
    """One kind of checkpoint: the types of the words of a line (`str` or the bits of an integer)."""

    words: tuple[type[str] | int, ...]
    version: int = 0

    def pack(self, entries: list[Entry] | list[tuple[int, int]]) -> bytes:
        lines = [str(self.version), str(len(entries)), *(" ".join(map(str, entry)) for entry in entries)]
        return "".join(f"{line}\n" for line in lines).encode()

    def unpack(self, data: bytes) -> list[Entry]:
        """The entries. Raises `ParseError`. A file that ends before the first entry has none."""
        lines = _lines(data)
        if not lines:
            return []
        version = _number(*lines[0], 32)
        if version != self.version:
            raise ParseError(f"version {version}, {self.version} was expected", kind=Kind.MAGIC)
        if len(lines) == 1:
            return []
        count = _number(*lines[1], 32)
        entries = [self._entry(*line) for line in lines[2:]]
        if count != len(entries):
            raise ParseError(
                f"{count} entries were announced, there are {len(entries)}", lines[1][0], Kind.LENGTH
            )
        return entries

    def _entry(self, at: int, line: str) -> Entry:
        words = _SPACE.split(line)
        while words and not words[-1]:
            words.pop()  # as Java's split does
        if len(words) != len(self.words):
            raise ParseError(f"{len(self.words)} words were expected in a line, found {line[:80]!r}", at)
        return tuple(
            word if kind is str else _number(at, word, kind)  # type: ignore[arg-type]
            for word, kind in zip(words, self.words, strict=True)
        )


def _lines(data: bytes) -> list[tuple[int, str]]:
    """Lines with the byte where each starts; what follows the last line end is a line unless it is empty."""
    out, at = [], 0
    for end in _LINE_END.finditer(data):
        out.append((at, data[at : end.start()].decode("utf-8", "replace")))
        at = end.end()
    if at < len(data):
        out.append((at, data[at:].decode("utf-8", "replace")))
    return out


def _number(at: int, word: str, bits: int) -> int:
    if not _NUMBER.fullmatch(word) or not -(1 << bits - 1) <= int(word) < 1 << bits - 1:
        raise ParseError(f"a number was expected, found {word[:80]!r}", at)
    return int(word)


LEADER_EPOCH = Checkpoint((32, 64))
OFFSETS = Checkpoint((str, 32, 64))


def _codec(
    name: str, title: str, files: str, form: Checkpoint, columns: tuple[Column, ...], system: str
) -> WholeCodec:
    names = [column.name for column in columns]

    def parse(data: bytes) -> Rows:
        return [dict(zip(names, entry, strict=True)) for entry in form.unpack(data)]

    def write(rows: Rows) -> bytes:
        return form.pack([tuple(row[name] for name in names) for row in rows])

    made: Callable[[bytes], Rows] = parse
    return WholeCodec(name, title, re.compile(files), columns, made, write, system)


LEADER_EPOCH_CODEC = _codec(
    "kafka.leader_epoch_checkpoint",
    "Kafka leader epochs of a partition",
    r"leader-epoch-checkpoint",
    LEADER_EPOCH,
    (
        Column("epoch", pa.int32(), "leader epoch", nullable=False),
        Column("start_offset", pa.int64(), "first offset written in it", nullable=False),
    ),
    "the broker takes the log directory offline, or does not start",
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
)
