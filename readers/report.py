"""A report that can print itself. Its data is in `readers.report_data`, its text in `readers.report_text`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logwright.codec.deferred import deferred
from logwright.readers.report_data import ReportData

if TYPE_CHECKING:
    from logwright.readers import report_text
else:
    report_text = deferred("logwright.readers", "report_text")


class Report(ReportData):
    """The result of reading or checking `path`. It is a mapping equal to `to_dict()`; `str()` is a text for an operator."""

    parts: list[Report]  # type: ignore[assignment]

    def text(self, width: int | None = None) -> str:
        """Return a few lines that end with the next command to type. `width`: characters per line."""
        return report_text.text(self, width or report_text.WIDTH)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        state = "ok" if self.ok else "not checked" if self.denied else "damaged"
        return f"<Report {self.path}: {', '.join([state, *self.fault_counts()])}>"
