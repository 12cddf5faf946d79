"""Filters: which rows to return, and which frames and files cannot hold any of them.

A filter is DNF tuples, `[("offset", ">=", 5), ("key", "==", b"x")]` (all must match) or a list of such lists (one must match), text,
`"offset >= 5 and key == x"`, or a pyarrow expression. The first two forms prune: a frame or file whose bounds exclude every match is
skipped. As in SQL, null matches no comparison; `("key", "==", None)` selects nulls. `("value", "contains", b"token")` matches values that
contain these bytes, or this text, and `("path", "like", "/brokers/%")` those that fit a pattern of SQL: `%` is any text, `_` one character, or
one byte of a column of bytes, and a backslash makes the next character ordinary.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from logwright.codec.arrays import Bools
from logwright.codec.base import Codec
from logwright.codec.deferred import compute as pc
from logwright.codec.fault import UsageError
from logwright.codec.option import parse_hexadecimal
from logwright.codec.table import Column, Table
from logwright.codec.window import Frames
from logwright.readers.filter_text import OPERATORS, parse

Conditions = Any
"""A tuple, a list of tuples, a list of lists of tuples, text, or a pyarrow expression."""

_COMPARE = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_SEARCH = {"contains": "match_substring", "like": "match_like"}
"""The functions of `pyarrow.compute`."""
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class _Term:
    """One comparison. `value` is a Python value of the column's type; times are integers in the column's unit, and `in` has a tuple.
    `always` is set if the result is the same for all rows that are not null."""

    column: Column
    op: str
    value: Any
    always: bool | None = None

    def mask(self, batch: pa.RecordBatch) -> Any:
        values = batch.column(self.column.name)
        if self.always is not None:
            return pc.and_(pc.is_valid(values), pa.scalar(self.always))
        if self.op in ("in", "not in"):
            chosen = pc.is_in(values, value_set=self._array([v for v in self.value if v is not None]))
            if self.op == "not in":
                chosen = pc.invert(chosen)
            known = pc.and_(chosen, pc.is_valid(values))
            if None in self.value:
                # A list that holds null matches null with `in`, and excludes it with `not in`.
                return pc.or_(known, pc.is_null(values)) if self.op == "in" else known
            return known
        if search := _SEARCH.get(self.op.removeprefix("not ")):
            matching = getattr(pc, search)(values, self.value)
            return pc.fill_null(pc.invert(matching) if self.op.startswith("not ") else matching, False)
        if self.value is None:
            return pc.is_null(values) if self.op == "==" else pc.is_valid(values)
        return pc.fill_null(getattr(pc, _COMPARE[self.op])(values, self._array([self.value])[0]), False)

    def _array(self, values: list[Any]) -> Any:
        return pa.array(values, self.column.type)

    def possible(self, low: Any, high: Any) -> Any:
        """Return whether a value between `low` and `high` can match. They are arrays or single values; None means no bound."""
        if self.always is not None:
            return self.always
        if self.op == "like" and isinstance(self.value, bytes):
            return self._possible_pattern(low, high)
        if self.value is None or self.op not in (*_COMPARE, "in"):
            return True
        if self.op == "in":
            known = [_Term(self.column, "==", value).possible(low, high) for value in self.value]
            return np.logical_or.reduce(known) if known else False
        if self.op == "!=":
            return True if low is None or high is None else (low != self.value) | (high != self.value)
        out: Any = True
        if self.op in ("==", "<", "<=") and low is not None:
            out = (low < self.value) if self.op == "<" else (low <= self.value)
        if self.op in ("==", ">", ">=") and high is not None:
            out = out & ((high > self.value) if self.op == ">" else (high >= self.value))
        return out

    def _possible_pattern(self, low: Any, high: Any) -> Any:
        start = re.split(rb"[%_\\]", self.value, maxsplit=1)[0]
        out = _Term(self.column, ">=", start).possible(low, high)
        begin = start.rstrip(b"\xff")
        if begin:
            out = out & _Term(self.column, "<", begin[:-1] + bytes([begin[-1] + 1])).possible(low, high)
        return out


class Filter:
    """A filter for the rows of a table. It can be pickled unless it is an expression."""

    def __init__(self, conditions: Conditions, table: Table) -> None:
        """Raises `UsageError` for an unknown column or operator, or a value that does not fit the column."""
        self._expression: pc.Expression | None = None
        self._any: list[list[_Term]] = []
        if isinstance(conditions, pc.Expression):
            self._expression = conditions
            self.columns = _columns_of(conditions, table)
            return
        self._any = [[_term(condition, table) for condition in group] for group in _groups(conditions)]
        self.columns = tuple(dict.fromkeys(term.column.name for group in self._any for term in group))

    def also(self, other: Filter) -> Filter:
        """Return the conjunction with another filter. Neither may be an expression."""
        both = object.__new__(Filter)
        both._expression = None
        both._any = [mine + theirs for mine in self._any for theirs in other._any]
        both.columns = tuple(dict.fromkeys((*self.columns, *other.columns)))
        return both

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the matching rows."""
        if self._expression is not None:
            return batch.filter(self._expression)
        if not self._any or not batch.num_rows:
            return batch
        return batch.filter(self._mask(batch))

    def places(self, batch: pa.RecordBatch) -> list[int]:
        """Return the indexes of the matching rows."""
        numbered = batch.append_column("__number__", pa.array(np.arange(batch.num_rows)))
        numbers: list[int] = self.apply(numbered).column("__number__").to_pylist()
        return numbers

    def _mask(self, batch: pa.RecordBatch) -> Any:
        result: Any = None
        for group in self._any:
            conjunction: Any = None
            for term in group:
                mask = term.mask(batch)
                conjunction = mask if conjunction is None else pc.and_(conjunction, mask)
            result = conjunction if result is None else pc.or_(result, conjunction)
        return result

    def frames(self, codec: Codec, frames: Frames) -> Bools | None:
        """Return which frames can hold a matching row; None if unknown."""
        bounds: dict[str, tuple[Any, Any]] = {}
        for group in self._any:
            for term in group:
                name = term.column.name
                if term.column.prunes and name not in bounds:
                    bounds[name] = codec.frame_bounds(frames, name)
        if not bounds:
            return None
        out = np.zeros(len(frames), bool)
        for group in self._any:
            conjunction = np.ones(len(frames), bool)
            for term in group:
                conjunction &= term.possible(*bounds.get(term.column.name, (None, None)))
            out |= conjunction
        return out

    def only(self, column: str) -> Filter | None:
        """Return the conditions on one column that every matching row meets; None without such conditions."""
        groups = [[term for term in group if term.column.name == column] for group in self._any]
        if not groups or not all(groups):
            return None
        return self._of(groups)

    @classmethod
    def between(cls, base: Filter | None, column: Column, low: Any, high: Any) -> Filter:
        """Return `base` restricted to rows with `low <= column < high`. None means no bound, or no filter."""
        terms = [_Term(column, op, value) for op, value in ((">=", low), ("<", high)) if value is not None]
        groups = [[]] if base is None else base._any
        return cls._of([[*group, *terms] for group in groups])

    @classmethod
    def _of(cls, groups: list[list[_Term]]) -> Filter:
        new = cls.__new__(cls)
        new._expression, new._any = None, groups
        new.columns = tuple(dict.fromkeys(term.column.name for group in groups for term in group))
        return new

    def skips(self, bounds: Mapping[str, tuple[Any, Any]]) -> bool:
        """Return whether no row within these bounds can match."""
        return bool(self._any) and not any(
            all(bool(term.possible(*bounds.get(term.column.name, (None, None)))) for term in group)
            for group in self._any
        )


def understand(conditions: Conditions, table: Table) -> Filter | None:
    """Parse a filter; None if there are no conditions. Text must have one: a script may pass an empty variable."""
    if conditions is None or (isinstance(conditions, list | tuple) and not conditions):
        return None
    return conditions if isinstance(conditions, Filter) else Filter(conditions, table)


# Parsing


def _groups(conditions: Conditions) -> list[list[Any]]:
    if isinstance(conditions, str):
        return parse(conditions)
    if isinstance(conditions, tuple) and len(conditions) == 3 and isinstance(conditions[0], str):
        return [[conditions]]
    if isinstance(conditions, Iterable):
        groups = list(conditions)
        if all(isinstance(group, list) and group for group in groups):
            return groups
        if all(isinstance(group, tuple) for group in groups):
            return [groups]
    raise UsageError(
        f"invalid filter {conditions!r}",
        advice='Pass [("offset", ">=", 5), ("key", "==", b"x")], a list of such lists, text, or a pyarrow expression',
    )


def _term(term: Any, table: Table) -> _Term:
    if not (isinstance(term, tuple | list) and len(term) == 3 and isinstance(term[0], str)):
        raise UsageError(f"a filter term is (column, operator, value), not {term!r}")
    name, op, value = term
    column = table[table.select([name])[0]]
    op = " ".join(str(op).lower().split())
    op = "==" if op == "=" else op
    if op not in OPERATORS:
        raise UsageError(f"unknown filter operator {op!r}", advice=f"Valid values: {', '.join(OPERATORS)}")
    if op in ("in", "not in"):
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise UsageError(f"filter on {name!r}: {op} needs a list of values, not {value!r}")
        return _among(column, op, list(value))
    if op.removeprefix("not ") in _SEARCH:
        return _Term(column, op, _part(column, op, value))
    if value is None:
        if op not in ("==", "!="):
            raise UsageError(f"filter on {name!r}: null can only be compared with == and !=")
        return _Term(column, op, None)
    low, exact = _convert(column, value)
    if not exact:
        # `low` is the nearest value of the column's type below the conditions one.
        if op in ("==", "!="):
            return _Term(column, op, low, always=op == "!=")
        op = ">" if op in (">", ">=") else "<="
    limits = _limits(column.type)
    if limits and not limits[0] <= low <= limits[1]:
        below = low < limits[0]
        return _Term(column, op, low, always={"==": False, "!=": True}.get(op, (op in (">", ">=")) == below))
    return _Term(column, op, low)


def _part(column: Column, op: str, value: Any) -> Any:
    """Return what an operator searches for. Raises `UsageError` for a column without text or bytes, for an empty value, and for a pattern
    that ends in an escape."""
    kind = column.type
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if not (binary or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise UsageError(
            f"filter on {column.name!r}: {op} searches text and bytes, but this column is {kind}",
            advice="Use ==, < or >",
        )
    if not isinstance(value, str | bytes | bytearray | memoryview) or not len(value):
        raise UsageError(
            f"filter on {column.name!r}: {op} needs text or bytes, not {value!r}",
            advice="Example: value contains token, value contains x'00ff', or value like 'user-%'",
        )
    if not binary and not isinstance(value, str):
        try:
            value = bytes(value).decode()
        except UnicodeDecodeError:
            raise UsageError(
                f"filter on {column.name!r}: {value!r} is not UTF-8, but this column is text",
                advice="Search a column of bytes instead",
            ) from None
    part = _convert(column, value)[0]
    backslash = b"\\" if binary else "\\"
    if op.endswith("like") and (len(part) - len(part.rstrip(backslash))) % 2:
        raise UsageError(
            f"filter on {column.name!r}: the pattern {value!r} ends in a backslash, which escapes nothing",
            advice="Write a backslash as two",
        )
    return part


def _among(column: Column, op: str, values: Sequence[Any]) -> _Term:
    kept: list[Any] = []
    limits = _limits(column.type)
    for value in values:
        if value is None:
            kept.append(None)
            continue
        low, exact = _convert(column, value)
        if exact and (not limits or limits[0] <= low <= limits[1]):
            kept.append(low)
    return _Term(column, op, tuple(kept))


def _limits(kind: pa.DataType) -> tuple[int, int] | None:
    if pa.types.is_timestamp(kind):
        return -(1 << 63), (1 << 63) - 1
    if pa.types.is_signed_integer(kind):
        return -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1
    return None


def _convert(column: Column, value: Any) -> tuple[Any, bool]:
    """Convert a value to the column's type. Return the nearest value below it, and whether that is exact."""
    kind = column.type
    try:
        if isinstance(value, np.generic):
            value = (
                value.item()
                if not isinstance(value, np.datetime64)
                else value.astype("datetime64[us]").item()
            )
        if pa.types.is_timestamp(kind):
            return _time(value, kind.unit)
        if pa.types.is_boolean(kind):
            if isinstance(value, str) and value.lower() in ("true", "false"):
                value = value.lower() == "true"
            if not isinstance(value, bool):
                raise ValueError("expected true or false")
            return value, True
        if pa.types.is_integer(kind):
            return _number(value, hexadecimal=column.hexadecimal)
        if pa.types.is_floating(kind):
            return float(value), True
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            if isinstance(value, Mapping) and list(value) == ["$hex"]:
                return bytes.fromhex(value["$hex"]), True
            return (value.encode() if isinstance(value, str) else bytes(memoryview(value))), True
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            if not isinstance(value, str):
                raise ValueError("expected text")
            return value, True
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"filter on {column.name!r}: {value!r} is not a valid {kind} ({error})") from None
    raise UsageError(
        f"column {column.name!r} of type {kind} cannot be compared",
        advice="Filter by another column, or with a pyarrow expression",
    )


def _number(value: Any, *, hexadecimal: bool = False) -> tuple[int, bool]:
    if isinstance(value, bool):
        raise ValueError("expected a number")
    if isinstance(value, str):
        if hexadecimal:
            return parse_hexadecimal(value), True
        try:
            return int(value, 0), True
        except ValueError:
            raise ValueError("expected an integer") from None
    if isinstance(value, int):
        return value, True
    return math.floor(value), math.floor(value) == value


def _time(value: Any, unit: str) -> tuple[int, bool]:
    """Convert a time. Integers are in the column's unit; text is ISO 8601, UTC if it has no zone."""
    if isinstance(value, str):
        try:
            return int(value), True
        except ValueError:
            value = datetime.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):
        since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
        micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        scaled = micros * _PER_SECOND[unit]
        return scaled // 1_000_000, scaled % 1_000_000 == 0
    return _number(value)


def _columns_of(expression: pc.Expression, table: Table) -> tuple[str, ...]:
    """Return the columns that an expression names. pyarrow does not list them, but fails if one is missing."""
    empty = table.schema(table.names(detail=True)).empty_table()
    try:
        empty.filter(expression)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        missing = re.search(r"No match for FieldRef\.Name\((.*?)\)", str(error))
        if missing:
            table.select([missing[1]])  # raises, with the nearest name
        raise UsageError(
            f"filter {expression} cannot be applied to these columns ({str(error).splitlines()[0]})"
        ) from None
    named = []
    for name in empty.column_names:
        try:
            empty.drop_columns([name]).filter(expression)
        except pa.ArrowInvalid:
            named.append(name)
    return tuple(named)
