"""The master keys of the ledgers of a bookie, which have no checksum. Copies of a key and the keys of other ledgers show which is damaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from logwright.codec.bookkeeper.formats.digest import Passwords, master_key

Keys = Mapping[int, frozenset[bytes]]
"""The different keys of each ledger, in the index and in the journals."""
_SHARED = 64
"""The number of keys that others are compared with bit by bit."""


class MasterKeys:
    """Ledgers of one application usually have one password, and so the same key."""

    def __init__(self, keys: Keys, passwords: Passwords | None) -> None:
        self._keys, self._passwords = keys, passwords
        ledgers = Counter(key for own in keys.values() for key in own if any(key))
        self._shared = {key for key, count in ledgers.most_common() if count > 1}
        self._common = [key for key, _ in ledgers.most_common(_SHARED) if key in self._shared]

    def right(self, ledger: int) -> bytes | None:
        """Return the key of a ledger; None if it has several, and nothing tells which one is right.

        It is the key of the password, if the ledger has it. Else it is the only one that another ledger has too: damage does not produce the
        key of another ledger. A key that differs in one bit from one that several others have is damaged.
        """
        keys = {key for key in self._keys.get(ledger, ()) if any(key)}
        password = None if self._passwords is None else self._passwords.of(ledger)
        known = None if password is None else master_key(password)
        if known in keys:
            return known
        shared = keys & self._shared
        if not shared and keys:
            shared = {other for other in self._common for key in keys if _is_one_bit(key, other)}
        candidates = shared or keys
        return next(iter(candidates)) if len(candidates) == 1 else None

    def conflicts(self) -> Iterator[int]:
        """Yield the ledgers with a damaged key."""
        for ledger, keys in sorted(self._keys.items()):
            if {key for key in keys if any(key)} - {self.right(ledger)}:
                yield ledger


def _is_one_bit(key: bytes, other: bytes) -> bool:
    difference = int.from_bytes(key, "big") ^ int.from_bytes(other, "big")
    return len(key) == len(other) and difference.bit_count() == 1
