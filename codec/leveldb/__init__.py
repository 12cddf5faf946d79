"""LevelDB: the files of a database directory."""

from logwright.codec.base import Codec
from logwright.codec.layout import Layout
from logwright.codec.leveldb import current, db, log, manifest, table

CODECS: tuple[Codec, ...] = (log.CODEC, manifest.CODEC, table.CODEC, current.CODEC)
LAYOUTS: tuple[Layout, ...] = (db.LAYOUT,)
