"""Shared by the threads of a producer: the events that nobody has accepted yet, and a lock."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable

from outbox.producer.options import Counted, Options, RouteState
from outbox.producer.routing import Routing
from outbox.producer.waiting import Answer, Via, Waiting

_log = logging.getLogger("dovecote.producer")


class Ledger:
    """Call everything except `give` and `count` with `changed` held."""

    def __init__(self, options: Options, observe: Callable[[Counted, int], None] | None) -> None:
        self.changed = threading.Condition()
        self.routing = Routing(fresh=options.fresh)
        self.waiting = Waiting(events=options.max_events, size=options.max_bytes)
        self.kafka_trouble: str | None = None
        """Why events go through the outbox."""
        self.outbox_trouble: str | None = None
        """Why they do not get there."""
        self._observe = observe
        self._has_reported = False

    @property
    def state(self) -> RouteState:
        return RouteState(
            "up" if self.routing.is_up else "down",
            len(self.waiting),
            self.waiting.size,
            self.routing.lanes,
            self.kafka_trouble,
            self.outbox_trouble,
        )

    def accepted(self, numbers: Iterable[int], by: Via) -> list[Answer]:
        """Return the answers for events that Kafka or the outbox has."""
        return self._notified([self.waiting.accepted(number, by) for number in numbers])

    def refused(self, numbers: Iterable[int], why: str | None = None) -> list[Answer]:
        """
        Return the answers for events that neither is known to have.

        `why` is what Postgres says of them; by default, why they do not get there.
        """
        kafka = self.kafka_trouble or "not tried, as earlier events may be in the outbox"
        outbox = why or self.outbox_trouble or "has not answered"
        reasons = f"Kafka: {kafka}; Postgres: {outbox}"
        return self._notified([self.waiting.refused(number, reasons) for number in numbers])

    def _notified(self, answers: list[Answer]) -> list[Answer]:
        if answers:
            self.changed.notify_all()
        return answers

    def give(self, answers: Iterable[Answer]) -> None:
        """Deliver the answers to the callers that wait, and count them."""
        for what, count in Counter(answer.give() for answer in answers).items():
            self.count(what, count)

    def count(self, what: Counted, count: int) -> None:
        """
        Report a count to the service; an exception in its callback keeps no event from being sent.
        """
        if self._observe is None:
            return
        try:
            self._observe(what, count)
        except Exception:  # noqa: BLE001  # whatever it is: it is not ours
            # Log it once: the callback will fail for every event.
            if not self._has_reported:
                _log.exception("`observe` failed; events are sent all the same")
            self._has_reported = True
