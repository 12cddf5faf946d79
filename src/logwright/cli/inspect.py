"""`logwright inspect`: what it is, from headers alone."""

from __future__ import annotations

import datetime
import shlex
from typing import Any

import click

from logwright.cli.common import ANY_OPTION, RECURSIVE, paths_and_options, print_json


@click.command("inspect", context_settings=ANY_OPTION)
@click.argument("path", nargs=-1, required=True)
@click.option("--codec", help="What it is, when the name and the bytes don't tell; see `logwright codecs`.")
@RECURSIVE
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(path: tuple[str, ...], codec: str | None, recursive: bool, as_json: bool) -> int:
    """Say what files or directories are: kind, files, ranges of ids and times, sizes."""
    import logwright as lw

    paths, options = paths_and_options(path)
    if not paths:
        raise click.UsageError("a path is missing")

    if recursive:
        options["recursive"] = True
    found = [lw.inspect(one, codec, **options) for one in paths]
    if as_json:
        print_json(found if len(found) > 1 else found[0])
    else:
        for i, one in enumerate(found):
            click.echo(("\n" if i else "") + render(one))
    return 0


_SHORT = ("segments", "log_start_offset", "last_segment")
"""What is said of each of several directories."""


def render(found: dict[str, Any]) -> str:
    """A short text: the headline, then a line for each fact, then the files."""
    found = dict(found)
    path = found.pop("path")
    lines = [f"{click.style(path, bold=True)}  {found.pop('codec')}: {found.pop('title')}"]
    files, faults = found.pop("files", None), found.pop("faults", [])
    directories = found.pop("directories", [])
    notes = found.pop("notes", None) or []
    found.pop("kind"), found.pop("views", None)
    facts = {**found.pop("facts", {}), **found.pop("ranges", {}), **found.pop("counts", {}), **found}
    damaged = facts.pop("damaged", None)
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        if value not in (None, [], {}, ()):
            lines.append(f"  {name.ljust(width)}  {_value(value)}")
    if directories:
        wide = max(len(one["path"]) for one in directories)
        lines.append("  directories")
        for one in directories:
            said = ", ".join(
                f"{name} {_value(one['facts'][name])}"
                for name in _SHORT
                if one["facts"].get(name) is not None
            )
            lines.append(f"    {one['path'].ljust(wide)}  {one['bytes']:>14,}  {said}")
    if files:
        wide = max(len(file["name"]) for file in files)
        lines.append("  files")
        for file in files:
            note = f"  {file['note']}" if file["note"] else ""
            lines.append(
                f"    {file['name'].ljust(wide)}  {file['size']:>14,}  {file['role']:<9}  {file['codec'] or '-'}{note}"
            )
    lines += [f"  {note}" for note in notes]
    for fault in faults:
        where = f"{fault['file']} " if fault.get("file") else ""
        lines.append(
            f"  {fault['severity']}: {where}at {fault['offset']}: {fault['kind']}, {fault['detail']}"
        )
    for one in damaged or ():
        lines.append(f"  damaged: {one['file']} from byte {one['offset']} on: {one['detail']}")
    if damaged or any(fault["severity"] == "error" for fault in faults):
        lines.append(f"  logwright verify {shlex.quote(path)}   says what is lost")
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    if isinstance(value, list) and len(value) == 2 and type(value[0]) is type(value[1]) not in (dict, list):
        return f"{_value(value[0])} .. {_value(value[1])}"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_value(one)}" for name, one in value.items())
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        return "; ".join(_value(one) for one in value)
    if isinstance(value, list | tuple):
        return ", ".join(_value(one) for one in value)
    return str(value)
