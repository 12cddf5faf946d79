"""RocketMQ: the files of a store."""

from logwright.codec.base import Codec
from logwright.codec.rocketmq.formats import consumequeue
from logwright.codec.rocketmq.formats.commitlog import codec as commitlog

CODECS: tuple[Codec, ...] = (commitlog.CODEC, consumequeue.CODEC)
