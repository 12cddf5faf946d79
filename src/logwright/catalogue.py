"""List every codec and layout with its views, columns and options, as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.layout import Layout
from logwright.codec.option import Option
from logwright.codec.table import Table
from logwright.readers import rescue
from logwright.readers.traceback import short_traceback


@short_traceback
def codecs(name: str | None = None) -> list[dict[str, Any]]:
    """Return every codec and layout, or the one called `name`: its views, columns and options, with types and defaults."""
    containers = [container for container in registry.containers() if name in (None, container.name)]
    if name is not None and not containers:
        registry.find(name)  # raises, with the nearest name
    entries = [_layout(layout) for layout in registry.layouts() if name in (None, layout.name)]
    # A container is read as the stores in it.
    entries += [
        {
            **_layout(registry.get_layout(container.layout)),
            "name": container.name,
            "title": container.title,
            "options": []
            if container.writer is None
            else [_option(option) for option in container.writer.options],
        }
        for container in containers
    ]
    return entries + [_codec(codec) for codec in registry.codecs() if name in (None, codec.name)]


def _layout(layout: Layout) -> dict[str, Any]:
    follow = layout.capabilities.follow
    return {
        "name": layout.name,
        "kind": "directory",
        "title": layout.title,
        "views": [
            {
                "name": view.name,
                "codec": view.codec,
                "table": view.table,
                "doc": view.doc,
                **({} if view.rows is None else {"rows": _table(view.rows)}),
            }
            for view in layout.views.values()
        ],
        "default_view": layout.default_view,
        "options": [_option(option) for option in layout.options],
        "read_options": [_option(option) for option in _by_name((*layout.read_options, *rescue.OPTIONS))],
        **({} if follow is None else {"follow_options": [_option(option) for option in follow.options]}),
    }


def _codec(codec: Codec) -> dict[str, Any]:
    return {
        "name": codec.name,
        "kind": "file",
        "title": codec.title,
        "tables": {name: _table(table) for name, table in codec.tables.items()},
        "options": [_option(option) for option in codec.options],
        "read_options": [_option(option) for option in rescue.OPTIONS],
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "doc": table.doc,
        "columns": [
            {
                "name": column.name,
                "type": str(column.type),
                "nullable": column.nullable,
                "detail": column.detail,
                "prunes": column.prunes,
                "doc": column.doc,
            }
            for column in table.columns
        ],
    }


def _by_name(options: Iterable[Option]) -> list[Option]:
    """Return the first declaration of each option."""
    first: dict[str, Option] = {}
    for option in options:
        first.setdefault(option.name, option)
    return list(first.values())


def _option(option: Option) -> dict[str, Any]:
    return {
        "name": option.name,
        "default": option.default,
        "choices": list(option.choices),
        "doc": option.doc,
    }
