"""ZooKeeper: the files of a data directory."""

from logwright.codec.base import Codec, Layout
from logwright.codec.zookeeper import snapshot, txnlog

CODECS: tuple[Codec, ...] = (txnlog.CODEC, snapshot.CODEC)
LAYOUTS: tuple[Layout, ...] = ()
