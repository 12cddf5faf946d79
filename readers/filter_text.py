"""Filters as text: `offset >= 5 and (key in (a, "b c") or timestamp < 2025-01-01T00:00:00Z)`, parsed to the tuples of `readers.filter`.

`not` binds tighter than `and`, and `and` tighter than `or`. Bytes are `x'00ff'` or, as JSON output prints them, `{"$hex": "00ff"}`. A value
in double quotes is a JSON string with escapes; a value in single quotes has no escapes.
"""

from __future__ import annotations

import json
import re
from typing import Any

from logwright.codec.fault import UsageError

NEGATED = {
    "==": "!=",
    "<": ">=",
    ">": "<=",
    "in": "not in",
    "contains": "not contains",
    "like": "not like",
}
NEGATED |= {negative: positive for positive, negative in NEGATED.items()}
"""Each operator, and the one that matches the other values. Null matches neither of the two."""
OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "contains", "not contains", "like", "not like")

_QUOTED = r"""\"(?:[^"\\]|\\.)*\"|'[^']*'"""
_HEX = r"""[xX]'(?P<literal>[^']*)'|\{\s*"\$hex"\s*:\s*"(?P<printed>[^"]*)"\s*\}"""
_HEX_VALUE = re.compile(_HEX)
_SINGLE_VALUE = re.sub(r"\?P<\w+>", "?:", _HEX) + "|" + _QUOTED
_TOKEN = re.compile(
    rf"""\s*(?P<column>\w+)\s*(?P<op>==|=|!=|<=|>=|<|>|\bis(?:\s+not)?\b|(?:\bnot\s+)?\b(?:in|contains|like)\b)\s*
        (?P<value>\((?:{_QUOTED}|[^()"'])*\)|{_SINGLE_VALUE}|[^\s()"'=<>!][^\s()"']*)\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_LIST_ITEM = re.compile(rf"{_SINGLE_VALUE}|[^\s,()]+")
_AND, _OR, _NOT = (re.compile(rf"\s*{word}\b", re.IGNORECASE) for word in ("and", "or", "not"))
_OPEN, _CLOSE = re.compile(r"\s*\("), re.compile(r"\)\s*")
_DEEPEST = 50
"""Limit of nested parentheses and negations."""
_MOST_GROUPS = 10_000
"""Limit of the disjunctive normal form, which parentheses can multiply."""

_Group = list[tuple[str, str, Any]]


def parse(text: str) -> list[_Group]:
    """Parse a filter. Returns its disjunctive normal form. Raises `UsageError`."""
    groups, at = _alternatives(text, 0, 0)
    if at < len(text):
        raise UsageError(f"filter {text!r}: expected `and` or `or` before {text[at:]!r}")
    return groups


def _alternatives(text: str, at: int, depth: int) -> tuple[list[_Group], int]:
    """Parse operands joined by `or`. Return their disjunctive normal form and the position after them."""
    out: list[_Group] = []
    while True:
        groups, at = _conjunction(text, at, depth)
        out += groups
        join = _OR.match(text, at)
        if not join:
            return out, at
        at = join.end()


def _conjunction(text: str, at: int, depth: int) -> tuple[list[_Group], int]:
    out: list[_Group] = [[]]
    while True:
        groups, at = _operand(text, at, depth)
        out = _both(out, groups, text)
        join = _AND.match(text, at)
        if not join:
            return out, at
        at = join.end()


def _both(first: list[_Group], second: list[_Group], text: str) -> list[_Group]:
    if len(first) * len(second) > _MOST_GROUPS:
        raise UsageError(f"filter {text!r}: too many combinations of `and` and `or`")
    return [[*mine, *theirs] for mine in first for theirs in second]


def _negated(groups: list[_Group], text: str) -> list[_Group]:
    """Return the negation: one condition of each group does not hold."""
    out: list[_Group] = [[]]
    for group in groups:
        out = _both(out, [[(column, NEGATED[op], value)] for column, op, value in group], text)
    return out


def _operand(text: str, at: int, depth: int) -> tuple[list[_Group], int]:
    """Parse a comparison, or a filter in parentheses, or the negation of either."""
    if negation := _NOT.match(text, at):
        groups, at = _operand(text, negation.end(), _deeper(text, depth))
        return _negated(groups, text), at
    if opening := _OPEN.match(text, at):
        groups, at = _alternatives(text, opening.end(), _deeper(text, depth))
        closing = _CLOSE.match(text, at)
        if not closing:
            where = f"before {text[at:]!r}" if at < len(text) else "at the end"
            raise UsageError(f"filter {text!r}: expected `)` {where}")
        return groups, closing.end()
    token = _TOKEN.match(text, at)
    if not token:
        raise UsageError(
            f"filter {text!r}: syntax error at {text[at:]!r}",
            advice=f"Write a column, an operator ({', '.join(OPERATORS)}) and a value or null, "
            "as in 'offset >= 5 and (key == a or key is null)'",
        )
    op, raw = " ".join(token["op"].lower().split()), token["value"]
    op = "==" if op == "=" else op
    many = raw.startswith("(")
    if many != (op in ("in", "not in")):
        raise UsageError(
            f"filter {text!r}: {op} cannot be used with {raw}", advice='Example: "partition in (0, 1)"'
        )
    if op in ("is", "is not"):
        if raw.lower() != "null":
            raise UsageError(
                f"filter {text!r}: {op} cannot be used with {raw}",
                advice="Only null follows `is`; compare with ==",
            )
        op = "==" if op == "is" else "!="
    value = [_word(item) for item in _LIST_ITEM.findall(raw)] if many else _word(raw)
    return [[(token["column"], op, value)]], token.end()


def _deeper(text: str, depth: int) -> int:
    if depth == _DEEPEST:
        raise UsageError(f"filter {text!r}: more than {_DEEPEST} nested parentheses and negations")
    return depth + 1


def _word(raw: str) -> str | bytes | None:
    """Return the value of a token of a filter; bytes if it is hexadecimal."""
    if token := _HEX_VALUE.fullmatch(raw):
        return _hex_bytes(token["printed"] if token["literal"] is None else token["literal"], raw)
    if raw[:1] == "'":
        return raw[1:-1]
    if raw[:1] == '"':
        try:
            return str(json.loads(raw, strict=False))
        except ValueError:
            raise UsageError(
                f"filter value {raw} is not a JSON string",
                advice="Write a backslash as \\\\, or use single quotes, which have no escapes",
            ) from None
    return None if raw.lower() == "null" else raw


def _hex_bytes(text: str, raw: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError(
            f"filter value {raw} is not hexadecimal",
            advice='Write two hexadecimal digits per byte, as in x\'00ff\' or {"$hex": "00ff"}',
        ) from None
