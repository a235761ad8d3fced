"""Select records by an expression over the event in each."""

from collections.abc import Callable

from dedup.rules.policies.decode import Undecodable, as_json
from dedup.rules.policies.starlark import FilterFailed, compile_expression
from outbox.envelope import Record
from outbox.errors import InvalidEvent


def holds(text: str) -> Callable[[Record], bool]:
    """
    Return whether the expression `text` holds for the event in a record.

    It does not hold for an event on which it cannot decide, as for a policy.

    Raises:
        BadSettings: it is no expression.
    """
    passes = compile_expression(text)

    def has(record: Record) -> bool:
        try:
            return passes(as_json(record))
        except (InvalidEvent, Undecodable, FilterFailed):
            return False

    return has
