"""
Decide a filter's plain comparisons in Python: a field of the value with a number or a text.

Starlark takes some microseconds for each event, most of it for the way there and back. For equal
types, an integer compares in Python as it does there, and so does a text that is tested for
equality. Starlark decides everything else, with its own errors.
"""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from outbox.event import Event

Decide: TypeAlias = Callable[[Event], bool | None]
"""Decides on an event; None: it leaves that to Starlark."""

_OPERATORS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = MappingProxyType(
    {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
    }
)
_EQUALITY = frozenset({ast.Eq, ast.NotEq})


def plain(tree: ast.expr) -> Decide | None:
    """Return what decides `tree`, an expression with subscripts for fields; None: it is more."""
    match tree:
        case ast.BoolOp(joined, parts):
            decides = [plain(each) for each in parts]
            found = [each for each in decides if each is not None]
            is_whole = len(found) == len(decides)
            return _joined(found, ends=isinstance(joined, ast.Or)) if is_whole else None
        case ast.Compare(
            ast.Subscript(ast.Name("value"), ast.Constant(str(name))), [compared], [other]
        ):
            constant = _constant(other)
            kinds = _OPERATORS if constant.__class__ is int else _EQUALITY
            if constant is None or type(compared) not in kinds:
                return None
            return _compared(name, _OPERATORS[type(compared)], constant)
        case _:
            return None


def _constant(tree: ast.expr) -> int | str | None:
    match tree:
        case ast.Constant(value) if value.__class__ in {int, str}:
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int(value))) if value.__class__ is int:
            return -value
        case _:
            return None


def _compared(name: str, compare: Callable[[Any, Any], bool], constant: int | str) -> Decide:
    kind = constant.__class__

    def decide(event: Event) -> bool | None:
        value = event.value
        found: Any = value.get(name) if isinstance(value, dict) else None
        return compare(found, constant) if found.__class__ is kind else None

    return decide


def _joined(parts: Sequence[Decide], *, ends: bool) -> Decide:
    """Return what joins `parts` with `or` (`ends`: the first that is true decides) or `and`."""

    def decide(event: Event) -> bool | None:
        for part in parts:
            found = part(event)
            if found is None or found is ends:
                return found
        return not ends

    return decide
