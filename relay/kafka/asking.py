"""Ask the broker about topics: whether they exist, and whether we may write to them."""

import time
from collections.abc import Collection, Mapping

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there, not declared
    AclOperation,
    AdminClient,
)

from outbox.errors import NoClient
from outbox.kafka import kafka_logger
from outbox.tokens.source import lasting
from relay.kafka.errors import MISSING, OF_TOPIC, code_of
from relay.kafka.progress_topic import ALWAYS_THERE, client_properties
from relay.rules.parking import Reason

_log = kafka_logger("dovecote.relay.kafka")

# An answer takes a millisecond or two. Without one we go on.
_ANSWER = 1.0
# A broker that creates topics by itself creates one when it is asked for it by name. If many are
# missing, the rest have their turn later: others wait meanwhile, so most of the time is theirs.
_MAKING, _SHARE = 0.3, 9.0
_MAY_WRITE = {AclOperation.WRITE, AclOperation.ALL}


class Asking:
    """One client. It connects at the first question, and again at the first one after `close`."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = client_properties(properties)
        self._admin: AdminClient | None = None
        self._make_from = 0.0

    def close(self) -> None:
        """Let go of the client."""
        self._admin = None

    def ask(self, topics: Collection[str]) -> Mapping[str, Reason | None]:
        """Return why no event can go to each of `topics`, None if one can."""
        try:
            admin = self._client()
        except NoClient as error:
            _log.debug("topics: %s", error)
            return {}
        try:
            # librdkafka's parser cannot read the description of a broker that is shutting down,
            # and aborts the process. So make sure that a broker answers.
            admin.list_topics(ALWAYS_THERE, _ANSWER)
        except KafkaException as error:
            admin.poll(0)  # calls error_cb
            _log.debug("topics: %s", error)
            return {}
        found = self._described(admin, list(topics))
        self._have_made(admin, [t for t, error in found.items() if error in MISSING])
        return {topic: None if error is None else _reason(error) for topic, error in found.items()}

    def trouble(self, topics: Collection[str], seconds: float) -> str:
        """
        Return why nothing could be published to `topics` now, empty if it could; creates none.

        A topic that is not there yet is no trouble. It waits for two answers, `seconds` for each.
        """
        try:
            admin = self._client()
        except NoClient as error:
            return str(error)
        try:
            admin.list_topics(ALWAYS_THERE, seconds)  # as above
        except KafkaException as error:
            admin.poll(0)  # calls error_cb
            return f"Kafka: {error.args[0].str()}"
        found = self._described(admin, list(topics), seconds)
        for topic, code in found.items():
            if code is not None and code not in MISSING:
                return f"Kafka: topic {topic!r}: {KafkaError(code).str()}"
        return ""

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = lasting(AdminClient, self._properties, _log)
        return self._admin

    def _described(
        self, admin: AdminClient, topics: list[str], seconds: float = _ANSWER
    ) -> Mapping[str, int | None]:
        """Return the error code of each topic, or None; one request asks for all of them."""
        answers = admin.describe_topics(
            TopicCollection(topics), include_authorized_operations=True, request_timeout=seconds
        )
        found: dict[str, int | None] = {}
        for topic, answer in answers.items():
            try:
                may = answer.result().authorized_operations
            except KafkaException as error:
                # The broker is away or slow, or the topic has no leader; the next batch will get a
                # clearer answer.
                _log.debug("topic %s: %s", topic, error)
                if error.args[0].code() in OF_TOPIC:
                    found[topic] = error.args[0].code()
                continue
            forbidden = may is not None and _MAY_WRITE.isdisjoint(may)
            found[topic] = KafkaError.TOPIC_AUTHORIZATION_FAILED if forbidden else None
        return found

    def _have_made(self, admin: AdminClient, topics: list[str]) -> None:
        """Let a broker that creates topics by itself create the missing ones."""
        began = time.monotonic()
        if began < self._make_from or not topics:
            return
        end = began + _MAKING
        for topic in topics:
            if (left := end - time.monotonic()) <= 0:
                break
            try:
                admin.list_topics(topic, left)
            except KafkaException as error:
                _log.debug("topic %s: %s", topic, error)
        self._make_from = time.monotonic() + _SHARE * (time.monotonic() - began)


def _reason(code: int) -> Reason:
    error = KafkaError(code)
    return Reason(code_of(error), error.str())
