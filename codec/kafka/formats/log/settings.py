"""The options of writing batches and messages."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from logwright.codec.fault import UsageError
from logwright.codec.kafka.formats.log.layout import COMPRESSION_NAMES, CREATE_TIME, LOG_APPEND_TIME, MAGIC
from logwright.codec.kafka.formats.payload import Format, formats_of
from logwright.codec.option import Option, Options, parse_choice, parse_text

OPTIONS = (
    Option(
        "compression.type",
        "none",
        "Compression of batches",
        parse_choice,
        (*COMPRESSION_NAMES, "uncompressed"),
    ),
    Option("compression.gzip.level", -1, "Level of gzip: 1 to 9, or -1 for the default", low=-1, high=9),
    Option("compression.lz4.level", 9, "Level of lz4: 1 to 17; 9 is the fast compressor", low=1, high=17),
    Option("compression.zstd.level", 3, "Level of zstd: -131072 to 22", low=-131072, high=22),
    Option(
        "batch.size",
        16384,
        "Size of a batch in bytes before compression. Each batch has at least one record",
        low=0,
        high=1 << 30,
    ),
    Option(
        "message.timestamp.type",
        "CreateTime",
        "Default of the column timestampType: CreateTime or LogAppendTime",
        parse_text,
        ("CreateTime", "LogAppendTime"),
    ),
    Option("partition.leader.epoch", 0, "Leader epoch of the batches", low=-1, high=(1 << 31) - 1),
    Option(
        "magic",
        MAGIC,
        "Message format: 2 for record batches, 1 or 0 for the messages of Kafka 0.10 and before. They have no headers, no leader epoch, no"
        " producer and no zstd, and those of magic 0 have no timestamps",
        low=0,
        high=MAGIC,
    ),
    Option(
        "message.format.version",
        "",
        "The version of Kafka whose message format is written: below 0.10 magic 0, below 0.11 magic 1, otherwise 2. Option magic counts first",
        parse_text,
    ),
)


def magic_of(options: Options) -> int:
    """Return the magic that is written. Raises `UsageError` for a `message.format.version` that is not a version."""
    version = str(options["message.format.version"])
    if options.given("magic") or not version:
        return int(options["magic"])
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        raise UsageError(f"message.format.version is {version!r}, expected a version of Kafka such as 0.10.2")
    release = int(match[1]), int(match[2])
    return 0 if release < (0, 10) else 1 if release < (0, 11) else MAGIC


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Settings of batches. `level` None is the compressor's default. `batch_size` counts bytes before compression."""

    compression: str = "none"
    level: int | None = None
    batch_size: int = 16384
    timestamp_type: int = CREATE_TIME
    leader_epoch: int = 0
    magic: int = MAGIC
    keep_magic: bool = False
    keep_compression: bool = False
    keep_batches: bool = False
    """Whether rows keep the magic and the compression of their columns, and compressed rows of one batch stay together."""
    levels: tuple[tuple[str, int], ...] = ()
    """Of the compressions that have levels."""
    formats: tuple[tuple[str, Format], ...] = ()
    """The formats of keys and values that are written from JSON text, by column."""
    control: int = 0
    """The number of a control batch among those of an encoder; 0 for data."""

    @classmethod
    def of(cls, options: Options) -> BatchSettings:
        """Return the settings in `OPTIONS`."""
        name = options["compression.type"]
        name = "none" if name == "uncompressed" else name
        levels = {codec: options[f"compression.{codec}.level"] for codec in ("gzip", "lz4", "zstd")}
        append = options["message.timestamp.type"] == "LogAppendTime"
        return cls(
            name,
            levels.get(name),
            options["batch.size"],
            LOG_APPEND_TIME if append else CREATE_TIME,
            options["partition.leader.epoch"],
            magic_of(options),
            not options.given("magic") and not options["message.format.version"],
            not options.given("compression.type"),
            not options.given("batch.size"),
            tuple(levels.items()),
            tuple(formats_of(options).items()),
        )

    def kept(self, magic: int, codec: int) -> BatchSettings:
        """Return the settings of rows with this magic and compression."""
        name = COMPRESSION_NAMES[codec]
        if (magic, name) == (self.magic, self.compression):
            return self
        return replace(self, magic=magic, compression=name, level=dict(self.levels).get(name))
