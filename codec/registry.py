"""All codecs and layouts by name. A new system needs a folder and one line here."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from logwright.codec.base import Codec, Match
from logwright.codec.fault import UsageError, did_you_mean
from logwright.codec.layout import ConfigFile, Configuration, Container, Layout
from logwright.codec.option import fold, parse_hexadecimal
from logwright.codec.store.listing import Listing

SYSTEMS = ("kafka", "leveldb", "zookeeper", "rocketmq", "bookkeeper")
"""Each is a folder beside this file whose `__init__` lists `CODECS` and `LAYOUTS`. The folders of the same name in `corpora` and
`roundtrip` generate and check its files."""


def modules(package: str, name: str) -> Iterator[ModuleType]:
    """Yield the modules `package.SYSTEM.name` that exist: `modules("logwright.corpora", "recipes")`."""
    for system in SYSTEMS:
        parent = f"{package}.{system}"
        if importlib.util.find_spec(parent) and importlib.util.find_spec(f"{parent}.{name}"):
            yield importlib.import_module(f"{parent}.{name}")


@cache
def _of(system: str) -> tuple[dict[str, Codec], dict[str, Layout]]:
    """Return the codecs and layouts of one system."""
    module = importlib.import_module(f"logwright.codec.{system}")
    codecs: dict[str, Codec] = {codec.name: codec for codec in module.CODECS}
    return codecs, {layout.name: layout for layout in getattr(module, "LAYOUTS", ())}


@cache
def _all() -> tuple[dict[str, Codec], dict[str, Layout]]:
    codecs: dict[str, Codec] = {}
    layouts: dict[str, Layout] = {}
    for system in SYSTEMS:
        codecs |= _of(system)[0]
        layouts |= _of(system)[1]
    return codecs, layouts


def _layouts_by_system() -> Iterator[Layout]:
    """Iterate over all layouts, and import each system when its turn comes."""
    return (layout for system in SYSTEMS for layout in _of(system)[1].values())


def _of_name(name: str) -> tuple[Mapping[str, Codec], Mapping[str, Layout]]:
    """Return the codecs and layouts of the system that a name starts with. So a task of a cluster imports one system only."""
    system = name.partition(".")[0]
    return _of(system) if system in SYSTEMS else ({}, {})


def _hexadecimal() -> frozenset[str]:
    """Return the names of options that are written in hexadecimal."""
    codecs, layouts = _all()
    options = [option for codec in codecs.values() for option in codec.options]
    options += [option for layout in layouts.values() for option in (*layout.options, *layout.read_options)]
    return frozenset(fold(option.name) for option in options if option.parse is parse_hexadecimal)


def numbers(values: Mapping[str, str]) -> dict[str, Any]:
    """Restore numbers that Spark has turned into text: decimal digits were a number, even for an option read as hexadecimal."""
    known = _hexadecimal() if any(map(str.isdecimal, values.values())) else frozenset()
    return {
        name: int(value) if value.isdecimal() and fold(name) in known else value
        for name, value in values.items()
    }


def _listed(system: str, name: str) -> tuple[Any, ...]:
    """Return the objects that a system lists under this optional name."""
    return tuple(getattr(importlib.import_module(f"logwright.codec.{system}"), name, ()))


@cache
def _optional(name: str) -> tuple[Any, ...]:
    """Return the objects that systems list under this optional name."""
    return tuple(item for system in SYSTEMS for item in _listed(system, name))


def containers() -> Sequence[Container]:
    return [item for item in _optional("CONTAINERS") if item.layout in _all()[1]]


def named_container(name: str | None) -> Container | None:
    """Return the container of this name, if there is one. Other systems are not imported."""
    system = name.partition(".")[0] if isinstance(name, str) else ""
    listed = _listed(system, "CONTAINERS") if system in SYSTEMS else ()
    return next((item for item in listed if item.name == name), None)


def container(listing: Listing) -> Container | None:
    """Recognise a directory that holds several stores."""
    return next((item for item in containers() if item.recognise(listing)), None)


def _config_files(name: str) -> list[ConfigFile]:
    return [item for item in _optional("CONFIG_FILES") if item.layout in _all()[1] and item.named(name)]


def may_configure(name: str) -> bool:
    """Return whether a file of this name may be the configuration of a system."""
    return bool(_config_files(name))


def configuration(name: str, data: bytes) -> Configuration | None:
    """Parse the configuration file of a system; None for another file. Raises `UsageError` for settings that are not supported."""
    parsed = (item.parse(data) for item in _config_files(name))
    return next((configuration for configuration in parsed if configuration is not None), None)


def codecs() -> Sequence[Codec]:
    return list(_all()[0].values())


def layouts() -> Sequence[Layout]:
    return list(_all()[1].values())


def find(name: str) -> Codec | Layout:
    """Return the codec or layout of this name. Raises `UsageError`."""
    codecs, layouts = _of_name(name)
    of_system = codecs.get(name) or layouts.get(name)
    if of_system is not None:
        return of_system
    known: dict[str, Codec | Layout] = {**_all()[0], **_all()[1]}
    if name in known:
        return known[name]
    _refuse_container(name)
    hint = did_you_mean(name, known, cutoff=0.4, otherwise="Known")
    raise UsageError(f"no codec or layout {name!r}", advice=hint)


def _refuse_container(name: str) -> None:
    """Raise `UsageError` for the name of a container."""
    if item := named_container(name):
        raise UsageError(
            f"{name} holds several directories of layout {item.layout}: this command takes one of them",
            advice=f"Name one of its directories, or {item.layout} for a new one",
        )


def _container_writer(name: str) -> Layout | None:
    item = named_container(name)
    return None if item is None else item.writer


def find_writer(name: str) -> Codec | Layout:
    """Return the codec, layout or container of this name, for writing. Raises `UsageError`."""
    return _container_writer(name) or find(name)


def get_writer(name: str) -> Layout:
    """Return the layout or container of this name, for writing. Raises `UsageError`."""
    return _container_writer(name) or get_layout(name)


def writers() -> Sequence[Layout]:
    """Return all layouts that can be written, containers included."""
    return [*layouts(), *(item.writer for item in containers() if item.writer is not None)]


def get(name: str) -> Codec:
    """Return the codec of this name. Raises `UsageError`."""
    codec = _of_name(name)[0].get(name) or _all()[0].get(name)
    if codec is None:
        raise UsageError(f"{find(name).name} is the layout of a directory; expected the codec of a file")
    return codec


def get_layout(name: str) -> Layout:
    """Return the layout of this name. Raises `UsageError`."""
    layout = _of_name(name)[1].get(name) or _all()[1].get(name)
    if layout is None:
        raise UsageError(f"{find(name).name} is the codec of a file; expected the layout of a directory")
    return layout


def detect(name: str, head: bytes) -> Codec | None:
    """Detect the codec of a file by its name (without folders) and its first bytes."""
    best = max(codecs(), key=lambda codec: codec.recognise(name, head), default=None)
    return best if best is not None and best.recognise(name, head) > Match.NO else None


TAIL = 64
"""The number of bytes at a file's end that `detect_by_end` takes."""


def detect_by_end(tail: bytes) -> Codec | None:
    """Detect the codec of a file by its last bytes."""
    return next((codec for codec in codecs() if codec.end_magic and tail.endswith(codec.end_magic)), None)


def detect_layout(listing: Listing) -> Layout | None:
    """Detect the layout of a directory. Systems after the first sure match are not imported."""
    best, match = None, Match.NO
    for layout in _layouts_by_system():
        if (candidate := layout.recognise(listing)) > match:
            best, match = layout, candidate
        if match is Match.SURE:
            break
    return best
