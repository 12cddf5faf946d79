"""The simulated iterator over a LevelDB database equals a simple model for any table contents, in all kernel modes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from leveldb_startup import key_of

from logwright.codec.leveldb.keys import MAX_SEQUENCE
from logwright.codec.leveldb.startup import memtable
from logwright.codec.leveldb.startup.iterator import Child, DBIter
from logwright.codec.leveldb.startup.status import Corruption, Status
from logwright.codec.leveldb.startup.table import Chunk

pytestmark = pytest.mark.kernel_modes
Entry = tuple[bytes, bytes]
"""An internal key, possibly invalid, and a value."""


def model_rows(children: Sequence[Sequence[Entry]], sequence: int) -> tuple[list[Entry], bool, bool]:
    """Return the rows, whether a bad key was met, and whether one came before the last, as `MergingIterator` and `DBIter` do."""
    heads = [0] * len(children)
    rows: list[Entry] = []
    skip: bytes | None = None
    bad = backwards = False

    def place(c: int) -> tuple[bytes, int]:
        key = children[c][heads[c]][0]
        return key[:-8] if len(key) >= 8 else b"", -int.from_bytes(key[-8:], "little")

    while True:
        left = [c for c in range(len(children)) if heads[c] < len(children[c])]
        if not left:
            return rows, bad, backwards
        smallest = min(left, key=lambda c: (place(c), c))
        key, value = children[smallest][heads[smallest]]
        heads[smallest] += 1
        if len(key) < 8 or key[-8] > 1:
            bad = True
            continue
        user, number = key[:-8], int.from_bytes(key[-7:], "little")
        if number > sequence:
            continue
        if skip is not None and user < skip:
            backwards = True
        if key[-8] == 1:
            if skip is not None and user <= skip:
                continue
            rows.append((user, value))
        skip = user


def chunks(entries: Sequence[Entry], sizes: Sequence[int]) -> Iterator[Chunk | Status]:
    at = 0
    for size in [*sizes, len(entries)]:
        part = entries[at : at + size]
        at += size
        keys, values = [key for key, _ in part], [value for _, value in part]
        yield Chunk(
            np.frombuffer(b"".join(keys), np.uint8),
            np.cumsum([0, *map(len, keys)]).astype(np.int64),
            np.frombuffer(b"".join(values), np.uint8),
            np.cumsum([0, *map(len, values)]).astype(np.int64),
            np.arange(len(part)) + at,
            7,
            None,
        )


def iterate(children: Sequence[Sequence[Entry]], sequence: int, sizes: Sequence[int] = ()) -> DBIter:
    def child(entries: Sequence[Entry]) -> Child:
        return Child(lambda _: chunks(entries, sizes))

    return DBIter([child(source) for source in children], sequence)


def check(
    children: Sequence[Sequence[Entry]], sequence: int = MAX_SEQUENCE, sizes: Sequence[int] = ()
) -> None:
    rows, bad, backwards = model_rows(children, sequence)
    iterator = iterate(children, sequence, sizes)
    rows_read = [
        (key, value)
        for batch in iterator.rows(("key", "value"))
        for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    ]
    assert rows_read == rows
    assert iterator.backwards == backwards
    assert (iterator.status is not None) == bad
    counted = iterate(children, sequence, sizes)
    first, last = (rows[0][0], rows[-1][0]) if rows else (None, None)
    assert counted.count() == (len(rows), first, last)


def entry(user: bytes, sequence: int, kind: int = 1, value: bytes = b"v") -> Entry:
    return key_of(user, sequence, kind), value


@pytest.mark.parametrize("seed", range(40))
def test_any_entries_in_any_order(seed: int) -> None:
    chance = random.Random(seed)
    children: list[list[Entry]] = []
    for _ in range(chance.randrange(1, 6)):
        rows = [
            entry(
                bytes(chance.choice(b"ab\xff") for _ in range(chance.randrange(4)))
                * chance.choice([1, 1, 5]),
                chance.randrange(12) if chance.random() < 0.9 else chance.randrange(MAX_SEQUENCE + 1),
                chance.choice([0, 1, 1, 1, 9]) if seed % 3 else chance.randrange(2),
                chance.randbytes(chance.randrange(30)),
            )
            for _ in range(chance.randrange(60))
        ]
        if seed % 2:
            rows.sort(key=lambda entry: (entry[0][:-8], -int.from_bytes(entry[0][-8:], "little")))
        if seed % 5 == 4 and len(children) == 0:
            rows.insert(len(rows) // 2, (b"short", b"?"))
        children.append(rows)
    if seed % 5 == 4:
        # LevelDB reads beyond the end when it compares such a key: its behaviour is known only for a single child.
        children = children[:1]
    check(
        children, chance.choice([5, MAX_SEQUENCE]), [chance.randrange(9) for _ in range(chance.randrange(8))]
    )


def test_empty_database_yields_no_rows() -> None:
    check([])
    check([[], []])


def test_first_child_wins_ties() -> None:
    check([[entry(b"a", 5, value=b"first")], [entry(b"a", 5, value=b"second")]])


def test_keys_too_short_for_internal_keys() -> None:
    check([[(b"x", b"?"), entry(b"a", 1)]])
    # Beside others they must not do harm.
    iterator = iterate([[(b"x", b"?"), (b"", b"")], [(b"y", b"?"), entry(b"a", 1)]], 9)
    assert iterator.count() == (1, b"a", b"a")
    assert str(iterator.status) == "Corruption: corrupted internal key in DBIter"


def test_sequence_numbers_beyond_signed_integers() -> None:
    """Sequence numbers take 56 bits, above the sign of 64."""
    high = MAX_SEQUENCE
    check([[entry(b"a", high), entry(b"a", high >> 1)], [entry(b"a", high - 1)]], high)
    check([[entry(b"a", high), entry(b"a", 1)]], high - 1)


@pytest.mark.extended
def test_more_rows_than_a_batch_holds() -> None:
    many = [entry(b"%06d" % n, n) for n in range(70_000)]
    check([many[::2], many[1::2]], sizes=[1, 20_000, 0, 30_000])


def test_first_status_of_the_first_child_is_reported() -> None:
    def broken(*message: str) -> Child:
        return Child(lambda _: iter([Corruption(text) for text in message]))

    iterator = DBIter([Child(lambda _: iter(())), broken("first", "second"), broken("third")], 1)
    assert iterator.count() == (0, None, None)
    assert str(iterator.status) == "Corruption: first"


def test_rows_name_their_file_level_and_position() -> None:
    iterator = iterate([[entry(b"a", 3), entry(b"b", 4)]], 9)
    (batch,) = iterator.rows(("file", "level", "position", "sequence", "type"))
    assert batch.to_pylist() == [
        {"file": 7, "level": None, "position": 2, "sequence": 3, "type": "value"},
        {"file": 7, "level": None, "position": 3, "sequence": 4, "type": "value"},
    ]
    (nothing,) = iterate([[entry(b"a", 3)]], 9).rows(())
    assert (nothing.num_rows, nothing.num_columns) == (1, 0)


def test_memory_is_counted_alike_in_all_modes() -> None:
    """Heights in the skip list are random, from a fixed seed."""
    counts = np.array([3, 0, 500, 1500], np.int64)
    sizes = np.arange(2003, dtype=np.int64) % 700
    state = memtable.fresh()
    assert int(memtable.take(counts, 0, sizes, sizes, 1 << 30, state)) == 4
    assert state.tolist() == STATE
    assert int(memtable.take(counts, 0, sizes, sizes, 200_000, memtable.fresh())) == 2
    assert int(memtable.take(counts[:2], 0, sizes, sizes, 1, memtable.fresh())) == 0


def test_node_of_full_height() -> None:
    """Eleven random numbers divisible by four follow this one."""
    state = memtable.fresh()
    state[memtable.SEED] = 1641954954
    memtable.take(np.ones(1, np.int64), 0, np.ones(1, np.int64), np.ones(1, np.int64), 1 << 20, state)
    # The operation takes 12 bytes, then 4 for alignment, 8 and 12 links.
    assert state[memtable.LEFT] == 4096 - 104 - 12 - 4 - 104


STATE = [1475970, 264, 0, 1759054093]
"""As in LevelDB 1.22: the oracle compares the number of tables written from logs."""
