"""The round-trip laws detect codecs that break them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.describe import I64BE, DescriptionError, Field, Repeated, Struct
from logwright.codec.fault import DamageError, Fault, Kind, UsageError
from logwright.codec.kafka.formats.log.layout import RECORD, RECORD_BATCH
from logwright.codec.kernels.compress import compress
from logwright.codec.window import Decoded
from logwright.roundtrip import laws, registration, strategies
from logwright.roundtrip.compare import bytes_differ, tables_differ
from logwright.roundtrip.kafka import reference
from logwright.roundtrip.specimen import Specimen


def test_missing_parts_of_a_new_codec_are_named() -> None:
    """Names the files and functions a codec without tests lacks."""

    class New(Broken):
        name = "toy.new"

    tables = {name: table for name, table in LOG.tables.items() if name != "frames"}
    message = registration.lacks(New(LOG, name="toy.new", tables=tables))  # type: ignore[arg-type]
    assert message == [
        "toy.new: the table 'frames' has no column 'position': see codec.table",
        "toy.new: the table 'frames' has no column 'size': see codec.table",
        "toy.new has no sample: add one to SAMPLES in roundtrip/toy/specimens.py",
        "toy.new has no strategy for rows: add one to ROWS in roundtrip/toy/strategies.py",
        "toy.new has no strategy for files: add one to FILES in roundtrip/toy/strategies.py",
        "toy.new has no reference for its rows: add one to ROWS in roundtrip/toy/reference.py",
    ]


# They notice


class Broken:
    """A copy of a codec with parts changed by a test."""

    def __init__(self, codec: Codec, **changed: Any) -> None:
        self._codec, self._changed = codec, changed

    def __getattr__(self, name: str) -> Any:
        return self._changed[name] if name in self._changed else getattr(self._codec, name)


LOG = registry.get("kafka.log")
ROWS = pa.table({"key": [b"a", b"b", None], "value": [b"1", b"2", b"3"]}).append_column(
    "timestamp_ms", pa.array([5, 6, 7], pa.int64())
)


RECORD_BATCH_OF_NOTHING = RECORD_BATCH.pack({"attributes": 1, "records_count": 1, "records": b"no gzip"})


def log(**options: Any) -> bytes:
    """Three batches of one record."""
    specimen = Specimen.of(b"", "kafka.log", **{"batch.size": 0, **options})
    return specimen.encode(ROWS)


def test_wrong_encoder_is_found() -> None:
    def encode(*args: Any) -> Iterator[bytes]:
        data = b"".join(bytes(buffer) for buffer in LOG.encode(*args))
        yield data[:-1] + b"!"

    broken: Any = Broken(LOG, encode=encode)
    verdict = laws.decode_encode(log(), broken, name="x.log")
    assert not verdict
    assert verdict.at == len(log()) - 1
    assert f"byte {verdict.at}: expected 00, found 21" in str(verdict)
    assert not laws.encode_decode(ROWS, broken)
    assert not laws.encode_without_payloads(log(), broken)


def test_wrong_row_is_found() -> None:
    def decode(*args: Any) -> Iterator[Decoded]:
        for item in LOG.decode(*args):
            if args[2] == "rows" and "value" in item.batch.schema.names:
                at = item.batch.schema.get_field_index("value")
                changed = pa.array([b"wrong"] * item.batch.num_rows, pa.binary())
                item = Decoded(item.batch.set_column(at, item.batch.schema.field(at), changed), item.faults)
            yield item

    broken: Any = Broken(LOG, decode=decode)
    assert "row 0, value: expected b'1', found b'wrong'" in str(laws.encode_decode(ROWS, broken))
    assert "row 0, value: expected b'1', found b'wrong'" in str(laws.kernel_equals_description(log(), broken))


def test_wrong_split_is_found() -> None:
    def decode(*args: Any) -> Iterator[Decoded]:
        if args[0].offset == 0:
            yield from LOG.decode(*args)

    broken: Any = Broken(LOG, decode=decode)
    assert laws.any_split(log(), LOG, sizes=[1, 80, 1000])
    assert laws.any_split(log(), broken, sizes=[10_000])
    verdict = laws.any_split(log(), broken, sizes=[10_000, 1])
    assert "in parts of 1 bytes (3 parts): expected 3 rows, found 1, equal up to row 1" in str(verdict)


def test_missing_checksum_test_is_found() -> None:
    def scan(window: Any, at: int, context: Any, *, check: bool = True) -> Any:
        return LOG.scan(window, at, context, check=False)

    broken: Any = Broken(LOG, scan=scan)
    data = log()
    assert laws.damage_is_seen(data, LOG, cuts=[100], flips=[(70, 0)])
    verdict = laws.damage_is_seen(data, broken, cuts=[], flips=[(len(data) - 2, 0)])
    assert not verdict
    assert verdict.at == len(data) - 2
    wrong = bytearray(data)
    wrong[20] ^= 1
    assert "crc is" in str(laws.kernel_equals_description(bytes(wrong), broken))


def test_exception_of_a_decoder_breaks_the_law() -> None:
    def decode(*args: Any) -> Iterator[Decoded]:
        head = args[1].header
        if (head["records_count"] != 1).any() or (head["partition_leader_epoch"] != 0).any():
            raise IndexError("out of range")
        yield from LOG.decode(*args)

    broken: Any = Broken(LOG, decode=decode)
    verdict = laws.damage_is_seen(log(), broken, cuts=[], flips=[(15, 0)])
    assert "unexpected IndexError: out of range" in str(verdict)


def test_header_read_wrongly_is_found() -> None:
    def scan(window: Any, at: int, context: Any, *, check: bool = True) -> Any:
        frames = LOG.scan(window, at, context, check=check)
        header = frames.header.copy()
        header["producer_id"] = 7
        frames.header = header
        return frames

    verdict = laws.kernel_equals_description(log(), Broken(LOG, scan=scan))  # type: ignore[arg-type]
    assert "row 0, producer_id: expected -1, found 7" in str(verdict)


def test_contradicting_description_is_found() -> None:
    encoded = Specimen.of(b"", "kafka.log").encode(ROWS.slice(0, 1))
    numbers = Struct("Numbers", *RECORD_BATCH.fields[:-1], Field("records", Repeated(I64BE, "records_count")))
    longer: Any = Broken(LOG, structures=(numbers,), frame=numbers)
    assert "frame 0 at byte 0: description: " in str(laws.kernel_equals_description(encoded, longer))
    half_struct = Struct("Half", RECORD_BATCH.fields[0])
    half: Any = Broken(LOG, structures=(half_struct,), frame=half_struct)
    message = str(laws.kernel_equals_description(encoded, half))
    assert f"frame 0 at byte 0: ends at byte 8 by description, {len(encoded)} by kernel" in message


def test_unreadable_records_are_not_a_contradiction() -> None:
    """A valid checksum over bytes that are not records."""
    assert laws.kernel_equals_description(RECORD_BATCH_OF_NOTHING, "kafka.log")


def test_invented_rows_are_found() -> None:
    def decode(*args: Any) -> Iterator[Decoded]:
        if args[2] != "rows":
            yield from LOG.decode(*args)
            return
        row = {name: 0 if name == "offset" else None for name in args[3]}
        yield Decoded(pa.RecordBatch.from_pylist([row], LOG.tables["rows"].schema(args[3])))

    empty = RECORD_BATCH.pack({"records_count": 0, "records": []})
    assert laws.kernel_equals_description(empty, "kafka.log")
    broken: Any = Broken(LOG, decode=decode)
    assert "0 rows by description, 1 by kernel" in str(laws.kernel_equals_description(empty, broken))


def test_codec_must_be_named_if_rows_do_not_identify_it() -> None:
    """Then its frames are compared."""
    assert laws.kernel_equals_description(log(), Broken(LOG, name="kafka.other"))  # type: ignore[arg-type]


def judged(
    broken: dict[str, Any], *, cuts: list[int] | None = None, flips: list[tuple[int, int]] | None = None
) -> str:
    codec: Any = Broken(LOG, **broken)
    return laws.damage_is_seen(log(), codec, cuts=cuts or [], flips=flips or []).difference


def test_lost_rows_are_found() -> None:
    count = len(log())

    def forgets(*args: Any) -> Iterator[Decoded]:
        if args[0].size == count:
            yield from LOG.decode(*args)

    assert "cut to 200 bytes: a row of a sound frame is missing: {'key': b'a'" in judged(
        {"decode": forgets}, cuts=[200]
    )

    def skips(*args: Any) -> Iterator[Decoded]:
        window, frames, *rest = args
        yield from LOG.decode(window, frames.pick(frames.header["partition_leader_epoch"] == 0), *rest)

    message = judged({"decode": skips}, flips=[(15, 0)])
    assert "bit 0 of byte 15 flipped: rows are missing without a fault" in message


def test_unreported_damage_is_found() -> None:
    def blind(window: Any, at: int, context: Any, *, check: bool = True) -> Any:
        return LOG.scan(window, at, context, check=False)

    assert judged({"scan": blind}, flips=[(18, 0)]) == "bit 0 of byte 18 flipped: the damage is not reported"


def test_modes_that_disagree_are_found() -> None:
    def always(*args: Any) -> Iterator[Decoded]:
        if not args[0].offset and args[0].data[18] != log()[18]:
            raise DamageError("no")
        yield from LOG.decode(*args)

    assert "DROPMALFORMED raised: memory: no" in judged(
        {"decode": always, "scan": unchecked}, flips=[(18, 0)]
    )

    calls = []

    def first(*args: Any) -> Iterator[Decoded]:
        calls.append(1)
        if args[1].header["partition_leader_epoch"].any() and not calls[100:]:
            calls.extend([1] * 100)
            raise DamageError("once")
        yield from LOG.decode(*args)

    assert "FAILFAST raised, and the report has no error: memory: once" in judged(
        {"decode": first}, flips=[(15, 0)]
    )

    def last(window: Any, at: int, context: Any, *, check: bool = True) -> Any:
        frames = LOG.scan(window, at, context, check=check)
        if frames.header["partition_leader_epoch"].any():
            calls.append(2)
            if calls.count(2) > 1:
                frames.faults.append(Fault("kafka.log", 0, 1, Kind.ORDER, "late"))
        return frames

    assert "FAILFAST did not raise: late" in judged({"scan": last}, flips=[(15, 0)])


def unchecked(window: Any, at: int, context: Any, *, check: bool = True) -> Any:
    return LOG.scan(window, at, context, check=False)


# Verdicts and arguments


def test_verdict_names_the_checked_law() -> None:
    verdict = laws.decode_encode(log(), name="any.log")
    assert verdict
    assert str(verdict) == f"decode_encode: kafka.log any.log: holds ({len(log())} checked)"


def test_laws_accept_a_path(tmp_path: Any) -> None:
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(log())
    assert laws.decode_encode(path)
    assert Specimen.of(path).read("rows", columns="topic,partition").table.to_pylist()[0] == {
        "topic": "orders",
        "partition": 0,
    }


def test_unrecognised_file_is_refused() -> None:
    with pytest.raises(UsageError, match="unrecognised file format"):
        laws.decode_encode(b"hello", name="x.txt")
    with pytest.raises(UsageError, match="none of the columns foo"):
        laws.encode_decode(pa.table({"foo": [1]}), "kafka.log")
    with pytest.raises(UsageError, match="unknown option"):
        laws.decode_encode(log(), "kafka.log", nonsense=1)
    with pytest.raises(UsageError, match="no codec or layout"):
        strategies.rows("kafka.lag")
    with pytest.raises(UsageError, match="no strategy for"):
        strategies.files("kafka.partition_metadata")


@pytest.mark.parametrize(
    ("key", "message"),
    [(b"", "MALFORMED"), (b"\0\0", "MALFORMED"), (b"\0\0\0\1", "COMMIT"), (b"\0\0\0\x63", "UNKNOWN")],
)
def test_reference_reads_control_records(key: bytes, message: str) -> None:
    record = RECORD.pack({"key": key, "value": b"\0\0\0\0\0\0"})
    values, _ = RECORD.unpack(record)
    batch = {
        "base_offset": 0, "attributes": 0x20, "base_timestamp": 0, "max_timestamp": 0, "producer_id": -1, "producer_epoch": -1,
        "base_sequence": -1, "partition_leader_epoch": 0, "records_count": 1, "records": [values],
    }  # fmt: skip
    assert [row["control_type"] for row in reference.log([batch])] == [message]


def test_reference_and_kernels_refuse_the_same() -> None:
    """Batches with an unknown compression or leftover records are lost in both."""
    batch: dict[str, Any] = {"attributes": 5, "records": b"", "records_count": 0}
    with pytest.raises(DescriptionError, match="compression 5 is unknown"):
        list(reference.log([batch]))
    record = RECORD.pack({"key": b"k", "value": b"v"})
    batch = {"attributes": 1, "records": compress("gzip", record + record), "records_count": 1}
    with pytest.raises(DescriptionError, match="9 bytes left after 1 records"):
        list(reference.log([batch]))


def test_text_without_structures_has_nothing_to_compare() -> None:
    verdict = laws.kernel_equals_description(b"0\n0\n", name="leader-epoch-checkpoint")
    assert verdict
    assert verdict.checked == 0
    assert laws.damage_is_seen(b"0\n1\n0 0\n", name="leader-epoch-checkpoint")


@pytest.mark.parametrize(
    ("item", "other", "message"),
    [
        (b"abc", b"abc", None),
        (b"abc", b"abd", "byte 2: expected 63, found 64"),
        (b"abcdefgh", b"abcdefgX", "byte 7: expected 68, found 58"),
        (b"abcdefgh", b"aXcdXfgh", "byte 1: expected 62 63 64 65 66 67 68, found 58 63 64 58 66 67 68"),
        (b"abc", b"ab", "expected 3 bytes, found 2, equal up to byte 2"),
        (b"", b"x", "expected 0 bytes, found 1, equal up to byte 0"),
    ],
)
def test_first_different_byte_is_reported(item: bytes, other: bytes, message: str | None) -> None:
    actual = bytes_differ(item, other)
    assert (actual and actual[1]) == message


def test_first_different_row_is_reported() -> None:
    item = pa.table({"a": [1, 2, 3], "b": [["x"], [], None]})
    assert tables_differ(item, item) is None
    assert tables_differ(item, pa.concat_tables([item.slice(0, 1), item.slice(1)])) is None
    assert tables_differ(item, item.slice(0, 2)) == (2, "expected 3 rows, found 2, equal up to row 2")
    assert tables_differ(item, item.drop_columns(["b"])) == (0, "no column 'b'")
    other = item.set_column(1, "b", pa.array([["x"], None, None], item.schema.field("b").type))
    assert tables_differ(item, other) == (1, "row 1, b: expected [], found None")
    wider = item.set_column(0, "a", pa.array([1, 2, 3], pa.int32()))
    assert tables_differ(item, wider) == (0, "column 'a': expected type int64, found int32")


def test_strategies_say_what_they_need() -> None:
    """Hypothesis is not installed with the product."""
    code = "import sys; sys.modules['hypothesis'] = None; import logwright.roundtrip.strategies"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: logwright.roundtrip.strategies needs Hypothesis: pip install hypothesis"
    )


def test_laws_need_no_hypothesis() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; import logwright.roundtrip.laws"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bits_are_flipped_at_the_given_position() -> None:
    data = np.arange(16, dtype=np.uint8).tobytes()
    assert strategies._edited(data, [("flip", 3, 0), ("cut", 8, 0)]) == bytes([0, 1, 2, 2, 4, 5, 6, 7])
    assert strategies._edited(data, [("drop", 2, 12), ("repeat", 0, 2)]) == bytes([0, 1, 0, 1, 14, 15])
    assert strategies._edited(data, [("zero", 1, 13), ("insert", 1, b"x"), ("put", 2, b"yy")]) == (
        b"\0xyy" + bytes(11) + b"\x0e\x0f"
    )


@pytest.mark.parametrize(
    ("codec", "name", "size"),
    [("kafka.index", f"{0:020d}.index", 8), ("rocketmq.timerwheel", "timerwheel", 32)],
)
def test_preallocated_zeros_may_be_cut_to_a_single_zero_entry(codec: str, name: str, size: int) -> None:
    assert laws.damage_is_seen(bytes(3 * size), codec, name=name, cuts=range(3 * size), flips=[])
