"""BookKeeper: the files of a bookie."""

from logwright.codec.base import Codec
from logwright.codec.bookkeeper.formats import cookie, index, journal, smallfiles
from logwright.codec.bookkeeper.formats.entrylog import codec as entrylog
from logwright.codec.bookkeeper.store import configuration, layout
from logwright.codec.capability import DirectoryCapabilities, DirectoryEdit, DirectoryRepair
from logwright.codec.layout import ConfigFile, Layout


def _bookie() -> DirectoryCapabilities:
    from logwright.codec.bookkeeper.check.bookie import BookieChecker
    from logwright.codec.bookkeeper.repair.edit import BookieEdit
    from logwright.codec.bookkeeper.repair.repair import OPTIONS, REBUILDS, BookieRepair, rebuild
    from logwright.codec.bookkeeper.startup.start import STARTUP
    from logwright.codec.bookkeeper.store import views
    from logwright.codec.bookkeeper.store.follow import BookieFollow

    return DirectoryCapabilities(
        combine=views.combine,
        predict=STARTUP,
        check=BookieChecker,
        follow=BookieFollow(),
        edit=DirectoryEdit(BookieEdit, OPTIONS, redacts=("payload",)),
        repair=DirectoryRepair(BookieRepair.repair, rebuild, REBUILDS, OPTIONS),
    )


CODECS: tuple[Codec, ...] = (entrylog.CODEC, journal.CODEC, index.CODEC, *smallfiles.CODECS, cookie.CODEC)
LAYOUTS: tuple[Layout, ...] = (layout.LAYOUT.with_capabilities(_bookie),)
CONFIG_FILES: tuple[ConfigFile, ...] = (configuration.CONFIGURATION,)
