"""ZooKeeper: the files of a data directory."""

from logwright.codec.base import Codec
from logwright.codec.layout import Configures, Layout
from logwright.codec.zookeeper import configuration, datadir, epochs, snapshot, txnlog

CODECS: tuple[Codec, ...] = (txnlog.CODEC, snapshot.CODEC, *epochs.CODECS)
LAYOUTS: tuple[Layout, ...] = (datadir.LAYOUT,)
CONFIGURATIONS: tuple[Configures, ...] = (configuration.CONFIGURATION,)
