"""The damage operations, given as text or mappings. They are checked before any file is read.

    flip:at=1234,bit=3                          flip a bit of a byte; or mask=0x81
    zero:at=100,length=64                       overwrite with zeros
    write:at=100,hex=00ff                       overwrite with other bytes
    insert:at=100,text="a,b\\n"                  insert bytes before byte 100; at=end appends
    drop:at=100,length=64                       remove bytes
    duplicate:at=100,length=64,times=2          repeat bytes, once or more, directly after the original
    cut:at=586                                  truncate the file
    reorder:frames=2..4,order=4/2/3             reorder frames; without order: reverse them
    set:frame=3,field=crc,value=7               set a field by name
    remove:file=*.index   rename:file=a,to=b   copy:file=a,to=b   create:file=a,text=...

Location: `file` selects files of a directory (a name, a pattern, `first` or `last` of the primary files; default `last`).
`frame=3` or `frames=2..4` select frames; negative numbers count from the end, and a damaged range counts as
one frame. `field` and the items around it (`record=0`, `header=1`, `entry=2`) select a part of a frame. `at` and `length` are bytes
of the selection; a negative `at` counts from its end. `reseal` recomputes the lengths and checksums around the damage.
New bytes are `hex`, `text` (with \\n, \\t, \\xHH), `random=N` or `zeros=N`. `set` takes `value`, `add` (to the old value), `hex`,
`text` or `null`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logwright.codec.fault import UsageError, did_you_mean
from logwright.codec.option import parse_int

CONTENT = ("hex", "text", "random", "zeros")
WHERE = ("file", "frame", "frames", "field", "at", "length", "reseal")
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "flip": (*WHERE, "bit", "mask"),
    "zero": WHERE,
    "write": (*WHERE, *CONTENT),
    "insert": (*WHERE, *CONTENT),
    "drop": WHERE,
    "duplicate": (*WHERE, "times"),
    "cut": ("file", "frame", "at"),
    "reorder": ("file", "frames", "order"),
    "set": ("file", "frame", "field", "reseal", "value", "add", "hex", "text", "null"),
    "remove": ("file",),
    "rename": ("file", "to"),
    "copy": ("file", "to"),
    "create": ("file", *CONTENT),
}
"""The parameters of each operation."""
_WITHIN = ("flip", "zero", "write", "insert", "drop", "duplicate", "set")
"""Operations that may select a part of a frame by item numbers as further parameters (`record=0`)."""
_ALIASES = {"truncate": "cut"}
_FLAGS = ("reseal", "null")
_NUMBERS = ("frame", "bit", "mask", "random", "zeros", "times", "length", "add")
MOST = 1 << 20
"""The maximum number of random bytes, which are written to damage.json."""
_WORD = re.compile(
    r'(?P<name>[A-Za-z_]\w*)(?:=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^,]*)))?\s*(?:,|$)'
)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


@dataclass(frozen=True)
class Operation:
    """One checked operation. `params` holds its typed parameters, `steps` the path into a frame: `(("record", 0),)`."""

    name: str
    params: Mapping[str, Any]
    steps: tuple[tuple[str, int], ...] = ()
    text: str = field(default="", compare=False)
    """The original text, for messages."""

    def __getitem__(self, name: str) -> Any:
        return self.params.get(name)

    @property
    def on_files(self) -> bool:
        return self.name in ("remove", "rename", "copy", "create")

    @property
    def in_frame(self) -> bool:
        """Whether it changes a part of a frame that is found by the description."""
        return bool(self.steps or self["field"] is not None or self["reseal"])

    def to_dict(self) -> dict[str, Any]:
        """Return the form in damage.json, which `parse` accepts."""
        known = {
            operation: self.params[operation]
            for operation in OPERATIONS[self.name]
            if operation in self.params
        }
        return {"op": self.name, **known, **dict(self.steps)}


def parse(spec: str | Mapping[str, Any]) -> Operation:
    """Parse an operation from text (`flip:at=1234,bit=3`) or a mapping (`{"op": "flip", "at": 1234, "bit": 3}`). Raises `UsageError`."""
    if isinstance(spec, Mapping):
        text = "{" + ", ".join(f"{name}: {value!r:.40}" for name, value in spec.items()) + "}"
        pairs = [(str(name), value) for name, value in spec.items() if name not in ("op", "found")]
        name = str(spec.get("op", ""))
    elif isinstance(spec, str):
        text = spec if len(spec) <= 100 else spec[:97] + "..."
        name, _, rest = spec.partition(":")
        pairs = list(_words(rest, text))
    else:
        raise UsageError(f"an operation is text or a mapping, not {spec!r}")
    name = _ALIASES.get(name.strip(), name.strip())
    if name not in OPERATIONS:
        raise UsageError(f"{text}: no operation {name!r}", advice=did_you_mean(name, OPERATIONS))
    known = OPERATIONS[name]
    out: dict[str, Any] = {}
    steps: list[tuple[str, int]] = []
    for key, value in pairs:
        if key in out or key in dict(steps):
            raise UsageError(f"{text}: {key} is given twice")
        if key in known:
            out[key] = _value(key, value, text)
        elif name in _WITHIN and _is_number(value) and not _mistyped(key, known):
            steps.append((key, parse_int(value)))
        else:
            raise UsageError(f"{text}: {name} has no parameter {key!r}", advice=did_you_mean(key, known))
    operation = Operation(name, {key: out[key] for key in known if key in out}, tuple(steps), text)
    _check(operation)
    return operation


def _mistyped(key: str, known: Sequence[str]) -> bool:
    """Return whether a key is a parameter of any operation, and not the name of items in a frame."""
    every = {item for keys in OPERATIONS.values() for item in keys}
    return key in every or bool(difflib.get_close_matches(key, known, n=1, cutoff=0.66))


def _words(rest: str, text: str) -> Iterator[tuple[str, Any]]:
    at = 0
    while at < len(rest):
        match = _WORD.match(rest, at)
        if match is None:
            raise UsageError(
                f"{text}: cannot parse {rest[at:]!r}",
                advice='Expected a form like flip:at=1234,bit=3. Quote values with commas: text="a,b"',
            )
        name = match["name"]
        if match["quoted"] is not None:
            value: Any = re.sub(r'\\"', '"', match["quoted"])
        elif match["plain"] is not None:
            value = match["plain"].strip() if name != "text" else match["plain"]
        else:
            value = True
        yield name, value
        at = match.end()


def _is_number(value: Any) -> bool:
    try:
        parse_int(value)
    except (TypeError, ValueError):
        return False
    return True


def _value(key: str, value: Any, text: str) -> Any:
    """Convert a parameter to its type."""
    try:
        if key in _FLAGS:
            if value not in (True, False, "true", "false"):
                raise ValueError("it takes no value")
            return value in (True, "true")
        if value is True:
            raise ValueError("it needs a value")
        if key in _NUMBERS:
            return parse_int(value)
        if key == "at":
            return value if value == "end" else parse_int(value)
        if key == "hex":
            return bytes.fromhex(str(value)).hex()
        if key == "text":
            return str(value)
        if key == "frames":
            return _range(value)
        if key == "order":
            return [
                parse_int(number)
                for number in (re.split(r"[/ ]+", value) if isinstance(value, str) else value)
            ]
        if key == "value":
            return parse_int(value) if _is_number(value) else str(value)
        return str(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{text}: {key}={value!r} is not valid ({error})") from None


def _range(value: Any) -> list[int]:
    if isinstance(value, str):
        first, dots, last = value.partition("..")
        if not dots:
            raise ValueError("expected A..B, both included")
        return [parse_int(first), parse_int(last)]
    first, last = value
    return [parse_int(first), parse_int(last)]


def _check(operation: Operation) -> None:
    """Raise `UsageError` for missing or conflicting parameters."""
    text, name = operation.text, operation.name

    def need(ok: bool, why: str) -> None:
        if not ok:
            raise UsageError(f"{text}: {why}")

    frames = operation["frame"] is not None or operation["frames"] is not None
    need(operation["frame"] is None or operation["frames"] is None, "frame and frames exclude each other")
    need(not operation.steps or not operation["frames"], "items are selected in one frame, not in frames")
    need(
        operation["field"] is None or operation["frames"] is None,
        "a field is selected in one frame, not in frames",
    )
    need(
        operation["reseal"] is None or operation["frames"] is None, "reseal works on one frame, not on frames"
    )
    contents = [item for item in CONTENT if operation[item] is not None]
    if name in ("write", "insert", "create"):
        need(len(contents) == 1, f"it takes one of {', '.join(CONTENT)}")
        size = operation["random"] if operation["random"] is not None else operation["zeros"]
        need(size is None or size >= 0, "the number of bytes is negative")
        need(operation["random"] is None or operation["random"] <= MOST, f"the limit is {MOST} random bytes")
    if not operation.on_files and name not in ("reorder", "set"):
        here = operation["at"] is not None or frames or operation.in_frame
        need(here, "no location: pass at=, frame= or field=")
    need(operation["length"] is None or operation["length"] >= 0, "length is negative")
    need(operation["times"] is None or operation["times"] >= 1, "times is below 1")
    if name == "flip":
        need(operation["bit"] is None or operation["mask"] is None, "bit and mask exclude each other")
        need(operation["bit"] is None or 0 <= operation["bit"] <= 7, "a byte has the bits 0 to 7")
        need(operation["mask"] is None or 1 <= operation["mask"] <= 255, "mask is 1 to 255")
    if name == "reorder":
        need(operation["frames"] is not None, "no frames: pass frames=A..B")
    if name == "set":
        need(operation["field"] is not None, "no field: pass field=")
        values = [
            item
            for item in ("value", "add", "hex", "text", "null")
            if operation[item] is not None and operation[item] is not False
        ]
        need(len(values) == 1, "it takes one of value, add, hex, text, null")
    if name in ("rename", "copy"):
        need(operation["to"] is not None, "no new name: pass to=")
    if operation.on_files:
        need(operation["file"] is not None, "no file: pass file=")


def content(operation: Operation) -> bytes | int:
    """Return the new bytes, or a number of zeros. `random` was replaced by `hex`."""
    if operation["hex"] is not None:
        return bytes.fromhex(operation["hex"])
    if operation["text"] is not None:
        return unescape(operation["text"])
    return int(operation["zeros"])


def unescape(text: str) -> bytes:
    """Convert text with \\n, \\r, \\t, \\0, \\xHH and \\\\ to bytes; everything else is UTF-8."""
    out, at = bytearray(), 0
    for match in _ESCAPE.finditer(text):
        out += text[at : match.start()].encode()
        code = match[1]
        out += bytes([int(code[1:], 16)]) if len(code) == 3 else _ESCAPES.get(code, code).encode()
        at = match.end()
    return bytes(out + text[at:].encode())
