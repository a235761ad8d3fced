"""The code says what older servers lack, and waits for none of it: `make matrix` asks them."""

import pytest

from dedup.consumer import Consumer
from dovecote.devstack.versions import KAFKA
from dovecote.process.topics import group_protocols
from outbox.errors import BadSettings
from tests.support.consuming import settings
from tests.support.fix_stack import MakeTopic, Servers

IS_OLD = KAFKA.default.startswith("3.")


def test_the_protocols_of_groups_are_asked_for(stack: Servers) -> None:
    told = group_protocols({"bootstrap.servers": stack.kafka.bootstrap})

    assert "classic" in told
    assert ("consumer" in told) is not IS_OLD


def test_a_broker_that_is_away_has_no_known_protocols() -> None:
    assert not group_protocols({"bootstrap.servers": "127.0.0.1:1"}, timeout=0.2)


@pytest.mark.skipif(not IS_OLD, reason="this Kafka has the protocol")
def test_a_protocol_that_the_brokers_lack_is_refused(stack: Servers, topic: MakeTopic) -> None:
    given = settings(stack.kafka.bootstrap, topic(1), protocol="consumer")
    consumer = Consumer(given, lambda _: None)

    with pytest.raises(BadSettings, match="with the protocol classic, not consumer, which needs"):
        consumer.run()
