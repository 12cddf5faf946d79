"""File names and zxid spellings."""

from __future__ import annotations

import pytest

from logwright.codec.zookeeper import names
from logwright.codec.zookeeper.names import FileName


@pytest.mark.parametrize(
    ("name", "actual"),
    [
        ("log.1", FileName("log", 1)),
        ("log.100000005", FileName("log", 0x100000005)),
        ("log.17.fixed", FileName("log", 0x17, "fixed")),
        ("log.0000000000000000017", FileName("log", 0x17)),
        ("log.-1", FileName("log", -1)),
        ("log.8000000000000000", None),
        ("log.10000000000000000", None),
        ("log.", None),
        ("log", None),
        ("log.x", None),
        ("log. 1", None),
        ("Log.1", None),
        ("snapshot.0", FileName("snapshot", 0)),
        ("snapshot.16.tmp", FileName("snapshot", 0x16, "tmp")),
        ("snapshot.16.gz", FileName("snapshot", 0x16, "gz")),
        ("currentEpoch", None),
    ],
)
def test_file_names_are_parsed(name: str, actual: FileName | None) -> None:
    assert names.parse(name) == actual


def test_compression_is_the_last_suffix() -> None:
    for rest, expected in (("gz", "gz"), ("x.GZ", "gz"), ("gz.snappy", "snappy"), ("gz.bak", ""), ("", "")):
        assert FileName("snapshot", 1, rest).compression == expected


def test_names_are_written_as_servers_write_them() -> None:
    assert names.log_name(0x100000005) == "log.100000005"
    assert names.snapshot_name(0) == "snapshot.0"
    assert names.snapshot_name(0x42, names.SNAPPY) == "snapshot.42.snappy"
    assert names.zxid_text(0x2F) == "0x2f"
    assert names.zxid_text(-1) == "0xffffffffffffffff"
    assert (names.epoch_of(0x500000001), names.counter_of(0x500000001)) == (5, 1)
    assert names.parse(names.log_name(77)) == FileName("log", 77)
