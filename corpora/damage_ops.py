"""What may be done to files, as text or as mappings, checked before anything is read.

    flip:at=1234,bit=3                          one bit of one byte; or mask=0x81
    zero:at=100,length=64                       zeros over bytes
    write:at=100,hex=00ff                       other bytes in their place
    insert:at=100,text="a,b\\n"                  new bytes before byte 100; at=end behind all
    drop:at=100,length=64                       bytes taken out
    duplicate:at=100,length=64,times=2          once more, or more often, right behind
    cut:at=586                                  the file ends there
    reorder:frames=2..4,order=4/2/3             frames in another order; without order: back to front
    set:frame=3,field=crc,value=7               a field by its name
    remove:file=*.index   rename:file=a,to=b   copy:file=a,to=b   create:file=a,text=...

Where: `file` chooses files of a directory (a name, a pattern, `first` or `last` of the primary files; the default is `last`).
`frame=3` or `frames=2..4` choose frames, from the end with negative numbers; what is damaged so that it has no frames counts as
one. `field` and what it lies in (`record=0`, `header=1`, `entry=2`) choose within a frame. `at` and `length` are bytes within what
is so chosen, from its end with negative numbers. `reseal` makes lengths and checksums of the frame right again around the damage.
New bytes are `hex`, `text` (with \\n, \\t, \\xHH), `random=N` or `zeros=N`. `set` takes `value`, `add` (to what is there), `hex`,
`text` or `null`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logwright.codec.address import nearest
from logwright.codec.fault import UsageError
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
"""By operation, the parameters that it takes."""
_WITHIN = ("flip", "zero", "write", "insert", "drop", "duplicate", "set")
"""Operations on something within a frame: further parameters are numbers of things in it (`record=0`)."""
_ALIASES = {"truncate": "cut"}
_FLAGS = ("reseal", "null")
_NUMBERS = ("frame", "bit", "mask", "random", "zeros", "times", "length", "add")
MOST = 1 << 20
"""So many random bytes may be asked for: they are written out in damage.json."""
_WORD = re.compile(
    r'(?P<name>[A-Za-z_]\w*)(?:=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^,]*)))?\s*(?:,|$)'
)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


@dataclass(frozen=True)
class Operation:
    """One operation, checked: `given` has parameters of the right types, `steps` lead into a frame: `(("record", 0),)`."""

    name: str
    given: Mapping[str, Any]
    steps: tuple[tuple[str, int], ...] = ()
    text: str = field(default="", compare=False)
    """As it was given, for messages."""

    def __getitem__(self, name: str) -> Any:
        return self.given.get(name)

    @property
    def on_files(self) -> bool:
        return self.name in ("remove", "rename", "copy", "create")

    @property
    def in_frame(self) -> bool:
        """Whether it changes something in a frame that has to be found by its description."""
        return bool(self.steps or self["field"] is not None or self["reseal"])

    def to_dict(self) -> dict[str, Any]:
        """As damage.json has it, and `parse` takes it."""
        known = {
            operation: self.given[operation] for operation in OPERATIONS[self.name] if operation in self.given
        }
        return {"op": self.name, **known, **dict(self.steps)}


def parse(spec: str | Mapping[str, Any]) -> Operation:
    """An operation from text (`flip:at=1234,bit=3`) or a mapping (`{"op": "flip", "at": 1234, "bit": 3}`). Raises `UsageError`."""
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
        raise UsageError(f"{text}: no operation {name!r}", advice=nearest(name, list(OPERATIONS)))
    known = OPERATIONS[name]
    out: dict[str, Any] = {}
    steps: list[tuple[str, int]] = []
    for key, value in pairs:
        if key in out or key in dict(steps):
            raise UsageError(f"{text}: {key} is given twice")
        if key in known:
            out[key] = _value(name, key, value, text)
        elif name in _WITHIN and _is_number(value) and not _mistyped(key, known):
            steps.append((key, parse_int(value)))
        else:
            raise UsageError(f"{text}: {name} takes no {key!r}", advice=nearest(key, known))
    operation = Operation(name, {key: out[key] for key in known if key in out}, tuple(steps), text)
    _check(operation)
    return operation


def _mistyped(key: str, known: Sequence[str]) -> bool:
    """Whether a word is a parameter, here or elsewhere, and not what lies in a frame."""
    every = {item for keys in OPERATIONS.values() for item in keys}
    return key in every or bool(difflib.get_close_matches(key, known, n=1, cutoff=0.66))


def _words(rest: str, text: str) -> Iterator[tuple[str, Any]]:
    at = 0
    while at < len(rest):
        match = _WORD.match(rest, at)
        if match is None:
            raise UsageError(
                f"{text}: {rest[at:]!r} can't be understood",
                advice='It is written like flip:at=1234,bit=3; values with commas in quotes: text="a,b"',
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


def _value(name: str, key: str, value: Any, text: str) -> Any:
    """A parameter in its own type."""
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
    """Raise `UsageError` for what is missing or does not go together."""
    text, name = operation.text, operation.name

    def need(ok: bool, why: str) -> None:
        if not ok:
            raise UsageError(f"{text}: {why}")

    frames = operation["frame"] is not None or operation["frames"] is not None
    need(operation["frame"] is None or operation["frames"] is None, "either frame or frames")
    need(
        not operation.steps or not operation["frames"], "what lies in a frame is in one frame, not in frames"
    )
    need(operation["field"] is None or operation["frames"] is None, "a field is in one frame, not in frames")
    need(operation["reseal"] is None or operation["frames"] is None, "one frame is resealed at a time")
    contents = [item for item in CONTENT if operation[item] is not None]
    if name in ("write", "insert", "create"):
        need(len(contents) == 1, f"it takes one of {', '.join(CONTENT)}")
        size = operation["random"] if operation["random"] is not None else operation["zeros"]
        need(size is None or size >= 0, "how many bytes is a negative number")
        need(
            operation["random"] is None or operation["random"] <= MOST,
            f"at most {MOST} random bytes are made",
        )
    if not operation.on_files and name not in ("reorder", "set"):
        here = operation["at"] is not None or frames or operation.in_frame
        need(here, "where is not said: at=, frame= or field=")
    need(operation["length"] is None or operation["length"] >= 0, "length is negative")
    need(operation["times"] is None or operation["times"] >= 1, "times is below 1")
    if name == "flip":
        need(operation["bit"] is None or operation["mask"] is None, "either bit or mask")
        need(operation["bit"] is None or 0 <= operation["bit"] <= 7, "a byte has the bits 0 to 7")
        need(operation["mask"] is None or 1 <= operation["mask"] <= 255, "mask is 1 to 255")
    if name == "reorder":
        need(operation["frames"] is not None, "which frames is not said: frames=A..B")
    if name == "set":
        need(operation["field"] is not None, "which field is not said: field=")
        values = [
            item
            for item in ("value", "add", "hex", "text", "null")
            if operation[item] is not None and operation[item] is not False
        ]
        need(len(values) == 1, "it takes one of value, add, hex, text, null")
    if name in ("rename", "copy"):
        need(operation["to"] is not None, "the new name is not said: to=")
    if operation.on_files:
        need(operation["file"] is not None, "which file is not said: file=")


def content(operation: Operation) -> bytes | int:
    """The new bytes, or so many zeros. `random` has been replaced by `hex`."""
    if operation["hex"] is not None:
        return bytes.fromhex(operation["hex"])
    if operation["text"] is not None:
        return unescape(operation["text"])
    return int(operation["zeros"])


def unescape(text: str) -> bytes:
    """Text with \\n, \\r, \\t, \\0, \\xHH and \\\\ as bytes; all else as UTF-8."""
    out, at = bytearray(), 0
    for match in _ESCAPE.finditer(text):
        out += text[at : match.start()].encode()
        code = match[1]
        out += bytes([int(code[1:], 16)]) if len(code) == 3 else _ESCAPES.get(code, code).encode()
        at = match.end()
    return bytes(out + text[at:].encode())
