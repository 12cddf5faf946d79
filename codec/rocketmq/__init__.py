"""RocketMQ: the files of a store."""

from logwright.codec.base import Codec
from logwright.codec.rocketmq import commitlog, consumequeue

CODECS: tuple[Codec, ...] = (commitlog.CODEC, consumequeue.CODEC)
