"""Keep what a producer could not deliver, and tell who is to blame."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from confluent_kafka import KafkaError, Message

from relay.capture.batch import Row
from relay.errors import Unpublishable
from relay.kafka_errors import OF_TOPIC, POISON
from relay.parking import Reason, Scope

_Chain: TypeAlias = tuple[KafkaError, Message, "_Chain"] | None


class Undelivered:
    """The failures that one producer reports."""

    def __init__(self) -> None:
        self.first: tuple[KafkaError, Message] | None = None
        self._all: _Chain = None

    def reported(self, error: KafkaError | None, message: Message) -> None:
        """Keep a record that could not be delivered (successes are not reported)."""
        # Nothing is called here: a fatal error may be pending, and then no call succeeds.
        if error is not None:
            self.first = self.first or (error, message)
            self._all = (error, message, self._all)

    def unpublishable(
        self, rows: Sequence[Row], row: Row, cause: KafkaError, *, one_by_one: bool
    ) -> Unpublishable:
        """Return what says that `row`, one of `rows`, was refused for `cause`."""
        refused = list(self._refused())
        # All of a request share its fate.
        alone = one_by_one or len(refused) <= 1
        scope = Scope.EVENT if alone else Scope.REQUEST
        if cause.code() in OF_TOPIC:
            scope = Scope.TOPIC
        reason = Reason(cause.name().lstrip("_"), cause.str())
        before = rows.index(row)
        return Unpublishable(row, reason, scope=scope, before=before, request_bytes=sum(refused))

    def _refused(self) -> Iterator[int]:
        """Yield the size of each record that the broker refused."""
        failures = self._all
        while failures is not None:
            error, message, failures = failures
            if error.code() in POISON:
                yield len(message.key() or b"") + len(message.value() or b"")
