"""The dead letters of a subscription, handled with the consumer's own tools."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AwareDatetime, Field, field_validator, model_validator

from dedup.kafka.dead_newest import newest
from dedup.kafka.dead_topic import DeadTopic
from dedup.retries.letter import At, Letter, Which, target
from dedup.retries.where import holds
from dedup.rules.unread import place_of
from dovecote.process import topics as cluster
from dovecote.push.errors import Away, NoSuchSubscription, RequestRefused
from dovecote.push.rules.subscription.fields import Model
from dovecote.push.rules.subscription.subscription import Subscription
from outbox.envelope import Record
from outbox.errors import BadSettings, DovecoteError

_MOST_TEXT = 2_000
# Producers decide how many letters there are, and one process serves all tokens.
_MOST_RESOLVED = 10_000


Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=1_000)]
Time: TypeAlias = Annotated[AwareDatetime, Field(strict=False)]


class Meant(Model):
    """Selects dead letters: those that match all of this."""

    ids: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=500)], ...],
        Field(strict=False, max_length=10_000),
    ] = ()
    """Ids of events, or their names: `id@source`."""

    key: Annotated[str, Field(max_length=10_000)] | None = None

    reason: Text | None = None
    """A part of the reason, in upper or lower case."""

    since: Time | None = None

    until: Time | None = None

    topic: Text | None = None
    """The topic that they come from."""

    type: Text | None = None

    def which(self, subscription: Subscription) -> Which:
        """Return the selection in the form that the consumer's tools take."""
        return Which(
            ids=self.ids,
            key=None if self.key is None else self.key.encode(),
            reason=self.reason,
            since=self.since,
            until=self.until,
            groups=(subscription.group_id, None),
            topic=self.topic,
            type=self.type,
        )


class Wanted(Meant):
    """Which of the newest dead letters to return; nothing of what a record contains decides."""

    limit: Annotated[int, Field(ge=1, le=10_000, strict=False)] = 50

    before: Time | None = None
    """Only older ones; with `place`, also older ones of this time."""

    place: Text | None = None
    """The place of the letter that `before` is the time of."""


class Searched(Wanted):
    """The same, by an expression over the event, too."""

    where: Annotated[str, Field(min_length=1, max_length=10_000)]
    """Such as `value.total > 100`."""

    @field_validator("where")
    @classmethod
    def _is_an_expression(cls, value: str) -> str:
        try:
            holds(value)
        except BadSettings as error:
            raise ValueError(str(error)) from None
        return value

    def which(self, subscription: Subscription) -> Which:
        """Return the selection in the form that the consumer's tools take."""
        return replace(super().which(subscription), passes=holds(self.where))


class Chosen(Meant):
    """Selects dead letters: those that match all of this; or `all`, alone."""

    places: Annotated[tuple[Text, ...], Field(strict=False, max_length=10_000)] = ()
    """Places of letters, as the list has them."""

    all: bool = False
    """Every dead letter of the subscription."""

    @model_validator(mode="after")
    def _means_some(self) -> Self:
        narrowed = self.model_dump(exclude={"all"}, exclude_none=True, exclude_defaults=True)
        if self.all == bool(narrowed):
            msg = (
                "say which ones: ids, key, reason, since, until, topic, type, places, or all alone"
            )
            raise ValueError(msg)
        return self

    def which(self, subscription: Subscription) -> Which:
        """Return the selection in the form that the consumer's tools take."""
        found = super().which(subscription)
        if not self.places:
            return found
        ats = (_at(each, subscription.dead_letters) for each in self.places)
        return replace(found, places={at for at in ats if at is not None})


def _at(place: str, topic: str) -> At | None:
    """Return the partition and offset that a place in a topic names; None: it names none."""
    try:
        found = place_of(place)
    except ValueError:
        return None
    return found[1:] if found.topic == topic else None


class DeadLetters:
    """The dead letters of one subscription."""

    def __init__(self, kafka: Mapping[str, str], subscription: Subscription) -> None:
        self._kafka, self._subscription = kafka, subscription
        self._topic = DeadTopic(kafka, subscription.dead_letters)

    def standing(self, most: int) -> dict[str, Any]:
        """
        Return the first `most` unresolved letters, and the number of all.

        Raises:
            Away: Kafka does not answer.
        """
        if not self._is_there():
            return {"total": 0, "letters": []}
        which = Which(groups=(self._subscription.group_id, None))
        try:
            found, total = self._topic.first(which, most)
        except DovecoteError as error:
            raise Away(str(error)) from error
        return {"total": total, "letters": [self._fields(each) for each in found]}

    def newest(self, wanted: Wanted) -> dict[str, Any]:
        """
        Return the newest unresolved letters that are meant.

        Raises:
            Away: Kafka does not answer.
        """
        if not self._is_there():
            return {"letters": [], "looked": 0, "whole": True, "oldest": None}
        place = None if wanted.place is None else _at(wanted.place, self._topic.topic)
        before = None if wanted.before is None else (wanted.before, place or (-1, -1))
        which = wanted.which(self._subscription)
        try:
            found = newest(self._topic, which, wanted.limit, before=before)
        except DovecoteError as error:
            raise Away(str(error)) from error
        return {
            "letters": [self._fields(each.letter) for each in found.found],
            "looked": found.looked,
            "whole": found.whole,
            "oldest": None if found.oldest is None else found.oldest.isoformat(),
        }

    def show(self, id_: str) -> dict[str, Any]:
        """
        Return one letter whole, by its event's id, its name or its place.

        Raises:
            Away: Kafka does not answer.
            NoSuchSubscription: there is no such letter.
        """
        which = Which(ids=(id_,), groups=(self._subscription.group_id, None))
        if (at := _at(id_, self._topic.topic)) is not None:
            which = replace(which, ids=(), places={at})
        try:
            found = self._topic.first(which, 1)[0] if self._is_there() else []
            record = self._topic.record(found[0]) if found else None
        except DovecoteError as error:
            raise Away(str(error)) from error
        if record is None:
            msg = f"{self._subscription.id!r} has no dead letter {id_!r}"
            raise NoSuchSubscription(msg)
        return {**self._fields(found[0]), **_carried(record)}

    def resolve(
        self, chosen: Chosen, action: Literal["requeued", "dropped"], by: str = ""
    ) -> list[dict[str, Any]]:
        """
        Deliver letters again, to this subscription alone, or drop them from the list.

        A letter that cannot be delivered again is returned with the reason, as `left`. No more
        than 10,000 are looked at: ask again for the others.

        Raises:
            Away: Kafka does not answer, or another operator interfered.
            RequestRefused: the topic for letters that are delivered again is missing.
        """
        if not self._is_there():
            return []
        to = self._subscription.requeued
        if action == "requeued" and to not in self._topics():
            msg = f"there is no topic {to!r}: resume the subscription, which makes it"
            raise RequestRefused(msg)
        try:
            done, left = self._topic.resolve(
                chosen.which(self._subscription),
                action,
                lambda each: target(each, to=to, known=()) if action == "requeued" else "",
                read=self._is_read,
                most=_MOST_RESOLVED,
                by=by,
            )
        except DovecoteError as error:
            raise Away(str(error)) from error
        moved: list[dict[str, Any]] = [{**self._fields(each), "left": None} for each in done]
        return moved + [{**self._fields(each), "left": why} for each, why in left]

    def _fields(self, letter: Letter) -> dict[str, Any]:
        partition, offset = letter.at
        return {**fields(letter), "place": f"{self._topic.topic}/{partition}/{offset}"}

    def _is_read(self, topic: str) -> bool:
        """Return whether the subscription reads a topic."""
        names = self._subscription.topics_read()
        return any(
            topic == each or (each.startswith("^") and re.search(each, topic) is not None)
            for each in names
        )

    def _is_there(self) -> bool:
        return self._subscription.dead_letters in self._topics()

    def _topics(self) -> set[str]:
        try:
            return set(cluster.topics(self._kafka))
        except DovecoteError as error:
            raise Away(str(error)) from error


def fields(letter: Letter) -> dict[str, Any]:
    """Return a letter as JSON, without its value."""
    return {
        "id": letter.id,
        "source": letter.source,
        "key": _text(letter.key),
        "origin": letter.origin,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "died_at": letter.died_at.isoformat(),
        "size": letter.size,
        "type": letter.type,
    }


def _carried(record: Record) -> dict[str, Any]:
    return {
        "headers": [[name, _text(value)] for name, value in record.headers],
        "value": _text(record.value),
    }


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    return data[:_MOST_TEXT].decode(errors="backslashreplace")
