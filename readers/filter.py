"""Filters: which rows are wanted, and which frames and files need not be read for them.

Given as DNF tuples, `[("offset", ">=", 5), ("key", "==", b"x")]` (all must hold) or a list of such lists (one of them must),
as text, `"offset >= 5 and key == x"`, or as a pyarrow expression. The first two prune: a frame or file whose bounds say that
no row can match is skipped. As in SQL a null matches no comparison; `("key", "==", None)` asks for nulls.
`("value", "contains", b"token")` matches values with these bytes, or this text, anywhere in them.

In text, bytes are `x'00ff'` or, as JSON output prints them, `{"$hex": "00ff"}`. A value in double quotes is a JSON string,
with its escapes; a value in single quotes is taken as it is.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logwright.codec.base import Codec
from logwright.codec.fault import UsageError
from logwright.codec.option import parse_hexadecimal
from logwright.codec.table import Column, Table
from logwright.codec.window import Frames

Given = Any
"""A tuple, a list of tuples, a list of lists of tuples, text, or a pyarrow expression."""

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_OPS = (*_COMPARE, "=", "in", "not in", "contains")
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class _Term:
    """One comparison. `value` is a Python value of the column's type, times as integers in the column's unit; for `in` a
    tuple. `always` is set where the answer is the same for all rows that are not null."""

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
                # A null is in a list that holds null; a list that holds null excludes nulls.
                return pc.or_(known, pc.is_null(values)) if self.op == "in" else known
            return known
        if self.op == "contains":
            return pc.fill_null(pc.match_substring(values, self.value), False)
        if self.value is None:
            return pc.is_null(values) if self.op == "==" else pc.is_valid(values)
        return pc.fill_null(_COMPARE[self.op](values, self._array([self.value])[0]), False)

    def _array(self, values: list[Any]) -> Any:
        return pa.array(values, self.column.type)

    def possible(self, low: Any, high: Any) -> Any:
        """Whether a row with a value between `low` and `high` can match; arrays or single values, None is no bound."""
        if self.always is not None:
            return self.always
        if self.value is None or self.op in ("not in", "contains"):
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


class Filter:
    """A filter, understood against the table it is to be used on. Picklable when it is no expression."""

    def __init__(self, given: Given, table: Table) -> None:
        """Raises `UsageError` for an unknown column or operator, or a value that does not fit the column."""
        self._expression: pc.Expression | None = None
        self._any: list[list[_Term]] = []
        if isinstance(given, pc.Expression):
            self._expression = given
            self.columns = _columns_of(given, table)
            return
        self._any = [[_term(one, table) for one in group] for group in _groups(given)]
        self.columns = tuple(dict.fromkeys(term.column.name for group in self._any for term in group))

    def also(self, other: Filter) -> Filter:
        """What both let pass; neither is an expression."""
        both = object.__new__(Filter)
        both._expression = None
        both._any = [one + more for one in self._any for more in other._any]
        both.columns = tuple(dict.fromkeys((*self.columns, *other.columns)))
        return both

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that match."""
        if self._expression is not None:
            return batch.filter(self._expression)
        if not self._any or not batch.num_rows:
            return batch
        return batch.filter(self._mask(batch))

    def places(self, batch: pa.RecordBatch) -> list[int]:
        """The numbers of the rows that match."""
        numbered = batch.append_column("__number__", pa.array(np.arange(batch.num_rows)))
        found: list[int] = self.apply(numbered).column("__number__").to_pylist()
        return found

    def _mask(self, batch: pa.RecordBatch) -> Any:
        found: Any = None
        for group in self._any:
            one: Any = None
            for term in group:
                mask = term.mask(batch)
                one = mask if one is None else pc.and_(one, mask)
            found = one if found is None else pc.or_(found, one)
        return found

    def frames(self, codec: Codec, frames: Frames) -> npt.NDArray[np.bool_] | None:
        """Which frames can hold a row that matches; None when that can't be told."""
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
            one = np.ones(len(frames), bool)
            for term in group:
                one &= term.possible(*bounds.get(term.column.name, (None, None)))
            out |= one
        return out

    def only(self, column: str) -> Filter | None:
        """What a row has to be for this filter to let it pass, as far as one column tells; None where that tells nothing."""
        groups = [[term for term in group if term.column.name == column] for group in self._any]
        if not groups or not all(groups):
            return None
        return self._of(groups)

    @classmethod
    def between(cls, given: Filter | None, column: Column, low: Any, high: Any) -> Filter:
        """What `given` lets pass of the rows from `low` on and before `high`; None is no bound, and no filter."""
        terms = [_Term(column, op, value) for op, value in ((">=", low), ("<", high)) if value is not None]
        groups = [[]] if given is None else given._any
        return cls._of([[*group, *terms] for group in groups])

    @classmethod
    def _of(cls, groups: list[list[_Term]]) -> Filter:
        made = cls.__new__(cls)
        made._expression, made._any = None, groups
        made.columns = tuple(dict.fromkeys(term.column.name for group in groups for term in group))
        return made

    def skips(self, bounds: Mapping[str, tuple[Any, Any]]) -> bool:
        """Whether no row within these bounds can match."""
        return bool(self._any) and not any(
            all(bool(term.possible(*bounds.get(term.column.name, (None, None)))) for term in group)
            for group in self._any
        )


def understand(given: Given, table: Table) -> Filter | None:
    """The filter, None when nothing is filtered."""
    if given is None or (isinstance(given, str | list | tuple) and not given):
        return None
    return given if isinstance(given, Filter) else Filter(given, table)


# What is given


def _groups(given: Given) -> list[list[Any]]:
    if isinstance(given, str):
        return _parse(given)
    if isinstance(given, tuple) and len(given) == 3 and isinstance(given[0], str):
        return [[given]]
    if isinstance(given, Iterable):
        groups = list(given)
        if all(isinstance(one, list) and one for one in groups):
            return groups
        if all(isinstance(one, tuple) for one in groups):
            return [groups]
    raise UsageError(
        f"a filter can't be {given!r}",
        advice='Write [("offset", ">=", 5), ("key", "==", b"x")], or a list of such lists, or a pyarrow expression',
    )


_QUOTED = r"""\"(?:[^"\\]|\\.)*\"|'[^']*'"""
_HEX = r"""[xX]'(?P<literal>[^']*)'|\{\s*"\$hex"\s*:\s*"(?P<printed>[^"]*)"\s*\}"""
_HEX_VALUE = re.compile(_HEX)
_SINGLE_VALUE = re.sub(r"\?P<\w+>", "?:", _HEX) + "|" + _QUOTED
_TOKEN = re.compile(
    rf"""\s*(?P<column>\w+)\s*(?P<op>==|=|!=|<=|>=|<|>|\bnot\s+in\b|\bin\b|\bcontains\b)\s*
        (?P<value>\((?:{_QUOTED}|[^()"'])*\)|{_SINGLE_VALUE}|[^\s()"'=<>!][^\s()"']*)\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_LIST_ITEM = re.compile(rf"{_SINGLE_VALUE}|[^\s,()]+")
_JOIN = re.compile(r"(and|or)\b", re.IGNORECASE)


def _parse(text: str) -> list[list[tuple[str, str, Any]]]:
    """`offset >= 5 and key in (a, "b c") or timestamp < 2025-01-01T00:00:00Z`; `and` binds stronger."""
    out: list[list[tuple[str, str, Any]]] = [[]]
    at = 0
    while True:
        found = _TOKEN.match(text, at)
        if not found:
            raise UsageError(
                f"filter {text!r} is not understood from {text[at:]!r} on", advice='As in "offset >= 5"'
            )
        op = " ".join(found["op"].lower().split())
        raw = found["value"]
        many = raw.startswith("(")
        if many != (op in ("in", "not in")):
            raise UsageError(
                f"filter {text!r}: {op} {raw} makes no sense", advice='As in "partition in (0, 1)"'
            )
        value = [_word(one) for one in _LIST_ITEM.findall(raw)] if many else _word(raw)
        out[-1].append((found["column"], op, value))
        at = found.end()
        if at == len(text):
            return out
        join = _JOIN.match(text, at)
        if not join:
            raise UsageError(f"filter {text!r}: `and` or `or` is missing before {text[at:]!r}")
        if join[1].lower() == "or":
            out.append([])
        at = join.end()


def _word(raw: str) -> str | bytes | None:
    """The value that a word of a filter stands for: bytes where they are given in hexadecimal."""
    if found := _HEX_VALUE.fullmatch(raw):
        return _hex_bytes(found["printed"] if found["literal"] is None else found["literal"], raw)
    if raw[:1] == "'":
        return raw[1:-1]
    if raw[:1] == '"':
        try:
            return str(json.loads(raw, strict=False))
        except ValueError:
            raise UsageError(
                f"filter value {raw} is not a JSON string",
                advice="Write a backslash as \\\\, or put the value into single quotes, which know no escapes",
            ) from None
    return None if raw.lower() == "null" else raw


def _hex_bytes(text: str, raw: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError(
            f"filter value {raw} is not hexadecimal",
            advice='Write two hexadecimal digits for each byte, as in x\'00ff\' or {"$hex": "00ff"}',
        ) from None


def _term(given: Any, table: Table) -> _Term:
    if not (isinstance(given, tuple | list) and len(given) == 3 and isinstance(given[0], str)):
        raise UsageError(f"a filter term is (column, operator, value), not {given!r}")
    name, op, value = given
    column = table[table.select([name])[0]]
    op = " ".join(str(op).lower().split())
    if op not in _OPS:
        raise UsageError(f"no filter operator {op!r}", advice=f"There are: {', '.join(_OPS)}")
    op = "==" if op == "=" else op
    if op in ("in", "not in"):
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise UsageError(f"filter on {name!r}: {op} needs a list of values, not {value!r}")
        return _among(column, op, list(value))
    if op == "contains":
        return _Term(column, op, _part(column, value))
    if value is None:
        if op not in ("==", "!="):
            raise UsageError(f"filter on {name!r}: null can be compared with == and != only")
        return _Term(column, op, None)
    low, exact = _convert(column, value)
    if not exact:
        # Between two values of the column's type, `low` is the one below.
        if op in ("==", "!="):
            return _Term(column, op, low, always=op == "!=")
        op = ">" if op in (">", ">=") else "<="
    limits = _limits(column.type)
    if limits and not limits[0] <= low <= limits[1]:
        below = low < limits[0]
        return _Term(column, op, low, always={"==": False, "!=": True}.get(op, (op in (">", ">=")) == below))
    return _Term(column, op, low)


def _part(column: Column, value: Any) -> Any:
    """What `contains` looks for. Raises `UsageError` for a column without text or bytes, and for no bytes at all."""
    kind = column.type
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if not (binary or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise UsageError(
            f"filter on {column.name!r}: contains searches text and bytes, this column is {kind}",
            advice="Compare it with ==, < or >",
        )
    if not isinstance(value, str | bytes | bytearray | memoryview) or not len(value):
        raise UsageError(
            f"filter on {column.name!r}: contains needs some text or bytes, not {value!r}",
            advice="Write for example: value contains token, or value contains x'00ff'",
        )
    if not binary and not isinstance(value, str):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise UsageError(
                f"filter on {column.name!r}: {value!r} is not UTF-8, and this column is text",
                advice="Search a column of bytes",
            ) from None
    return _convert(column, value)[0]


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
    """A value as the column has it, and whether it is exactly that: if not, it is the next one below."""
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
                raise ValueError("true or false is needed")
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
                raise ValueError("text is needed")
            return value, True
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"filter on {column.name!r}: {value!r} does not fit {kind} ({error})") from None
    raise UsageError(
        f"column {column.name!r} of type {kind} can't be compared",
        advice="Filter by another column, or with a pyarrow expression",
    )


def _number(value: Any, *, hexadecimal: bool = False) -> tuple[int, bool]:
    if isinstance(value, bool):
        raise ValueError("a number is needed")
    if isinstance(value, str):
        return (parse_hexadecimal(value) if hexadecimal else int(value, 0)), True
    if isinstance(value, int):
        return value, True
    return math.floor(value), math.floor(value) == value


def _time(value: Any, unit: str) -> tuple[int, bool]:
    """Integers are in the column's unit already; text is ISO 8601, without a zone UTC."""
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
    """The columns an expression names: pyarrow does not tell, but it fails where one of them is missing."""
    whole = table.schema(table.names(detail=True)).empty_table()
    try:
        whole.filter(expression)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        missing = re.search(r"No match for FieldRef\.Name\((.*?)\)", str(error))
        if missing:
            table.select([missing[1]])  # raises, with the nearest name
        raise UsageError(
            f"filter {expression} does not fit the columns ({str(error).splitlines()[0]})"
        ) from None
    named = []
    for name in whole.column_names:
        try:
            whole.drop_columns([name]).filter(expression)
        except pa.ArrowInvalid:
            named.append(name)
    return tuple(named)
