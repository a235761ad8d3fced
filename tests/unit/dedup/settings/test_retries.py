"""The tables `[retries]` and `[inbox]`: their meaning, and their errors."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from dedup.retries.plan import Tier
from dedup.rules.policies.results import Dead, Retry, Skip
from dedup.settings.consumer import ConsumerSettings
from dedup.settings.dead import DeadSettings
from dedup.settings.retries import RetriesSettings
from outbox.errors import BadSettings

KAFKA = {"bootstrap.servers": "b:1"}
SHORT, LONG = {"topic": "short"}, {"topic": "long", "wait": "1m"}


def test_the_plan_is_what_the_table_says() -> None:
    plan = RetriesSettings.model_validate(
        {
            "dead_letter_topic": "dead",
            "tiers": [SHORT, LONG],
            "dead_on": ["builtins:KeyError"],
            "skip_on": ["json.decoder:JSONDecodeError", "builtins:LookupError"],
            "hop_limit": 7,
        }
    ).plan()

    assert plan.tiers == [Tier("short"), Tier("long", timedelta(minutes=1))]
    assert (plan.dead_letters, plan.hop_limit) == ("dead", 7)
    assert isinstance(plan.exceptions.result(KeyError()), Dead)
    assert isinstance(plan.exceptions.result(IndexError()), Skip)
    assert isinstance(plan.exceptions.result(OSError()), Retry)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"tiers": [LONG, SHORT], "dead_letter_topic": "d"}, "a longer wait than the one before"),
        ({"tiers": [SHORT, {**LONG, "topic": "short"}], "dead_letter_topic": "d"}, "of its own"),
        ({"tiers": [SHORT]}, "dead_letter_topic is missing"),
        ({"tiers": [SHORT], "dead_letter_topic": "short"}, "must not be a retry topic"),
        ({"base": "2s", "ceiling": "1s"}, "need 0 < base <= ceiling"),
        ({"attempts": 3}, "Extra inputs"),
    ],
)
def test_what_cannot_be_meant_is_refused(table: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        RetriesSettings.model_validate(table)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_such_module:Error", "cannot be loaded"),
        ("builtins:NoSuchError", "cannot be loaded"),
        ("builtins", "cannot be loaded"),
        ("builtins:int", "is not an exception"),
    ],
)
def test_an_exception_that_is_none_is_named(name: str, says: str) -> None:
    with pytest.raises(BadSettings, match=rf"retries\.dead_on: '{name}' {says}"):
        RetriesSettings(dead_on=(name,)).plan()


def test_a_consumer_reads_its_retry_topics() -> None:
    settings = ConsumerSettings.model_validate(
        {
            "topics": ["orders"],
            "group": "g",
            "kafka": KAFKA,
            "policy": "first_match",
            "retries": {"tiers": [SHORT, LONG], "dead_letter_topic": "dead"},
        }
    )
    assert settings.topics_read() == ["orders", "short", "long"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"policy": "first_match"}, r"first_match never holds a key: it needs retries\.tiers"),
        ({"inbox": {"dsn": "dbname=x", "retention": "1s"}}, "must be at least 1m"),
    ],
)
def test_what_a_consumer_cannot_do_is_refused(more: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ConsumerSettings.model_validate({"topics": ["t"], "group": "g", "kafka": KAFKA, **more})


def test_dead_letters_are_found_in_a_consumers_file_and_in_a_jobs() -> None:
    consumer = DeadSettings.model_validate(
        {
            "kafka": KAFKA,
            "topics": ["orders"],
            "group": "whatever else there is",
            "retries": {"dead_letter_topic": "dead", "tiers": [SHORT]},
        }
    )
    assert (consumer.topic(), consumer.first_retry_topic()) == ("dead", "short")

    job = DeadSettings.model_validate(
        {
            "kafka": KAFKA,
            "source": {"topics": ["in"]},
            "output": {"topic": "out", "retry_topic": "retry", "dead_letter_topic": "buried"},
        }
    )
    assert (job.topic(), job.first_retry_topic()) == ("buried", "retry")
    assert (consumer.topics, job.topics_of_job()) == (("orders",), ("in",))

    with pytest.raises(BadSettings, match="no dead-letter topic"):
        DeadSettings.model_validate({"kafka": KAFKA}).topic()
