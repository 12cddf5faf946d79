"""Messages of magic 0 and 1: written from rows, converted to and from other magics, served and repaired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka_golden import CASES, copy_case
from kafka_log import DecodedLog, context, window

import logwright as lw
from logwright.codec.kafka.formats.log import messages, sections
from logwright.codec.kafka.formats.log.codec import CODEC
from logwright.codec.kafka.formats.log.layout import COMPRESSION_NAMES, INNER_MESSAGE, MESSAGE
from logwright.codec.kernels.compress import compress
from logwright.roundtrip import laws

T = 1_700_000_000_000
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
ROWS = [
    {
        "key": (None, b"", b"k%d" % n)[n % 3],
        "value": (b"v" * n, None, b"")[n % 3],
        "timestamp": T + n * 7 % 11,
    }
    for n in range(60)
]
COMPRESSIONS = ("none", "gzip", "snappy", "lz4")


def write(path: Path, magic: int, compression: str = "none", **options: Any) -> Path:
    settings = {"segment.bytes": 1500, "batch.size": 300, "topic.id": TOPIC_ID, **options}
    lw.write(ROWS, path, "kafka.partition", magic=magic, **{"compression.type": compression}, **settings)
    return path


@pytest.mark.alike
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("magic", [0, 1])
def test_written_partition_is_served_completely(tmp_path: Path, magic: int, compression: str) -> None:
    path = write(tmp_path / "t-0", magic, compression)
    rows = lw.read(path).to_pylist()
    assert [row["offset"] for row in rows] == list(range(60))
    assert [(row["key"], row["value"]) for row in rows] == [(row["key"], row["value"]) for row in ROWS]
    assert {row["timestampType"] for row in rows} == {magic - 1}
    frames = lw.read(path, view="frames").to_pylist()
    assert {(frame["magic"], frame["compression"]) for frame in frames} == {(magic, compression)}
    for clean in (True, False):
        report = lw.verify(path, as_system="4.3", clean=clean)
        assert report.ok, report.text()
        assert (report.system["opens"], report.system["rows"]) == (True, 60)
    assert lw.read(path, mode="AS_SYSTEM", as_system="4.3").num_rows == 60


def test_offsets_of_wrappers_are_those_of_their_last_message(tmp_path: Path) -> None:
    for magic in (0, 1):
        path = write(tmp_path / f"t-{magic}", magic, "gzip")
        frames = lw.read(path, view="frames").to_pylist()
        assert [frame["last_offset"] + 1 for frame in frames][:-1] == [
            frame["base_offset"] for frame in frames
        ][1:]
        assert [frame["records_count"] for frame in frames] == [
            frame["last_offset"] - frame["base_offset"] + 1 for frame in frames
        ]


@pytest.mark.parametrize(
    ("version", "magic"), [("0.8.2", 0), ("0.9.0.1", 0), ("0.10.2", 1), ("0.11.0", 2), ("3.0-IV1", 2)]
)
def test_message_format_version_chooses_the_magic(tmp_path: Path, version: str, magic: int) -> None:
    path = tmp_path / "t-0"
    lw.write(ROWS[:3], path, "kafka.partition", **{"message.format.version": version})
    assert set(lw.read(path, view="frames")["magic"].to_pylist()) == {magic}


def test_wrong_message_format_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(lw.UsageError, match="expected a version of Kafka"):
        lw.write(ROWS[:3], tmp_path / "t-0", "kafka.partition", **{"message.format.version": "old"})


@pytest.mark.parametrize("magic", [0, 1])
def test_old_magics_have_no_zstd(tmp_path: Path, magic: int) -> None:
    with pytest.raises(lw.UsageError, match=f"magic {magic} has no compression zstd"):
        write(tmp_path / "t-0", magic, "zstd")
    assert not (tmp_path / "t-0").exists()


def test_log_append_time_is_that_of_the_wrapper(tmp_path: Path) -> None:
    rows = [
        {"value": b"x", "timestamp": T + n // 5, "timestampType": 1, "create_timestamp_ms": n}
        for n in range(20)
    ]
    for compression in COMPRESSIONS:
        path = tmp_path / f"{compression}-0"
        lw.write(rows, path, "kafka.partition", magic=1, **{"compression.type": compression})
        got = lw.read(path, columns="timestamp_ms,timestampType,create_timestamp_ms").to_pylist()
        assert [row["timestamp_ms"] for row in got] == [row["timestamp"] for row in rows]
        assert {row["timestampType"] for row in got} == {1}
        if compression != "none":
            # A message that is not in a wrapper has one time only.
            assert [row["create_timestamp_ms"] for row in got] == list(range(20))


@pytest.mark.parametrize(
    ("name", "magic"), [("v0_gzip", 1), ("v0_none", 2), ("v1_snappy", 2), ("v1_gzip", 0), ("v2_gzip_java", 1)]
)
def test_conversion_keeps_what_the_other_magic_holds(tmp_path: Path, name: str, magic: int) -> None:
    source = CASES[name].partition
    target = tmp_path / source.name
    lw.convert(source, target, magic=magic)
    columns = "offset,key,value,timestamp_ms,timestampType"
    before, after = (lw.read(path, columns=columns).to_pylist() for path in (source, target))
    for row in before:
        if magic == 0:
            row["timestamp_ms"], row["timestampType"] = -1, -1
        elif row["timestampType"] == -1:
            row["timestampType"] = 0
    assert after == before
    assert set(lw.read(target, view="frames")["magic"].to_pylist()) == {magic}


def test_edit_of_a_wrapper_keeps_the_offsets_of_its_other_messages(tmp_path: Path) -> None:
    for name in ("v0_gzip", "v1_lz4", "v1_none", "v0_none"):
        source = copy_case(name, tmp_path / name)
        before = lw.read(source, columns="offset,key,value,timestamp_ms").to_pylist()
        lw.edit(source, tmp_path / name / "out" / source.name, drop="offset == 7")
        after = lw.read(
            tmp_path / name / "out" / source.name, columns="offset,key,value,timestamp_ms"
        ).to_pylist()
        assert after == [row for row in before if row["offset"] != 7]


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_damaged_message_costs_no_other(tmp_path: Path) -> None:
    for name in ("v0_none", "v1_none", "v1_gzip", "mixed_v0_v1_v2"):
        source = copy_case(name, tmp_path / name)
        log = next(source.glob("*.log"))
        frames = lw.read(log, view="frames", columns="*").to_pylist()
        rows = lw.read(log, columns="offset").column(0).to_pylist()
        for i in (0, len(frames) // 2, len(frames) - 1):
            frame = frames[i]
            data = bytearray(log.read_bytes())
            data[frame["position"] + frame["size"] - 1] ^= 1
            other = tmp_path / name / "damaged.log"
            other.write_bytes(data)
            got = lw.read(other, "kafka.log", mode="DROPMALFORMED", columns="offset").column(0).to_pylist()
            assert got == [
                offset for offset in rows if not frame["base_offset"] <= offset <= frame["last_offset"]
            ]


@pytest.mark.filterwarnings("ignore::logwright.DamageWarning")
def test_messages_in_a_value_are_not_taken_for_entries(tmp_path: Path) -> None:
    """A log of Kafka that is stored in a log of Kafka."""
    inner = next(CASES["v0_none"].partition.glob("*.log")).read_bytes()
    for magic in (0, 1, 2):
        path = tmp_path / f"t-{magic}"
        rows = [{"value": value} for value in (b"first", inner, b"last")]
        lw.write(rows, path, "kafka.partition", magic=magic, **{"batch.size": 0})
        log = next(path.glob("*.log"))
        data = bytearray(log.read_bytes())
        at = data.index(inner)
        data[at - 30 : at - 28] = b"\xff\xff" if magic == 2 else data[at - 30 : at - 28]
        data[at + len(inner) // 2] ^= 0x40
        log.write_bytes(data)
        got = lw.read(log, mode="DROPMALFORMED", columns="value").column(0).to_pylist()
        assert got == [b"first", b"last"]


def wrapper(offset: int, codec: str, magic: int, texts: Sequence[bytes]) -> bytes:
    """Pack a wrapper whose last message has this offset."""
    first, time = (0, T) if magic else (offset - len(texts) + 1, None)
    inner = [
        INNER_MESSAGE.pack({"offset": first + i, "magic": magic, "timestamp": time, "value": text})
        for i, text in enumerate(texts)
    ]
    name = "lz4-magic0" if codec == "lz4" and not magic else codec
    attributes = COMPRESSION_NAMES.index(codec)
    value = compress(name, b"".join(inner))
    return MESSAGE.pack(
        {"offset": offset, "magic": magic, "attributes": attributes, "timestamp": time, "value": value}
    )


def test_wrapper_far_from_the_offsets_of_its_messages_is_kept() -> None:
    """No checksum covers its offset."""
    for offset in (1 << 56, 1 << 33, 7):
        first = bytearray(wrapper(offset + 1 if offset == 7 else 1, "gzip", 0, [b"one", b"two"]))
        first[:8] = offset.to_bytes(8, "big")
        data = bytes(first) + wrapper(9, "lz4", 0, [b"three"])
        assert laws.decode_encode(data, "kafka.log", name=f"{0:020d}.log")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_whose_messages_are_all_skipped_is_kept(magic: int, tmp_path: Path) -> None:
    """The messages of the first wrapper have the offsets 20 and 4, so a consumer has passed those of the second one."""
    time, first = (T, 4) if magic else (None, 0)
    inner = [
        INNER_MESSAGE.pack({"offset": offset - first, "magic": magic, "timestamp": time, "value": b"x"})
        for offset in (20, 4)
    ]
    unsorted = {"offset": 4, "magic": magic, "attributes": 1, "timestamp": time, "value": compress("gzip", b"".join(inner))}  # fmt: skip
    data = MESSAGE.pack(unsorted) + wrapper(9, "gzip", magic, [b"a", b"b"]) + wrapper(30, "gzip", magic, [b"c"])  # fmt: skip
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(data)
    assert lw.read(path, mode="DROPMALFORMED")["offset"].to_pylist() == [20, 30]
    assert laws.decode_encode(data, "kafka.log", name=path.name)


@pytest.mark.kernel_modes
@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_that_were_opened_by_the_scan_are_not_opened_again(
    magic: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    codecs = ["snappy", "gzip", "lz4", "lz4", "snappy"]
    data = b"".join(wrapper(2 * i + 1, codec, magic, [b"one" * 50, b"two"]) for i, codec in enumerate(codecs))
    log = DecodedLog(data)
    assert log.offsets == list(range(10))
    assert log.rows["value"].to_pylist() == [b"one" * 50, b"two"] * 5
    monkeypatch.setattr("logwright.codec.kernels.kernel._INTERPRET_BELOW", 0)
    assert DecodedLog(data).rows == log.rows

    scanned = CODEC.scan(window(data), 0, context())
    for picked in (scanned, scanned.pick(slice(1, 4))):
        with monkeypatch.context() as patch:
            patch.setattr(sections, "message_sets", None)
            (part,) = CODEC.decode(window(data), picked, "rows", ("offset", "value"), context())
        opened_later = replace(picked, held=None)
        assert list(CODEC.decode(window(data), opened_later, "rows", ("offset", "value"), context())) == [
            part
        ]


@pytest.mark.kernel_modes
@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_of_alternating_compressions_are_opened(tmp_path: Path, magic: int) -> None:
    log = tmp_path / f"{0:020d}.log"
    names = ("lz4", "gzip", "none", "gzip", "snappy", "lz4")
    data = b""
    for i, name in enumerate(names):
        rows = [{**row, "offset": n} for n, row in enumerate(ROWS, i * len(ROWS))]
        lw.write(rows, log, "kafka.log", magic=magic, **{"compression.type": name, "batch.size": 300})
        data += log.read_bytes()
        log.unlink()
    log.write_bytes(data)
    got = lw.read(log, columns="offset,key,value").to_pylist()
    assert [row["offset"] for row in got] == list(range(len(names) * len(ROWS)))
    assert [(row["key"], row["value"]) for row in got] == [(row["key"], row["value"]) for row in ROWS] * len(
        names
    )


def test_opened_wrappers_of_other_frames_are_not_taken() -> None:
    this, other = (wrapper(1, "snappy", 1, [text, text]) for text in (b"this text", b"that text"))
    assert len(this) == len(other)
    scanned = CODEC.scan(window(other), 0, context())
    mixed = replace(CODEC.scan(window(this), 0, context()), held=scanned.held)
    (part,) = CODEC.decode(window(this), mixed, "rows", ("value",), context())
    assert part.batch["value"].to_pylist() == [b"this text"] * 2


@pytest.mark.kernel_modes
def test_wrappers_that_cannot_be_opened_are_faults_among_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    good = [wrapper(2 * i + 1, "lz4", 1, [b"one", b"two"]) for i in range(4)]
    no_value = MESSAGE.pack({"offset": 3, "magic": 1, "attributes": 2, "timestamp": T, "value": None})
    nothing = MESSAGE.pack(
        {"offset": 5, "magic": 1, "attributes": 2, "timestamp": T, "value": compress("snappy", b"")}
    )
    data = good[0] + no_value + nothing + good[3]
    for below in (None, 0):
        monkeypatch.setattr("logwright.codec.kernels.kernel._INTERPRET_BELOW", below)
        log = DecodedLog(data)
        assert log.offsets == [0, 1, 6, 7]
        assert [fault.detail for fault in log.faults] == [
            "the wrapper has no value",
            "the wrapper has no complete message",
        ]


def test_many_wrappers_come_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "PORTION", 1000)
    data = b"".join(wrapper(i, "gzip", 1, [bytes(400)]) for i in range(7))
    scanned = CODEC.scan(window(data), 0, context())
    assert scanned.held is None
    assert scanned.header["records_count"].tolist() == [1] * 7
    parts = list(CODEC.decode(window(data), scanned, "rows", ("offset",), context()))
    assert sum(part.batch.num_rows for part in parts) == 7
    assert max(part.batch.num_rows for part in parts) == 3
