"""RocketMQ: the files of a store."""

from logwright.codec.base import Codec
from logwright.codec.capability import DirectoryCapabilities, DirectoryEdit, DirectoryRepair
from logwright.codec.layout import ConfigFile, Layout
from logwright.codec.rocketmq.formats import (
    abort,
    batchconsumequeue,
    config,
    consumequeue,
    consumequeue_ext,
    page,
    timer,
)
from logwright.codec.rocketmq.formats.commitlog import codec as commitlog
from logwright.codec.rocketmq.formats.indexfile import codec as indexfile
from logwright.codec.rocketmq.store import configuration, layout


def _store() -> DirectoryCapabilities:
    from logwright.codec.rocketmq.check.store import StoreChecker
    from logwright.codec.rocketmq.repair.edit import StoreEdit
    from logwright.codec.rocketmq.repair.repair import OPTIONS, REBUILDS, StoreRepair, rebuild
    from logwright.codec.rocketmq.startup.start import STARTUP
    from logwright.codec.rocketmq.store import views
    from logwright.codec.rocketmq.store.follow import StoreFollow

    return DirectoryCapabilities(
        combine=views.combine,
        predict=STARTUP,
        check=StoreChecker,
        follow=StoreFollow(),
        edit=DirectoryEdit(StoreEdit, OPTIONS, redacts=("body",)),
        repair=DirectoryRepair(StoreRepair.repair, rebuild, REBUILDS, OPTIONS),
    )


CODECS: tuple[Codec, ...] = (
    commitlog.CODEC,
    consumequeue.CODEC,
    batchconsumequeue.CODEC,
    consumequeue_ext.CODEC,
    indexfile.CODEC,
    page.CHECKPOINT,
    abort.CODEC,
    *config.CODECS,
    timer.LOG,
    timer.WHEEL,
    page.TIMER_CHECK,
)
LAYOUTS: tuple[Layout, ...] = (layout.LAYOUT.with_capabilities(_store),)
CONFIG_FILES: tuple[ConfigFile, ...] = (configuration.CONFIGURATION,)
