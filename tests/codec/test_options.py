"""User input: names of options, columns, codecs and layouts, and option values as text."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import logwright as lw
from logwright.codec import registry
from logwright.codec.fault import UsageError
from logwright.codec.option import (
    Option,
    Options,
    fold,
    parse_bool,
    parse_choice,
    parse_hexadecimal,
    parse_int,
    parse_text,
)
from logwright.codec.table import Column, Table

DECLARED = (
    Option("segment.bytes", 1 << 30, "Bytes of a segment.", low=14),
    Option("max.age", None, "In seconds.", low=0, high=60),
    Option("compression.type", "none", "How.", parse_choice, ("none", "zstd")),
    Option("preallocate", False, "Ahead of time.", parse_bool),
    Option("name", "", "Any.", parse_text),
)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0x1f", 31), ("1F", 31), ("b", 11), (" 0xB ", 11), ("31", 49), ("-0x2", -2), (31, 31), ("100000002", (1 << 32) + 2)],
)  # fmt: skip
def test_hexadecimal_numbers_are_accepted(text: Any, value: int) -> None:
    assert parse_hexadecimal(text) == value


@pytest.mark.parametrize("text", ["", "0x", "g", True, "1.5"])
def test_invalid_hexadecimal_numbers_are_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="like 0x1f"):
        parse_hexadecimal(text)


@pytest.mark.parametrize(
    "name", ["segment.bytes", "segmentBytes", "segment_bytes", "--segment-bytes", "SEGMENTBYTES"]
)
def test_option_spellings_are_equivalent(name: str) -> None:
    assert fold(name) == "segmentbytes"
    options = Options(DECLARED, {name: "64k"})
    assert options["segment.bytes"] == 65536
    assert options.given("segment.bytes")
    assert Options(DECLARED, {"Name": 5})["name"] == "5"
    assert not options.given("name")


def test_options_have_default_values() -> None:
    options = Options(DECLARED, {"max.age": None})
    assert options.to_dict() == {
        "segment.bytes": 1 << 30, "max.age": None, "compression.type": "none", "preallocate": False, "name": "",
    }  # fmt: skip
    assert not options.given("max.age"), "None is not said"
    assert pickle.loads(pickle.dumps(options)).to_dict() == options.to_dict()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12), (12, 12), ("1_000", 1000), ("-3", -3), ("0x1F", 31), (" 64K ", 65536), ("2kib", 2048),
        ("1MB", 1 << 20), ("1g", 1 << 30), ("5b", 5),
    ],
)  # fmt: skip
def test_number_may_have_a_sign_a_unit_or_a_hexadecimal_prefix(text: Any, number: int) -> None:
    assert parse_int(text) == number


@pytest.mark.parametrize("text", ["", "k", "1.5", "1kk", "1bk", "ten", True, False, "0xk", None])
def test_invalid_numbers_are_refused(text: Any) -> None:
    with pytest.raises(ValueError):
        parse_int(text)


@pytest.mark.parametrize("text", ["true", "True", "yes", "1", 1, True])
def test_true_values_are_accepted(text: Any) -> None:
    assert parse_bool(text) is True


@pytest.mark.parametrize("text", ["false", "NO", "0", 0, False])
def test_false_values_are_accepted(text: Any) -> None:
    assert parse_bool(text) is False


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "segment.bytes",
            "x",
            r"segment\.bytes: 'x' is not valid \(expected an integer, optionally with unit k, m or g\)",
        ),
        ("segment.bytes", True, r"segment\.bytes: True is not valid \(expected an integer\)"),
        ("segment.bytes", [1], r"is not valid"),
        ("segment.bytes", 13, r"13 is out of range; expected at least 14"),
        ("max.age", 61, r"61 is out of range; expected at least 0 and at most 60"),
        ("max.age", -1, r"-1 is out of range"),
        (
            "preallocate",
            "perhaps",
            r"'perhaps' is not valid \(expected true or false\)\. The option means: Ahead of time",
        ),
        ("compression.type", "LZMA", r"'LZMA' is not one of none, zstd"),
        ("name", b"x", r"b'x' is not valid \(expected text\)"),
        ("name", {"a": "b"}, r"is not valid \(expected text\)"),
        ("segment.byte", 1, r"unknown option 'segment\.byte'\. Did you mean 'segment\.bytes'"),
        (
            "q",
            1,
            r"unknown option 'q'\. Known options: compression\.type, max\.age, name, preallocate, segment\.bytes",
        ),
    ],
)
def test_unknown_and_invalid_options_are_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Options(DECLARED, {name: value})


def test_list_is_one_text_with_commas() -> None:
    """As a configuration file has several directories."""
    assert Options(DECLARED, {"name": ["/disk/1", Path("/disk/2")]})["name"] == "/disk/1,/disk/2"


def test_codec_without_options_refuses_any() -> None:
    with pytest.raises(UsageError, match="No options are known here"):
        Options((), {"q": 1})


# Columns

TABLE = Table(
    "rows", (Column("key", pa.binary(), ""), Column("value", pa.binary(), ""), Column("raw", pa.binary(), "", detail=True))
)  # fmt: skip


@pytest.mark.parametrize(
    ("expected", "columns"),
    [
        (None, ("key", "value")),
        ("*", ("key", "value", "raw")),
        ("value, key", ("value", "key")),
        (["raw", "key", "raw"], ("raw", "key")),
        (["value", "*"], ("value", "key", "raw")),
    ],
)
def test_columns_are_selected_by_name(expected: Any, columns: tuple[str, ...]) -> None:
    assert TABLE.select(expected) == columns
    assert TABLE.schema(columns).names == list(columns)


def test_unknown_columns_are_refused() -> None:
    with pytest.raises(UsageError, match=r"no column 'keys' in table 'rows'\. Did you mean 'key'"):
        TABLE.select("keys")
    with pytest.raises(UsageError, match="the text of columns names none"):
        TABLE.select(" , ")
    with pytest.raises(UsageError, match="Valid values: key, value, raw"):
        TABLE.select(["xyz"])
    with pytest.raises(KeyError):
        TABLE["xyz"]


# Codecs and layouts


def test_codecs_and_layouts_are_found_by_name() -> None:
    assert registry.get("kafka.log").name == "kafka.log"
    assert registry.get_layout("kafka.partition").name == "kafka.partition"
    assert registry.find("kafka.partition") is registry.get_layout("kafka.partition")
    assert {codec.name for codec in registry.codecs()}.isdisjoint(
        layout.name for layout in registry.layouts()
    )


@pytest.mark.parametrize(
    ("call", "name", "message"),
    [
        (registry.get, "kafka.partition", "kafka.partition is the layout of a directory; expected the codec of a file"),
        (registry.get_layout, "kafka.log", "kafka.log is the codec of a file; expected the layout of a directory"),
        (registry.get, "kafka.logs", "no codec or layout 'kafka.logs'. Did you mean 'kafka.log'"),
        (registry.get_layout, "kafka.partitions", "Did you mean 'kafka.partition'"),
        (registry.find, "x", "no codec or layout 'x'. Known: kafka.log"),
    ],
)  # fmt: skip
def test_unknown_codec_and_layout_names_are_refused(call: Any, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call(name)


def test_unrecognised_file_has_no_codec() -> None:
    assert registry.detect("holiday.jpg", b"\xff\xd8\xff\xe0") is None
    detected = registry.detect("00000000000000000000.timeindex", b"")
    assert detected is not None
    assert detected.name == "kafka.timeindex"


def test_zxids_given_as_text_are_hexadecimal() -> None:
    inputs = {"at_zxid": "100000002", "atZxid": "0x5", "path_prefix": "5", "segment.bytes": "100"}
    assert registry.numbers(inputs) == {**inputs, "at_zxid": 100000002}


@pytest.mark.parametrize(
    ("verb", "known", "others"),
    [
        (lw.read, {"value.format"}, {"recovery.point", "batch.size", "segment.bytes"}),
        (partial(lw.read, mode="AS_SYSTEM"), {"value.format", "recovery.point"}, {"batch.size"}),
        (lw.verify, {"recovery.point"}, {"value.format", "batch.size", "replicas"}),
        (lw.inspect, {"log.start.offset"}, {"value.format", "recovery.point"}),
        (partial(lw.repair, dry_run=True), {"recovery.point", "version"}, {"value.format", "batch.size"}),
        (partial(lw.edit, dry_run=True, drop="offset == 0"), {"compression.type"}, {"value.format", "segment.bytes"}),
        (lambda path, **options: lw.convert(path, path.parent / "c-0", **options), {"segment.bytes"}, {"value.format"}),
        (partial(lw.write, [{"value": "b"}], codec="kafka.partition", mode="append"), {"segment.bytes"}, {"recovery.point"}),
        (lambda path, **options: lw.write([], path, "zookeeper.snapshot", **options), {"digest.enabled"}, {"at_zxid"}),
    ],
)  # fmt: skip
def test_error_about_an_unknown_option_names_those_that_the_verb_takes(
    verb: Callable[..., Any], known: set[str], others: set[str], tmp_path: Path
) -> None:
    lw.write([{"value": "a"}], tmp_path / "a-0", "kafka.partition")
    with pytest.raises(lw.UsageError, match=r"unknown option 'zzz'\. Known options: ") as caught:
        verb(path=tmp_path / "a-0", zzz=1)
    assert known <= {*caught.value.known}
    assert not others & {*caught.value.known}
