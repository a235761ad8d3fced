"""
A filter from a Starlark expression over an event's `value`, `key` and `headers`.

Copying an event into Starlark costs more than most expressions do, so only what an expression
reads is copied. It is compiled to a function of the variables that it names, and gets only those
fields of the value and the headers that it names.
"""

import ast
import re
import warnings
from collections.abc import Callable, Mapping
from itertools import chain, repeat
from typing import TypeAlias

import starlark

from dedup.rules.policies.comparisons import plain
from outbox import envelope
from outbox.errors import BadSettings, DovecoteError
from outbox.event import Event

Fields: TypeAlias = frozenset[str] | None
"""The fields of a variable that an expression reads; None: it may read any."""

# Starlark asks whether to stop once in some hundred calls or thousand steps of a loop: this allows
# about 50 ms. It is a count, not a time: the same filter must decide the same on any machine.
_CHECKS = 1000
_CALL_DEPTH = 50
# Python raises the last two if parentheses or operators nest too deeply.
_UNREADABLE = (starlark.StarlarkError, SyntaxError, ValueError, RecursionError, MemoryError)
_STRAIGHT = starlark.EvalOptions(max_callstack_size=_CALL_DEPTH)
# On a value they would see the methods of a dict, not the fields of the object.
_MISLEADING = frozenset({"hasattr", "getattr", "dir"})


class FilterFailed(DovecoteError):
    """
    A filter could not decide on an event; for example, a field is missing or of another type.
    """


def compile_expression(text: str) -> Callable[[Event], bool]:
    """
    Return the filter that the Starlark expression `text` describes.

    `a.b` and `a["b"]` both read the field b of an object. The filter raises `FilterFailed` for an
    event without a field that it comes to read.

    Raises:
        BadSettings: `text` is not an expression, or names something that is not there.
    """
    tree = _parse(text)
    reads = {name: fields for name, fields in _reads(tree).items() if fields != frozenset()}
    try:
        module = _module(
            f"def passes({', '.join(reads)}):\n    return bool({ast.unparse(tree)})\n"
        )
    except _UNREADABLE as error:
        raise _not_a_filter(text, error) from error
    readers = tuple(_READERS[name](fields) for name, fields in reads.items())
    can_loop = any(isinstance(node, ast.comprehension | ast.Lambda) for node in ast.walk(tree))

    decide = plain(tree.body)

    def passes(event: Event) -> bool:
        decided = None if decide is None else decide(event)
        if decided is not None:
            return decided
        options = _interruptible() if can_loop else _STRAIGHT
        try:
            arguments = [read(event) for read in readers]
            return module.call_with(options, "passes", *arguments).value is True
        except BaseException as error:
            # A panic inside Starlark is not an Exception, but still only a failure of this event.
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                msg = f"filter {text!r} failed: {_reason(error)}"
                raise FilterFailed(msg) from error
            raise

    return passes


def _interruptible() -> starlark.EvalOptions:
    stop = chain(repeat(False, _CHECKS), repeat(True))  # noqa: FBT003  # answers, not flags
    return starlark.EvalOptions(check_cancelled=stop.__next__, max_callstack_size=_CALL_DEPTH)


def _parse(text: str) -> ast.Expression:
    source = f"({text}\n)"  # the parentheses let an expression span lines
    try:
        starlark.parse("filter", source)
        with warnings.catch_warnings():  # Python's advice on `x in (1)` is not meant for Starlark
            warnings.simplefilter("ignore")
            parsed = ast.parse(source, mode="eval")
        tree: ast.Expression = _Subscripts().visit(parsed)
    except _UNREADABLE as error:
        raise _not_a_filter(text, error) from error
    if isinstance(tree.body, ast.Tuple):
        msg = f"filter {text!r} is empty, or ends in a comma, or lists several; join them by `and`"
        raise BadSettings(msg)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _MISLEADING:
            msg = f'filter {text!r}: write `"name" in value` or `value.get("name")`, not {node.id}'
            raise BadSettings(msg)
    return tree


class _Subscripts(ast.NodeTransformer):
    """Turn `a.b` into `a["b"]`, unless b is called: there it is a method."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        inner = self.visit(node.value)
        return ast.Subscript(inner, ast.Constant(node.attr), node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = node.func
        if isinstance(function, ast.Attribute):
            function.value = self.visit(function.value)
        else:
            node.func = self.visit(function)
        node.args = [self.visit(argument) for argument in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        return node


def _reads(tree: ast.Expression) -> dict[str, Fields]:
    """Return the fields that the expression reads, for each variable that it names."""
    uses = dict.fromkeys(_READERS, 0)
    named: dict[str, list[str]] = {name: [] for name in _READERS}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in uses:
            uses[node.id] += 1
        match node:
            case (
                ast.Subscript(ast.Name(variable), ast.Constant(str(field)))
                | ast.Call(
                    ast.Attribute(ast.Name(variable), "get"), [ast.Constant(str(field)), *_]
                )
                | ast.Compare(
                    ast.Constant(str(field)), [ast.In() | ast.NotIn()], [ast.Name(variable)]
                )
            ) if variable in named:
                named[variable].append(field)
    # Every use must be one of those; `len(value)` or a lambda's own `value` needs it whole.
    return {
        name: frozenset(named[name]) if uses[name] == len(named[name]) else None for name in uses
    }


def _module(source: str) -> starlark.FrozenModule:
    module = starlark.Module()
    starlark.eval(module, starlark.parse("filter", source), starlark.Globals.standard())
    return module.freeze()


def _value_reader(fields: Fields) -> Callable[[Event], object]:
    def read(event: Event) -> object:
        value = event.value
        if fields is not None and isinstance(value, dict):
            return {name: value[name] for name in fields if name in value}
        return _text(value, "value")

    return read


def _key_reader(_: Fields) -> Callable[[Event], object]:
    return lambda event: _text(event.key, "key")


def _headers_reader(fields: Fields) -> Callable[[Event], object]:
    attributes = [pair for pair in _ATTRIBUTES.items() if fields is None or pair[0] in fields]

    def read(event: Event) -> object:
        first: dict[str, str | None] = {}
        for name, attribute in attributes:
            if (text := attribute(event)) is not None:
                first[name] = text
        for name, value in event.headers:
            if (fields is None or name in fields) and name not in first:
                first[name] = value.decode(errors="replace") if isinstance(value, bytes) else value
        return first

    return read


_READERS: Mapping[str, Callable[[Fields], Callable[[Event], object]]] = {
    "value": _value_reader,
    "key": _key_reader,
    "headers": _headers_reader,
}

# An event keeps these as fields of its own; on the record they are headers, so here too.
_ATTRIBUTES: Mapping[str, Callable[[Event], str | None]] = {
    envelope.ID: lambda event: event.id,
    envelope.TYPE: lambda event: event.type,
    envelope.SOURCE: lambda event: event.source,
    envelope.SUBJECT: lambda event: event.subject,
    envelope.TIME: lambda event: envelope.format_time(event.time),
    envelope.SPECVERSION: lambda _: "1.0",
    envelope.CONTENT_TYPE: lambda event: event.media_type(),
    envelope.TRACEPARENT: lambda event: event.traceparent,
}


def _text(value: object, name: str) -> object:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        msg = f"the {name} is not UTF-8 text, and Starlark has no bytes; use a module:function"
        raise ValueError(msg) from error


def _not_a_filter(text: str, error: Exception) -> BadSettings:
    return BadSettings(f"filter {text!r} is not a Starlark expression: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """Return the line of Starlark's report that names the error."""
    found = re.search(r"^error: (.*?)(?:, expected one of .*)?$", str(error), re.MULTILINE)
    return found[1] if found else str(error).partition("\n")[0] or type(error).__name__
