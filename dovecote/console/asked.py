"""The parts of the console that the API needs, and its errors."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from dovecote.console.shapes import DeedShape, PartShape, SeriesShape
from outbox.errors import DovecoteError

Verb: TypeAlias = Literal["requeue", "drop"]


class ConsoleError(DovecoteError):
    """Why a request is not answered: a status, a sentence, and what to do."""

    def __init__(self, status: int, error: str, todo: str) -> None:
        super().__init__(error)
        self.status, self.error, self.todo = status, error, todo


class Wanted(NamedTuple):
    """The letters that a caller wants to see; None: any."""

    part: str | None
    topic: str | None
    key: str | None
    id: str | None
    type: str | None
    reason: str | None
    since: datetime | None
    until: datetime | None
    limit: int
    after: str | None


class Named(NamedTuple):
    """The letter that a caller names."""

    part: str
    place: str


class Picture(Protocol):
    """The knowledge that the console has by now; nothing here waits for a server."""

    def flow(self) -> bytes:
        """Return the `FlowShape` as JSON."""

    def part(self, node: str) -> PartShape:
        """
        Return one part's page.

        Raises:
            ConsoleError: there is no such part.
        """

    def history(self, node: str, minutes: int) -> Sequence[SeriesShape]:
        """
        Return the lines of one part's charts; this one may ask a Prometheus.

        Raises:
            ConsoleError: there is no such part, or Prometheus does not answer.
        """


class Letters(Protocol):
    """The dead letters and parked events of all parts."""

    def page(self, wanted: Wanted) -> Mapping[str, Any]: ...

    def resolve(self, verb: Verb, named: Sequence[Named], by: str) -> Mapping[str, Any]: ...


class Finds(Protocol):
    """The lives of events."""

    def life(
        self, id_: str | None, key: str | None, topic: str | None, since: datetime | None
    ) -> Mapping[str, Any]: ...


class Deeds(Protocol):
    """The log of who did what."""

    def add(self, by: str, action: str, what: str, outcome: str) -> None: ...

    def last(self, limit: int) -> list[DeedShape]: ...
