"""Whole blocks of a table in the wrong place, each with its correct checksum. Salvage serves no key twice, and no old or deleted value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import logwright as lw

pytestmark = pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
Blocks = list[bytes]


def overwritten(blocks: Blocks) -> Blocks:
    return [*blocks[:3], blocks[1], *blocks[4:]]


def overwritten_before(blocks: Blocks) -> Blocks:
    return [blocks[0], blocks[3], *blocks[2:]]


def exchanged(blocks: Blocks) -> Blocks:
    return [blocks[0], blocks[3], blocks[2], blocks[1], *blocks[4:]]


def inserted(blocks: Blocks) -> Blocks:
    return [*blocks[:3], blocks[1], *blocks[3:]]


CHANGES = [overwritten, overwritten_before, exchanged, inserted]


def table_of(database: Path) -> Path:
    """Return the oldest table."""
    return min(path for path in database.iterdir() if path.suffix == ".ldb")


def rewrite(table: Path, change: Callable[[Blocks], Blocks]) -> None:
    data = table.read_bytes()
    frames = lw.read(table, view="frames").to_pylist()
    starts = [frame["position"] for frame in frames if frame["kind"] == "data"]
    end = next(frame["position"] for frame in frames if frame["kind"] != "data")
    blocks = [data[start:stop] for start, stop in zip(starts, [*starts[1:], end], strict=True)]
    assert len(blocks) > 4
    table.write_bytes(b"".join(change(blocks)) + data[end:])


def write(database: Path, keys: list[bytes], sequence: int, value: bytes | None) -> None:
    rows = [
        {
            "key": key,
            "value": value,
            "sequence": sequence + n,
            "type": "deletion" if value is None else "value",
        }
        for n, key in enumerate(keys)
    ]
    mode = "append" if database.exists() else "error"
    lw.write(rows, database, "leveldb.db", mode=mode, compression="none", block_size=500)


def live(database: Path, **options: object) -> list[tuple[bytes, bytes]]:
    rows = lw.read(database, **options)  # type: ignore[arg-type]
    return list(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))


@pytest.mark.parametrize("older", [False, True], ids=["newer run", "older run"])
@pytest.mark.parametrize("change", CHANGES)
def test_salvage_serves_the_newest_value_of_each_key_once(
    change: Callable[[Blocks], Blocks], older: bool, tmp_path: Path
) -> None:
    database = tmp_path / "db"
    keys = [b"%04d" % n for n in range(100)]
    if older:
        write(database, keys[::2], 1, b"old")
    write(database, keys, 200, b"v" * 40)
    write(database, keys[::3], 1000, None)
    write(database, keys[1::3], 2000, b"new")
    expected = dict(live(database))
    tables = sorted(path for path in database.iterdir() if path.suffix == ".ldb")
    rewrite(tables[1 if older else 0], change)
    with pytest.raises(lw.DamageError):
        lw.read(database)
    for mode in ("DROPMALFORMED", "PERMISSIVE"):
        rows = [row for row in live(database, mode=mode) if row[0] is not None]
        served = dict(rows)
        assert len(rows) == len(served)
        lost = {key for key in expected if served.get(key) != expected[key]}
        if change in (exchanged, inserted):
            assert not lost
        else:  # an overwritten block is lost, and so are the deletions in it
            assert len(lost) <= 8
        assert all(served.get(key) in (None, b"old") for key in lost)
        assert set(served) <= set(expected)


def test_older_entry_of_a_key_before_a_newer_one_is_damage(tmp_path: Path) -> None:
    database = tmp_path / "db"
    rows = [{"key": b"k", "value": b"%04d" % n * 50, "sequence": n + 1} for n in range(20)]
    lw.write(rows, database, "leveldb.db", compression="none", block_size=500)
    expected = live(database)
    assert expected == [(b"k", rows[-1]["value"])]
    rewrite(table_of(database), lambda blocks: [*blocks[-2::-1], blocks[-1]])
    with pytest.raises(lw.DamageError, match="not in the order of their sequence numbers"):
        lw.read(database)
    assert live(database, mode="DROPMALFORMED") == expected
    assert not lw.verify(database).ok
