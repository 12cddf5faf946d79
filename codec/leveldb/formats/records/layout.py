"""Physical records: the framing of write-ahead logs and manifests.

A file is a sequence of blocks of 32 KiB. A physical record, a header of seven bytes and a payload, is within one block. A logical record is
one physical record (FULL) or several (FIRST, any number of MIDDLE, LAST). If fewer than seven bytes are left in a block, they are zeros.
Source: `doc/log_format.md`, `db/log_reader.cc` and `db/log_writer.cc` of LevelDB.

A frame is a logical record with the padding of the block after it. Frames are therefore adjacent, each belongs to the split that it starts
in, and no row is read twice. The `frames` table lists physical records.
"""

from __future__ import annotations

import numpy as np

from logwright.codec.arrays import Int64s
from logwright.codec.describe import U32LE, Field, Int, Struct
from logwright.codec.describe import Bytes as BytesType
from logwright.codec.kernels.crc32c import crc32c, crc32c_update
from logwright.codec.kernels.intrinsics import copy, load_u8, load_u16le, load_u32le, store_32le
from logwright.codec.kernels.kernel import kernel
from logwright.codec.leveldb.formats.table.layout import masked, stored_crc
from logwright.codec.window import Bytes

BLOCK = 32768
"""Bytes of a block (`kBlockSize`)."""
ZERO, FULL, FIRST, MIDDLE, LAST = range(5)
EOF_TYPE, BAD_TYPE = 5, 6
"""The numbers of the reader's own states. It treats a record of such a type with a right checksum as that state."""
TYPE_NAMES = ("ZERO", "FULL", "FIRST", "MIDDLE", "LAST")


RECORD = Struct(
    "PhysicalRecord",
    Field("crc", U32LE, "masked CRC-32C of the type and the payload", checksum=(stored_crc, "type")),
    Field("length", Int(2, signed=False, order="<"), "bytes of the payload; no checksum covers it"),
    Field(
        "type",
        Int(1, signed=False, values=dict(enumerate(TYPE_NAMES))),
        "whether a logical record starts, continues or ends here",
    ),
    Field("payload", BytesType("length"), "all or part of a logical record"),
    doc="A physical record of a log or a manifest; it never crosses the end of a block of 32 KiB.",
    source="log::Writer::EmitPhysicalRecord",
)
HEADER = RECORD.offset("payload")
"""Bytes of a header (`kHeaderSize`)."""
_LENGTH, _TYPE = RECORD.offset("length"), RECORD.offset("type")
BATCH_HEADER = 12
"""Bytes at the start of the payload that hold a write batch's sequence and count."""

# Why a scan ended
(
    END, NEED, CROWDED, TORN_HEADER, TORN, TORN_CHAIN, BAD_LENGTH, CHECKSUM, ZEROS, UNKNOWN, PARTIAL, MISSING, TOO_LONG,
) = range(13)  # fmt: skip
"""The file ended; more bytes are needed; the arrays are full; the file ends in a header, in a record, or between the records of a chain;
a record exceeds its block; a wrong checksum; a header of zeros; an unknown type; a chain continues with a record that starts another
one, or starts with one that continues; the logical record exceeds the limit."""

STOP, NEEDED, PLACE, AFTER, KIND, GATHERED, LENGTH, CHAIN = range(8)
"""State at the end of a scan: the position; bytes needed from there; the physical record that ended it, and where it would end (or -1);
its type; bytes gathered of a logical record before it; its length; number of physical records gathered."""
STATE = 8

HEAD = np.dtype([(name, "<i8") for name in ("size", "records", "begin", "sequence", "count")])
"""Header of a logical record: bytes of its payload, its physical records, the first one that counts (old writers may write an empty
FIRST before it), and the sequence and count in the first twelve bytes of the payload, or -1."""
SIZE, RECORDS, BEGIN, SEQUENCE, COUNT = range(5)


@kernel("const u1[], i8, i8")
def record_crc(buf: Bytes, at: int, end: int) -> int:
    """Return the checksum to be stored in the physical record `buf[at:end]`."""
    return masked(crc32c(buf, at + _TYPE, end))


@kernel("const u1[], i8, i8, i8, i8, i8, i8[], i8[], i8[,], i8[]")
def scan_records(
    buf: Bytes,
    at: int,
    offset: int,
    size: int,
    check: int,
    limit: int,
    starts: Int64s,
    ends: Int64s,
    heads: Int64s,
    state: Int64s,
) -> tuple[int, int]:
    """Find logical records from `buf[at]` on, which is byte `offset + at` of a file of `size` bytes, by the rules of `log::Reader`.

    A logical record may have `limit` bytes. Writes records to `starts`, `ends` and `heads`, and the final state to `state`. Returns their
    number, and why the scan ended.
    """
    n = 0
    pos = at
    chain = -1  # start of the frame that is being gathered
    begin = 0
    gathered = 0
    records = 0
    got = 0  # bytes of the batch header
    sequence = 0
    count = 0
    status = END
    after = -1
    kind = -1
    length = 0
    need = 0
    while True:
        block_end = pos + BLOCK - (offset + pos) % BLOCK
        left = block_end - pos
        file_left = size - offset - pos
        if file_left < HEADER and (left >= HEADER or file_left <= left):
            # The end of the file, within a block or at the end of one.
            if chain >= 0:
                status = TORN_CHAIN
            elif file_left > 0 and left >= HEADER:
                status = TORN_HEADER
            if file_left > len(buf) - pos:
                status = NEED
                need = pos + file_left
            break
        if left < HEADER:
            pos = block_end  # whatever it contains
            if chain < 0 and pos <= len(buf):
                at = pos
            if pos > len(buf):
                status = NEED
                need = pos
                break
            continue
        if n >= len(starts):
            status = CROWDED
            break
        if len(buf) - pos < HEADER:
            status = NEED
            need = pos + HEADER
            break
        length = load_u16le(buf, pos + _LENGTH)
        kind = load_u8(buf, pos + _TYPE)
        after = pos + HEADER + length
        if after > block_end or offset + after > size:
            # Only an incomplete block is certain to be the last one.
            status = TORN if offset + block_end > size else BAD_LENGTH
            break
        if kind == ZERO and length == 0:
            status = ZEROS
            break
        if after > len(buf):
            status = NEED
            need = after
            break
        if check and record_crc(buf, pos, after) != load_u32le(buf, pos):
            status = CHECKSUM
            break
        if kind == ZERO or kind > LAST:
            status = UNKNOWN
            break
        if kind in (MIDDLE, LAST):
            if chain < 0:
                status = MISSING
                break
        else:
            if chain >= 0 and gathered > 0:
                status = PARTIAL
                break
            if chain < 0:
                chain = pos
            begin = pos
            gathered = 0
            records = 0
            got = 0
            sequence = 0
            count = 0
        gathered += length
        records += 1
        if gathered > limit:
            status = TOO_LONG
            break
        if got < BATCH_HEADER:
            for i in range(pos + HEADER, min(after, pos + HEADER + BATCH_HEADER - got)):
                byte = load_u8(buf, i)
                if got < 7:
                    sequence |= byte << 8 * got
                elif got == 7:
                    sequence |= (byte & 0x7F) << 56 | -(byte >> 7) << 63
                else:
                    count |= byte << 8 * (got - 8)
                got += 1
        pos = after
        if kind in (FIRST, MIDDLE):
            continue
        if block_end - pos < HEADER:
            # The padding of the block belongs to the frame.
            pos = min(block_end, size - offset)
            if pos > len(buf):
                status = NEED
                need = pos
                break
        starts[n] = chain
        ends[n] = pos
        heads[n, SIZE] = gathered
        heads[n, RECORDS] = records
        heads[n, BEGIN] = begin - chain
        heads[n, SEQUENCE] = sequence if got == BATCH_HEADER else -1
        heads[n, COUNT] = count if got == BATCH_HEADER else -1
        n += 1
        at = pos
        chain = -1
        gathered = 0
        records = 0
    state[STOP] = chain if chain >= 0 else at
    state[NEEDED] = need - state[STOP]
    state[PLACE] = pos
    state[AFTER] = after
    state[KIND] = kind
    state[GATHERED] = gathered
    state[LENGTH] = length
    state[CHAIN] = records if chain >= 0 else -1
    return n, status


# After damage


@kernel("const u1[], i8, i8, i8")
def sound(buf: Bytes, pos: int, stop: int, block_end: int) -> int:
    """Return the end of the physical record at `pos` if it ends before `stop`, is of a known type and has a right checksum, or -1."""
    if stop - pos < HEADER:
        return -1
    after = pos + HEADER + load_u16le(buf, pos + _LENGTH)
    kind = load_u8(buf, pos + _TYPE)
    if after > stop or kind < FULL or kind > LAST or (kind == FIRST and after != block_end):
        return -1
    return after if record_crc(buf, pos, after) == load_u32le(buf, pos) else -1


@kernel("const u1[], i8, i8, i8")
def true_end(buf: Bytes, pos: int, stop: int, block_end: int) -> int:
    """Return the end of a physical record with a wrong checksum or length, or -1 if it is unknown.

    Either its length leads to the start of another record or to the end of the block or file, or its checksum is right for another length.
    A wrong length may lead to the start of a later record, so the checksum comes first.
    """
    if stop - pos < HEADER:
        return -1
    after = pos + HEADER + load_u16le(buf, pos + _LENGTH)
    leads = after <= stop and (
        block_end - after < HEADER or after == stop or sound(buf, after, stop, block_end) >= 0
    )
    stored = load_u32le(buf, pos)
    crc = crc32c(buf, pos + _TYPE, pos + HEADER)
    for end in range(pos + HEADER, after if leads else stop + 1):
        if masked(crc) == stored and (not leads or sound(buf, end, stop, block_end) >= 0):
            return end
        if end < stop:
            crc = crc32c_update(crc, buf, end, end + 1)
    return after if leads else -1


@kernel("const u1[], i8, i8, i8")
def next_start(buf: Bytes, pos: int, stop: int, block_end: int) -> tuple[int, int]:
    """Find the next place from `pos` on where a physical record that starts a logical one may begin.

    Returns (place, 1) if the records after it fill the block, or the file to its end, so that it is not the content of another one; (place,
    0) if they do not; (-1, 0) if there is no such place.
    """
    while stop - pos >= HEADER:
        kind = load_u8(buf, pos + _TYPE)
        if kind in (FULL, FIRST):
            after = sound(buf, pos, stop, block_end)
            if after >= 0:
                while after >= 0 and after < stop and block_end - after >= HEADER:
                    after = sound(buf, after, stop, block_end)
                return pos, 1 if after >= 0 else 0
        pos += 1
    return -1, 0


# Contents of frames


@kernel("const u1[], const i8[], const i8[], i8, i8[], i8[], i8[,]")
def physical(
    buf: Bytes, starts: Int64s, ends: Int64s, offset: int, owner: Int64s, behind: Int64s, out: Int64s
) -> int:
    """Find the physical records of frames: the owner of each, its end with the padding of the block, and in a row of `out` its position,
    length, type and checksum. Returns their number, for which `out` has room."""
    n = 0
    for i in range(len(starts)):
        pos = starts[i]
        first = n
        while pos < ends[i]:
            left = BLOCK - (offset + pos) % BLOCK
            if left < HEADER:
                pos = min(pos + left, ends[i])
                continue
            if n > first:
                behind[n - 1] = pos
            length = load_u16le(buf, pos + _LENGTH)
            owner[n] = i
            out[n, 0] = pos
            out[n, 1] = length
            out[n, 2] = load_u8(buf, pos + _TYPE)
            out[n, 3] = load_u32le(buf, pos)
            n += 1
            pos += HEADER + length
        behind[n - 1] = ends[i]
    return n


@kernel("const u1[], const i8[], const i8[], const i8[], i8, u1[], i8[]")
def gather(
    buf: Bytes, starts: Int64s, ends: Int64s, begins: Int64s, offset: int, out: Bytes, stops: Int64s
) -> int:
    """Write the payloads of frames one after the other. That of frame `i` ends at `stops[i + 1]` in `out`."""
    at = 0
    for i in range(len(starts)):
        pos = starts[i] + begins[i]
        while pos < ends[i]:
            left = BLOCK - (offset + pos) % BLOCK
            if left < HEADER:
                pos += left
                continue
            length = load_u16le(buf, pos + _LENGTH)
            copy(out, at, buf, pos + HEADER, length)
            at += length
            pos += HEADER + length
        stops[i + 1] = at
    return at


# Writing


@kernel("const u1[], const i8[], i8, u1[]")
def write_records(payloads: Bytes, stops: Int64s, offset: int, out: Bytes) -> int:
    """Write logical records from byte `offset` of a file on, as `log::Writer` does. Returns the number of bytes.

    The payload of record `i` is `payloads[stops[i] : stops[i + 1]]`. `out` has room (`room_for`).
    """
    at = 0
    for i in range(len(stops) - 1):
        pos = stops[i]
        end = stops[i + 1]
        first = True
        while True:
            left = BLOCK - (offset + at) % BLOCK
            if left < HEADER:
                for _ in range(left):
                    out[at] = 0
                    at += 1
                left = BLOCK
            size = min(left - HEADER, end - pos)
            last = pos + size == end
            kind = MIDDLE
            if first and last:
                kind = FULL
            elif first:
                kind = FIRST
            elif last:
                kind = LAST
            at = put_record(payloads, pos, size, kind, out, at)
            pos += size
            first = False
            if last:
                break
    return at


@kernel("const u1[], i8, i8, i8, u1[], i8")
def put_record(payloads: Bytes, pos: int, size: int, kind: int, out: Bytes, at: int) -> int:
    """Write a physical record at `at`. Returns where it ends."""
    end = at + HEADER + size
    copy(out, at + HEADER, payloads, pos, size)
    out[at + _LENGTH] = size & 0xFF
    out[at + _LENGTH + 1] = size >> 8
    out[at + _TYPE] = kind
    store_32le(out, at, record_crc(out, at, end))
    return end


def room_for(size: int, records: int) -> int:
    """Return the maximum number of bytes that `write_records` writes for payloads of `size` bytes in total."""
    return size + (records + size // (BLOCK - HEADER) + records + 2) * 2 * HEADER


def written(payloads: Bytes, stops: Int64s, at: int) -> Bytes:
    """Return logical records as LevelDB writes them from byte `at` of a file on: see `write_records`."""
    out = np.empty(room_for(int(stops[-1] - stops[0]), len(stops) - 1), np.uint8)
    return out[: int(write_records(payloads, stops, at, out))]


def fragmented(payload: bytes, offset: int) -> bytes:
    """Return a logical record as written at byte `offset` of a file. This follows the description and is the reference for
    `write_records`."""
    out = bytearray()
    first, rest = True, payload
    while True:
        left = BLOCK - (offset + len(out)) % BLOCK
        if left < HEADER:
            out += bytes(left)
            left = BLOCK
        part, rest = rest[: left - HEADER], rest[left - HEADER :]
        kind = (FULL if first else LAST) if not rest else (FIRST if first else MIDDLE)
        out += RECORD.pack({"length": len(part), "type": kind, "payload": part})
        first = False
        if not rest:
            return bytes(out)
