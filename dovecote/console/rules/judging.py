"""Decide in which state a part is: green only if what it names worked in the last minute."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dovecote.console.rules.facts import (
    MINUTE,
    GroupFacts,
    Heard,
    OutboxFacts,
    OutboxLag,
    ProcessFacts,
    SubscriptionFacts,
    TopicFacts,
)
from dovecote.console.shapes import StateName
from dovecote.process.states import State, severity

GREEN: frozenset[str] = frozenset(each for each in State if each.is_green)

PARKED = "see the dead letters of this part, and requeue or drop what is parked"
SILENT = "see whether the process runs, and its log; or correct `metrics` in the file"


@dataclass(frozen=True, slots=True)
class Judged:
    """A state, why, and what to do."""

    state: StateName
    reason: str = ""
    todo: str = ""
    cause: str = ""
    """The source or part that is the whole trouble; it is said once, there."""


@dataclass(frozen=True, slots=True)
class Motion:
    """The motion of a part, as it was seen over time."""

    rate: float | None = None
    """Events a second."""
    still: float | None = None
    """For how long nothing has moved although events wait, in seconds; None: it moves."""
    moved: float | None = None
    """How long ago something last moved, in seconds; None: never since the console began."""


def worst(found: Sequence[Judged]) -> Judged:
    """Return the worst of some; the first of those that are equally bad."""
    return min(found, key=lambda each: rank(each.state))


def rank(state: StateName) -> int:
    """Return the place of a state in the order of the worst first."""
    return severity(State(state))


def unheard(source: Heard[object], name: str, what: str, now: float) -> Judged | None:
    """Return how a part is whose only source does not answer; None: the source answers."""
    if not source.error:
        if source.at is None:
            return Judged("starting", "it has not been asked yet", cause=name)
        if now - source.at > MINUTE:
            return Judged("unknown", f"not heard for {_time(now - source.at)}", cause=name)
        return None
    silent = source.at is None or now - source.at > MINUTE
    return Judged("unknown" if silent else "failing", f"{what}: {source.error}", cause=name)


def topic(name: str, found: TopicFacts | None, motion: Motion, readers: Sequence[str]) -> Judged:
    """Return how a topic is, on a cluster that answers."""
    if found is None:
        wanted = f", and {readers[0]} needs it" if readers else ""
        correct = f", or correct its name in {readers[0]}" if readers else ""
        return Judged(
            "failing",
            f"topic {name} does not exist{wanted}",
            f"`dovecote topic create {name}`{correct}; or the console's user lacks Describe on it",
        )
    if found.leaderless:
        many = f"{found.leaderless} of {found.partitions} partitions"
        return Judged("failing", f"{many} have no leader", "start the brokers that hold them")
    if motion.moved is not None and motion.moved <= MINUTE:
        return Judged("working")
    return Judged("idle", "no record was written within the last minute")


def process(heard: Heard[ProcessFacts], url: str, now: float) -> Judged:
    """Return how one process is, as it says itself."""
    if heard.error:
        silent = heard.at is None or now - heard.at > MINUTE
        said = f"{url} does not answer: {heard.error}"
        return Judged("unknown" if silent and heard.failing is None else "failing", said, SILENT)
    found = heard.fresh(now)
    if found is None:
        if heard.at is None:
            return Judged("starting", "it has not been asked yet")
        return Judged("unknown", f"{url} was not heard for {_time(now - heard.at)}")
    todo = "see its log, and docs/states.md" if found.state not in GREEN else ""
    if todo and "parked" in found.reason:
        # A relay says so for a minute before its outbox is only behind.
        todo = PARKED
    return Judged(found.state, found.reason, todo)


def together(kind: str, each: Sequence[Judged]) -> Judged:
    """Return how processes are that share the work: as the worst of them."""
    found = worst(each)
    if found.state in GREEN:
        # One that works is enough to say so: the others wait for their turn.
        return next((one for one in each if one.state == "working"), found)
    bad = sum(one.state not in GREEN for one in each)
    if len(each) > 1 and bad < len(each):
        return replace(found, reason=f"{bad} of {len(each)} {kind} processes: {found.reason}")
    return found


def outbox(  # noqa: PLR0911, PLR0917  # one line for each state
    found: OutboxFacts,
    lag: OutboxLag | None,
    motion: Motion,
    relays: Sequence[Judged],
    behind: float,
) -> Judged:
    """Return how an outbox is, while Postgres answers."""
    without = [each.name for each in found.shards if not each.active]
    rows = 0 if lag is None or lag.rows is None else lag.rows
    if without:
        of = "no relay is active" if len(found.shards) == 1 else f"no relay for {without[0]}"
        todo = "start `dovecote relay run`, or see the log of the one that should run"
        if rows:
            return Judged("stalled", f"{of}, and {events(rows)} wait{_s(rows)}", todo)
        return Judged("failing", of, todo)
    if relays and (bad := worst(relays)).state in {"failing", "stalled"}:
        return replace(bad, reason=f"a relay: {bad.reason}")
    if rows and motion.still is not None and motion.still > MINUTE:
        said = (
            f"{events(rows)} wait{_s(rows)}, and nothing was published for {_time(motion.still)}"
        )
        return Judged("stalled", said, "`dovecote relay doctor` looks for the cause")
    parked = sum(each.parked for each in found.shards)
    if parked:
        return Judged(
            "behind",
            f"{events(parked)} {'is' if parked == 1 else 'are'} parked",
            PARKED,
        )
    age = None if lag is None else lag.seconds
    if rows and age is not None and age > behind:
        return Judged(
            "behind",
            f"{events(rows)} wait{_s(rows)}, the oldest for {_time(age)}",
            "see the relay's page; more shards publish more",
        )
    if relays and not any(each.state in GREEN for each in relays):
        return replace(worst(relays), cause="")
    if motion.moved is not None and motion.moved <= MINUTE:
        return Judged("working")
    if lag is None:
        return Judged("unknown", "how much waits is not known yet", "see the sources")
    return Judged("working" if rows else "idle", "" if rows else "everything is published")


def reader(  # noqa: PLR0911, PLR0917  # as above
    kind: str,
    group: GroupFacts | None,
    motion: Motion,
    processes: Sequence[Judged],
    missing: Sequence[str],
) -> Judged:
    """Return how a consumer is, while Kafka answers."""
    lag = 0 if group is None else sum(group.lag.values())
    if missing:
        return Judged(
            "failing",
            f"topic {missing[0]} does not exist",
            f"`dovecote topic create {missing[0]}`, or correct the topics of the {kind}",
        )
    if processes and (bad := together(kind, processes)).state in {"failing", "stalled"}:
        waits = f"; {events(lag)} wait{_s(lag)}" if lag else ""
        return replace(bad, reason=bad.reason + waits)
    if group is None or (group.members == 0 and not group.rebalancing):
        start = "start `dovecote consume run`, or see the log of the one that should run"
        if lag:
            said = f"no process is in its group, and {events(lag)} wait{_s(lag)}"
            return Judged("failing", said, start)
        return Judged("unknown", "no process is in its group, and nothing waits", start)
    if lag and motion.still is not None and motion.still > MINUTE:
        said = f"{events(lag)} wait{_s(lag)}, and no offset moved for {_time(motion.still)}"
        return Judged("stalled", said, "see its log, and the record that it is at")
    if processes:
        return together(kind, processes)
    if group.rebalancing:
        return Judged("starting", "the group shares its partitions out anew")
    if motion.moved is not None and motion.moved <= MINUTE:
        return Judged("working")
    if lag:
        return Judged(
            "starting", f"{events(lag)} wait{_s(lag)}, and none was seen to be completed"
        )
    return Judged("idle", "nothing waits")


def spark(processes: Sequence[Judged], missing: Sequence[str]) -> Judged:
    """Return how a Spark job is."""
    if missing:
        return Judged(
            "failing",
            f"topic {missing[0]} does not exist",
            f"`dovecote topic create {missing[0]}`, or correct the topics of the job",
        )
    if not processes:
        return Judged(
            "unknown",
            "the file does not say where it serves /readyz",
            "set `http.port` of the job, and `metrics` of this part in the console's file",
        )
    return together("spark", processes)


def subscription(found: SubscriptionFacts, motion: Motion) -> Judged:  # noqa: C901, PLR0911  # one for each state
    """Return how a subscription is, while push answers."""
    if found.status == "paused":
        return Judged(
            "paused", found.reason or "an operator paused it", "resume it when it may go on"
        )
    if found.status == "disabled":
        todo = "correct the endpoint or the subscription, and resume it"
        return Judged("failing", f"disabled: {found.reason}", todo)
    if (refused := _refused(found)) is not None:
        return refused
    if found.state is not None and found.state not in GREEN:
        return Judged(found.state, found.trouble or found.reason, "see its last attempts")
    if found.processes == 0:
        todo = "start `dovecote push serve`, or see its log"
        if found.lag:
            said = f"no process delivers it, and {events(found.lag)} wait{_s(found.lag)}"
            return Judged("stalled", said, todo)
        return Judged("unknown", "no process reports on it", todo)
    if found.trouble:
        return Judged("failing", found.trouble, "see its last attempts")
    if found.circuit == "open":
        return Judged("failing", "the endpoint gets nothing but probes", "see its last attempts")
    if found.lag and motion.still is not None and motion.still > MINUTE:
        said = f"{events(found.lag)} wait{_s(found.lag)}, and none was delivered"
        return Judged("stalled", f"{said} for {_time(motion.still)}", "see its last attempts")
    if found.last_minute or (motion.moved is not None and motion.moved <= MINUTE):
        return Judged("working")
    if found.lag:
        return Judged("starting", f"{events(found.lag)} wait{_s(found.lag)}")
    return Judged("idle" if found.state is None else found.state, "nothing waits")


_ADVICE = {
    "401": "correct the secret of the subscription or of its endpoint",
    "403": "let the endpoint accept what the subscription signs or sends",
    "404": "correct the URL of the subscription",
    "429": "lower the pace of the subscription, or let the endpoint take more",
    "no answer": "start the endpoint, or open the way to it",
}


def _refused(found: SubscriptionFacts) -> Judged | None:
    """Return how a subscription is whose endpoint fails at least half of the requests."""
    total = sum(found.last_minute.values())
    bad = {
        status: count for status, count in found.last_minute.items() if not status.startswith("2")
    }
    failed = sum(bad.values())
    if not failed or 2 * failed < total:
        return None
    most = max(bad, key=lambda each: bad[each])
    what = "gives no answer" if most == "no answer" else f"answers {most}"
    share = f"all of the last {total} requests" if failed == total else f"{failed} of {total}"
    if total == 1:
        share = "the last request"
    return Judged(
        "failing", f"the endpoint {what} to {share}", _ADVICE.get(most, "see its last attempts")
    )


def push(subscriptions: Sequence[Judged], processes: Sequence[Judged]) -> Judged:
    """Return how push itself is, while it answers."""
    bad = [each for each in processes if each.state not in GREEN]
    if bad:
        return together("push", processes)
    if any(each.state == "working" for each in subscriptions):
        return Judged("working")
    return Judged("idle", "nothing to deliver")


def events(count: int) -> str:
    """Return a number of events in words."""
    return f"{count:,} event{'' if count == 1 else 's'}"


def _s(count: int) -> str:
    return "s" if count == 1 else ""


def _time(seconds: float) -> str:
    whole = int(seconds)
    if whole < 120:  # noqa: PLR2004  # two minutes
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"  # noqa: PLR2004  # two hours
