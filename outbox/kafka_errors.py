"""Explain errors of a Kafka client: missing rights, and partitions without an answer."""

from collections.abc import Iterable
from typing import Literal

from confluent_kafka import KafkaError, KafkaException, TopicPartition

FORBIDDEN = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""The broker knows us, but we lack a right."""

OF_GROUP = KafkaError.GROUP_AUTHORIZATION_FAILED
"""
A client asks for the coordinator of its group even if it is assigned partitions and uses no group.

Such a client reads all the same without that right, so it passes over this error.
"""

Resource = Literal["topic", "group", "transactional id", "cluster"]


def right(operation: str, kind: Resource, name: str) -> str:
    """Return a right in Kafka as messages name it, and as docs/security.md lists it."""
    return f"`{operation}` on {kind} {name!r}"


def told(error: KafkaError, *needed: str) -> str:
    """Return what an error says; if a right is missing, with the rights to grant."""
    said = error.str()
    if error.code() not in FORBIDDEN:
        return said
    return f"{said}; grant this user {' and '.join(needed)}, see docs/security.md"


def require_answers(places: Iterable[TopicPartition]) -> list[TopicPartition]:
    """
    Return a client's answers about several partitions, if there is one about each of them.

    A client raises the error of a whole request. The error of one partition stands in its answer
    alone, and that answer's offset means nothing.

    Raises:
        KafkaException: the first error of a partition.
    """
    found = list(places)
    for each in found:
        if each.error is not None:
            raise KafkaException(each.error)
    return found


def said_by_client(error: BaseException | None) -> KafkaError | None:
    """
    Return what the client says in an error or in one of its causes.

    The client raises a fatal error in the midst of its reports of deliveries, and Python then
    takes the report for broken. No frame of the error may hold it: the two would keep each other,
    and the producer with its threads and connections.
    """
    while error is not None and not isinstance(error, KafkaException):
        error = error.__cause__ or error.__context__
    return None if error is None else error.args[0]
