"""LevelDB: the files of a database directory."""

from logwright.codec.base import Codec, Layout
from logwright.codec.leveldb import table

CODECS: tuple[Codec, ...] = (table.CODEC,)
LAYOUTS: tuple[Layout, ...] = ()
