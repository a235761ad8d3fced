"""The operations on subscriptions from which the API is built."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from dedup.kafka.dead_topic import GROUP as DEAD
from dedup.rules.unread import Place
from dedup.unread.probing import Readable, skip
from dovecote.push.api.answers import Skipped
from dovecote.push.api.dead import Chosen, DeadLetters
from dovecote.push.api.positions import Positions
from dovecote.push.errors import NoSuchSubscription, RequestRefused
from dovecote.push.rules.sending.original import OriginalSubscription, written
from dovecote.push.rules.sending.ports import DeliveryReport
from dovecote.push.rules.subscription.sections import At, Offsets, Position
from dovecote.push.rules.subscription.subscription import Subscription
from dovecote.push.store.notes import AttemptCounts, Notes
from dovecote.push.store.store import Store, Stored

_EMPTY_SECONDS = 30.0
_REPLAY = "set to another position"


class Control:
    """All operations of the API; every method may be called from any thread."""

    def __init__(
        self, store: Store, notes: Notes, brokers: Mapping[str, Mapping[str, str]]
    ) -> None:
        self._store, self._notes, self._brokers = store, notes, brokers

    def all(self) -> list[dict[str, Any]]:
        """Return all subscriptions, with their results."""
        counts, reports = self._notes.counts(), self._notes.reports()
        return [
            _whole(each, counts.get(each.id), reports.get(each.id, []))
            for each in self._store.all()
        ]

    def get(self, id_: str) -> dict[str, Any]:
        found = self._store.get(id_)
        counts, reports = self._notes.counts(), self._notes.reports()
        return _whole(found, counts.get(id_), reports.get(id_, []))

    def create(self, wanted: Subscription) -> tuple[dict[str, Any], bool]:
        """Store a subscription; return it, and whether it is new."""
        kafka = self._kafka(wanted)
        if isinstance(wanted.start, At | Offsets) and not self._is_known(wanted.id):
            Positions(kafka).reset(wanted, wanted.start)
        found, is_new = self._store.create(wanted)
        return _whole(found, None, []), is_new

    def replace(self, wanted: Subscription) -> dict[str, Any]:
        """Replace a subscription; the source that it reads cannot change."""
        self._kafka(wanted)
        return _whole(self._store.replace(wanted), None, [])

    def delete(self, id_: str) -> dict[str, Any]:
        return self._store.delete(id_).report()

    def pause(self, id_: str) -> dict[str, Any]:
        return self._store.set_state(id_, "paused", "paused by an operator").report()

    def resume(self, id_: str) -> dict[str, Any]:
        return self._store.set_state(id_, "active").report()

    def replay(self, id_: str, to: Position) -> dict[str, Any]:
        """
        Set where a subscription continues; return its offsets by topic and partition.

        All subscriptions of its group are paused meanwhile: Kafka moves only a group without
        members.
        """
        found = self._store.get(id_).readable()
        positions = Positions(self._kafka(found))
        with self._setting(found) as same, ExitStack() as stack:
            positions.wait_until_empty(found.group_id, seconds=_EMPTY_SECONDS)
            # A subscription with explicit partitions is in no group, and commits once more when it
            # ends.
            for each in same:
                stack.enter_context(self._store.unread(each, seconds=_EMPTY_SECONDS))
            return {"offsets": positions.reset(found, to)}

    def skip(self, id_: str, wanted: Skipped) -> dict[str, Any]:
        """Let a subscription's group step over a batch that cannot be read; return the note."""
        found = self._store.get(id_).readable()
        group = DEAD if wanted.topic == found.dead_letters else found.group_id
        read = (*found.named([wanted.topic]), found.requeued, found.dead_letters)
        if wanted.topic not in read:
            msg = f"topic: the subscription does not read {wanted.topic!r}"
            raise RequestRefused(msg)
        kafka, place = self._kafka(found), Place(wanted.topic, wanted.partition, wanted.offset)
        try:
            return asdict(skip(kafka, group, place, by=wanted.by, why=wanted.why))
        except Readable as error:
            raise RequestRefused(str(error)) from error

    def attempts(self, id_: str) -> list[dict[str, Any]]:
        """Return the last attempts of a subscription, newest first."""
        self._store.get(id_)
        return self._notes.attempts(id_)

    def dead(self, id_: str, most: int) -> dict[str, Any]:
        """Return dead letters of a subscription."""
        return self._letters(id_).standing(most)

    def dead_letter(self, id_: str, event: str) -> dict[str, Any]:
        """Return one dead letter whole."""
        return self._letters(id_).show(event)

    def requeue(self, id_: str, chosen: Chosen) -> list[dict[str, Any]]:
        """Deliver dead letters again."""
        return self._letters(id_).resolve(chosen, "requeued")

    def drop(self, id_: str, chosen: Chosen) -> list[dict[str, Any]]:
        """Drop dead letters from the list."""
        return self._letters(id_).resolve(chosen, "dropped")

    def all_originally(self) -> list[dict[str, Any]]:
        """Return all valid subscriptions in the field names of Queue over HTTP."""
        told = [_originally(each) for each in self._store.all()]
        return [each for each in told if each is not None]

    def create_originally(self, body: OriginalSubscription) -> dict[str, Any]:
        """Store a subscription given in these names, and return it in them."""
        wanted = body.read()
        self.create(wanted)
        return written(wanted)

    def delete_originally(self, body: OriginalSubscription) -> dict[str, Any]:
        """Delete the subscription with this id and group, and return it in these names."""
        told = _originally(self._store.delete(body.key))
        return body.model_dump(mode="json", exclude_unset=True) if told is None else told

    def _letters(self, id_: str) -> DeadLetters:
        found = self._store.get(id_).readable()
        return DeadLetters(self._kafka(found), found)

    def _is_known(self, id_: str) -> bool:
        try:
            self._store.get(id_)
        except NoSuchSubscription:
            return False
        return True

    def _kafka(self, subscription: Subscription) -> Mapping[str, str]:
        try:
            return self._brokers[subscription.broker]
        except KeyError:
            known = ", ".join(sorted(self._brokers))
            msg = f"broker: there is no {subscription.broker!r} in the settings, but {known}"
            raise RequestRefused(msg) from None

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


def _whole(
    found: Stored, counts: AttemptCounts | None, reports: list[DeliveryReport]
) -> dict[str, Any]:
    return {
        **found.report(),
        "created_at": found.created_at.isoformat(),
        "counts": asdict(counts or AttemptCounts()),
        "delivery": together(reports),
    }


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
