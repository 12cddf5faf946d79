"""`edit`: remove rows, or redact values, and leave all other frames as they are.

Damaged input is refused, since its content is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools
from logwright.codec.base import Codec
from logwright.codec.engine.repair import OutputFile, RepairPlan
from logwright.codec.fault import AccessError, DamageError, NotFoundError, UsageError
from logwright.codec.layout import Layout
from logwright.codec.option import Option, Options, Verb
from logwright.codec.store.build import Piece, Summary
from logwright.codec.store.listing import Plan
from logwright.codec.table import Table
from logwright.readers.filter import Conditions, Filter, understand
from logwright.readers.report import Report
from logwright.readers.resolve import resolve
from logwright.readers.target import FileTarget, Target, kind
from logwright.readers.task import known_options, separated
from logwright.readers.verify import VerifyOptions, verify
from logwright.writers.apply_plan import Original
from logwright.writers.edit_file import edit_file
from logwright.writers.repair import carry_out, refuse_busy, with_configuration
from logwright.writers.repair_report import EDIT
from logwright.writers.request import Request
from logwright.writers.write import rows_table


class Rows:
    """Changes of an edit to rows (`codec.engine.repair.Change`). With `every`, no filter is needed."""

    def __init__(
        self, table: Table, drop: Conditions, redact: Conditions, columns: Sequence[str] | str, value: bytes | str | None,
        *, every: bool | None = None, allow_no_match: bool = True,
    ) -> None:  # fmt: skip
        self._drop, self._redact = understand(drop, table), understand(redact, table)
        self.every = bool(every)
        self.copies = every is not None
        self._unmatched: dict[str, Conditions] = {}
        """Filters that have not matched a row yet, by name. Empty if no match is required."""
        if not allow_no_match:
            requested = {"drop": (self._drop, drop), "redact": (self._redact, redact)}
            self._unmatched = {
                name: source for name, (filter, source) in requested.items() if filter is not None
            }
        if self._drop is None and self._redact is None and every is None:
            raise UsageError(
                "nothing to change",
                advice="Remove rows with drop, or replace values with redact: drop=[('key', '==', b'user-7')] "
                "(--drop 'key == user-7')",
            )
        if self._redact is None and value not in (b"", ""):
            raise UsageError("with_ (--with, --with-null) has no effect without redact (--redact)")
        known: list[str] = []
        for filter in (self._drop, self._redact):
            known += filter.columns if filter is not None else ()
        self.columns: Sequence[str] = tuple(dict.fromkeys(known))
        self.values: Mapping[str, bytes | None] = {}
        if self._redact is not None:
            new = value.encode() if isinstance(value, str) else value
            self.values = dict.fromkeys(table.select(columns), new)
            for name in self.values:
                _refuse_column(table, name)
            if not self.values:
                raise UsageError("no columns to redact")

    def drops(self, rows: pa.RecordBatch) -> Bools:
        return self._counted("drop", _mask(self._drop, rows))

    def redacts(self, rows: pa.RecordBatch) -> Bools:
        return self._counted("redact", _mask(self._redact, rows))

    def _counted(self, name: str, mask: Bools) -> Bools:
        if name in self._unmatched and mask.any():
            del self._unmatched[name]
        return mask

    def check_matched(self, path: str) -> None:
        """Raise `NotFoundError` if a filter matched no row. Call this after all rows."""
        for name, filter in self._unmatched.items():
            raise NotFoundError(
                f"no row matches {name}: {filter}; nothing was written",
                path=path,
                advice="Check the filter with `logwright dump --filter`. If it is right, pass allow_no_match=True (--allow-no-match)",
            )


class _Matching(RepairPlan):
    """An edit that fails after its last file if a filter matched no row."""

    def __init__(self, plan: RepairPlan, change: Rows, path: str) -> None:
        super().__init__(plan.listing)
        self._plan, self._change, self._path = plan, change, path

    def outputs(self) -> Iterator[OutputFile | Piece]:
        yield from self._plan.files()
        self._change.check_matched(self._path)
        self.cut = self._plan.cut

    def summary(self) -> Summary:
        return self._plan.summary()


def _refuse_column(table: Table, name: str) -> None:
    type_ = table[name].type
    if not (pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or name == "headers"):
        raise UsageError(
            f"column {name!r} of type {type_} cannot be redacted",
            advice="Only columns of bytes (value, key) and headers can be redacted",
        )


def _mask(filter: Filter | None, rows: pa.RecordBatch) -> Bools:
    out = np.zeros(len(rows), np.bool_)
    if filter is not None:
        out[filter.places(rows)] = True
    return out


def edit(
    path: Any, codec: str | None, make_rows: Callable[[Table], Rows], request: Request,
    report_of: Callable[[Sequence[Target]], Report], options: Mapping[str, Any],
) -> Report:  # fmt: skip
    """See `logwright.edit`."""
    request.check()
    targets, own, change = _resolve(path, codec, options, make_rows)
    first = targets[0]
    if isinstance(first, FileTarget):
        refuse_busy(request, targets)
        report = verify(targets, report_of(targets), VerifyOptions())
        refuse_damaged(report)
        edit_file(first, change, own, request, report)
        return report
    directory_edit = first.layout.capabilities.edit
    assert directory_edit is not None
    report = report_of([first])

    def make(copies: Sequence[Original], plans: Sequence[Plan]) -> RepairPlan:
        refuse_damaged(report)
        for name in change.values if directory_edit.redacts else ():
            if name not in directory_edit.redacts:
                only = ", ".join(directory_edit.redacts)
                raise UsageError(
                    f"{name} cannot be redacted",
                    advice=f"Only {only} can: pass columns={only} (--columns {only})",
                )
        return _Matching(directory_edit.edit(copies[0], plans[0], change, own), change, first.path)

    carry_out([first], make, request, lambda _: report, EDIT, False)
    return report


def _resolve(
    path: Any, codec: str | None, options: Mapping[str, Any], make_rows: Callable[[Table], Rows]
) -> tuple[list[Target], Options, Rows]:
    targets = resolve(path, codec, {})
    if len(targets) != 1:
        raise UsageError(
            f"{len(targets)} stores or files match; edit takes one", advice="Edit them one by one"
        )
    first = targets[0]
    owner: Codec | Layout = first.codec if isinstance(first, FileTarget) else first.layout
    if owner.capabilities.edit is None:
        raise UsageError(f"a {kind(first)} cannot be edited", path=first.path)
    table = first.codec.tables["rows"] if isinstance(first, FileTarget) else rows_table(first.layout)
    change = make_rows(table)
    declared: tuple[Option, ...] = owner.capabilities.edit.options
    if isinstance(owner, Layout) and owner.capabilities.edit is not None:
        # Options that are not passed have their defaults.
        moves = owner.capabilities.edit.move_options
        if not change.copies and (known := known_options(options, moves)):
            raise UsageError(f"edit does not use {next(iter(known))}", advice="It is an option of convert")
        declared += moves
    shared = () if isinstance(first, FileTarget) else first.layout.read_options
    _, reading = separated(options, declared, shared)
    own = Options(declared, known_options(with_configuration(first, options, Verb.EDIT), declared))
    more = declared if change.copies else ()
    return (resolve(path, codec, reading, verb=Verb.EDIT, more=more) if reading else targets), own, change


def refuse_damaged(
    report: Report, effect: str = "matching rows may be missed", then: str = "edit the result"
) -> None:
    """Raise `DamageError` for the first error of a report. `effect`: what damage would cause; `then`: what to do after a repair."""
    if report.ok:
        return
    name, fault = next((entry for entry in report.faults if entry[1].severity == "error"), ("", None))
    if report.denied and fault is not None:
        raise AccessError(
            fault.detail, path=name or report.path, advice="Run as a user who may read the files"
        )
    error = DamageError(
        f"it is damaged ({fault.detail if fault is not None else 'see the report'}), so {effect}",
        path=name or report.path,
        offset=None if fault is None else fault.offset,
        advice=f"Repair it first with `logwright repair`, and {then}",
    )
    error.fault = fault
    raise error
