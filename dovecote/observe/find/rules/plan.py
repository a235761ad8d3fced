"""Decide which topics are searched for an event, and what each of them is to it."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from dedup.rules import topics as of_topics
from dovecote.observe.find.rules.facts import Role, Taker
from dovecote.observe.find.rules.query import Query, Span, after, place, spans


class Target(NamedTuple):
    """A topic to be searched."""

    topic: str
    role: Role
    spans: tuple[Span, ...]
    """Stretches of time, in the order in which they are read."""
    first: bool
    """Whether its first match is enough."""
    key: bytes | None = None
    """The key, if it is known: only its partition is read."""
    needed: bool = True
    """Whether it is a failure if the topic is not there."""


def read_by(reader: Taker, there: Collection[str]) -> frozenset[str]:
    """Return the topics that a reader reads, of those that are there or that it names."""
    return frozenset(of_topics.matched(reader.topics, there))


def targets(
    query: Query,
    readers: Iterable[Taker],
    there: Collection[str],
    now: datetime,
    *,
    homes: Collection[str] = (),
    key: bytes | None = None,
) -> list[Target]:
    """
    Return the topics to search; `homes` are those that an outbox names, `key` the event's.

    Without a part that reads or writes topics, all of them are searched that are no state of
    Kafka's or of Dovecote's.
    """
    every = list(readers)
    roles: dict[str, Role] = {}
    for reader in every:
        for topic in reader.outputs:
            roles[topic] = "output"
    for reader in every:
        roles |= dict.fromkeys(reader.retries, "retry")
        if reader.dead is not None:
            roles[reader.dead] = "dead"
    read = {topic for each in every for topic in read_by(each, there)}
    wanted = {query.topic} if query.topic is not None else {*homes, *read}
    if not wanted:
        wanted = {each for each in there if not each.startswith(of_topics.OURS)}
    # A topic that one part writes and another reads is that event's own topic for the latter.
    home = {each for each in wanted if roles.get(each, "output") == "output"}
    if place(query) is not None:
        home = set()
    is_key = query.key is not None
    whole = tuple(spans(query, now))
    later = (after(query, now),)
    found = [
        Target(each, "home", whole, first=not is_key, key=key or query.key)
        for each in sorted(home)
    ]
    found += [
        Target(
            each,
            role,
            whole if role == "output" else later,
            first=role == "output" and not is_key,
            needed=False,
        )
        for each, role in sorted(roles.items())
        if each not in home
    ]
    return found


def topics_in(output: Mapping[str, Any]) -> dict[str, str]:
    """Return the topics that the table `output` of a Spark job names, by their settings."""
    found: dict[str, str] = {}
    for name, value in output.items():
        match value:
            case str() if name == "topic" or name.endswith("_topic"):
                found[name] = value
            case dict():
                found |= {
                    f"{name}.{inner}": topic
                    for inner, topic in value.items()
                    if isinstance(topic, str) and of_topics.problem([topic]) is None
                }
    return found
