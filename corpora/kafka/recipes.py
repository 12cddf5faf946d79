"""Recipes of Kafka partitions: small ones that together have every attribute of the format, and a large plain one.

The small ones are put together batch by batch from the description (`script.Script`), apart from the kernels. The plain one
is rows, made in bulk (`bulk`) and written by the product's own writer.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from logwright.codec import registry
from logwright.codec.describe import VARINT
from logwright.codec.fault import UsageError
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.formats.log.layout import COMPRESSION_NAMES
from logwright.codec.kafka.formats.log.settings import OPTIONS as ENCODING
from logwright.codec.kafka.formats.log.tables import ROWS
from logwright.codec.kafka.names import parse_directory, parse_segment, segment_name
from logwright.codec.option import Option
from logwright.corpora.kafka import bulk
from logwright.corpora.kafka.bulk import START_MS
from logwright.corpora.kafka.script import Producer, Record, Script, content_hash
from logwright.corpora.recipe import Generator, Made, Order, Reads, Recipe, settings
from logwright.corpora.rng import Rng, text

_LAYOUT = "kafka.partition"
_PIECE = 1 << 16
_YEAR_MS = 365 * 24 * 3600 * 1000
_LEADER_CHANGE, _SNAPSHOT_HEADER, _SNAPSHOT_FOOTER, _UNKNOWN_CONTROL = 2, 3, 4, 42

_SEGMENT_BYTES = Option(
    "segment.bytes", None, "Bytes of a segment; the recipe's own when not given", low=1, high=(1 << 31) - 1
)
_INTERVAL = Option(
    "index.interval.bytes", 4096, "Bytes between entries of the indexes", low=0, high=(1 << 31) - 1
)
_TOPIC_ID = Option(
    "topic.id", None, "UUID of the topic, 22 characters of URL-safe base64; by seed when not given", parse=str
)


# The small ones. Each is a function of the script, a source of randomness, and how many records are to be written.


@dataclass
class _Source:
    """A source of records at increasing times."""

    rng: Rng
    left: int
    now: int = START_MS
    count: int = 0

    def tick(self) -> int:
        self.now += self.rng.between(1, 60)
        return self.now

    def record(self, **rest: Any) -> Record:
        """A record with a key of a few, and some words."""
        self.count += 1
        rest.setdefault("key", b"user-%d" % self.rng.below(50))
        rest.setdefault("value", text(self.rng, self.rng.between(5, 120)))
        rest.setdefault("timestamp", self.tick())
        return Record(**rest)

    def some(self, most: int = 12) -> list[Record]:
        """Records of the next batch: from 1 to `most`, as many as are left."""
        count = min(self.left, self.rng.between(1, most))
        self.left -= count
        return [self.record() for _ in range(count)]


def _compressed(script: Script, source: _Source) -> None:
    i = 0
    while source.left:
        script.batch(source.some(40), compression=COMPRESSION_NAMES[i % len(COMPRESSION_NAMES)])
        i += 1


def _headers(script: Script, source: _Source) -> None:
    rng = source.rng
    kinds: list[Callable[[], tuple[tuple[Any, ...], ...]]] = [
        lambda: (),
        lambda: ((b"trace-id", rng.bytes(16).hex().encode()),),
        lambda: ((b"", b""),),
        lambda: ((b"null", None), (b"empty", b"")),
        lambda: ((b"again", b"1"), (b"again", b"2"), (b"again", b"1")),
        lambda: (("ключ".encode(), "значение".encode()),),
        lambda: ((b"binary", rng.bytes(40)),),
        lambda: tuple((b"h%d" % i, rng.bytes(rng.below(6))) for i in range(60)),
        lambda: ((b"n" * 300, b"v" * 1000),),
    ]
    while source.left:
        batch = source.some()
        script.batch(
            [
                Record(record.key, record.value, record.timestamp, kinds[rng.below(len(kinds))]())
                for record in batch
            ]
        )


def _nulls(script: Script, source: _Source) -> None:
    keys, values = (None, b"", b"k"), (None, b"", b"v")
    i = 0
    while source.left:
        batch = []
        for record in source.some():
            batch.append(Record(keys[i % 3], values[i // 3 % 3], record.timestamp))
            i += 1
        script.batch(batch)


def _idempotent(script: Script, source: _Source) -> None:
    wrapping = Producer(1001, 0, sequence=(1 << 31) - 5)
    others = [Producer(1000, 3), wrapping, Producer(1002, 32767)]
    while source.left:
        script.batch(source.some(5), producer=source.rng.choice(others))
        if source.rng.below(20) == 0 and others[0].epoch < 9:
            others[0] = Producer(1000, others[0].epoch + 1)


def _transactions(script: Script, source: _Source) -> None:
    producer, commit = Producer(2000), True
    while source.left:
        for _ in range(source.rng.between(1, 3)):
            if source.left:
                script.batch(source.some(4), producer=producer, transactional=True)
        script.marker(producer, commit, source.tick(), coordinator_epoch=source.rng.below(3))
        commit = not commit


def _interleaved(script: Script, source: _Source, *, close: bool = True) -> None:
    rng = source.rng
    producers = [Producer(3000), Producer(3001), Producer(3002, 7)]
    busy: list[Producer] = []
    while source.left:
        who = rng.below(5)
        if who == 4:
            script.batch(source.some(3))
            continue
        if who == 3 and busy:
            script.marker(busy.pop(rng.below(len(busy))), rng.below(2) == 0, source.tick())
            continue
        producer = producers[who % 3]
        script.batch(
            source.some(3),
            producer=producer,
            transactional=True,
            compression=rng.choice(("none", "none", "zstd")),
        )
        if producer not in busy:
            busy.append(producer)
    for producer in busy if close else ():
        script.marker(producer, rng.below(2) == 0, source.tick())


def _open(script: Script, source: _Source) -> None:
    _transactions(script, _half(source))
    _interleaved(script, _half(source), close=False)
    last = Producer(3999)
    while source.left:
        script.batch(source.some(), producer=last, transactional=True)


def _half(source: _Source) -> _Source:
    """Take a part of the remaining records."""
    part = source.left // 2
    source.left -= part
    return _Source(source.rng, part, source.now)


def _control(script: Script, source: _Source) -> None:
    idle = Producer(4000)
    script.control(
        _LEADER_CHANGE, bytes.fromhex("0000 00000001 02 00000001 00 02 00000001 00 00"), source.tick()
    )
    while source.left:
        script.batch(source.some())
        kind = source.rng.below(4)
        if kind == 0:
            # A transaction without data here: the producer wrote to other partitions.
            script.marker(idle, source.rng.below(2) == 0, source.tick(), coordinator_epoch=1)
        elif kind == 1:
            script.control(_UNKNOWN_CONTROL, b"later", source.tick())
    script.control(_SNAPSHOT_HEADER, bytes.fromhex("0000 0000018bcfe56800 00"), source.tick())
    script.control(_SNAPSHOT_FOOTER, bytes.fromhex("0000 00"), source.tick())


def _compacted(script: Script, source: _Source) -> None:
    """The results of compaction: holes, empty batches, tombstones and markers with a delete horizon."""
    rng = source.rng
    producers = [Producer(5000), Producer(5001)]
    writer = Producer(5002)
    while source.left:
        kind = rng.below(6)
        if kind == 0:
            # All records were removed, but the batch was the last of an active producer.
            producer = rng.choice(producers)
            last = rng.below(8)
            script.batch([], producer=producer, last_delta=last, max_timestamp=source.tick())
        elif kind == 1:
            script.skip(rng.between(1, 200))
            script.roll() if rng.below(3) == 0 else None
        elif kind == 2:
            horizon = source.now + 86_400_000
            record = source.record(value=None)
            source.left -= 1
            script.batch(
                [record], delete_horizon=horizon, last_delta=rng.below(4), max_timestamp=record.timestamp
            )
        elif kind == 3:
            script.batch(source.some(3), producer=writer, transactional=True, last_delta=20)
            script.marker(writer, rng.below(3) > 0, source.tick(), horizon=source.now + 86_400_000)
        else:
            delta, batch = 0, []
            for record in source.some(5):
                batch.append(Record(record.key, record.value, record.timestamp, delta=delta))
                delta += rng.between(1, 9)
            script.batch(
                batch, last_delta=delta + rng.below(5), producer=rng.choice((None, *producers)),
                compression=rng.choice(("none", "zstd", "lz4")),
            )  # fmt: skip
    script.batch([], last_delta=3, max_timestamp=source.tick())


def _append_time(script: Script, source: _Source) -> None:
    while source.left:
        batch = source.some()
        script.batch(
            batch,
            append_time=source.now + source.rng.between(0, 5000),
            compression=source.rng.choice(COMPRESSION_NAMES),
        )


def _epochs(script: Script, source: _Source) -> None:
    none: int | None = -1
    while source.left:
        script.batch(source.some(), leader_epoch=none)
        none = None
        if source.rng.below(3) == 0:
            script.leader_epoch += source.rng.between(1, 4)


def _timestamps(script: Script, source: _Source) -> None:
    rng = source.rng
    odd: list[Callable[[], int]] = [
        source.tick,
        lambda: -1,
        lambda: 0,
        lambda: source.now - rng.between(1, 100_000),
        lambda: source.now + rng.between(1, 100_000),
        lambda: START_MS - 50 * _YEAR_MS,
        lambda: START_MS + 200 * _YEAR_MS,
        lambda: 253_402_300_799_999,
    ]
    while source.left:
        batch = source.some(6)
        if rng.below(4) == 0:
            script.batch([Record(record.key, record.value, -1) for record in batch])
        else:
            script.batch([Record(record.key, record.value, odd[rng.below(len(odd))]()) for record in batch])


def _big(script: Script, source: _Source) -> None:
    rng = source.rng
    i = 0
    while source.left:
        source.left -= 1
        size = (70_000, 900_000, 20_000, 0)[i % 4]
        value = rng.bytes(size) if i % 2 == 0 else text(rng, 1000) * (size // 1000)
        key = rng.bytes(20_000) if i % 4 == 2 else b"k"
        script.batch([source.record(key=key, value=value)], compression="gzip" if i % 2 else "none")
        i += 1


def _single(script: Script, source: _Source) -> None:
    while source.left:
        script.batch(source.some(1))


def _segments(script: Script, source: _Source) -> None:
    while source.left:
        script.batch(source.some(8))
        if source.rng.below(10) == 0:
            script.skip(source.rng.between(1, 50))
            script.roll()


def _over_long(number: int, extra: int) -> bytes:
    """Encode an overlong varint with `extra` groups."""
    short = VARINT.pack(number, {})
    more = short[:-1] + bytes([short[-1] | 0x80]) + b"\x80" * (extra - 1) + b"\0" if extra else short
    return more


def _odd_record(record: Record, *, over_long: bool = False, null_length: int = -1) -> Record:
    """Encode the first record of a batch with overlong varints."""
    body = bytes([record.attributes, 0, 0])
    for part in (record.key, record.value):
        body += (
            VARINT.pack(null_length, {})
            if part is None
            else _over_long(len(part), 2 if over_long else 0) + part
        )
    body += _over_long(0, 1 if over_long else 0)
    return Record(
        record.key, record.value, record.timestamp, delta=0, attributes=record.attributes,
        packed=_over_long(len(body), 1 if over_long else 0) + body,
    )  # fmt: skip


def _odd(script: Script, source: _Source) -> None:
    rng = source.rng
    wrong = ((b"\xff\xfe", b"1", "\ufffd\ufffd"), (b"\xc3(", None, "\ufffd("), (b"fine", b"\xff"))
    i = 0
    while source.left:
        source.left -= 1
        record = source.record()
        kind = i % 7
        i += 1
        if kind == 0:
            script.batch([_odd_record(record, over_long=True)])
        elif kind == 1:
            script.batch([_odd_record(Record(None, record.value, record.timestamp), null_length=-2)])
        elif kind == 2:
            script.batch([Record(record.key, None, record.timestamp, attributes=rng.between(-128, 127))])
        elif kind == 3:
            script.batch([record], high_bits=rng.between(1, 255))
        elif kind == 4:
            script.batch([Record(record.key, record.value, record.timestamp, wrong)])
        elif kind == 5:
            # The coordinator of groups writes a sequence of 0 without a producer.
            script.batch([record], base_sequence=0)
        else:
            # A value that contains a complete batch with a valid checksum.
            inner = Script(first_offset=script.next_offset)
            inner.batch([source.record()])
            script.batch([Record(record.key, bytes(inner.segments[0].data), record.timestamp)])


def _shifted(script: Script, source: _Source) -> None:
    """Retention deleted the first segments, DeleteRecords the start of the next one."""
    batches = 0
    while source.left:
        if batches == 2:
            script.log_start = script.next_offset
        script.batch(source.some())
        batches += 1


_Recipe = Callable[[Script, _Source], None]

_SMALL: dict[str, tuple[_Recipe, str, dict[str, Any]]] = {
    "compressed": (_compressed, "each of the five compressions in turn", {}),
    "headers": (_headers, "none, many, duplicate, long; null and empty values, empty keys", {}),
    "nulls": (_nulls, "null and empty keys and values in all combinations", {}),
    "idempotent": (_idempotent, "producers that alternate; a sequence that wraps, epochs that rise", {}),
    "transactions": (_transactions, "one producer that commits and aborts in turn", {}),
    "interleaved": (
        _interleaved,
        "transactions of three producers that overlap, and plain batches between",
        {},
    ),
    "open": (_open, "transactions, some of which are still open at the end", {}),
    "control": (
        _control,
        "markers of producers without data, control records of KRaft and of no known type",
        {},
    ),
    "compacted": (
        _compacted,
        "holes, empty batches, tombstones and markers with a delete horizon",
        {"segment_bytes": 8192},
    ),
    "append_time": (_append_time, "the broker's time of the append instead of the producer's", {}),
    "epochs": (_epochs, "leader epochs that rise, and one batch without", {}),
    "timestamps": (_timestamps, "none, 0, out of order, far past and far future", {}),
    "big": (_big, "values up to 900 kB, keys of 20 kB, well and badly compressible", {}),
    "single": (_single, "one record in each batch", {}),
    "segments": (_segments, "many small segments, with gaps between some", {"segment_bytes": 2048}),
    "odd": (
        _odd,
        "odd but legal encodings: over-long varints, length -2, unknown bits, header keys that are not UTF-8",
        {},
    ),
    "shifted": (
        _shifted,
        "offsets from five billion on, and a log start inside the first segment",
        {"first_offset": 5 * 10**9},
    ),
}


def _everything(script: Script, source: _Source) -> None:
    parts = [
        recipe for name, (recipe, _, _) in _SMALL.items() if name not in ("big", "open", "shifted", "epochs")
    ]
    # An open transaction hides everything after it from read_committed, so it comes last.
    parts += [_open]
    for i, recipe in enumerate(parts):
        share = source.left // (len(parts) - i)
        if share:
            source_part = _Source(source.rng.stream(str(i)), share, source.now)
            recipe(script, source_part)
            source.left -= share
            source.now = source_part.now
            script.leader_epoch += 1


_SMALL["everything"] = (
    _everything,
    "all of the others in one partition, but for the big ones",
    {"segment_bytes": 65536},
)

_TAKEN = (_SEGMENT_BYTES, _INTERVAL, _TOPIC_ID)


def _script(order: Order, *, one_file: bool) -> Script:
    recipe, _, settings = _SMALL[order.recipe]
    options = dict(settings)
    if not one_file and order.options["segment.bytes"] is not None:
        options["segment_bytes"] = order.options["segment.bytes"]
    named = parse_segment(order.name) if one_file else None
    if named is not None:
        options["first_offset"] = named.base_offset
    script = Script(one_file=one_file, **options)
    recipe(script, _Source(order.rng(order.recipe), order.rows))
    return script


def _expected(
    rows: Callable[[], Iterator[dict[str, Any]]], name: str
) -> Callable[[], Iterator[pa.RecordBatch]]:
    """The rows with topic and partition, in batches with the core columns."""
    schema = ROWS.schema()
    topic, partition = parse_directory(name) or (None, None)

    def batches() -> Iterator[pa.RecordBatch]:
        piece: list[dict[str, Any]] = []
        for row in rows():
            timestamp = row["timestamp"]
            piece.append(
                {
                    **row,
                    "topic": topic,
                    "partition": partition,
                    "timestamp": None if timestamp == -1 else timestamp,
                }
            )
            if len(piece) == _PIECE:
                yield pa.RecordBatch.from_pylist(piece, schema)
                piece = []
        yield pa.RecordBatch.from_pylist(piece, schema)

    return batches


def _topic_id(order: Order) -> str:
    """Return a topic id derived from the seed."""
    topic_id = order.options["topic.id"]
    if topic_id is not None:
        return str(topic_id)
    return base64.urlsafe_b64encode(order.rng("topic.id").bytes(16)).decode().rstrip("=")


def _named(order: Order) -> str:
    if parse_directory(order.name) is None:
        raise UsageError(
            f"{order.name!r} is not the name of a partition's directory",
            advice="It is topic-partition, like orders-0",
        )
    return order.name


def _hash(name: str, read: Reads, size: int) -> str | None:
    return content_hash(read, size) if name == "" or name.endswith(".log") else None


def _small_partition(order: Order) -> Made:
    name = _named(order)
    script = _script(order, one_file=False)
    files = {segment_name(segment.base, ".log"): bytes(segment.data) for segment in script.segments}
    files |= script.derived(order.options["index.interval.bytes"])
    files[metadata.FILE] = metadata.pack(_topic_id(order))
    first = script.segments[0].base
    return Made(
        expected={
            "read_uncommitted": _expected(script.uncommitted, name),
            "read_committed": _expected(script.committed, name),
        },
        files=files,
        read_options={"log_start_offset": script.log_start} if script.log_start > first else {},
        content=_hash,
    )


def _small_log(order: Order) -> Made:
    script = _script(order, one_file=True)
    return Made(
        expected={"rows": _expected(lambda: iter(script.rows), order.folder)},
        files={"": bytes(script.segments[0].data)},
        content=_hash,
    )


# The large one


_LEFT_OUT = ("message.timestamp.type", "offsets")
"""LogAppendTime would make the times irreproducible, and there are no offsets to keep."""


def _plain(order: Order) -> Made:
    return Made(
        expected={"rows": bulk.expected(order, order.folder)},
        batches=lambda: bulk.rows(order),
        options=order.given(bulk.OPTIONS),
        content=_hash,
    )


def _plain_partition(order: Order) -> Made:
    _named(order)
    script = _plain(order)
    expected = bulk.expected(order, order.name, order.options["first.offset"] or 0)
    script.expected = {"read_uncommitted": expected, "read_committed": expected}
    script.options = {**script.options, "topic.id": _topic_id(order)}
    return script


_PLAIN_DOC = "any number of rows, in bulk: keys and words, any settings of the writer"


def generators() -> tuple[Generator, ...]:
    """Build the generator lazily, because it needs the layout's options."""
    layout = registry.get_layout(_LAYOUT)
    written, encoded = (settings(options, _LEFT_OUT, bulk.OPTIONS) for options in (layout.options, ENCODING))
    return (
        Generator(
            _LAYOUT,
            (
                Recipe("plain", _PLAIN_DOC, _plain_partition, written),
                *(Recipe(name, doc, _small_partition, _TAKEN) for name, (_, doc, _) in _SMALL.items()),
            ),
        ),
        Generator(
            log.CODEC.name,
            (
                Recipe("plain", _PLAIN_DOC, _plain, encoded),
                *(Recipe(name, doc, _small_log) for name, (_, doc, _) in _SMALL.items()),
            ),
        ),
    )
