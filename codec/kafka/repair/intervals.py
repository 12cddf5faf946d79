"""Infer `index.interval.bytes` of a partition from its indexes.

There is an entry for the first batch that starts more than the interval after the batch of the last entry. So the distances between
entries bound the interval from above, and the distances to the batches before them bound it from below. It is a setting of the topic,
and nothing else in the directory has it. Indexes made with another interval are right too, but differ from those of the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.fault import LogwrightError
from logwright.codec.frames.walk import good_frames, walk_file
from logwright.codec.kafka.formats.indexes import INDEX_ENTRY
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.names import segment_name
from logwright.codec.kafka.repair.survey import SegmentSurvey
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role

_SEGMENTS = 4


def interval_of(
    listing: Listing, plan: Plan, options: Options, surveys: Iterable[SegmentSurvey] = ()
) -> tuple[int, list[str]]:
    """Return the value of the option, by default the broker's default, and a note if the indexes show another.

    Segments that are not in `surveys` are read.
    """
    interval = int(options["index.interval.bytes"])
    if options.given("index.interval.bytes"):
        return interval, []
    try:
        seen = list(_segments(listing, plan, {survey.file.name: survey.starts for survey in surveys}))
    except LogwrightError:
        return interval, []
    if sum(len(places) for _, places in seen) < 2 or all(_matches(interval, *segment) for segment in seen):
        return interval, []
    low = max(max(_before(*segment), default=0) for segment in seen)
    high = min(int(np.diff(places, prepend=0).min()) for _, places in seen)
    likely = _roundest(low, high)
    if not all(_matches(likely, *segment) for segment in seen):
        return interval, []
    return interval, [
        f"The indexes look like those of a topic with index.interval.bytes={likely}, and the new ones are made with {interval}: pass"
        " the topic's own value to get the same indexes as its broker."
    ]


def _roundest(low: int, high: int) -> int:
    """Return the most likely setting in `[low, high)`: a large power of two, or the number with the most zeros at its end."""
    powers = [1 << k for k in range(10, 31) if low <= 1 << k < high]
    steps = [10**k for k in range(9, -1, -1)]
    rounded = (-(-low // step) * step for step in steps)
    return next((number for number in [*powers, *rounded] if low <= number < high), low)


def _segments(listing: Listing, plan: Plan, known: Mapping[str, Int64s]) -> Iterator[tuple[Int64s, Int64s]]:
    """Return for some segments the positions of their first batches, and of those that have an entry."""
    sizes = {file.name: file.size for file in plan.files if file.role is Role.DERIVED}
    count = 0
    for file in plan.files:
        name = segment_name(file.hints["base_offset"], ".index") if file.role is Role.PRIMARY else ""
        if not sizes.get(name) or count == _SEGMENTS:
            continue
        starts = known[file.name] if file.name in known else _starts(listing, file)
        places = _places(listing, name)
        places = places[places <= starts[-1]] if len(starts) else places[:0]
        if len(places) and np.isin(places, starts).all() and (np.diff(places) > 0).all():
            count += 1
            yield starts, places


def _starts(listing: Listing, file: PlannedFile) -> Int64s:
    """Return the positions of the batches in a segment's first window."""
    for window, frames in good_frames(walk_file(listing, file, log.CODEC, check=False)):
        return frames.start + window.offset
    return np.empty(0, np.int64)


def _places(listing: Listing, name: str) -> Int64s:
    width = INDEX_ENTRY.min_size
    data = listing.read(name, 0, width << 14)
    entries = np.frombuffer(data[: len(data) // width * width], INDEX_ENTRY.head_dtype)
    # Preallocated entries are zeros.
    places = entries["position"].astype(np.int64)
    return places[: int(np.argmin(places > 0)) if (places <= 0).any() else len(places)]


def _before(starts: Int64s, places: Int64s) -> list[int]:
    """Return the distance of the batch before each entry from the entry before."""
    batch = starts[np.searchsorted(starts, places) - 1]
    return (batch - np.concatenate(([0], places[:-1]))).tolist()  # type: ignore[no-any-return]


def _matches(interval: int, starts: Int64s, places: Int64s) -> bool:
    """Return whether an index with this interval has exactly these entries, up to the last one."""
    at, expected = 0, []
    for start in starts[starts <= places[-1]].tolist():
        if start - at > interval:
            expected.append(start)
            at = start
    return bool(np.array_equal(expected, places))
