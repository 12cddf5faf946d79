"""Kafka: the files of a partition and of a log directory."""

from logwright.codec.base import Codec
from logwright.codec.capability import (
    DirectoryCapabilities,
    DirectoryCompact,
    DirectoryEdit,
    DirectoryRepair,
    FileCapabilities,
    FileEdit,
    Replicas,
)
from logwright.codec.kafka.formats import (
    checkpoint,
    indexes,
    meta_properties,
    quorum_state,
)
from logwright.codec.kafka.formats import partition_metadata as metadata
from logwright.codec.kafka.formats import producer_snapshot as snapshot
from logwright.codec.kafka.formats.log import codec as log
from logwright.codec.kafka.store import configuration, logdir, partition
from logwright.codec.layout import ConfigFile, Container, Layout


def _log() -> FileCapabilities:
    from logwright.codec.kafka.repair.edit import FILE_OPTIONS, edit_file

    return FileCapabilities(edit=FileEdit(edit_file, FILE_OPTIONS))


def _partition() -> DirectoryCapabilities:
    from logwright.codec.kafka.check.partition import check
    from logwright.codec.kafka.compact.cleaner import OPTIONS, compact
    from logwright.codec.kafka.repair.edit import EDIT_OPTIONS, MOVES, RECODES, edit
    from logwright.codec.kafka.repair.rebuild import REBUILDS, rebuild
    from logwright.codec.kafka.repair.repair import REPAIR_OPTIONS, PartitionRepair
    from logwright.codec.kafka.startup.start import STARTUP
    from logwright.codec.kafka.store import facts
    from logwright.codec.kafka.store.follow import PartitionFollow

    return DirectoryCapabilities(
        predict=STARTUP,
        check=check,
        repair=DirectoryRepair(PartitionRepair.repair, rebuild, REBUILDS, REPAIR_OPTIONS),
        edit=DirectoryEdit(edit, EDIT_OPTIONS, RECODES, MOVES),
        compact=DirectoryCompact(compact, OPTIONS),
        replicas=Replicas(facts.copy_of, facts.reaches),
        follow=PartitionFollow(),
    )


CODECS: tuple[Codec, ...] = (
    log.CODEC.with_capabilities(_log),
    indexes.INDEX,
    indexes.TIMEINDEX,
    indexes.TXNINDEX,
    snapshot.CODEC,
    checkpoint.LEADER_EPOCH_CODEC,
    checkpoint.OFFSETS_CODEC,
    metadata.CODEC,
    meta_properties.CODEC,
    quorum_state.CODEC,
)
LAYOUTS: tuple[Layout, ...] = (partition.LAYOUT.with_capabilities(_partition),)
CONTAINERS: tuple[Container, ...] = (logdir.CONTAINER,)
CONFIG_FILES: tuple[ConfigFile, ...] = (configuration.CONFIGURATION,)
