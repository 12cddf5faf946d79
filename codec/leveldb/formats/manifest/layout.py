"""Version edits, the payload of a manifest's records: changes of the set of tables.

Source: `db/version_edit.cc` of LevelDB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from logwright.codec.describe import (
    UVARINT,
    UVARLONG,
    Content,
    DescriptionError,
    Field,
    Repeated,
    Struct,
    Switch,
)
from logwright.codec.describe import Bytes as BytesType
from logwright.codec.fault import UsageError
from logwright.codec.leveldb.formats.log.layout import is_write_batch
from logwright.codec.leveldb.keys import INTERNAL_KEY

LEVELS = 7
"""`config::kNumLevels`."""


class EditError(ValueError):
    """Bytes that are not a version edit. The text is that of LevelDB's status."""


class UnknownTagError(EditError):
    """An unknown field, written by another program."""


@dataclass(frozen=True, slots=True)
class EditField:
    """A field of an edit. `name` is its name in `VersionEdit`; numbers are unsigned."""

    name: str
    text: bytes | None = None
    level: int | None = None
    number: int | None = None
    size: int | None = None
    smallest: bytes | None = None
    """For a compaction pointer, the pointer."""
    largest: bytes | None = None


_SLICE = BytesType(UVARINT)
_KEY = Content(INTERNAL_KEY)

TAGS = {
    1: "comparator",
    2: "log_number",
    3: "next_file_number",
    4: "last_sequence",
    5: "compact_pointer",
    6: "deleted_file",
    7: "new_file",
    9: "prev_log_number",
}
NUMBERS = {name: tag for tag, name in TAGS.items()}
BODIES: dict[str, Struct] = {
    "comparator": Struct(
        "Comparator", Field("text", BytesType(UVARINT, text=True), "name of the comparator")
    ),
    "log_number": Struct(
        "LogNumber", Field("number", UVARLONG, "the contents of logs with smaller numbers are in tables")
    ),
    "prev_log_number": Struct(
        "PrevLogNumber", Field("number", UVARLONG, "0, except in files of old versions")
    ),
    "next_file_number": Struct("NextFileNumber", Field("number", UVARLONG, "the next number for a file")),
    "last_sequence": Struct("LastSequence", Field("number", UVARLONG, "the last sequence number used")),
    "compact_pointer": Struct(
        "CompactPointer",
        Field("level", UVARINT, "level"),
        Field("smallest", _SLICE, "internal key at which its next compaction starts", holds=_KEY),
    ),
    "deleted_file": Struct(
        "DeletedFile", Field("level", UVARINT, "level"), Field("number", UVARLONG, "number of the file")
    ),
    "new_file": Struct(
        "NewFile",
        Field("level", UVARINT, "level"),
        Field("number", UVARLONG, "number of the file"),
        Field("size", UVARLONG, "bytes of the file"),
        Field("smallest", _SLICE, "first internal key", holds=_KEY),
        Field("largest", _SLICE, "last internal key", holds=_KEY),
    ),
}
_WORDS = {
    "comparator": "comparator name",
    "log_number": "log number",
    "prev_log_number": "previous log number",
    "next_file_number": "next file number",
    "last_sequence": "last sequence number",
    "compact_pointer": "compaction pointer",
    "deleted_file": "deleted file",
    "new_file": "new-file entry",
}


def _plan(field: Field) -> tuple[str, bool, int]:
    data = isinstance(field.type, BytesType)
    return field.name, data, LEVELS if field.name == "level" else 1 << (32 if data else 63)


_PLAN = {name: [_plan(field) for field in body.fields] for name, body in BODIES.items()}
"""For each field of a body: its name, whether it is bytes with their length, and the limit from which the fast parser declines."""


FIELD = Struct(
    "EditField",
    Field(
        "tag",
        UVARINT,
        "the field: " + ", ".join(f"{n} {t}" for n, t in TAGS.items()),
        says=lambda tag, scope: TAGS.get(tag, ""),
    ),
    Field(
        "body",
        Switch("tag", {NUMBERS[name]: body for name, body in BODIES.items()}),
        "the value of the field",
    ),
    source="VersionEdit::EncodeTo",
)
VERSION_EDIT = Struct(
    "VersionEdit",
    Field("fields", Repeated(FIELD), "up to the end of the record", rows=True),
    doc="The payload of a manifest record.",
    source="VersionEdit",
)


def parse(payload: bytes, *, empty_keys: bool = False) -> list[EditField]:
    """Return the fields of an edit, as `VersionEdit::DecodeFrom` reads them.

    With `empty_keys` internal keys may be empty, as up to LevelDB 1.22.

    Raises `EditError`.
    """
    quick = _parse_regular(payload)
    return _parse_described(payload, empty_keys) if quick is None else quick


def _parse_regular(payload: bytes) -> list[EditField] | None:
    """Parse a regular edit in a tenth of the time, since a manifest may have very many edits. Returns None for any irregularity."""
    fields = []
    at, end = 0, len(payload)
    try:
        while at < end:
            name = TAGS[payload[at]]
            at += 1
            values: dict[str, Any] = {}
            for field, is_slice, largest in _PLAN[name]:
                number = shift = 0
                while (byte := payload[at]) >= 0x80:
                    number |= (byte & 0x7F) << shift
                    shift += 7
                    at += 1
                number |= byte << shift
                at += 1
                if number >= largest or (is_slice and not number):
                    return None
                if is_slice:
                    values[field] = payload[at : at + number]
                    at += number
                else:
                    values[field] = number
            if at > end:
                return None
            fields.append(EditField(name, **values))
    except (IndexError, KeyError):
        return None
    return fields


def _parse_described(payload: bytes, empty_keys: bool = False) -> list[EditField]:
    """Parse by the description, with LevelDB's messages for invalid edits."""
    fields = []
    at, end = 0, len(payload)
    while at < end:
        try:
            tag, at = UVARINT.unpack(payload, at, end, {})
        except DescriptionError:
            raise EditError("VersionEdit: invalid tag") from None
        name = TAGS.get(tag)
        if name is None:
            # No program writes batches into its manifest: it is a log under a wrong name.
            error = EditError if is_write_batch(payload) else UnknownTagError
            raise error("VersionEdit: unknown tag")
        try:
            values, at = BODIES[name].unpack(payload, at, end)
        except DescriptionError:
            raise EditError(f"VersionEdit: {_WORDS[name]}") from None
        empty = b"" in (values.get("smallest"), values.get("largest"))
        if values.get("level", 0) >= LEVELS or (empty and not empty_keys):
            raise EditError(f"VersionEdit: {_WORDS[name]}")
        fields.append(EditField(name, **values))
    return fields


def form(fields: list[EditField], *, empty_keys: bool = False) -> bytes:
    """Return the bytes of an edit. Raises `UsageError` for an invalid field. `empty_keys` as in `parse`."""
    out = bytearray()
    for field in fields:
        if field.name not in NUMBERS:
            raise UsageError(f"unknown field {field.name!r}; expected one of {', '.join(BODIES)}")
        body = BODIES[field.name]
        values = {body_field.name: getattr(field, body_field.name) for body_field in body.fields}
        missing = [name for name, value in values.items() if value is None]
        if missing:
            raise UsageError(f"a field {field.name!r} without {missing[0]!r}")
        level = values.get("level", 0)
        if not 0 <= level < LEVELS:
            raise UsageError(f"a field {field.name!r} of level {level}: levels are 0 to {LEVELS - 1}")
        if b"" in (values.get("smallest"), values.get("largest")) and not empty_keys:
            raise UsageError(f"a field {field.name!r} with an empty internal key")
        out += UVARINT.pack(NUMBERS[field.name], {}) + body.pack(values)
    return bytes(out)
