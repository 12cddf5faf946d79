"""LevelDB: the files of a database directory."""

from logwright.codec.base import Codec
from logwright.codec.capability import (
    DirectoryCapabilities,
    DirectoryEdit,
    DirectoryRepair,
    FileCapabilities,
    FileEdit,
)
from logwright.codec.layout import Layout
from logwright.codec.leveldb.check.database import check as check_database
from logwright.codec.leveldb.formats import current
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.manifest import codec as manifest
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.repair.edit import EDIT_OPTIONS, FILE_OPTIONS, edit, edit_log, edit_table
from logwright.codec.leveldb.repair.file import repair_log, repair_manifest, repair_table
from logwright.codec.leveldb.repair.rebuild import REBUILDS, rebuild
from logwright.codec.leveldb.repair.repair import REPAIR_OPTIONS, DatabaseRepair
from logwright.codec.leveldb.startup.start import STARTUP
from logwright.codec.leveldb.store import db, live

CODECS: tuple[Codec, ...] = (
    log.CODEC.with_capabilities(FileCapabilities(repair=repair_log, edit=FileEdit(edit_log, FILE_OPTIONS))),
    manifest.CODEC.with_capabilities(FileCapabilities(repair=repair_manifest)),
    table.CODEC.with_capabilities(
        FileCapabilities(repair=repair_table, edit=FileEdit(edit_table, FILE_OPTIONS))
    ),
    current.CODEC,
)
LAYOUTS: tuple[Layout, ...] = (
    db.LAYOUT.with_capabilities(
        DirectoryCapabilities(
            combine=live.combine,
            predict=STARTUP,
            check=check_database,
            repair=DirectoryRepair(DatabaseRepair.repair, rebuild, REBUILDS, REPAIR_OPTIONS),
            edit=DirectoryEdit(edit, EDIT_OPTIONS),
        )
    ),
)
