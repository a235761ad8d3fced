"""The settings of a consumer or a Spark job, as far as `dovecote consume dead` reads them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dedup.settings.retries import RetriesSettings
from dovecote.process.settings.values import KafkaProperties
from outbox.errors import BadSettings

PREFIX = "DOVECOTE_DEAD"


class DeadSettings(BaseModel):
    """The tables that say where dead letters are; the rest of the file is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    kafka: KafkaProperties
    """Any librdkafka property; `bootstrap.servers` at least."""

    group: str | None = None
    """The consumer's group; only its dead letters are selected."""

    topics: tuple[str, ...] = ()
    """The topics that the consumer reads."""

    retries: RetriesSettings = RetriesSettings()
    """The consumer's retries."""

    source: dict[str, Any] = Field(default_factory=dict)
    output: dict[str, Any] = Field(default_factory=dict)
    """Where a Spark job reads and writes."""

    def topic(self) -> str:
        """
        Return the dead-letter topic.

        Raises:
            BadSettings: the file names none.
        """
        found = self.retries.dead_letter_topic or self.output.get("dead_letter_topic")
        if found is None:
            msg = "no dead-letter topic: give --topic, or --config with a file that names one"
            raise BadSettings(msg)
        return str(found)

    def first_retry_topic(self) -> str | None:
        """Return the topic for requeued records, if there are retry topics."""
        tiers = self.retries.retry_topics()
        found = tiers[0] if tiers else self.output.get("retry_topic")
        return None if found is None else str(found)

    def topics_of_job(self) -> tuple[str, ...]:
        """Return the topics that a Spark job reads, as its settings have them."""
        return tuple(self.source.get("topics", ()))
