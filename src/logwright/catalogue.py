"""What there is: every codec and layout with its views, columns and options, as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from logwright.codec import registry
from logwright.codec.base import Codec
from logwright.codec.layout import Layout
from logwright.codec.option import Option
from logwright.codec.table import Table
from logwright.readers import rescue


def codecs(name: str | None = None) -> list[dict[str, Any]]:
    """Every codec and layout, or the one of that name: its views, columns and options, with types and defaults."""
    gathered = [one for one in registry.containers() if name in (None, one.name)]
    if name is not None and not gathered:
        registry.find(name)  # raises, with the nearest name
    found = [_layout(one) for one in registry.layouts() if name in (None, one.name)]
    # Read as what it holds; nothing is written to it as a whole.
    found += [
        {**_layout(registry.get_layout(one.layout)), "name": one.name, "title": one.title, "options": []}
        for one in gathered
    ]
    return found + [_codec(one) for one in registry.codecs() if name in (None, one.name)]


def _layout(one: Layout) -> dict[str, Any]:
    follow = one.capabilities.follow
    return {
        "name": one.name,
        "kind": "directory",
        "title": one.title,
        "views": [
            {
                "name": view.name,
                "codec": view.codec,
                "table": view.table,
                "doc": view.doc,
                **({} if view.rows is None else {"rows": _table(view.rows)}),
            }
            for view in one.views.values()
        ],
        "default_view": one.default_view,
        "options": [_option(option) for option in one.options],
        "read_options": [_option(option) for option in _by_name((*one.read_options, *rescue.OPTIONS))],
        **({} if follow is None else {"follow_options": [_option(option) for option in follow.options]}),
    }


def _codec(one: Codec) -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": "file",
        "title": one.title,
        "tables": {name: _table(table) for name, table in one.tables.items()},
        "options": [_option(option) for option in one.options],
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
    """One declaration of each option: the first."""
    found: dict[str, Option] = {}
    for option in options:
        found.setdefault(option.name, option)
    return list(found.values())


def _option(option: Option) -> dict[str, Any]:
    return {
        "name": option.name,
        "default": option.default,
        "choices": list(option.choices),
        "doc": option.doc,
    }
