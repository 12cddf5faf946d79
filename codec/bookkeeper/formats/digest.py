"""The digests of entries. The client computes them; a bookie stores them and never checks them.

A digest covers the four numbers of an entry's header and its payload. No file says which type a ledger has. A matching CRC shows it, a
password proves an HMAC, and otherwise the running total of payload bytes gives the size of the digest.
Source: `DigestManager` and its subclasses in `org.apache.bookkeeper.proto.checksum`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logwright.codec.arrays import Bytes, Int64s, groups
from logwright.codec.columns import binary, constant, contents, from_offsets, gather_fixed, numbers
from logwright.codec.fault import Fault, Kind, Severity
from logwright.codec.frames.specification import CERTAIN
from logwright.codec.host import host
from logwright.codec.kernels.crc32 import crc32_update
from logwright.codec.kernels.crc32c import crc32c_bytes, crc32c_update
from logwright.codec.kernels.intrinsics import load_i64be, load_u32be
from logwright.codec.kernels.kernel import kernel
from logwright.codec.option import Option

HEADER = 32
"""Size of the header of an entry: ledger id, entry id, last-add-confirmed and length."""
LAC_SIZE = 16
"""Size of an explicit last-add-confirmed before its digest."""
DUMMY, CRC32C, CRC32, HMAC = 0, 4, 8, 20
"""The types of digests, each by its size in bytes."""
SIZES = {"DUMMY": DUMMY, "CRC32C": CRC32C, "CRC32": CRC32, "HMAC": HMAC}
NAMES = {size: name for name, size in SIZES.items()}
_INDEX = np.zeros(HMAC + 1, np.int64)
_INDEX[list(NAMES)] = range(len(NAMES))
"""The index of the type in `SIZES`, by the size of the digest."""
MISMATCH, UNKNOWN = -1, -2
"""Stand for a size: the digest does not match; its type is unknown, so it cannot be separated from the payload."""
_UNVERIFIED = "the digests of ledger {} are not verified: no CRC matches,"
_NO_PASSWORD = (
    "and the password is not known. To verify an HMAC, pass the option passwd (--passwd env:NAME or --passwd file:PATH); without one, "
    "the option digestType (--digestType HMAC)"
)
_WRONG_PASSWORD = "nor does an HMAC with the password"
_OTHER_KEY = "and the password is wrong: the bookie has another master key of the ledger"
_MAPPING = re.compile(r"\s*[0-9]+\s*=")


@kernel("const u1[], i8, i8")
def matching_digest(buf: Bytes, at: int, end: int) -> int:
    """Return the size of the digest of the entry `buf[at:end]`: 4 if its CRC-32C matches, 8 if its CRC-32 matches, else 0."""
    body = at + HEADER
    if end - body >= CRC32C:
        stored = load_u32be(buf, body)
        if crc32c_update(crc32c_update(0, buf, at, body), buf, body + CRC32C, end) == stored:
            return CRC32C
        if end - body >= CRC32 and stored == 0:
            head = crc32_update(0, buf, at, body)
            if crc32_update(head, buf, body + CRC32, end) == load_u32be(buf, body + CRC32C):
                return CRC32
    return 0


@kernel("const u1[], i8")
def has_ids(buf: Bytes, at: int) -> bool:
    """Return whether the ids of an entry are consistent. Its size, which may be wrong, is at `buf[at]`."""
    entry, confirmed = load_i64be(buf, at + 12), load_i64be(buf, at + 20)
    return load_i64be(buf, at + 4) >= 0 and entry >= 0 and -1 <= confirmed <= entry


@kernel("const u1[], i8, i8, i8")
def entry_end(buf: Bytes, at: int, first: int, end: int) -> int:
    """Return the end of the entry at `buf[at]` at which a CRC matches; -1 if none matches.

    Ends from `first` to `end` are tried.
    """
    if end - at < 32 + CRC32C:
        return -1
    stored = load_u32be(buf, at + 32)
    low = load_u32be(buf, at + 36) if end - at >= 40 else 0
    ours = crc32c_update(0, buf, at, at + 32)
    theirs = crc32_update(0, buf, at, at + 32)
    p = at + 32 + CRC32C
    for q in range(p, end + 1):
        if q > p:
            ours = crc32c_update(ours, buf, q - 1, q)
            if q > at + 32 + CRC32:
                theirs = crc32_update(theirs, buf, q - 1, q)
        if q >= first and (ours == stored or (stored == 0 and q >= at + 40 and theirs == low)):
            return q
    return -1


@kernel("const u1[], const i8[], const i8[], i8[]")
def matching_digests(buf: Bytes, starts: Int64s, ends: Int64s, out: Int64s) -> None:
    """Write `matching_digest` of each entry to `out`."""
    for i in range(len(starts)):
        out[i] = matching_digest(buf, starts[i], ends[i])


@kernel("const i8[], const i8[], i8[], i8[]")
def new_ledgers(ledgers: Int64s, sizes: Int64s, cache: Int64s, out: Int64s) -> int:
    """Write the indices of ledgers that have a size above 0 and are not in the cache to `out`, and return their number.

    The cache has a power of two of slots; ledgers that share a slot evict each other, so an index may be repeated.
    """
    n = 0
    mask = len(cache) - 1
    for i in range(len(ledgers)):
        ledger = ledgers[i]
        slot = (ledger ^ (ledger >> 12)) & mask
        if sizes[i] > 0 and cache[slot] != ledger:
            cache[slot] = ledger
            out[n] = i
            n += 1
    return n


class Passwords:
    """The passwords of ledgers: one for all, or one for each. `repr` hides them. `origin` is the text that says where they are, if any."""

    def __init__(self, value: bytes | Mapping[int, bytes], origin: str | None = None) -> None:
        self.origin = origin
        self._all = value if isinstance(value, bytes) else None
        self._each = {} if isinstance(value, bytes) else dict(value)

    def of(self, ledger: int) -> bytes | None:
        """Return the password of a ledger, or None if it is not known."""
        return self._each.get(ledger, self._all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Passwords) and (self._all, self._each) == (other._all, other._each)

    def __repr__(self) -> str:
        return "Passwords(...)"


def parse_passwords(value: Any) -> Passwords:
    """Parse one password for all ledgers, or a mapping from ledger ids to passwords. The `ValueError` it raises does not show the value.

    Bytes are the password. Text says where it is: `env:NAME`, `file:PATH`, or `7=env:NAME,8=file:PATH` for a mapping. Text in a mapping
    object is the password itself if it does not start with `env:` or `file:`.
    """
    if isinstance(value, Passwords):
        return value
    if isinstance(value, bytes):
        return Passwords(value)
    if isinstance(value, str) and _MAPPING.match(value):
        pairs = (pair.partition("=") for pair in value.split(","))
        return Passwords(
            {_ledger(ledger): host().read_secret(name.strip()) for ledger, _, name in pairs}, value
        )
    if isinstance(value, str):
        return Passwords(host().read_secret(value), value)
    if isinstance(value, Mapping):
        return Passwords({_ledger(ledger): _password(password) for ledger, password in value.items()})
    raise ValueError("expected bytes, env:NAME, file:PATH, or a mapping from ledger ids to passwords")


def _ledger(number: Any) -> int:
    try:
        return int(number)
    except (TypeError, ValueError):
        raise ValueError("expected ledger ids with their passwords, like 7=env:NAME,8=file:PATH") from None


def _password(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise ValueError("expected passwords as bytes, text, env:NAME or file:PATH")
    return host().read_secret(value) if value.startswith(("env:", "file:")) else value.encode()


def parse_digest_type(value: Any) -> str:
    """Accept the names of `BookKeeper.DigestType`, in any case. HMAC is upstream's MAC."""
    name = str(value).upper()
    return "HMAC" if name == "MAC" else name


PASSWORD = Option(
    "passwd",
    None,
    "Password of the ledgers, to verify and write HMACs: env:NAME, file:PATH, or 7=env:NAME,8=file:PATH for single ledgers; in "
    "Python also bytes, or a mapping from ledger ids to passwords",
    parse_passwords,
    secret=True,
)
DIGEST_TYPE = Option(
    "digestType",
    None,
    "Digest type of ledgers: assumed where it cannot be detected, and written (default CRC32C)",
    parse_digest_type,
    tuple(SIZES),
)
OPTIONS = (DIGEST_TYPE, PASSWORD)


def master_key(password: bytes) -> bytes:
    """Return the master key of a ledger with this password. Source: `MacDigestManager.genDigest`."""
    return hashlib.sha1(b"ledger" + password).digest()


def hmac_of(password: bytes, entry: bytes) -> bytes:
    """Return the HMAC of an entry: header and payload, or the first two numbers of an explicit last-add-confirmed."""
    return hmac.digest(hashlib.sha1(b"mac" + password).digest(), entry, "sha1")


def digest_of(entry: bytes, size: int, password: bytes | None = None) -> bytes:
    """Return the digest, of `size` bytes, of an entry: header and payload. An HMAC needs the password."""
    if size == HMAC:
        return hmac_of(password or b"", entry)
    crc = crc32c_bytes(entry) if size == CRC32C else zlib.crc32(entry) if size == CRC32 else 0
    return crc.to_bytes(size, "big")


def hmac_matches(data: Bytes, start: int, end: int, password: bytes) -> bool:
    """Return whether the entry `data[start:end]` has the HMAC of this password."""
    content = data[int(start) : int(end)].tobytes()
    head, digest, payload = content[:HEADER], content[HEADER : HEADER + HMAC], content[HEADER + HMAC :]
    return hmac.compare_digest(hmac_of(password, head + payload), digest)


def lac_matches(ledger: int, lac: bytes, size: int, password: bytes | None) -> bool:
    """Return whether an explicit last-add-confirmed has the right ledger and digest. `size` is that of the ledger's digests.

    An HMAC is verified with the password only.
    """
    head, stored = lac[:LAC_SIZE], lac[LAC_SIZE : LAC_SIZE + max(size, 0)]
    if int.from_bytes(head[:8], "big") != ledger or len(stored) < size:
        return False
    checked = size in (CRC32C, CRC32) or (size == HMAC and password is not None)
    return not checked or digest_of(head, size, password) == stored


@dataclass(frozen=True)
class Entries:
    """Entries in a window: where each starts (at its ledger id) and ends in `data`, and header fields."""

    data: Bytes
    start: Int64s
    end: Int64s
    ledger: Int64s
    entry: Int64s
    length: Int64s

    def pick(self, index: Int64s) -> Entries:
        numbers = (self.start, self.end, self.ledger, self.entry, self.length)
        return Entries(self.data, *(values[index] for values in numbers))


class StoredLedgers(Protocol):
    """The ledgers of a bookie."""

    def __contains__(self, ledger: object) -> bool: ...

    def master_keys(self, ledger: int) -> frozenset[bytes]:
        """Return the stored master keys of a ledger."""
        ...

    def crc_size(self, ledger: int) -> int | None:
        """Return the size of the CRC that entries of a ledger in any file have; None without one."""
        ...

    def positions(self, ledger: int, entries: Int64s) -> Int64s:
        """Return where the index has entries of a ledger in this file, -1 for others. The size of an entry starts there."""
        ...

    def entry_at(self, position: int) -> tuple[int, int] | None:
        """Return the ledger and the id of the only entry that the index has at a position of this file; None if that is not known."""
        ...

    def is_wrong(self, ledger: int, entry: int) -> bool:
        """Return whether the index has an entry at a place where it is not."""
        ...


@dataclass
class Digests:
    """The digest types that the entries of a file have shown. `known`: the digest size of each ledger with a known type. `stored` tells
    whether a password is right, and the types of other files; None if only the file is read."""

    passwords: Passwords | None = None
    assumed: int | None = None
    stored: StoredLedgers | None = None
    known: dict[int, int] = field(default_factory=dict)
    cache: Int64s = field(default_factory=lambda: np.full(1 << 12, -1, np.int64))
    settled: set[int] = field(default_factory=set)
    """The ledgers that `unverified` does not have to check any more."""
    right: dict[int, bool] = field(default_factory=dict)
    """Whether the password of a ledger is right, by its master key or an HMAC."""

    def password(self, ledger: int) -> bytes | None:
        """Return the password of a ledger, or None if it is not known or wrong."""
        password = None if self.passwords is None else self.passwords.of(ledger)
        if password is None or self.stored is None:
            return password
        if ledger not in self.right:
            keys = self.stored.master_keys(ledger)
            self.right[ledger] = not keys or master_key(password) in keys
        return password if self.right[ledger] else None

    def sizes(self, entries: Entries, matched: Int64s) -> Int64s:
        """Return the size of the digest of each entry, or `MISMATCH` or `UNKNOWN`. `matched` are the results of `matching_digest`."""
        self.note(entries.ledger, matched)
        unsure = np.flatnonzero(matched == 0)
        if not len(unsure):
            return matched
        sizes = matched.copy()
        for ledger, own in groups(entries.ledger[unsure]):
            sizes[unsure[own]] = self._type(ledger, entries, unsure[own])
        self._verify(entries, sizes)
        payload = entries.end - entries.start - HEADER - sizes
        sizes[payload < 0] = MISMATCH
        # Running totals include the entry itself, and no digest is larger than an HMAC.
        least = entries.end - entries.start - HEADER - HMAC
        sizes[(sizes == UNKNOWN) & (least > entries.length)] = MISMATCH
        if self.assumed is not None:
            # Garbage must not become an entry because of an option: running totals include the entry itself.
            assumed = unsure[~np.isin(entries.ledger[unsure], list(self.known))]
            sizes[assumed[payload[assumed] > entries.length[assumed]]] = MISMATCH
        return sizes

    def note(self, ledgers: Int64s, matched: Int64s) -> None:
        """Note the type of the ledgers of entries whose CRC matches."""
        new = np.empty(len(matched), np.int64)
        count = new_ledgers(ledgers, matched, self.cache, new)
        for i in new[:count].tolist():
            self.known[int(ledgers[i])] = int(matched[i])

    def _type(self, ledger: int, entries: Entries, unsure: Int64s) -> int:
        """Return the digest size of entries of one ledger, none of which has a matching CRC."""
        size = self.known.get(ledger)
        password = None if self.passwords is None else self.passwords.of(ledger)
        if size is None and password is not None:
            # The first entries may be the damaged ones.
            bounds = zip(entries.start[unsure].tolist(), entries.end[unsure].tolist(), strict=True)
            if any(hmac_matches(entries.data, start, end, password) for start, end in bounds):
                size = self.known[ledger] = HMAC
                self.right[ledger] = True
        if size is None:
            size = self._measured(entries, unsure)
            if size is None:
                size = None if self.stored is None else self.stored.crc_size(ledger)
                if size is not None:
                    self.known[ledger] = size
                size = self.assumed if size is None else size
            elif size in (DUMMY, HMAC):
                self.known[ledger] = size
        if size is None:
            return UNKNOWN
        return MISMATCH if size in (CRC32C, CRC32) else size

    def _measured(self, entries: Entries, unsure: Int64s) -> int | None:
        """Return the digest size implied by the ledger's running totals, from entry 0 and from consecutive entries."""
        order = unsure[np.argsort(entries.entry[unsure], kind="stable")]
        entry, total = entries.entry[order], entries.length[order]
        follows = entry[1:] == entry[:-1] + 1
        payload = np.concatenate((total[:1], np.where(follows, total[1:] - total[:-1], -1)))
        if entry[0] != 0:
            payload[0] = -1
        sizes = (entries.end - entries.start)[order] - HEADER - payload
        sizes = sizes[(payload >= 0) & np.isin(sizes, tuple(NAMES))]
        if not len(sizes):
            return None
        values, counts = np.unique(sizes, return_counts=True)
        return int(values[np.argmax(counts)])

    def _verify(self, entries: Entries, sizes: Int64s) -> None:
        """Mark the entries whose HMAC does not match, if the password is known."""
        if self.passwords is None:
            return
        for i in np.flatnonzero(sizes == HMAC).tolist():
            password = self.password(int(entries.ledger[i]))
            if password is not None and not hmac_matches(
                entries.data, entries.start[i], entries.end[i], password
            ):
                sizes[i] = MISMATCH

    def unverified(self, entries: Entries, verdicts: npt.NDArray[Any]) -> Iterator[tuple[int, str, Severity]]:
        """Yield each ledger whose digests cannot be verified once: the index of one of its entries, and the reason.

        None of its entries has a matching CRC, and its password is unknown or wrong.
        """
        self.note(entries.ledger, np.maximum(verdicts.astype(np.int64) - CERTAIN, 0))
        unsure = np.flatnonzero(verdicts <= CERTAIN)
        ledgers, first = np.unique(entries.ledger[unsure], return_index=True)
        unsettled = {
            ledger: int(unsure[i])
            for ledger, i in zip(ledgers.tolist(), first.tolist(), strict=True)
            if ledger not in self.settled and self.known.get(ledger, HMAC) == HMAC
        }
        if not unsettled:
            return
        unsure = unsure[np.isin(entries.ledger[unsure], list(unsettled))]
        rest = entries.pick(unsure)
        self.sizes(rest, matched_sizes(verdicts[unsure], rest.data, rest.start, rest.end))
        for ledger, i in sorted(unsettled.items(), key=lambda item: item[1]):
            self.settled.add(ledger)
            size = self.known.get(ledger, self.assumed)
            password = None if self.passwords is None else self.passwords.of(ledger)
            text = _UNVERIFIED.format(ledger)
            if size in (None, HMAC) and password is not None and self.password(ledger) is None:
                yield i, f"{text} {_OTHER_KEY}", Severity.WARNING
            elif size is None and password is not None:
                yield i, f"{text} {_WRONG_PASSWORD}", Severity.INFO
            elif size in (None, HMAC) and password is None:
                yield i, f"{text} {_NO_PASSWORD}", Severity.INFO

    def learn(self, rows: pa.Table) -> None:
        """Learn the digest types of ledgers from rows that have them."""
        if "digest_type" not in rows.column_names or "ledger_id" not in rows.column_names:
            return
        pairs = rows.select(["ledger_id", "digest_type"]).group_by(["ledger_id", "digest_type"]).aggregate([])
        for ledger, name in zip(
            pairs["ledger_id"].to_pylist(), pairs["digest_type"].to_pylist(), strict=True
        ):
            if name in SIZES:
                self.known[ledger] = SIZES[name]


def unverified(
    codec: str, digests: Digests, entries: Entries, verdicts: npt.NDArray[Any], offset: int
) -> Iterator[Fault]:
    """Yield a note for each ledger whose digests cannot be verified, at its first entry. `offset` is the file position of `entries.data`."""
    for i, text, severity in digests.unverified(entries, verdicts):
        at = int(entries.start[i]) - 4 + offset
        yield Fault(codec, at, 0, Kind.LINK, text, severity)


def all_match(verdicts: npt.NDArray[Any]) -> bool:
    """Return whether the frames with these verdicts are entries whose CRC matches."""
    return bool(len(verdicts)) and int(verdicts.min()) > CERTAIN


def matched_sizes(verdicts: npt.NDArray[Any], data: Bytes, start: Int64s, end: Int64s) -> Int64s:
    """Return `matching_digest` of each entry. The verdict of its rule is `CERTAIN` plus the size if it was computed there."""
    sizes = verdicts.astype(np.int64) - CERTAIN
    unsure = np.flatnonzero(sizes < 0)
    if len(unsure):
        out = np.empty(len(unsure), np.int64)
        matching_digests(data, start[unsure], end[unsure], out)
        sizes[unsure] = out
    return sizes


def consistent_ledgers(entries: Entries) -> set[int]:
    """Return the ledgers of which at least two entries have running totals that leave room for their payloads.

    The entries have neither a CRC nor a known digest type. Some digest size, HMAC's or none, must fit all of a ledger.
    """
    out = set()
    size = entries.end - entries.start - HEADER
    for ledger, of_ledger in groups(entries.ledger):
        order = of_ledger[np.argsort(entries.entry[of_ledger], kind="stable")]
        if len(order) < 2 or (np.diff(entries.entry[order]) <= 0).any():
            continue
        grown, least = np.diff(entries.length[order]), size[order] - HMAC
        fits_hmac = (least >= 0).all() and (grown >= least[1:]).all()
        if fits_hmac or (grown >= size[order][1:]).all():
            out.add(ledger)
    return out


def digest_columns(data: Bytes, start: Int64s, sizes: Int64s) -> dict[str, pa.Array]:
    """Return the columns `digest_type` and `digest` of entries whose digests start at `start`. Negative sizes are null."""
    if len(sizes) and sizes[0] >= 0 and (sizes == sizes[0]).all():
        size = int(sizes[0])
        out = np.empty(len(sizes) * size, np.uint8)
        gather_fixed(data, start, size, out)
        ends = np.arange(len(sizes) + 1, dtype=np.int32) * np.int32(size)
        return {
            "digest_type": constant(pa.string(), NAMES[size], len(sizes)),
            "digest": from_offsets(ends, out),
        }
    names = contents(pa.string(), [name.encode() for name in SIZES])
    types = names.take(numbers(pa.int64(), _INDEX[np.maximum(sizes, 0)], sizes < 0))
    return {"digest_type": types, "digest": binary(data, start, np.maximum(sizes, -1))}
