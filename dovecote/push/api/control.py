"""The operations on subscriptions from which the API is built."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from dedup.kafka.dead_topic import GROUP as DEAD
from dedup.rules.unread import Place
from dedup.unread.probing import Readable, skip
from dovecote.push.api.answers import Changes, Skipped
from dovecote.push.api.caller import Caller, Owners
from dovecote.push.api.dead import Chosen, DeadLetters, Wanted
from dovecote.push.api.positions import Positions
from dovecote.push.errors import (
    Conflict,
    NoSuchSubscription,
    NotPermitted,
    RequestRefused,
    TooMany,
)
from dovecote.push.rules.access.scope import covers
from dovecote.push.rules.condition import SubscriptionSeen, subscription
from dovecote.push.rules.sending.original import OriginalSubscription, written
from dovecote.push.rules.sending.ports import DeliveryReport
from dovecote.push.rules.subscription.changing import NotChangeable
from dovecote.push.rules.subscription.sections import At, Offsets, Position
from dovecote.push.rules.subscription.subscription import Subscription
from dovecote.push.store.audit import Audit
from dovecote.push.store.notes import AttemptCounts, Notes
from dovecote.push.store.store import Store, Stored, no_such

_MOST_DETAIL = 1_000
_EMPTY_SECONDS = 30.0
_REPLAY = "set to another position"


class Control:
    """
    All operations of the API; every method may be called from any thread.

    Each checks that its caller may see the subscription, and may use what it names. A
    subscription that the caller may not see does not exist for it.
    """

    def __init__(
        self,
        store: Store,
        notes: Notes,
        audit: Audit,
        *,
        brokers: Mapping[str, Mapping[str, str]],
        owners: Owners,
    ) -> None:
        self._store, self._notes, self._audit = store, notes, audit
        self._brokers, self._owners = brokers, owners

    def all(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the subscriptions that the caller may see, with their results."""
        counts, reports = self._notes.counts(), self._notes.reports()
        return [
            self._whole(each, counts.get(each.id), reports.get(each.id, []))
            for each in self._visible(caller)
        ]

    def get(self, caller: Caller, id_: str) -> dict[str, Any]:
        return self._told(self._seen(caller, id_))

    def create(self, caller: Caller, wanted: Subscription) -> tuple[dict[str, Any], bool]:
        """Store a subscription; return it, and whether it is new."""
        caller.subscription, caller.detail = wanted.id, wanted.outline()
        self._permit(caller, wanted)
        kafka = self._kafka(caller, wanted)
        owner = self._owners.at(wanted.id) if caller.scope.sees_all else caller.scope.owner
        owner, most = owner or caller.scope.owner, caller.scope.most
        with ExitStack() as stack:
            try:
                if (known := self._known(wanted.id)) is not None:
                    self._nameable(caller, known)
                elif not caller.scope.may_name(wanted.id):
                    raise _refused([caller.scope.unnamed(wanted.id)])
                elif isinstance(wanted.start, At | Offsets):
                    self._store.require(wanted, owner, most)  # a refused one moves no group
                    # One that was deleted a moment ago may commit once more, as in `replay`.
                    stack.enter_context(self._store.unread(wanted.id, seconds=_EMPTY_SECONDS))
                    Positions(kafka).reset(wanted, wanted.start)
                found, is_new = self._store.create(wanted, owner, most)
            except TooMany:
                raise _refused([caller.scope.too_many()]) from None
            except Conflict:
                if (known := self._known(wanted.id)) is not None:
                    self._nameable(caller, known)
                raise
        self._nameable(caller, found)
        return self._told(found), is_new

    def replace(self, caller: Caller, wanted: Subscription) -> dict[str, Any]:
        """Replace a subscription; its group stays where it is."""
        caller.detail = wanted.outline()
        self._seen(caller, wanted.id)
        self._permit(caller, wanted)
        self._kafka(caller, wanted)
        return self._told(self._store.replace(wanted))

    def change(self, caller: Caller, id_: str, wanted: Changes) -> dict[str, Any]:
        """Set single fields of a subscription; its group and its secrets stay where they are."""
        caller.detail = f"set {', '.join(sorted(wanted.set))}"[:_MOST_DETAIL]
        found = self._seen(caller, id_)
        try:
            after = self._store.after(found, wanted.set)
        except NotChangeable as error:
            raise RequestRefused(str(error)) from error
        self._permit(caller, after)
        self._kafka(caller, after)
        version = found.version if wanted.version is None else wanted.version
        return self._whole(self._store.replace(after, version), None, [])

    def delete(self, caller: Caller, id_: str) -> dict[str, Any]:
        self._seen(caller, id_)
        return self._report(self._store.delete(id_))

    def pause(self, caller: Caller, id_: str) -> dict[str, Any]:
        self._seen(caller, id_)
        return self._report(self._store.set_state(id_, "paused", "paused by an operator"))

    def resume(self, caller: Caller, id_: str) -> dict[str, Any]:
        self._seen(caller, id_)
        return self._report(self._store.set_state(id_, "active"))

    def replay(self, caller: Caller, id_: str, to: Position) -> dict[str, Any]:
        """
        Set where a subscription continues; return its offsets by topic and partition.

        All subscriptions of its group are paused meanwhile: Kafka moves only a group without
        members.
        """
        caller.detail = to if isinstance(to, str) else to.model_dump_json()
        found = self._seen(caller, id_).readable()
        positions = Positions(self._kafka(caller, found))
        with self._setting(found) as same, ExitStack() as stack:
            positions.wait_until_empty(found.group_id, seconds=_EMPTY_SECONDS)
            # A subscription with explicit partitions is in no group, and commits once more when it
            # ends.
            for each in same:
                stack.enter_context(self._store.unread(each, seconds=_EMPTY_SECONDS))
            return {"offsets": positions.reset(found, to)}

    def skip(self, caller: Caller, id_: str, wanted: Skipped) -> dict[str, Any]:
        """Let a subscription's group step over a batch that cannot be read; return the note."""
        caller.detail = wanted.model_dump_json()
        found = self._seen(caller, id_).readable()
        group = DEAD if wanted.topic == found.dead_letters else found.group_id
        read = (*found.named([wanted.topic]), found.requeued, found.dead_letters)
        if wanted.topic not in read:
            msg = f"topic: the subscription does not read {wanted.topic!r}"
            raise RequestRefused(msg)
        kafka, place = (
            self._kafka(caller, found),
            Place(wanted.topic, wanted.partition, wanted.offset),
        )
        by = f"{wanted.by} (token {caller.scope.name})"  # the caller may claim any other name
        try:
            return asdict(skip(kafka, group, place, by=by, why=wanted.why))
        except Readable as error:
            raise RequestRefused(str(error)) from error

    def attempts(self, caller: Caller, id_: str) -> list[dict[str, Any]]:
        """Return the last attempts of a subscription, newest first."""
        self._seen(caller, id_)
        return self._notes.attempts(id_)

    def dead(self, caller: Caller, id_: str, most: int) -> dict[str, Any]:
        """Return dead letters of a subscription."""
        return self._letters(caller, id_).standing(most)

    def newest_dead(self, caller: Caller, id_: str, wanted: Wanted) -> dict[str, Any]:
        """Return the newest dead letters of a subscription that are meant."""
        caller.detail = wanted.model_dump_json(exclude_defaults=True)
        return self._letters(caller, id_).newest(wanted)

    def dead_letter(self, caller: Caller, id_: str, event: str) -> dict[str, Any]:
        """Return one dead letter whole."""
        return self._letters(caller, id_).show(event)

    def requeue(self, caller: Caller, id_: str, chosen: Chosen) -> list[dict[str, Any]]:
        """Deliver dead letters again."""
        caller.detail = chosen.model_dump_json(exclude_defaults=True)
        return self._letters(caller, id_).resolve(
            chosen, "requeued", by=f"token {caller.scope.name}"
        )

    def drop(self, caller: Caller, id_: str, chosen: Chosen) -> list[dict[str, Any]]:
        """Drop dead letters from the list."""
        caller.detail = chosen.model_dump_json(exclude_defaults=True)
        return self._letters(caller, id_).resolve(
            chosen, "dropped", by=f"token {caller.scope.name}"
        )

    def all_originally(self, caller: Caller) -> list[dict[str, Any]]:
        """Return all valid subscriptions in the field names of Queue over HTTP."""
        told = [_originally(each) for each in self._visible(caller)]
        return [each for each in told if each is not None]

    def create_originally(self, caller: Caller, body: OriginalSubscription) -> dict[str, Any]:
        """Store a subscription given in these names, and return it in them."""
        wanted = body.read()
        self.create(caller, wanted)
        return written(wanted)

    def delete_originally(self, caller: Caller, body: OriginalSubscription) -> dict[str, Any]:
        """Delete the subscription with this id and group, and return it in these names."""
        self._seen(caller, body.key)
        told = _originally(self._store.delete(body.key))
        return body.model_dump(mode="json", exclude_unset=True) if told is None else told

    def audit(self, caller: Caller, limit: int, subscription: str | None) -> list[dict[str, Any]]:
        """Return the last entries of the audit log that the caller may see, newest first."""
        scope = caller.scope
        actor, owner = (None, None) if scope.sees_all else (scope.name, scope.owner)
        return self._audit.entries(
            limit=limit, subscription=subscription, actor=actor, owner=owner
        )

    def _visible(self, caller: Caller) -> list[Stored]:
        return [each for each in self._store.all() if caller.scope.sees(self._owners.of(each))]

    def _seen(self, caller: Caller, id_: str) -> Stored:
        """
        Return a subscription that the caller may see.

        Raises:
            NoSuchSubscription: there is none with that name, or the caller may not see it.
        """
        caller.subscription = id_
        found = self._known(id_)
        if found is None or not caller.scope.sees(owner := self._owners.of(found)):
            raise NoSuchSubscription(no_such(id_))
        caller.owner = owner
        return found

    def _nameable(self, caller: Caller, known: Stored) -> None:
        """
        Check that the caller may see the subscription that has the id of a new one.

        Raises:
            NotPermitted: it may not; the same as if the id were beyond its scope.
        """
        owner = self._owners.of(known)
        if not caller.scope.sees(owner):
            raise _refused([caller.scope.unnamed(known.id)])
        caller.owner = owner

    def _permit(self, caller: Caller, wanted: Subscription) -> None:
        if found := caller.scope.refusals(wanted):
            raise _refused(found)

    def _letters(self, caller: Caller, id_: str) -> DeadLetters:
        found = self._seen(caller, id_).readable()
        return DeadLetters(self._kafka(caller, found), found)

    def _known(self, id_: str) -> Stored | None:
        try:
            return self._store.get(id_)
        except NoSuchSubscription:
            return None

    def _kafka(self, caller: Caller, subscription: Subscription) -> Mapping[str, str]:
        try:
            return self._brokers[subscription.broker]
        except KeyError:
            known = [each for each in sorted(self._brokers) if covers(caller.scope.brokers, each)]
            msg = (
                f"broker: there is no {subscription.broker!r} in the settings, but "
                f"{', '.join(known) or 'none that this token may use'}"
            )
            raise RequestRefused(msg) from None

    def _report(self, found: Stored) -> dict[str, Any]:
        return {**found.report(), "owner": self._owners.of(found)}

    def _told(self, found: Stored) -> dict[str, Any]:
        counts, reports = self._notes.counts(), self._notes.reports()
        return self._whole(found, counts.get(found.id), reports.get(found.id, []))

    def _whole(
        self, found: Stored, counts: AttemptCounts | None, reports: list[DeliveryReport]
    ) -> dict[str, Any]:
        return {
            **self._report(found),
            "created_at": found.created_at.isoformat(),
            "health": health(found, reports),
            "version": found.version,
            "counts": asdict(counts or AttemptCounts()),
            "delivery": together(reports),
        }

    @contextmanager
    def _setting(self, subscription: Subscription) -> Iterator[list[str]]:
        """
        Pause the subscriptions of a group for the block, then resume those that were active.

        Yields the ids of those that read explicit partitions. Nobody else sets the group
        meanwhile.
        """
        broker, group = subscription.broker, subscription.group_id
        otherwise = f"group {group!r} is being {_REPLAY} already: try again"
        with self._store.alone_with(f"{broker}/{group}", otherwise):
            same = [
                each
                for each in self._store.all()
                if each.group == group and each.spec.get("broker", "default") == broker
            ]
            # Include those that are still paused because a process died while it set their group.
            paused = self._store.begin_pause([each.id for each in same], _REPLAY)
            try:
                yield [each.id for each in same if each.spec.get("partitions")]
            finally:
                self._store.end_pause(paused, _REPLAY)


def _originally(found: Stored) -> dict[str, Any] | None:
    """Return it in the names of Queue over HTTP; None: it is not valid any more."""
    try:
        return written(found.readable())
    except ValidationError:
        return None


def _refused(found: list[tuple[str, str]]) -> NotPermitted:
    said = "; ".join(f"{path}: {words}" if path else words for path, words in found)
    return NotPermitted(said, found)


def health(found: Stored, reports: list[DeliveryReport]) -> dict[str, Any]:
    """Return how a subscription is, in the words that all of Dovecote has for it."""
    status = found.status
    began = status.since or found.created_at
    seen = SubscriptionSeen(
        status=status.state,
        reason=status.reason,
        since=began.timestamp(),
        reports=[each.condition() for each in reports],
    )
    told = subscription(seen, time.time())
    since = None if told.since is None else datetime.fromtimestamp(told.since, UTC).isoformat()
    return {"state": told.state.value, "reason": told.reason, "since": since}


def together(reports: list[DeliveryReport]) -> dict[str, Any]:
    """Merge the reports of several processes on one subscription into one."""
    lags = [each.lag for each in reports if each.lag is not None]
    last_minute: Counter[str] = Counter()
    for each in reports:
        last_minute.update(each.last_minute)
    return {
        "processes": sum(each.running for each in reports),
        "trouble": next((each.trouble for each in reports if each.trouble), ""),
        "in_flight": sum(each.in_flight for each in reports),
        "lag": sum(lags) if lags else None,
        "expired": sum(each.expired for each in reports),
        "p50_ms": max((each.p50_ms for each in reports if each.p50_ms is not None), default=None),
        "p99_ms": max((each.p99_ms for each in reports if each.p99_ms is not None), default=None),
        "circuit": next((each.circuit for each in reports if each.circuit != "closed"), "closed"),
        "last_minute": dict(last_minute.most_common()),
    }
