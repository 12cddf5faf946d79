"""A log and an uncompressed snapshot as one structure: the description covers the whole file."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.codec.describe import DescriptionError, Struct
from logwright.codec.zookeeper.formats.snapshot.sections import MAGIC as SNAPSHOT_MAGIC
from logwright.codec.zookeeper.formats.snapshot.sections import SNAPSHOT
from logwright.codec.zookeeper.formats.txnlog.layout import CREATE, MAGIC, TXN_LOG
from logwright.corpora.cases import cases

FILES = [
    path
    for name, case in sorted(cases("zookeeper").items())
    if not name.startswith("dmg_")
    for path in sorted(case.path.rglob("version-2/*"))
    if path.is_file() and path.stat().st_size < 1 << 20
]


def struct_of(path: Path) -> Struct | None:
    with path.open("rb") as file:
        return {MAGIC: TXN_LOG, SNAPSHOT_MAGIC: SNAPSHOT}.get(file.read(4))


def test_every_byte_of_a_sound_file_is_described() -> None:
    actual = {TXN_LOG: 0, SNAPSHOT: 0}
    for path in FILES:
        struct, data = struct_of(path), path.read_bytes()
        if struct is None:
            continue
        actual[struct] += 1
        value, end = struct.unpack(data)
        assert end == len(data), path
        assert struct.pack(value) == data, path
        left = value["padding" if struct is TXN_LOG else "rest"]
        assert not left.strip(b"\0"), path
    assert min(actual.values()) > 30


def test_checksums_are_computed_on_writing() -> None:
    body = {"path": b"/a", "data": None, "acl": None, "ephemeral": 0}
    entry = {"client_id": 0, "cxid": 0, "zxid": 1, "time": 0, "type": CREATE, "body": body, "digest": None}
    packed = TXN_LOG.pack({"header": {}, "records": [{"payload": entry}], "padding": bytes(100)})
    value, _ = TXN_LOG.unpack(packed)
    assert value["records"][0]["payload"] == {**entry, "rest": b""}
    [record] = value["records"]
    assert record["checksum"] != 0
    assert len(value["padding"]) == 100


def test_absent_sections_are_described_as_absent() -> None:
    seal = {"checksum": 1, "mark": b"/"}
    value = {
        "header": {"magic": SNAPSHOT_MAGIC, "version": 2, "dbid": -1},
        "sessions": {"sessions": []},
        "acls": {"entries": []},
        "nodes": [],
        "end": {"path": b"/", **seal},
    }
    digest = {"zxid": 1, "digest_version": 2, "digest": 3, **seal}
    last = {"last_processed_zxid": 1, **seal}
    for more in (
        {},
        {"digest": digest},
        {"last_processed": last},
        {"digest": digest, "last_processed": last},
    ):
        complete = {**value, "digest": None, "last_processed": None, **more, "rest": b""}
        data = SNAPSHOT.pack(complete)
        assert SNAPSHOT.unpack(data) == (complete, len(data))
    with pytest.raises(DescriptionError, match="end/"):
        SNAPSHOT.unpack(SNAPSHOT.pack(complete)[:24])
