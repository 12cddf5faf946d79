"""Prove by the records of a log that compaction has not reached its end."""

from __future__ import annotations

from logwright.codec.frames.walk import good_frames, walk_file
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, PlannedFile, Role

_READ = 4 << 20
"""The number of bytes of a log that are read. Most logs without compaction repeat a key early."""


def never_compacted(listing: Listing, name: str, size: int) -> bool:
    """Return whether a log has two records with the same key, or one without a key.

    Up to the offset that it has reached, the cleaner leaves one record of each key. So it has removed nothing after such records.
    Source: `Cleaner.shouldRetainRecord`.
    """
    file = PlannedFile(name, min(size, _READ), Role.PRIMARY, log.CODEC.name, {"control": False})
    context = log.CODEC.context(name, Options(log.CODEC.options), **file.hints)
    seen: set[bytes | None] = {None}
    for window, frames in good_frames(walk_file(listing, file, log.CODEC)):
        for decoded in log.CODEC.decode(window, frames, "rows", ("key",), context):
            for key in decoded.batch.column(0).to_pylist():
                if key in seen:
                    return True
                seen.add(key)
    return False
