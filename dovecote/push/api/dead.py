"""The dead letters of a subscription, handled with the consumer's own tools."""

import re
from collections.abc import Mapping
from datetime import UTC
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from dedup.kafka.dead_topic import DeadTopic
from dedup.retries.letter import Letter, Which, target
from dovecote.process import topics as cluster
from dovecote.push.errors import Away, NoSuchSubscription, RequestRefused
from dovecote.push.rules.subscription.fields import Model
from dovecote.push.rules.subscription.subscription import Subscription
from outbox.envelope import Record
from outbox.errors import DovecoteError

_MOST_TEXT = 2_000
# Producers decide how many letters there are, and one process serves all tokens.
_MOST_RESOLVED = 10_000


class Chosen(Model):
    """Selects dead letters: those that match all of this; or `all`, alone."""

    ids: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=500)], ...],
        Field(strict=False, max_length=10_000),
    ] = ()
    """Ids of events, or their names: `id@source`."""

    key: Annotated[str, Field(max_length=10_000)] | None = None

    reason: Annotated[str, Field(min_length=1, max_length=1_000)] | None = None
    """A part of the reason, in upper or lower case."""

    since: Annotated[AwareDatetime, Field(strict=False)] | None = None

    until: Annotated[AwareDatetime, Field(strict=False)] | None = None

    all: bool = False
    """Every dead letter of the subscription."""

    @model_validator(mode="after")
    def _means_some(self) -> Self:
        narrowed = self.model_dump(exclude={"all"}, exclude_none=True, exclude_defaults=True)
        if self.all == bool(narrowed):
            msg = "say which ones: ids, key, reason, since, until, or all alone"
            raise ValueError(msg)
        return self

    def which(self, subscription: Subscription) -> Which:
        """Return the selection in the form that the consumer's tools take."""
        return Which(
            ids=self.ids,
            key=None if self.key is None else self.key.encode(),
            reason=self.reason,
            since=None if self.since is None else self.since.astimezone(UTC),
            until=None if self.until is None else self.until.astimezone(UTC),
            groups=(subscription.group_id, None),
        )


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
        return {"total": total, "letters": [fields(each) for each in found]}

    def show(self, id_: str) -> dict[str, Any]:
        """
        Return one letter whole, including its headers and value.

        Raises:
            Away: Kafka does not answer.
            NoSuchSubscription: there is no such letter.
        """
        which = Which(ids=(id_,), groups=(self._subscription.group_id, None))
        try:
            found = self._topic.first(which, 1)[0] if self._is_there() else []
            record = self._topic.record(found[0]) if found else None
        except DovecoteError as error:
            raise Away(str(error)) from error
        if record is None:
            msg = f"{self._subscription.id!r} has no dead letter {id_!r}"
            raise NoSuchSubscription(msg)
        return {**fields(found[0]), **_carried(record)}

    def resolve(
        self, chosen: Chosen, action: Literal["requeued", "dropped"]
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
            )
        except DovecoteError as error:
            raise Away(str(error)) from error
        moved: list[dict[str, Any]] = [{**fields(each), "left": None} for each in done]
        return moved + [{**fields(each), "left": why} for each, why in left]

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
