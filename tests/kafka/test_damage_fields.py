"""Editing fields of batches and entries by name: every field, in every compression, with and without reseal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from kafka_golden import CASES

import logwright as lw
from logwright.codec import address, registry
from logwright.codec.describe import Flags, Int, Type, Varint
from logwright.codec.fault import UsageError
from logwright.codec.kafka.formats.log.layout import COMPRESSION_NAMES, HEAD_SIZE, RECORD_BATCH
from logwright.codec.kernels.compress import decompress
from logwright.codec.option import Options
from logwright.codec.window import Window

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LOG = registry.get("kafka.log")


@pytest.fixture(scope="module", params=CODECS)
def batch(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A batch of three records with headers."""
    path = tmp_path_factory.mktemp("batch") / "orders-0"
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.table(
        {
            "key": pa.array([b"a", None, b"c"], pa.binary()),
            "value": pa.array([b"one" * 20, b"two" * 20, None], pa.binary()),
            "headers": pa.array([[], [{"key": "h", "value": b"x"}, {"key": "i", "value": None}], []], header),
            "timestamp": pa.array([5, 6, 7], pa.timestamp("ms", "UTC")),
        }
    )
    lw.write(rows, path, "kafka.partition", compression_type=request.param)
    return (path / f"{0:020}.log").read_bytes()


def edit(frame: bytes, path: address.Path, change: address.Change, *, reseal: bool = False) -> bytes:
    return LOG.edit(frame, path, change, reseal=reseal)


def to(value: Any) -> address.Change:
    return lambda old, kind: kind.pack(value, {})


def value_of(frame: bytes, path: address.Path) -> Any:
    """Return the value at a path, by an edit that changes nothing."""
    seen: list[Any] = []

    def look(old: bytes, kind: Type) -> bytes:
        seen.append(kind.unpack(old, 0, len(old), {})[0])
        return old

    edit(frame, path, look)
    return seen[0]


def problems_of(frame: bytes) -> list[str]:
    return [name for name, _, _ in RECORD_BATCH.check(frame, 0, len(frame))]


def lengths_agree(frame: bytes) -> bool:
    return bool(value_of(frame, ("crc",)) == crc32c(frame[RECORD_BATCH.offset("attributes") :]))


HEADER_FIELDS = [field.name for field in RECORD_BATCH.fields if field.name != "records"]


@pytest.mark.parametrize("name", HEADER_FIELDS)
def test_every_header_field_can_be_edited(batch: bytes, name: str) -> None:
    before = value_of(batch, (name,))
    changed = edit(batch, (name,), to(before + 1))
    low, size = RECORD_BATCH.offset(name), RECORD_BATCH[name].type.min_size
    assert len(changed) == len(batch)
    differ = {i for i, (a, b) in enumerate(zip(batch, changed, strict=True)) if a != b}
    assert differ
    assert differ <= set(range(low, low + size))
    assert value_of(changed, (name,)) == before + 1
    if name == "crc":
        with pytest.raises(UsageError, match="Leave out reseal"):
            edit(batch, (name,), to(before + 1), reseal=True)
        return
    sealed = edit(batch, (name,), to(before + 1), reseal=True)
    assert value_of(sealed, (name,)) == before + 1
    assert lengths_agree(sealed)
    if name != "batch_length":
        assert value_of(sealed, ("batch_length",)) == len(sealed) - RECORD_BATCH.offset(
            "partition_leader_epoch"
        )


RECORD_FIELDS: list[tuple[tuple[str | int, ...], Any]] = [
    (("records", 0, "key"), b"another key"),
    (("records", 0, "key"), None),
    (("records", 1, "value"), b""),
    (("records", 2, "timestamp_delta"), 1 << 40),
    (("records", 1, "offset_delta"), 70),
    (("records", 1, "attributes"), 9),
    (("records", 1, "headers", 0, "key"), "schlüssel".encode()),
    (("records", 1, "headers", -1, "value"), b"y" * 200),
]


@pytest.mark.parametrize("number", range(len(RECORD_FIELDS)))
def test_reseal_corrects_all_enclosing_lengths_and_checksums(batch: bytes, number: int) -> None:
    """All enclosing lengths and checksums are corrected, even if the size changes: the edited field is the only difference."""
    path, value = RECORD_FIELDS[number]
    sealed = edit(batch, path, to(value), reseal=True)
    window = Window(np.frombuffer(sealed, np.uint8).copy(), 0, len(sealed))
    frames = LOG.scan(window, 0, LOG.context("0.log", Options(LOG.options)))
    assert len(frames) == 1
    assert frames.damage is None
    assert not frames.faults
    assert problems_of(sealed) == []
    assert (
        records(sealed)
        == [
            *records(batch)[: path[1]],
            replaced(records(batch)[path[1]], path[2:], value),  # type: ignore[index]
            *records(batch)[path[1] + 1 :],  # type: ignore[operator]
        ]
    )


def records(frame: bytes) -> list[dict[str, Any]]:
    values, _ = RECORD_BATCH.unpack(frame)
    value = values["records"]
    if isinstance(value, bytes):
        from logwright.codec.describe import Repeated
        from logwright.codec.kafka.formats.log.layout import RECORD

        plain = decompress(COMPRESSION_NAMES[values["attributes"] & 7], value, 1 << 20).tobytes()
        value, stop = Repeated(RECORD).unpack(plain, 0, len(plain), {})
        assert stop == len(plain)
    return [{name: field for name, field in record.items() if name != "length"} for record in value]


def replaced(record: dict[str, Any], path: address.Path, value: Any) -> Any:
    if not path:
        return value
    if isinstance(record, list):
        out = list(record)
        out[path[0]] = replaced(out[path[0]], path[1:], value)  # type: ignore[index]
        return out
    return {**record, path[0]: replaced(record[path[0]], path[1:], value)}  # type: ignore[index]


def test_edited_lengths_and_counts_stay_wrong(batch: bytes) -> None:
    for path, value in (
        (("records", 0, "length"), 3),
        (("records", 0, "key", "length"), 100),
        (("records", 1, "headers", "count"), 7),
        (("records_count",), 5),
    ):
        sealed = edit(batch, path, to(value), reseal=True)
        window = Window(np.frombuffer(sealed, np.uint8).copy(), 0, len(sealed))
        context = LOG.context("0.log", Options(LOG.options))
        frames = LOG.scan(window, 0, context)
        assert len(frames) == 1  # The checksum is right.
        (decoded,) = LOG.decode(window, frames, "rows", ["offset"], context)
        assert decoded.batch.num_rows == 0
        assert len(decoded.faults) == 1, path


def test_without_reseal_the_rest_is_unchanged(batch: bytes) -> None:
    changed = edit(batch, ("records", 0, "value"), to(b"z"))
    assert changed[:HEAD_SIZE] == batch[:HEAD_SIZE]
    assert changed != batch


def test_flag_bits_have_names(batch: bytes) -> None:
    before = value_of(batch, ("attributes",))
    changed = edit(batch, ("attributes", "is_transactional"), to(1))
    assert value_of(changed, ("attributes",)) == before | 16
    assert value_of(changed, ("attributes", "compression")) == before & 7
    with pytest.raises(UsageError, match="Did you mean 'compression'"):
        edit(batch, ("attributes", "compresion"), to(1))
    with pytest.raises(ValueError, match="does not fit"):
        edit(batch, ("attributes", "compression"), to(8))
    # The highest bit of a signed number.
    kind = Flags(Int(1), (address.Bit("top", 7),))
    assert address._Bits(kind, kind["top"], 0).pack(1, {}) == b"\x80"
    assert address._Bits(kind, kind["top"], -128).pack(0, {}) == b"\0"
    assert address._Bits(kind, kind["top"], 0).label() == "1 bit of int8"


def test_complete_record_can_be_edited(batch: bytes) -> None:
    """If it is removed, lengths and checksum follow; the count is not changed and so is wrong."""
    sealed = edit(batch, ("records", 1), lambda old, kind: b"", reseal=True)
    assert lengths_agree(sealed)
    assert value_of(sealed, ("records_count",)) == 3
    report = edit(batch, (), lambda old, kind: old[:-1] + b"!", reseal=True)
    assert report[-1:] == b"!"
    assert lengths_agree(report)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("nope",), "no field 'nope'"),
        (("records", 9, "key"), "no item 9; the list has 3 items"),
        (("records", "key"), "expected the number of an item"),
        (("records", 0, "kee"), "Did you mean 'key'"),
        (("records", 0, "key", "size"), "no part named 'size'"),
        (("crc", 0), "no part named 0"),
    ],
)
def test_unknown_paths_are_refused(batch: bytes, path: address.Path, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        edit(batch, path, to(1))


def test_undecodable_bytes_are_refused(batch: bytes) -> None:
    with pytest.raises(UsageError, match="cannot be found in this frame"):
        edit(batch[:30], ("records_count",), to(1))
    with pytest.raises(UsageError, match="cannot be found"):
        edit(batch[:30], ("records", 0, "key"), to(1))
    # Fields after the edited one are not decoded. With an unreadable checksum after it, the edit omits it.
    assert edit(batch[:12], ("base_offset",), to(7), reseal=True)[:8] == (7).to_bytes(8)
    five = edit(batch, ("attributes", "compression"), to(5))
    with pytest.raises(UsageError, match="compression 5 is unknown"):
        edit(five, ("records", 0, "key"), to(b""))
    if value_of(batch, ("attributes",)) & 7:
        with pytest.raises(UsageError, match="do not decompress"):
            edit(
                batch[:HEAD_SIZE] + bytes(40),
                ("records", 0, "key"),
                to(b""),
            )


def test_length_that_does_not_fit_is_refused() -> None:
    from logwright.codec.describe import Bytes, Field, Struct

    struct = Struct("S", Field("length", Int(1), sizes=True), Field("body", Bytes("rest")))
    assert address.edit(struct, b"\x03abc", ("body",), to(b"z" * 100), reseal=True) == b"\x64" + b"z" * 100
    with pytest.raises(UsageError, match=r"body cannot be resealed: length: 200 does not fit int8"):
        address.edit(struct, b"\x03abc", ("body",), to(b"z" * 200), reseal=True)
    assert address.spell(()) == "the frame"


def test_fields_of_a_transaction_marker_are_edited() -> None:
    """Key and value of a control record have named fields."""
    data = (CASES["dmg_tbase"].partition / f"{23:020}.log").read_bytes()[1289:]
    assert value_of(data, ("records", 0, "key", "type")) == 0
    assert value_of(data, ("records", 0, "value", "coordinator_epoch")) == 2
    sealed = edit(data, ("records", -1, "key", "type"), to(1), reseal=True)
    assert value_of(sealed, ("records", 0, "key")) == b"\0\0\0\1"
    assert problems_of(sealed) == []
    none = edit(data, ("records", 0, "key"), to(None), reseal=True)
    with pytest.raises(UsageError, match="null"):
        edit(none, ("records", 0, "key", "type"), to(1))


FILES = ("kafka.index", "kafka.timeindex", "kafka.txnindex", "kafka.producer_snapshot")


def frames_of(codec: str) -> Iterator[bytes]:
    """Return a frame per entry, or the whole file."""
    suffix = {"kafka.producer_snapshot": "snapshot"}.get(codec, codec.removeprefix("kafka."))
    path = next(iter(sorted(CASES["dmg_tbase"].partition.glob(f"*1.{suffix}"))))
    data = path.read_bytes()
    known_codec = registry.get(codec)
    size = len(data) if suffix == "snapshot" else known_codec.structures[0].head_size
    yield data[:size]


@pytest.mark.parametrize("name", FILES)
def test_each_integer_of_a_derived_file_is_edited(name: str) -> None:
    codec = registry.get(name)
    (frame,) = frames_of(name)
    for field in codec.structures[0].fields:
        if not isinstance(field.type, Int | Varint):
            continue
        changed = codec.edit(frame, (field.name,), to(3), reseal=False)
        low, size = codec.structures[0].offset(field.name), field.type.min_size
        assert changed[low : low + size] == field.type.pack(3, {})
        assert changed[:low] + changed[low + size :] == frame[:low] + frame[low + size :]
    assert {known.name for known in codec.structures[0].fields} <= set(codec.field_names())


def test_reseal_corrects_the_checksum_of_a_snapshot() -> None:
    codec = registry.get("kafka.producer_snapshot")
    (frame,) = frames_of("kafka.producer_snapshot")
    sealed = codec.edit(frame, ("entries", 0, "producer_epoch"), to(77), reseal=True)
    assert codec.structures[0].check(sealed, 0, len(sealed)) == []
    assert codec.structures[0].unpack(sealed)[0]["entries"][0]["producer_epoch"] == 77
    unsealed = codec.edit(frame, ("entries", 0, "producer_epoch"), to(77), reseal=False)
    assert [problem[0] for problem in codec.structures[0].check(unsealed, 0, len(unsealed))] == ["crc"]


def test_text_file_has_no_fields() -> None:
    codec = registry.get("kafka.partition_metadata")
    assert codec.field_names() == []
    with pytest.raises(UsageError, match="has no named fields"):
        codec.edit(b"version: 0\n", ("version",), to(1), reseal=False)


def test_damage_command_accepts_record_header_and_entry(tmp_path: Path) -> None:
    """`record=`, `header=`, `entry=` in an operation; a field of the batch may be named beside a record."""
    base = CASES["dmg_tbase"].partition
    damaged = lw.damage(
        base,
        tmp_path / "out",
        [
            "set:file=last,frame=0,record=0,field=records_count,add=1",
            f"set:file={40:020}.snapshot,entry=0,field=producer_epoch,value=9,reseal",
            "set:file=first,frame=0,record=0,field=value,text=changed,reseal",
            "flip:file=first,frame=0,field=records[0].value,at=0",
            'insert:file=first,frame=0,record=0,field=value,at=end,text="!",reseal',
        ],
    )
    fields = [operation["found"]["field"] for operation in damaged.operations]
    assert fields == ["records_count", "entries[0].producer_epoch", *["records[0].value"] * 3]
    snapshot = lw.read(Path(damaged.path) / f"{40:020}.snapshot")
    assert snapshot["producer_epoch"][0].as_py() == 9
    first = min(Path(damaged.path).glob("*.log"))
    assert b"\x10bhanged!" in first.read_bytes()  # With its length, 8.
    assert lw.read(first, mode="DROPMALFORMED")["value"][0].as_py() == b"bhanged!"
    nothing = ["set:frame=0,record=0,field=key,null,reseal", "flip:frame=0,record=0,field=key,at=0"]
    with pytest.raises(UsageError, match="is null"):
        lw.damage(base, tmp_path / "more", nothing)


def test_damage_whose_start_cannot_be_simulated_is_written(tmp_path: Path) -> None:
    """An entry with a negative magic and the right checksum: what a broker makes of it is unknown."""
    source = CASES["v0_lz4"].partition
    lw.damage(source, out=tmp_path / "bad", op="set:frame=1,field=magic,add=-1,reseal")
    record = json.loads((tmp_path / "bad" / "damage.json").read_text())
    (system,) = record["verdict"]["system"]
    assert system["unclean"]["opens"] is None
    assert "cannot be simulated" in system["unclean"]["error"]
    assert not lw.verify(tmp_path / "bad" / source.name).ok
