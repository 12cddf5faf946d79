"""`logwright codecs`: what is known, and everything about one of them."""

from __future__ import annotations

from typing import Any

import click

from logwright.cli.common import print_json


@click.command("codecs")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(name: str | None, as_json: bool) -> int:
    """List codecs (files) and layouts (directories), or the views, columns and options of one."""
    from logwright.codec import registry

    if name is None:
        known = [*registry.layouts(), *registry.codecs()]
        if as_json:
            print_json([{"name": one.name, "title": one.title} for one in known])
            return 0
        width = max(len(one.name) for one in known)
        for one in known:
            click.echo(f"{click.style(one.name.ljust(width), bold=True)}  {one.title}")
        return 0
    facts = describe(name)
    if as_json:
        print_json(facts)
    else:
        _print(facts)
    return 0


def describe(name: str) -> dict[str, Any]:
    """All that is declared about a codec or layout, as plain values."""
    from logwright.codec import registry

    one = registry.find(name)
    facts: dict[str, Any] = {"name": one.name, "title": one.title}
    options = list(one.options)
    views = getattr(one, "views", None)
    if views is not None:
        facts["views"] = [
            {"name": view.name, "doc": view.doc, "default": view.name == one.default_view, "of": view.codec}  # type: ignore[union-attr]
            for view in views.values()
        ]
        options += [option for option in one.read_options if option not in options]  # type: ignore[union-attr]
        codecs = sorted({view.codec for view in views.values()})
        tables = {f"{c}: {n}": t for c in codecs for n, t in registry.get(c).tables.items()}
    else:
        facts["structures"] = [structure.name for structure in one.structures]  # type: ignore[union-attr]
        tables = dict(one.tables)  # type: ignore[union-attr]
    facts["tables"] = {
        title: [
            {"name": c.name, "type": str(c.type), "kind": "detail" if c.detail else "core", "nullable": c.nullable, "doc": c.doc}
            for c in table.columns
        ]
        for title, table in tables.items()
    }  # fmt: skip
    facts["options"] = [
        {"name": o.name, "default": o.default, "doc": o.doc, **({"choices": list(o.choices)} if o.choices else {})}
        for o in options
    ]
    return facts


def _print(facts: dict[str, Any]) -> None:
    def head(text: str) -> None:
        click.echo("\n" + click.style(text, bold=True))

    click.echo(f"{click.style(facts['name'], bold=True)}: {facts['title']}")
    if "views" in facts:
        head("views")
        for view in facts["views"]:
            click.echo(f"  {view['name']:<18}{view['doc']}{' (default)' if view['default'] else ''}")
    for title, columns in facts["tables"].items():
        head(f"columns of {title}")
        for c in columns:
            click.echo(f"  {c['name']:<24}{c['type']:<24}{c['kind']:<8}{c['doc']}")
    if facts["options"]:
        head("options")
        for o in facts["options"]:
            choices = f" [{', '.join(o['choices'])}]" if "choices" in o else ""
            click.echo(f"  {o['name']:<28}{o['default']!s:<14}{o['doc']}{choices}")
