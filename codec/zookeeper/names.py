"""The names of the files of a data directory, and how zxids are written.

Source: `Util.getZxidFromName`, `FileSnap`, `FileTxnLog` and `SnapStream` of ZooKeeper. A server takes `log.17.fixed` for a log too,
and `snapshot.16.tmp` for a snapshot: only the first two parts of a name count, and the last one for compression.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

VERSION_DIR = "version-2"
"""The folder in `dataDir` and `dataLogDir` that holds logs and snapshots."""
LOG, SNAPSHOT = "log", "snapshot"
CURRENT_EPOCH, ACCEPTED_EPOCH, MYID = "currentEpoch", "acceptedEpoch", "myid"
TEMP = ".tmp"
"""`AtomicFileOutputStream` writes beside, under the name with this behind it."""

GZIP, SNAPPY, CHECKED = "gz", "snappy", ""
"""How a snapshot is compressed (`SnapStream.StreamMode`): by the last part of its name, in any case; else not at all."""

# `Long.parseLong(part, 16)`, which takes a sign; what does not fit 64 bits is none.
_HEX = re.compile(r"([+-]?)([0-9a-fA-F]+)")


@dataclass(frozen=True, slots=True)
class FileName:
    """A name that a server knows: "log" or "snapshot", its zxid, and what else is in the name."""

    kind: str
    zxid: int
    rest: str = ""

    @property
    def compression(self) -> str:
        """Of a snapshot: "gz", "snappy" or ""."""
        last = self.rest.rpartition(".")[2].lower()
        return last if last in (GZIP, SNAPPY) else CHECKED


def parse(name: str) -> FileName | None:
    """What a server takes a name for; None where it has no zxid that can be read, so that the file is never used."""
    parts = name.split(".")
    if len(parts) < 2 or parts[0] not in (LOG, SNAPSHOT):
        return None
    zxid = parse_hex(parts[1])
    return None if zxid is None else FileName(parts[0], zxid, ".".join(parts[2:]))


def parse_hex(text: str) -> int | None:
    """A number of 64 signed bits in hexadecimal digits, as `Long.parseLong(text, 16)` reads it; None where it is none."""
    found = _HEX.fullmatch(text)
    if found is None or len(found[2].lstrip("0")) > 16:
        return None
    number = int(found[1] + found[2], 16)
    return number if -(1 << 63) <= number < 1 << 63 else None


def log_name(zxid: int) -> str:
    """`log.` and the zxid of the first transaction, in as few digits as it takes."""
    return f"{LOG}.{_hex(zxid)}"


def snapshot_name(zxid: int, compression: str = CHECKED) -> str:
    """`snapshot.` and the zxid that was the last one when it was begun; "gz" or "snappy" behind it where it is compressed."""
    return f"{SNAPSHOT}.{_hex(zxid)}" + (f".{compression}" if compression else "")


def _hex(number: int) -> str:
    """`Long.toHexString`."""
    return f"{number & (1 << 64) - 1:x}"


def zxid_text(zxid: int) -> str:
    """As ZooKeeper prints zxids and session ids: hexadecimal, with 0x."""
    return f"0x{_hex(zxid)}"


PRINTED = {"zxid": zxid_text, "session": zxid_text}
"""`Codec.printed`."""


def epoch_of(zxid: int) -> int:
    """The epoch of the leader that made the transaction (`ZxidUtils.getEpochFromZxid`)."""
    return zxid >> 32


def counter_of(zxid: int) -> int:
    """The transaction's number within its epoch (`ZxidUtils.getCounterFromZxid`)."""
    return zxid & 0xFFFFFFFF
