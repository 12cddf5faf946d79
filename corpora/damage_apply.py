"""Apply damage operations to files. Each refers to the bytes, frames and files as they are when it runs."""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from logwright.codec import address, plural
from logwright.codec.arrays import Int64s
from logwright.codec.base import Codec
from logwright.codec.describe import (
    Bytes,
    DescriptionError,
    Enclosed,
    Repeated,
    Struct,
    Switch,
    Type,
    structures,
)
from logwright.codec.fault import Severity, UsageError, did_you_mean
from logwright.codec.frames.walk import Stretch, Walk
from logwright.codec.option import Options, fold
from logwright.codec.store.listing import Role
from logwright.corpora.damage_image import Image, Known, Piece, Tree
from logwright.corpora.damage_ops import Operation, content
from logwright.corpora.rng import Rng

IN_MEMORY = 256 << 20
"""The maximum size of a frame that is changed by fields or resealed, which happens in memory."""


class Stretches:
    """A sequence of ranges (start, stop), possibly millions."""

    def __init__(self, spans: Int64s) -> None:
        self._spans = spans

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, number: int) -> tuple[int, int]:
        if number >= len(self):
            raise IndexError(number)
        return int(self._spans[number, 0]), int(self._spans[number, 1])


class Surgeon:
    """Carries out operations on a tree. `seed` determines the bytes of `random=N`. `options` are those of codecs, where they have them."""

    def __init__(
        self, tree: Tree, seed: int = 0, codec: Codec | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        self.tree, self.seed, self.codec = tree, seed, codec
        self._options = {fold(name): value for name, value in (options or {}).items()}
        self._done = 0

    def run(self, operation: Operation) -> list[dict[str, Any]]:
        """Carry out an operation on each file that it selects. Returns explicit operations that can be repeated without
        the seed. Raises `UsageError`, possibly after changing the tree."""
        if operation["random"] is not None:
            data = Rng(self.seed, "random", str(self._done)).bytes(operation["random"])
            params = {name: value for name, value in operation.params.items() if name != "random"}
            operation = replace(operation, params={**params, "hex": data.hex()})
        self._done += 1
        done = []
        for name in self._files(operation):
            single = replace(operation, params={**operation.params, **({"file": name} if name else {})})
            try:
                done.append({**single.to_dict(), **self._one(single, name)})
            except UsageError as error:
                error.message = f"{operation.text}: {error.message}"
                error.path = error.path or self.tree.path(name)
                raise
        return done

    # Selecting files

    def _files(self, operation: Operation) -> list[str]:
        tree, pattern = self.tree, operation["file"]
        if operation.name == "create":
            return [pattern]
        if tree.single:
            if operation.on_files or pattern not in (None, "first", "last", tree.name):
                raise UsageError(f"{operation.text}: the only file is {tree.name}", path=tree.shown)
            return [""]
        if pattern in (None, "first", "last"):
            primary = self.primary()
            if not primary:
                raise UsageError(
                    f"{operation.text}: the directory has no recognised primary file",
                    path=tree.shown,
                    advice="Name a file: file=NAME",
                )
            return [primary[0] if pattern == "first" else primary[-1]]
        if pattern in tree.images:
            return [pattern]
        names = sorted(tree.images)
        matches = [
            name for name in names
            if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name.rpartition("/")[2], pattern)
        ]  # fmt: skip
        if not matches:
            raise UsageError(
                f"{operation.text}: no file {pattern!r}", path=tree.shown, advice=_like(pattern, names)
            )
        if operation.name in ("rename", "copy") and len(matches) > 1:
            raise UsageError(f"{operation.text}: {len(matches)} files match", path=tree.shown)
        return matches

    def primary(self) -> list[str]:
        """Return the primary files, in the system's order."""
        out = []
        for folder in self.tree.folders():
            planned = self.tree.plan(folder)
            if planned is not None:
                prefix = f"{folder}/" if folder else ""
                out += [prefix + file.name for file in planned[1].files if file.role is Role.PRIMARY]
        return out

    # Operations

    def _one(self, operation: Operation, name: str) -> dict[str, Any]:
        if operation.on_files:
            return self._on_file(operation, name)
        image = self.tree.images[name]
        if operation.name == "reorder":
            return self._reorder(operation, name, image)
        start, stop = self._frames(operation, name, image)
        if operation.in_frame or operation.name == "set":
            return self._in_frame(operation, name, image, start, stop)
        low, high, new = _splice(
            operation, stop - start, lambda at, size: image.pread(start + at, size).tobytes()
        )
        if operation.name == "cut":
            high = image.size - start
        if isinstance(new, int):
            pieces = [Piece.zeros(new)]
        elif isinstance(new, bytes):
            pieces = [Piece.of(new)]
        else:
            repeated = [replace(piece, moved=True) for piece in image.slice(start + new[0], start + new[1])]
            pieces = repeated * new[2]
        image.splice(start + low, start + high, pieces)
        return {"found": {"offset": start + low, "length": high - low}}

    def _on_file(self, operation: Operation, name: str) -> dict[str, Any]:
        tree = self.tree
        if operation.name == "create":
            new = content(operation)
            tree.add(name, [Piece.of(new) if isinstance(new, bytes) else Piece.zeros(new)])
        elif operation.name == "remove":
            tree.remove(name)
        elif operation.name == "copy":
            tree.add(operation["to"], [replace(piece, moved=True) for piece in tree.images[name].pieces])
        else:
            if operation["to"] != name:
                tree.add(operation["to"], tree.images[name].pieces)
                tree.images[operation["to"]].changed = tree.images[name].changed
                tree.remove(name)
        return {}

    def _reorder(self, operation: Operation, name: str, image: Image) -> dict[str, Any]:
        every = self.frames(name, image)
        first, last = (self._ordinal(number, every) for number in operation["frames"])
        if first > last:
            raise UsageError(f"frame {first} comes after frame {last}")
        order = operation["order"]
        order = (
            list(range(last, first - 1, -1))
            if order is None
            else [self._ordinal(number, every) for number in order]
        )
        if sorted(order) != list(range(first, last + 1)):
            raise UsageError(f"the order must name each of the frames {first} to {last} once")
        start, stop = every[first][0], every[last][1]
        # Bytes between two frames keep their place.
        pieces: list[Piece] = []
        for place, number in enumerate(order, first):
            moved = number != place
            pieces += [replace(piece, moved=moved or piece.moved) for piece in image.slice(*every[number])]
            if place < last:
                pieces += image.slice(every[place][1], every[place + 1][0])
        image.splice(start, stop, pieces)
        return {"order": order, "found": {"offset": start, "length": stop - start}}

    # Selecting frames

    def known(self, name: str) -> Known:
        file = self.tree.known(name, self.codec)
        if file is None:
            raise UsageError(
                "unrecognised file format: the file has no known frames",
                advice="Name bytes instead, with at= and length=",
            )
        return file

    def _context(self, name: str, known: Known) -> Any:
        options = {
            option.name: self._options[fold(option.name)]
            for option in known.codec.options
            if fold(option.name) in self._options
        }
        own = name.rpartition("/")[2] or self.tree.name
        return known.codec.context(own, Options(known.codec.options, options), **known.hints)

    def frames(self, name: str, image: Image, upto: int | None = None) -> Stretches:
        """Return the ranges of at least the first `upto` frames. A damaged range counts as a frame. Checksums are not verified."""
        known = self.known(name)
        codec = known.codec
        context = self._context(name, known)
        out = [np.empty((0, 2), np.int64)]
        count = 0
        for stretch in Walk(image, codec, context, check=False):
            if isinstance(stretch, Stretch):
                frames = stretch.frames
                out.append(np.stack([frames.start, frames.end], 1) + stretch.window.offset)
            elif stretch.fault.severity is not Severity.INFO:
                out.append(np.array([[0, stretch.fault.length]]) + stretch.fault.offset)
            count = sum(map(len, out))
            if upto is not None and count > upto:
                break
        return Stretches(np.concatenate(out))

    def _ordinal(self, number: int, every: Stretches) -> int:
        if not -len(every) <= number < len(every):
            count = f"frames are numbered 0 to {len(every) - 1}" if every else "the file has no frames"
            raise UsageError(f"no frame {number}; {count}")
        return number % len(every)

    def _frames(self, operation: Operation, name: str, image: Image) -> tuple[int, int]:
        """Return the range that `frame` or `frames` select; the complete file without them."""
        chosen = operation["frames"]
        if chosen is None and operation["frame"] is not None:
            chosen = [operation["frame"]] * 2
        if chosen is None and not operation.in_frame:
            return 0, image.size
        if chosen is None:
            every = self.frames(name, image, 1)
            if len(every) != 1:
                raise UsageError("the file has several frames: pass frame=")
            return every[0]
        every = self.frames(name, image, None if min(chosen) < 0 else max(chosen))
        first, last = (self._ordinal(number, every) for number in chosen)
        if first > last:
            raise UsageError(f"frame {first} comes after frame {last}")
        return every[first][0], every[last][1]

    # Within a frame

    def _in_frame(
        self, operation: Operation, name: str, image: Image, start: int, stop: int
    ) -> dict[str, Any]:
        known = self.known(name)
        codec = known.codec
        more = operation["zeros"] or 0
        if stop - start + more > IN_MEMORY:
            raise UsageError(
                f"the frame has {stop - start + more} bytes; the limit for changes by field is {IN_MEMORY}"
            )
        frame = image.pread(start, stop - start).tobytes()

        def change(old: bytes, kind: Type) -> bytes:
            if operation.name == "set":
                return _set(operation, old, kind)
            if not isinstance(kind, Bytes) or not isinstance(kind.length, Type):
                return _changed(operation, old)
            # The length prefix of bytes is addressed separately.
            content, _ = kind.unpack(old, 0, len(old), {})
            if content is None:
                raise UsageError(f"{operation['field']} is null, so it has no bytes")
            new = _changed(operation, content)
            return kind.pack(new, {}) if reseal else old[: len(old) - len(content)] + new

        reseal = bool(operation["reseal"])
        path = _path(operation, codec)
        new = codec.edit(frame, path, change, reseal=reseal, context=self._context(name, known))
        image.splice(start, stop, [Piece.of(new)])
        return {"found": {"offset": start, "length": stop - start, "field": address.spell(path)}}


def _like(pattern: str, names: list[str]) -> str:
    """Suggest a file name."""
    near = [name for name in names if pattern and pattern in name] or difflib.get_close_matches(
        pattern, names, n=1
    )
    if near:
        return f"Did you mean {near[0]!r}?"
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"Files: {', '.join(names[:4])}{more}" if names else "The directory is empty"


_TOKEN = re.compile(r"(\w+)|\[(-?\d+)\]")


def _path(operation: Operation, codec: Codec) -> list[str | int]:
    """Return the path of an operation: `record=0,field=key` is `records`, 0, `key`. A field of the frame itself may be
    named together with items."""
    known = list(codec.field_names())
    if not known:
        raise UsageError(
            f"{codec.name} has no named fields", advice="Name bytes instead, with at= and length="
        )
    words = operation["field"] or ""
    if re.sub(_TOKEN, "", words).strip("."):
        raise UsageError(f"field {words!r} is not a name like records[0].key")
    tail: list[str | int] = [int(number) if number else name for name, number in _TOKEN.findall(words)]
    path: list[str | int] = []
    for step, number in operation.steps:
        names = [step, f"{step}s", re.sub("y$", "ies", step)]
        field = next((item for item in names if item in known), None)
        if field is None:
            single = [
                re.sub("ies$", "y", item) if item.endswith("ies") else item.removesuffix("s")
                for item in _many(codec)
            ]
            raise UsageError(
                f"{codec.name} has no items named {step!r}",
                advice=did_you_mean(step, single) if single else "",
            )
        path += [field, number]
    if tail and isinstance(tail[0], str) and tail[0] not in known:
        raise UsageError(f"{codec.name} has no field {tail[0]!r}", advice=did_you_mean(tail[0], known))
    if path and tail and tail[0] not in _inner(codec, path) and tail[0] in _outer(codec):
        return tail
    return path + tail


def _many(codec: Codec) -> list[str]:
    """Return the names of list fields."""
    return [
        field.name for struct in structures(codec.structures) for field in struct.fields
        if any(isinstance(kind, Repeated) for kind in _cases(field.type))
    ]  # fmt: skip


def _cases(kind: Type) -> Iterator[Type]:
    yield kind
    yield from kind.types if isinstance(kind, Switch) else ()


def _outer(codec: Codec) -> list[str]:
    return [field.name for field in codec.structures[0].fields] if codec.structures else []


def _inner(codec: Codec, path: list[str | int]) -> list[str]:
    """Return the names of the fields of the structure that a path leads to."""
    struct: Struct | None = None
    within: Sequence[Struct] = codec.structures
    for name in path[::2]:
        fields = [field for field in itertools.chain(*(each.fields for each in within)) if field.name == name]
        items = [kind.item for field in fields for kind in _cases(field.type) if isinstance(kind, Repeated)]
        struct = next((item for item in items if isinstance(item, Struct)), None)
        within = () if struct is None else (struct,)
    return [] if struct is None else [field.name for field in struct.fields]


# Replacing bytes

New = bytes | int | tuple[int, int, int]
"""New bytes, a number of zeros, or (start, stop, times) for repeated bytes."""


def _splice(operation: Operation, size: int, read: Any) -> tuple[int, int, New]:
    """Return (start, stop, replacement) for an operation on `size` bytes. `read(at, length)` returns bytes."""
    name, at, length = operation.name, operation["at"], operation["length"]
    chosen = at is None
    if at in (None, "end"):
        at = size if at == "end" else 0
    elif at < 0:
        at += size
    if not 0 <= at <= size:
        raise UsageError(f"no byte {operation['at']}: there are {plural.count(size, 'byte')}")
    if name == "insert":
        return at, at, content(operation)
    if name == "cut":
        return at, size, b""
    if name == "write":
        new = content(operation)
        length = new if isinstance(new, int) else len(new)
    elif length is None:
        length = 1 if not chosen or name == "flip" else size
    if at + length > size:
        raise UsageError(f"bytes {at} to {at + length} exceed the {plural.count(size, 'byte')}")
    if name == "flip":
        mask = operation["mask"] or 1 << (operation["bit"] or 0)
        return at, at + length, bytes(byte ^ mask for byte in read(at, length))
    if name == "zero":
        return at, at + length, length
    if name == "write":
        return at, at + length, new
    if name == "drop":
        return at, at + length, b""
    return at + length, at + length, (at, at + length, operation["times"] or 1)


def _changed(operation: Operation, old: bytes) -> bytes:
    low, high, new = _splice(operation, len(old), lambda at, size: old[at : at + size])
    if isinstance(new, int):
        new = bytes(new)
    elif not isinstance(new, bytes):
        if new[2] * (new[1] - new[0]) > IN_MEMORY:
            raise UsageError(f"the frame would exceed {IN_MEMORY} bytes")
        new = old[new[0] : new[1]] * new[2]
    return old[:low] + new + old[high:]


def _set(operation: Operation, old: bytes, kind: Type) -> bytes:
    """Return the bytes of a field with another value."""
    label = f"{operation['field']} ({kind.label()})"
    try:
        if operation["null"]:
            if isinstance(kind, Bytes) and isinstance(kind.length, str):
                raise UsageError(f"{label} cannot be null")
            return kind.pack(None, {})
        if isinstance(kind, Bytes):
            if operation["add"] is not None:
                raise UsageError(f"{label} is not a number, so add= does not apply")
            if operation["hex"] is not None:
                new = bytes.fromhex(operation["hex"])
            else:
                text = operation["text"] if operation["text"] is not None else operation["value"]
                new = bytes(content(replace(operation, params={"text": str(text)})))
            # A length in another field is not changed here.
            return new if isinstance(kind.length, str) else kind.pack(new, {})
        if operation["hex"] is not None:
            return bytes.fromhex(operation["hex"])
        if isinstance(kind.item if isinstance(kind, Enclosed) else kind, Repeated | Struct):
            raise UsageError(
                f"{label} consists of several fields: name one of them, or pass its bytes with hex="
            )
        value = operation["value"]
        if operation["add"] is not None:
            value = kind.unpack(old, 0, len(old), {})[0] + operation["add"]
        if not isinstance(value, int):
            raise UsageError(f"{label} is a number; found {operation['text'] or value!r}")
        return kind.pack(value, {})
    except DescriptionError as error:
        raise UsageError(f"{label}: {error.message}") from None
