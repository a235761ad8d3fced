"""Writing records in trouble: they are reported as written only when they are."""

import time
from collections.abc import Iterator

import pytest

from dedup.kafka.letters import Letters
from dedup.retries.aside import Outage
from dedup.retries.copies import Copy, Unwritable
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import consume, patient

COPY = Copy(b"k", b"v", [("ce_id", b"e1"), ("n", None)])


@pytest.fixture
def letters(stack: Servers) -> Iterator[Letters]:
    with Letters({"bootstrap.servers": stack.kafka.bootstrap}) as opened:
        yield opened


def test_what_was_sent_is_there(letters: Letters, topic: MakeTopic, stack: Servers) -> None:
    name = topic()

    letters.send(name, COPY)

    (found,) = consume(stack.kafka.bootstrap, name)
    assert (found.key(), found.value(), found.headers()) == tuple(COPY)


@pytest.mark.parametrize("size", [900_000, 3_000_000])
def test_what_is_too_large_is_told_apart_from_an_outage(
    letters: Letters, topic: MakeTopic, size: int
) -> None:
    name = topic(max_message_bytes="500000")

    with pytest.raises(Unwritable, match=name):
        letters.send(name, COPY._replace(value=b"x" * size))

    letters.send(name, COPY)


def test_a_missing_topic_is_an_outage_that_says_what_to_do(
    letters: Letters, topic: MakeTopic
) -> None:
    with pytest.raises(Outage, match=r"no-such-topic.*create it"):
        letters.send("no-such-topic", COPY)

    began = time.monotonic()
    with pytest.raises(Outage, match="no-such-topic"):
        letters.send("no-such-topic", COPY)
    # Each try holds a handler's thread, so asking again at once gets the same answer at once.
    assert time.monotonic() - began < patient(0.5)

    letters.send(topic(), COPY)


def test_a_broker_that_is_away_is_an_outage_within_the_timeout() -> None:
    began = time.monotonic()
    with (
        Letters({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, timeout=0.5) as letters,
        pytest.raises(Outage),
    ):
        letters.send("orders", COPY)
    assert time.monotonic() - began < patient(5)
