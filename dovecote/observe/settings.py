"""The settings of commands that only look at Kafka: any settings file with a table `[kafka]`."""

from pydantic import BaseModel, ConfigDict

from dovecote.process.settings.values import KafkaProperties

PREFIX = "DOVECOTE_TOPIC"


class KafkaAlone(BaseModel):
    """The table that says where Kafka is; the rest of the file is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    kafka: KafkaProperties
    """Any librdkafka property; `bootstrap.servers` at least."""
