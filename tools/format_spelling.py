"""Translate the expressions of format descriptions to other languages."""

from __future__ import annotations

import ast

from logwright.codec.expression import OPERATORS, PEEKS, argument_of, called, expression


class Spelling:
    """Translates expressions to another language. A subclass spells names and look-aheads."""

    both, either = "&&", "||"

    def name(self, name: str) -> str:
        """Spell the name of a field, or `left`."""
        raise NotImplementedError

    def peek(self, place: int, *, signed: bool) -> str:
        """Spell the integer `place` bytes ahead."""
        raise NotImplementedError

    def member(self, inner: str, name: str) -> str:
        """Spell a field of a structure."""
        return f"{inner}.{name}"

    def number(self, text: str) -> str:
        """Translate an expression to a number: 1 or 0 for a condition."""
        return f"{self.of(text)} ? 1 : 0" if expression(text).condition else self.of(text)

    def of(self, text: str) -> str:
        """Translate an expression. Raises `TypeError` for one that the language cannot express."""
        return self._of(expression(text).tree)

    def _of(self, tree: ast.expr) -> str:
        match tree:
            case ast.Constant(value=int(value)):
                return str(value)
            case ast.Name(id=name):
                return self.name(name)
            case ast.Attribute(value=inner, attr=name):
                return self.member(self._of(inner), name)
            case ast.Call() if called(tree) in PEEKS:
                return self.peek(argument_of(tree), signed=PEEKS[called(tree)])
            case ast.IfExp(test=test, body=body, orelse=other):
                return f"{self._of(test)} ? {self._inner(body)} : {self._inner(other)}"
            case ast.BoolOp(op=op, values=values):
                word = self.either if isinstance(op, ast.Or) else self.both
                return f" {word} ".join(self._inner(value, ast.BoolOp) for value in values)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"-{self._inner(operand)}"
            case (
                ast.BinOp(left=left, op=op, right=right)
                | ast.Compare(left=left, ops=[op], comparators=[right])
            ):
                return f"{self._inner(left)} {OPERATORS[type(op)][0]} {self._inner(right)}"
        raise TypeError(f"{ast.unparse(tree)!r} cannot be expressed")

    def _inner(self, tree: ast.expr, inside: type[ast.expr] | None = None) -> str:
        """Translate an operand, in parentheses if the language may have another precedence."""
        simple = (ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.UnaryOp)
        plain = isinstance(tree, simple) or (inside is ast.BoolOp and isinstance(tree, ast.Compare))
        return self._of(tree) if plain else f"({self._of(tree)})"
