"""Conditions and sizes in a description, as expressions of fields: `attributes & 7 != 0`.

The scalar codec evaluates an expression, the docs page prints it, and Kaitai Struct and ImHex get it translated.

Grammar and precedence are Python's: names of fields, `a.b` for a field of a structure, integers, arithmetic and bit operators,
comparisons, `and`, `or`, `a if c else b`, `key[3]` and `len(key)` for bytes. Three names look ahead: `left` is the number of bytes from
the start of the field to the end of the enclosing structure; `i32be(n)` and `u32be(n)` are the integer `n` bytes after that start.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

LEFT = "left"
OUTER = "outer"
"""The name of the structure that encloses the field's structure."""
PEEKS = {"i32be": True, "u32be": False}
"""Look-ahead functions, and whether the integer is signed."""
PEEK_SIZE = 4
UNBOUNDED = (1 << 31) - 1
"""The largest size of a value without a smaller limit: lengths are 32-bit in every format so far."""

OPERATORS: dict[type[ast.AST], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
"""Each operator as the languages of the docs spell it, and as Python computes it."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The bytes `data[at:end]` that are not read yet. `data` is None when writing."""

    at: int
    end: int
    data: bytes | bytearray | memoryview | None = None

    def peek(self, place: int, *, signed: bool) -> int | None:
        """Return the integer `place` bytes ahead; None if there are too few bytes."""
        start = self.at + place
        if self.data is None or start + PEEK_SIZE > self.end:
            return None
        return int.from_bytes(bytes(self.data[start : start + PEEK_SIZE]), "big", signed=signed)


class Expression:
    """A parsed expression. Raises `SyntaxError`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text, mode="eval").body

    @property
    def names(self) -> tuple[str, ...]:
        """The distinct names in order of appearance; `a` for `a.b`."""
        calls = {id(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        names = [node for node in ast.walk(self.tree) if isinstance(node, ast.Name) and id(node) not in calls]
        return tuple(dict.fromkeys(name.id for name in sorted(names, key=lambda name: name.col_offset)))

    @property
    def peeks(self) -> tuple[tuple[int, bool], ...]:
        """The distinct look-aheads: (place, signed)."""
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and called(node) in PEEKS]
        return tuple(dict.fromkeys((argument_of(call), PEEKS[called(call)]) for call in calls))

    @property
    def condition(self) -> bool:
        """Whether the expression is a condition, not a number."""
        return isinstance(self.tree, ast.Compare | ast.BoolOp)

    @property
    def looks(self) -> bool:
        """Whether the expression looks ahead."""
        return LEFT in self.names or bool(self.peeks)

    def value(self, scope: Mapping[str, Any], ahead: Ahead) -> Any:
        """Evaluate the expression. Raises `KeyError` for a name that is not in the scope."""
        return _value(self.tree, scope, ahead)


expression = cache(Expression)
"""Parse an expression, once per text."""


def called(call: ast.Call) -> str:
    """Return the name of the function that an expression calls; "" for anything else."""
    return call.func.id if isinstance(call.func, ast.Name) else ""


def argument_of(call: ast.Call) -> int:
    """Return the argument of a look-ahead, which is a constant."""
    place: int = ast.literal_eval(call.args[0])
    return place


def _value(tree: ast.expr, scope: Mapping[str, Any], ahead: Ahead) -> Any:
    match tree:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return ahead.end - ahead.at if name == LEFT else scope[name]
        case ast.Attribute(value=inner, attr=name):
            return _value(inner, scope, ahead)[name]
        case ast.Subscript(value=inner, slice=place):
            return _value(inner, scope, ahead)[_value(place, scope, ahead)]
        case ast.Call(args=[argument]) if called(tree) in PEEKS:
            return ahead.peek(_value(argument, scope, ahead), signed=PEEKS[called(tree)])
        case ast.Call(args=[argument]) if called(tree) == "len":
            return len(_value(argument, scope, ahead) or b"")
        case ast.IfExp(test=test, body=body, orelse=other):
            return _value(body if _value(test, scope, ahead) else other, scope, ahead)
        case ast.BoolOp(op=op, values=values):
            return (any if isinstance(op, ast.Or) else all)(_value(value, scope, ahead) for value in values)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, scope, ahead)
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            return OPERATORS[type(op)][1](_value(left, scope, ahead), _value(right, scope, ahead))
    raise SyntaxError(f"{ast.unparse(tree)!r} is not supported in an expression")
