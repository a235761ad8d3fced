"""Explain errors of a Kafka client: missing rights, and partitions without an answer."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal

from confluent_kafka import KafkaError, KafkaException, TopicPartition

Resource = Literal["topic", "group", "transactional id", "cluster"]

_KINDS: Mapping[int, Resource] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
}

FORBIDDEN = frozenset(_KINDS)
"""The broker knows us, but we lack a right."""

_MOST_NAMED = 3

OF_GROUP = KafkaError.GROUP_AUTHORIZATION_FAILED
"""
A client asks for the coordinator of its group even if it is assigned partitions and uses no group.

Such a client reads all the same without that right, so it passes over this error.
"""


def right(operation: str, kind: Resource, name: str) -> str:
    """Return a right in Kafka as messages name it, and as docs/security.md lists it."""
    return f"`{operation}` on {kind} {name!r}"


def read_of_any(topics: Collection[str]) -> list[str]:
    """Return the right to read topics, of which an error concerns one and does not say which."""
    first = [repr(topic) for topic in topics][:_MOST_NAMED]
    more = ["another one"] if len(topics) > len(first) else []
    return [f"`Read` on topic {' or '.join(first + more)}"] if first else []


def told(error: KafkaError, *needed: str) -> str:
    """
    Return what an error says; if a right is missing, with the rights to grant.

    They are those of `needed` for what the error is about, such as a topic, if there is one.
    """
    said = error.str()
    kind = _KINDS.get(error.code())
    if kind is None:
        return said
    fitting = [each for each in needed if f"` on {kind} " in each] or needed
    return f"{said}; grant this user {' and '.join(fitting)}, see docs/security.md"


def require_answers(places: Iterable[TopicPartition]) -> list[TopicPartition]:
    """
    Return a client's answers about several partitions, if there is one about each of them.

    A client raises the error of a whole request. The error of one partition stands in its answer
    alone, and that answer's offset means nothing.

    Raises:
        KafkaException: the first error of a partition, and after it the partition's topic.
    """
    found = list(places)
    for each in found:
        if each.error is not None:
            raise KafkaException(each.error, each.topic)
    return found


CLIENT_ERRORS = (KafkaException, SystemError)
"""A call that runs callbacks raises these; `said_by_client` reads them."""

_FATAL = KafkaError._FATAL  # noqa: SLF001  # the name librdkafka gives it
# Python says it of a call that failed and has no error to show.
_LOST = "without setting an exception"


def said_by_client(
    error: BaseException | None, again: Callable[[], KafkaError | None] = lambda: None
) -> KafkaError | None:
    """
    Return what the client says in an error or in one of its causes; None: it says nothing.

    The client raises a fatal error in the midst of its callbacks. Python then takes the callback
    for broken, and raises a `SystemError` whose cause is the fatal one. If the callback handles
    any exception of its own, as a line for the log may, the fatal one is lost. A call that comes
    before those callbacks gets `_FATAL`, which tells no reason. In both cases `again` is asked for
    it, such as the `refusal_of` another call; if that tells none either, it is `_FATAL`.

    No frame of the error may hold it: the two would keep each other, and the producer with its
    threads and connections.
    """
    is_lost = isinstance(error, SystemError) and _LOST in str(error)
    while error is not None and not isinstance(error, KafkaException):
        error = error.__cause__ or error.__context__
    if error is None and not is_lost:
        return None
    said: KafkaError = KafkaError(_FATAL) if error is None else error.args[0]
    return again() or said if said.code() == _FATAL else said


def refusal_of(call: Callable[[], object]) -> KafkaError | None:
    """Return the error with which the client refuses a call; None: it does not."""
    try:
        call()
    except CLIENT_ERRORS as error:
        return said_by_client(error)
    return None
