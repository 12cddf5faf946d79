"""Databases with another comparator than LevelDB's own: Chrome's `idb_cmp1`, whose order is known, and those known only by name."""

from __future__ import annotations

import random
import shutil
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leveldb_db import pairs
from memory_directory import MemoryDirectory

import logwright as lw
from logwright.codec import registry
from logwright.codec.fault import Kind, LogwrightError, Severity, UsageError
from logwright.codec.frames.walk import ListedFile, good_frames, walk_listed
from logwright.codec.leveldb import idb
from logwright.codec.leveldb.check.table import TableCheck
from logwright.codec.leveldb.comparators import comparator_of

IDB = "idb_cmp1"


# Keys as Chrome writes them


def number(value: int) -> bytes:
    """An id in as few bytes as possible, little-endian."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "little")


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(value: str) -> bytes:
    encoded = value.encode("utf-16-be", "surrogatepass")
    return varint(len(encoded) // 2) + encoded


def prefix(database: int, store: int, index: int) -> bytes:
    ids = [number(number_) for number_ in (database, store, index)]
    return bytes([len(ids[0]) - 1 << 5 | len(ids[1]) - 1 << 2 | len(ids[2]) - 1]) + b"".join(ids)


def value(key: Any) -> bytes:
    """A script value: float is a number, int a date, str, bytes, list, None the smallest key."""
    if key is None:
        return b"\x05"
    if isinstance(key, float):
        return b"\x03" + struct.pack("<d", key)
    if isinstance(key, int):
        return b"\x02" + struct.pack("<d", key)
    if isinstance(key, str):
        return b"\x01" + text(key)
    if isinstance(key, bytes):
        return b"\x06" + varint(len(key)) + key
    return b"\x04" + varint(len(key)) + b"".join(map(value, key))


def record(database: int, store: int, key: Any, index: int = 1) -> bytes:
    return prefix(database, store, index) + value(key)


def entry(database: int, store: int, index: int, key: Any, sequence: int, primary: Any) -> bytes:
    return prefix(database, store, index) + value(key) + varint(sequence) + value(primary)


# The comparator, implemented a second time from Chromium's description of the keys


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        assert self.at + count <= len(self.data)
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        out = shift = 0
        while True:
            byte = self.take(1)[0]
            out |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return out

    def text(self) -> bytes:
        return self.take(2 * self.varint())

    @property
    def left(self) -> int:
        return len(self.data) - self.at


def _sign(a: Any, b: Any) -> int:
    return (a > b) - (a < b)


_RANK = {5: 0, 3: 1, 2: 2, 1: 3, 6: 4, 4: 5, 0: 6}


def _compare_values(a: _Reader, b: _Reader) -> int:
    kind, other = a.take(1)[0], b.take(1)[0]
    if kind != other:
        return _sign(_RANK[kind], _RANK[other])
    if kind == 4:
        lengths = a.varint(), b.varint()
        for _ in range(min(lengths)):
            order = _compare_values(a, b)
            if order:
                return order
        return _sign(*lengths)
    if kind in (1, 6):
        strings = [side.text() if kind == 1 else side.take(side.varint()) for side in (a, b)]
        return _sign(*strings)
    if kind in (2, 3):
        return _sign(*(struct.unpack("<d", side.take(8))[0] for side in (a, b)))
    return 0


def compare(a: bytes, b: bytes) -> int:
    """`CompareKeys` of two valid keys."""
    readers = _Reader(a), _Reader(b)
    ids = []
    for reader in readers:
        first = reader.take(1)[0]
        widths = (first >> 5) + 1, (first >> 2 & 7) + 1, (first & 3) + 1
        ids.append([int.from_bytes(reader.take(width), "little") for width in widths])
    if ids[0] != ids[1]:
        return _sign(*ids)
    database, store, index = ids[0]
    if not database or not store:
        kind, other = (reader.take(1)[0] for reader in readers)
        if kind != other:
            return _sign(kind, other)
        if kind < (6 if database else 7):
            return 0
        if not database and kind == 50:
            return _sign(*(reader.take(reader.left) for reader in readers))
        numbers = {50: 1, 100: 2, 150: 1, 151: 2, 201: 1} if database else {100: 1}
        strings = {200: 1, 201: 1} if database else {201: 2}
        for _ in range(numbers.get(kind, 0)):
            if sign := _sign(*(reader.varint() for reader in readers)):
                return sign
        for _ in range(strings.get(kind, 0)):
            if sign := _sign(*(reader.text() for reader in readers)):
                return sign
        return _sign(*(reader.take(1) for reader in readers)) if database and kind in (50, 100) else 0
    if not all(reader.left for reader in readers):
        return _sign(*(reader.left for reader in readers))
    if sign := _compare_values(*readers):
        return sign
    if index < 30:
        return 0
    sequences = [reader.varint() if reader.left else -1 for reader in readers]
    if not all(reader.left for reader in readers):
        return _sign(*(reader.left for reader in readers))
    return _compare_values(*readers) or _sign(*sequences)


_ids = st.sampled_from([1, 2, 3, 30, 31, 200, 255, 256, 300, 70000])
_floats = st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0, -1.0, 256.0])
_scalars = (
    st.none() | _floats | st.integers(-(1 << 40), 1 << 40) | st.text(max_size=4) | st.binary(max_size=4)
    | st.sampled_from(["", "a", "a\0", "a\0\0", "ab", "\uffff", b"", b"\0", b"\0\xff", b"\0\0"])
)  # fmt: skip
_values = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


@st.composite
def _keys(draw: Any) -> bytes:
    small = st.sampled_from([1, 2, 300])
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return bytes(4) + draw(st.sampled_from([bytes([n]) for n in range(7)] + [b"\0\1"]))
    if kind == 1:
        return bytes(4) + b"\x32" + draw(st.binary(max_size=4))
    if kind == 2:
        return bytes(4) + b"\x64" + varint(draw(_ids))
    if kind == 3:
        return bytes(4) + b"\xc9" + text(draw(st.text(max_size=3))) + text(draw(st.text(max_size=3)))
    if kind == 4:
        store = varint(draw(_ids))
        body = draw(
            st.sampled_from(
                [bytes([n]) for n in range(6)]
                + [b"\x32" + store + b"\x01", b"\x32" + store + b"\xff", b"\x64" + store + varint(31) + b"\0"]
                + [b"\x96" + store, b"\x97" + store + varint(30), b"\xc9" + store + text("x")]
            )
        )
        return prefix(draw(small), 0, 0) + body
    if kind == 5:
        return prefix(draw(small), 0, 0) + b"\xc8" + text(draw(st.text(max_size=3)))
    if kind == 6:
        return prefix(draw(small), draw(small), draw(st.sampled_from([1, 2, 3, 30, 31])))
    if kind in (7, 8):
        return record(draw(small), draw(small), draw(_values), draw(st.sampled_from([1, 1, 2, 3])))
    key = prefix(draw(small), draw(small), draw(st.sampled_from([30, 31, 300]))) + value(draw(_values))
    more = draw(st.integers(0, 2))
    key += varint(draw(_ids)) if more else b""
    return key + (value(draw(_values)) if more == 2 else b"")


@given(_keys(), _keys())
def test_sorted_bytes_compare_as_chromiums_comparator(a: bytes, b: bytes) -> None:
    assert idb.decodable(a)
    assert idb.decodable(b)
    assert _sign(idb.collate(a), idb.collate(b)) == _sign(compare(a, b), 0)


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"\0\1\1",
        bytes(4),
        bytes(4) + b"\x63",
        bytes(4) + b"\x64\x80",
        bytes(4) + b"\x64" + b"\x80" * 10 + b"\0",
        bytes(4) + b"\xc9\2\0a",
        prefix(1, 0, 0) + b"\x32\1",
        prefix(1, 1, 4) + value(1.0),
        prefix(1, 1, 1) + b"\x07",
        prefix(1, 1, 1) + b"\4" + b"\xff" * 9 + b"\1",
        prefix(1, 1, 1) + b"\3" + bytes(7),
        prefix(1, 1, 1) + b"\3" + b"\xff" * 8,
    ],
)
def test_cut_and_unknown_keys_cannot_be_decoded(key: bytes) -> None:
    assert not idb.decodable(key)


@given(st.binary(max_size=24), st.binary(max_size=24))
def test_invalid_key_equals_only_itself(key: bytes, other: bytes) -> None:
    if not idb.decodable(key):
        assert (idb.collate(key) == idb.collate(other)) == (key == other)


def test_ids_of_any_width_and_types_follow_the_specification() -> None:
    ordered = [
        bytes(4) + b"\0",
        prefix(1, 0, 0) + b"\0",
        record(1, 1, -5.0),
        record(1, 1, 2.0),
        record(1, 1, 256.0),
        record(1, 1, 7),
        record(1, 1, ""),
        record(1, 1, "b"),
        record(1, 1, b"a"),
        record(1, 1, []),
        record(1, 1, [1.0]),
        record(1, 1, [1.0, "x"]),
        record(1, 1, "", 2),
        entry(1, 1, 30, "k", 9, 1.0),
        entry(1, 1, 30, "k", 1, 2.0),
        entry(1, 1, 30, "k", 2, 2.0),
        record(1, 256, 1.0),
        record(2, 1, 1.0),
        record(256, 1, 1.0),
    ]
    assert sorted(ordered, key=idb.collate) == ordered
    assert all(compare(a, b) < 0 for a, b in pairwise(ordered))
    assert sorted(ordered) != ordered


# Databases


def random_keys(count: int, seed: int = 1) -> list[bytes]:
    chance = random.Random(seed)
    out = [bytes(4) + bytes([n]) for n in range(5)]
    for n in range(count):
        key: Any = chance.choice([float(n), -float(n), f"name-{n}", b"%d" % n, [float(n % 7), f"x{n}"]])
        out.append(record(1 + n % 3, 1 + n % 300, key))
        out.append(entry(1 + n % 3, 1 + n % 300, 30 + n % 2, f"i{n % 50}", n, key))
    return out


def _plyvel(path: Path, **options: Any) -> Any:
    plyvel = pytest.importorskip("plyvel")
    # `compact_range` of plyvel asks for the empty key.
    return plyvel.DB(
        str(path),
        comparator=lambda a, b: compare(a, b) if a and b else _sign(a, b),
        comparator_name=IDB.encode(),
        compression=None,
        **options,
    )


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that LevelDB itself wrote with this comparator: several levels, overwritten and deleted keys, a log."""
    path = tmp_path_factory.mktemp("idb") / "file__0.indexeddb.leveldb"
    keys = random_keys(1500)
    random.Random(2).shuffle(keys)
    with _plyvel(path, create_if_missing=True, write_buffer_size=1 << 16) as db:
        for n, key in enumerate(keys):
            db.put(key, b"first-%d" % n * 3)
        db.compact_range(start=min(keys, key=idb.collate), stop=max(keys, key=idb.collate))
        for key in keys[::20]:
            db.put(key, b"second")
        for key in keys[::31]:
            db.delete(key)
    return path


def report_lines(report: Any) -> str:
    """Return all lines of a report, notes on damage too."""
    return " ".join([*str(report).split(), *(fault.detail for _, fault in report.faults)])


def served(path: Path) -> list[tuple[bytes, bytes]]:
    """Return the pairs that LevelDB reads from a copy."""
    copy = path.with_name(path.name + "-served")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    with _plyvel(copy) as db:
        pairs = list(db)
    shutil.rmtree(copy)
    return pairs


@pytest.fixture
def copied(chrome: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(chrome, tmp_path / "db"))


def test_live_rows_are_in_the_order_of_idb_cmp1(chrome: Path) -> None:
    rows = lw.read(str(chrome))
    assert pairs(rows) == served(chrome)
    assert len(rows) > 2000


def test_history_and_filters_agree_with_the_live_rows(chrome: Path) -> None:
    history = lw.read(str(chrome), view="history")
    live = {key for key, _ in served(chrome)}
    states = zip(history["key"].to_pylist(), history["state"].to_pylist(), strict=True)
    assert {key for key, state in states if state == "live"} == live
    middle = sorted(live)[len(live) // 2]
    rows = lw.read(str(chrome), filter=[("key", ">=", middle)])
    assert set(rows["key"].to_pylist()) == {key for key in live if key >= middle}


def test_healthy_database_is_verified_and_predicted_without_options(chrome: Path) -> None:
    report = lw.verify(str(chrome))
    assert report.ok
    assert not report.faults
    report = lw.verify(str(chrome), as_system=True)
    assert report.system is not None
    verdict = [report.system[name] for name in ("opens", "rows", "rows_lost")]
    assert verdict == [True, len(served(chrome)), 0]
    rows = lw.read(str(chrome), mode="AS_SYSTEM")
    assert pairs(rows) == served(chrome)


def test_keys_out_of_the_order_of_idb_cmp1_are_an_error(tmp_path: Path) -> None:
    keys = sorted(random_keys(400))
    assert keys != sorted(keys, key=idb.collate)
    rows = pa.table({"key": keys, "value": [b"v"] * len(keys)})
    with pytest.raises(UsageError, match="not after"):
        lw.write(rows, str(tmp_path / "000005.ldb"), "leveldb.table", comparator=IDB)


def test_order_around_a_key_that_idb_cmp1_cannot_decode_is_a_warning(tmp_path: Path) -> None:
    keys = [record(1, 1, "a"), prefix(1, 1, 1) + b"\1\5a", record(1, 1, 1.0)]
    path = tmp_path / "000005.ldb"
    lw.write(pa.table({"key": keys, "value": [b"v"] * 3}), path, "leveldb.table")
    data = path.read_bytes()
    source = MemoryDirectory({path.name: data})
    check = TableCheck(ListedFile(source, path.name, len(data)), 1 << 20, comparator_of(IDB))
    for window, frames in good_frames(
        walk_listed(source, path.name, len(data), registry.get("leveldb.table"))
    ):
        check.add(window, frames)
    (fault,) = check.faults
    assert fault.severity is Severity.WARNING
    assert "idb_cmp1 cannot decode the key" in fault.detail


def test_written_databases_open_with_the_comparator(chrome: Path, tmp_path: Path) -> None:
    rows = lw.read(str(chrome), columns=["key", "value"])
    shuffled = rows.take(pa.array(random.Random(3).sample(range(len(rows)), len(rows))))
    target = tmp_path / "written"
    lw.write(shuffled, str(target), "leveldb.db", comparator=IDB, max_file_size=20_000)
    assert lw.verify(str(target)).ok
    assert served(target) == pairs(rows) == pairs(lw.read(str(target)))
    table = pa.table({"key": [record(9, 9, float(n)) for n in range(300)], "value": [b"new"] * 300})
    lw.write(table, str(target), "leveldb.db", mode="append")
    assert lw.verify(str(target)).ok
    assert len(served(target)) == len(rows) + 300
    assert served(target) == pairs(lw.read(str(target)))


def test_only_known_comparators_are_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown comparator 'other'; known are .*idb_cmp1"):
        lw.write(
            pa.table({"key": [b"a"], "value": [b"b"]}), str(tmp_path / "db"), "leveldb.db", comparator="other"
        )


def test_two_databases_with_one_comparator_are_compared(chrome: Path, copied: Path) -> None:
    assert lw.diff(str(chrome), str(copied)).equal
    with _plyvel(copied) as db:
        first = next(iter(db))[0]
        db.put(first, b"changed")
        db.delete(record(1, 1, 0.0))
        db.put(record(400, 1, "new"), b"x")
    difference = lw.diff(str(chrome), str(copied))
    assert (difference.counts["added"], difference.counts["changed"]) == (1, 1)
    assert difference.counts["removed"] in (0, 1)


def _without_manifest(path: Path) -> Path:
    for child in path.iterdir():
        if child.name.startswith("MANIFEST") or child.name == "CURRENT":
            child.unlink()
    return path


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_tables_without_a_manifest_use_the_order_of_their_keys(copied: Path, chrome: Path) -> None:
    report = lw.verify(str(_without_manifest(copied)))
    assert not [
        fault for _, fault in report.faults if fault.kind is Kind.ORDER and fault.severity.name == "ERROR"
    ]
    assert "assuming idb_cmp1" in report_lines(report)
    assert len(lw.read(str(copied), mode="PERMISSIVE")) >= len(served(chrome))


def test_repair_without_a_manifest_names_the_comparator(copied: Path, chrome: Path, tmp_path: Path) -> None:
    lw.repair(str(_without_manifest(copied)), str(tmp_path / "repaired"))
    assert served(tmp_path / "repaired") == served(chrome)
    assert lw.verify(str(tmp_path / "repaired")).ok


def _damage(path: Path, at: float = 0.5) -> Path:
    table = max(path.glob("*.ldb"), key=lambda child: child.stat().st_size)
    data = bytearray(table.read_bytes())
    data[int(len(data) * at)] ^= 0x10
    table.write_bytes(data)
    return table


@pytest.mark.parametrize("strategy", ["salvage", "system"])
def test_repaired_databases_open_with_the_comparator(
    strategy: str, copied: Path, chrome: Path, tmp_path: Path
) -> None:
    if strategy == "salvage":
        _damage(copied)
    lw.repair(str(copied), str(tmp_path / "repaired"), strategy=strategy)
    rows = served(tmp_path / "repaired")
    assert rows == pairs(lw.read(str(tmp_path / "repaired")))
    assert 0.9 * len(served(chrome)) < len(rows)
    assert lw.verify(str(tmp_path / "repaired")).ok


def _other(path: Path) -> Path:
    """Write a database with an unknown comparator: the longest key first."""

    def longest(a: bytes, b: bytes) -> int:
        return _sign(len(b), len(a)) or _sign(a, b)

    plyvel = pytest.importorskip("plyvel")
    with plyvel.DB(
        str(path),
        create_if_missing=True,
        comparator=longest,
        comparator_name=b"com.example.longest",
        write_buffer_size=1 << 14,
    ) as db:
        for n in range(800):
            db.put(b"k" * (n % 40) + b"%05d" % n, b"v" * 20)
        db.compact_range(start=b"k" * 39 + b"99999", stop=b"0")
    return path


def test_required_comparator_is_named(tmp_path: Path) -> None:
    path = _other(tmp_path / "db")
    report = lw.verify(str(path))
    assert report.ok
    assert "needs the comparator com.example.longest, whose order is unknown" in report_lines(report)
    report = lw.verify(str(path), as_system=True)
    assert report.system is not None
    assert not report.system["opens"]
    assert "--comparator com.example.longest" in report_lines(report)
    assert len(lw.read(str(path))) == 800


def test_two_databases_with_an_unknown_comparator_are_compared(tmp_path: Path) -> None:
    path = _other(tmp_path / "db")
    copy = Path(shutil.copytree(path, tmp_path / "copy"))
    assert lw.diff(str(path), str(copy)).equal


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_tables_of_an_unknown_comparator_without_a_manifest_have_no_key_order_faults(tmp_path: Path) -> None:
    path = _without_manifest(_other(tmp_path / "db"))
    report = lw.verify(str(path))
    assert "are in no known order" in report_lines(report)
    assert "its keys are not in order" not in report_lines(report)
    assert len(lw.read(str(path), mode="PERMISSIVE")) == 800
    with pytest.raises(LogwrightError, match="no manifest names their comparator"):
        lw.repair(str(path), str(tmp_path / "repaired"))
    lw.repair(str(path), str(tmp_path / "repaired"), comparator="com.example.longest")
    assert len(lw.read(str(tmp_path / "repaired"))) == 800


def test_unknown_names_are_comparators_without_an_order() -> None:
    assert not comparator_of("other").known
    assert comparator_of(None).bytewise
    assert comparator_of(IDB).known


def test_difference_of_databases_with_an_unknown_comparator_is_found_by_key(tmp_path: Path) -> None:
    path = _other(tmp_path / "db")
    rows = lw.read(str(path), columns=["key", "value"])
    copy = tmp_path / "copy"
    lw.edit(str(path), str(copy), drop=[("key", "==", rows["key"][7].as_py())])
    difference = lw.diff(str(path), str(copy))
    assert (difference.counts["removed"], difference.counts["added"], difference.counts["changed"]) == (
        1,
        0,
        0,
    )
    assert difference.first is not None
    assert difference.first["id"] == {"key": rows["key"][7].as_py()}
