"""Follow partitions with the options of Spark's Kafka source: which partitions, start and end offsets, and the size of a batch.

Source of the options and their defaults: `KafkaSourceProvider` and `ConsumerStrategy` of Spark, and its guide to Kafka.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from logwright.codec.capability import Follow
from logwright.codec.fault import UsageError
from logwright.codec.frames.walk import good_frames, walk_file
from logwright.codec.kafka.formats.internal.definitions import TOPICS
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.names import TopicPartition, parse_directory
from logwright.codec.kafka.store.transactions import Transactions
from logwright.codec.option import Option, Options, parse_bool, parse_choice
from logwright.codec.store.listing import Listing, Plan, Role
from logwright.codec.window import Frames, Window

LATEST, EARLIEST = -1, -2
"""Special offsets in JSON (`KafkaOffsetRangeLimit`)."""
_POSITIONS = {
    "read_uncommitted": "offset",
    "read_committed": "offset",
    "log": "offset",
    "batches": "base_offset",
    **{topic.view: "offset" for topic in TOPICS},
}
_ISOLATION = ("read_uncommitted", "read_committed")


def _topics(text: Any) -> frozenset[str]:
    topics = frozenset(word.strip() for word in str(text).split(",") if word.strip())
    if not topics:
        raise ValueError("expected topics, separated by commas")
    return topics


def _pattern(text: Any) -> str:
    try:
        re.compile(str(text))
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return str(text)


def _by_partition(text: Any, check: Callable[[Any], Any]) -> Any:
    try:
        data = json.loads(str(text))
    except ValueError:
        raise ValueError("expected JSON") from None
    if not isinstance(data, dict):
        raise ValueError("expected a JSON object with the topics")
    return {topic: check(of) for topic, of in data.items()}


def _partitions(text: Any) -> Any:
    """`{"orders": [0, 1]}`."""

    def numbers(of: Any) -> frozenset[int]:
        if not isinstance(of, list) or not all(type(number) is int and number >= 0 for number in of):
            raise ValueError('expected {"topic": [0, 1, ...]}')
        return frozenset(of)

    return _by_partition(text, numbers)


def _numbers(text: Any, low: int) -> Any:
    """`{"orders": {"0": 23, "1": -2}}`."""

    def numbers(of: Any) -> dict[int, int]:
        known = isinstance(of, dict) and all(
            key.isdecimal() and type(number) is int for key, number in of.items()
        )
        if not known or not all(low <= number < 1 << 63 for number in of.values()):
            raise ValueError('expected {"topic": {"0": 23, ...}}')
        return {int(key): number for key, number in of.items()}

    return _by_partition(text, numbers)


def _offsets(text: Any) -> Any:
    word = str(text).strip().lower()
    return word if word in ("earliest", "latest") else _numbers(text, EARLIEST)


def _times(text: Any) -> Any:
    return _numbers(text, 0)


def _no_broker(_: Any) -> Any:
    raise ValueError("files are read, not a broker: remove the option")


OPTIONS = (
    Option("subscribe", None, "Topics, separated by commas. The path is the log directory", _topics),
    Option("subscribePattern", None, "Regular expression for the full names of topics", _pattern),
    Option("assign", None, 'Partitions: {"orders": [0, 1]}', _partitions),
    Option("startingOffsets", None, 'earliest, latest, or by partition: {"orders": {"0": 23, "1": -2}}, -2 is earliest, -1 latest. By '
           "default earliest; latest for a stream of named topics, as in the Kafka source. A stream continues from its checkpoint", _offsets),
    Option("endingOffsets", None, "End offsets (exclusive), in the same form. By default latest. Not for streams", _offsets),
    Option("startingTimestamp", None, "Begin at the first record of each partition at or after this time, in milliseconds", low=0),
    Option("endingTimestamp", None, "End before the first record at or after this time. Not for streams", low=0),
    Option("startingOffsetsByTimestamp", None, 'startingTimestamp by partition: {"orders": {"0": 1700000000000}}', _times),
    Option("endingOffsetsByTimestamp", None, "endingTimestamp by partition. Not for streams", _times),
    Option("startingOffsetsByTimestampStrategy", "error", "If all records are older: error, or begin at latest", parse_choice,
           ("error", "latest")),
Option("includeHeaders", True, "Include the column headers", parse_bool),
    Option("kafka.isolation.level", None, "The view of this name", parse_choice, _ISOLATION),
    *(
        Option(name, None, "Refused: files are read, not a broker", _no_broker)
        for name in (
            "kafka.bootstrap.servers", "kafka.group.id", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
            "fetchOffset.retryIntervalMs",
        )
    ),
)  # fmt: skip
"""See `codec.capability.Follow`."""


class PartitionFollow(Follow):
    """Follow partitions by offset. See `codec.capability.Follow`."""

    options = OPTIONS

    def followed(self, view: str | None, options: Options) -> tuple[str, str]:
        view = view or options["kafka.isolation.level"] or "read_uncommitted"
        if view not in _POSITIONS:
            raise UsageError(
                f"view {view!r} cannot be followed or limited by offsets",
                advice=f"Use one of: {', '.join(_POSITIONS)}",
            )
        return view, _POSITIONS[view]

    def leaves_out(self, options: Options) -> Sequence[str]:
        return () if options["includeHeaders"] else ("headers",)

    def wanted(self, name: str, options: Options) -> bool:
        chosen = [word for word in ("subscribe", "subscribePattern", "assign") if options[word] is not None]
        if len(chosen) > 1:
            raise UsageError(f"{' and '.join(chosen)} exclude each other", advice="Pass one of them")
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

    def begins(self, plan: Plan, view: str) -> int:
        return int(plan.facts["log_start_offset"])

    def span(
        self, listing: Listing, plan: Plan, view: str, options: Options, end: int, *, stream: bool
    ) -> tuple[int, int]:
        first, where = self.begins(plan, view), parse_directory(listing.name)
        if stream:
            for word in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
                if options[word] is not None:
                    raise UsageError(
                        f"{word} is not for streams, which have no end", advice="Remove the option"
                    )
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
    """Return the offset of `startingOffsets` or `endingOffsets`. Times take precedence, as in the Kafka source."""
    time = options[f"{which}Timestamp"]
    if time is None and options[f"{which}OffsetsByTimestamp"] is not None:
        time = _of(options[f"{which}OffsetsByTimestamp"], where, f"{which}OffsetsByTimestamp")
    if time is not None:
        offset_at = _first_at(listing, plan, time, first)
        if offset_at is not None:
            return offset_at
        if which == "starting" and options["startingOffsetsByTimestampStrategy"] == "error":
            raise UsageError(
                f"no record of {listing.name} is at or after the time {time}",
                advice="Pass startingOffsetsByTimestampStrategy=latest to begin with new records",
            )
        return end
    bound: Any = options[f"{which}Offsets"] or default
    if isinstance(bound, Mapping):
        offset = _of(bound, where, f"{which}Offsets")
        return {EARLIEST: first, LATEST: end}.get(offset, offset)
    return first if bound == "earliest" else end


def _of(offsets: Mapping[str, Mapping[int, int]], where: TopicPartition | None, option: str) -> int:
    """Return the value for a partition. The JSON must have one for each partition, as in the Kafka source."""
    offset = None if where is None else offsets.get(where.topic, {}).get(where.partition)
    if offset is None:
        name = (
            "a directory whose name is not a partition's"
            if where is None
            else f"{where.topic}-{where.partition}"
        )
        raise UsageError(f"option {option} has no value for {name}", advice="Pass a value for each partition")
    return offset


def _first_at(listing: Listing, plan: Plan, time: int, first: int) -> int | None:
    """Return the first offset, from `first` on, of a record at or after `time` (in milliseconds) (`KafkaConsumer.offsetsForTimes`)."""
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
