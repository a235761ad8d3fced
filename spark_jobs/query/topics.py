"""The topics that a job reads and writes."""

from collections.abc import Collection, Mapping
from typing import Protocol

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from dovecote.process.topics import most_bytes
from outbox.errors import BadSettings, NoClient
from outbox.kafka_errors import FORBIDDEN, right, told
from outbox.tokens.source import client_of
from spark_jobs.checkpoint.pins import Pins
from spark_jobs.errors import KafkaUnavailable
from spark_jobs.query.settings import SourceSettings, SparkSettings
from spark_jobs.sink import kafka_options
from spark_jobs.source.topics import patterns, plain, unmatched

_SECONDS = 10.0
# A broker may learn of a topic a moment after its creation was confirmed.
_NEWLY_MADE_SECONDS = 3.0


class Job(Protocol):
    """The settings of any job, as far as they can be looked at without Spark."""

    @property
    def kafka(self) -> dict[str, str]: ...
    @property
    def source(self) -> SourceSettings: ...
    @property
    def spark(self) -> SparkSettings: ...

    def topics_written(self) -> tuple[str, ...]: ...
    def marker_topic(self) -> str: ...
    def pins(self) -> Pins: ...


def reading(settings: Job) -> dict[str, str]:
    """Return the connection of the source, where it has one of its own."""
    found: dict[str, str] = getattr(settings, "reading", settings.kafka)
    return found


def require_topics(settings: Job) -> None:
    """
    Raise if a topic is missing.

    Raises:
        BadSettings: it is.
        KafkaUnavailable: the broker does not answer.
    """
    missing = [
        topic
        for kafka, wanted in _wanted(settings)
        for topic in _looking()(_missing_topics, kafka, wanted)
    ]
    if missing:
        _require_rights(settings, missing)
        msg = f"no such topic: {', '.join(missing)}; create it, or correct its name"
        raise BadSettings(msg)


def _require_rights(settings: Job, missing: Collection[str]) -> None:
    """Raise if a topic only seems to be missing, because this user may not see it."""
    read = plain(settings.source.topics)
    for kafka, wanted in _wanted(settings):
        names = [topic for topic in dict.fromkeys(wanted) if topic in missing]
        if not names:
            continue
        admin = _admin(kafka)
        answers = admin.describe_topics(TopicCollection(names), request_timeout=_SECONDS)
        for topic in names:
            try:
                answers[topic].result()
            except KafkaException as error:
                if error.args[0].code() not in FORBIDDEN:
                    continue
                operation = "Read" if topic in read else "Write"
                said = told(error.args[0], right(operation, "topic", topic))
                msg = f"topic {topic} cannot be seen: {said}"
                raise BadSettings(msg) from error


def writing(settings: Job) -> dict[str, str]:
    """Return the connection of the sink, whose clients take records as large as its topics do."""
    if "message.max.bytes" in settings.kafka:
        return settings.kafka
    limits = most_bytes(kafka_options.client(settings.kafka), settings.topics_written())
    largest = max([kafka_options.MESSAGE_MAX_BYTES, *limits.values()])
    return {**settings.kafka, "message.max.bytes": str(largest)}


def require_matches(kafka: Mapping[str, str], entries: Collection[str]) -> None:
    """
    Raise if a pattern among `entries` takes in no topic; for a query that has read nothing yet.

    Raises:
        BadSettings: one does not.
        KafkaUnavailable: the broker does not answer.
    """
    if patterns(entries) and (missing := _looking()(_unmatched, kafka, entries)):
        msg = (
            f"source.topics: no topic matches {', '.join(missing)}: create one, or correct the "
            "pattern. After its first start, a job may run while a pattern matches nothing"
        )
        raise BadSettings(msg)


def _looking() -> Retrying:
    return Retrying(
        retry=retry_if_result(bool),
        stop=stop_after_delay(_NEWLY_MADE_SECONDS),
        wait=wait_fixed(0.2),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else [],
    )


def _wanted(settings: Job) -> list[tuple[dict[str, str], tuple[str, ...]]]:
    read, written = plain(settings.source.topics), settings.topics_written()
    if reading(settings) == settings.kafka:
        return [(settings.kafka, (*read, *written))]
    return [(reading(settings), read), (settings.kafka, written)]


def _missing_topics(kafka: Mapping[str, str], wanted: tuple[str, ...]) -> list[str]:
    there = _topics_there(kafka)
    return [topic for topic in dict.fromkeys(wanted) if topic not in there]


def _unmatched(kafka: Mapping[str, str], entries: Collection[str]) -> list[str]:
    return unmatched(entries, _topics_there(kafka))


def _topics_there(kafka: Mapping[str, str]) -> Collection[str]:
    admin = _admin(kafka)
    try:
        return admin.list_topics(timeout=_SECONDS).topics
    except KafkaException as error:
        msg = f"{kafka['bootstrap.servers']}: {error.args[0].str()}"
        raise KafkaUnavailable(msg) from error


def _admin(kafka: Mapping[str, str]) -> AdminClient:
    try:
        return client_of(AdminClient, kafka_options.quiet(kafka), kafka_options.CLIENT_LOG)
    except NoClient as error:
        msg = f"[kafka]: {str(error).removeprefix('Kafka: ')}"
        raise BadSettings(msg) from error
