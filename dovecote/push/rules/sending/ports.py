"""What the API and the engine know of each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

from dovecote.push.rules.subscription.subscription import Subscription

Outcome: TypeAlias = Literal["delivered", "retry", "dead", "disabled"]

Circuit: TypeAlias = Literal["closed", "open", "half_open"]


@dataclass(frozen=True, slots=True)
class Work:
    """A subscription that is to be delivered; references are resolved in its secrets."""

    subscription: Subscription
    version: int
    """Rises with every change: of another version nothing goes on as it was."""


class Attempt(NamedTuple):
    """One request, and what came of it."""

    subscription: str
    event_id: str
    topic: str
    partition: int
    offset: int
    key: str | None
    number: int
    """Which attempt of its record it was, from 1."""
    at: float
    """When it began, in seconds since 1970."""
    seconds: float
    status: int | None
    """None: there was no answer."""
    outcome: Outcome
    detail: str = ""
    """The beginning of the answer, or what went wrong; no secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What one process says of one subscription; counts since the process began."""

    running: bool
    trouble: str = ""
    """What is in the way; empty: nothing."""
    in_flight: int = 0
    delivered: int = 0
    failed: int = 0
    """Attempts that did not succeed."""
    dead: int = 0
    lag: int | None = None
    """Records that are not delivered yet, in the partitions of this process."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    """Of recent requests."""
    circuit: Circuit = "closed"


class Book(Protocol):
    """What the engine writes down; all of it returns at once, from any thread."""

    def attempted(self, attempt: Attempt) -> None:
        """Remember an attempt for operators to look at, unless there are too many of them."""

    def disable(self, id_: str, reason: str) -> None:
        """Have a subscription delivered no more, in any process: its endpoint is gone."""


class Delivers(Protocol):
    """The engine as the API knows it; all of it may be called from any thread."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """End what is at work, as gracefully as its limits allow, and return then."""

    def reconcile(self, work: Sequence[Work]) -> None:
        """Deliver these and no others, from now on; what did not change goes on undisturbed."""

    def snapshot(self) -> Mapping[str, Snapshot]:
        """Return what it says of each subscription, by its id."""
