"""A report that prints itself. Its content is in `readers.report_data`, its text in `readers.report_text`."""

from __future__ import annotations

from logwright.readers import report_text
from logwright.readers.report_data import ReportData


class Report(ReportData):
    """What was met while reading `path`. Reads like the dict of `to_dict()`; `str()` is the text for people."""

    parts: list[Report]  # type: ignore[assignment]

    def text(self, width: int | None = None) -> str:
        """Return a few lines that end in the next command to type. `width`: characters of a line."""
        return report_text.text(self, width or report_text.WIDTH)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        faults = f"{self.faults_total} fault{'' if self.faults_total == 1 else 's'}"
        return f"<Report {self.path}: {'ok' if self.ok else 'damaged'}, {faults}>"
