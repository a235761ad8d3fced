"""A subscription: which records of which broker go to which endpoint, and how."""

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, ValidationError, model_validator

from dedup.rules import topics as of_topics
from dovecote.process.plainly import words
from dovecote.push.rules.subscription.fields import Model, Name, Names, Topic
from dovecote.push.rules.subscription.sections import (
    Backoff,
    Endpoint,
    Limits,
    Order,
    Partitions,
    PerKey,
    Position,
    Retry,
    Signing,
)

Format: TypeAlias = Literal["plain", "cloudevents_binary", "cloudevents_structured"]

Location: TypeAlias = tuple[int | str, ...]

_LONGEST_PATTERN = 500
_OWN = "dovecote."
# With `^`, a consumer's `topics` would read these patterns as we do: as a whole name.
_ANCHORED_ALIKE = re.compile(r"\^[^|]*(?<!\\)(\$|\.\*)")


class Subscription(Model):
    """One subscription: from topics of one broker to one endpoint."""

    id: Name
    """Its name."""

    broker: Name = "default"
    """The Kafka cluster, by its name in the settings of `dovecote push serve`."""

    group: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """
    Consumer group. Default: `dovecote.push.<id>`. Subscriptions of one group share the records.
    """

    consumer: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The part of `QOH-Consumer` before the group. Default: the id."""

    topics: Names = ()
    """Topics to read; the alternatives are `partitions` and `pattern`."""

    partitions: Annotated[tuple[Partitions, ...], Field(strict=False, max_length=1000)] = ()
    """Explicit partitions, which are not shared with others of the group."""

    pattern: Annotated[str, Field(min_length=1, max_length=_LONGEST_PATTERN)] | None = None
    """
    A regular expression; every topic whose whole name matches is read, including future ones. No
    pattern takes in Kafka's own topics, and those in which Dovecote keeps its state.
    """

    start: Position = "earliest"
    """
    Where a group begins that has committed nothing; with a time or offsets, the group is set to
    that position when the subscription is made.
    """

    endpoint: Endpoint

    format: Format = "plain"
    """`plain`: the record's value unchanged; or CloudEvents 1.0, binary or structured."""

    metadata_headers: bool = False
    """Add QOH-Broker, QOH-Consumer, QOH-Topic, QOH-Partition, QOH-Message-Key and
    QOH-Message-Number."""

    signing: Signing | None = None
    """Standard Webhooks; none: requests have an id and no signature."""

    order: Order = PerKey()

    retry: Retry = Backoff()

    limits: Limits = Limits()

    dead_letter_topic: Topic | None = None
    """Topic for records that are given up. Default: `dovecote.push.<id>.dead`."""

    @model_validator(mode="after")
    def _reads_something(self) -> Self:
        sources = [name for name in ("topics", "partitions", "pattern") if getattr(self, name)]
        if len(sources) != 1:
            found = " and ".join(sources) or "none of them"
            msg = f"say one of topics, partitions and pattern, not {found}"
            raise ValueError(msg)
        if len(set(self.topic_names())) != len(self.topic_names()):
            msg = "a topic is named twice"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _pattern_is_one(self) -> Self:
        if self.pattern is None:
            return self
        try:
            of_topics.matcher(f"^{self.pattern}")  # alone: in brackets, `a)|(b` would be valid
        except ValueError as error:
            msg = f"pattern is no regular expression that can be taken: {error}"
            raise ValueError(msg) from None
        if self.pattern.startswith("^") and not _ANCHORED_ALIKE.fullmatch(self.pattern):
            msg = (
                "pattern is the whole name of a topic, and begins with ^: leave it out, and end "
                "with .* if the pattern is only the beginning of a name"
            )
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _does_not_read_its_own(self) -> Self:
        entries = self._entries()
        wrong = of_topics.problem(entries) if self.pattern is None else None
        own = dict.fromkeys((self.dead_letters, self.requeued), "dead letters")
        if (wrong := wrong or of_topics.reads_own(entries, own)) is not None:
            raise ValueError(wrong)
        return self

    @model_validator(mode="after")
    def _reads_nothing_internal(self) -> Self:
        for name in self.topic_names():
            if name.startswith(of_topics.OURS):
                msg = (
                    f"{name} is a topic in which Kafka or Dovecote keeps its own state: no "
                    "subscription reads one"
                )
                raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _forges_nothing(self) -> Self:
        # Topics in which other programs keep their own state: progress, markers, offsets, requeued
        # records.
        name = self.dead_letters
        if name.startswith("__") or (name.startswith(_OWN) and not name.endswith(".dead")):
            msg = f"dead_letter_topic: {name} is no topic for dead letters"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _body_for_a_structure(self) -> Self:
        if self.format == "cloudevents_structured" and not self.endpoint.has_body:
            msg = f"a structured CloudEvent needs a body, which {self.endpoint.method} has not"
            raise ValueError(msg)
        return self

    def topic_names(self) -> tuple[str, ...]:
        """Return the topics that it names; none if it has a pattern."""
        return self.topics or tuple(each.topic for each in self.partitions)

    def topics_read(self) -> list[str]:
        """
        Return the topics for its consumer, in the form of its `topics`: `^…$` is a pattern.
        """
        return [*self._entries(), self.requeued]

    def outline(self) -> str:
        """Return where it reads and sends, without any secret."""
        read = self.pattern or ", ".join(self.topic_names())
        return f"to {self.endpoint.url}, from {read}, as {self.group_id}"

    def named(self, there: Collection[str]) -> list[str]:
        """Return the topics that it means: by name, or those of its pattern that are `there`."""
        return of_topics.matched(self._entries(), there)

    def _entries(self) -> list[str]:
        return [f"^({self.pattern})$"] if self.pattern is not None else list(self.topic_names())

    @property
    def group_id(self) -> str:
        return self.group or self.own_group

    @property
    def own_group(self) -> str:
        """The group that no other subscription has by default."""
        return f"dovecote.push.{self.id}"

    @property
    def consumer_name(self) -> str:
        """The value of `QOH-Consumer`: id and group."""
        return f"{self.consumer or self.id}_{self.group_id}"

    @property
    def dead_letters(self) -> str:
        """The topic of its dead letters."""
        return self.dead_letter_topic or self.own_dead_letters

    @property
    def own_dead_letters(self) -> str:
        """The topic of dead letters that no other subscription has by default."""
        return f"dovecote.push.{self.id}.dead"

    @property
    def requeued(self) -> str:
        """The topic of dead letters that are delivered again, to this subscription alone."""
        return f"dovecote.push.{self.id}.requeued"


class StoredStatus(Model):
    """Whether a subscription delivers, and if not, why."""

    state: Literal["active", "paused", "disabled"] = "active"
    """`paused` by an operator, `disabled` by an event (an endpoint that answered 410)."""

    reason: str = ""
    since: Annotated[datetime, Field(strict=False)] | None = None


def subscription(data: object, **context: Any) -> Subscription:  # noqa: ANN401  # pydantic's own
    """
    Return the subscription that `data` (parsed JSON) describes.

    Raises:
        ValidationError: `data` is not a subscription; `problems` says why.
    """
    return Subscription.model_validate(data, context=context or None)


_WORDS = {"union_tag_not_found": "says no `type`"}


def problems(error: ValidationError) -> list[tuple[str, str]]:
    """Return the faults, as pairs of a field's path (`endpoint.url`) and words."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return said([(each["loc"], each["type"], each["msg"]) for each in found])


def said(errors: Sequence[tuple[Location, str, str]]) -> list[tuple[str, str]]:
    """Return errors of pydantic (where, kind, message) as pairs of a path and words."""
    return [
        (_path(where), words(kind, message, _WORDS))
        for where, kind, message in errors
        # A list whose items are all wrong is not empty.
        if kind != "too_short"
        or not any(other[: len(where)] == where != other for other, _, _ in errors)
    ]


# Here pydantic adds the name of a choice to the path, after the field.
_CHOICES = frozenset({"order", "retry", "start"})


def _path(location: Location) -> str:
    """Return the path as it is in the JSON."""
    if location and location[0] in _CHOICES:
        location = (*location[:1], *location[2:])
    return ".".join(str(part) for part in location)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a subscription."""
    return Subscription.model_json_schema()
