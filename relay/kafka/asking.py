"""Ask the broker after topics: whether they are there, and whether we may write to them."""

import time
from collections.abc import Collection, Mapping

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there, not declared
    AclOperation,
    AdminClient,
)

from outbox.kafka import kafka_logger
from outbox.secrets import fresh_all
from relay.kafka.errors import MISSING, OF_TOPIC, code_of
from relay.kafka.progress_topic import ALWAYS_THERE, client_properties
from relay.rules.parking import Reason

_log = kafka_logger("dovecote.relay.kafka")

# An answer takes a millisecond or two. Who has none goes on without it.
_ANSWER = 1.0
# Asked by a name alone, a broker that makes topics by itself makes one. Of many that are missing
# the others have their turn the next time.
_MAKING = 0.3
_MAY_WRITE = {AclOperation.WRITE, AclOperation.ALL}


class Asking:
    """One client, connected when it is first asked; once closed, it is connected anew."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = client_properties(properties)
        self._admin: AdminClient | None = None

    def close(self) -> None:
        """Let go of the client."""
        self._admin = None

    def ask(self, topics: Collection[str]) -> Mapping[str, Reason | None]:
        """Return why no event can go to each of `topics`, None if one can."""
        if self._admin is None:
            self._admin = AdminClient(fresh_all(self._properties), logger=_log)
        try:
            # Of a broker that is going, librdkafka's parser takes no description, and ends the
            # process: so one that answers is made sure of.
            self._admin.list_topics(ALWAYS_THERE, _ANSWER)
        except KafkaException as error:
            _log.debug("topics: %s", error)
            return {}
        found = self._described(self._admin, list(topics))
        self._have_made(self._admin, [t for t, error in found.items() if error in MISSING])
        return {topic: None if error is None else _reason(error) for topic, error in found.items()}

    def _described(self, admin: AdminClient, topics: list[str]) -> Mapping[str, int | None]:
        """Return the code of what is wrong with each topic, one question for all of them."""
        answers = admin.describe_topics(
            TopicCollection(topics), include_authorized_operations=True, request_timeout=_ANSWER
        )
        found: dict[str, int | None] = {}
        for topic, answer in answers.items():
            try:
                may = answer.result().authorized_operations
            except KafkaException as error:
                # Away, slow or without a leader: the next batch will say it better.
                _log.debug("topic %s: %s", topic, error)
                if error.args[0].code() in OF_TOPIC:
                    found[topic] = error.args[0].code()
                continue
            forbidden = may is not None and _MAY_WRITE.isdisjoint(may)
            found[topic] = KafkaError.TOPIC_AUTHORIZATION_FAILED if forbidden else None
        return found

    def _have_made(self, admin: AdminClient, topics: list[str]) -> None:
        """Let a broker that makes topics by itself make those that are missing."""
        end = time.monotonic() + _MAKING
        for topic in topics:
            if (left := end - time.monotonic()) <= 0:
                break
            try:
                admin.list_topics(topic, left)
            except KafkaException as error:
                _log.debug("topic %s: %s", topic, error)


def _reason(code: int) -> Reason:
    error = KafkaError(code)
    return Reason(code_of(error), error.str())
