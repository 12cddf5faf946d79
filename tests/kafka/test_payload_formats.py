"""Keys and values in JSON, Avro and Protobuf (options `key.format` and `value.format`). Payloads are JSON text for the user."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec.fault import DamageError, NotFoundError, UsageError
from logwright.codec.kafka.formats import payload
from logwright.codec.kafka.formats.payload import FORMATS, PayloadError, Schema, format_of
from logwright.codec.kafka.formats.payload_types import shaped, unshaped
from logwright.codec.option import NamedFile

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
        {"name": "paid", "type": "boolean"},
        {"name": "price", "type": "double"},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "items", "type": {"type": "array", "items": "string"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
    ],
}
AVRO_ORDER = {
    "id": 5, "note": {"string": "ü"}, "raw": "\u00ff", "paid": True, "price": 1.5, "time": 1700000000000, "items": ["a", ""],
    "tags": {"x": -1},
}  # fmt: skip
PROTOBUF_ORDER = {"id": "5", "note_text": "ü", "lines": [{"name": "a"}]}


def _schema(folder: Path, name: str) -> Path | None:
    """Write the schema of a format, if it has one. Skip the test without the package that the format needs."""
    if name.endswith("avro"):
        pytest.importorskip("fastavro")
        path = folder / "order.avsc"
        path.write_text(json.dumps(ORDER))
        return path
    if name.endswith("protobuf"):
        descriptors = pytest.importorskip("google.protobuf.descriptor_pb2")
        file = descriptors.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
        order = file.message_type.add(name="Order")
        order.field.add(name="id", number=1, type=3, label=1)
        order.field.add(name="note_text", number=2, type=9, label=1)
        order.field.add(name="lines", number=3, type=11, label=3, type_name=".shop.Order.Line")
        order.nested_type.add(name="Line").field.add(name="name", number=1, type=9, label=1)
        path = folder / "order.desc"
        path.write_bytes(descriptors.FileDescriptorSet(file=[file]).SerializeToString())
        return path
    return None


def _options(folder: Path, name: str, side: str = "value") -> dict[str, Any]:
    schema = _schema(folder, name)
    options: dict[str, Any] = {f"{side}_format": name}
    if schema is not None:
        options[f"{side}_schema"] = str(schema)
    if name.startswith("confluent"):
        options[f"{side}_schema_id"] = 258
    return options


VALUES = {"json": {"a": [1, None]}, "avro": AVRO_ORDER, "protobuf": PROTOBUF_ORDER}
STORED = {
    "json": json.dumps(VALUES["json"]).encode(),
    "avro": bytes.fromhex("0a0204c3bc02ff01000000000000f83f80a0abfef96204026100000202780100"),
    "protobuf": b"\x08\x05\x12\x02\xc3\xbc\x1a\x03\x0a\x01a",
}
WIRE = {"json": b"\0\0\0\1\2", "avro": b"\0\0\0\1\2", "protobuf": b"\0\0\0\1\2\0"}


def _case(name: str) -> tuple[dict[str, Any], bytes]:
    inner = name.removeprefix("confluent-")
    value: Any = VALUES[inner]
    return value, (WIRE[inner] if name != inner else b"") + STORED[inner]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("side", ["key", "value"])
def test_payloads_are_written_from_json_and_read_as_json(name: str, side: str, tmp_path: Path) -> None:
    value, stored = _case(name)
    options, path = _options(tmp_path, name, side), tmp_path / "orders-0"
    rows = [{side: json.dumps(value)}, {side: None}]
    lw.write(rows, path, "kafka.partition", **options)
    assert lw.read(path)[side].to_pylist() == [stored, None]
    text, null = lw.read(path, **options)[side].to_pylist()
    assert json.loads(text) == value
    assert null is None


def test_a_single_file_is_read_and_written_in_a_format(tmp_path: Path) -> None:
    options = _options(tmp_path, "avro")
    path = tmp_path / f"{0:020}.log"
    lw.write([{"value": json.dumps(AVRO_ORDER)}], path, "kafka.log", **options)
    assert lw.read(path)["value"].to_pylist() == [STORED["avro"]]
    rows = lw.read(path, columns="*", **options)
    frames = lw.read(path, view="frames", columns="*")
    copy = tmp_path / "copy.log"
    lw.write(rows, copy, "kafka.log", frames=frames, **options)
    assert copy.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", FORMATS)
def test_payload_that_cannot_be_decoded_is_a_fault_of_its_row(name: str, tmp_path: Path) -> None:
    value, stored = _case(name)
    options, path = _options(tmp_path, name), tmp_path / "orders-0"
    lw.write([{"value": stored}, {"value": stored + b"\xff"}, {"value": stored}], path, "kafka.partition")
    with pytest.raises(DamageError, match="record at offset 1: value: "):
        lw.read(path, **options)
    with pytest.warns(lw.DamageWarning):
        rows = lw.read(path, mode="DROPMALFORMED", **options)
    assert rows["offset"].to_pylist() == [0, 2]
    with pytest.warns(lw.DamageWarning):
        rows = lw.read(path, mode="PERMISSIVE", **options)
    assert rows["offset"].to_pylist() == [0, None, 2]
    assert stored + b"\xff" in rows["_corrupt_record"][1].as_py()
    assert json.loads(rows["value"][2].as_py()) == value
    # A column that is not read is not decoded.
    assert lw.read(path, columns="offset", **options).num_rows == 3


@pytest.mark.parametrize("name", ["avro", "confluent-avro", "confluent-protobuf", "json"])
def test_every_prefix_of_a_payload_is_refused(name: str, tmp_path: Path) -> None:
    _, stored = _case(name)
    path = _schema(tmp_path, name)
    file = None if path is None else NamedFile(str(path), path.read_bytes())
    format = format_of(name, Schema("value", file, id=258 if name.startswith("confluent") else None))
    shorter = range(len(stored) - (len(STORED["protobuf"]) if name.endswith("protobuf") else 0))
    for end in shorter:
        with pytest.raises(PayloadError):
            format.decode(stored[:end])


@pytest.mark.parametrize("name", ["avro", "protobuf"])
def test_random_bytes_are_decoded_or_refused(name: str, tmp_path: Path) -> None:
    path = _schema(tmp_path, name)
    assert path is not None
    format = format_of(name, Schema("value", NamedFile(str(path), path.read_bytes())))
    random = Random(1)
    for _ in range(300):
        data = bytearray(STORED[name])
        data[random.randrange(len(data))] = random.randrange(256)
        try:
            json.loads(format.decode(bytes(data)))
        except PayloadError:
            continue


def test_recursive_avro_values_cannot_exhaust_the_stack() -> None:
    pytest.importorskip("fastavro")
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    format = format_of("avro", Schema("value", NamedFile("node.avsc", json.dumps(node).encode())))
    assert json.loads(format.decode(b"\2\0")) == {"next": {"Node": {"next": None}}}
    with pytest.raises(PayloadError, match="RecursionError"):
        format.decode(b"\2" * 1_000_000 + b"\0")


def test_wire_format_of_another_schema_is_refused(tmp_path: Path) -> None:
    options, path = _options(tmp_path, "confluent-json"), tmp_path / "orders-0"
    lw.write([{"value": b"[]"}], path, "kafka.partition", **options)
    with pytest.raises(DamageError, match="its schema id is 258, expected 3"):
        lw.read(path, **{**options, "value_schema_id": 3})
    del options["value_schema_id"]
    assert lw.read(path, **options)["value"].to_pylist() == [b"[]"]
    with pytest.raises(UsageError, match=r"value\.schema\.id is missing"):
        lw.write([{"value": b"[]"}], tmp_path / "other-0", "kafka.partition", **options)


def test_message_of_a_protobuf_file_is_chosen_by_name(tmp_path: Path) -> None:
    options, path = _options(tmp_path, "confluent-protobuf"), tmp_path / "orders-0"
    options["value_message"] = "shop.Order.Line"
    lw.write([{"value": '{"name": "a"}'}], path, "kafka.partition", **options)
    # The path of the message: 2 indexes, 0 and 0.
    assert lw.read(path)["value"].to_pylist() == [b"\0\0\0\1\2\4\0\0\x0a\1a"]
    assert json.loads(lw.read(path, **options)["value"][0].as_py()) == {"name": "a"}
    with pytest.raises(DamageError, match="a different message type of the Protobuf file"):
        lw.read(path, **{**options, "value_message": "shop.Order"})
    with pytest.raises(UsageError, match=r"there is no message 'shop\.Nothing'"):
        lw.read(path, **{**options, "value_message": "shop.Nothing"})


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("json", "{", "row 1: value: not JSON"),
        ("json", "NaN", "NaN is not JSON"),
        ("avro", '{"id": 1}', "row 1: value: cannot be encoded as Avro"),
        ("protobuf", '{"other": 1}', "row 1: value: cannot be encoded as Protobuf"),
    ],
)
def test_rows_that_do_not_fit_the_format_are_refused(
    name: str, text: str, reason: str, tmp_path: Path
) -> None:
    value, _ = _case(name)
    with pytest.raises(UsageError, match=reason):
        lw.write(
            [{"value": json.dumps(value)}, {"value": text}],
            tmp_path / "orders-0",
            "kafka.partition",
            **_options(tmp_path, name),
        )


def test_options_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    lw.write([{"value": b"{}"}], path, "kafka.partition")
    (tmp_path / "bad").write_bytes(b"{")
    for options, reason in (
        ({"value_format": "xml"}, "'xml' is not one of json, avro, protobuf"),
        ({"value_format": "avro"}, "option value.format needs value.schema"),
        ({"value_schema": str(tmp_path / "bad")}, "value.schema has no effect without value.format"),
        ({"value_message": "Order"}, "value.message has no effect without value.format"),
        ({"value_format": "json", "value_schema": str(tmp_path / "bad")}, "no effect with value.format=json"),
        ({"value_format": "json", "view": "batches"}, "does not apply to view batches"),
    ):
        with pytest.raises(UsageError, match=reason.replace(".", r"\.")):
            lw.read(path, **options)
    with pytest.raises(NotFoundError, match="missing"):
        lw.read(path, value_format="avro", value_schema=str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("avro", b"{"),
        ("avro", b'{"type": "record"}'),
        ("avro", b'{"type": "array", "items": "null"}'),
        ("avro", b'{"type": "array", "items": {"type": "record", "name": "R", "fields": []}}'),
        ("avro", b'{"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}'),
        ("protobuf", b"\xff"),
        ("protobuf", b""),
    ],
)
def test_files_that_are_no_schemas_are_refused(name: str, data: bytes, tmp_path: Path) -> None:
    pytest.importorskip("fastavro" if name == "avro" else "google.protobuf")
    (tmp_path / "schema").write_bytes(data)
    path = tmp_path / "orders-0"
    lw.write([{"value": b"x"}], path, "kafka.partition")
    with pytest.raises(UsageError, match="schema"):
        lw.read(path, value_format=name, value_schema=str(tmp_path / "schema"))


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(payload.importlib.import_module.__globals__["sys"].modules, "fastavro", None)
    with pytest.raises(UsageError, match=r"needs the package fastavro.*logwright\[payloads\]"):
        format_of("avro", Schema("value", NamedFile("x", b'"string"')))


def test_markers_are_not_decoded(tmp_path: Path) -> None:
    lw.generate("kafka.partition", tmp_path / "t-0", rows=20, seed=1, recipe="transactions")
    log = lw.read(tmp_path / "t-0", view="log", columns="value,is_control")
    with pytest.warns(lw.DamageWarning):
        rows = lw.read(
            tmp_path / "t-0",
            view="log",
            columns="value,is_control",
            mode="DROPMALFORMED",
            value_format="json",
        )
    markers = log.filter(log["is_control"])
    assert len(markers)
    assert rows.filter(rows["is_control"]).equals(markers)


# Structs

AVRO_STRUCT = {
    "id": 5, "note": "ü", "raw": b"\xff", "paid": True, "price": 1.5,
    "time": datetime.fromtimestamp(1700000000, UTC), "items": ["a", ""], "tags": [("x", -1)],
}  # fmt: skip
STRUCTS: dict[str, Any] = {
    "avro": AVRO_STRUCT,
    "protobuf": {"id": 5, "note_text": "ü", "lines": [{"name": "a"}]},
}


@pytest.mark.parametrize("name", ["avro", "confluent-avro", "protobuf", "confluent-protobuf"])
@pytest.mark.parametrize("side", ["key", "value"])
def test_payloads_are_read_and_written_as_structs(name: str, side: str, tmp_path: Path) -> None:
    _, stored = _case(name)
    options, path = {**_options(tmp_path, name, side), f"{side}_as": "struct"}, tmp_path / "orders-0"
    lw.write([{side: stored}, {side: None}], path, "kafka.partition")
    rows = lw.read(path, **options)
    assert rows[side].to_pylist() == [STRUCTS[name.removeprefix("confluent-")], None]
    lw.write(rows, tmp_path / "copy-0", "kafka.partition", **options)
    assert lw.read(tmp_path / "copy-0")[side].to_pylist() == [stored, None]


@pytest.mark.parametrize("name", ["avro", "confluent-protobuf"])
def test_payload_that_is_no_struct_is_a_fault_of_its_row(name: str, tmp_path: Path) -> None:
    _, stored = _case(name)
    options, path = {**_options(tmp_path, name), "value_as": "struct"}, tmp_path / "orders-0"
    lw.write([{"value": stored}, {"value": stored + b"\xff"}, {"value": stored}], path, "kafka.partition")
    with pytest.raises(DamageError, match="record at offset 1: value: "):
        lw.read(path, **options)
    with pytest.warns(lw.DamageWarning):
        rows = lw.read(path, mode="PERMISSIVE", **options)
    assert rows["offset"].to_pylist() == [0, None, 2]
    assert rows["value"].to_pylist() == [
        STRUCTS[name.removeprefix("confluent-")],
        None,
        rows["value"][0].as_py(),
    ]


def _record(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{i}", "type": each} for i, each in enumerate(types)]
    return {"type": "record", "name": "R", "fields": fields}


def _avro(schema: Any) -> payload.Format:
    pytest.importorskip("fastavro")
    return format_of("avro", Schema("value", NamedFile("x", json.dumps(schema).encode())))


def test_avro_types_have_their_arrow_types() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    cases: list[tuple[Any, pa.DataType, Any]] = [
        ({"type": "int", "logicalType": "date"}, pa.date32(), date(2020, 2, 29)),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC"), datetime(2020, 1, 1, 0, 0, 0, 7, UTC)),
        (decimal, pa.decimal128(6, 2), Decimal("-1234.56")),
        (["null", {**decimal, "type": "fixed", "name": "F", "size": 4}], pa.decimal128(6, 2), Decimal("0.01")),
        ({"type": "long", "logicalType": "time-micros"}, pa.int64(), 86_399_999_999),
        ({"type": "string", "logicalType": "uuid"}, pa.string(), "not checked"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), "B"),
        ({"type": "fixed", "name": "G", "size": 2}, pa.binary(), b"ab"),
        ({"type": "map", "values": {"type": "array", "items": "float"}}, pa.map_(pa.string(), pa.list_(pa.float32())), {"a": [0.5]}),
        ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.int32()), [1, None]),
        (["null", "string"], pa.string(), None),
    ]  # fmt: skip
    format = _avro(_record(*(schema for schema, _, _ in cases)))
    kind = format.type()
    assert [field.type for field in kind] == [expected for _, expected, _ in cases]
    value = {f"f{i}": each for i, (_, _, each) in enumerate(cases)}
    (read,) = pa.array([shaped(format.decode_value(format.encode_value(value)), kind)], kind).to_pylist()
    assert unshaped(read, kind) == value


def test_protobuf_types_have_their_arrow_types() -> None:
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="all.proto", syntax="proto3")
    message = file.message_type.add(name="All")
    numbers = {
        "i32": 5,
        "i64": 3,
        "u32": 13,
        "u64": 4,
        "double": 1,
        "float": 2,
        "bool": 8,
        "text": 9,
        "bytes": 12,
    }
    for number, (name, kind) in enumerate(numbers.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=1)
    message.field.add(name="color", number=20, type=14, label=1, type_name=".Color")
    message.field.add(name="part", number=21, type=11, label=1, type_name=".Part")
    message.field.add(name="parts", number=22, type=11, label=3, type_name=".All.PartsEntry")
    entry = message.nested_type.add(name="PartsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, label=1, type_name=".Part")
    message.field.add(name="counts", number=23, type=11, label=3, type_name=".All.CountsEntry")
    entry = message.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=3, label=1)
    file.message_type.add(name="Part").field.add(name="sizes", number=1, type=5, label=3)
    color = file.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="BLUE", number=1)
    data = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    format = format_of("protobuf", Schema("value", NamedFile("x", data)))
    part = pa.struct([("sizes", pa.list_(pa.int32()))])
    kind = format.type()
    assert [field.type for field in kind] == [
        pa.int32(), pa.int64(), pa.int64(), pa.decimal128(20, 0), pa.float64(), pa.float32(), pa.bool_(), pa.string(), pa.binary(),
        pa.string(), part, pa.map_(pa.string(), part), pa.map_(pa.string(), pa.int64()),
    ]  # fmt: skip
    value = {
        "i32": -1, "i64": -(1 << 63), "u32": (1 << 32) - 1, "u64": Decimal((1 << 64) - 1), "double": 0.1, "float": 0.5, "bool": True,
        "text": "ü", "bytes": b"\xff", "color": "BLUE", "part": {"sizes": [1, 2]}, "parts": {"a": {"sizes": []}},
        "counts": {"b": 1 << 40},
    }  # fmt: skip
    absent = {**dict.fromkeys(("i32", "i64", "u32", "u64", "double", "float"), 0), "bool": False, "text": "", "bytes": b"",
              "color": "RED", "part": None, "parts": {}, "counts": {}}  # fmt: skip
    for each in (value, absent, {**value, "color": "7"}):
        stored = format.encode_value(each)
        (read,) = pa.array([shaped(format.decode_value(stored), kind)], kind).to_pylist()
        assert unshaped(read, kind) == each


def test_schemas_without_a_struct_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    path = tmp_path / "orders-0"
    lw.write([{"value": b"{}"}], path, "kafka.partition")
    recursive = _record(["null", "R"])
    for schema, reason in (
        ("string", "it is not a record"),
        (_record(["int", "string"]), "it has a union of several types"),
        (recursive, "R contains itself"),
        (
            _record({"type": "bytes", "logicalType": "decimal", "precision": 80}),
            "it has a decimal of 80 digits",
        ),
    ):
        (tmp_path / "schema").write_text(json.dumps(schema))
        with pytest.raises(UsageError, match=f"value.as=struct is not possible.*{reason}"):
            lw.read(path, value_format="avro", value_schema=str(tmp_path / "schema"), value_as="struct")
    with pytest.raises(UsageError, match="JSON has no schema"):
        lw.read(path, value_format="json", value_as="struct")
    with pytest.raises(UsageError, match=r"value\.as has no effect without value\.format"):
        lw.read(path, value_as="struct")


@pytest.mark.parametrize("name", ["avro", "protobuf"])
def test_structs_with_other_fields_are_refused(name: str, tmp_path: Path) -> None:
    options, path = _options(tmp_path, name), tmp_path / "orders-0"
    lw.write([{"value": _case(name)[1]}], path, "kafka.partition")
    structs = lw.read(path, value_as="struct", **options)["value"].combine_chunks()
    wider = pa.StructArray.from_arrays(
        [*structs.flatten(), pa.array([1])], [*(field.name for field in structs.type), "other"]
    )
    with pytest.raises(UsageError, match=r"row 0: value: cannot be encoded.*other"):
        lw.write(pa.table({"value": wider}), tmp_path / "copy-0", "kafka.partition", **options)


def test_values_that_exceed_their_type_are_faults() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}
    format = _avro(_record(decimal, {"type": "long", "logicalType": "timestamp-millis"}))
    wide, late = b"\x04\x7f\xff\x00", b"\x02\x01" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    column = pa.array([b"\x02\x01\x00", wide, late])
    values, bad = payload.decoded(format, format.type(), column, pa.array([False] * 3))
    assert values.is_null().to_pylist() == [False, True, True]
    assert sorted(bad) == [1, 2]


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("json", "schema_id", 5), ("json", "message", "X"), ("avro", "schema_id", 5), ("protobuf", "schema_id", 5),
        ("confluent-avro", "message", "X"),
    ],
)  # fmt: skip
def test_options_that_a_format_does_not_use_are_refused(
    name: str, option: str, value: Any, tmp_path: Path
) -> None:
    options = {**_options(tmp_path, name), f"value_{option}": value}
    with pytest.raises(
        UsageError, match=rf"value\.{option.replace('_', '.')} has no effect with value\.format={name}"
    ):
        lw.write([{"value": b"{}"}], tmp_path / "orders-0", "kafka.partition", **options)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": 1.5}, "Order.id is <1.5>"),
        ({"id": True}, "Order.id is <True>"),
        ({"tags": {"x": 1 << 40}}, "Order.tags is <1099511627776>"),
        ({"other": 1}, "the schema has no field 'other'"),
        ({"note": {"string": "x", "long": 1}}, ""),
    ],
)
def test_json_values_that_avro_would_change_are_refused(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    text = json.dumps(AVRO_ORDER | change)
    with pytest.raises(UsageError, match=f"row 0: value: cannot be encoded as Avro: .*{reason}"):
        lw.write([{"value": text}], tmp_path / "orders-0", "kafka.partition", **_options(tmp_path, "avro"))


@pytest.mark.parametrize("name", ["avro", "confluent-protobuf"])
def test_structs_are_written_from_dicts_and_json_lines(name: str, tmp_path: Path) -> None:
    options = {**_options(tmp_path, name), "value_as": "struct"}
    value = STRUCTS[name.removeprefix("confluent-")]
    lw.write([{"value": value}], tmp_path / "orders-0", "kafka.partition", **options)
    assert lw.read(tmp_path / "orders-0")["value"].to_pylist() == [_case(name)[1]]
    lw.convert(tmp_path / "orders-0", tmp_path / "rows.jsonl", **options)
    lw.convert(tmp_path / "rows.jsonl", tmp_path / "copy-0", "kafka.partition", **options)
    assert lw.diff(tmp_path / "orders-0", tmp_path / "copy-0", columns=["value"]).equal
    assert lw.diff(tmp_path / "orders-0", tmp_path / "copy-0", columns=["value"], **options).equal


def test_dates_decimals_and_microseconds_survive_json_lines(tmp_path: Path) -> None:
    pytest.importorskip("fastavro")
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    times = [{"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("micros", "millis")]
    schema = _record(
        {"type": "int", "logicalType": "date"}, decimal, *times, {"type": "map", "values": "bytes"}
    )
    (tmp_path / "r.avsc").write_text(json.dumps(schema))
    options = {"value_format": "avro", "value_schema": str(tmp_path / "r.avsc"), "value_as": "struct"}
    when = datetime(2020, 1, 1, 0, 0, 0, 7, UTC)
    value = {
        "f0": date(2020, 2, 29),
        "f1": Decimal("-12.50"),
        "f2": when,
        "f3": 1700000000123,
        "f4": {"x": b"\xff"},
    }
    lw.write([{"value": value}], tmp_path / "r-0", "kafka.partition", **options)
    read = lw.read(tmp_path / "r-0", **options)["value"].to_pylist()
    assert read == [{**value, "f3": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC), "f4": [("x", b"\xff")]}]
    lw.convert(tmp_path / "r-0", tmp_path / "rows.jsonl", **options)
    lw.convert(tmp_path / "rows.jsonl", tmp_path / "copy-0", "kafka.partition", **options)
    assert lw.diff(tmp_path / "r-0", tmp_path / "copy-0", columns=["value"]).equal


def test_a_log_directory_is_written_in_a_format(tmp_path: Path) -> None:
    text, stored = _case("confluent-avro")
    row = {"topic": "orders", "partition": 0, "value": json.dumps(text)}
    lw.write([row], tmp_path / "logs", "kafka.logdir", **_options(tmp_path, "confluent-avro"))
    assert lw.read(tmp_path / "logs")["value"].to_pylist() == [stored]
