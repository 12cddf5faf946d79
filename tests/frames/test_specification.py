"""Frame specifications: the search after damage finds the next frame, is linear, and invents nothing."""

from __future__ import annotations

import functools
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logwright.codec import registry
from logwright.codec.bookkeeper.formats.journal import (
    FENCE,
    HEADER,
    MASTER_KEY,
    PADDING,
    PADDING_MASK,
    RECORD,
)
from logwright.codec.describe import I32BE, I64BE, Field, Struct
from logwright.codec.frames.prefixes import DIRECT
from logwright.codec.frames.resync import HIGHEST, LOWEST, NONE, SOUND, Finder, finder
from logwright.codec.frames.scanner import BAD_CHECKSUM, NEED, NO_BASE, ZERO, Scanner, scanner
from logwright.codec.frames.specification import (
    ADLER32,
    CRC32,
    CRC32C,
    IMPOSSIBLE,
    PLAUSIBLE,
    FrameSpec,
    Length,
    Marker,
)
from logwright.codec.frames.walk import MemoryFile, Walk
from logwright.codec.kafka.formats.log.heads import SPECIFICATION as BATCH
from logwright.codec.kernels.intrinsics import Bytes, load_i64be
from logwright.codec.kernels.kernel import Kernel, fingerprint, kernel
from logwright.codec.option import Options
from logwright.codec.rocketmq.formats.commitlog.layout import BLANK, BLANK_MAGIC, MESSAGE, SPECIFICATION, V1
from logwright.codec.window import Window
from logwright.codec.zookeeper.formats.txnlog.layout import FILE_HEADER
from logwright.codec.zookeeper.formats.txnlog.scan import SPECIFICATION as TXN
from logwright.roundtrip.specimen import Specimen

GOLDEN = Path(__file__).resolve().parents[2] / "corpora" / "golden"


scanner_of, finder_of = functools.cache(scanner), functools.cache(finder)


def scanned(spec: FrameSpec, data: Bytes, at: int = 0) -> tuple[list[int], int, int]:
    starts = np.empty(len(data) // 10 + 1, np.int64)
    heads = np.empty(len(starts) * spec.head.itemsize, np.uint8)
    count, stop, why, *_ = scanner_of(spec)(
        data, at, len(data) - at, NO_BASE, 1, starts, heads, starts[:0], starts[:0]
    )
    return starts[:count].tolist(), int(stop), int(why)


def next_frame(spec: FrameSpec, data: Bytes, at: int = 0, base: int = NO_BASE) -> tuple[int, int]:
    prefixes = Finder(spec).prefixes(data)
    place, target, _ = finder_of(spec)(
        data, at, len(data) - at, base, LOWEST, HIGHEST, LOWEST, prefixes.known, prefixes.filled
    )
    return int(place), int(target)


def test_resync_finds_the_next_frame_after_any_damage() -> None:
    path = next(iter(sorted((GOLDEN / "zookeeper").glob("basic/version-2/log.*"))))
    data = np.fromfile(path, np.uint8)
    starts, end, _ = scanned(TXN, data, 16)
    assert len(starts) > 3
    for first, second in zip(starts[:20], [*starts[1:20], end], strict=False):
        if second < end:
            assert next_frame(TXN, data, first + 1) == (second, SOUND)


def message(at: int, body: bytes = b"body", size: int | None = None) -> bytes:
    values: dict[str, Any] = {
        "magic_code": V1,
        "physical_offset": at,
        "body_length": len(body),
        "body": body,
        "topic": b"t",
    }
    return MESSAGE.pack({**values, **({} if size is None else {"total_size": size})})


def test_false_headers_that_claim_the_rest_take_linear_time() -> None:
    """Each header has the right position, a length up to the end of the file, and a checksum mismatch."""

    def seconds(count: int) -> float:
        small = len(message(0))
        size = count * small
        heads = []
        for i in range(count):
            left = size - i * small
            head = bytearray(message(i * small, size=left))
            # The body goes up to the last four bytes, which are those of an empty topic and no properties.
            head[84:88] = (left - 88 - 4).to_bytes(4, "big")
            heads.append(bytes(head))
        heads[-1] = heads[-1][:-4] + b"\x01t\0\0"
        data = np.frombuffer(b"".join(heads), np.uint8)
        start = time.process_time()
        assert next_frame(SPECIFICATION, data, 0, 0) == (size - small, SOUND)  # the last one is a message
        return time.process_time() - start

    seconds(2000)
    assert seconds(16_000) < 0.5 + 12 * seconds(4000)


def alternating(name: str, count: int) -> bytes:
    """Damaged frames that each claim the rest of the file, and a small sound frame after each."""
    if name == "rocketmq.commitlog":
        small = len(message(0))
        total, out = 2 * count * small, b""
        for at in range(0, total, 2 * small):
            head = bytearray(message(at, size=total - at))
            head[84:88] = (total - at - 92).to_bytes(4, "big")
            out += bytes(head) + message(at + small)
        return out[:-4] + b"\x01t\0\0"
    if name == "zookeeper.txnlog":
        records = []
        for zxid in range(1, 2 * count + 1):
            payload = struct.pack(">qiqqi", 1, 1, zxid, 1, -11)
            records.append(struct.pack(">qi", zlib.adler32(payload), len(payload)) + payload + b"B")
        small = len(records[0])
        for i in range(0, 2 * count, 2):
            length = (2 * count - i) * small - (small - len(payload))
            records[i] = records[i][:8] + length.to_bytes(4, "big") + records[i][12:]
        return FILE_HEADER.pack({}) + b"".join(records)
    small = RECORD.pack({"ledger_id": 1, "entry_id": 2, "body": bytes(20)})
    sound = RECORD.pack({"ledger_id": 1, "entry_id": FENCE})
    total = count * (len(small) + len(sound))
    out = b""
    for left in range(total, 0, -len(small) - len(sound)):
        out += (left - 4).to_bytes(4, "big") + small[4:] + sound
    return HEADER.pack({"version": 4}) + out


@pytest.mark.parametrize(
    ("name", "file"),
    [("rocketmq.commitlog", "0" * 20), ("zookeeper.txnlog", "log.1"), ("bookkeeper.journal", "1.txn")],
)
def test_sound_frames_between_heads_that_claim_the_rest_are_read_in_linear_time(
    name: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames, read, passed = Scanner.frames, MemoryFile.pread, [0, 0]

    def counted_frames(self: Scanner, window: Window, at: int, *args: Any, **options: Any) -> Any:
        result = frames(self, window, at, *args, **options)
        failed = min(result.need, DIRECT) if options.get("prefixes") is not None else result.need
        passed[0] += result.stop - at + (0 if result.why == NEED else failed)
        return result

    def counted_read(self: MemoryFile, offset: int, length: int) -> Bytes:
        data = read(self, offset, length)
        passed[1] += len(data)
        return data

    monkeypatch.setattr(Scanner, "frames", counted_frames)
    monkeypatch.setattr(MemoryFile, "pread", counted_read)
    data, codec = np.frombuffer(alternating(name, 1000), np.uint8), registry.get(name)
    context = codec.context(file, Options(codec.options))
    list(Walk(MemoryFile(data), codec, context, step=64 << 10))
    scanned_bytes, read_bytes = passed
    assert scanned_bytes < 1000 * DIRECT + 12 * len(data)
    assert read_bytes < 8 * len(data)


def test_prefix_checksums_equal_direct_ones() -> None:
    rng = np.random.default_rng(3)
    body = rng.integers(0, 256, 70_000, dtype=np.uint8).tobytes()
    data = np.frombuffer(b"junk" + message(4, body) + b"more", np.uint8)
    assert next_frame(SPECIFICATION, data, 0, 0) == (4, SOUND)
    wrong = data.copy()
    wrong[50_000] ^= 1
    assert next_frame(SPECIFICATION, wrong, 0, 0)[1] == NONE
    assert scanned(SPECIFICATION, wrong[4:].copy())[2] == BAD_CHECKSUM


def test_checksums_between_prefixes_are_combined() -> None:
    data = np.random.default_rng(4).integers(0, 256, 9000, dtype=np.uint8)
    for algorithm in (CRC32, CRC32C, ADLER32):
        first, complete = algorithm.of(data, 0, 3001), algorithm.of(data, 0, 9000)
        assert algorithm.update(first, data, 3001, 9000) == complete
        assert algorithm.between(first, complete, 5999) == algorithm.of(data, 3001, 9000)
        assert algorithm.of(data, 5, 5) == algorithm.empty


def test_each_specification_has_its_own_kernels() -> None:
    first, second = scanner(TXN), scanner(BATCH)
    assert isinstance(first, Kernel)
    assert isinstance(second, Kernel)
    assert first.name != second.name
    digests = [fingerprint(each.py_func) for each in (first, second, scanner(TXN))]
    assert None not in digests
    assert digests[0] == digests[2] != digests[1]


def test_resync_without_checksums_needs_followers() -> None:
    with pytest.raises(TypeError, match="needs followers"):
        FrameSpec("test.bare", TXN.struct, Length("length", bias=12, low=13))
    with pytest.raises(TypeError, match="ends before the field length"):
        FrameSpec("test.short", TXN.struct, Length("length", low=3), followers=2)


def test_dropped_message_leaves_others_in_place() -> None:
    """The following messages move and get the physical offsets of their new positions."""
    data = b"".join(message(i * len(message(0))) for i in range(3))
    specimen = Specimen.of(data, "rocketmq.commitlog", "00000000000000000000")
    rows, frames, file = specimen.tables()
    encoded = specimen.encode(rows.take([0, 2]), frames, file)
    assert specimen.with_bytes(encoded).read().table["physical_offset"].to_pylist() == [0, len(message(0))]


def test_fields_are_changed_by_name_in_every_kind_of_frame() -> None:
    """With reseal, the enclosing sizes and checksums are recomputed."""
    log, journal = registry.get("rocketmq.commitlog"), registry.get("bookkeeper.journal")
    changed = log.edit(message(0), ("flag",), lambda old, kind: b"\0\0\0\7", reseal=True)
    specimen = Specimen.of(changed, "rocketmq.commitlog", "00000000000000000000")
    assert specimen.read().table.num_rows == 1
    blank = BLANK.pack({"total_size": 9, "magic_code": BLANK_MAGIC})
    assert log.edit(blank, ("total_size",), lambda old, kind: b"\0\0\0\10", reseal=False)[:4] == b"\0\0\0\10"
    header = HEADER.pack({"version": 4})
    assert journal.edit(header, ("version",), lambda old, kind: b"\0\0\0\5", reseal=False) == b"BKLG\0\0\0\5"
    padding = PADDING.pack({"length": PADDING_MASK, "pad_length": 1}) + b"\0"
    assert (
        journal.edit(padding, ("pad_length",), lambda old, kind: b"\0\0\0\2", reseal=False)[4:8]
        == b"\0\0\0\2"
    )
    key = (4).to_bytes(4, "big") + b"four"
    record = RECORD.pack({"ledger_id": 1, "entry_id": MASTER_KEY, "body": key})
    longer_key = (6).to_bytes(4, "big") + b"longer"
    longer = journal.edit(record, ("master_key",), lambda old, kind: longer_key, reseal=True)
    assert longer == RECORD.pack({"ledger_id": 1, "entry_id": MASTER_KEY, "body": longer_key})


def test_reseal_sets_the_length_that_another_field_has() -> None:
    log = registry.get("rocketmq.commitlog")
    changed = log.edit(message(0), ("body",), lambda old, kind: b"a longer body", reseal=True)
    specimen = Specimen.of(changed, "rocketmq.commitlog", "00000000000000000000")
    assert specimen.read().table["body"].to_pylist() == [b"a longer body"]


def test_journal_of_false_headers_takes_linear_time() -> None:
    """Without prefix digests, the claimed bytes would be summed repeatedly."""

    def seconds(count: int) -> float:
        small = RECORD.pack({"ledger_id": 1, "entry_id": 2, "body": bytes(20)})
        heads = []
        for i in range(count):
            left = (count - i) * len(small)
            heads.append((left - 4).to_bytes(4, "big") + small[4:])
        data = HEADER.pack({"version": 4}) + b"\xff" * 4 + b"".join(heads)
        start = time.process_time()
        assert Specimen.of(data, "bookkeeper.journal", "1.txn").read().report.errors
        return time.process_time() - start

    seconds(3000)
    assert seconds(24_000) < 1 + 10 * seconds(6000)


ENTRY = Struct(
    "EntryLogFrame",
    Field("size", I32BE, "bytes behind this field"),
    Field("ledger_id", I64BE, "-1: a map of ledgers, or nothing"),
    Field("entry_id", I64BE),
)
MAP = Struct("LedgersMap", Field("size", I32BE), Field("ledger_id", I64BE, only=-1))


@kernel("const u1[], i8, i8, i8")
def entry_rule(buf: Bytes, at: int, end: int, check: int) -> int:
    return PLAUSIBLE if load_i64be(buf, at + 4) == 7 and load_i64be(buf, at + 12) == 3 else IMPOSSIBLE


ENTRY_LOG = FrameSpec(
    "test.entrylog", ENTRY, Length("size", bias=4, low=36), marker=Marker("map", MAP, "ledger_id", -1, Length("size", bias=4, low=12)),
    rule=entry_rule, followers=2, zero_ends=True, fill=0xF0,
)  # fmt: skip


def test_entry_log_has_entries_maps_and_runs_of_fill_bytes() -> None:
    """BookKeeper fills the rest of a block with 0xF0, and writes maps and dummy frames under ledger -1."""
    entry = ENTRY.pack({"size": 36, "ledger_id": 7, "entry_id": 3}) + bytes(20)
    dummy = MAP.pack({"size": 8, "ledger_id": -1})
    parts = [entry, b"\xf0" * 3, dummy, entry, b"\xf0" * 5000, entry, entry]
    data = np.frombuffer(b"".join(parts) + bytes(100), np.uint8)
    places = np.cumsum([0, *map(len, parts)]).tolist()
    starts, stop, why = scanned(ENTRY_LOG, data)
    assert starts == [*places[:5], places[4] + 4096, *places[5:-1]]
    assert (stop, why) == (places[-1], ZERO)
    assert next_frame(ENTRY_LOG, data, 1) == (places[3], SOUND)
    run = np.frombuffer(b"\xf0" * 10, np.uint8)
    assert Scanner(ENTRY_LOG).frames(Window(run, 0, 5000), 0).need == 4096


@pytest.mark.parametrize("spec", [SPECIFICATION, ENTRY_LOG], ids=lambda spec: str(spec.name))
def test_frame_after_any_number_of_zeros_is_found(spec: FrameSpec) -> None:
    """The search passes over zeros in steps. The first bytes of a frame are zeros too."""
    for zeros in [*range(140), 5000]:
        frame = message(zeros)
        if spec is ENTRY_LOG:
            frame = (ENTRY.pack({"size": 36, "ledger_id": 7, "entry_id": 3}) + bytes(20)) * 3
        data = np.frombuffer(bytes(zeros) + frame, np.uint8)
        assert next_frame(spec, data, base=0) == (zeros, SOUND)
    assert next_frame(spec, np.zeros(5000, np.uint8))[1] == NONE
