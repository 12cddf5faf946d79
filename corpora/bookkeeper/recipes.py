"""Recipes of bookies, entry logs and journals: small ones with every kind of record, and large plain ones.

The small ones are assembled file by file (`script.Script`). The plain ones are rows that the library's own writers write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec import registry
from logwright.codec.arrays import Int64s
from logwright.codec.bookkeeper.formats import digest, journal
from logwright.codec.bookkeeper.formats.entrylog import codec as entrylog
from logwright.codec.bookkeeper.store import tree
from logwright.codec.bookkeeper.store.views import LEDGERS
from logwright.codec.option import Option
from logwright.corpora.bookkeeper.script import (
    PASSWORD,
    Clients,
    Entry,
    Journal,
    Script,
    close_log,
    direct_log,
    log_head,
)
from logwright.corpora.bulk import cut
from logwright.corpora.recipe import Generator, Made, Order, Recipe, batches_of, settings
from logwright.corpora.rng import text

_LAYOUT = "bookkeeper.bookie"
_PIECE = 1 << 15
_PATTERN = 1 << 16
"""Number of entries after which the payloads repeat."""
OPTIONS = (
    Option("payload.bytes", 200, "Average size of a payload in bytes", low=0, high=1 << 20),
    Option("ledgers", 10, "Number of ledgers", low=1, high=1 << 20),
)


def _parse_reference(value: Any) -> str:
    """Check that the value names passwords, and return it unresolved, since the manifest holds it."""
    if not isinstance(value, str):
        raise ValueError("expected env:NAME, file:PATH, or 7=env:NAME,8=file:PATH")
    digest.parse_passwords(value)
    return value


_PASSWORD = replace(
    digest.PASSWORD,
    parse=_parse_reference,
    doc="Password of the ledgers, for HMACs: env:NAME, file:PATH, or 7=env:NAME,8=file:PATH for single ledgers",
)
_LEFT_OUT = (*(option.name for option in tree.ROOTS), _PASSWORD.name, "on_duplicate")
"""Options that name directories other than the target, or that have no effect."""
_NAMES = ("ledger_id", "entry_id", "last_add_confirmed", "length", "payload")
_ENTRIES, _JOURNAL = entrylog.ROWS.schema(_NAMES), journal.ROWS.schema((*_NAMES, "kind"))


# Large and plain


class _Plain:
    """The rows of a plain corpus. Row `n` is entry `n // ledgers` of ledger `n % ledgers`, after `skipped` rows of another kind."""

    def __init__(self, order: Order) -> None:
        size = order.options["payload.bytes"]
        self.rows, self.ledgers = order.rows, order.options["ledgers"]
        self._pool = np.frombuffer(text(order.rng("pool"), _PATTERN + 2 * size), np.uint8)
        self._sizes = size // 2 + order.rng("size").numbers(0, _PATTERN, size + 1)
        self._places = order.rng("place").numbers(0, _PATTERN, _PATTERN)

    def _batch(self, number: Int64s, totals: dict[int, int]) -> pa.RecordBatch:
        """Return the entries with these numbers. `totals` are the lengths of ledgers so far."""
        ledger, entry = number % self.ledgers, number // self.ledgers
        sizes = self._sizes[number % _PATTERN]
        order = np.argsort(ledger, kind="stable")
        ends = np.cumsum(sizes[order])
        first = np.flatnonzero(np.diff(ledger[order], prepend=-1))
        length = np.empty(len(number), np.int64)
        before = np.array([totals.get(key, 0) for key in ledger[order][first].tolist()], np.int64)
        base = before - (ends[first] - sizes[order][first])
        length[order] = ends + np.repeat(base, np.diff(first, append=len(number)))
        totals.update(zip(ledger[order].tolist(), length[order].tolist(), strict=True))
        payload = cut(self._pool, self._places[number % _PATTERN], sizes)
        arrays = [*map(pa.array, (ledger, entry, entry - 1, length)), payload]
        return pa.RecordBatch.from_arrays(arrays, schema=_ENTRIES)

    def stored(self, skipped: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the entries in the order in which they are written."""
        totals: dict[int, int] = {}
        for start in range(0, self.rows - skipped, _PIECE):
            yield self._batch(np.arange(start, min(self.rows - skipped, start + _PIECE)), totals)

    def sorted(self) -> Iterator[pa.RecordBatch]:
        """Yield the entries by ledger and entry."""
        totals: dict[int, int] = {}
        for ledger in range(min(self.ledgers, self.rows)):
            number = np.arange(ledger, self.rows, self.ledgers)
            for start in range(0, len(number), _PIECE):
                yield self._batch(number[start : start + _PIECE], totals)


def _plain_bookie(order: Order) -> Made:
    plain = _Plain(order)
    return _plain({"entries": plain.sorted}, plain.stored, order)


def _plain_log(order: Order) -> Made:
    plain = _Plain(order)
    return _plain({"rows": plain.stored}, plain.stored, order)


def _plain(
    expected: Mapping[str, Callable[[], Iterator[pa.RecordBatch]]],
    batches: Callable[[], Iterator[pa.RecordBatch]],
    order: Order,
) -> Made:
    """Return a corpus that the writer writes. Its reader needs the same password."""
    read_options = {name: order.options[name] for name in (_PASSWORD.name,) if order.options.given(name)}
    return Made(expected, batches=batches, options=order.given(OPTIONS), read_options=read_options)


def _plain_journal(order: Order) -> Made:
    """A journal begins with the master keys of its ledgers."""
    plain = _Plain(order)
    keys = min(plain.ledgers, order.rows)
    version = order.options[journal.VERSION.name]
    keys = keys if version >= 3 else 0
    passwords = digest.parse_passwords(order.options[_PASSWORD.name] or b"")

    def batches(*, data: bool = True) -> Iterator[pa.RecordBatch]:
        names = _JOURNAL.names + (["data"] if data else [])
        schema = journal.ROWS.schema(names)
        rows = [
            {"ledger_id": n, "kind": "master_key", "data": digest.master_key(passwords.of(n) or b"")}
            for n in range(keys)
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=schema)
        for batch in plain.stored(keys):
            kind = pa.repeat("entry", batch.num_rows)
            more = [kind, pa.nulls(batch.num_rows, pa.binary())] if data else [kind]
            yield pa.RecordBatch.from_arrays([*batch.columns, *more], schema=schema)

    return _plain({"rows": lambda: batches(data=False)}, batches, order)


# File by file


def _mixed_bookie(order: Order) -> Made:
    script = Script(order.rng("script"), order.rows)
    expected = {
        "entries": lambda: batches_of(script.entry_rows(), _ENTRIES),
        "journal": lambda: batches_of(script.journal_rows(), _JOURNAL),
        "ledgers": lambda: batches_of(list(script.ledger_rows()), LEDGERS.schema(LEDGERS.names())),
    }
    return Made(expected, files=script.files, read_options=_passwords(script.clients))


def _passwords(clients: Clients) -> dict[str, Any]:
    passwords = {str(ledger.id): PASSWORD for ledger in clients.ledgers if ledger.password}
    return {"digestType": "DUMMY", "passwd": passwords}


def _mixed_log(build: Callable[[Order, list[Entry]], bytes]) -> Callable[[Order], Made]:
    def make(order: Order) -> Made:
        clients = Clients(order.rng("script"))
        entries = [clients.next()[1] for _ in range(order.rows)]
        rows = [entry.row for entry in entries]
        return Made(
            {"rows": lambda: batches_of(rows, _ENTRIES)},
            files={"": build(order, entries)},
            read_options=_passwords(clients),
        )

    return make


def _buffered(order: Order, entries: list[Entry]) -> bytes:
    data, sizes = log_head(), dict[int, int]()
    for entry in entries:
        sizes[entry.id[0]] = sizes.get(entry.id[0], 0) + len(entry.frame)
        data += entry.frame
    if sizes:
        close_log(data, sizes)
    return bytes(data)


def _direct(order: Order, entries: list[Entry]) -> bytes:
    return direct_log(entries, order.rng("flushes"))


def _mixed_journal(order: Order) -> Made:
    rng = order.rng("script")
    clients, file = Clients(rng), Journal(order.rng("records"), 1 << 62, (6,))
    file.roll()
    while len(file.rows) < order.rows:
        file.add(*clients.next())
    file.flush()
    rows = file.rows
    return Made(
        {"rows": lambda: batches_of(rows, _JOURNAL)},
        files={"": bytes(file.files[0][1]) + bytes(1 << 12)},
        read_options=_passwords(clients),
    )


_PLAIN_DOC = (
    "any number of entries, in bulk: words as payloads, interleaved ledgers, any settings of the writer"
)
_BOOKIE_DOC = (
    "a bookie that was killed: two journal, ledger and index directories, journals of versions 4 to 6, rolled and compacted entry logs "
    "with and without ledgers maps, digests of all types, fenced ledgers, explicit last-add-confirmed, entries that only the journals have"
)
_LOG_DOC = "entries of several ledgers with digests of all types, of which one is striped over bookies"
_DIRECT_DOC = (
    "the same as the direct-I/O entry logger writes it: aligned, with fillers and preallocated zeros"
)
_JOURNAL_DOC = (
    "version 6, with records of every kind, digests of all types, padding, and preallocated zeros at its end"
)


def generators() -> tuple[Generator, ...]:
    """Return the generators. Created on demand, since the options are the writers' own."""
    plain = {
        codec.name: (*settings(codec.options, _LEFT_OUT, OPTIONS), _PASSWORD)
        for codec in (registry.get_layout(_LAYOUT), entrylog.CODEC, journal.CODEC)
    }
    return (
        Generator(
            _LAYOUT,
            (
                Recipe("plain", _PLAIN_DOC, _plain_bookie, plain[_LAYOUT]),
                Recipe("mixed", _BOOKIE_DOC, _mixed_bookie),
            ),
        ),
        Generator(
            entrylog.CODEC.name,
            (
                Recipe("plain", _PLAIN_DOC, _plain_log, plain[entrylog.CODEC.name]),
                Recipe("mixed", _LOG_DOC, _mixed_log(_buffered)),
                Recipe("direct", _DIRECT_DOC, _mixed_log(_direct)),
            ),
        ),
        Generator(
            journal.NAME,
            (
                Recipe("plain", _PLAIN_DOC, _plain_journal, plain[journal.NAME]),
                Recipe("mixed", _JOURNAL_DOC, _mixed_journal),
            ),
        ),
    )
