"""Decide in which state a subscription is, in one process and in all of them, and push itself."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dovecote.process.states import MINUTE, State, severity
from dovecote.push.rules.outcomes import Recently

ROW = 2
"""Failures in a row that are a state; one alone may be an accident."""
_ENOUGH = 10
"""With fewer outcomes than this, a share of failures is chance."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A state, its reason, and since when, in seconds since 1970; None: that is not known."""

    state: State
    reason: str = ""
    since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySeen:
    """The facts of a subscription in one process; times are seconds that have passed since."""

    consumer: State
    """The state of its consumer."""
    consumer_reason: str = ""
    trouble: str = ""
    """The problem with the endpoint; empty: there is none."""
    recently: Recently = field(default_factory=Recently)
    delivered: float | None = None
    """Since a request succeeded; None: none has."""
    failing: float | None = None
    """Since the first of the failures that came one after the other; None: there are none."""
    lag: int = 0
    in_flight: int = 0


def delivery(seen: DeliverySeen, now: float) -> Condition:  # noqa: PLR0911  # one for each state
    """Return how a subscription is in one process; `now` is in seconds since 1970."""
    found, failing = seen.recently, seen.failing
    since = None if failing is None else now - failing
    if seen.consumer is State.DRAINING:
        return Condition(seen.consumer, seen.consumer_reason)
    often = found.total >= _ENOUGH and 2 * found.failed >= found.total
    if found.in_a_row >= ROW or (found.failed and found.delivered is None) or often:
        said = f"{found.why}, {found.why_failed} of the last {found.total}"
        also = f"; {seen.trouble}" if seen.trouble else ""
        return Condition(State.FAILING, f"{said}{also}", since)
    if seen.trouble:
        return Condition(State.FAILING, seen.trouble, since)
    if not seen.consumer.is_green:
        return Condition(seen.consumer, seen.consumer_reason)
    if seen.delivered is not None and seen.delivered <= MINUTE:
        return Condition(State.WORKING, "records are delivered")
    if seen.in_flight:
        return Condition(State.WORKING, "requests wait for their answers")
    if seen.consumer is State.STANDBY:
        return Condition(State.STANDBY, "other processes have all partitions")
    if seen.lag:
        return Condition(State.BEHIND, f"{seen.lag} records wait, and none is being sent")
    return Condition(State.IDLE, "everything is delivered")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSeen:
    """The stored facts of a subscription."""

    status: str
    """`active`, `paused` or `disabled`."""
    reason: str = ""
    """Why it is not active."""
    since: float | None = None
    """Since when it has this status, in seconds since 1970."""
    reports: Sequence[Condition] = ()
    """How it is in each process that has reported on it a moment ago."""


def subscription(seen: SubscriptionSeen, now: float) -> Condition:
    """Return how a subscription is in all processes; `now` is in seconds since 1970."""
    if seen.status == "paused":
        return Condition(State.PAUSED, seen.reason, seen.since)
    if seen.status == "disabled":
        return Condition(State.FAILING, f"disabled: {seen.reason}", seen.since)
    if not seen.reports:
        young = seen.since is not None and now - seen.since < MINUTE
        if young:
            return Condition(State.STARTING, "no process has taken it yet", seen.since)
        return Condition(
            State.UNKNOWN,
            "no process reports on it: does `dovecote push serve` run, and reach Postgres?",
        )
    found = min(seen.reports, key=lambda each: severity(each.state))
    if found.state is State.STANDBY:
        return replace(found, state=State.STALLED, reason="no process has its partitions")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSeen:
    """The facts of a process of push; times are seconds that have passed since."""

    failure: str = ""
    """Why it does not follow what is stored; empty: it does."""
    starting: bool = False
    ending: bool = False
    followed: float = 0.0
    """Since Postgres answered."""
    unrecorded: str = ""
    """Why attempts are not recorded; empty: they are."""
    brokers: Sequence[tuple[str, float | None, str]] = ()
    """Each broker's name, since when it was heard, and why not; None: never yet."""
    subscriptions: Sequence[State] = ()
    """How each subscription of this process is."""


def push(seen: PushSeen) -> tuple[State, str]:
    """Return the state of a process, and the reason."""
    return _without_servers(seen) or _with_servers(seen)


def _without_servers(seen: PushSeen) -> tuple[State, str] | None:  # noqa: PLR0911  # as above
    if seen.ending:
        return State.DRAINING, "it ends once requests in flight are answered"
    if seen.starting:
        return State.STARTING, "starting"
    if seen.failure:
        return State.FAILING, seen.failure
    if seen.followed > MINUTE:
        return State.UNKNOWN, f"Postgres was not heard for {seen.followed:.0f} s"
    if seen.unrecorded:
        return State.FAILING, f"attempts are not recorded: {seen.unrecorded}"
    if away := [f"broker {name!r}: {why}" for name, _, why in seen.brokers if why]:
        return State.FAILING, "; ".join(away)
    if new := [name for name, heard, _ in seen.brokers if heard is None]:
        return State.STARTING, f"broker {new[0]!r} has not answered yet"
    for name, heard, _ in seen.brokers:
        if heard is not None and heard > MINUTE:
            return State.UNKNOWN, f"broker {name!r} was not heard for {heard:.0f} s"
    return None


def _with_servers(seen: PushSeen) -> tuple[State, str]:
    bad = sum(each in {State.FAILING, State.STALLED} for each in seen.subscriptions)
    said = f"{bad} of {len(seen.subscriptions)} subscriptions fail" if bad else ""
    if State.WORKING in seen.subscriptions:
        return State.WORKING, said or "records are delivered"
    if bad and bad == len(seen.subscriptions):
        return State.FAILING, said
    return State.IDLE, said or "nothing to deliver"
