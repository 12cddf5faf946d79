"""`index.interval.bytes` of a partition, as its indexes show it.

An entry stands at the first batch that starts more than so many bytes behind the one of the entry before. So the distances between
entries bound the interval from above, and those to the batches before them from below. It is the topic's setting, not told by
anything else in the directory; what is made with another is as right, but not the same bytes that the broker would write.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from logwright.codec.fault import LogwrightError
from logwright.codec.frames.walk import good_frames, walk_file
from logwright.codec.kafka.formats.index import INDEX_ENTRY
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.names import segment_name
from logwright.codec.kafka.repair.runs import Numbers
from logwright.codec.option import Options
from logwright.codec.store.listing import Listing, Plan, PlannedFile, Role

_SEGMENTS = 4


def interval_of(listing: Listing, plan: Plan, options: Options) -> tuple[int, list[str]]:
    """What the option says, by default the broker's default; and what is to be said where the indexes there show another."""
    interval = int(options["index.interval.bytes"])
    if options.given("index.interval.bytes"):
        return interval, []
    try:
        seen = list(_segments(listing, plan))
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
        f"The indexes there look like those of a topic with index.interval.bytes={likely}, new ones are made with {interval}: pass the"
        " topic's own value to have them as its broker makes them."
    ]


def _roundest(low: int, high: int) -> int:
    """A number in `[low, high)` that someone may have chosen: a large power of two, else the one that ends in the most zeros."""
    powers = [1 << k for k in range(10, 31) if low <= 1 << k < high]
    steps = [10**k for k in range(9, -1, -1)]
    rounded = (-(-low // step) * step for step in steps)
    return next((number for number in [*powers, *rounded] if low <= number < high), low)


def _segments(listing: Listing, plan: Plan) -> Iterator[tuple[Numbers, Numbers]]:
    """Of some segments where their first batches start, and those of them that have an entry."""
    sizes = {file.name: file.size for file in plan.files if file.role is Role.DERIVED}
    count = 0
    for file in plan.files:
        name = segment_name(file.hints["base_offset"], ".index") if file.role is Role.PRIMARY else ""
        if not sizes.get(name) or count == _SEGMENTS:
            continue
        starts, places = _starts(listing, file), _places(listing, name)
        places = places[places <= starts[-1]] if len(starts) else places[:0]
        if len(places) and np.isin(places, starts).all() and (np.diff(places) > 0).all():
            count += 1
            yield starts, places


def _starts(listing: Listing, file: PlannedFile) -> Numbers:
    """Where the batches of a segment's first window start."""
    for window, frames in good_frames(walk_file(listing, file, log.CODEC, check=False)):
        return frames.start + window.offset
    return np.empty(0, np.int64)


def _places(listing: Listing, name: str) -> Numbers:
    width = INDEX_ENTRY.min_size
    data = listing.read(name, 0, width << 14)
    entries = np.frombuffer(data[: len(data) // width * width], INDEX_ENTRY.head_dtype)
    # What was allocated and not used is zeros.
    places = entries["position"].astype(np.int64)
    return places[: int(np.argmin(places > 0)) if (places <= 0).any() else len(places)]


def _before(starts: Numbers, places: Numbers) -> list[int]:
    """How far the batch before each entry is behind the entry before."""
    batch = starts[np.searchsorted(starts, places) - 1]
    return (batch - np.concatenate(([0], places[:-1]))).tolist()  # type: ignore[no-any-return]


def _matches(interval: int, starts: Numbers, places: Numbers) -> bool:
    """Whether an index with this interval has just these entries, as far as they go."""
    at, expected = 0, []
    for start in starts[starts <= places[-1]].tolist():
        if start - at > interval:
            expected.append(start)
            at = start
    return bool(np.array_equal(expected, places))
