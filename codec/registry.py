"""Every codec and layout by name. Adding a system is adding a folder and one line here."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from functools import cache

from logwright.codec.base import Codec, Match
from logwright.codec.fault import UsageError
from logwright.codec.layout import Layout, Listing, View
from logwright.codec.table import Table

SYSTEMS = ("kafka", "leveldb", "zookeeper")
"""Each is a folder beside this file whose `__init__` lists `CODECS` and `LAYOUTS`."""


@cache
def _all() -> tuple[dict[str, Codec], dict[str, Layout]]:
    codecs: dict[str, Codec] = {}
    layouts: dict[str, Layout] = {}
    for system in SYSTEMS:
        module = importlib.import_module(f"logwright.codec.{system}")
        codecs |= {codec.name: codec for codec in module.CODECS}
        layouts |= {layout.name: layout for layout in module.LAYOUTS}
    return codecs, layouts


def codecs() -> Sequence[Codec]:
    return list(_all()[0].values())


def layouts() -> Sequence[Layout]:
    return list(_all()[1].values())


def find(name: str) -> Codec | Layout:
    """The codec or layout of that name."""
    known: dict[str, Codec | Layout] = {**_all()[0], **_all()[1]}
    if name in known:
        return known[name]
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


def detect_layout(listing: Listing) -> Layout | None:
    """The layout of a directory; None when it is none that we know."""
    best = max(layouts(), key=lambda layout: layout.recognise(listing), default=None)
    return best if best is not None and best.recognise(listing) > Match.NO else None
