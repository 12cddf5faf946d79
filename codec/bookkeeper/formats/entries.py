"""Write rows as entries of entry logs and journals, which have the same content."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools, Bytes, Int32s, Int64s
from logwright.codec.bookkeeper.formats.digest import CRC32, CRC32C, HEADER, HMAC, SIZES, Passwords, hmac_of
from logwright.codec.columns import distinct, values_of
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError
from logwright.codec.frames.codec import was_given
from logwright.codec.kernels.crc32 import crc32_update
from logwright.codec.kernels.crc32c import crc32c_update
from logwright.codec.kernels.intrinsics import copy, store_32be, store_64be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.table import Column

STORED = -1
"""Stands for the type of a digest that is copied from the column `digest`."""
SMALLEST, LARGEST, REACH = 36, 1 << 28, 16 << 20
"""Smallest and largest entry with its size field, and the largest that the search after damage accepts.

Clients send at most `nettyMaxFrameSizeBytes`, 5 MiB by default.
"""

DIGEST_COLUMNS = (
    Column("digest_type", pa.string(), "CRC32C, CRC32, HMAC or DUMMY; null if unknown: then payload starts with the digest", detail=True),
    Column("digest", pa.binary(), "the client's digest; null if unknown", detail=True),
)  # fmt: skip


def entry_range(ledger: Any, first: Any, last: Any) -> dict[str, int]:
    """Return the entries `first` to `last` of a ledger as in `Fault.lost`."""
    return {"ledger_id": int(ledger), "first_entry_id": int(first), "last_entry_id": int(last)}


@kernel("u1[], const i8[], const i8[,], const i8[], const u1[], const i4[], const u1[], const i4[]")
def put_entries(
    out: Bytes, starts: Int64s, numbers: Int64s, kinds: Int64s, digest: Bytes, digest_ends: Int32s, payload: Bytes,
    payload_ends: Int32s,
) -> None:  # fmt: skip
    """Write entries with ledger id, entry id, last-add-confirmed, length, and digests of the types `kinds`."""
    for i in range(len(starts) - 1):
        start = starts[i]
        at = store_32be(out, start, starts[i + 1] - start - 4)
        for k in range(4):
            at = store_64be(out, at, numbers[i, k])
        size = payload_ends[i + 1] - payload_ends[i]
        if kinds[i] == CRC32C:
            crc = crc32c_update(
                crc32c_update(0, out, start + 4, at), payload, payload_ends[i], payload_ends[i + 1]
            )
            at = store_32be(out, at, crc)
        elif kinds[i] == CRC32:
            crc = crc32_update(
                crc32_update(0, out, start + 4, at), payload, payload_ends[i], payload_ends[i + 1]
            )
            at = store_64be(out, at, crc)
        else:
            count = digest_ends[i + 1] - digest_ends[i]
            copy(out, at, digest, digest_ends[i], count)
            at += count
        copy(out, at, payload, payload_ends[i], size)


@kernel("const i8[], const i8[], const b1[], i8[], i8[]")
def put_lengths(groups: Int64s, sizes: Int64s, absent: Bools, totals: Int64s, out: Int64s) -> None:
    """Replace the absent values of `out` by the running totals of the ledgers, which the other values set."""
    for i in range(len(groups)):
        if absent[i]:
            out[i] = totals[groups[i]] + sizes[i]
        totals[groups[i]] = out[i]


def _all_null(values: pa.Array) -> bool:
    return bool(values.null_count == len(values))


class EntryWriter:
    """Writes the rows of one file as entries. `totals` are the payload bytes of each ledger so far."""

    def __init__(self, codec: str, passwords: Passwords | None, digest_type: str | None) -> None:
        self.codec, self.passwords = codec, passwords
        self.default = SIZES[digest_type or "CRC32C"]
        self.totals: dict[int, int] = {}

    def write(self, rows: pa.RecordBatch) -> tuple[Bytes, Int64s]:
        """Return the entries, each after the four bytes of its size; and where each starts, and the last one ends."""
        if not rows.num_rows:
            return np.empty(0, np.uint8), np.zeros(1, np.int64)
        ledger, entry = self._number(rows, "ledger_id"), self._number(rows, "entry_id")
        self._refuse((ledger < 0) | (entry < 0), "ledger_id and entry_id must not be negative")
        payload, payload_ends = values_of(rows["payload"])
        sizes = np.diff(payload_ends).astype(np.int64)
        confirmed, length = rows["last_add_confirmed"], rows["length"]
        numbers = np.empty((rows.num_rows, 4), np.int64)
        numbers[:, 0], numbers[:, 1] = ledger, entry
        numbers[:, 2] = entry - 1 if _all_null(confirmed) else pc.coalesce(confirmed, pa.array(entry - 1))
        numbers[:, 3] = self._lengths(ledger, sizes, length)
        kinds, digests = self._digests(rows, numbers, payload, payload_ends)
        digest, digest_ends = values_of(digests)
        starts = np.zeros(rows.num_rows + 1, np.int64)
        width = np.where(kinds == STORED, np.diff(digest_ends), kinds)
        np.cumsum(4 + HEADER + width + sizes, out=starts[1:])
        self._refuse(np.diff(starts) > LARGEST, f"an entry takes more than {LARGEST} bytes")
        out = np.empty(int(starts[-1]), np.uint8)
        put_entries(out, starts, numbers, kinds, digest, digest_ends, payload, payload_ends)
        return out, starts

    def sizes(self, rows: pa.RecordBatch) -> tuple[Int64s, Int64s]:
        """Return the ledger of each row, and the size of its frame."""
        ledger = self._number(rows, "ledger_id")
        _, payload_ends = values_of(rows["payload"])
        kinds = self._kinds(rows)
        _, digest_ends = values_of(rows["digest"])
        width = np.where(kinds == STORED, np.diff(digest_ends), kinds)
        return ledger, 4 + HEADER + width + np.diff(payload_ends)

    def _number(self, rows: pa.RecordBatch, name: str) -> Int64s:
        values = rows[name]
        return np.asarray(values.fill_null(-1) if values.null_count else values, np.int64)

    def _refuse(self, bad: Any, why: str) -> None:
        indices = np.flatnonzero(bad)
        if len(indices):
            raise UsageError(f"{self.codec}: row {int(indices[0])}: {why}")

    def _lengths(self, ledger: Int64s, sizes: Int64s, values: pa.Array) -> Int64s:
        """Return the lengths of the rows. Null continues the running total of the ledger; a value sets it."""
        ledgers, group = distinct(ledger)
        totals = np.array([self.totals.get(number, 0) for number in ledgers], np.int64)
        absent = np.asarray(values.is_null())
        out = np.zeros(len(ledger), np.int64) if absent.all() else np.array(values.fill_null(0), np.int64)
        put_lengths(group, sizes, absent, totals, out)
        self.totals.update(zip(ledgers, totals.tolist(), strict=True))
        return out

    def _kinds(self, rows: pa.RecordBatch) -> Int64s:
        """Return the digest type of each row as a digest size; `STORED` if the row has the digest itself."""
        default = STORED if was_given(rows, "digest") or was_given(rows, "digest_type") else self.default
        if _all_null(rows["digest"]) and _all_null(rows["digest_type"]):
            return np.full(rows.num_rows, default)
        names = rows["digest_type"].dictionary_encode()
        known = []
        for name in names.dictionary.to_pylist():
            if name not in SIZES:
                raise UsageError(
                    f"{self.codec}: digest_type {name!r}", advice=f"It is one of {', '.join(SIZES)}"
                )
            known.append(SIZES[name])
        index = np.asarray(names.indices.fill_null(len(known)), np.int64)
        kinds = np.array([*known, default], np.int64)[index]
        return np.where(np.asarray(rows["digest"].is_null()), kinds, STORED)

    def _digests(
        self, rows: pa.RecordBatch, numbers: Int64s, payload: Bytes, ends: Int32s
    ) -> tuple[Int64s, pa.Array]:
        """Return the types, and the digests that are not CRCs."""
        kinds, digests = self._kinds(rows), rows["digest"]
        macs = np.flatnonzero(kinds == HMAC)
        if not len(macs):
            return kinds, digests
        values = digests.to_pylist()
        for i in macs.tolist():
            ledger = int(numbers[i, 0])
            password = None if self.passwords is None else self.passwords.of(ledger)
            if password is None:
                text = f"{self.codec}: row {i}: an HMAC of ledger {ledger} needs the password of the ledger"
                raise UsageError(text, advice="Pass the option passwd, or the column digest")
            content = numbers[i].astype(">i8").tobytes() + payload[ends[i] : ends[i + 1]].tobytes()
            values[i] = hmac_of(password, content)
        return np.where(kinds == HMAC, STORED, kinds), pa.array(values, pa.binary())
