"""BookKeeper: the files of a bookie."""

from logwright.codec.base import Codec
from logwright.codec.bookkeeper.formats import journal

CODECS: tuple[Codec, ...] = (journal.CODEC,)
