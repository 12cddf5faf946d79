"""Checking files and directories: every fault, nothing decoded for anybody."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from logwright.codec import registry
from logwright.codec.base import Codec, Role
from logwright.codec.fault import UsageError
from logwright.readers.report import FileReport, Report
from logwright.readers.resolve import FileTarget, Target
from logwright.readers.source import Source, open_source
from logwright.readers.stream import named
from logwright.readers.task import codec_options
from logwright.readers.walk import Hole, Stretch, Walk


class Depth(StrEnum):
    """How closely to look; each includes the ones before."""

    STRUCTURE = "structure"  # lengths, versions, order: what headers say
    CHECKSUMS = "checksums"
    RECORDS = "records"  # everything is decompressed and decoded

    @classmethod
    def of(cls, name: str) -> Depth:
        try:
            return cls(str(name).lower())
        except ValueError:
            near = difflib.get_close_matches(str(name).lower(), list(cls), n=1, cutoff=0.4)
            hint = f"Did you mean {str(near[0])!r}?" if near else f"There are: {', '.join(cls)}"
            raise UsageError(f"no depth {name!r}", advice=hint) from None


def verify(targets: Sequence[Target], report: Report, depth: Depth = Depth.RECORDS) -> Report:
    """Look at all that lies at some targets, and at what their layouts say of them; everything is noted in the report."""
    for target in targets:
        if isinstance(target, FileTarget):
            source = target.open()
            try:
                _file(
                    source,
                    target.codec,
                    target.options,
                    target.hints,
                    report.file(target.path, target.codec.name),
                    depth,
                )
            finally:
                if target.source is None:
                    source.close()
            continue
        inside = "" if len(targets) == 1 else f"{target.path.rstrip('/')}/"
        report.notes += target.directory.warnings
        if target.live:
            report.live = True
        elif report.live is None:
            report.live = target.live
        for file in target.plan.files:
            if file.codec is None or file.role in (Role.LEFTOVER, Role.FOREIGN):
                continue
            codec = registry.get(file.codec)
            entry = report.file(inside + file.name, codec.name)
            entry.primary = file.role is Role.PRIMARY
            with open_source(target.directory.real(file.name), target.directory.shown(file.name)) as source:
                _file(source, codec, target.options, target.hints(file.hints), entry, depth)
        for name, fault in target.plan.faults:
            report.file(inside + name, fault.codec).add(fault)
    return report


def _file(
    source: Source,
    codec: Codec,
    options: Mapping[str, Any],
    hints: Mapping[str, Any],
    entry: FileReport,
    depth: Depth,
) -> None:
    name = source.path.rstrip("/").rpartition("/")[2]
    context = codec.context(name, codec_options(codec, options), **hints)
    columns = codec.tables["rows"].select(None)
    entry.bytes += source.size
    with named(source):
        for found in Walk(source, codec, context, check=depth is not Depth.STRUCTURE):
            if isinstance(found, Hole):
                entry.add(found.fault, damaged=True)
            else:
                _frames(found, codec, columns, context, entry, depth)


def _frames(
    found: Stretch, codec: Codec, columns: Sequence[str], context: Any, entry: FileReport, depth: Depth
) -> None:
    entry.frames += len(found.frames)
    for fault in found.faults:
        entry.add(fault)
    if depth is Depth.RECORDS and len(found.frames):
        for decoded in codec.decode(found.window, found.frames, "rows", columns, context):
            entry.rows += decoded.batch.num_rows
            for _, fault in decoded.faults:
                entry.add(fault, damaged=True)
