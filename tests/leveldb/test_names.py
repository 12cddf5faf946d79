"""File names, as LevelDB parses and formats them."""

from __future__ import annotations

import pytest

from logwright.codec.leveldb import names
from logwright.codec.leveldb.names import FileName, FileType, number_of, parse


@pytest.mark.parametrize(
    ("name", "kind", "number"),
    [
        ("100.log", FileType.LOG, 100),
        ("0.log", FileType.LOG, 0),
        ("0.sst", FileType.TABLE, 0),
        ("0.ldb", FileType.TABLE, 0),
        ("CURRENT", FileType.CURRENT, 0),
        ("LOCK", FileType.LOCK, 0),
        ("MANIFEST-2", FileType.DESCRIPTOR, 2),
        ("MANIFEST-7", FileType.DESCRIPTOR, 7),
        ("000012.dbtmp", FileType.TEMP, 12),
        ("LOG", FileType.INFO_LOG, 0),
        ("LOG.old", FileType.INFO_LOG, 0),
        ("18446744073709551615.log", FileType.LOG, (1 << 64) - 1),
        ("0" * 200 + "7.ldb", FileType.TABLE, 7),
    ],
)
def test_known_names_are_parsed(name: str, kind: FileType, number: int) -> None:
    assert parse(name) == FileName(kind, number)


@pytest.mark.parametrize(
    "name",
    [
        "", "foo", "foo-dx-100.log", ".log", "manifest", "CURREN", "CURRENTX", "MANIFES", "MANIFEST", "MANIFEST-",
        "XMANIFEST-3", "MANIFEST-3x", "LOC", "LOCKx", "LO", "LOGx", "18446744073709551616.log",
        "184467440737095516150.log", "100", "100.", "100.lop", "٣.log",
    ],
)  # fmt: skip
def test_other_names_are_ignored(name: str) -> None:
    assert parse(name) is None


def test_formatted_names_are_known() -> None:
    for make, kind in (
        (names.log_name, FileType.LOG),
        (names.table_name, FileType.TABLE),
        (names.old_table_name, FileType.TABLE),
        (names.manifest_name, FileType.DESCRIPTOR),
        (names.temp_name, FileType.TEMP),
    ):
        for number in (1, 999_999, 1_000_000, (1 << 64) - 1):
            assert parse(make(number)) == FileName(kind, number)
    assert names.log_name(7) == "000007.log"
    assert names.manifest_name(7) == "MANIFEST-000007"


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("000007.log", 7),
        ("9223372036854775807.log", (1 << 63) - 1),
        ("9223372036854775808.log", None),  # Too large for a column of 64 signed bits.
        ("99999999999999999999.log", None),
        ("000007.ldb", None),
    ],
)
def test_file_number_is_taken_from_the_name(name: str, number: int | None) -> None:
    assert number_of(name, names.LOG_NAME) == number
