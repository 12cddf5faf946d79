"""Records that can be put right for certain: their checksum says what they were.

A checksum is of the payload alone. Where it is right, so is the payload, whatever length and mark say; where it is wrong by one bit,
it tells which one, for digests to bear out (`validate`). What is never done is to make a checksum fit what is there.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import numpy as np

from logwright.codec.describe import I32BE, I64BE
from logwright.codec.kernels.adler32 import adler32
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be
from logwright.codec.window import Bytes
from logwright.codec.zookeeper import names
from logwright.codec.zookeeper.formats.txnlog import scan as records
from logwright.codec.zookeeper.formats.txnlog.bodies import SOUND, STATUS, Bodies
from logwright.codec.zookeeper.formats.txnlog.layout import EOR, ERROR, LENGTH, OVERHEAD, PAYLOAD, TXN_HEADER
from logwright.codec.zookeeper.formats.txnlog.scan import BODY, ZXID_AT
from logwright.codec.zookeeper.repair.flip import CHECKSUM, turned

FIRST = 1
"""The first zxid of all; in a name a negative one is more digits than `Util.getZxidFromName` takes."""
_TYPE = PAYLOAD.offset("type")


@dataclass(frozen=True, slots=True)
class FixedRecord:
    """A record that was put right: the bytes that it takes in the file, what it is now, and what was wrong."""

    start: int
    stop: int
    record: bytes
    zxid: int
    why: str
    doubt: bool = False
    """The checksum says so, and would as well of some cases of two bits: what else there is must bear it out."""


def fix_record(data: Bytes, at: int, stop: int, before: int | None, file: int | None) -> FixedRecord | None:
    """The record that starts at `data[at]`, which can't be read, as it was; None where that is not known.

    It ends before `stop`. `before` is the zxid of the one before it, `file` that of the file's name, for its first one.
    """
    for found in (_mark(data, at, stop), _bit(data, at, stop), _length(data, at, stop)):
        if found is not None and _sensible(found, before, file):
            return found
    return None


def _payload(data: Bytes, at: int, stop: int) -> Bytes | None:
    """The payload by the length that is stored, where all of it is there."""
    if stop - at < records.LEAST - 1:
        return None
    length = load_i32be(data, at + LENGTH)
    return data[at + BODY : at + BODY + length] if TXN_HEADER <= length <= stop - at - BODY else None


def _mark(data: Bytes, at: int, stop: int) -> FixedRecord | None:
    """Only the mark behind it is wrong, or not there."""
    payload = _payload(data, at, stop)
    if payload is None or adler32(payload, 0, len(payload)) != load_i64be(data, at):
        return None
    end = min(at + OVERHEAD + len(payload), stop)
    return _made(at, end, payload.tobytes(), "the mark was made anew")


def _bit(data: Bytes, at: int, stop: int) -> FixedRecord | None:
    """One bit was turned over, in the payload or its checksum."""
    payload = _payload(data, at, stop)
    if payload is None or at + OVERHEAD + len(payload) > stop or data[at + BODY + len(payload)] != EOR:
        return None
    found = turned(payload, load_i64be(data, at))
    if found is None:
        return None
    place, value = found
    made = payload.copy()
    if place == CHECKSUM:
        why = "one bit of its checksum was turned over, the payload is right"
    else:
        made[place] = value
        why = f"one bit of byte {place} of its payload was turned over ({int(payload[place]):#04x}, it was {value:#04x}): its checksum says so"
    fixed = _made(at, at + OVERHEAD + len(payload), made.tobytes(), why)
    return replace(fixed, doubt=not _harmless(fixed, place))


def _harmless(found: FixedRecord, place: int) -> bool:
    """Whether it changes no tree, whatever is wrong with it: an error, by a type and a length that were not touched."""
    payload = np.frombuffer(found.record, np.uint8)[BODY:-1]
    whole = load_i32be(payload, _TYPE) == ERROR and len(payload) == TXN_HEADER + 4
    return whole and not _TYPE <= place < TXN_HEADER and not ZXID_AT <= place < ZXID_AT + 8


def _length(data: Bytes, at: int, stop: int) -> FixedRecord | None:
    """Only the length is wrong: the checksum fits another one."""
    end = int(records.true_end(data, at, min(stop, at + records.REACH)))
    if end < 0:
        return None
    payload = data[at + BODY : end - 1].tobytes()
    return _made(at, end, payload, f"its length is {len(payload)}, as its checksum says")


def _made(start: int, stop: int, payload: bytes, why: str) -> FixedRecord:
    record = record_of(payload)
    zxid = load_i64be(np.frombuffer(record, np.uint8), BODY + ZXID_AT)
    return FixedRecord(start, stop, record, zxid, why)


def record_of(payload: bytes) -> bytes:
    """A payload as a record."""
    head = I64BE.pack(zlib.adler32(payload), {}) + I32BE.pack(len(payload), {})
    return head + payload + bytes([EOR])


def _sensible(found: FixedRecord, before: int | None, file: int | None) -> bool:
    """Whether it is a transaction that can be read, and one that belongs there."""
    data = np.frombuffer(found.record, np.uint8)
    bodies, _ = Bodies.of(data, np.array([BODY], np.int64), np.array([len(data) - 1], np.int64))
    if bodies.found[STATUS, 0] != SOUND or found.zxid < FIRST:
        return False
    if before is None:
        return file is None or found.zxid == file
    return follows(found.zxid, before)


def follows(zxid: int, before: int) -> bool:
    """Whether a zxid is the next one, in its epoch or as the first one of a later one."""
    return zxid == before + 1 or (
        names.epoch_of(zxid) > names.epoch_of(before) and names.counter_of(zxid) == 1
    )


# Records that say that nothing was done

DATA_INCONSISTENCY, UNIMPLEMENTED = -3, -6
"""`KeeperException.Code`."""


def error_record(session_id: int, cxid: int, zxid: int, time: int, err: int) -> bytes:
    """A transaction that changes nothing but the last zxid, as a server writes it for a request that failed."""
    payload = {
        "client_id": session_id,
        "cxid": cxid,
        "zxid": zxid,
        "time": time,
        "type": ERROR,
        "body": {"err": err},
    }
    return record_of(PAYLOAD.pack(payload))
