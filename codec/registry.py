"""Every codec and layout by name. Adding a system is adding a folder and one line here."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from logwright.codec.base import Codec, Match
from logwright.codec.fault import UsageError
from logwright.codec.layout import ConfigFile, Configuration, Container, Layout
from logwright.codec.option import fold, parse_hexadecimal
from logwright.codec.store.listing import Listing
from logwright.codec.store.view import View
from logwright.codec.table import Table

SYSTEMS = ("kafka", "leveldb", "zookeeper", "rocketmq", "bookkeeper")
"""Each is a folder beside this file whose `__init__` lists `CODECS` and `LAYOUTS`. In `corpora` and `roundtrip` each has a folder of the
same name, with what makes its files and what checks them."""


def modules(room: str, name: str) -> Iterator[ModuleType]:
    """The modules of a name that systems have in another room: `modules("logwright.corpora", "recipes")`; a system need not have one."""
    for system in SYSTEMS:
        package = f"{room}.{system}"
        if importlib.util.find_spec(package) and importlib.util.find_spec(f"{package}.{name}"):
            yield importlib.import_module(f"{package}.{name}")


@cache
def _all() -> tuple[dict[str, Codec], dict[str, Layout]]:
    codecs: dict[str, Codec] = {}
    layouts: dict[str, Layout] = {}
    for system in SYSTEMS:
        module = importlib.import_module(f"logwright.codec.{system}")
        for codec in module.CODECS:
            wrong = faults(codec)
            if wrong:
                raise TypeError("; ".join(wrong))
            codecs[codec.name] = codec
        layouts |= {layout.name: layout for layout in getattr(module, "LAYOUTS", ())}
    return codecs, layouts


_METHODS = ("recognise", "scan", "decode", "resync", "encode")
_COLUMNS = {
    "rows": (),
    "frames": ("position", "size"),
    "file": ("size", "frames", "trailing", "trailing_zeros"),
}
"""Columns that the tables of every codec have."""


def faults(codec: Codec) -> list[str]:
    """Return what a codec lacks that readers and writers rely on, and where it goes."""
    said = []
    name = getattr(codec, "name", type(codec).__name__)
    for attribute in ("name", "title", "structures", "tables"):
        if not hasattr(codec, attribute):
            said.append(f"{name} has no attribute {attribute!r}: see codec.base.Codec")
    for method in _METHODS:
        if getattr(type(codec), method, None) is getattr(Codec, method):
            said.append(f"{name} has no method {method!r}: see codec.base.Codec.{method}")
    for table, columns in _COLUMNS.items():
        there = getattr(codec, "tables", {}).get(table)
        if there is None:
            said.append(f"{name} has no table {table!r}: add it to its tables")
            continue
        known = there.names(detail=True)
        said += [
            f"{name}: the table {table!r} has no column {one!r}: see codec.table"
            for one in columns
            if one not in known
        ]
    return said


def _hexadecimal() -> frozenset[str]:
    """Options that are written in hexadecimal."""
    known, layouts = _all()
    of = (*(one.options for one in known.values()), *(one.options for one in layouts.values()))
    read = (one.read_options for one in layouts.values())
    return frozenset(
        fold(option.name) for some in (*of, *read) for option in some if option.parse is parse_hexadecimal
    )


def numbers(given: Mapping[str, str]) -> dict[str, Any]:
    """Options that came through a place that makes text of numbers, as Spark does: digits alone were a number, also where text that
    people write is hexadecimal."""
    known = _hexadecimal()
    return {
        name: int(value) if value.isdecimal() and fold(name) in known else value
        for name, value in given.items()
    }


@cache
def _beside() -> tuple[tuple[Container, ...], tuple[ConfigFile, ...]]:
    """What systems have above their directories."""
    modules = [importlib.import_module(f"logwright.codec.{system}") for system in SYSTEMS]
    return (
        tuple(one for module in modules for one in getattr(module, "CONTAINERS", ())),
        tuple(one for module in modules for one in getattr(module, "CONFIG_FILES", ())),
    )


def containers() -> Sequence[Container]:
    return [one for one in _beside()[0] if one.layout in _all()[1]]


def container(listing: Listing) -> Container | None:
    """What holds several of a layout, when a directory is one."""
    return next((one for one in containers() if one.recognise(listing)), None)


def _configurations(name: str) -> list[ConfigFile]:
    return [one for one in _beside()[1] if one.layout in _all()[1] and one.named(name)]


def may_configure(name: str) -> bool:
    """Whether a file of this name may be the configuration of a system."""
    return bool(_configurations(name))


def configuration(name: str, data: bytes) -> Configuration | None:
    """What a file says, when it is the configuration of a system. Raises `UsageError` where it can't be followed."""
    found = (one.understand(data) for one in _configurations(name))
    return next((one for one in found if one is not None), None)


def codecs() -> Sequence[Codec]:
    return list(_all()[0].values())


def layouts() -> Sequence[Layout]:
    return list(_all()[1].values())


def find(name: str) -> Codec | Layout:
    """The codec or layout of that name."""
    known: dict[str, Codec | Layout] = {**_all()[0], **_all()[1]}
    if name in known:
        return known[name]
    for one in containers():
        if one.name == name:
            raise UsageError(
                f"{name} is read, inspected and verified as a whole: here one {one.layout} is needed",
                advice="Name one of its directories",
            )
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}"
    raise UsageError(f"no codec or layout {name!r}", advice=hint)


def get(name: str) -> Codec:
    """The codec of that name."""
    codec = _all()[0].get(name)
    if codec is None:
        found = find(name)
        raise UsageError(f"{found.name} is a layout of a directory, a codec of a file is needed here")
    return codec


def get_layout(name: str) -> Layout:
    """The layout of that name."""
    layout = _all()[1].get(name)
    if layout is None:
        found = find(name)
        raise UsageError(f"{found.name} is a codec of a file, a layout of a directory is needed here")
    return layout


def table_of(view: View) -> Table:
    """The table whose rows a view gives."""
    return view.rows or get(view.codec).tables[view.table]


def detect(name: str, head: bytes) -> Codec | None:
    """The codec of a file, from its name (without folders) and its first bytes; None when none is sure enough."""
    best = max(codecs(), key=lambda codec: codec.recognise(name, head), default=None)
    return best if best is not None and best.recognise(name, head) > Match.NO else None


TAIL = 64
"""Bytes of a file's end that `detect_by_end` takes."""


def detect_by_end(tail: bytes) -> Codec | None:
    """The codec of a file under another name, from the magic bytes that it ends in."""
    return next((codec for codec in codecs() if codec.end_magic and tail.endswith(codec.end_magic)), None)


def detect_layout(listing: Listing) -> Layout | None:
    """The layout of a directory; None when it is none that we know."""
    best = max(layouts(), key=lambda layout: layout.recognise(listing), default=None)
    return best if best is not None and best.recognise(listing) > Match.NO else None
