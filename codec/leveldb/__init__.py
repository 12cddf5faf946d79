"""LevelDB: the files of a database directory."""

from logwright.codec.base import Codec, Layout
from logwright.codec.leveldb import log, table

CODECS: tuple[Codec, ...] = (log.CODEC, table.CODEC)
LAYOUTS: tuple[Layout, ...] = ()
