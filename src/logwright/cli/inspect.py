"""`logwright inspect`: describe files and directories from their headers."""

from __future__ import annotations

import datetime
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import click

from logwright.cli.common import ANY_OPTION, CODEC, RECURSIVE, paths_and_options, print_error, print_json
from logwright.codec.plural import count


@click.command("inspect", context_settings=ANY_OPTION)
@click.argument("path", nargs=-1, required=True)
@CODEC
@RECURSIVE
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(path: tuple[str, ...], codec: str | None, recursive: bool, as_json: bool) -> int:
    """Summarise files: format, offset and time ranges, sizes."""
    import logwright as lw

    paths, options = paths_and_options(path)
    results, failed = [], []
    for name in paths:
        try:
            results.append(lw.inspect(name, codec, recursive=recursive, **options))
        except lw.LogwrightError as error:
            if len(paths) == 1:
                raise
            failed.append(error)
    if as_json:
        print_json(results if len(paths) > 1 else results[0])
    elif results:
        click.echo("\n\n".join(map(render, results)))
    for failure in failed:
        print_error(failure)
    return 1 if failed or any(result.get("unopened") for result in results) else 0


_WIDEST = 80
"""The largest width of the column of file names. Longer names are not cut."""
_SHORT = ("segments", "log_start_offset", "last_segment")
"""Facts shown for each of several directories."""
_WORDS = {"error": "DAMAGED", "warning": "warning", "info": "note"}
_IDENTIFIES = re.compile(r"(^|_)(id|offset|segment|sequence|number|epoch|zxid|position|partition)$")
"""Names of numbers that identify something."""


def render(details: dict[str, Any]) -> str:
    """Render as text: a headline, a line for each fact, then the files."""
    details = dict(details)
    path = details.pop("path")
    codec = details.pop("codec")
    printed = _printed(codec)
    lines = [f"{click.style(path, bold=True)}  {codec}: {details.pop('title')}"]
    files, faults = details.pop("files", None), details.pop("faults", [])
    directories = details.pop("directories", [])
    notes = details.pop("notes", None) or []
    for name in ("kind", "views", "unopened"):
        details.pop(name, None)
    facts = {**details.pop("facts", {}), **details.pop("ranges", {}), **details.pop("counts", {}), **details}
    damaged = facts.pop("damaged", None)
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        if value not in (None, [], {}, ()):
            lines.append(f"  {name.ljust(width)}  {_value(name, value, printed)}")
    if directories:
        names = [store["path"].removeprefix(f"{path.rstrip('/')}/") for store in directories]
        wide = max(map(len, names))
        lines.append("  directories")
        for name, store in zip(names, directories, strict=True):
            facts = store["facts"]
            summary = ", ".join(
                f"{fact} {_value(fact, facts[fact])}" for fact in _SHORT if facts.get(fact) is not None
            )
            lines.append(f"    {name.ljust(wide)}  {store['bytes']:>14,}  {summary}")
    if files:
        wide = min(max(len(file["name"]) for file in files), _WIDEST)
        lines.append("  files")
        for file in files:
            note = f"  {file['note']}" if file["note"] else ""
            lines.append(
                f"    {file['name'].ljust(wide)}  {file['size']:>14,}  {file['role']:<9}  {file['codec'] or '-'}{note}"
            )
    lines += [f"  {note}" for note in notes]
    for fault in faults:
        if not fault["detail"]:  # the regular end of a file
            continue
        where = f"{fault['file']}  " if fault.get("file") else ""
        where += f"at {fault['offset']}, {count(fault['length'], 'byte')}: " if fault["length"] else ""
        lines.append(f"  {_WORDS[fault['severity']]}  {where}{fault['detail']}")
    for region in damaged or ():
        lines.append(f"  damaged: {region['file']} from byte {region['offset']}: {region['detail']}")
    if damaged or any(fault["severity"] == "error" for fault in faults):
        lines.append(f"  logwright verify {shlex.quote(path)}   reports what is lost")
    return "\n".join(lines)


def _printed(codec: str) -> Mapping[str, Callable[[Any], str]]:
    """Return how the system prints numbers, such as zxids."""
    from logwright.codec import registry
    from logwright.codec.fault import UsageError

    try:
        return registry.find(codec).printed
    except UsageError:  # a container, or several layouts
        return {}


def _value(name: str, value: Any, printed: Mapping[str, Callable[[Any], str]] | None = None) -> str:
    """Format a fact. Quantities have separators of thousands; ids and offsets do not, so that they can be copied into a command."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if name in (printed or {}):
            return (printed or {})[name](value)
        if name.endswith("timestamp"):
            from logwright.codec.describe import time_of

            return time_of(value) or str(value)
        return str(value) if _IDENTIFIES.search(name) else f"{value:,}"
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    if isinstance(value, list) and len(value) == 2 and type(value[0]) is type(value[1]) not in (dict, list):
        return " .. ".join(_value(name, bound, printed) for bound in value)
    if isinstance(value, dict):
        pairs = ((each, item) for each, item in value.items() if each is not None)
        return ", ".join(f"{each}: {_value(each, item, printed)}" for each, item in pairs)
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        if all(len(item) == 1 for item in value):
            return ", ".join(_value(each, only, printed) for item in value for each, only in item.items())
        return "; ".join(_value(name, item, printed) for item in value)
    if isinstance(value, list | tuple):
        return ", ".join(_value(name, item, printed) for item in value)
    return str(value)
