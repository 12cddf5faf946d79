"""The additional check of an ensemble member: its epochs and transactions must agree.

Source: `QuorumPeer.loadDataBase` of ZooKeeper. The member writes no snapshot at the start; the elected leader does.
"""

from __future__ import annotations

from logwright.codec.fault import UnreadableError
from logwright.codec.single_frame import ParseError
from logwright.codec.store.overlay import Overlay
from logwright.codec.zookeeper.formats.epochs import parse_number
from logwright.codec.zookeeper.names import ACCEPTED_EPOCH, CURRENT_EPOCH, TEMP, epoch_of, zxid_text
from logwright.codec.zookeeper.startup.exceptions import IOFailure

_LONGEST = 4096
"""Bytes of the line that are read."""


def load_epochs(disk: Overlay, zxid: int) -> None:
    """Read the epochs, or write missing ones. Raises `IOFailure`."""
    epoch = epoch_of(zxid)
    current = _read(disk, CURRENT_EPOCH, epoch)
    if epoch > current:
        if CURRENT_EPOCH + TEMP not in disk:
            raise IOFailure(
                f"The current epoch, {zxid_text(current)[2:]}, is older than the last zxid, {zxid}"
            )
        current = _read(disk, CURRENT_EPOCH + TEMP, epoch)
        disk.put(CURRENT_EPOCH, str(current).encode())
        disk.delete(CURRENT_EPOCH + TEMP)
    accepted = _read(disk, ACCEPTED_EPOCH, epoch)
    if accepted < current:
        texts = (zxid_text(epoch)[2:] for epoch in (accepted, current))
        raise IOFailure("The accepted epoch, {} is less than the current epoch, {}".format(*texts))


def _read(disk: Overlay, name: str, default: int) -> int:
    if name not in disk:
        disk.put(name, str(default).encode())
        return default
    try:
        data = disk.read(name, 0, _LONGEST)
    except UnreadableError:
        raise IOFailure("Input/output error") from None
    try:
        return parse_number(data)
    except ParseError:
        line = data.split(b"\n")[0].rstrip(b"\r").decode(errors="replace") if data else "null"
        raise IOFailure(f"Found {line} in {name}") from None
