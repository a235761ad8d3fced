"""The refusal of an event has advice for exactly its reason."""

import pytest
from confluent_kafka import KafkaError

from relay.errors import ADVICE, Unpublishable
from relay.kafka.errors import POISON
from relay.kafka.undelivered import Undelivered
from relay.rules.parking import OWN_TOPIC, Reason
from relay.rules.topics import Rules

ROW = (9, "0190", 0, "orders", b"k", None, "T", "/", None, None, None, None)


@pytest.mark.parametrize("code", sorted(POISON))
def test_whatever_a_broker_refuses_an_event_for_comes_with_advice(code: int) -> None:
    refused = Undelivered().unpublishable([ROW], ROW, KafkaError(code), is_known=True)
    assert str(refused).endswith(f"; {ADVICE[refused.reason.code]}")


def test_what_the_relay_itself_does_not_publish_is_not_mended_at_the_broker() -> None:
    refusal = Rules("progress", ["billing"]).refusal("orders")
    assert refusal is not None
    assert str(Unpublishable(ROW, refusal)).endswith(
        "add the topic to `topics`, or drop the event"
    )
    assert "forge progress" in str(Unpublishable(ROW, OWN_TOPIC))


def test_there_is_no_advice_for_what_nothing_is_refused_for() -> None:
    names = {KafkaError(code).name().lstrip("_") for code in POISON}
    assert names | {"TOPIC_NOT_ALLOWED", "TOPIC_RESERVED"} == ADVICE.keys()


def test_the_message_names_event_topic_and_reason() -> None:
    error = Unpublishable(ROW, Reason("MSG_SIZE_TOO_LARGE", "Broker: Message size too large"))
    assert str(error).startswith(
        "event 0190 for topic 'orders' cannot be published (Broker: Message size too large); "
        "raise `max.message.bytes` of the topic"
    )
