"""Remove messages from a store, or redact their bodies. All other messages keep their bytes, physical offsets and queue offsets.

A removed message is replaced by a placeholder of the same size, a redacted one by a message of the same size: padding follows its properties,
or a filler follows the message. Consume queues and index files are rebuilt, since they have hashes of tags and keys.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from logwright.codec.engine.repair import Change, OutputFile, Removed, RepairPlan
from logwright.codec.fault import UsageError
from logwright.codec.frames.codec import Part
from logwright.codec.java import java_string
from logwright.codec.option import Options
from logwright.codec.rocketmq.formats.commitlog import layout
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC as LOG
from logwright.codec.rocketmq.formats.commitlog.layout import MESSAGE, TRAILER, has_trailer
from logwright.codec.rocketmq.formats.commitlog.read import replacements
from logwright.codec.rocketmq.repair.derived_files import derived_pieces
from logwright.codec.rocketmq.repair.fillers import filler, placeholder
from logwright.codec.rocketmq.repair.repair import StoreRepair
from logwright.codec.rocketmq.store import tree
from logwright.codec.rocketmq.store.log import LostMessage, log_frames
from logwright.codec.store.build import Piece
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Entry, Listing, Plan
from logwright.codec.store.overlay import Overlay

_COMPRESSION_BITS = layout.COMPRESSED | 0x700


class StoreEdit(RepairPlan):
    """An edited store. See `codec.capability.Edit`."""

    def __init__(self, listing: Listing, plan: Plan, change: Change, options: Options) -> None:
        super().__init__(listing)
        self._change, self._options = change, options
        self._repair = StoreRepair([listing], [plan], options).prepared()

    def outputs(self) -> Iterator[OutputFile | Piece]:
        logs = [self._edited(entry) for entry in tree.logs(self.listing)]
        replaced = (tree.QUEUE, tree.EXT, tree.BATCH, tree.INDEX) if self.cut else ()
        for name in self.sizes:
            if not tree.is_log(name) and tree.first(name) not in replaced:
                yield self.unchanged(name)
        if self.cut:
            yield from derived_pieces(Overlay(self.listing, logs), self._repair.config, self._options)
            if any(cut.rows_lost for cut in self.cut):
                self.notes.append(
                    "Dropped messages were replaced by placeholders, so that queue offsets do not change. Consumers get them as messages "
                    "with a body of zero bytes and the property LW_LOST."
                )
        yield from logs

    def _edited(self, entry: Entry) -> OutputFile:
        """Return a log file with its changed messages replaced."""
        out: list[Extent] = []
        at = 0
        context = LOG.context(entry.name.rpartition("/")[2], Options(LOG.options))
        for window, frames in log_frames(self.listing, entry):
            part = Part.main(window, frames)
            rows = LOG.batch(part, self._change.columns, context)
            drop = self._change.drops(rows)
            present = ~replacements(part)
            drop &= present
            redact = self._change.redacts(rows) & ~drop & present
            self.rows += int((~drop & present).sum())
            for i in (drop | redact).nonzero()[0].tolist():
                start, stop = int(part.start[i]) + part.offset, int(part.end[i]) + part.offset
                data = part.data[int(part.start[i]) : int(part.end[i])].tobytes()
                new = emptied(data) if drop[i] else redacted(data, self._change.values["body"] or b"")
                if new is None:
                    raise UsageError(
                        f"the message at byte {start} of {entry.name} has no room for the new body",
                        advice="Set a body that is not longer than the stored one, or drop the message",
                    )
                out += [Copy(entry.name, at, start), new]
                at = stop
                own = _as_lost(data)
                self.cut.append(
                    Removed.edited(entry.name, start, stop, int(drop[i]), int(redact[i]), own.until(own))
                )
        return OutputFile(entry.name, [*out, Copy(entry.name, at, entry.size)], entry.name)


def _as_lost(data: bytes) -> LostMessage:
    """Describe a message that will be lost."""
    fields = MESSAGE.unpack(data, 0, len(data))[0]
    topic = java_string(fields["topic"])
    return LostMessage(
        fields["physical_offset"], len(data), topic, fields["queue_id"], fields["queue_offset"]
    )


def emptied(data: bytes) -> bytes | None:
    """Return the placeholder of a message, or a filler if the message is in no queue."""
    fields = MESSAGE.unpack(data, 0, len(data))[0]
    if fields["sys_flag"] & layout.TRANSACTION not in (layout.PREPARED, layout.ROLLBACK):
        return placeholder(_as_lost(data), fields["store_timestamp"])
    return filler(fields["physical_offset"], len(data), fields["store_timestamp"])


def redacted(data: bytes, body: bytes) -> bytes | None:
    """Return a message with another body, uncompressed, in the same number of bytes; None if there is no room for it."""
    fields = MESSAGE.unpack(data, 0, len(data))[0]
    flags = fields["sys_flag"]
    if flags & layout.INNER_BATCH:
        raise UsageError("the body of an inner batch cannot be redacted", advice="Drop the message")
    at = layout.BODY + sum(layout.V6_EXTRA for bit in (layout.BORN_V6, layout.STORE_V6) if flags & bit)
    spare = fields["body_length"] - len(body)
    if spare < 0:
        return None
    properties = fields["properties"]
    middle = data[at + fields["body_length"] : len(data) - len(properties) - 2]  # the topic with its length
    rest = b""
    if spare >= layout.SMALLEST:
        rest = filler(fields["physical_offset"] + len(data) - spare, spare, fields["store_timestamp"]) or b""
        spare = 0
    trailer = properties[-TRAILER:] if has_trailer(np.frombuffer(data, np.uint8), 0, len(data)) else b""
    # A broker ignores empty properties.
    properties = properties[: len(properties) - len(trailer)] + b"\x02" * spare + trailer
    if len(properties) > layout.MAX_PROPERTIES:
        return None
    head = bytearray(data[: at - 4])
    for name, value in (
        ("total_size", len(data) - len(rest)),
        ("body_crc", layout.body_crc(body)),
        ("sys_flag", flags & ~_COMPRESSION_BITS if flags & layout.COMPRESSED else flags),
    ):
        start = MESSAGE.offset(name)
        head[start : start + 4] = value.to_bytes(4, "big")
    head += len(body).to_bytes(4, "big") + body + middle + len(properties).to_bytes(2, "big") + properties
    if trailer:
        crc = zlib.crc32(head[:-TRAILER]) & layout.CRC_MASK
        head[-1 - layout.DIGITS : -1] = f"{crc:0{layout.DIGITS}d}"[::-1].encode()
    return bytes(head) + rest
