"""Combine frames that are damaged in each of several copies, in different places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from logwright.codec import registry
from logwright.codec.engine.correct import Corrector
from logwright.codec.fault import Fault, LogwrightError, Severity
from logwright.codec.frames.walk import Hole, Walk
from logwright.codec.store.listing import PlannedFile
from logwright.readers.corrected import corrected_directory, healed_by_corrections
from logwright.readers.report_data import FileReport, ReportData
from logwright.readers.target import DirectoryTarget
from logwright.readers.task import codec_options


def combine_copies(copies: Sequence[DirectoryTarget], reports: Sequence[ReportData]) -> None:
    """Add the frames of the first copy that another one completes to its report, as corrections."""
    first, report = copies[0], reports[0]
    for other, of_other in zip(copies[1:], reports[1:], strict=True):
        for entry in report.files:
            same = next((file for file in of_other.files if file.path == entry.path), None)
            if same is None or not entry.primary or entry.codec is None:
                continue
            both = {fault.offset for fault in _left(entry)} & {fault.offset for fault in _left(same)}
            if both:
                try:
                    _Pair(first, other, report, of_other).combine(entry, both)
                except LogwrightError:
                    continue  # The repair itself reports it.
    report.healed = healed_by_corrections(report)


def _left(entry: FileReport) -> list[Fault]:
    """Return the damage that no correction removes."""
    return [
        fault
        for fault in entry.faults
        if fault.length and fault.severity is Severity.ERROR and fault.offset not in entry.healed
    ]


@dataclass(frozen=True)
class _Pair:
    first: DirectoryTarget
    other: DirectoryTarget
    report: ReportData
    of_other: ReportData

    def combine(self, entry: FileReport, offsets: set[int]) -> None:
        file: PlannedFile = self.first.plan[entry.path]
        codec = registry.get(str(entry.codec))
        name = entry.path.rpartition("/")[2]
        hints = self.first.hints(file.hints)
        context = codec.context(name, codec_options(codec, self.first.options), **hints)
        ours = corrected_directory(self.first.directory, self.report)
        theirs = corrected_directory(self.other.directory, self.of_other)
        with ours.open(entry.path) as source, theirs.open(entry.path) as donor:
            corrector = Corrector(source, codec, context)
            for step in Walk(source, codec, context):
                if isinstance(step, Hole) and step.fault.offset in offsets:
                    combined = corrector.combine(step, donor)
                    if combined is not None:
                        entry.corrections.append(combined)
                        entry.healed |= {step.fault.offset}
