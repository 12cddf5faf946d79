"""The content of repaired entry logs and journals."""

from __future__ import annotations

from dataclasses import replace

from logwright.codec.arrays import Int64s
from logwright.codec.bookkeeper.formats import journal
from logwright.codec.bookkeeper.formats.entrylog.layout import BLOCK, FILL
from logwright.codec.bookkeeper.formats.entrylog.ledgersmap import map_bytes
from logwright.codec.bookkeeper.repair.survey import SurveyedFile, filler, sums_of
from logwright.codec.bookkeeper.startup.entry_logger import HEADER_SIZE, log_header
from logwright.codec.bookkeeper.startup.journal import MAGIC
from logwright.codec.bookkeeper.store import rocks
from logwright.codec.option import Options
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing

JOURNAL_HEADER = (MAGIC + journal.NEWEST.to_bytes(4, "big")).ljust(512, b"\0")


def repaired_log(listing: Listing, file: SurveyedFile) -> list[Extent]:
    """Return an entry log in which fillers replace damage, with its ledgers map."""
    stop = file.data_end
    pieces: list[Extent] = []
    at = HEADER_SIZE - file.shift
    for start, end in file.bad:
        start, end = max(start, at), min(end, stop)
        if end <= start:
            continue
        if start > at:
            pieces.append(Copy(file.name, at, start))
        pieces.append(filler(end - start))
        at = end
    if stop > at:
        pieces.append(Copy(file.name, at, stop))
    stop += file.shift
    sizes = sums_of(file)
    if rocks.is_direct_log(listing, file.name, file.size):
        pieces.append(bytes((FILL,)) * (-stop % BLOCK))
        stop += -stop % BLOCK
    return [log_header(stop, len(sizes)), *pieces, map_bytes(sizes)]


def repaired_journal(file: SurveyedFile, records: Int64s) -> list[Extent]:
    """Return a journal with the records `records` of another one."""
    pieces: list[Extent] = [JOURNAL_HEADER]
    for i in records.tolist():
        frame = Copy(file.name, int(file.start[i]), int(file.end[i]))
        last = pieces[-1]
        if isinstance(last, Copy) and last.stop == frame.start:
            pieces[-1] = replace(last, stop=frame.stop)
        else:
            pieces.append(frame)
    return padded(pieces)


def padded(pieces: list[Extent]) -> list[Extent]:
    """Return a journal with the padding at its end."""
    context = journal.CODEC.context("", Options(journal.CODEC.options))
    size = sum(map(len, pieces))
    return [*pieces, *(bytes(chunk) for chunk in journal.CODEC.closing(size, context))]
