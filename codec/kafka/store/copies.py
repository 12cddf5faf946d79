"""Identify the partition of a directory, and find its log end offset."""

from __future__ import annotations

from logwright.codec.frames.walk import good_frames, walk_file
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.names import parse_directory
from logwright.codec.store.listing import Listing, Plan, Role


def copy_of(listing: Listing, plan: Plan) -> tuple[str, str | None] | None:
    """Return the name of the partition, and the id of its topic if that is known; None if the directory's name is not a partition's.

    A directory that will be deleted, or moved to another disk, is a copy too.
    """
    where = parse_directory(listing.name)
    return None if where is None else (f"{where.topic}-{where.partition}", plan.facts["topic_id"])


def reaches(listing: Listing, plan: Plan) -> int:
    """Return the log end offset, by the headers of the last segment that has batches."""
    segments = [file for file in plan.files if file.role is Role.PRIMARY]
    end = segments[-1].hints["base_offset"] if segments else 0
    for file in reversed(segments):
        has_batches = False
        for _, frames in good_frames(walk_file(listing, file, log.CODEC, check=False)):
            last = frames.header[-1]
            end = max(end, int(last["last_offset"]) + 1)
            has_batches = True
        if has_batches:
            break
    return int(end)
