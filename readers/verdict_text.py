"""The predicted start of the real system on a store, in words, for reports and messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logwright.codec.fault import Severity
from logwright.codec.plural import count, plural
from logwright.readers.report_data import ReportData

SCOPES = {
    "process": "does not start",
    "log_dir": "starts without this log directory",
    "partition": "starts without this partition",
}
"""Refusals of a system to open a store, by the scope of its error."""


def title(verdict: Mapping[str, Any]) -> str:
    """Return the name of the system in a verdict."""
    return str(verdict.get("title") or f"{verdict['name']} {verdict['version']}")


def after_stop(verdict: Mapping[str, Any]) -> str:
    """Return the system in a verdict, with the kind of stop if it makes a difference."""
    name = title(verdict)
    if not verdict["clean_from"]:
        return name
    return f"{name}, after {'a clean' if verdict['clean'] else 'an unclean'} stop"


def skips(verdict: Mapping[str, Any]) -> str:
    """Describe clients that continue after an error."""
    return f"skip unreadable data and end with the error {verdict['error']!r}"


def system(verdict: Mapping[str, Any], report: ReportData) -> str:
    """Describe what the real system would do if it were started now."""
    row, file = report.nouns
    head = f"{after_stop(verdict)}: "
    faults = [fault for _, fault in report.faults if fault.severity is not Severity.INFO]
    if not verdict["opens"]:
        refusal = _refusal(verdict)
        why = " ".join((verdict["error"] or verdict["error_class"] or "").split())
        # The error may repeat a fault above.
        known = any(fault.detail and fault.detail in why for fault in faults)
        return f"{head}{refusal}" if known or not why else f"{head}{refusal}: {why}"
    actions = ["opens it"]
    truncated = dict(verdict["truncates"])
    if len(truncated) > 2:
        actions.append(f"truncates {len(truncated)} files")
    else:
        named = _only_file(report)
        actions += [
            f"truncates {'this file' if name == named else name} to {count(size, 'byte')}"
            for name, size in truncated.items()
        ]
    primary = {entry.path for entry in report.files if entry.primary}
    deleted = [name for name in verdict["removes"] if name in primary]
    if deleted:
        later = "later " if truncated and all(name > max(truncated) for name in deleted) else ""
        actions.append(f"deletes {count(len(deleted), later + file)}")
    if verdict["rows_lost"]:
        loss = f"loses {count(verdict['rows_lost'], row)}"
    elif verdict["rows_lost"] is None and verdict["lost"]:
        loss = f"loses {plural(row)}"
    else:
        loss = "loses nothing more" if any(fault.lost for fault in faults) else "loses nothing"
    stops = verdict["serves"].get("stops_at")
    clients = ""
    if stops is not None:
        clients = f"; clients stop with an error at {stops}"
    elif verdict["error"]:
        clients = f"; clients {skips(verdict)}"
    return f"{head}{', '.join(actions)} and {loss}{clients}"


def _refusal(verdict: Mapping[str, Any]) -> str:
    return SCOPES.get(str(verdict["scope"]), "does not open it")


def _only_file(report: ReportData) -> str | None:
    """Return the file that the headline names."""
    named = {path for path, fault in report.faults if fault.severity is not Severity.INFO}
    return named.pop() if len(named) == 1 else None


def system_in_brief(verdict: Mapping[str, Any], report: ReportData) -> str:
    """Describe in a few words what the real system would do; "" if nothing is lost."""
    name = title(verdict)
    if not verdict["opens"]:
        return f"{name} {_refusal(verdict)}"
    if verdict["rows_lost"]:
        return f"{name} loses {count(verdict['rows_lost'], report.nouns[0])}"
    stops = verdict["serves"].get("stops_at")
    if stops is not None:
        return f"{name}'s clients stop at {stops}"
    return f"{name}'s clients end with an error" if verdict["error"] else ""
