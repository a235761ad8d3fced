"""Select records by what a person knows of an event."""

from collections.abc import Callable
from dataclasses import dataclass

from dedup.rules.policies.decode import Undecodable
from dedup.rules.policies.starlark import FilterFailed, compile_expression
from dedup.rules.record import Record
from outbox import envelope
from outbox.errors import InvalidEvent
from outbox.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSelection:
    """All of these must hold; None: any."""

    key: bytes | None = None
    id: str | None = None
    type: str | None = None
    source: str | None = None
    passes: Callable[[Event], bool] | None = None
    """The filter of `where`, compiled."""

    def selects(self, record: Record) -> bool:
        """
        Return whether a record is selected; one that cannot be read has no attributes.

        A filter that cannot decide on an event does not select it, as for a policy.
        """
        if self.key is not None and record.key != self.key:
            return False
        if self.id is not None and record.identity.id != self.id:
            return False
        if self.type is None and self.source is None and self.passes is None:
            return True
        try:
            event = envelope.decode(record)  # whatever its value is
            return (
                (self.type is None or event.type == self.type)
                and (self.source is None or event.source == self.source)
                and (self.passes is None or self.passes(record.event))
            )
        except (InvalidEvent, Undecodable, FilterFailed):
            return False


def selection(
    *,
    key: str | None = None,
    id_: str | None = None,
    type_: str | None = None,
    source: str | None = None,
    where: str | None = None,
) -> RecordSelection:
    """
    Return the selection; `where` is an expression as filters of policies have it.

    Raises:
        BadSettings: `where` is no such expression.
    """
    return RecordSelection(
        key=None if key is None else key.encode(errors="surrogateescape"),
        id=id_,
        type=type_,
        source=source,
        passes=None if where is None else compile_expression(where),
    )
