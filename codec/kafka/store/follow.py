"""Following partitions, in the words of Spark's Kafka source: which, from where, up to where, how much at a time.

Source of the words and their defaults: `KafkaSourceProvider` and `ConsumerStrategy` of Spark, and its guide to Kafka.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from logwright.codec.fault import UsageError
from logwright.codec.frames.walk import good_frames, walk_file
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.names import TopicPartition, parse_directory
from logwright.codec.kafka.store.transactions import Transactions
from logwright.codec.option import Option, Options, parse_bool, parse_choice
from logwright.codec.store.listing import Listing, Plan, Role
from logwright.codec.window import Frames, Window

LATEST, EARLIEST = -1, -2
"""In the JSON of offsets (`KafkaOffsetRangeLimit`)."""
_POSITIONS = {
    "read_uncommitted": "offset",
    "read_committed": "offset",
    "log": "offset",
    "batches": "base_offset",
}
_ISOLATION = ("read_uncommitted", "read_committed")


def _topics(text: Any) -> frozenset[str]:
    topics = frozenset(word.strip() for word in str(text).split(",") if word.strip())
    if not topics:
        raise ValueError("topics are wanted, with commas between them")
    return topics


def _pattern(text: Any) -> str:
    try:
        re.compile(str(text))
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None
    return str(text)


def _by_partition(text: Any, check: Callable[[Any], Any]) -> Any:
    try:
        data = json.loads(str(text))
    except ValueError:
        raise ValueError("JSON is wanted") from None
    if not isinstance(data, dict):
        raise ValueError("JSON with the topics is wanted")
    return {topic: check(of) for topic, of in data.items()}


def _partitions(text: Any) -> Any:
    """`{"orders": [0, 1]}`."""

    def numbers(of: Any) -> frozenset[int]:
        if not isinstance(of, list) or not all(type(number) is int and number >= 0 for number in of):
            raise ValueError('{"topic": [0, 1, ...]} is wanted')
        return frozenset(of)

    return _by_partition(text, numbers)


def _numbers(text: Any, low: int) -> Any:
    """`{"orders": {"0": 23, "1": -2}}`."""

    def numbers(of: Any) -> dict[int, int]:
        known = isinstance(of, dict) and all(
            key.isdecimal() and type(number) is int for key, number in of.items()
        )
        if not known or not all(low <= number < 1 << 63 for number in of.values()):
            raise ValueError('{"topic": {"0": 23, ...}} is wanted')
        return {int(key): number for key, number in of.items()}

    return _by_partition(text, numbers)


def _offsets(text: Any) -> Any:
    word = str(text).strip().lower()
    return word if word in ("earliest", "latest") else _numbers(text, EARLIEST)


def _times(text: Any) -> Any:
    return _numbers(text, 0)


def _no_broker(_: Any) -> Any:
    raise ValueError("files are read here and no broker is asked: leave it away")


OPTIONS = (
    Option("subscribe", None, "Topics, with commas between them: the path is the log directory", _topics),
    Option("subscribePattern", None, "The same as a regular expression that the whole name of a topic matches", _pattern),
    Option("assign", None, 'The same by partition: {"orders": [0, 1]}', _partitions),
    Option("startingOffsets", None, 'earliest, latest, or by partition: {"orders": {"0": 23, "1": -2}}, -2 is earliest, -1 latest. By default '
           "earliest; of a stream for which topics are named, as of the Kafka source, latest. A stream goes on from its checkpoint", _offsets),
    Option("endingOffsets", None, "The same of the end, which is not included; by default latest. Not for streams", _offsets),
    Option("startingTimestamp", None, "From the first record of each partition on that is not before this time, in milliseconds", low=0),
    Option("endingTimestamp", None, "Up to the first record that is not before this time. Not for streams", low=0),
    Option("startingOffsetsByTimestamp", None, 'The same by partition: {"orders": {"0": 1700000000000}}', _times),
    Option("endingOffsetsByTimestamp", None, "The same by partition. Not for streams", _times),
    Option("startingOffsetsByTimestampStrategy", "error", "Where no record is so late: an error, or begin at the latest", parse_choice,
           ("error", "latest")),
Option("includeHeaders", True, "Whether there is a column with the headers", parse_bool),
    Option("kafka.isolation.level", None, "The same as the view of this name", parse_choice, _ISOLATION),
    *(
        Option(name, None, "Refused: files are read, no broker is asked", _no_broker)
        for name in (
            "kafka.bootstrap.servers", "kafka.group.id", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
            "fetchOffset.retryIntervalMs",
        )
    ),
)  # fmt: skip
"""See `codec.capability.Follow`."""


class PartitionFollow:
    """Follow partitions by offset. See `codec.capability.Follow`."""

    options = OPTIONS

    def followed(self, view: str | None, options: Options) -> tuple[str, str]:
        view = view or options["kafka.isolation.level"] or "read_uncommitted"
        if view not in _POSITIONS:
            raise UsageError(
                f"view {view!r} can't be followed or cut by offsets",
                advice=f"There are: {', '.join(_POSITIONS)}",
            )
        return view, _POSITIONS[view]

    def leaves_out(self, options: Options) -> Sequence[str]:
        return () if options["includeHeaders"] else ("headers",)

    def wanted(self, name: str, options: Options) -> bool:
        chosen = [word for word in ("subscribe", "subscribePattern", "assign") if options[word] is not None]
        if len(chosen) > 1:
            raise UsageError(f"{' and '.join(chosen)} are given", advice="Say one of them")
        if not chosen:
            return True
        parsed = parse_directory(name)
        if parsed is None or name != f"{parsed.topic}-{parsed.partition}":
            return False
        if chosen == ["subscribe"]:
            return parsed.topic in options["subscribe"]
        if chosen == ["subscribePattern"]:
            return re.fullmatch(options["subscribePattern"], parsed.topic) is not None
        return parsed.partition in options["assign"].get(parsed.topic, ())

    def begins(self, plan: Plan) -> int:
        return int(plan.facts["log_start_offset"])

    def span(
        self, listing: Listing, plan: Plan, options: Options, end: int, *, stream: bool
    ) -> tuple[int, int]:
        first, where = self.begins(plan), parse_directory(listing.name)
        if stream:
            for word in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
                if options[word] is not None:
                    raise UsageError(f"{word} is not for streams, which have no end", advice="Leave it away")
        named = any(options[word] is not None for word in ("subscribe", "subscribePattern", "assign"))
        begin = "latest" if stream and named else "earliest"
        low = _bound(listing, plan, options, "starting", where, begin, first, end)
        return low, end if stream else _bound(listing, plan, options, "ending", where, "latest", first, end)

    def fold(self, view: str) -> Transactions | None:
        return Transactions() if view == "read_committed" else None

    def read_view(self, view: str) -> str:
        return "read_uncommitted" if view == "read_committed" else view


def _bound(
    listing: Listing,
    plan: Plan,
    options: Options,
    which: str,
    where: TopicPartition | None,
    default: str,
    first: int,
    end: int,
) -> int:
    """`startingOffsets` or `endingOffsets`; times count more than offsets, as with the Kafka source."""
    time = options[f"{which}Timestamp"]
    if time is None and options[f"{which}OffsetsByTimestamp"] is not None:
        time = _of(options[f"{which}OffsetsByTimestamp"], where, f"{which}OffsetsByTimestamp")
    if time is not None:
        offset_at = _first_at(listing, plan, time, first)
        if offset_at is not None:
            return offset_at
        if which == "starting" and options["startingOffsetsByTimestampStrategy"] == "error":
            raise UsageError(
                f"no record of {listing.name} has the time {time} or a later one",
                advice="Say startingOffsetsByTimestampStrategy=latest to begin with what comes",
            )
        return end
    bound: Any = options[f"{which}Offsets"] or default
    if isinstance(bound, Mapping):
        offset = _of(bound, where, f"{which}Offsets")
        return {EARLIEST: first, LATEST: end}.get(offset, offset)
    return first if bound == "earliest" else end


def _of(offsets: Mapping[str, Mapping[int, int]], where: TopicPartition | None, option: str) -> int:
    """What JSON says of a partition; it has to speak of all, as with the Kafka source."""
    offset = None if where is None else offsets.get(where.topic, {}).get(where.partition)
    if offset is None:
        name = "a directory that is called like none" if where is None else f"{where.topic}-{where.partition}"
        raise UsageError(f"option {option} says nothing of {name}", advice="Say something of each partition")
    return offset


def _first_at(listing: Listing, plan: Plan, time: int, first: int) -> int | None:
    """The first offset from `first` on whose record is not before `time`, in milliseconds (`KafkaConsumer.offsetsForTimes`)."""
    for file in plan.files:
        after = file.hints.get("next_base")
        if file.role is not Role.PRIMARY or (after is not None and after <= first):
            continue
        for window, frames in good_frames(walk_file(listing, file, log.CODEC, check=False)):
            late = np.flatnonzero(frames.header["max_timestamp"].astype(np.int64) >= time)
            for at in late.tolist():
                offset = _in_batch(listing, file.name, window, frames.pick(slice(at, at + 1)), time, first)
                if offset is not None:
                    return offset
    return None


def _in_batch(
    listing: Listing, name: str, window: Window, batch: Frames, time: int, first: int
) -> int | None:
    context = log.CODEC.context(name, Options(log.CODEC.options), directory=listing.name, control=False)
    for decoded in log.CODEC.decode(window, batch, "rows", ("offset", "timestamp_ms"), context):
        offsets, times = (np.asarray(column, np.int64) for column in decoded.batch.columns)
        late = offsets[(times >= time) & (offsets >= first)]
        if len(late):
            return int(late[0])
    return None
