"""The codec `rocketmq.commitlog`: files of messages. A file has a fixed size and is named after the offset of its first byte.

A row is a message. Writing ignores the column `physical_offset`: the stored value is the offset where the message is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Int64s
from logwright.codec.base import Match, ProvedPart
from logwright.codec.columns import fixed_at
from logwright.codec.fault import Fault, Kind, Severity, UsageError
from logwright.codec.frames import scanner
from logwright.codec.frames.codec import FramedCodec, Part
from logwright.codec.frames.format import FramedContext
from logwright.codec.frames.scanner import MARKER
from logwright.codec.kernels.bitflip import Flip
from logwright.codec.kernels.compress import CompressionError
from logwright.codec.option import Option, Options
from logwright.codec.rocketmq.formats.commitlog import layout
from logwright.codec.rocketmq.formats.commitlog.columns import Sizes
from logwright.codec.rocketmq.formats.commitlog.layout import LEAST_BLANK, MESSAGE, SMALLEST, TRAILER
from logwright.codec.rocketmq.formats.commitlog.read import (
    Messages,
    compressed,
    replacements,
    store_timestamp,
    wrong_ports,
)
from logwright.codec.rocketmq.formats.commitlog.rows import NAME, ROWS
from logwright.codec.rocketmq.formats.commitlog.suspects import had_trailer, part_proved, suspects
from logwright.codec.rocketmq.formats.commitlog.write import Writer
from logwright.codec.window import Around, Bytes, Chunk, Decoded, Frames, Window, Zeros

FILE_SIZE = Option(
    "mappedFileSizeCommitLog",
    None,
    "File size in bytes; the file is padded with zeros. A broker opens only files of its configured size, by default 1073741824",
    low=64,
    high=(1 << 31) - 1,
)
BODY_LIMIT = Option(
    "max.decompressed.bytes",
    256 << 20,
    "Decompressed size limit of a body; a larger one is an error",
    low=1,
    high=(1 << 31) - 1,
)


@dataclass
class CommitLogContext(FramedContext):
    """`stored` is the store time of the last good message. `ended` is set if the log ended after it, so later bytes may be stale. `blank`
    is the end of the blank record."""

    stored: int = -(1 << 63)
    ended: bool = False
    blank: int = -1
    followed: bool = False
    """Whether a later file has messages: then this one ends with a blank record."""
    renamed: bool = False
    """Whether the file has the name of another one: then it does not say where messages belong."""
    hides: bool = False
    """Whether placeholders of lost messages are not rows."""
    sizes: Sizes = field(default_factory=Sizes)
    """Sizes of the columns of the last batch of messages."""
    counts: dict[tuple[bytes, int], int] = field(default_factory=dict)
    """The number of messages per queue that were written without offsets."""


class CommitLog(FramedCodec):
    """The codec."""

    name = NAME
    title = "RocketMQ commit log"
    spec = layout.SPECIFICATION
    rows = ROWS
    pattern = re.compile(r"(\d{1,20})")
    options = (FILE_SIZE, BODY_LIMIT)
    fixed: Mapping[str, str] = {
        **{name: name for name in ("queue_id", "flag", "queue_offset", "physical_offset", "sys_flag")},
        "born_timestamp_ms": "born_timestamp",
    }
    required = ("topic",)
    ordered = "physical_offset"
    window = 8 << 20  # batches have many columns, each with a fixed cost
    context_of = CommitLogContext
    systems: Mapping[int, str] = {
        scanner.ZERO: "the log ends here for a broker",
        scanner.BAD_TEST: "a broker that recovers this file ends the log here: found a illegal magic code",
        scanner.BAD_CHECKSUM: "a broker that recovers this file ends the log here: CRC check failed",
        scanner.TORN: "a broker ends the log here",
        scanner.BAD_LENGTH: "a broker that recovers this file ends the log here",
        scanner.BAD_RULE: "a broker that recovers this file ends the log here, unless only its properties are torn",
        scanner.BAD_CLAIM: "a broker does not check it; consume queues rebuilt from it point to the wrong offset",
    }

    def known(self, head: bytes) -> bool:
        at = MESSAGE.offset("magic_code")
        return int.from_bytes(head[at : at + 4], "big") in (layout.V1, layout.V2, layout.BLANK_MAGIC)

    def recognise(self, name: str, head: bytes) -> Match:
        if self.known(head):
            return Match.SURE if self.pattern.fullmatch(name) else Match.MAYBE
        return Match.MAYBE if re.fullmatch(r"\d{20}", name) and not any(head) else Match.NO

    def frame_bounds(self, frames: Frames, column: str) -> tuple[Any, Any]:
        """A blank record has the physical offset at which the message before it ends, or -1 if that one is not among the frames."""
        if column != self.ordered or not len(frames):
            return super().frame_bounds(frames, column)
        values = frames.header["physical_offset"].astype(np.int64)
        ends = np.concatenate(([-1], (values + frames.end - frames.start)[:-1]))
        values = np.where(frames.header["frame_kind"] == scanner.MAIN, values, ends)
        return values, values

    # Finding messages

    def scan(self, window: Window, at: int, context: CommitLogContext, *, check: bool = True) -> Frames:
        frames = super().scan(window, at, context, check=check)
        kinds = frames.header["frame_kind"]
        main = slice(-1, None) if len(frames) and kinds[-1] == scanner.MAIN else kinds == scanner.MAIN
        last = frames.start[main][-1:]
        if len(last):
            context.stored, context.ended = store_timestamp(window.data, int(last[0])), False
        if len(frames) and frames.header["frame_kind"][-1] == MARKER:
            context.ended, context.blank = True, window.offset + int(frames.end[-1])
            if check:
                frames.faults = [*frames.faults, *self._odd_blank(window, frames)]
        if frames.damage is not None and frames.damage.offset == context.blank:
            # Old brokers do not clear their buffer after the blank record.
            left = window.size - context.blank
            zeros = frames.damage.kind is Kind.PADDING and frames.damage.severity is Severity.INFO
            text = "" if zeros else "undefined bytes after the blank record"
            frames.damage = Fault(NAME, context.blank, left, Kind.PADDING, text, Severity.INFO)
        elif context.followed and frames.damage is not None and frames.damage.kind is Kind.PADDING:
            frames.damage = _before_other_files(frames.damage)
        context.ended |= frames.damage is not None and frames.damage.kind is Kind.PADDING
        if frames.damage is not None and frames.damage.kind is Kind.ORDER and not frames.damage.offset:
            phy = self._field(window.data, 0, "physical_offset")
            text = f"{frames.damage.detail}; if the file was renamed, its name was {phy:020d}"
            frames.damage = replace(frames.damage, detail=text)
        return frames

    def _odd_blank(self, window: Window, frames: Frames) -> Iterator[Fault]:
        start, size = int(frames.start[-1]) + window.offset, int(frames.header["total_size"][-1])
        if size != window.size - start:
            text = f"total_size of the blank record is {size}, expected {window.size - start} (up to the end of the file)"
            system = (
                "brokers continue with the next file; from 5.0 on the log ends here if the value is too large"
            )
            yield Fault(NAME, start, layout.BLANK.head_size, Kind.LENGTH, text, Severity.WARNING, system, 0)

    def suspects(self, window: Window, at: int, limit: int, around: Around, context: Any) -> Iterator[Flip]:
        """Yield first the only wrong bit of the checksum property, if there is one."""
        data = window.data
        end = at + self._field(data, at, "total_size")
        if at + SMALLEST + TRAILER <= end <= len(data):
            change = data[end - TRAILER : end] ^ layout.trailer_of(data, at, end - TRAILER)
            places = np.flatnonzero(change)
            if len(places) == 1 and int(change[places[0]]).bit_count() == 1:
                yield Flip(end - TRAILER + int(places[0]), int(change[places[0]]).bit_length() - 1)
                return
        if at + SMALLEST <= end <= len(data) and had_trailer(data, at, end):
            yield from super().suspects(window, at, limit, around, context)
        else:
            yield from suspects(window, at, None if context.renamed else self.base(context))

    def outliers(self, window: Window, frames: Frames, context: Any) -> Sequence[tuple[int, str]]:
        """Return the messages with a property that is almost the checksum property."""
        long = np.flatnonzero(frames.end - frames.start >= SMALLEST + TRAILER)
        ends = frames.end[long]
        change = fixed_at(window.data, ends - TRAILER, ">i8") ^ layout.CRC_NAME_NUMBER
        odd = (change != 0) & (change & change - 1 == 0)
        odd |= (change == 0) & ((window.data[ends - TRAILER + 8] != 1) | (window.data[ends - 1] != 2))
        return [(i, f"the property {layout.CRC_NAME} is damaged") for i in long[odd].tolist()]

    def proved(
        self, window: Window, frame: Frames, around: Around, flip: tuple[int, int] | None, context: Any
    ) -> bool:
        """Return whether the message has the property whose checksum covers the complete message: `body_crc` covers the body alone."""
        return bool(layout.has_trailer(window.data, int(frame.start[0]), int(frame.end[0])))

    def part_proved(
        self, window: Window, frame: Frames, around: Around, flip: tuple[int, int] | None, context: Any
    ) -> ProvedPart | None:
        if int(frame.header["frame_kind"][0]) != scanner.MAIN:
            return None
        return part_proved(window, frame, flip, self.base(context))

    def accepts(self, window: Window, at: int, context: CommitLogContext) -> bool:
        """Reject stale messages after the end of the log. A broker truncated them; they are older than the last message."""
        if not context.ended or context.followed:
            return True
        return store_timestamp(window.data, at) >= context.stored

    # Reading

    def context(self, name: str, options: Options, **hints: Any) -> CommitLogContext:
        """With the hint `hides`, messages that replace lost or removed ones are not rows. `followed`: a later file has messages. `renamed`: the
        file has the name of another one."""
        context = super().context(name, options, **hints)
        assert isinstance(context, CommitLogContext)
        context.followed = bool(hints.get("followed"))
        context.renamed = bool(hints.get("renamed"))
        context.hides = bool(hints.get("hides"))
        return context

    def _rows(self, part: Part, columns: Sequence[str], context: CommitLogContext) -> Decoded:
        if context.hides:
            lost = replacements(part)
            if lost.any():
                part = part.pick(~lost)
        return super()._rows(part, columns, context)

    def columns(self, part: Part, names: Sequence[str], context: CommitLogContext) -> Mapping[str, pa.Array]:
        return dict(Messages(part, context.options["max.decompressed.bytes"], context.sizes).columns(names))

    def refused(self, part: Part, context: CommitLogContext) -> Sequence[tuple[int, Fault]]:
        """Report the bodies that cannot be decompressed. A broker serves such a message unchanged, and so do its rows."""
        packed = compressed(part)
        if not packed:
            return ()
        faults = []
        reader = Messages(part, context.options["max.decompressed.bytes"])
        for i in packed:
            try:
                reader.plain(i)
            except CompressionError as error:
                text = f"cannot decompress the body; it is returned as stored: {error}"
                faults.append(
                    (i, self.fault(part, i, Kind.PAYLOAD, text, Severity.INFO, "a consumer fails on it"))
                )
        return faults

    def findings(self, part: Part, context: CommitLogContext) -> Sequence[Fault]:
        """Note ports that a client refuses. No checksum covers them, so they may be as the producer wrote them."""
        faults = []
        for name, i, port in wrong_ports(part):
            text = f"the port of {name} is {port}, expected 0 to {layout.LARGEST_PORT}"
            system = "a broker serves the message, and clients cannot decode it"
            faults.append(self.fault(part, i, Kind.PAYLOAD, text, Severity.INFO, system))
        return faults

    # Writing

    def form(
        self, rows: pa.RecordBatch, at: int, positions: Int64s | None, context: CommitLogContext
    ) -> tuple[Bytes, Int64s]:
        return Writer(rows, context.counts).write(at, positions, context.number or 0)

    def closing(self, at: int, context: CommitLogContext) -> Iterator[Chunk]:
        size = context.options["mappedFileSizeCommitLog"]
        if size is None:
            return
        if at > size - LEAST_BLANK:
            raise UsageError(
                f"{NAME}: the messages take {at} bytes, but a file of {size} bytes holds at most {size - LEAST_BLANK}",
                advice="Write fewer rows to this file, or set mappedFileSizeCommitLog",
            )
        yield Zeros(size - at)


def _before_other_files(zeros: Fault) -> Fault:
    """Return the fault of zeros in a file that is not the last one: they are not preallocated."""
    if zeros.severity is not Severity.INFO:
        return replace(zeros, severity=Severity.ERROR)
    text = "zeros up to the end of the file: the blank record is missing, and later files have messages"
    system = CODEC.systems[scanner.BAD_TEST]
    return replace(zeros, kind=Kind.TRUNCATED, detail=text, severity=Severity.ERROR, system=system)


CODEC = CommitLog()
