"""A certificate whose key is not there yet makes no client, and each part says so or waits."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dedup.kafka import topic_ids
from dedup.kafka.topic_ids import TopicIds, Topics
from dovecote.audit.away import Away as AwayOfAudit
from dovecote.audit.kafka import Topics as Audited
from dovecote.observe.find.searching import reader
from dovecote.observe.topics import TopicAdmin
from dovecote.process.topics import group_protocols, most_bytes, without_write
from dovecote.push.api.positions import Positions
from dovecote.push.errors import Away
from outbox.errors import DovecoteError, NoClient
from relay.errors import Outage
from relay.kafka.asking import Asking
from relay.kafka.looking_back import LookingBack
from relay.kafka.progress_topic import ProgressTopic
from relay.rules.reconciliation import Doubts
from tests.support.certificates import half_renewed

MISMATCH = "key values mismatch"


@pytest.fixture
def kafka(tmp_path: Path) -> dict[str, str]:
    return half_renewed(tmp_path)[0]


def test_the_relay_names_the_trouble_and_asks_again(kafka: dict[str, str]) -> None:
    asking = Asking(kafka)
    assert asking.ask(["orders"]) == {}
    assert MISMATCH in asking.trouble(["orders"], 1)
    with pytest.raises(NoClient, match=MISMATCH):
        ProgressTopic("progress", kafka, timeout=1).exists()
    with pytest.raises((NoClient, Outage), match=MISMATCH):
        LookingBack(kafka, start=0, since=0, timeout=1).read(Doubts(), ["orders"], fenced=False)


def test_what_topics_take_is_not_known(kafka: dict[str, str]) -> None:
    assert most_bytes(kafka, ["orders"]) == {}
    assert group_protocols(kafka) == ()
    assert without_write(kafka, ["orders"]) == ["orders"]


def test_a_consumer_takes_the_names_of_topics_for_their_ids(
    kafka: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_ids, "_LONGEST_SECONDS", 0.0)
    found = Topics(TopicIds(kafka), every=0.0)
    assert found.ids(["orders"]) == {}
    read: Any = SimpleNamespace(
        offsets=SimpleNamespace(topic_id="one"), stretch=SimpleNamespace(topic="orders")
    )
    assert found.made_anew([read]) == {}


def test_those_who_look_at_kafka_say_so_in_one_line(kafka: dict[str, str]) -> None:
    with pytest.raises(DovecoteError, match=MISMATCH):
        TopicAdmin(kafka)
    with pytest.raises(DovecoteError, match=MISMATCH), reader(kafka):
        raise AssertionError
    with pytest.raises(DovecoteError, match=MISMATCH):
        TopicIds(kafka).ask(["orders"])
    with pytest.raises(AwayOfAudit, match=MISMATCH):
        Audited(kafka).committed("orders", [0])
    with pytest.raises(Away, match=MISMATCH):
        Positions(kafka)
