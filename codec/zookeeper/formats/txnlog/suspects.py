"""The bits of a damaged record that may be flipped, and what proves one.

Pairs of wrong bits change an Adler-32 as a single one elsewhere does. If they did, the bytes at the place that the checksum shows were
right as stored. So a bit of the payload is corrected only if these bytes are impossible as they are and right with the bit flipped: the
transaction does not parse and then adds up exactly, the zxid does not continue and then does, the time or the session does not fit those
around it and then does. A bit of a multi, or of a type, is not proved by parsing: another type can make wrong bytes parse. The bits of node
data are left to the digests of the tree.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from logwright.codec.frames.suspects import suspects as by_specification
from logwright.codec.kernels.bitflip import Flip, flips_of_stored
from logwright.codec.kernels.intrinsics import load_i32be, load_i64be
from logwright.codec.window import Around, Bytes, Frames, Window
from logwright.codec.zookeeper.formats.bitflip import CHECKSUM, find_flipped_bit
from logwright.codec.zookeeper.formats.txnlog import layout
from logwright.codec.zookeeper.formats.txnlog.bodies import DIGEST, SOUND, STATUS, Bodies
from logwright.codec.zookeeper.formats.txnlog.scan import BODY, LEAST, SPECIFICATION, TXN_FRAME

_ZXID, _TIME, _CLIENT = (BODY + at for at in (layout.ZXID_AT, layout.TIME_AT, layout.CLIENT_AT))
_HEADER = layout.FILE_HEADER.pack({})
_LOW = 4
"""Where the half of the checksum that an Adler-32 fills starts."""


def suspects(window: Window, at: int, limit: int) -> Iterator[Flip]:
    """Yield bits of the damaged record at `window.data[at]`, which ends at `limit` or before."""
    data = window.data
    left = min(len(data), window.size - window.offset) - at
    if window.offset + at == 0:
        # The header of the file is what every server writes, except for one bit.
        stored = int.from_bytes(data[at : at + layout.HEADER_SIZE].tobytes(), "big")
        yield from flips_of_stored(at, layout.HEADER_SIZE, ">", stored ^ int.from_bytes(_HEADER, "big"))
        return
    size = layout.OVERHEAD + load_i32be(data, at + layout.LENGTH) if left >= LEAST else 0
    if LEAST <= size <= left and data[at + size - 1] == layout.EOR:
        payload = data[at + BODY : at + size - 1]
        flip = find_flipped_bit(payload, load_i64be(data, at))
        if flip is not None and flip[0] != CHECKSUM:
            place, value = flip
            yield Flip(at + BODY + place, (int(payload[place]) ^ value).bit_length() - 1)
        elif flip is not None:
            change = (load_i64be(data, at) ^ flip[1]) & (1 << 64) - 1
            yield Flip(at + 7 - (change.bit_length() - 1) // 8, (change.bit_length() - 1) % 8)
    yield from by_specification(SPECIFICATION, window, at, limit)


def proved(window: Window, frame: Frames, around: Around, flip: tuple[int, int] | None) -> bool:
    """Return whether the bit, which is flipped in the window, was wrong. None: the bytes are those of two copies."""
    data, start, end = window.data, int(frame.start[0]), int(frame.end[0])
    if frame.header["kind"][0] != TXN_FRAME:
        return data[start:end].tobytes() == _HEADER
    if _measured(data, start, end)[0] != SOUND:
        return False
    zxid, near = load_i64be(data, start + _ZXID), [_numbers(other) for other in around]
    if not any(near) or any(
        numbers and zxid != numbers[0] + by for numbers, by in zip(near, (1, -1), strict=True)
    ):
        return False
    if flip is None:
        return True
    place, bit = flip
    at = place - start
    if at < BODY:
        # The payload has the checksum that is stored, if its lower half was not changed.
        return at < _LOW or at >= layout.LENGTH
    if place == end - 1 or _ZXID <= at < _ZXID + 8:
        return True
    corrected, right = _field(data, start, at), _measured(data, start, end)
    data[place] ^= 1 << bit
    stored, wrong = _field(data, start, at), _measured(data, start, end)
    data[place] ^= 1 << bit
    kind = BODY + layout.TYPE_AT
    if load_i32be(data, start + kind) == layout.MULTI or kind <= at < kind + 4:
        # Another type can make wrong bytes parse, that of the transaction or of one in it.
        return False
    if wrong[0] != SOUND or (wrong[1] != layout.DIGEST_VERSION and right[1] == layout.DIGEST_VERSION):
        return True
    known = [numbers for numbers in near if numbers]
    if _TIME <= at < _TIME + 8 and len(known) == 2:
        low, high = known[0][1], known[1][1]
        return low <= corrected <= high and not low <= stored <= high
    if _CLIENT <= at < _CLIENT + 8:
        sessions = {numbers[2] for numbers in known}
        return corrected in sessions and stored not in sessions
    return False


def _field(data: Bytes, start: int, at: int) -> int:
    field = _TIME if _TIME <= at < _TIME + 8 else _CLIENT
    return int(load_i64be(data, start + field))


def _numbers(frames: Frames | None) -> tuple[int, int, int] | None:
    """Return zxid, time and session of a neighbouring record."""
    if frames is None or frames.header["kind"][0] != TXN_FRAME:
        return None
    head = frames.header[-1]
    return int(head["zxid"]), int(head["time"]), int(head["session_id"])


def _measured(data: Bytes, start: int, end: int) -> tuple[int, int]:
    """Return the status of a transaction, and the version of its digest."""
    bodies, _ = Bodies.of(data, np.array([start + BODY], np.int64), np.array([end - 1], np.int64))
    return int(bodies.measures[STATUS, 0]), int(bodies.measures[DIGEST, 0])
