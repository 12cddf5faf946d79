"""ZooKeeper: the files of a data directory."""

from logwright.codec.base import Codec
from logwright.codec.capability import DirectoryCapabilities, DirectoryEdit, DirectoryRepair, FileCapabilities
from logwright.codec.layout import ConfigFile, Layout
from logwright.codec.zookeeper.formats import epochs
from logwright.codec.zookeeper.formats.snapshot import codec as snapshot
from logwright.codec.zookeeper.formats.txnlog import codec as txnlog
from logwright.codec.zookeeper.store import configuration, datadir


def _log() -> FileCapabilities:
    from logwright.codec.zookeeper.repair.file import repair_log

    return FileCapabilities(repair=repair_log)


def _snapshot() -> FileCapabilities:
    from logwright.codec.zookeeper.repair.file import repair_snapshot

    return FileCapabilities(repair=repair_snapshot)


def _data_directory() -> DirectoryCapabilities:
    from logwright.codec.engine.repair import Strategy
    from logwright.codec.zookeeper.check.datadir import DataDirChecker
    from logwright.codec.zookeeper.repair.edit import EDIT_OPTIONS, edit
    from logwright.codec.zookeeper.repair.rebuild import REBUILDS, rebuild
    from logwright.codec.zookeeper.repair.repair import REPAIR_OPTIONS, DataDirRepair
    from logwright.codec.zookeeper.startup.start import STARTUP
    from logwright.codec.zookeeper.store import views

    return DirectoryCapabilities(
        combine=views.combine,
        predict=STARTUP,
        check=DataDirChecker,
        repair=DirectoryRepair(DataDirRepair.repair, rebuild, REBUILDS, REPAIR_OPTIONS, Strategy.PREFIX),
        edit=DirectoryEdit(edit, EDIT_OPTIONS, redacts=("data",)),
    )


CODECS: tuple[Codec, ...] = (
    txnlog.CODEC.with_capabilities(_log),
    snapshot.CODEC.with_capabilities(_snapshot),
    *epochs.CODECS,
)
LAYOUTS: tuple[Layout, ...] = (datadir.LAYOUT.with_capabilities(_data_directory),)
CONFIG_FILES: tuple[ConfigFile, ...] = (configuration.CONFIGURATION,)
