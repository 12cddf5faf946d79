"""The content of repaired entry logs and journals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from logwright.codec.arrays import Int64s
from logwright.codec.bookkeeper.formats import journal
from logwright.codec.bookkeeper.formats.entrylog.layout import BLOCK, FILL, HEADER_SIZE
from logwright.codec.bookkeeper.formats.entrylog.ledgersmap import ledger_sizes, log_header, map_bytes
from logwright.codec.bookkeeper.repair.survey import SurveyedFile, filler
from logwright.codec.bookkeeper.store import rocks
from logwright.codec.store.extents import Copy, Extent
from logwright.codec.store.listing import Listing


def repaired_log(listing: Listing, file: SurveyedFile) -> list[Extent]:
    """Return an entry log in which fillers replace damage, with its ledgers map."""
    stop = int(file.end[-1])
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
    sizes = ledger_sizes(file.ledger, file.end - file.start)
    if rocks.is_direct_log(listing, file.name, file.size):
        pieces.append(bytes((FILL,)) * (-stop % BLOCK))
        stop += -stop % BLOCK
    return [log_header(stop, len(sizes)), *pieces, map_bytes(sizes)]


def repaired_journal(file: SurveyedFile, records: Int64s, replaced: Mapping[int, bytes]) -> list[Extent]:
    """Return a journal with the records `records` of another one, some of which are replaced."""
    pieces: list[Extent] = [journal.NEW_HEADER]
    for i in records.tolist():
        if i in replaced:
            pieces.append(replaced[i])
            continue
        frame = Copy(file.name, int(file.start[i]), int(file.end[i]))
        last = pieces[-1]
        if isinstance(last, Copy) and last.stop == frame.start:
            pieces[-1] = replace(last, stop=frame.stop)
        else:
            pieces.append(frame)
    return [*pieces, journal.padding(sum(map(len, pieces)))]
