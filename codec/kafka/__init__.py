"""Kafka: the files of a partition and of a log directory."""

from logwright.codec.base import Codec
from logwright.codec.kafka import (
    checkpoint,
    configuration,
    index,
    log,
    logdir,
    metadata,
    partition,
    snapshot,
    timeindex,
    txnindex,
)
from logwright.codec.layout import Configures, Gathering, Layout

CODECS: tuple[Codec, ...] = (
    log.CODEC,
    index.CODEC,
    timeindex.CODEC,
    txnindex.CODEC,
    snapshot.CODEC,
    checkpoint.LEADER_EPOCH_CODEC,
    checkpoint.OFFSETS_CODEC,
    metadata.CODEC,
)
LAYOUTS: tuple[Layout, ...] = (partition.LAYOUT,)
GATHERINGS: tuple[Gathering, ...] = (logdir.LOG_DIRECTORY,)
CONFIGURATIONS: tuple[Configures, ...] = (configuration.CONFIGURATION,)
