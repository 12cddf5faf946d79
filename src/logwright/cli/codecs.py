"""`logwright codecs`: list the formats, or describe one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from logwright.cli.common import print_json


@click.command("codecs")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(name: str | None, as_json: bool) -> int:
    """List formats, or the views, columns and options of one.

    Codecs are formats of files, layouts are formats of directories. Core columns are returned by default, detail columns if --columns names
    them or is "*".
    """
    import logwright as lw

    known = lw.codecs(name)
    if as_json:
        print_json(known if name is None else known[0])
    elif name is not None:
        _print(known[0])
    else:
        width = max(len(entry["name"]) for entry in known)
        for entry in known:
            click.echo(
                f"{click.style(entry['name'].ljust(width), bold=True)}  {entry['kind']:<10}{entry['title']}"
            )
    return 0


_OPTIONS = {"options": "options", "read options": "read_options", "Spark options": "follow_options"}


def _print(entry: dict[str, Any]) -> None:
    click.echo(f"{click.style(entry['name'], bold=True)}: {entry['title']}")
    for view in entry.get("views", []):
        if view is entry["views"][0]:
            _head("views")
        default = " (default)" if view["name"] == entry["default_view"] else ""
        click.echo(f"  {view['name']:<20}{view['doc']}{default}  [{_shows(view)}]")
    for name, table in _tables(entry).items():
        _head(f"columns of {name}")
        columns = table["columns"]
        width = _width(column["name"] for column in columns)
        types = _width(column["type"] for column in columns)
        for column in columns:
            kind = "detail" if column["detail"] else "core"
            click.echo(f"  {column['name']:<{width}}  {column['type']:<{types}}  {kind:<8}{column['doc']}")
    for title, name in _OPTIONS.items():
        options = entry.get(name, [])
        if options:
            _head(title)
        width = _width(option["name"] for option in options)
        defaults = _width(_value(option["default"]) for option in options)
        for option in options:
            named = [str(choice) for choice in option["choices"] or () if choice not in (None, "")]
            choices = f" [{', '.join(named)}]" if named else ""
            value = _value(option["default"])
            click.echo(f"  {option['name']:<{width}}  {value:<{defaults}}  {option['doc']}{choices}")


_WIDEST = 40
"""Wider texts do not widen their column."""


def _width(texts: Iterable[str]) -> int:
    return max((len(text) for text in texts if len(text) < _WIDEST), default=0)


def _value(default: Any) -> str:
    """Return a default as typed on the command line; "" without a default."""
    return "" if default is None else str(default).lower() if isinstance(default, bool) else str(default)


def _shows(view: dict[str, Any]) -> str:
    """Return the name of the table that a view shows."""
    return f"view {view['name']}" if "rows" in view else f"{view['codec']}: {view['table']}"


def _tables(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the tables of a codec, or those that the views of a layout show."""
    import logwright as lw

    if "views" not in entry:
        return dict(entry["tables"])
    shown = dict.fromkeys((view["codec"], view["table"]) for view in entry["views"] if "rows" not in view)
    tables = {f"{codec}: {table}": lw.codecs(codec)[0]["tables"][table] for codec, table in shown}
    return tables | {f"view {view['name']}": view["rows"] for view in entry["views"] if "rows" in view}


def _head(text: str) -> None:
    click.echo("\n" + click.style(text, bold=True))
