"""The names of the files of a data directory, and the notation of zxids.

Source: `Util.getZxidFromName`, `FileSnap`, `FileTxnLog` and `SnapStream` of ZooKeeper. A server regards `log.17.fixed` as a log too, and
`snapshot.16.tmp` as a snapshot: only the first two parts of a name count, and the last one for compression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logwright.codec.java import integer

VERSION_DIR = "version-2"
"""The folder in `dataDir` and `dataLogDir` that holds logs and snapshots."""
LOG, SNAPSHOT = "log", "snapshot"
CURRENT_EPOCH, ACCEPTED_EPOCH, MYID = "currentEpoch", "acceptedEpoch", "myid"
TEMP = ".tmp"
"""The suffix of the temporary file of `AtomicFileOutputStream`."""

GZIP, SNAPPY, CHECKED = "gz", "snappy", ""
"""The compression of a snapshot by the last part of its name, in any case (`SnapStream.StreamMode`); none for other parts."""


@dataclass(frozen=True, slots=True)
class FileName:
    """A name that a server recognises: "log" or "snapshot", its zxid, and the other parts."""

    kind: str
    zxid: int
    rest: str = ""

    @property
    def compression(self) -> str:
        """The compression of a snapshot: "gz", "snappy" or ""."""
        last = self.rest.rpartition(".")[2].lower()
        return last if last in (GZIP, SNAPPY) else CHECKED


def parse(name: str) -> FileName | None:
    """Parse a name as a server does. None if it has no valid zxid, so that the file is never used."""
    parts = name.split(".")
    if len(parts) < 2 or parts[0] not in (LOG, SNAPSHOT):
        return None
    try:
        return FileName(parts[0], integer(parts[1], 64, 16), ".".join(parts[2:]))
    except ValueError:
        return None


def log_name(zxid: int) -> str:
    """Return `log.` and the zxid of the first transaction, without leading zeros."""
    return f"{LOG}.{_hex(zxid)}"


def snapshot_name(zxid: int, compression: str = CHECKED) -> str:
    """Return `snapshot.` and the last zxid when the snapshot was begun, with the suffix "gz" or "snappy" if it is compressed."""
    return f"{SNAPSHOT}.{_hex(zxid)}" + (f".{compression}" if compression else "")


def _hex(number: int) -> str:
    """`Long.toHexString`."""
    return f"{number & (1 << 64) - 1:x}"


def zxid_text(zxid: int) -> str:
    """Return a zxid or session id as ZooKeeper prints it: hexadecimal, with 0x."""
    return f"0x{_hex(zxid)}"


PRINTED = {"zxid": zxid_text, "session": zxid_text}
"""`Codec.printed`."""


def epoch_of(zxid: int) -> int:
    """Return the epoch of the leader that made the transaction (`ZxidUtils.getEpochFromZxid`)."""
    return zxid >> 32


def continues(zxid: Any, before: Any) -> Any:
    """Return whether a zxid is the next one: in its epoch, or as the first one of a later epoch. For numbers and for arrays."""
    return (zxid == before + 1) | ((zxid >> 32 > before >> 32) & (zxid & 0xFFFFFFFF == 1))


def counter_of(zxid: int) -> int:
    """Return the transaction's number within its epoch (`ZxidUtils.getCounterFromZxid`)."""
    return zxid & 0xFFFFFFFF


def is_first(zxid: int) -> bool:
    """Return whether this is the very first transaction of a server or of an ensemble."""
    return zxid in (1, 1 << 32 | 1)
