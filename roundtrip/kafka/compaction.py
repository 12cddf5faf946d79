"""Random compacted topics, and Kafka's own log cleaner as the judge of a compaction.

    python -m logwright.roundtrip.kafka.compaction --count 500

compacts random partitions with both, at several times, and compares the directories: uncompressed ones byte for byte, others by the content of
their batches. Java 17 and Maven are needed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from logwright.codec.fault import LogwrightError
from logwright.codec.kafka.formats.log.layout import (
    COMPRESSION_NAMES,
    CONTROL,
    CONTROL_RECORD_KEY,
    DELETE_HORIZON,
    END_TXN_MARKER,
    LOG_SEGMENT,
    MESSAGE,
    RECORD,
    RECORD_BATCH,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    codec_name,
)
from logwright.codec.kafka.formats.log.markers import ABORT, COMMIT
from logwright.codec.kafka.names import segment_name
from logwright.codec.kernels.compress import compress as squeeze
from logwright.codec.kernels.compress import decompress
from logwright.readers.report import Report
from logwright.readers.target import Target
from logwright.roundtrip.oracles import kafka
from logwright.writers.compact import compact
from logwright.writers.request import Request

START = 1_700_000_000_000
"""The time of the first record in milliseconds."""
DAY = 86_400_000


@dataclass
class Producer:
    """A producer of a random partition. `transactional`: all its batches are in transactions."""

    producer_id: int = -1
    epoch: int = -1
    transactional: bool = False
    sequence: int = 0
    open: bool = False


@dataclass
class RandomLog:
    """A random partition: its segments by base offset, and the time after its last record."""

    rng: random.Random
    codecs: tuple[int, ...] = (0,)
    segments: dict[int, bytes] = field(default_factory=dict)
    now: int = START
    offset: int = 0
    epoch: int = 0
    old_formats: bool = True
    """Whether some logs begin with messages of magic 0 and 1."""

    def fill(self, batches: int) -> RandomLog:
        rng = self.rng
        self.keys = [f"key-{i}".encode() for i in range(rng.randrange(1, 12))] + [b""] * rng.randrange(2)
        self.null_keys = rng.random() < 0.2
        self.offset = rng.choice((0, 0, 0, rng.randrange(1000)))
        producers = [Producer() for _ in range(rng.randrange(1, 3))]
        for _ in range(rng.randrange(5)):
            producers.append(
                Producer(
                    rng.randrange(4000), rng.randrange(3), rng.random() < 0.7, rng.choice((0, 2**31 - 3))
                )
            )
        unique = {producer.producer_id: producer for producer in producers}
        self.producers = list(unique.values())
        old = rng.randrange(batches) if self.old_formats and rng.random() < 0.15 else 0
        self._roll()
        for i in range(batches):
            if i and rng.random() < 0.15:
                self.offset += rng.choice((0, 0, 1, 50))
                self._roll()
            self._append(self._old(rng.randrange(2)) if i < old else self._entry())
        if rng.random() < 0.7:
            for producer in self.producers:
                if producer.open:
                    self._append(self._marker(producer))
        if rng.random() < 0.5:
            self._roll()
        return self

    def _roll(self) -> None:
        self.segments.setdefault(self.offset, b"")
        self._base = self.offset

    def _append(self, data: bytes) -> None:
        self.segments[self._base] += data

    def _time(self) -> int:
        self.now += self.rng.choice((0, 1, 1000, 60_000, 3_600_000))
        return self.rng.choice(
            (self.now, self.now, self.now, self.now - 5000, -1 if self.rng.random() < 0.1 else self.now)
        )

    def _entry(self) -> bytes:
        """Return the next batch: records, or a marker."""
        rng = self.rng
        self.epoch += rng.random() < 0.05
        producer = rng.choice(self.producers)
        if producer.transactional and (rng.random() < 0.3 or (not producer.open and rng.random() < 0.1)):
            return self._marker(producer)
        if producer.producer_id >= 0 and not producer.open and rng.random() < 0.05:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        return self._data(producer)

    def _marker(self, producer: Producer) -> bytes:
        producer.open = False
        horizon = self.rng.random() < 0.3
        time = self._time()
        base = time + self.rng.choice((-DAY, 0, DAY)) if horizon else time
        record = {
            "key": CONTROL_RECORD_KEY.pack({"type": self.rng.choice((ABORT, COMMIT))}),
            "value": END_TXN_MARKER.pack({"coordinator_epoch": self.rng.randrange(3)}),
            "timestamp_delta": time - base,
        }
        flags = TRANSACTIONAL | CONTROL | (DELETE_HORIZON if horizon else 0)
        return self._pack(producer, [record], 1, flags, base, time, -1)

    def _data(self, producer: Producer) -> bytes:
        rng = self.rng
        slots = rng.choice((1, 1, 2, 3, rng.randrange(1, 12)))
        kept = (
            sorted(rng.sample(range(slots), rng.randrange(slots + 1)))
            if rng.random() < 0.15
            else range(slots)
        )
        flags = (TRANSACTIONAL if producer.transactional else 0) | (
            TIMESTAMP_TYPE if rng.random() < 0.15 else 0
        )
        times = [self._time() for _ in kept]
        base = times[0] if times else -1
        if rng.random() < 0.15 and times:
            flags |= DELETE_HORIZON
            base = max(times) + rng.choice((-DAY, 0, DAY, 3 * DAY))
        records = [self._record(delta, time - base) for delta, time in zip(kept, times, strict=True)]
        producer.open = producer.transactional
        sequence = producer.sequence if producer.producer_id >= 0 else -1
        producer.sequence = (producer.sequence + slots) % (1 << 31)
        top = self.now if flags & TIMESTAMP_TYPE or not times else max(times)
        return self._pack(
            producer, records, slots, flags | (rng.choice(self.codecs) if records else 0), base, top, sequence
        )

    def _record(self, delta: int, time: int) -> dict[str, Any]:
        rng = self.rng
        value = None if rng.random() < 0.25 else rng.randbytes(rng.choice((0, 3, 20, 200)))
        headers = [
            {"key": b"h" * rng.randrange(3), "value": rng.choice((None, b"", b"x"))}
            for _ in range(rng.randrange(3))
        ]
        key = None if self.null_keys and rng.random() < 0.3 else rng.choice(self.keys)
        return {
            "key": key,
            "value": value,
            "offset_delta": delta,
            "timestamp_delta": time,
            "headers": headers if rng.random() < 0.2 else (),
        }

    def _pack(
        self,
        producer: Producer,
        records: list[dict[str, Any]],
        slots: int,
        flags: int,
        base: int,
        top: int,
        sequence: int,
    ) -> bytes:
        codec = flags & 7
        content: Any = records
        if codec:
            plain = b"".join(RECORD.pack(record) for record in records)
            content = bytes(squeeze(COMPRESSION_NAMES[codec], np.frombuffer(plain, np.uint8)))
        data = RECORD_BATCH.pack(
            {
                "base_offset": self.offset,
                "partition_leader_epoch": self.epoch,
                "attributes": flags,
                "last_offset_delta": slots - 1,
                "base_timestamp": base,
                "max_timestamp": top,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "base_sequence": sequence,
                "records_count": len(records),
                "records": content,
            }
        )
        self.offset += slots
        return data

    def _old(self, magic: int) -> bytes:
        """Return a message of magic 0 or 1, or a wrapper."""
        rng = self.rng
        codec = rng.choice(self.codecs)
        count = rng.randrange(2, 5) if codec in (1, 2, 3) else 1
        messages: list[dict[str, Any]] = []
        for i in range(count):
            messages.append(
                {
                    "offset": self.offset + i if magic == 0 or count == 1 else i,
                    "magic": magic,
                    "timestamp": self._time() if magic else None,
                    "key": rng.choice(self.keys),
                    "value": None if rng.random() < 0.25 else rng.randbytes(10),
                }
            )
        self.offset += count
        if count == 1:
            return MESSAGE.pack(messages[0])
        plain = b"".join(MESSAGE.pack(message) for message in messages)
        stored = bytes(squeeze(codec_name(codec, magic), np.frombuffer(plain, np.uint8)))
        time = max(message["timestamp"] for message in messages) if magic else None
        return MESSAGE.pack(
            {
                "offset": self.offset - 1,
                "magic": magic,
                "attributes": codec,
                "timestamp": time,
                "key": None,
                "value": stored,
            }
        )

    def write(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        for base, data in self.segments.items():
            (directory / segment_name(base, ".log")).write_bytes(data)


def contents(directory: Path, *, exact: bool) -> dict[str, Any]:
    """Return the parts of a compacted directory that must be equal: all bytes, or (not `exact`) the decompressed batches and records, and
    the files that do not depend on it."""
    files = {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
    if exact:
        return dict(files)
    out: dict[str, Any] = {}
    for name, data in files.items():
        if name.endswith(".log"):
            out[name] = [_batch(frame["frame"]) for frame in LOG_SEGMENT.unpack(data)[0]["frames"]]
        elif not name.endswith((".index", ".timeindex")):
            out[name] = data
    return out


def _batch(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch without its compressed form."""
    codec = batch["attributes"] & 7
    plain = {name: value for name, value in batch.items() if name not in ("batch_length", "crc")}
    if codec and "records" in plain:
        plain["records"] = decompress(
            COMPRESSION_NAMES[codec], np.frombuffer(batch["records"], np.uint8), 1 << 24
        ).tobytes()
    return plain


@dataclass
class Round:
    """One random partition and the settings of its compaction."""

    log: RandomLog
    now: int
    first_dirty: int | None
    settings: dict[str, int]
    memory: int
    roll: bool = False

    @classmethod
    def of(cls, seed: int) -> Round:
        rng = random.Random(seed)
        log = RandomLog(rng, rng.choice(((0,), (0,), (0,), (0, 1, 2, 3, 4)))).fill(rng.randrange(1, 60))
        bases = sorted(log.segments)
        first = rng.choice((None, None, rng.choice(bases), rng.randrange(log.offset + 1)))
        settings = {
            "segment.bytes": rng.choice((1 << 30, 1 << 30, 400, 1000, 4000)),
            "index.interval.bytes": rng.choice((4096, 200, 1)),
            "delete.retention.ms": rng.choice((DAY, 0, 1000)),
            "min.compaction.lag.ms": rng.choice((0, 0, 3_600_000)),
        }
        now = log.now + rng.choice((0, 0, DAY // 2, 2 * DAY, 30 * DAY))
        return cls(log, now, first, settings, rng.choice((4 << 20, 4 << 20, 24 * 6)), rng.random() < 0.3)


_KAFKAS = {"segment.bytes": "internal.segment.bytes"}
"""A topic's own setting has a lower limit of 1 MiB."""


def run(item: Round, work: Path) -> str | None:
    """Compact a partition with both. Return how the results differ; None if they are equal."""
    source = work / "source" / "orders-0"
    item.log.write(source)
    kafka.load(source, index_interval_bytes=item.settings["index.interval.bytes"])
    return judge(
        source,
        work,
        item.now,
        item.settings,
        first_dirty=item.first_dirty,
        memory=item.memory,
        roll=item.roll,
        exact=item.log.codecs == (0,),
    )


def judge(
    source: Path, work: Path, now: int, settings: Mapping[str, int], *, first_dirty: int | None = None, memory: int = 4 << 20,
    roll: bool = False, exact: bool,
) -> str | None:  # fmt: skip
    """Compact a partition that Kafka has loaded and closed, with both. Return how the results differ; None if they are equal. A partition that
    both refuse counts as equal."""
    judged, ours = (work / name / source.name for name in ("kafka", "ours"))
    shutil.copytree(source, judged)
    refusals: list[str] = []
    try:
        kafka.compact(
            judged,
            now,
            clean=True,
            first_dirty=first_dirty,
            dedupe_buffer=memory,
            roll=roll,
            config={_KAFKAS.get(name, name): str(value) for name, value in settings.items()},
        )
    except kafka.JavaError as error:
        refusals.append(f"Kafka refuses: {error}")
    options = {**settings, "now": now, "roll": roll, "log.cleaner.dedupe.buffer.size": memory}
    if first_dirty is not None:
        options["first.dirty.offset"] = first_dirty
    ours.parent.mkdir()
    try:
        compact(str(source), None, Request(str(ours)), _report, options, True)
    except LogwrightError as error:
        refusals.append(f"logwright refuses: {error}")
    if refusals:
        return None if len(refusals) == 2 else refusals[0]
    expected, actual = contents(judged, exact=exact), contents(ours, exact=exact)
    # A broker creates the indexes of a new active segment with its first record.
    unused = [
        name
        for name, data in actual.items()
        if roll and name.endswith("index") and not data and name not in expected
    ]
    for name in unused:
        del actual[name]
    different = [name for name in sorted({*expected, *actual}) if expected.get(name) != actual.get(name)]
    return f"different: {', '.join(different)}" if different else None


def _report(targets: Sequence[Target]) -> Report:
    return Report(targets[0].path, "kafka.partition")


def compare(seeds: Iterator[int] | range) -> Iterator[tuple[int, str]]:
    """Compact random partitions with both. Yield the seeds of those that differ, and how they differ."""
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="logwright-compaction-") as work:
            difference = run(Round.of(seed), Path(work))
        if difference is not None:
            yield seed, difference


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="The first seed.")
    arguments = parser.parse_args()
    reason = kafka.available()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 2
    failed = 0
    for seed, difference in compare(range(arguments.seed, arguments.seed + arguments.count)):
        failed += 1
        print(f"seed {seed}: {difference}", flush=True)
    print(f"{arguments.count} partitions, {failed} different")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
