"""RocketMQ: the files of a store."""

from logwright.codec.base import Codec
from logwright.codec.rocketmq.formats import (
    abort,
    batchconsumequeue,
    config,
    consumequeue,
    consumequeue_ext,
    indexfile,
    page,
    timer,
)
from logwright.codec.rocketmq.formats.commitlog import codec as commitlog

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
