"""Decide which part tells a trouble that several parts see."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dovecote.console.rules.facts import OutboxFacts, SubscriptionFacts
from dovecote.console.rules.judging import GREEN, PARKED, SILENT, Judged

_RED = {"failing", "stalled"}


def of_outbox(
    id_: str, found: OutboxFacts, outbox: Judged, relays: Mapping[str, Judged]
) -> tuple[Judged, Mapping[str, Judged]]:
    """
    Return an outbox and its relays, each trouble of both with one of them.

    The outbox tells what an operator mends there: parked events, a backlog, and that nothing runs.
    A relay tells what only its log and its settings explain.
    """
    leaderless = not all(each.active for each in found.shards)

    def is_the_outbox(relay: Judged) -> bool:
        return (
            relay.todo == PARKED
            or (leaderless and relay.todo == SILENT)
            or relay.state == outbox.state == "behind"
        )

    told = {
        name: replace(each, cause=id_) if is_the_outbox(each) else each
        for name, each in relays.items()
    }
    for name, each in told.items():
        repeats = bool(each.reason) and each.reason in outbox.reason
        if each.state in _RED and not each.cause and (leaderless or repeats):
            return replace(outbox, cause=name), told
    return outbox, told


def of_topics(part: Judged, missing: Sequence[str]) -> Judged:
    """Return a part that needs topics which do not exist, by their ids: the first one tells it."""
    return replace(part, cause=missing[0]) if missing and part.state not in GREEN else part


def of_subscription(found: SubscriptionFacts, judged: Judged, missing: Sequence[str]) -> Judged:
    """As `of_topics`, if push says itself what is wrong: an endpoint that refuses is another."""
    said = {found.trouble, found.reason} - {""}
    return of_topics(judged, missing) if judged.reason in said else judged
