"""Correct damaged records with certainty, by their checksum.

A checksum covers the payload alone. If it matches, the payload is right, whatever length and end mark say. If a single bit is wrong, the
checksum shows which one, to be confirmed by digests (`validate`). A checksum is never changed to fit the payload.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from logwright.codec.kernels.adler32 import adler32
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be
from logwright.codec.window import Bytes
from logwright.codec.zookeeper import names
from logwright.codec.zookeeper.formats.bitflip import CHECKSUM, find_flipped_bit
from logwright.codec.zookeeper.formats.txnlog import scan as records
from logwright.codec.zookeeper.formats.txnlog.bodies import SOUND, STATUS, Bodies
from logwright.codec.zookeeper.formats.txnlog.layout import (
    EOR,
    ERROR,
    LENGTH,
    OVERHEAD,
    PAYLOAD,
    TXN_HEADER,
    TYPE_AT,
    ZXID_AT,
    record_of,
)
from logwright.codec.zookeeper.formats.txnlog.scan import BODY

FIRST = 1
"""The lowest zxid in a file name. A negative one has more digits than `Util.getZxidFromName` accepts."""


@dataclass(frozen=True, slots=True)
class FixedRecord:
    """A corrected record: its range in the file, its new bytes, and what was wrong."""

    start: int
    stop: int
    record: bytes
    zxid: int
    why: str
    bits: int
    """The number of bits that differ from the file."""
    doubt: bool = False
    """Some two-bit errors would have the same checksum, so other evidence must confirm the correction."""


def fix_record(data: Bytes, at: int, stop: int, before: int | None, file: int | None) -> FixedRecord | None:
    """Return the corrected record at `data[at]`, which is damaged and ends before `stop`; None if it cannot be corrected.

    `before` is the zxid of the previous record. `file` is the zxid in the file name, for the first record.
    """
    for record in (_mark(data, at, stop), _bit(data, at, stop), _length(data, at, stop)):
        if record is not None and _plausible(record, before, file):
            return record
    return None


def _payload(data: Bytes, at: int, stop: int) -> Bytes | None:
    """Return the payload by its stored length, if all of it is there."""
    if stop - at < records.LEAST - 1:
        return None
    length = load_i32be(data, at + LENGTH)
    return data[at + BODY : at + BODY + length] if TXN_HEADER <= length <= stop - at - BODY else None


def _mark(data: Bytes, at: int, stop: int) -> FixedRecord | None:
    """Correct a record whose end mark alone is wrong or missing."""
    payload = _payload(data, at, stop)
    if payload is None or adler32(payload, 0, len(payload)) != load_i64be(data, at):
        return None
    end = min(at + OVERHEAD + len(payload), stop)
    return _fixed(data, at, end, payload.tobytes(), "the end mark was corrected")


def _bit(data: Bytes, at: int, stop: int) -> FixedRecord | None:
    """Correct one flipped bit in the payload or its checksum."""
    payload = _payload(data, at, stop)
    if payload is None or at + OVERHEAD + len(payload) > stop or data[at + BODY + len(payload)] != EOR:
        return None
    flipped = find_flipped_bit(payload, load_i64be(data, at))
    if flipped is None:
        return None
    place, value = flipped
    corrected = payload.copy()
    if place == CHECKSUM:
        why = "one bit of its checksum was flipped, the payload is right"
    else:
        corrected[place] = value
        why = f"one bit of byte {place} of its payload was flipped ({int(payload[place]):#04x}, it was {value:#04x}): its checksum says so"
    fixed = _fixed(data, at, at + OVERHEAD + len(payload), corrected.tobytes(), why)
    return replace(fixed, doubt=not _harmless(fixed, place))


def _harmless(record: FixedRecord, place: int) -> bool:
    """Return whether the record changes no tree in any case: it is an error, by a type and a length that the bit is not in."""
    payload = np.frombuffer(record.record, np.uint8)[BODY:-1]
    complete = load_i32be(payload, TYPE_AT) == ERROR and len(payload) == TXN_HEADER + 4
    return complete and not TYPE_AT <= place < TXN_HEADER and not ZXID_AT <= place < ZXID_AT + 8


def _length(data: Bytes, at: int, stop: int) -> FixedRecord | None:
    """Correct a record whose length alone is wrong: the checksum matches another length."""
    end = int(records.true_end(data, at, min(stop, at + records.REACH)))
    if end < 0:
        return None
    payload = data[at + BODY : end - 1].tobytes()
    return _fixed(data, at, end, payload, f"its length is {len(payload)}, as its checksum says")


def _fixed(data: Bytes, start: int, stop: int, payload: bytes, why: str) -> FixedRecord:
    record = record_of(payload)
    zxid = load_i64be(np.frombuffer(record, np.uint8), BODY + ZXID_AT)
    stored = data[start:stop].tobytes().ljust(len(record), b"\0")
    bits = (int.from_bytes(stored, "big") ^ int.from_bytes(record, "big")).bit_count()
    return FixedRecord(start, stop, record, zxid, why, bits)


def _plausible(record: FixedRecord, before: int | None, file: int | None) -> bool:
    """Return whether a record is a readable transaction that belongs at this place."""
    data = np.frombuffer(record.record, np.uint8)
    bodies, _ = Bodies.of(data, np.array([BODY], np.int64), np.array([len(data) - 1], np.int64))
    if bodies.measures[STATUS, 0] != SOUND or record.zxid < FIRST:
        return False
    if before is None:
        return file is None or record.zxid == file
    return bool(names.continues(record.zxid, before))


# Records of failed requests

DATA_INCONSISTENCY, UNIMPLEMENTED = -3, -6
"""`KeeperException.Code`."""


def error_record(session_id: int, cxid: int, zxid: int, time: int, err: int) -> bytes:
    """Return a transaction that changes nothing but the last zxid, as a server writes it for a failed request."""
    header = {"client_id": session_id, "cxid": cxid, "zxid": zxid, "time": time, "type": ERROR}
    return record_of(PAYLOAD.pack({**header, "body": {"err": err}}))
