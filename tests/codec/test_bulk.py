"""Payloads that are decompressed in one kernel call equal those that are read one by one, and others are left to the readers."""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from logwright.codec.kernels.compress import CompressionError, Output, compress, decompress, native
from logwright.codec.kernels.compress.bulk import NUMBERS, OTHER, fill_output

pytestmark = pytest.mark.kernel_modes

LIMIT = 1 << 20
WORDS = (b"lima ", b"kilo juliet ", b"a", b"\0" * 70, b"ab" * 40, b"abc" * 3)


@pytest.fixture(scope="module", autouse=True)
def always_compiled() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("logwright.codec.kernels.kernel._INTERPRET_BELOW", 0)
        yield


def sample(size: int) -> bytes:
    dice = random.Random(size)
    out = bytearray()
    while len(out) < size:
        out += dice.choice(WORDS) if dice.random() < 0.8 else dice.randbytes(dice.randrange(100))
    return bytes(out[:size])


SAMPLES = [sample(size) for size in (0, 1, 63, 64, 65, 1000, 16_000, 65_537)]


def filled(
    codecs: Sequence[str],
    payloads: Sequence[bytes],
    limit: int = LIMIT,
    room: int = 1 << 20,
    most: int = 1 << 20,
) -> tuple[int, list[bytes]]:
    """Return the number of payloads that `fill_output` decompresses, and their contents."""
    edges = np.zeros(len(payloads) + 1, np.int64)
    ends = 3 + np.cumsum([len(payload) for payload in payloads])
    starts = ends - [len(payload) for payload in payloads]
    buf = np.frombuffer(b"???" + b"".join(payloads) + b"???", np.uint8)
    numbers = np.array([NUMBERS.get(codec, OTHER) for codec in codecs], np.int64)
    out = Output(np.empty(room, np.uint8))
    stopped = fill_output(buf, starts, ends, numbers, 0, limit, out, most, edges)
    assert out.end == edges[stopped]
    return stopped, [out.array[edges[i] : edges[i + 1]].tobytes() for i in range(stopped)]


@pytest.mark.parametrize("codec", NUMBERS)
def test_payloads_are_decompressed_one_after_the_other(codec: str) -> None:
    payloads = [compress(codec, data) for data in SAMPLES]
    assert filled([codec] * len(payloads), payloads) == (len(SAMPLES), SAMPLES)


def test_payloads_of_alternating_codecs_are_decompressed_together() -> None:
    codecs = [*NUMBERS, *NUMBERS]
    payloads = [compress(codec, SAMPLES[5]) for codec in codecs]
    assert filled(codecs, payloads) == (len(codecs), [SAMPLES[5]] * len(codecs))


def test_a_payload_of_another_codec_is_left_to_its_reader() -> None:
    payloads = [compress("lz4", b"one"), compress("zlib", b"two"), compress("lz4", b"three")]
    assert filled(["lz4", "zlib", "lz4"], payloads) == (1, [b"one"])


@pytest.mark.parametrize("codec", NUMBERS)
def test_a_payload_over_the_limit_or_without_room_is_left_to_its_reader(codec: str) -> None:
    data = SAMPLES[-1]
    payload = compress(codec, data)
    assert filled([codec], [payload], limit=len(data)) == (1, [data])
    assert filled([codec], [payload], limit=len(data) - 1)[0] == 0
    assert filled([codec] * 2, [payload] * 2, room=2 * len(data) - 1) == (1, [data])
    assert filled([codec] * 2, [payload] * 2, most=2 * len(data) - 1) == (1, [data])


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "lz4-magic0", "zstd"])
@given(data=st.data())
def test_a_damaged_payload_has_the_content_that_its_reader_finds_or_is_left_to_it(
    codec: str, data: st.DataObject
) -> None:
    plain = b"".join(data.draw(st.lists(st.sampled_from(WORDS) | st.binary(max_size=40), max_size=30)))
    payload = bytearray(compress(codec, plain))
    for at in data.draw(st.lists(st.integers(0, len(payload) - 1), max_size=2)):
        payload[at] ^= 1 << data.draw(st.integers(0, 7))
    payload = payload[: data.draw(st.integers(0, len(payload)) | st.just(len(payload)))]
    done, contents = filled([codec], [bytes(payload)])
    if done:
        assert contents == [decompress(codec, payload, LIMIT).tobytes()]


@pytest.mark.parametrize(("codec", "function"), [("lz4", "lz4"), ("zstd", "zstd"), ("gzip", "inflate")])
def test_without_the_c_functions_payloads_are_left_to_their_readers(
    codec: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, f"{function}_address", lambda: 0)
    assert filled([codec], [compress(codec, b"content")]) == (0, [])


def test_a_function_that_a_package_does_not_export_has_no_address() -> None:
    assert native._address(native._library("logwright.no_such_module"), "LZ4_decompress_safe") == 0
    assert native._address(native._library("lz4.block._block"), "no_such_function") == 0


def test_an_inflate_function_with_another_state_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.inflate_address()
    fields = [(name, kind) for name, kind in native._Inflate._fields_ if name != "total_out"]
    other = type("_Inflate", (ctypes.Structure,), {"_fields_": [*fields, ("total_out", ctypes.c_uint32)]})
    monkeypatch.setattr(native, "_Inflate", other)
    assert native.inflate_address.__wrapped__() == 0


@pytest.mark.parametrize("change", ["member", "rest", "name", "checksum", "size"])
def test_a_gzip_payload_that_is_not_one_plain_member_is_left_to_its_reader(change: str) -> None:
    plain = compress("gzip", SAMPLES[5])
    assert filled(["gzip"], [plain]) == (1, [SAMPLES[5]])
    payload = {
        "member": plain + plain,
        "rest": plain + b"rest",
        "name": plain[:3] + b"\x08" + plain[4:10] + b"name\0" + plain[10:],
        "checksum": plain[:-8] + bytes([plain[-8] ^ 1]) + plain[-7:],
        "size": plain[:-4] + bytes([plain[-4] ^ 1]) + plain[-3:],
    }[change]
    assert filled(["gzip"], [payload]) == (0, [])


def test_a_zstd_window_that_streaming_refuses_is_left_to_the_reader() -> None:
    settings = zstandard.ZstdCompressionParameters(window_log=28, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    payload = stream.compress(b"content") + stream.flush()
    with pytest.raises(CompressionError):
        decompress("zstd", payload, LIMIT)
    assert filled(["zstd"], [payload]) == (0, [])


def test_threads_have_their_own_contexts() -> None:
    payloads = [compress("zstd", data) for data in SAMPLES] * 5
    results: list[object] = []

    def work() -> None:
        results.append(filled(["zstd"] * len(payloads), payloads))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(len(payloads), SAMPLES * 5)] * 4


def test_context_of_zstd_lives_as_long_as_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads ask for their first context at the same time: the address of each has to stay valid."""
    count = 4
    together, checked = threading.Barrier(count, timeout=30), threading.Barrier(count, timeout=30)
    freed: list[int] = []
    alive: list[bool] = []

    class State:
        def __init__(self) -> None:
            self.address = threading.get_ident()
            together.wait()

        def __del__(self) -> None:
            freed.append(self.address)

    def run() -> None:
        address = native.zstd_context()
        checked.wait()
        alive.append(address not in freed and native.zstd_context() == address)
        checked.wait()

    monkeypatch.setattr(native, "_State", State)
    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert alive == [True] * count
    assert len(freed) == count


@pytest.mark.parametrize(
    "payload", ["28b52ffd005844000010000001003f01161b744d1a", "28b52ffd00580800006b033c7fef"]
)
def test_zstd_frame_whose_blocks_make_too_much_is_left_to_the_reader(payload: str) -> None:
    stored = bytes.fromhex(payload)
    assert filled(["zstd"], [stored]) == (0, [])
    with pytest.raises(CompressionError):
        decompress("zstd", stored, limit=LIMIT)
