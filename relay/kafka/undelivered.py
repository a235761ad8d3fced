"""Keep what a producer could not deliver, and find out which event is to blame."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from confluent_kafka import KafkaError, Message

from relay.errors import Unpublishable
from relay.kafka.errors import CLOCK, OF_TOPIC, POISON, code_of
from relay.rules.parking import Reason, Scope
from relay.rules.row import Row, content_of

Failure: TypeAlias = tuple[KafkaError, Message, Row | None]
"""The error, the record, and the record's row if the producer knows it."""

_Chain: TypeAlias = tuple[Failure, "_Chain"] | None


class Undelivered:
    """The failures that one producer reports."""

    def __init__(self) -> None:
        self.first: Failure | None = None
        self._all: _Chain = None

    def reported(
        self, error: KafkaError | None, message: Message, *, row: Row | None = None
    ) -> None:
        """Keep a record that could not be delivered (successes are not reported)."""
        # Nothing is called here: while a fatal error is pending, no call succeeds.
        if error is not None:
            failure = (error, message, row)
            self.first = self.first or failure
            self._all = (failure, self._all)

    def poison(self) -> Failure | None:
        """
        Return the first failure of a record that the broker will never take, if there is one.

        Records that are purged because of it may be reported before it.
        """
        found = list(self._poison())
        return found[-1] if found else None

    def of_clocks(self) -> Failure | None:
        """Return a failure that shows that the clocks of relay and broker differ, or None."""
        failures = self._all
        while failures is not None:
            failure, failures = failures
            if failure[0].code() in CLOCK:
                return failure
        return None

    def unpublishable(
        self, rows: Sequence[Row], row: Row, cause: KafkaError, *, is_known: bool
    ) -> Unpublishable:
        """
        Return the error which says that `row`, one of `rows`, was refused for `cause`.

        If not `is_known`, the cause may be another event that was sent with it.
        """
        refused = [len(m.key() or b"") + len(m.value() or b"") for _, m, _ in self._poison()]
        # All events of a request share its fate; and of two identical events, either may be the
        # cause.
        alike = list(map(content_of, rows)).count(content_of(row))
        alone = is_known or (len(refused) <= 1 and alike == 1)
        scope = Scope.EVENT if alone else Scope.REQUEST
        if cause.code() in OF_TOPIC:
            scope = Scope.TOPIC
        reason = Reason(code_of(cause), cause.str())
        return Unpublishable(
            row,
            reason,
            scope=scope,
            before=rows.index(row),
            request_bytes=sum(refused),
            # Events that were sent alone and refused as well, so that one retry gets past all of
            # them.
            alike=[each for e, _, each in self._poison() if each and e.code() == cause.code()],
        )

    def _poison(self) -> Iterator[Failure]:
        """
        Yield the records that the broker refused because of their content, the last one first.
        """
        failures = self._all
        while failures is not None:
            failure, failures = failures
            if failure[0].code() in POISON:
                yield failure
