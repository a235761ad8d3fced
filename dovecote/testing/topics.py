"""Topics for a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Protocol
from uuid import uuid4

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

_SECONDS = 90
_LOOK_SECONDS = 0.05


class MakeTopic(Protocol):
    """
    Makes a topic and returns its name.

    Without a name it is a random one. `config` is the topic's, with underscores for dots:
    `cleanup_policy="compact"`.
    """

    def __call__(self, name: str | None = None, *, partitions: int = 1, **config: str) -> str: ...


@contextmanager
def topics(bootstrap: str) -> Iterator[MakeTopic]:
    """Yield a function that makes topics, and delete its topics at the end."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made: list[str] = []

    def make(name: str | None = None, *, partitions: int = 1, **config: str) -> str:
        name = name or f"test-{uuid4().hex}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        wanted = NewTopic(name, partitions, config=settings)
        admin.create_topics([wanted], request_timeout=_SECONDS)[name].result()
        made.append(name)
        # The controller knows the topic; the broker may be a moment late.
        end = monotonic() + _SECONDS
        while (known := admin.list_topics(name).topics[name]).error or len(
            known.partitions
        ) != partitions:
            if monotonic() > end:
                msg = f"topic {name} is not at the broker after {_SECONDS} s"
                raise TimeoutError(msg)
            sleep(_LOOK_SECONDS)
        return name

    try:
        yield make
    finally:
        _delete(admin, made)


def _delete(admin: AdminClient, names: list[str]) -> None:
    if not names:
        return
    for deleted in admin.delete_topics(names, request_timeout=_SECONDS).values():
        try:
            deleted.result()
        except KafkaException as error:
            # The test may have deleted the topic itself.
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
