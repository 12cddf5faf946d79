"""Check directories of several stores as a whole: their own files against the stores, and the stores against each other."""

from __future__ import annotations

import os
from collections.abc import Sequence

from logwright.codec import registry
from logwright.codec.fault import LogwrightError
from logwright.readers.listing import open_listing
from logwright.readers.paths import Path, expand, is_directory
from logwright.readers.report import Report
from logwright.readers.resolve import configuration
from logwright.readers.source import STDIN
from logwright.readers.target import DirectoryTarget, Target


def check_containers(path: Path | Sequence[Path], targets: Sequence[Target], report: Report) -> None:
    """Add the faults of each directory of stores at a path, or named by a configuration file, to the reports of these stores. A missing
    store gets a new report."""
    for each in expand(path):
        config = None if each == STDIN else configuration(each)
        for place in [each] if config is None else config.directories:
            if report.parts and place != STDIN and is_directory(place):
                _check(place, targets, report)


def _check(place: str, targets: Sequence[Target], report: Report) -> None:
    try:
        listing = open_listing(place)
    except LogwrightError:
        return
    container = registry.container(listing)
    if container is None:
        return
    inside = {
        target.directory.name: target
        for target in targets
        if isinstance(target, DirectoryTarget) and os.path.dirname(target.path) == place.rstrip("/")
    }
    parts = {part.path: part for part in report.parts}
    for folder, file, fault in container.check(
        listing, {name: target.plan.facts for name, target in inside.items()}
    ):
        path = f"{place.rstrip('/')}/{folder}"
        if path not in parts:
            parts[path] = Report(path, container.layout, max_faults=report.max_faults)
            report.parts.append(parts[path])
        planned = {item.name: item.codec for item in inside[folder].plan.files} if folder in inside else {}
        parts[path].file(file, planned.get(file)).add(fault)
