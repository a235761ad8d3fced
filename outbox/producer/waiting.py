"""A limited number of events that nobody has accepted yet, each with the promise of an answer."""

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from outbox.errors import NotAccepted
from outbox.event import Event
from outbox.producer.options import Counted

Via: TypeAlias = Literal["kafka", "outbox"]
"""The acceptor of an event: the broker has acknowledged it, or Postgres has committed it."""

# Rough size of an event besides its key, value and headers, in bytes.
_OVERHEAD = 1_000


@dataclass(frozen=True, slots=True)
class Offer:
    """An event, the time when it was offered, and the promise of its answer."""

    event: Event
    since: float
    size: int
    answer: Future[Via]


class Answer(NamedTuple):
    """The answer to a waiting caller, to be given once no lock is held."""

    to: Future[Via]
    by: Via | NotAccepted

    def give(self) -> Counted:
        """Give it, and return what to count."""
        if isinstance(self.by, NotAccepted):
            self.to.set_exception(self.by)
            return "refused"
        self.to.set_result(self.by)
        return self.by


class Waiting:
    """Offers by their numbers, oldest first. The caller holds a lock."""

    def __init__(self, *, events: int, size: int) -> None:
        self._most_events, self._most_bytes = events, size
        self._offers: dict[int, Offer] = {}
        self._bytes = 0
        self._next = 0

    def __len__(self) -> int:
        return len(self._offers)

    @property
    def size(self) -> int:
        """Bytes of all events that wait."""
        return self._bytes

    def is_past(self, number: int) -> bool:
        """Return whether neither this offer nor any before it is waiting."""
        return next(iter(self._offers), number + 1) > number

    @property
    def newest(self) -> int:
        """The highest number of any offer so far."""
        return self._next - 1

    def has_room(self, size: int) -> bool:
        """Return whether one more may wait; the first one always may."""
        fits = len(self._offers) < self._most_events and self._bytes + size <= self._most_bytes
        return fits or not self._offers

    def add(self, event: Event, size: int, now: float) -> tuple[int, Future[Via]]:
        """Take an offer, and return its number and the promise."""
        number, self._next = self._next, self._next + 1
        answer: Future[Via] = Future()
        # The caller may give up waiting, but cannot take the event back.
        answer.set_running_or_notify_cancel()
        self._offers[number] = Offer(event, now, size, answer)
        self._bytes += size
        return number, answer

    def __getitem__(self, number: int) -> Offer:
        return self._offers[number]

    def renew(self, number: int, now: float) -> None:
        """Set an offer's time to now."""
        self._offers[number] = replace(self._offers[number], since=now)

    def accepted(self, number: int, by: Via) -> Answer:
        """Return the answer for an event that was accepted."""
        return Answer(self._pop(number).answer, by)

    def refused(self, number: int, reasons: str) -> Answer:
        """Return the answer for an event that was not accepted."""
        offer = self._pop(number)
        msg = (
            f"event {offer.event.id} for topic {offer.event.topic!r} is accepted neither by Kafka "
            f"nor by the outbox ({reasons}); it may be there all the same: send it again as it is"
        )
        return Answer(offer.answer, NotAccepted(msg))

    def older(self, numbers: Iterable[int], than: float) -> list[int]:
        """Return those of the events that were offered before `than`."""
        return [number for number in numbers if self._offers[number].since < than]

    def numbers(self) -> list[int]:
        return list(self._offers)

    def _pop(self, number: int) -> Offer:
        offer = self._offers.pop(number)
        self._bytes -= offer.size
        return offer


def size_of(event: Event) -> int:
    """Return roughly how many bytes an event with encoded key and value takes."""
    key, value = event.key_bytes(), event.value_bytes()
    headers = sum(len(name) + len(data or b"") for name, data in event.headers)
    return _OVERHEAD + len(key or b"") + len(value or b"") + headers
