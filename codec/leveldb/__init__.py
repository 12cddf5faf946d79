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
from logwright.codec.leveldb.formats import current
from logwright.codec.leveldb.formats.log import codec as log
from logwright.codec.leveldb.formats.manifest import codec as manifest
from logwright.codec.leveldb.formats.table import codec as table
from logwright.codec.leveldb.store import db


def _log() -> FileCapabilities:
    from logwright.codec.leveldb.repair.edit import FILE_OPTIONS, edit_log
    from logwright.codec.leveldb.repair.file import repair_log

    return FileCapabilities(repair=repair_log, edit=FileEdit(edit_log, FILE_OPTIONS))


def _manifest() -> FileCapabilities:
    from logwright.codec.leveldb.repair.file import repair_manifest

    return FileCapabilities(repair=repair_manifest)


def _table() -> FileCapabilities:
    from logwright.codec.leveldb.repair.edit import FILE_OPTIONS, edit_table
    from logwright.codec.leveldb.repair.file import repair_table

    return FileCapabilities(repair=repair_table, edit=FileEdit(edit_table, FILE_OPTIONS))


def _database() -> DirectoryCapabilities:
    from logwright.codec.leveldb.check.database import DatabaseChecker
    from logwright.codec.leveldb.repair.edit import EDIT_OPTIONS, edit
    from logwright.codec.leveldb.repair.rebuild import REBUILDS, rebuild
    from logwright.codec.leveldb.repair.repair import REPAIR_OPTIONS, DatabaseRepair
    from logwright.codec.leveldb.startup.start import STARTUP
    from logwright.codec.leveldb.store import live

    return DirectoryCapabilities(
        combine=live.combine,
        predict=STARTUP,
        check=DatabaseChecker,
        repair=DirectoryRepair(DatabaseRepair.repair, rebuild, REBUILDS, REPAIR_OPTIONS),
        edit=DirectoryEdit(edit, EDIT_OPTIONS),
    )


CODECS: tuple[Codec, ...] = (
    log.CODEC.with_capabilities(_log),
    manifest.CODEC.with_capabilities(_manifest),
    table.CODEC.with_capabilities(_table),
    current.CODEC,
)
LAYOUTS: tuple[Layout, ...] = (db.LAYOUT.with_capabilities(_database),)
