"""The interface between the API and the engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeAlias

from dovecote.process.states import State
from dovecote.push.rules.condition import Condition
from dovecote.push.rules.subscription.subscription import Subscription

Outcome: TypeAlias = Literal["delivered", "retry", "limited", "dead", "disabled"]

_STATES = frozenset(State)

Circuit: TypeAlias = Literal["closed", "open", "half_open"]


@dataclass(frozen=True, slots=True)
class Work:
    """A subscription to deliver; references in its secrets are resolved."""

    subscription: Subscription
    version: int
    """Rises with every change: with another version, nothing continues as it was."""


class AttemptReport(NamedTuple):
    """One request, and its outcome."""

    subscription: str
    event_id: str
    topic: str
    partition: int
    offset: int
    key: str | None
    number: int
    """Number of the attempt for its record, from 1."""
    at: float
    """When it began, in seconds since 1970."""
    seconds: float
    status: int | None
    """None: there was no answer."""
    outcome: Outcome
    detail: str = ""
    """The beginning of the answer, or the failure; no secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReport:
    """One process's state of one subscription; counts since the process began."""

    running: bool
    trouble: str = ""
    """The current problem; empty: there is none."""
    in_flight: int = 0
    delivered: int = 0
    failed: int = 0
    """Attempts that did not succeed."""
    dead: int = 0
    lag: int | None = None
    """Undelivered records in the partitions of this process."""
    expired: int = 0
    """Offsets that the topics had deleted before they were delivered."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    """Over recent requests."""
    circuit: Circuit = "closed"
    last_minute: Mapping[str, int] = field(default_factory=dict)
    """The outcomes of its requests, by the answer's status or `no answer`."""
    state: str = ""
    """How it is, in the word of `dovecote.process.states`; empty: an older process reports."""
    reason: str = ""
    since: float | None = None
    """Since when it is so, in seconds since 1970; None: that is not known."""

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Self:
        """Return a stored report; a newer process may have said more."""
        return cls(**{each.name: told[each.name] for each in fields(cls) if each.name in told})

    def condition(self) -> Condition:
        """Return how the subscription is in this process."""
        if self.state in _STATES:
            return Condition(State(self.state), self.reason, self.since)
        if self.trouble:
            return Condition(State.FAILING, self.trouble)
        if not self.running:
            return Condition(State.STARTING, "it is not running yet")
        return Condition(State.WORKING if self.last_minute else State.IDLE)


class Book(Protocol):
    """Takes the engine's notes; each call returns at once, from any thread."""

    def attempted(self, attempt: AttemptReport) -> None:
        """Note an attempt for operators to look at, unless there are too many of them."""

    def disable(self, id_: str, url: str, reason: str) -> None:
        """Stop delivering a subscription, in all processes: its endpoint, `url`, is gone."""


class Delivers(Protocol):
    """The engine as the API sees it; every method may be called from any thread."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """End all work, as gracefully as its limits allow, and return then."""

    def reconcile(self, work: Sequence[Work]) -> None:
        """Deliver these and no others, from now on; unchanged subscriptions go on undisturbed."""

    def snapshot(self) -> Mapping[str, DeliveryReport]:
        """Return the state of each subscription, by its id."""
